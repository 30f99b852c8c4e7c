//! When a delivery is tried again.

use std::time::{Duration, SystemTime};

use http::StatusCode;
use postrider_core::Timestamp;
use serde_json::{Value, json};

use crate::gateway::{Launch, text};
use crate::peer::Peer;
use crate::sink::{Reply, Sink};
use crate::{delivery_once, lease_one, post, shown};

fn time(delivery: &Value, field: &str) -> Timestamp {
    text(delivery, field).parse().unwrap_or_else(|error| panic!("{field} in {delivery}: {error}"))
}

/// The nominal wait grows a thousandfold with each failure: after seven of them its milliseconds are
/// more than 64 bits hold, after a hundred more than a double does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_a_retry_time_that_overflows_to_zero_or_less() {
    const ATTEMPTS: u32 = 120;
    const LONGEST: Duration = Duration::from_millis(20);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    let steep = |initial: &str, longest: &str| {
        let growth = json!({
            "initial": initial, "multiplier": 1000.0, "max_delay": longest, "jitter": 0.0,
        });
        json!({ "schedule": { "exponential": growth }, "max_attempts": ATTEMPTS })
    };
    let spec = json!({ "pull": true, "policy": steep("1ms", "20ms") });
    let endpoint = gateway.create_endpoint(spec).await;
    let event = gateway.send(1).await;
    let id = text(&gateway.delivery_of(&event).await, "id");
    for number in 1..ATTEMPTS {
        fail_once(&gateway, &endpoint, number).await;
        let delivery = delivery_once(&gateway, &id, "retrying").await;
        let waits = time(&delivery, "next_attempt_at").since(time(&delivery, "last_attempt_at"));
        // The first wait is the initial one.
        assert!(number == 1 || waits >= LONGEST, "{waits:?} after {number} failures: {delivery}");
    }
    fail_once(&gateway, &endpoint, ATTEMPTS).await;
    let dead = delivery_once(&gateway, &id, "dead").await;
    assert_eq!((&dead["attempts"], &dead["reason"]), (&json!(ATTEMPTS), &json!("exhausted")));

    // The same as far as a policy can reach.
    let longest = Duration::from_hours(24 * 366).as_secs_f64();
    for (initial, first) in [("1ms", 0.001), ("366d", longest)] {
        let body = json!({ "policy": steep(initial, "366d") });
        let plan = post(&gateway, "/v1/policies/preview", body, StatusCode::OK).await;
        let attempts = plan["attempts"].as_array().expect("a list");
        assert!(attempts.len() > 8, "{plan}");
        let delays = attempts.iter().skip(1).map(|attempt| attempt["delay_seconds"].as_f64());
        let mut before = first;
        for delay in delays {
            let delay = delay.expect("a number");
            assert!((before..=longest).contains(&delay), "{delay} after {before}: {plan}");
            before = delay;
        }
    }
}

async fn fail_once(gateway: &crate::Gateway, endpoint: &str, number: u32) {
    let lease = lease_one(gateway, endpoint, "1m").await;
    assert_eq!(lease["attempt"], number, "{lease}");
    let path = format!("/v1/leases/{}/nack", text(&lease, "lease"));
    post(gateway, &path, json!({ "class": "retryable", "error": "no" }), StatusCode::OK).await;
}

/// What a `Retry-After` asks for.
#[derive(Debug, Clone, Copy)]
enum Asked {
    For(Duration),
    Until(Timestamp),
    /// It cannot be understood, or the time has passed: the schedule goes on as ever.
    Nothing,
}

/// The wait of the schedule, far from what any hint asks for.
const SCHEDULED: Duration = Duration::from_hours(1);
/// Where a policy has no age, no hint is honoured for longer.
const LONGEST: Duration = Duration::from_hours(24);
/// More than a machine takes for an answer.
const LEEWAY: Duration = Duration::from_mins(5);

