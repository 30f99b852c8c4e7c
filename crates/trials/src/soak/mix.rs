//! The endpoints of a soak: one of each manner, with policies so short that everything ends, and the
//! streams of events that go to them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::passage::Passage;
use super::place::{Manner, Place};
use super::producer::{Order, Stream};
use super::stand::Stand;

pub(crate) const HEALTHY: &str = "soak.healthy";
/// Goes to the slow endpoint and to the flapping one.
const SHARED: &str = "soak.shared";
const ORDERED: &str = "soak.ordered";
/// One delivery after the other goes only so fast.
const MOST_ORDERED_PER_SECOND: f64 = 8.0;
/// A rate draws from no more numbers than this, so that a soak has a longest time.
const MAX_NUMBERS: usize = 64 << 20;

/// One kind of endpoint and what goes to it.
struct Part {
    kind: &'static str,
    /// Of all events, in hundredths.
    share: f64,
    manner: Manner,
    /// What the endpoint has beside its place, its types and its policy.
    more: Value,
}

fn parts() -> Vec<Part> {
    let part = |kind, share, manner, more| Part { kind, share, manner, more };
    let seconds = Duration::from_secs;
    let millis = Duration::from_millis;
    let limiting = Manner::Limiting { every: seconds(5), for_long: millis(200) };
    // However slow the machine is, what goes there must not grow too old.
    let patient = json!({"policy": {"schedule": {"list": ["200ms"]}, "max_attempts": 20}});
    vec![
        part(HEALTHY, 50.0, Manner::Healthy, patient),
        part("soak.slow", 8.0, Manner::Slow(millis(300)), json!({})),
        part("soak.failing", 8.0, Manner::Failing, json!({})),
        part("soak.flapping", 8.0, Manner::Flapping(seconds(5)), json!({})),
        part("soak.limiting", 8.0, limiting, json!({})),
        part("soak.hanging", 4.0, Manner::Hanging, json!({"timeout": "1s", "max_in_flight": 32})),
        part("soak.refusing", 6.0, Manner::Refusing, json!({})),
        part(ORDERED, 4.0, Manner::Stumbling(10), json!({"ordering": "fifo"})),
    ]
}

/// What is left of a hundred.
const SHARED_SHARE: f64 = 4.0;

/// The places, and what is sent to them.
#[derive(Debug)]
pub(crate) struct Mix {
    pub(crate) places: Vec<(&'static str, Place)>,
    pub(crate) streams: Vec<Stream>,
}

impl Mix {
    /// `age` is how long a delivery is tried at most, `lasts` how long events are sent.
    pub(crate) async fn set_up(
        stand: &Stand,
        rate: u32,
        age: Duration,
        lasts: Duration,
    ) -> Result<Self> {
        let mut places = Vec::new();
        let mut streams = Vec::new();
        for Part { kind, share, manner, more } in parts() {
            let mut per_second = f64::from(rate) * share / 100.0;
            let mut order = Order::Any;
            if kind == ORDERED {
                per_second = per_second.min(MOST_ORDERED_PER_SECOND);
                order = Order::Kept;
            }
            let passage = Arc::new(Passage::new(numbers(per_second, lasts)));
            let place = Place::start(manner, Arc::clone(&passage.arrivals)).await?;
            let mut types = vec![kind];
            if matches!(manner, Manner::Slow(_) | Manner::Flapping(_)) {
                types.push(SHARED);
            }
            let endpoint = endpoint(&place.url(), &types, age, more);
            stand.gateway.create_endpoint(&endpoint).await.context(kind)?;
            places.push((kind, place));
            streams.push(Stream { kind, per_second, order, passage });
        }
        // Nobody asks when these arrived: their numbers meet those of others.
        let per_second = f64::from(rate) * SHARED_SHARE / 100.0;
        let passage = Arc::new(Passage::new(numbers(per_second, lasts)));
        streams.push(Stream { kind: SHARED, per_second, order: Order::Any, passage });
        Ok(Self { places, streams })
    }

    pub(crate) fn healthy(&self) -> Result<&Stream> {
        let found = self.streams.iter().find(|stream| stream.kind == HEALTHY);
        found.context("there is no healthy endpoint")
    }

    /// How often the ordered endpoint was sent something out of order.
    pub(crate) fn out_of_order(&self) -> u64 {
        let ordered = self.places.iter().filter(|(kind, _)| *kind == ORDERED);
        ordered.map(|(_, place)| place.seen.out_of_order()).sum()
    }
}

fn endpoint(url: &str, types: &[&str], age: Duration, more: Value) -> Value {
    let mut endpoint = json!({
        "url": url,
        "event_types": types,
        "policy": {
            "schedule": {"list": ["200ms", "500ms", "1s"]},
            "max_attempts": 4,
            "max_age": format!("{}s", age.as_secs().max(1)),
            "classify": {"4xx": "final"},
        },
    });
    if let (Value::Object(endpoint), Value::Object(more)) = (&mut endpoint, more) {
        endpoint.extend(more);
    }
    endpoint
}

/// Twice as many as are meant to be sent: a producer that was held up catches up.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and a cast saturates"
)]
fn numbers(per_second: f64, lasts: Duration) -> usize {
    let wanted = (per_second * lasts.as_secs_f64() * 2.0).ceil() as usize;
    wanted.saturating_add(1_000).min(MAX_NUMBERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_a_whole_and_every_manner_is_there_once() {
        let parts = parts();
        let sum: f64 = parts.iter().map(|part| part.share).sum::<f64>() + SHARED_SHARE;
        assert!((sum - 100.0).abs() < 1e-9, "{sum}");
        let mut kinds: Vec<_> = parts.iter().map(|part| part.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), parts.len());
    }

    #[test]
    fn an_endpoint_has_what_its_part_adds() {
        let made =
            endpoint("http://a/", &["a.b"], Duration::from_secs(5), json!({"timeout": "1s"}));
        assert_eq!(made["timeout"], "1s");
        assert_eq!(made["policy"]["max_age"], "5s");
        assert_eq!(made["event_types"], json!(["a.b"]));
    }
}
