//! What happened over time: every point of the span, and what of it is told.

use std::time::Duration;

use http::Method;
use postrider_engine::notices::NoticeKind;
use serde_json::{Value, json};

use crate::gateway::{Call, Gateway, START, await_notice};
use crate::sink::Sink;

const PATH: &str = "/v1/stats/history";

/// The points at which anything happened.
fn eventful(history: &Value) -> Vec<&Value> {
    let points = history["points"].as_array().expect("points").iter();
    let happened = |point: &&Value| {
        ["received", "delivered", "failures", "dead"].iter().any(|field| point[field] != 0)
    };
    points.filter(happened).collect()
}

/// One delivered at once, one after a retry, one refused for good: over three minutes, by two
/// endpoints.
async fn with_a_past() -> (Gateway, [String; 2]) {
    let gateway = Gateway::start().await;
    let (mut good, mut bad) = (Sink::answering(200).await, Sink::answering(500).await);
    let ten_seconds = json!({"schedule": {"list": ["10s"], "jitter": 0.0}, "max_attempts": 3});
    let good_one = json!({"url": good.url, "event_types": ["good.*"]});
    let bad_one = json!({"url": bad.url, "event_types": ["bad.*"], "policy": {
        "schedule": ten_seconds["schedule"], "max_attempts": 3, "classify": {"4xx": "final"},
    }});
    let endpoints = [gateway.endpoint(good_one).await, gateway.endpoint(bad_one).await];
    let mut notices = gateway.engine.notices().subscribe();
    gateway.event(json!({"type": "good.one", "payload": 1})).await;
    good.next().await;
    await_notice(&mut notices, NoticeKind::Delivered).await;
    gateway.clock.advance(Duration::from_mins(1));
    gateway.event(json!({"type": "bad.one", "payload": 2})).await;
    bad.next().await;
    await_notice(&mut notices, NoticeKind::RetryScheduled).await;
    bad.answer(200);
    gateway.clock.advance(Duration::from_secs(10));
    bad.next().await;
    await_notice(&mut notices, NoticeKind::Delivered).await;
    gateway.clock.advance(Duration::from_secs(50));
    bad.answer(400);
    gateway.event(json!({"type": "bad.two", "payload": 3})).await;
    bad.next().await;
    await_notice(&mut notices, NoticeKind::Failed).await;
    (gateway, endpoints)
}

#[tokio::test]
async fn every_point_of_the_hour_is_there_and_says_what_happened() {
    let (gateway, [good, _]) = with_a_past().await;
    let history = gateway.get(PATH).await.json();
    assert_eq!(history, gateway.get(&format!("{PATH}?span=hour")).await.json());
    assert_eq!((&history["span"], &history["grain_seconds"]), (&json!("hour"), &json!(60)));
    assert_eq!(history["since"], "2025-12-31T23:03:00.000Z");
    let points = history["points"].as_array().expect("points");
    assert_eq!((points.len(), &points[0]["start"]), (60, &history["since"]));
    assert_eq!(points[59]["start"], "2026-01-01T00:02:00.000Z");
    let [first, second, third] = &eventful(&history)[..] else { panic!("{history}") };
    let expected = json!({
        "start": "2026-01-01T00:00:00.000Z", "received": 1, "delivered": 1, "failures": 0, "dead": 0,
        "p50_ms": 1, "p95_ms": 1, "p99_ms": 1,
    });
    assert_eq!(**first, expected);
    let expected = json!({
        "start": "2026-01-01T00:01:00.000Z", "received": 1, "delivered": 1, "failures": 1, "dead": 0,
        "p50_ms": 12_288, "p95_ms": 12_288, "p99_ms": 12_288,
    });
    assert_eq!(**second, expected);
    let expected = json!({
        "start": "2026-01-01T00:02:00.000Z", "received": 1, "delivered": 0, "failures": 1, "dead": 1,
        "p50_ms": null, "p95_ms": null, "p99_ms": null,
    });
    assert_eq!(**third, expected);
    let total = json!({
        "received": 3, "delivered": 2, "failures": 2, "dead": 1, "success_rate": 2.0 / 3.0,
        "p50_ms": 1, "p95_ms": 12_288, "p99_ms": 12_288,
    });
    assert_eq!(history["total"], total);
    assert_eq!(history["oldest_waiting_at"], Value::Null);

    let one = gateway.get(&format!("{PATH}?endpoint={good}")).await.json();
    assert_eq!(eventful(&one), [*first]);
    assert_eq!(one["total"]["success_rate"], 1.0);
}