fn hints() -> Vec<(String, Asked)> {
    let soon = SystemTime::now() + Duration::from_hours(2);
    let since = soon.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let until = Timestamp::from_millis(i64::try_from(since * 1_000).expect("a time"));
    let fixed = [
        ("120", Asked::For(Duration::from_mins(2))),
        ("2147483648", Asked::For(LONGEST)),
        ("9223372036854775807", Asked::For(LONGEST)),
        ("18446744073709551616", Asked::For(LONGEST)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", Asked::For(LONGEST)),
        ("0", Asked::Nothing),
        ("-1", Asked::Nothing),
        ("-9223372036854775809", Asked::Nothing),
        ("1.5", Asked::Nothing),
        ("1e300", Asked::Nothing),
        ("NaN", Asked::Nothing),
        ("120, 60", Asked::Nothing),
        ("", Asked::Nothing),
        ("\u{1f6f5}", Asked::Nothing),
        ("Thu, 01 Jan 1970 00:00:00 GMT", Asked::Nothing),
        ("Sun Nov  6 08:49:37 1994", Asked::Nothing),
        ("Wed, 32 Foo 2026 99:99:99 GMT", Asked::Nothing),
    ];
    let date = (httpdate::fmt_http_date(soon), Asked::Until(until));
    fixed.map(|(value, asked)| (value.to_owned(), asked)).into_iter().chain([date]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_a_retry_after_that_panics_or_fires_early() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    let policy = json!({
        "schedule": { "list": ["1h"], "jitter": 0.0 }, "max_attempts": 5,
    });
    let mut asking = Vec::new();
    for (value, asked) in hints() {
        let head = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n";
        let peer = Peer::answering(format!("{head}Retry-After: {value}\r\n\r\n")).await;
        let spec = json!({ "url": peer.url(), "policy": policy, "event_types": ["load.*"] });
        let endpoint = gateway.create_endpoint(spec).await;
        asking.push((endpoint, value, asked, peer));
    }
    let event = gateway.send(1).await;
    let path = format!("/v1/events/{event}/deliveries?limit=250");
    let all = |list: &Value| {
        let list = list["data"].as_array().expect("a list");
        list.iter().all(|delivery| delivery["state"] == "retrying")
    };
    let deliveries = shown(&gateway, &path, all).await;
    for (endpoint, value, asked, peer) in &asking {
        let deliveries = deliveries["data"].as_array().expect("a list");
        let delivery = deliveries.iter().find(|delivery| delivery["endpoint_id"] == **endpoint);
        let delivery = delivery.expect("one for each endpoint");
        let tried = time(delivery, "last_attempt_at");
        let (earliest, deferrals) = match *asked {
            Asked::For(wait) => (tried.plus(wait), 1),
            Asked::Until(until) => (until, 1),
            Asked::Nothing => (tried.plus(SCHEDULED), 0),
        };
        let due = time(delivery, "next_attempt_at");
        assert!(due >= earliest, "{value:?} fires early: {delivery}");
        assert!(due <= earliest.plus(LEEWAY), "{value:?} fires late: {delivery}");
        assert_eq!(delivery["deferrals"], deferrals, "{value:?}: {delivery}");
        assert_eq!(peer.requests().len(), 1, "{value:?}");
    }
    leaves_it_alone(&gateway).await;
    let ended = gateway.stop().await;
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

/// What was asked for in seconds is waited out to the end, by whatever else is for this endpoint, too.
async fn leaves_it_alone(gateway: &crate::Gateway) {
    const PAUSE: Duration = Duration::from_secs(2);
    let sink = Sink::start(|arrival| match (arrival.number, arrival.attempt) {
        (2, 1) => Reply::Busy(PAUSE.as_secs()),
        _ => Reply::Now(StatusCode::OK),
    })
    .await;
    let spec = json!({ "url": sink.url(), "event_types": ["pause.*"] });
    gateway.create_endpoint(spec).await;
    let send = async |number: u64| {
        let event = json!({ "type": "pause.asked", "payload": { "number": number } });
        let answer = post(gateway, "/v1/events", event, StatusCode::ACCEPTED).await;
        gateway.delivery_of(&text(&answer, "id")).await
    };
    let first = text(&send(2).await, "id");
    delivery_once(gateway, &first, "retrying").await;
    let second = text(&send(3).await, "id");
    for id in [&first, &second] {
        delivery_once(gateway, id, "delivered").await;
    }
    let arrivals = sink.arrivals();
    let asked = arrivals[0].at;
    assert_eq!(arrivals.len(), 3, "{arrivals:?}");
    for arrival in &arrivals[1..] {
        let after = arrival.at.duration_since(asked);
        assert!(after >= PAUSE, "{after:?} after it asked for {PAUSE:?}: {arrival:?}");
    }
}
