//! Counts what happens, for charts: by minute and endpoint in memory, and every few seconds into the
//! store. What was counted since the last time does not outlive a crash.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use postrider_core::delivery::State;
use postrider_core::{EndpointId, TenantId, Timestamp};
use postrider_store::Error as StoreError;
use postrider_store::measures::{Grain, Measure, Measures, Of, Tallies};
use tokio::sync::{Notify, RwLock};

use crate::engine::Engine;
use crate::error::Error;
use crate::ports;
use crate::shared::Shared;

/// How often what was counted is written down.
const FLUSH_EVERY: Duration = Duration::from_secs(10);
/// How many endpoints and minutes are told apart between two writes. Beyond that, what happens counts
/// for its tenant only.
const MAX_OPEN: usize = 8_192;
/// At so many it is written without waiting for the time.
const CROWDED: usize = MAX_OPEN / 2;
/// How many tenants and minutes are told apart beyond that. What does not find a place then is not
/// counted.
const MAX_BEYOND: usize = 1_024;
/// The most endpoints and minutes in one commit, so that deliveries are settled meanwhile.
const STEP: usize = 256;
/// How long a stop waits for the last of it.
const LAST_FLUSH: Duration = Duration::from_secs(5);

impl Engine {
    /// What happened from `since` on, by start, then by endpoint. What other nodes have counted comes in
    /// when they have written it, which takes them some seconds.
    pub async fn measures(
        &self,
        tenant: TenantId,
        of: Of,
        grain: Grain,
        since: Timestamp,
    ) -> Result<Vec<Measure>, Error> {
        let (measures, store) = (&self.shared.measures, &*self.shared.store);
        Ok(measures.read(store, Wanted { tenant, of, grain, since }).await?)
    }
}

/// What was counted and is not in the store.
#[derive(Debug, Default)]
pub(crate) struct Measuring {
    open: Mutex<Open>,
    /// What is being written. Who reads waits for that: until the store has answered, nobody knows
    /// whether it is there already.
    leaving: RwLock<Vec<(Key, Tallies)>>,
    /// Told when there is something to write where there was nothing.
    begun: Notify,
    crowded: Notify,
}

/// What was counted since the last time.
#[derive(Debug, Default)]
struct Open {
    by: HashMap<Key, Tallies>,
    /// How often there was no place to count.
    missed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    /// The start of a [`Grain::Minute`], of which all others are made up.
    minute: Timestamp,
    tenant: TenantId,
    /// None where it counts for the tenant only.
    endpoint: Option<EndpointId>,
}

/// What became of one delivery, as the store has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    pub(crate) at: Timestamp,
    pub(crate) tenant: TenantId,
    pub(crate) endpoint: EndpointId,
    /// Since when it could have been delivered: when its event came in, or was meant for, or when it was
    /// given another life.
    pub(crate) born: Timestamp,
    pub(crate) state: State,
    /// An attempt led to it that was no success.
    pub(crate) failed: bool,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    tenant: TenantId,
    of: Of,
    grain: Grain,
    since: Timestamp,
}

impl Measuring {
    /// Counts deliveries that were made: when, and where they go.
    pub(crate) fn made(
        &self,
        tenant: TenantId,
        deliveries: impl Iterator<Item = (Timestamp, EndpointId)>,
    ) {
        self.count(|open| {
            for (at, endpoint) in deliveries {
                if let Some(tallies) = open.tallies(at, tenant, endpoint) {
                    tallies.received += 1;
                }
            }
        });
    }

    /// Counts changes that were made.
    pub(crate) fn settled(&self, changes: impl Iterator<Item = Change>) {
        self.count(|open| {
            for change in changes.filter(Change::counts) {
                if let Some(tallies) = open.tallies(change.at, change.tenant, change.endpoint) {
                    change.tally(tallies);
                }
            }
        });
    }

    fn count(&self, count: impl FnOnce(&mut Open)) {
        let (begun, crowded) = {
            let mut open = self.open.lock();
            let was_empty = open.by.is_empty();
            count(&mut open);
            (was_empty && !open.by.is_empty(), open.by.len() >= CROWDED)
        };
        if begun {
            self.begun.notify_one();
        }
        if crowded {
            self.crowded.notify_one();
        }
    }

    /// Ends when there is something to write down: an engine with nothing to do wakes for nothing.
    async fn begun(&self) {
        while self.open.lock().by.is_empty() {
            self.begun.notified().await;
        }
    }

    /// Writes down what was counted. What could not be written is kept for the next time.
    ///
    /// If the word of the store that it has taken something got lost, that is written, and so counted,
    /// twice: a chart that shows too much for a minute is better than one that hides what happened.
    async fn flush<S: Measures + ?Sized>(&self, store: &S) -> Result<(), StoreError> {
        let mut leaving = self.leaving.write().await;
        write(store, &mut leaving).await?;
        let open = std::mem::take(&mut *self.open.lock());
        if open.missed > 0 {
            tracing::warn!(
                missed = open.missed,
                "charts leave out what there was no room to count"
            );
        }
        leaving.extend(open.by);
        write(store, &mut leaving).await
    }

