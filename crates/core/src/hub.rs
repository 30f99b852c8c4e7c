//! What a hub and its gateway say to each other: frames, and how they are written.
//!
//! `docs/hub-protocol.md` describes the conversation; this module owns its words. A frame is one
//! binary WebSocket message, and [`FromHub`] and [`FromGateway`] are all the frames there are.

mod bad_frame;
mod frame;
mod headers;

use std::time::Duration;

use bytes::Bytes;

use crate::id::{DeliveryId, EndpointId, EventId, HubId};

pub use bad_frame::{BadFrame, Detail};

/// The WebSocket subprotocol both sides name. Another version is another name.
pub const PROTOCOL: &str = "postrider.hub.v1";
/// Each side sends a ping this often.
pub const HEARTBEAT: Duration = Duration::from_secs(15);
/// A side that has heard nothing for so long takes the other for gone.
pub const SILENCE: Duration = Duration::from_secs(40);
/// A hub that has connected says hello within this time, and is welcomed within it.
pub const GREETING: Duration = Duration::from_secs(10);
/// The most deliveries that a hub may ask to have in its hands at once.
pub const MAX_CAPACITY: u32 = 1_000;

/// The largest head of a frame from a hub.
pub const MAX_HUB_HEAD_BYTES: usize = 256 << 10;
/// The largest head of a frame from a gateway. An endpoint may have headers of its own for as much
/// as one API request can hold, and quoting can double them.
pub const MAX_GATEWAY_HEAD_BYTES: usize = 1 << 20;
/// How many headers a frame may carry.
pub const MAX_HEADERS: usize = 256;
/// The longest that a hub's name for itself may be.
pub const MAX_AGENT_CHARS: usize = 200;
/// The longest account of what went wrong at a hub.
pub const MAX_ERROR_CHARS: usize = 2_000;
/// How much of a response's body an answer carries.
pub const MAX_EXCERPT_BYTES: usize = 16 << 10;
/// The largest body to be forwarded, which is also the largest event that a gateway can take in.
pub const MAX_BODY_BYTES: usize = 100 << 20;
/// The longest time that a frame can name, as a deadline or as a duration.
pub const MAX_SPAN: Duration = Duration::from_hours(24);
/// The highest number of a delivery on one connection: what a double can count to, because that is
/// all that many readers of JSON have.
pub const MAX_SEQ: u64 = (1 << 53) - 1;

/// The largest message that a hub may send.
pub const MAX_FROM_HUB_BYTES: usize = LENGTH_BYTES + MAX_HUB_HEAD_BYTES + MAX_EXCERPT_BYTES;
/// The largest message that a gateway may send.
pub const MAX_FROM_GATEWAY_BYTES: usize = LENGTH_BYTES + MAX_GATEWAY_HEAD_BYTES + MAX_BODY_BYTES;

/// The length of the head stands first, in so many bytes.
const LENGTH_BYTES: usize = 4;

/// The close codes of the protocol.
pub mod close {
    /// The hub has stopped.
    pub const NORMAL: u16 = 1000;
    /// The gateway is stopping.
    pub const STOPPING: u16 = 1001;
    /// A frame was malformed or came out of turn.
    pub const MALFORMED: u16 = 1002;
    /// The hub is known no longer.
    pub const REVOKED: u16 = 1008;
    /// A message was larger than its sender may send.
    pub const TOO_LARGE: u16 = 1009;
    /// Another connection with the same token has taken the place of this one.
    pub const TAKEN_OVER: u16 = 4000;
}

/// What a gateway says to a hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromGateway {
    Welcome(Welcome),
    Deliver(Deliver),
}

/// What a hub says to its gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromHub {
    /// The first frame on a connection, and only that.
    Hello(Hello),
    Answer(Answer),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// What the hub is, like `postrider/0.1.0`.
    pub agent: String,
    /// How many deliveries it takes at once: it never has more of them unanswered.
    pub capacity: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    pub hub: HubId,
    pub name: String,
}

/// One attempt of a delivery, to be forwarded as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deliver {
    /// 1, 2, … on each connection; the answer repeats it.
    pub seq: u64,
    pub delivery: DeliveryId,
    pub event: EventId,
    pub endpoint: EndpointId,
    pub endpoint_name: Option<String>,
    /// The event's type.
    pub kind: String,
    /// The number of this try, from 1.
    pub attempt: u32,
    /// The answer is wanted within this time.
    pub timeout: Duration,
    /// Names in lower case; a name may come more than once.
    pub headers: Vec<(String, Bytes)>,
    pub body: Bytes,
}

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub seq: u64,
    pub duration: Duration,
    pub met: Met,
}

/// What the hub met with where it forwarded to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Met {
    Status {
        status: u16,
        headers: Vec<(String, Bytes)>,
        /// The beginning of the response's body.
        body: Bytes,
        truncated: bool,
    },
    /// No connection, or it broke.
    Network { error: String },
    /// No whole answer in time.
    Timeout { error: String },
}
