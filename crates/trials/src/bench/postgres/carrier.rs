//! The store under measurement, as a node has it: with its default options, and settling by the right
//! of the lane that it carries.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use postrider_core::id::Sequence;
use postrider_core::lane::{DEFAULT_LANES, Lane};
use postrider_store::fleet::{Charge, Fleet, NewNode, Pulse, Tenure};
use postrider_store::journal::{Appended, Urgency};
use postrider_store::postgres::{Options, Postgres};
use postrider_store::record::{NewEvent, Settle, Settled};
use postrider_store::{Journal as _, Store as _};

use super::super::backlog::now;
use super::super::batch::{self, ENDPOINT};
use super::super::store_cycle::keyring;
use super::contest::Cycle;

/// The schema that the store keeps its tables in.
pub(crate) const SCHEMA: &str = "postrider";

/// Longer than any measure takes, so that it has to beat but once.
const LEASE: Duration = Duration::from_hours(24);

/// How many connections the store writes with.
pub(crate) fn connections() -> usize {
    Options::default().writers
}

/// Lets the store make its tables, and leaves.
pub(crate) async fn make_tables(url: &str) -> Result<()> {
    connect(url).await?.close().await;
    Ok(())
}

async fn connect(url: &str) -> Result<Postgres> {
    Ok(Postgres::connect(url, Options::default(), keyring()?).await?)
}

/// One node's store. All copies are the same.
#[derive(Clone)]
pub(crate) struct Carrier {
    pub(crate) store: Arc<Postgres>,
    ids: Arc<Mutex<Sequence>>,
    tenure: Option<Tenure>,
}

impl Carrier {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let store = connect(url).await?;
        let (number, tenure) = match store.fleet() {
            Some(fleet) => {
                let (number, tenure) = join(fleet).await.context("joining the store's nodes")?;
                (number, Some(tenure))
            }
            None => (0, None),
        };
        let ids = Arc::new(Mutex::new(Sequence::of_node(number, 0)));
        Ok(Self { store: Arc::new(store), ids, tenure })
    }

    /// Events and what settles them, as they come from a batch that has just arrived.
    pub(crate) fn batch(&self, count: usize) -> (Vec<NewEvent>, Vec<Settle>) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        batch::make(&mut ids, now(), count, self.tenure)
    }

    pub(crate) async fn append(&self, events: Vec<NewEvent>) -> Result<()> {
        let appended = self.store.append(events).await?;
        ensure!(appended.iter().all(|one| matches!(one, Appended::New { .. })), "not appended");
        Ok(())
    }

    pub(crate) async fn settle(&self, settles: Vec<Settle>) -> Result<()> {
        let settled = self.store.settle(settles, Urgency::Now).await?;
        ensure!(settled.iter().all(|one| matches!(one, Settled::Applied { .. })), "not settled");
        Ok(())
    }

    /// As many as the store has connections to write with, so that all of them are busy.
    pub(crate) fn team(&self) -> Vec<Self> {
        vec![self.clone(); connections()]
    }
}

impl Cycle for Carrier {
    async fn cycle(&mut self) -> Result<Duration> {
        let (events, settles) = self.batch(batch::SIZE);
        let started = Instant::now();
        self.append(events).await?;
        self.settle(settles).await?;
        Ok(started.elapsed())
    }
}

/// Becomes the node that carries the bench's endpoint: its number, and its right.
async fn join(fleet: &dyn Fleet) -> Result<(u8, Tenure)> {
    let new = NewNode {
        name: "bench".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        address: String::new(),
        place: None,
        lease: LEASE,
        lanes: DEFAULT_LANES,
        now: now(),
    };
    let joined = fleet.join(new).await?;
    let pulse = Pulse {
        node: joined.node,
        takes: true,
        now: now(),
        listens: false,
        in_flight: 0,
        waiting_since: None,
    };
    let beat = fleet.beat(pulse).await?.context("the node that has joined is no member")?;
    let charge = Charge::Lane(Lane::of(ENDPOINT, joined.lanes));
    let mine = |held: &&postrider_store::fleet::Held| {
        held.node == joined.node && held.tenure.charge == charge
    };
    let held = beat.held.iter().find(mine).context("a node alone did not take every lane")?;
    Ok((joined.number, held.tenure))
}
