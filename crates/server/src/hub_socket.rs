//! `/v1/hub`: the gateway's end of a hub's connection, from the handshake to the last word.
//!
//! What is said on it stands in `docs/hub-protocol.md`. A connection is one task that reads, writes
//! and looks at the time at once: a hub that does not read holds up nobody, and is noticed.

mod ear;
mod handshake;
mod wire;

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State};
use hyper_util::rt::TokioIo;
use postrider_core::hub::{
    Deliver, FromGateway, FromHub, GREETING, HEARTBEAT, Hello, MAX_FROM_HUB_BYTES, Welcome, close,
};
use postrider_engine::{Ending, Engine, Link, OutOfTurn};
use postrider_store::registry::HubRecord;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::App;
use crate::answer::Answer;
use crate::auth::Hub;
use crate::connection::Place;
use crate::problem::Problem;
use crate::stopping::Stopping;

use handshake::Handshake;
use wire::{Turn, Wire};

pub(crate) const PATH: &str = "/v1/hub";

/// How long a stop waits for answers to what a hub has in its hands. What is not answered by then
/// goes again after the next start.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// How long the other side has to take note of a close.
const CLOSING: Duration = Duration::from_secs(2);

/// The gateway cannot take the hub in, for a reason of its own. The hub may try again.
const AMISS: u16 = 1011;

pub(crate) async fn connect(
    State(app): State<Arc<App>>,
    Hub(hub): Hub,
    handshake: Handshake,
    stopping: Stopping,
    connection: Option<Extension<Place>>,
) -> Answer {
    let place = Arc::clone(&app.hubs)
        .try_acquire_owned()
        .map_err(|_| Problem::unavailable("too many hubs are connected; try again later"))?;
    let (answer, upgrade) = handshake.answer();
    tokio::spawn(async move {
        let _held = (place, connection);
        let id = hub.id;
        let end = match upgrade.await {
            Ok(io) => serve(Wire::new(TokioIo::new(io)).await, &app.engine, hub, stopping).await,
            // It went away before it had the answer.
            Err(_) => End::Lost,
        };
        tracing::debug!(hub = %id, ?end, "a hub's connection has ended");
    });
    Ok(answer)
}

/// How a connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// The hub is told why.
    Closed { code: u16, reason: Cow<'static, str> },
    /// The hub has said goodbye.
    Goodbye,
    /// There is nobody at the other end any more.
    Lost,
}

impl End {
    fn closed(code: u16, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Closed { code, reason: reason.into() }
    }

    fn out_of_turn(reason: &'static str) -> Self {
        Self::closed(close::MALFORMED, reason)
    }

    fn stopping() -> Self {
        Ending::Stopping.into()
    }
}

impl From<Ending> for End {
    fn from(ending: Ending) -> Self {
        let code = match ending {
            Ending::TakenOver => close::TAKEN_OVER,
            Ending::Revoked => close::REVOKED,
            // Its answer is out of turn, in that it did not come.
            Ending::Unanswered => close::MALFORMED,
            Ending::Stopping => close::STOPPING,
        };
        Self::closed(code, ending.to_string())
    }
}

/// One connection, until it is closed.
async fn serve<T: AsyncRead + AsyncWrite + Unpin>(
    mut wire: Wire<T>,
    engine: &Engine,
    hub: HubRecord,
    mut stopping: Stopping,
) -> End {
    // Whatever the end is, the link is gone when the closing begins: what the hub had in its hands
    // does not wait for a hub that is slow to take note.
    let end = match greet(&mut wire, engine, hub, &mut stopping).await {
        Ok(link) => converse(&mut wire, link, stopping).await,
        Err(end) => end,
    };
    let last_word = match &end {
        // Nothing is said to nobody.
        End::Lost => return end,
        End::Goodbye => None,
        End::Closed { code, reason } => Some((*code, reason.as_ref())),
    };
    // A hub that does not take note is left alone.
    let _ = timeout(CLOSING, wire.finish(last_word)).await;
    end
}

