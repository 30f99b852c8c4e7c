//! Since when endpoints fail, and which of them have failed for so long that they are disabled.
//!
//! An endpoint fails from a retryable failure until its next success, or until so little is sent to
//! it that nobody can tell. A refusal for good and a wish for a slower pace are neither: somebody is
//! there, but took nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Class, Endpoint, EndpointId, Timestamp};

use crate::endpoints::{self, Cause, Disable};
use crate::error::Error;
use crate::notices::Audience;
use crate::shared::Shared;

/// The fewest failures for which an endpoint is disabled.
const FEWEST_FAILURES: u32 = 5;
/// After this part of the time without any attempt that failed, a failure is a first one again: a
/// quiet endpoint may well have been in order in between.
const SILENCE: u32 = 2;

/// Failures without a success in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Streak {
    pub(crate) since: Timestamp,
    /// The latest failure; after a restart, that moment, until there is one.
    last: Timestamp,
    /// How many there were; after a restart, counted anew.
    pub(crate) failures: u32,
    /// Everyone, unless all that failed was itself to tell an operator something.
    audience: Audience,
}

impl Streak {
    /// The last failure counts, not the time that has passed since: an endpoint that nothing was sent
    /// to has not failed meanwhile.
    fn lasts(&self, limit: Duration) -> bool {
        self.failures >= FEWEST_FAILURES && self.last.since(self.since) >= limit
    }

    fn is_over(&self, limit: Duration, now: Timestamp) -> bool {
        now.since(self.last) >= limit / SILENCE
    }
}

/// The endpoints that fail. Bounded by how many there are.
#[derive(Debug)]
pub(crate) struct Failing {
    /// After how long an endpoint is disabled, if ever.
    limit: Option<Duration>,
    streaks: HashMap<EndpointId, Streak>,
    /// What the store knows.
    stored: HashMap<EndpointId, Timestamp>,
}

impl Failing {
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self { limit, streaks: HashMap::new(), stored: HashMap::new() }
    }

    pub(crate) fn restore(&mut self, failing: Vec<(EndpointId, Timestamp)>, now: Timestamp) {
        let audience = Audience::StreamOnly;
        for (id, since) in failing {
            self.stored.insert(id, since);
            self.streaks.insert(id, Streak { since, last: now, failures: 0, audience });
        }
    }

    fn failed(&mut self, id: EndpointId, at: Timestamp, audience: Audience) -> Streak {
        let new = Streak { since: at, last: at, failures: 0, audience };
        let streak = self.streaks.entry(id).or_insert(new);
        if self.limit.is_some_and(|limit| streak.is_over(limit, at)) {
            *streak = new;
        }
        streak.last = at;
        streak.failures = streak.failures.saturating_add(1);
        match audience {
            Audience::Everyone => streak.audience = Audience::Everyone,
            Audience::StreamOnly => {}
        }
        *streak
    }

    /// Whether the store has to be told soon: were it to believe in a streak that has ended, the
    /// next one would seem older than it is.
    fn succeeded(&mut self, id: EndpointId) -> bool {
        !self.streaks.is_empty()
            && self.streaks.remove(&id).is_some()
            && self.stored.contains_key(&id)
    }

    /// Forgets streaks that silence has ended.
    fn end_silent(&mut self, now: Timestamp) {
        if let Some(limit) = self.limit {
            self.streaks.retain(|_, streak| !streak.is_over(limit, now));
        }
    }

    /// The endpoint is deleted, and its row with it.
    pub(crate) fn forget(&mut self, id: EndpointId) {
        self.streaks.remove(&id);
        self.stored.remove(&id);
    }

    /// What the store does not know yet.
    fn unwritten(&self) -> Vec<(EndpointId, Option<Timestamp>)> {
        let begun = self
            .streaks
            .iter()
            .filter(|(id, streak)| self.stored.get(id) != Some(&streak.since))
            .map(|(id, streak)| (*id, Some(streak.since)));
        let ended = self.stored.keys().filter(|id| !self.streaks.contains_key(id));
        begun.chain(ended.map(|id| (*id, None))).collect()
    }

    fn written(&mut self, changes: &[(EndpointId, Option<Timestamp>)]) {
        for (id, since) in changes {
            match since {
                Some(since) => self.stored.insert(*id, *since),
                None => self.stored.remove(id),
            };
        }
    }

    fn lasting(&self) -> Vec<(EndpointId, Streak)> {
        let Some(limit) = self.limit else { return Vec::new() };
        let lasting = self.streaks.iter().filter(|(_, streak)| streak.lasts(limit));
        lasting.map(|(id, streak)| (*id, *streak)).collect()
    }
}

