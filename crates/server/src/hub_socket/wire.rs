//! A WebSocket that is read and written in turns, by one task. Large messages go out in pieces, so
//! that neither memory nor patience has to be there for a whole one, and a word can be said between
//! them.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Sink as _, Stream as _};
use postrider_core::hub::{MAX_FROM_HUB_BYTES, SILENCE};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::error::{Error, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::ear::Ear;

/// What is written at once. More than this is never copied for a connection.
const PIECE_BYTES: usize = 64 << 10;
/// What is read at once. Every connection has room for it, and most of what hubs say fits.
const READ_BYTES: usize = 8 << 10;
/// The most that a close frame has room for beside its code.
const MAX_REASON_BYTES: usize = 123;

#[derive(Debug)]
pub(super) struct Wire<T> {
    socket: WebSocketStream<Ear<T>>,
    /// What is left of the message that is going out.
    message: Option<Outgoing>,
    /// What goes next, between two pieces if need be.
    aside: Option<Message>,
    /// A piece has been handed over and is not out yet.
    flushing: bool,
    /// Since when the piece that is going out has been on its way.
    since: Instant,
    /// Nothing that is said can be understood any more.
    deaf: bool,
}

#[derive(Debug)]
struct Outgoing {
    rest: Bytes,
    begun: bool,
}

impl Outgoing {
    /// Cuts off the next piece; nothing is left after the last one.
    fn cut(mut self) -> (Message, Option<Self>) {
        let kind = if self.begun { Data::Continue } else { Data::Binary };
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        let frame = Frame::message(piece, OpCode::Data(kind), self.rest.is_empty());
        let rest = (!self.rest.is_empty()).then_some(Self { begun: true, ..self });
        (Message::Frame(frame), rest)
    }
}

/// What has happened on the wire.
#[derive(Debug)]
pub(super) enum Turn {
    Heard(Message),
    /// A piece is out.
    Sent,
    /// A message is larger than is allowed.
    TooLarge,
    /// Something came that is not the WebSocket protocol.
    Malformed(String),
    Lost,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Wire<T> {
    /// The gateway's end of a connection on which the handshake is done.
    pub(super) async fn new(io: T) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_FROM_HUB_BYTES))
            .max_frame_size(Some(MAX_FROM_HUB_BYTES))
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(0);
        let io = Ear::new(io);
        Self {
            socket: WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await,
            message: None,
            aside: None,
            flushing: false,
            since: Instant::now(),
            deaf: false,
        }
    }

    /// Whether another message can be put.
    pub(super) const fn is_idle(&self) -> bool {
        self.message.is_none() && self.can_ping() && !self.flushing
    }

    pub(super) const fn can_ping(&self) -> bool {
        self.aside.is_none()
    }

    /// When the other side has to be taken for gone: it has said nothing, or not taken what was said
    /// to it, for too long.
    pub(super) fn gone_by(&self) -> Instant {
        let last = self.socket.get_ref().heard_at();
        let last = if self.is_idle() { last } else { last.min(self.since) };
        last + SILENCE
    }

    /// The next message to go out. There must be none before it.
    pub(super) fn put(&mut self, message: Bytes) {
        assert!(self.is_idle(), "one message at a time");
        self.since = Instant::now();
        self.message = Some(Outgoing { rest: message, begun: false });
    }

    pub(super) fn ping(&mut self) {
        self.say_aside(Message::Ping(Bytes::new()));
    }

    fn say_aside(&mut self, message: Message) {
        if self.is_idle() {
            self.since = Instant::now();
        }
        self.aside = Some(message);
    }

    /// Reads and writes until something has happened. Nothing is lost if it is dropped before.
    pub(super) async fn turn(&mut self) -> Turn {
        poll_fn(|cx| {
            if let Poll::Ready(sent) = self.poll_send(cx) {
                return Poll::Ready(sent.map_or(Turn::Lost, |()| Turn::Sent));
            }
            if self.deaf {
                return Poll::Pending;
            }
            let heard = ready!(Pin::new(&mut self.socket).poll_next(cx));
            self.deaf = !matches!(heard, Some(Ok(_)));
            Poll::Ready(match heard {
                Some(Ok(message)) => Turn::Heard(message),
                Some(Err(error)) => misheard(&error),
                None => Turn::Lost,
            })
        })
        .await
    }

    /// Sends one piece, if there is one.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if !self.flushing {
            if self.aside.is_none() && self.message.is_none() {
                return Poll::Pending;
            }
            ready!(Pin::new(&mut self.socket).poll_ready(cx))?;
            let aside = self.aside.take();
            let next = aside.or_else(|| {
                let (piece, rest) = self.message.take()?.cut();
                self.message = rest;
                Some(piece)
            });
            if let Some(next) = next {
                self.flushing = true;
                Pin::new(&mut self.socket).start_send(next)?;
            }
        }
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        self.flushing = false;
        self.since = Instant::now();
        Poll::Ready(Ok(()))
    }

    /// Says the last word, and listens until the other side has heard it and hung up, for which it may
    /// wait for ever. The connection stays open meanwhile, because one that is dropped with something
    /// unread in it is reset, and the last word could be lost with it.
    pub(super) async fn finish(&mut self, close: Option<(u16, &str)>) {
        // What has not left stays here: nobody would look at its answer.
        (self.message, self.aside) = (None, None);
        if let Some((code, reason)) = close {
            let reason = reason[..reason.floor_char_boundary(MAX_REASON_BYTES)].into();
            self.say_aside(Message::Close(Some(CloseFrame { code: code.into(), reason })));
        }
        while !(self.deaf && self.is_idle()) {
            if matches!(self.turn().await, Turn::Lost) {
                return;
            }
        }
        // It is not understood any more, but it can be seen to end.
        let mut scrap = [0; READ_BYTES];
        while matches!(pin!(self.socket.get_mut()).read(&mut scrap).await, Ok(1..)) {}
    }
}

fn misheard(error: &Error) -> Turn {
    match error {
        Error::Capacity(_) => Turn::TooLarge,
        // The connection is broken, whatever that is called.
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)
        | Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Io(_)
        | Error::Tls(_)
        | Error::WriteBufferFull(_)
        | Error::AttackAttempt
        | Error::Url(_)
        | Error::Http(_)
        | Error::HttpFormat(_) => Turn::Lost,
        Error::Protocol(_) | Error::Utf8(_) => Turn::Malformed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_into_pieces_that_make_it_up_again() {
        for length in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
            let whole: Vec<u8> = (0..=250).cycle().take(length).collect();
            let mut left = Some(Outgoing { rest: whole.clone().into(), begun: false });
            let mut pieces = Vec::new();
            while let Some(outgoing) = left {
                let (piece, rest) = outgoing.cut();
                let Message::Frame(frame) = piece else { panic!("{piece:?}") };
                let kind = if pieces.is_empty() { Data::Binary } else { Data::Continue };
                assert_eq!(frame.header().opcode, OpCode::Data(kind));
                assert_eq!(frame.header().is_final, rest.is_none());
                assert!(frame.payload().len() <= PIECE_BYTES);
                pieces.extend_from_slice(frame.payload());
                left = rest;
            }
            assert_eq!(pieces, whole);
        }
    }
}
