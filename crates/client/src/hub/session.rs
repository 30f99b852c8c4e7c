//! One connection, from hello to close: takes deliveries, answers them, keeps the heart beating.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::SplitStream;
use futures_util::{Sink, SinkExt as _, StreamExt as _};
use postrider_core::hub::{Answer, Deliver, FromGateway, FromHub, Hello, Welcome, close};
use postrider_core::span;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{self, Message};

use super::dial::{Line, Stream};
use super::forward::Forwarder;
use super::pulse::Pulsing;
use super::{AgentError, Happening, Timing};
use crate::error::{inert, whole_story};
use crate::ports;

/// How long the other side has to take note of a close.
const CLOSING: Duration = Duration::from_secs(2);
/// Room for what is said beside answers: hello, a ping, a close.
const ASIDES: usize = 4;
/// The most that a close frame has room for beside its code.
const MAX_REASON_BYTES: usize = 123;

/// What a connection is held with.
pub(super) struct Session<'a> {
    pub(super) forwarder: &'a Arc<Forwarder>,
    pub(super) name: &'a str,
    pub(super) capacity: u32,
    pub(super) timing: &'a Timing,
}

/// How a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The agent was stopped.
    Stopped,
    ForGood(AgentError),
    Lost {
        reason: String,
        unanswered: usize,
        /// How long the hub was welcome.
        lasted: Duration,
    },
}

/// Why a conversation is over.
#[derive(Debug)]
enum Over {
    /// There is nobody at the other end, or nobody who listens.
    Gone(String),
    /// The gateway has said why.
    Closed { code: u16, reason: String },
    /// The gateway is told why.
    Close { code: u16, reason: String },
}

impl Over {
    fn out_of_turn(reason: impl Into<String>) -> Self {
        Self::Close { code: close::MALFORMED, reason: reason.into() }
    }

    fn goodbye() -> Self {
        Self::Close { code: close::NORMAL, reason: String::new() }
    }
}

type Incoming = SplitStream<WebSocketStream<Pulsing<Stream>>>;

impl Session<'_> {
    /// Holds the connection until it ends, or until everything in hand is answered after `stop`.
    pub(super) async fn hold(
        &self,
        line: Line,
        stop: Pin<&mut impl Future<Output = ()>>,
        on: &mut impl FnMut(Happening),
    ) -> End {
        let Line { socket, pulse } = line;
        let (sink, mut incoming) = socket.split();
        // Answers never outnumber deliveries, and there are no more of those than the hub can hold.
        let (outbox, outgoing) = mpsc::channel(self.room().saturating_add(ASIDES));
        let mut conversation = Conversation {
            session: self,
            outbox,
            hands: JoinSet::new(),
            last_seq: 0,
            welcomed: None,
            leave_by: None,
        };
        let silence = self.timing.silence;
        let mut writing = pin!(write_out(sink, outgoing, silence));
        let over = tokio::select! {
            over = conversation.run(&mut incoming, stop, on) => over,
            unsent = &mut writing => Over::Gone(unsent),
            () = pulse.silent_for(silence) => {
                let long = span::format(silence);
                Over::Gone(format!("nothing was heard from the gateway for {long}"))
            }
        };
        let Conversation { outbox, mut hands, welcomed, leave_by, .. } = conversation;
        let unanswered = hands.len();
        // Before the next connection brings the same deliveries: none of these may overtake them.
        hands.shutdown().await;
        if let Over::Close { code, reason } = &over {
            let reason = reason[..reason.floor_char_boundary(MAX_REASON_BYTES)].into();
            let frame = CloseFrame { code: (*code).into(), reason };
            // There is room for asides; a close that does not go out is like a lost one.
            let _ = outbox.try_send(Message::Close(Some(frame)));
        }
        drop(outbox);
        if !matches!(over, Over::Gone(_)) {
            // What still comes is read until the other side hangs up: a connection that is dropped
            // with something unread in it is reset, and the last answers could be lost with it.
            let reading = async { while let Some(Ok(_)) = incoming.next().await {} };
            let _ = timeout(CLOSING, async { tokio::join!(writing, reading) }).await;
        }
        if leave_by.is_some() {
            on(Happening::Stopped { unanswered });
            return End::Stopped;
        }
        let lasted = welcomed.map_or(Duration::ZERO, |since| since.elapsed());
        over.end(unanswered, lasted)
    }

    fn room(&self) -> usize {
        usize::try_from(self.capacity).unwrap_or(usize::MAX)
    }
}

impl Over {
    fn end(self, unanswered: usize, lasted: Duration) -> End {
        let reason = match self {
            Self::Gone(reason) => reason,
            Self::Closed { code: close::REVOKED, .. } => return End::ForGood(AgentError::Revoked),
            Self::Closed { code: close::TAKEN_OVER, .. } => {
                return End::ForGood(AgentError::TakenOver);
            }
            Self::Closed { code, reason } if reason.is_empty() => {
                format!("the gateway closed the connection ({code})")
            }
            Self::Closed { code, reason } => {
                format!("the gateway closed the connection ({code}): {reason}")
            }
            Self::Close { reason, .. } => {
                format!("the gateway sent what this hub does not take: {reason}")
            }
        };
        End::Lost { reason, unanswered, lasted }
    }
}

/// The state of a conversation with a gateway.
struct Conversation<'a> {
    session: &'a Session<'a>,
    outbox: mpsc::Sender<Message>,
    /// What is being forwarded.
    hands: JoinSet<(Arc<Deliver>, Answer)>,
    last_seq: u64,
    welcomed: Option<Instant>,
    /// The agent is to stop, and does so with its hands empty or then.
    leave_by: Option<Instant>,
}