#[tokio::test]
async fn a_day_and_a_week_have_wider_points_and_the_same_rates() {
    let (gateway, _) = with_a_past().await;
    // Half of the minute before the one that has begun is within the last sixty seconds.
    gateway.clock.advance(Duration::from_secs(30));
    let rates = json!({ "received": 1.5 / 60.0, "delivered": 0.5 / 60.0 });
    for (span, points, grain, since) in [
        ("hour", 60, 60, "2025-12-31T23:03:00.000Z"),
        ("day", 96, 900, "2025-12-31T00:15:00.000Z"),
        ("week", 84, 7_200, "2025-12-25T02:00:00.000Z"),
    ] {
        let history = gateway.get(&format!("{PATH}?span={span}")).await.json();
        assert_eq!(history["points"].as_array().map(Vec::len), Some(points), "{span}");
        assert_eq!((&history["grain_seconds"], &history["since"]), (&json!(grain), &json!(since)));
        assert_eq!(history["total"]["received"], 3, "{span}");
        assert_eq!(history["per_second"], rates, "{span}");
        let happened = eventful(&history);
        let of_all = happened.iter().filter_map(|point| point["failures"].as_u64()).sum::<u64>();
        assert_eq!(of_all, 2, "{span}");
        let stretches = if span == "hour" { 3 } else { 1 };
        assert_eq!(happened.len(), stretches, "{span}");
    }
}

#[tokio::test]
async fn endpoints_are_told_apart_where_something_became_of_their_deliveries() {
    let (gateway, [good, bad]) = with_a_past().await;
    let waits = gateway.endpoint(json!({"pull": true, "event_types": ["never.fetched"]})).await;
    gateway.event(json!({"type": "never.fetched", "payload": 0})).await;
    let history = gateway.get(&format!("{PATH}?endpoint=each")).await.json();
    let minute = |minute: u32| format!("2026-01-01T00:0{minute}:00.000Z");
    let expected = json!({
        "span": "hour",
        "grain_seconds": 60,
        "since": "2025-12-31T23:03:00.000Z",
        "endpoints": {
            good: [{"start": minute(0), "delivered": 1, "failures": 0, "dead": 0}],
            bad: [
                {"start": minute(1), "delivered": 1, "failures": 1, "dead": 0},
                {"start": minute(2), "delivered": 0, "failures": 1, "dead": 1},
            ],
        },
    });
    assert_eq!(history, expected, "but not {waits}, of which nobody fetched anything");
}

#[tokio::test]
async fn the_oldest_that_waits_is_known_whatever_it_waits_for() {
    let gateway = Gateway::start().await;
    let of = async |endpoint: &str| {
        let path = format!("{PATH}?endpoint={endpoint}");
        gateway.get(&path).await.json()["oldest_waiting_at"].clone()
    };
    let all = async || gateway.get(PATH).await.json()["oldest_waiting_at"].clone();
    let one = gateway.endpoint(json!({"pull": true, "event_types": ["one"]})).await;
    let other = gateway.endpoint(json!({"pull": true, "event_types": ["other"]})).await;
    assert_eq!(all().await, Value::Null);
    // It does not wait before its time.
    let later = START.plus(Duration::from_secs(90)).to_string();
    gateway.event(json!({"type": "one", "payload": 0, "deliver_at": later})).await;
    assert_eq!(all().await, Value::Null);
    gateway.clock.advance(Duration::from_secs(30));
    gateway.event(json!({"type": "other", "payload": 1})).await;
    gateway.clock.advance(Duration::from_secs(30));
    gateway.event(json!({"type": "one", "payload": 2})).await;
    let minute = |seconds: u64| json!(START.plus(Duration::from_secs(seconds)).to_string());
    assert_eq!(
        (all().await, of(&other).await, of(&one).await),
        (minute(30), minute(30), minute(60))
    );
    // To have it in hand is not to be done with it.
    let path = format!("/v1/endpoints/{other}/lease");
    let leased = gateway.post(&path, json!({"max": 1, "lease": "30s"})).await.json();
    assert_eq!(all().await, minute(30));
    let lease = leased["leases"][0]["lease"].as_str().expect("a lease").to_owned();
    let acked = gateway.post(&format!("/v1/leases/{lease}/ack"), json!({})).await;
    assert_eq!(acked.status, 200, "{acked:?}");
    assert_eq!((all().await, of(&other).await), (minute(60), Value::Null));
    let path = format!("/v1/endpoints/{one}");
    assert_eq!(gateway.ask(Method::DELETE, &path).await.status, 204);
}

#[tokio::test]
async fn a_tenant_sees_its_own_past() {
    let (gateway, [good, _]) = with_a_past().await;
    gateway.tenant("acme").await;
    for path in [PATH.to_owned(), format!("{PATH}?endpoint={good}")] {
        let inside = Call::new(Method::GET, &path).header("postrider-tenant", "acme");
        let history = gateway.call(inside).await.json();
        assert_eq!(eventful(&history), Vec::<&Value>::new(), "{path}");
        assert_eq!(history["total"]["success_rate"], Value::Null);
    }
    let path = format!("{PATH}?endpoint=each");
    let inside = Call::new(Method::GET, &path).header("postrider-tenant", "acme");
    assert_eq!(gateway.call(inside).await.json()["endpoints"], json!({}));
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused_by_name() {
    let gateway = Gateway::start().await;
    for (query, field) in [
        ("span=year", "span"),
        ("span=", "span"),
        ("endpoint=all", "endpoint"),
        ("endpoint=evt_0a1b2c3d4e5f6", "endpoint"),
        ("since=2026-01-01T00:00:00Z", "since"),
    ] {
        assert_eq!(gateway.get(&format!("{PATH}?{query}")).await.problem(422), [field], "{query}");
    }
}
