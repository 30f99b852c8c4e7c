//! Looks at the store once a second for what no word told: words get lost.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{DeliveryId, EndpointId};
use postrider_store::Error as StoreError;

use crate::jobs;
use crate::ports;
use crate::shared::Shared;

const EVERY: Duration = Duration::from_secs(1);
/// Jobs that nobody works on are looked for every so many looks.
const JOBS_EVERY: u32 = 5;
/// Endpoints looked at in one question.
const AT_ONCE: usize = 2_048;

/// Looks for as long as the engine lives.
pub(crate) async fn run(shared: Arc<Shared>) {
    let Some(fleet) = &shared.fleet else { return };
    let mut looks: u32 = 0;
    loop {
        tokio::select! {
            biased;
            () = fleet.look.notified() => {}
            () = ports::pause(fleet.clock.machine(), EVERY) => {}
        }
        match look(&shared).await {
            Ok(()) => {}
            Err(StoreError::Closed) => return,
            Err(error) => tracing::debug!(%error, "could not look for what waits"),
        }
        fleet.asks.forget_old(&shared);
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(JOBS_EVERY) {
            jobs::resume_soon(&shared);
        }
    }
}

async fn look(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let Some((fleet, store)) = shared.sharing() else { return Ok(()) };
    let idle = shared.scheduler.lock().idle();
    let mut waiting_since = shared.scheduler.lock().waiting_since();
    let mut revision = 0;
    let none: &[EndpointId] = &[];
    let pieces = if idle.is_empty() { vec![none] } else { idle.chunks(AT_ONCE).collect() };
    for some in pieces {
        let looked = store.look(some.to_vec()).await?;
        revision = looked.revision.max(revision);
        let now = shared.clock.now();
        let mut scheduler = shared.scheduler.lock();
        for found in looked.found {
            if let Some(since) = found.ready {
                scheduler.told_of(found.endpoint, None, now);
                waiting_since = Some(waiting_since.map_or(since, |known| known.min(since)));
            }
            if let Some(due) = found.due {
                scheduler.told_of(found.endpoint, Some(due), now);
            }
        }
    }
    fleet.note_waiting(waiting_since);
    if revision > fleet.configuration.seen() {
        fleet.configuration.ask();
    }
    shared.pump();
    Ok(())
}

impl Shared {
    /// Where a delivery is in flight, if it is, on whatever node.
    pub(crate) async fn flies(&self, endpoint: EndpointId, delivery: DeliveryId) -> bool {
        if self.scheduler.lock().is_in_flight(endpoint, delivery) {
            return true;
        }
        match self.ask_carrier(endpoint, Some(delivery)).await {
            Some((in_flight, _, _)) => in_flight,
            None => false,
        }
    }
}