impl Conversation<'_> {
    async fn run(
        &mut self,
        incoming: &mut Incoming,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        on: &mut impl FnMut(Happening),
    ) -> Over {
        match self.greet(incoming, stop.as_mut()).await {
            Ok(Welcome { hub, name }) => on(Happening::Connected { hub, name }),
            Err(over) => return over,
        }
        self.welcomed = Some(ports::now());
        let Timing { heartbeat, drain, .. } = *self.session.timing;
        let mut heartbeat = interval_at(ports::now() + heartbeat, heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.leave_by.is_some() && self.hands.is_empty() {
                return Over::goodbye();
            }
            tokio::select! {
                heard = hear(incoming) => {
                    let taken = match heard {
                        Ok(FromGateway::Deliver(deliver)) => self.take(deliver, on),
                        Ok(FromGateway::Welcome(_)) => Err(Over::out_of_turn("a second welcome")),
                        Err(over) => Err(over),
                    };
                    if let Err(over) = taken {
                        return over;
                    }
                }
                Some(done) = self.hands.join_next() => match done {
                    Ok((deliver, answer)) => {
                        if self.outbox.try_send(Message::Binary(answer.encode())).is_err() {
                            return Over::out_of_turn("more deliveries than this hub has room for");
                        }
                        on(Happening::Answered { deliver, answer });
                    }
                    Err(failure) => match failure.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(cancelled) => return Over::Gone(cancelled.to_string()),
                    },
                },
                // Where there is no room for a ping, nothing goes out, and that is noticed.
                _ = heartbeat.tick() => drop(self.outbox.try_send(Message::Ping(Bytes::new()))),
                () = &mut stop, if self.leave_by.is_none() => {
                    self.leave_by = Some(ports::now() + drain);
                    on(Happening::Stopping { in_hand: self.hands.len() });
                }
                () = until(self.leave_by) => return Over::goodbye(),
            }
        }
    }

    async fn greet(
        &mut self,
        incoming: &mut Incoming,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Welcome, Over> {
        let Session { name, capacity, timing, .. } = self.session;
        let hello = FromHub::Hello(Hello { agent: (*name).to_owned(), capacity: *capacity });
        let unsent = |_| Over::Gone("nothing can be sent to the gateway".to_owned());
        self.outbox.try_send(Message::Binary(hello.encode())).map_err(unsent)?;
        tokio::select! {
            heard = timeout(timing.greeting, hear(incoming)) => match heard {
                Ok(Ok(FromGateway::Welcome(welcome))) => Ok(welcome),
                Ok(Ok(FromGateway::Deliver(_))) => {
                    Err(Over::out_of_turn("a delivery before the welcome"))
                }
                Ok(Err(over)) => Err(over),
                Err(_) => Err(Over::out_of_turn("no welcome came in time")),
            },
            () = stop => {
                self.leave_by = Some(ports::now());
                Err(Over::goodbye())
            }
        }
    }

    fn take(&mut self, deliver: Deliver, on: &mut impl FnMut(Happening)) -> Result<(), Over> {
        if deliver.seq <= self.last_seq {
            return Err(Over::out_of_turn("the numbers of deliveries must grow"));
        }
        self.last_seq = deliver.seq;
        // Without an answer it goes again, to the agent that comes next.
        if self.leave_by.is_some() {
            return Ok(());
        }
        if self.hands.len() >= self.session.room() {
            return Err(Over::out_of_turn("more deliveries than this hub has room for"));
        }
        let deliver = Arc::new(deliver);
        on(Happening::Received(Arc::clone(&deliver)));
        let forwarder = Arc::clone(self.session.forwarder);
        self.hands.spawn(async move {
            let answer = forwarder.forward(&deliver).await;
            (deliver, answer)
        });
        Ok(())
    }
}

/// Waits for the next frame. Nothing is lost if it is dropped before.
async fn hear(incoming: &mut Incoming) -> Result<FromGateway, Over> {
    loop {
        let message = match incoming.next().await {
            Some(Ok(message)) => message,
            Some(Err(tungstenite::Error::Capacity(error))) => {
                let reason = error.to_string();
                return Err(Over::Close { code: close::TOO_LARGE, reason });
            }
            Some(Err(error)) => {
                return Err(Over::Gone(format!("the connection broke: {}", whole_story(&error))));
            }
            None => return Err(Over::Gone("the gateway hung up".to_owned())),
        };
        match message {
            Message::Binary(bytes) => {
                return FromGateway::decode(bytes).map_err(|bad| Over::Close {
                    code: bad.close_code(),
                    reason: bad.to_string(),
                });
            }
            Message::Text(_) => return Err(Over::out_of_turn("frames are binary, not text")),
            Message::Close(frame) => {
                let (code, reason) = frame.map_or((close::NORMAL, String::new()), |frame| {
                    (frame.code.into(), inert(&frame.reason))
                });
                return Err(Over::Closed { code, reason });
            }
            // The answer to a ping is written by the next read. That any of them came is known.
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

/// Sends what is put into the outbox, and ends when that is closed; or else says why it cannot.
async fn write_out(
    mut sink: impl Sink<Message, Error = tungstenite::Error> + Unpin,
    mut outgoing: mpsc::Receiver<Message>,
    patience: Duration,
) -> String {
    while let Some(message) = outgoing.recv().await {
        let sending = async {
            sink.feed(message).await?;
            while let Ok(next) = outgoing.try_recv() {
                sink.feed(next).await?;
            }
            sink.flush().await
        };
        match timeout(patience, sending).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return format!("the connection broke: {}", whole_story(&error)),
            Err(_) => {
                let long = span::format(patience);
                return format!("the gateway took nothing for {long}");
            }
        }
    }
    "everything has been sent".to_owned()
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
