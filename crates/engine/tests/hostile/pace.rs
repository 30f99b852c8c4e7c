//! Receivers that say when to come again.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Class, State};
use serde_json::json;
use tokio::sync::Barrier;

use crate::gateway::{Gateway, HUNDRED, Visit};
use crate::peer::{Exchange, Peer};
use crate::story::Story;

/// What the schedule asks for: far from any hint, so that the two are not taken for each other.
const SCHEDULED: Duration = Duration::from_hours(1);
/// Where a policy has no age, no hint is honoured for longer.
const LONGEST: Duration = Duration::from_hours(24);
/// More than jitter adds to a wait and the machine to an answer.
const LEEWAY: Duration = Duration::from_mins(5);

/// A hundred answers of 429 with this value, none given before all have asked: from the first hint
/// on, the endpoint is left alone.
async fn answer(gateway: &Gateway, retry_after: &str) -> Vec<Story> {
    let everybody = Arc::new(Barrier::new(HUNDRED));
    let head = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n";
    let reply = format!("{head}Retry-After: {retry_after}\r\n\r\n");
    let peer = Peer::start(async move |mut exchange: Exchange| {
        exchange.read_request().await;
        everybody.wait().await;
        exchange.write(&reply).await;
        exchange.until_closed().await;
    })
    .await;
    let policy = json!({"schedule": {"list": ["1h"]}, "max_attempts": 5});
    let stories = gateway.hundred(Visit::to(peer.url()).until_scheduled(policy)).await;
    assert_eq!(peer.requests().len(), HUNDRED);
    stories
}

/// What a hint has to come to.
#[derive(Debug, Clone, Copy)]
enum Hint {
    /// The next attempt comes after this wait, and this one does not count.
    Honoured(Duration),
    /// The next attempt comes when the schedule says, and this one counts.
    Ignored,
}

fn check(stories: &[Story], retry_after: &str, hint: Hint) {
    let (wait, counted, attempts, deferrals) = match hint {
        Hint::Honoured(wait) => (wait, false, 0, 1),
        Hint::Ignored => (SCHEDULED, true, 1, 0),
    };
    for story in stories {
        let (record, attempt) = (&story.record, story.only_attempt());
        assert_eq!((record.state, record.class), (State::Retrying, Some(Class::RateLimited)));
        assert_eq!((attempt.status, attempt.counted), (Some(429), counted), "{retry_after:?}");
        assert_eq!((record.attempts, record.deferrals), (attempts, deferrals), "{retry_after:?}");
        assert_eq!(story.error(), "HTTP 429 Too Many Requests");
        let waits = record.due.expect("scheduled").since(attempt.started_at);
        let wanted = wait..wait + LEEWAY;
        assert!(wanted.contains(&waits), "{retry_after:?}: {waits:?}, wanted {wanted:?}");
    }
}

/// R25
pub(crate) async fn asks_for_time(gateway: &Gateway) {
    check(&answer(gateway, "120").await, "120", Hint::Honoured(Duration::from_mins(2)));
}

/// R26
pub(crate) async fn asks_nonsense(gateway: &Gateway) {
    for value in ["0", "-1", "", "1.5", "+5", "0x10", "120, 60"] {
        check(&answer(gateway, value).await, value, Hint::Ignored);
    }
}

/// R27
pub(crate) async fn asks_without_measure(gateway: &Gateway) {
    for value in ["inf", "NaN", "1e300"] {
        check(&answer(gateway, value).await, value, Hint::Ignored);
    }
    for value in ["9223372036854775807", "99999999999999999999"] {
        check(&answer(gateway, value).await, value, Hint::Honoured(LONGEST));
    }
}