/// Notes what an attempt came to. Says so if its endpoint has failed for too long with it.
pub(crate) fn note(
    shared: &Arc<Shared>,
    endpoint: &Endpoint,
    class: Option<Class>,
    audience: Audience,
    at: Timestamp,
) -> Option<Disable> {
    match class {
        None => {
            if shared.failing.lock().succeeded(endpoint.id) {
                let shared = Arc::clone(shared);
                shared.runtime.clone().spawn(async move { write(&shared).await });
            }
            None
        }
        Some(Class::Retryable) => {
            let mut failing = shared.failing.lock();
            let streak = failing.failed(endpoint.id, at, audience);
            let limit = failing.limit?;
            streak.lasts(limit).then(|| disable(endpoint, streak))
        }
        Some(Class::Final | Class::RateLimited) => None,
    }
}

/// Begins anew with an endpoint: somebody says that it is in order.
pub(crate) async fn forgive(shared: &Shared, id: EndpointId) -> Result<(), Error> {
    let stored = {
        let mut failing = shared.failing.lock();
        failing.streaks.remove(&id);
        failing.stored.contains_key(&id)
    };
    if stored {
        let changes = vec![(id, None)];
        shared.store.note_failing(changes.clone()).await?;
        shared.failing.lock().written(&changes);
    }
    Ok(())
}

/// Forgets those that another node carries: it knows better.
pub(crate) fn keep_own(shared: &Shared) {
    let scheduler = shared.scheduler.lock();
    let mut failing = shared.failing.lock();
    failing.streaks.retain(|id, _| scheduler.has_part_in(*id));
    failing.stored.retain(|id, _| scheduler.has_part_in(*id));
}

/// Writes down what has changed, and disables what could not be disabled when its time came.
pub(crate) async fn review(shared: &Arc<Shared>) {
    shared.failing.lock().end_silent(shared.clock.now());
    write(shared).await;
    let lasting = shared.failing.lock().lasting();
    for (id, streak) in lasting {
        let route = shared.routes.load().get(id).cloned();
        if let Some(route) = route {
            endpoints::disable(Arc::clone(shared), disable(&route.endpoint, streak)).await;
        }
    }
}

/// Writes down what has changed. What cannot be written is written the next time.
pub(crate) async fn write(shared: &Shared) {
    let _turn = shared.configuring.lock().await;
    let changes = shared.failing.lock().unwritten();
    if changes.is_empty() {
        return;
    }
    match shared.store.note_failing(changes.clone()).await {
        Ok(()) => shared.failing.lock().written(&changes),
        Err(error) => {
            tracing::warn!(%error, "could not write down since when endpoints fail");
        }
    }
}

