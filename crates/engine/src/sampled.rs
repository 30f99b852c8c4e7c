//! Keeps the log readable when very much of the same happens: of each kind and endpoint it says the
//! first few in a span of time, and then how many more there were.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postrider_core::{EndpointId, Timestamp};
use tokio::sync::Notify;

use crate::ports;
use crate::shared::Shared;

/// Lines of one kind and endpoint that are said within [`SPAN`].
const FIRST: u64 = 5;
const SPAN: Duration = Duration::from_secs(10);
/// How many kinds and endpoints are told apart within a span. Beyond that, endpoints share a place.
const MAX_APART: usize = 4_096;

/// What lines are about, as far as that matters for how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Delivered,
    Retried,
    Failed,
    Deferred,
    Refused,
    Dead,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Retried => "delivered by a retry",
            Self::Failed => "failed, next one scheduled",
            Self::Deferred => "put off",
            Self::Refused => "refused for good",
            Self::Dead => "gave up",
        }
    }
}

/// What was said of late.
#[derive(Debug, Default)]
pub(crate) struct Sampled {
    spans: Mutex<HashMap<Key, Span>>,
    /// Told when there is something that ends where there was nothing.
    begun: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    kind: Kind,
    /// None where there are too many to tell apart.
    endpoint: Option<EndpointId>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    since: Timestamp,
    lines: u64,
}

/// Lines that were left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rest {
    key: Key,
    more: u64,
}

impl Sampled {
    /// Whether one more line of this is to be said.
    pub(crate) fn admits(&self, kind: Kind, endpoint: EndpointId, now: Timestamp) -> bool {
        let (admitted, rest) = self.count(kind, endpoint, now);
        if let Some(rest) = rest {
            rest.say();
        }
        admitted
    }

    fn count(&self, kind: Kind, endpoint: EndpointId, now: Timestamp) -> (bool, Option<Rest>) {
        let mut spans = self.spans.lock();
        let mut key = Key { kind, endpoint: Some(endpoint) };
        if spans.len() >= MAX_APART && !spans.contains_key(&key) {
            key.endpoint = None;
        }
        if spans.is_empty() {
            self.begun.notify_one();
        }
        let span = spans.entry(key).or_insert(Span { since: now, lines: 0 });
        let mut rest = None;
        if span.is_over(now) {
            rest = span.rest(key);
            *span = Span { since: now, lines: 0 };
        }
        span.lines += 1;
        (span.lines <= FIRST, rest)
    }

    /// Says what was left out so far: nothing follows.
    pub(crate) fn finish(&self) {
        for rest in self.end(Timestamp::MAX) {
            rest.say();
        }
    }

    /// Forgets what is over, and returns what was left out of it.
    fn end(&self, now: Timestamp) -> Vec<Rest> {
        let mut over = Vec::new();
        self.spans.lock().retain(|key, span| {
            let ends = span.is_over(now);
            if ends {
                over.extend(span.rest(*key));
            }
            !ends
        });
        over
    }
}

impl Span {
    /// Also when the clock was set back: what is said is better than what is kept back for long.
    fn is_over(&self, now: Timestamp) -> bool {
        now < self.since || now.since(self.since) >= SPAN
    }

    fn rest(&self, key: Key) -> Option<Rest> {
        let more = self.lines.saturating_sub(FIRST);
        (more > 0).then_some(Rest { key, more })
    }
}

impl Rest {
    fn say(self) {
        let Self { key: Key { kind, endpoint }, more } = self;
        let what = kind.as_str();
        let endpoint = endpoint.map_or_else(|| "several".to_owned(), |id| id.to_string());
        match kind {
            Kind::Delivered => {
                tracing::debug!(endpoint, more, what, "and {more} more like it: {what}");
            }
            Kind::Retried | Kind::Failed | Kind::Deferred => {
                tracing::info!(endpoint, more, what, "and {more} more like it: {what}");
            }
            Kind::Refused | Kind::Dead => {
                tracing::warn!(endpoint, more, what, "and {more} more like it: {what}");
            }
        }
    }
}

/// Says what was left out, for as long as the engine lives.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        // An engine with nothing to say wakes for nothing.
        while shared.sampled.spans.lock().is_empty() {
            shared.sampled.begun.notified().await;
        }
        ports::pause(&*shared.clock, SPAN).await;
        for rest in shared.sampled.end(shared.clock.now()) {
            rest.say();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: EndpointId = EndpointId::from_i64(7);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn the_first_few_are_said_and_the_rest_is_counted() {
        let sampled = Sampled::default();
        let said = |now| (0..20).filter(|_| sampled.count(Kind::Failed, ENDPOINT, now).0).count();
        assert_eq!(said(at(0)), 5);
        assert_eq!(said(at(9)), 0);
        let (again, rest) = sampled.count(Kind::Failed, ENDPOINT, at(10));
        let key = Key { kind: Kind::Failed, endpoint: Some(ENDPOINT) };
        assert!(again);
        assert_eq!(rest, Some(Rest { key, more: 35 }));
    }

    #[test]
    fn kinds_and_endpoints_do_not_silence_one_another() {
        let sampled = Sampled::default();
        for _ in 0..100 {
            sampled.count(Kind::Failed, ENDPOINT, at(0));
        }
        assert!(sampled.count(Kind::Dead, ENDPOINT, at(0)).0);
        assert!(sampled.count(Kind::Failed, EndpointId::from_i64(8), at(0)).0);
    }

    #[test]
    fn what_nothing_follows_is_told_when_its_time_is_over() {
        let sampled = Sampled::default();
        for _ in 0..6 {
            sampled.count(Kind::Dead, ENDPOINT, at(0));
        }
        sampled.count(Kind::Failed, ENDPOINT, at(0));
        assert_eq!(sampled.end(at(9)), []);
        let key = Key { kind: Kind::Dead, endpoint: Some(ENDPOINT) };
        assert_eq!(sampled.end(at(10)), [Rest { key, more: 1 }]);
        assert!(sampled.spans.lock().is_empty());
    }

    #[test]
    fn memory_does_not_grow_with_the_number_of_endpoints() {
        let sampled = Sampled::default();
        for id in 0..20_000 {
            sampled.count(Kind::Failed, EndpointId::from_i64(id), at(0));
        }
        assert_eq!(sampled.spans.lock().len(), MAX_APART + 1);
    }

    #[test]
    fn a_clock_that_is_set_back_silences_nothing() {
        let sampled = Sampled::default();
        for _ in 0..6 {
            sampled.count(Kind::Dead, ENDPOINT, at(100));
        }
        assert!(sampled.count(Kind::Dead, ENDPOINT, at(50)).0);
    }
}
