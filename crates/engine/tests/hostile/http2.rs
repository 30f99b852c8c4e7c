//! The receiver's end of an HTTP/2 connection, spoken frame by frame.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `:status: 200` in the static table of RFC 7541.
const STATUS_200: u8 = 0x88;

pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// The connection after both sides have greeted.
pub(crate) struct Wire {
    stream: TlsStream<TcpStream>,
}

impl Wire {
    pub(crate) async fn accept(acceptor: &TlsAcceptor, stream: TcpStream) -> io::Result<Self> {
        let mut wire = Self { stream: acceptor.accept(stream).await? };
        let mut preface = [0; PREFACE.len()];
        wire.stream.read_exact(&mut preface).await?;
        assert_eq!(preface, PREFACE);
        wire.send(&frame(SETTINGS, 0, 0, &[])).await?;
        Ok(wire)
    }

    pub(crate) async fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        self.stream.write_all(frames).await?;
        self.stream.flush().await
    }

    /// The next frame; an error when the client has gone.
    pub(crate) async fn next(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload).await?;
        Ok(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// The stream of the next request.
    pub(crate) async fn request(&mut self) -> io::Result<u32> {
        loop {
            let frame = self.next().await?;
            if frame.kind == HEADERS {
                return Ok(frame.stream);
            }
        }
    }

    pub(crate) async fn until_closed(&mut self) {
        while self.next().await.is_ok() {}
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a payload of a frame").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A whole answer of 200.
pub(crate) fn ok(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &[STATUS_200])
}