    async fn read<S: Measures + ?Sized>(
        &self,
        store: &S,
        wanted: Wanted,
    ) -> Result<Vec<Measure>, StoreError> {
        let Wanted { tenant, of, grain, since } = wanted;
        let leaving = self.leaving.read().await;
        let stored = store.measures(tenant, of, grain, since).await?;
        let mut found: BTreeMap<_, Tallies> = BTreeMap::new();
        for measure in stored {
            found.entry((measure.start, measure.endpoint)).or_default().add(&measure.tallies);
        }
        let mut add = |key: &Key, tallies: &Tallies| {
            if let Some(place) = wanted.place(key) {
                found.entry(place).or_default().add(tallies);
            }
        };
        leaving.iter().for_each(|(key, tallies)| add(key, tallies));
        self.open.lock().by.iter().for_each(|(key, tallies)| add(key, tallies));
        let measure =
            |((start, endpoint), tallies)| Measure { grain, start, tenant, endpoint, tallies };
        Ok(found.into_iter().map(measure).collect())
    }
}

/// Writes and drops one portion after the other, the last ones first.
async fn write<S: Measures + ?Sized>(
    store: &S,
    leaving: &mut Vec<(Key, Tallies)>,
) -> Result<(), StoreError> {
    while !leaving.is_empty() {
        let rest = leaving.len().saturating_sub(STEP);
        store.add_measures(measures(&leaving[rest..])).await?;
        leaving.truncate(rest);
    }
    Ok(())
}

/// The same in every grain, of the endpoints and of their tenants, in the same order on every node:
/// several may write the same rows at the same time.
fn measures(counted: &[(Key, Tallies)]) -> Vec<Measure> {
    let mut sums: BTreeMap<_, Tallies> = BTreeMap::new();
    for (key, tallies) in counted {
        for grain in Grain::ALL {
            let start = grain.start_of(key.minute);
            sums.entry((grain, start, key.tenant, None)).or_default().add(tallies);
            if key.endpoint.is_some() {
                sums.entry((grain, start, key.tenant, key.endpoint)).or_default().add(tallies);
            }
        }
    }
    let measure = |((grain, start, tenant, endpoint), tallies)| Measure {
        grain,
        start,
        tenant,
        endpoint,
        tallies,
    };
    sums.into_iter().map(measure).collect()
}

impl Open {
    fn tallies(
        &mut self,
        at: Timestamp,
        tenant: TenantId,
        endpoint: EndpointId,
    ) -> Option<&mut Tallies> {
        let minute = Grain::Minute.start_of(at);
        let mut key = Key { minute, tenant, endpoint: Some(endpoint) };
        if self.by.len() >= MAX_OPEN && !self.by.contains_key(&key) {
            key.endpoint = None;
            if self.by.len() >= MAX_OPEN + MAX_BEYOND && !self.by.contains_key(&key) {
                self.missed += 1;
                return None;
            }
        }
        Some(self.by.entry(key).or_default())
    }
}

impl Change {
    fn counts(&self) -> bool {
        self.failed
            || match self.state {
                State::Delivered | State::Failed | State::Dead => true,
                State::Pending | State::Retrying | State::InFlight | State::Cancelled => false,
            }
    }

    fn tally(&self, tallies: &mut Tallies) {
        tallies.failures += u64::from(self.failed);
        match self.state {
            State::Delivered => {
                tallies.delivered += 1;
                let took = self.at.since(self.born).as_millis();
                tallies.note_latency(u64::try_from(took).unwrap_or(u64::MAX));
            }
            State::Failed | State::Dead => tallies.dead += 1,
            State::Pending | State::Retrying | State::InFlight | State::Cancelled => {}
        }
    }
}

impl Wanted {
    /// Where something counts, if it is asked for.
    fn place(&self, key: &Key) -> Option<(Timestamp, Option<EndpointId>)> {
        let start = self.grain.start_of(key.minute);
        let endpoint = match self.of {
            Of::Tenant => None,
            Of::Endpoint(wanted) => Some(key.endpoint.filter(|endpoint| *endpoint == wanted)?),
            Of::EachEndpoint => Some(key.endpoint?),
        };
        (key.tenant == self.tenant && start >= self.since).then_some((start, endpoint))
    }
}

/// Writes down what was counted, for as long as the engine lives.
pub(crate) async fn run(shared: Arc<Shared>) {
    // Nodes that were started together do not all write at the same moment.
    let part = u32::from(shared.entropy.secret_bytes()[0]) + 1;
    ports::pause(&*shared.clock, FLUSH_EVERY * part / 257).await;
    let mut failing = false;
    loop {
        match shared.measures.flush(&*shared.store).await {
            Ok(()) if failing => {
                tracing::info!("what is shown in charts can be written down again");
                failing = false;
            }
            Err(StoreError::Closed) => return,
            Err(error) if !failing => {
                tracing::warn!(%error, "what is shown in charts could not be written down, and is kept");
                failing = true;
            }
            // As it was; one word about an outage is enough.
            Ok(()) | Err(_) => {}
        }
        let pause = std::pin::pin!(ports::pause(&*shared.clock, FLUSH_EVERY));
        if failing {
            pause.await;
        } else {
            shared.measures.begun().await;
            let crowded = std::pin::pin!(shared.measures.crowded.notified());
            match select(pause, crowded).await {
                Either::Left(_) | Either::Right(_) => {}
            }
        }
    }
}

/// Writes down the rest, as far as that is possible now.
pub(crate) async fn finish(shared: &Shared) {
    match tokio::time::timeout(LAST_FLUSH, shared.measures.flush(&*shared.store)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "the last of what is shown in charts could not be written down");
        }
        Err(_) => {
            tracing::warn!("the last of what is shown in charts could not be written down in time");
        }
    }
}

#[cfg(test)]
mod tests;
