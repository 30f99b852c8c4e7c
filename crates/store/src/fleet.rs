//! What nodes that share a store need of it: who is there, who carries what, whether there is
//! anything to carry, and word from one to another.
//!
//! All times are those of the store: a server's own clock. A store without a clock of its own goes by
//! the `now` that it is told.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::{EndpointId, HubId, Lane, Timestamp};
use tokio::sync::mpsc;

use crate::error::Error;

/// The longest word: what `NOTIFY` takes, less what the store adds.
pub const MAX_WORD: usize = 7_800;

/// A node's number is not given to another for so long after its lease has ended: it may make ids
/// until then that nobody knows of.
pub const NUMBER_REST: Duration = Duration::from_mins(2);

/// Names a node for as long as it is a member. Given once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub i64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node_{}", self.0)
    }
}

/// What one node at a time carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Charge {
    /// The endpoints of a lane, but for those that a hub forwards to.
    Lane(Lane),
    /// The endpoints that this hub forwards to: whoever has its connection.
    Hub(HubId),
}

impl Charge {
    /// Ids are larger than any lane.
    pub fn key(self) -> i64 {
        match self {
            Self::Lane(Lane(lane)) => i64::from(lane),
            Self::Hub(hub) => hub.as_i64(),
        }
    }

    pub fn from_key(key: i64) -> Self {
        match u16::try_from(key) {
            Ok(lane) => Self::Lane(Lane(lane)),
            Err(_) => Self::Hub(HubId::from_i64(key)),
        }
    }
}

/// A charge while one node has it: every later holder has a higher epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tenure {
    pub charge: Charge,
    pub epoch: i64,
}

#[async_trait]
pub trait Fleet: Send + Sync + 'static {
    /// Joins the nodes that share this store. The first one that ever joins says how many lanes
    /// there are.
    async fn join(&self, new: NewNode) -> Result<Joined, Error>;

    /// Stays for another lease, takes what is free up to a fair share, and looks around. None if the
    /// node is no member any more: it has nothing, and has to join again.
    ///
    /// A node whose lease has ended keeps what nobody has taken from it. A fair share is the number
    /// of lanes over the number of live nodes; the rest of the division goes to those that joined
    /// first. Nobody takes lanes beyond its share, and nothing is taken from a live node.
    async fn beat(&self, pulse: Pulse) -> Result<Option<Beat>, Error>;

    /// Takes a hub, from whoever has it.
    async fn seize(&self, node: NodeId, hub: HubId) -> Result<Tenure, Error>;

    /// Gives up what it still has of these, so that others can take it at once.
    async fn release(&self, node: NodeId, tenures: Vec<Tenure>) -> Result<(), Error>;

    /// Gives up everything, and leaves.
    async fn leave(&self, node: NodeId) -> Result<(), Error>;

    /// The nodes, live ones and those that ended within the last hour, in the order they joined.
    async fn nodes(&self, now: Timestamp) -> Result<Vec<NodeRecord>, Error>;

    /// Which of these endpoints have something that may be tried, and how configuration stands.
    async fn look(&self, endpoints: Vec<EndpointId>) -> Result<Looked, Error>;

    /// Tells others something: soon, or, where the way is lost or too much is said, never. What is
    /// longer than [`MAX_WORD`] is never told.
    fn tell(&self, from: NodeId, to: To, word: String);

    /// What others tell this node and all nodes, from now on, its own words to all left out. Of
    /// more than `room` that nobody has taken, the newest are lost, and a [`Heard::Gap`] says so.
    fn hear(&self, node: NodeId, room: usize) -> mpsc::Receiver<Heard>;
}

/// A node about to join.
#[derive(Debug, Clone)]
pub struct NewNode {
    /// What people call it.
    pub name: String,
    pub version: String,
    /// Where it listens, for people.
    pub address: String,
    /// What only one process at a time can be in, if there is such a thing: whoever was there before
    /// is gone, and what it had is free at once.
    pub place: Option<String>,
    /// For how long it is believed to live after each beat.
    pub lease: Duration,
    /// How many lanes there are to be, if that has not been said yet.
    pub lanes: u16,
    pub now: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    pub node: NodeId,
    /// What tells the ids that it makes from those of the others: no live node has the same.
    pub number: u8,
    pub lanes: u16,
}

/// What a node says of itself with each beat.
#[derive(Debug, Clone, Copy)]
pub struct Pulse {
    pub node: NodeId,
    /// Whether it takes lanes that are free: not while it is stopping.
    pub takes: bool,
    pub now: Timestamp,
    /// Somebody there follows the stream.
    pub listens: bool,
    pub in_flight: u32,
    /// When the oldest became ready that waits in what it carries.
    pub waiting_since: Option<Timestamp>,
}

/// How things stood at a beat.
#[derive(Debug, Clone)]
pub struct Beat {
    /// The time of the store, not later than the answer.
    pub now: Timestamp,
    /// The live nodes, in the order they joined.
    pub nodes: Vec<Member>,
    /// What live nodes hold.
    pub held: Vec<Held>,
    /// How many lanes it has beyond its share: to be released when nothing of them is in flight.
    pub surplus: usize,
    /// When the first lease of another node ends that is not renewed.
    pub next_lapse: Option<Duration>,
    pub revision: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    pub node: NodeId,
    pub listens: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub node: NodeId,
    pub tenure: Tenure,
}

/// A node, for those who look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecord {
    pub node: NodeId,
    pub number: u8,
    pub name: String,
    pub version: String,
    pub address: String,
    pub joined_at: Timestamp,
    pub seen_at: Timestamp,
    /// It is believed to live until then; one that left ended when it did.
    pub until: Timestamp,
    pub live: bool,
    pub in_flight: u32,
    pub waiting_since: Option<Timestamp>,
    pub held: Vec<Tenure>,
}

/// What [`Fleet::look`] saw.
#[derive(Debug, Clone, Default)]
pub struct Looked {
    /// Grows with every change of an endpoint, a source, a hub, a key or a tenant.
    pub revision: i64,
    /// Those that have something, in no order.
    pub found: Vec<Found>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub endpoint: EndpointId,
    /// When the age of the oldest began that is ready.
    pub ready: Option<Timestamp>,
    /// When the earliest that has a time is due.
    pub due: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    Node(NodeId),
    /// Every other node.
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    Word {
        from: NodeId,
        word: String,
    },
    /// Something may have been said that was not heard.
    Gap,
}