/// Hears the hub's hello, takes the hub in and welcomes it.
async fn greet<T: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<T>,
    engine: &Engine,
    hub: HubRecord,
    stopping: &mut Stopping,
) -> Result<Link, End> {
    let hello = tokio::select! {
        heard = timeout(GREETING, hear_hello(wire)) => {
            heard.map_err(|_| End::out_of_turn("no hello came in time"))??
        }
        () = stopping.wait() => return Err(End::stopping()),
    };
    let link = engine.connect_hub(hub.id, &hello).await.map_err(|error| match error {
        // It was deleted since its token was looked at.
        postrider_engine::Error::NotFound => Ending::Revoked.into(),
        other => End::closed(AMISS, other.to_string()),
    })?;
    let welcome = FromGateway::Welcome(Welcome { hub: hub.id, name: hub.name });
    wire.put(welcome.encode());
    Ok(link)
}

async fn hear_hello<T: AsyncRead + AsyncWrite + Unpin>(wire: &mut Wire<T>) -> Result<Hello, End> {
    loop {
        match heard(wire.turn().await)? {
            Some(FromHub::Hello(hello)) => return Ok(hello),
            Some(FromHub::Answer(_)) => return Err(End::out_of_turn("the first frame is hello")),
            None => {}
        }
    }
}

/// Hands over what the engine has for the hub, and what the hub answers.
async fn converse<T: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<T>,
    mut link: Link,
    mut stopping: Stopping,
) -> End {
    let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // What waits for its turn and what the hub has in its hands: the engine sees to it that both
    // together are no more than the hub can hold. The engine is listened to all the time, because it
    // may have the end to tell of.
    let mut waiting: VecDeque<Deliver> = VecDeque::new();
    let mut unanswered = HashSet::new();
    let mut leave_by = None;
    loop {
        let leaving = leave_by.is_some();
        if wire.is_idle() {
            if leaving && unanswered.is_empty() {
                return End::stopping();
            }
            if let Some(deliver) = waiting.pop_front() {
                unanswered.insert(deliver.seq);
                wire.put(FromGateway::Deliver(deliver).encode());
            }
        }
        let gone_by = wire.gone_by();
        tokio::select! {
            turn = wire.turn() => match heard(turn) {
                Ok(Some(FromHub::Answer(answer))) => {
                    let asked = unanswered.remove(&answer.seq);
                    if !asked || link.answer(answer).is_err() {
                        return End::closed(close::MALFORMED, OutOfTurn.to_string());
                    }
                }
                Ok(Some(FromHub::Hello(_))) => return End::out_of_turn("hello is said once"),
                Ok(None) => {}
                Err(end) => return end,
            },
            next = link.next() => match next {
                // Nothing more is sent when the end is near: it goes again after the next start.
                Ok(_) if leaving => {}
                Ok(deliver) => waiting.push_back(deliver),
                Err(ending) => return ending.into(),
            },
            _ = heartbeat.tick(), if wire.can_ping() => wire.ping(),
            () = sleep_until(gone_by) => {
                // Part of a message may have come meanwhile.
                if wire.gone_by() <= Instant::now() {
                    return End::Lost;
                }
            }
            () = stopping.wait(), if !leaving => {
                waiting.clear();
                leave_by = Some(Instant::now() + LAST_ANSWERS);
            }
            () = until(leave_by) => return End::stopping(),
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// What a turn of the wire brought: a frame, nothing of interest, or the end.
fn heard(turn: Turn) -> Result<Option<FromHub>, End> {
    match turn {
        Turn::Heard(Message::Binary(bytes)) => match FromHub::decode(bytes) {
            Ok(frame) => Ok(Some(frame)),
            Err(bad) => Err(End::closed(bad.close_code(), bad.to_string())),
        },
        Turn::Heard(Message::Text(_)) => Err(End::out_of_turn("frames are binary, not text")),
        Turn::Heard(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) | Turn::Sent => {
            Ok(None)
        }
        Turn::Heard(Message::Close(_)) => Err(End::Goodbye),
        Turn::TooLarge => {
            let reason = format!("a message is larger than {MAX_FROM_HUB_BYTES} bytes");
            Err(End::closed(close::TOO_LARGE, reason))
        }
        Turn::Malformed(reason) => Err(End::closed(close::MALFORMED, reason)),
        Turn::Lost => Err(End::Lost),
    }
}

#[cfg(test)]
mod tests;