fn disable(endpoint: &Endpoint, streak: Streak) -> Disable {
    let audience = streak.audience;
    let (tenant, id) = (endpoint.tenant, endpoint.id);
    Disable { tenant, id, cause: Cause::Failing(streak), audience }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: EndpointId = EndpointId::from_i64(1);
    const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
    const LIMIT: Duration = Duration::from_hours(5 * 24);

    fn at(hours: u64) -> Timestamp {
        START.plus(Duration::from_hours(hours))
    }

    fn failing() -> Failing {
        Failing::new(Some(LIMIT))
    }

    fn lasts(failures: &[u64]) -> bool {
        let mut failing = failing();
        for hours in failures {
            failing.failed(ID, at(*hours), Audience::Everyone);
        }
        !failing.lasting().is_empty()
    }

    #[test]
    fn it_takes_both_time_and_failures_and_no_silence_between_them() {
        for (failures, expected) in [
            (&[0, 1, 2, 61, 120][..], true),
            (&[0, 1, 2, 61, 119], false),
            (&[0, 1, 61, 120], false),
            (&[0, 120], false),
            (&[0, 1, 2, 3, 4, 5, 6, 7], false),
            // Silence for half the time.
            (&[0, 1, 2, 3, 4, 64, 120], false),
            (&[0, 1, 2, 3, 4, 500], false),
            (&[0, 1, 2, 3, 4, 500, 501, 502, 503, 504, 505], false),
            (&[0, 500, 520, 540, 580, 620], true),
        ] {
            assert_eq!(lasts(failures), expected, "{failures:?}");
        }
    }

    #[test]
    fn silence_ends_a_streak() {
        let mut failing = failing();
        failing.restore(vec![(ID, START)], at(100));
        failing.end_silent(at(159));
        assert_eq!(failing.unwritten(), [], "nothing could be sent before the restart");
        failing.end_silent(at(160));
        assert_eq!(failing.unwritten(), [(ID, None)]);
    }

    #[test]
    fn nothing_lasts_too_long_where_there_is_no_limit() {
        let mut failing = Failing::new(None);
        for hours in 0..1_000 {
            failing.failed(ID, at(hours), Audience::Everyone);
        }
        failing.end_silent(at(9_000));
        assert_eq!(failing.lasting(), []);
        assert_eq!(failing.unwritten(), [(ID, Some(START))], "but it is known");
    }

    #[test]
    fn after_a_restart_the_time_goes_on_and_the_count_begins_anew() {
        let mut failing = failing();
        failing.restore(vec![(ID, START)], at(199));
        assert_eq!(failing.unwritten(), []);
        for number in 1..=FEWEST_FAILURES {
            let streak = failing.failed(ID, at(200), Audience::Everyone);
            assert_eq!(streak.since, START);
            assert_eq!(streak.lasts(LIMIT), number == FEWEST_FAILURES);
        }
    }

    #[test]
    fn the_store_is_told_what_it_does_not_know() {
        let mut failing = failing();
        failing.failed(ID, at(0), Audience::Everyone);
        assert!(!failing.succeeded(ID), "it never heard of it");
        assert_eq!(failing.unwritten(), []);
        failing.failed(ID, at(1), Audience::Everyone);
        let begun = failing.unwritten();
        assert_eq!(begun, [(ID, Some(at(1)))]);
        failing.written(&begun);
        assert_eq!(failing.unwritten(), []);
        assert!(failing.succeeded(ID));
        assert_eq!(failing.unwritten(), [(ID, None)]);
        failing.failed(ID, at(2), Audience::Everyone);
        assert_eq!(failing.unwritten(), [(ID, Some(at(2)))], "not the old one");
        assert!(failing.succeeded(ID));
        failing.written(&[(ID, None)]);
        assert_eq!(failing.unwritten(), []);
    }

    #[test]
    fn everyone_is_told_unless_only_what_tells_has_failed() {
        use Audience::{Everyone, StreamOnly};
        for (audiences, expected) in [
            (&[StreamOnly, StreamOnly][..], StreamOnly),
            (&[StreamOnly, Everyone, StreamOnly], Everyone),
            (&[Everyone], Everyone),
        ] {
            let mut failing = failing();
            let streaks = audiences.iter().map(|audience| failing.failed(ID, START, *audience));
            assert_eq!(streaks.last().map(|streak| streak.audience), Some(expected));
        }
    }
}
