//! `/metrics`: open to anybody, the same series whatever there is, and what it counts is what happened.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use postrider_engine::notices::NoticeKind;
use serde_json::{Value, json};

use crate::gateway::{Call, Gateway, await_notice};
use crate::ingest::post_to;
use crate::sink::Sink;
use crate::sources::{make, text};

/// How long something from the store may be remembered.
const REMEMBERED: Duration = Duration::from_secs(5);

/// The samples by series, its labels included.
struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    async fn of(gateway: &Gateway) -> Self {
        gateway.clock.advance(REMEMBERED);
        let reply = gateway.call(Call::new(Method::GET, "/metrics").without_key()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        let page = String::from_utf8(reply.body.to_vec()).expect("text");
        let mut samples = BTreeMap::new();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').expect("a sample");
            let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(samples.insert(series.to_owned(), value).is_none(), "{series} twice");
        }
        Self(samples)
    }

    fn series(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    #[track_caller]
    fn is(&self, series: &str, expected: u32) {
        assert_eq!(self.0.get(series), Some(&f64::from(expected)), "{series}");
    }
}

#[tokio::test]
async fn the_series_are_the_same_however_many_tenants_and_endpoints_there_are() {
    let gateway = Gateway::start().await;
    let before = Scrape::of(&gateway).await;
    let mut sink = Sink::answering(200).await;
    let mut notices = gateway.engine.notices().subscribe();
    for tenant in 0..5 {
        let name = format!("tenant-{tenant}");
        gateway.post("/v1/tenants", json!({ "name": name })).await;
        for endpoint in 0..10 {
            let spec = json!({"name": format!("endpoint-{endpoint}"), "url": sink.url});
            let call = Call::new(Method::POST, "/v1/endpoints").json(&spec);
            let made = gateway.call(call.header("postrider-tenant", &name)).await;
            assert_eq!(made.status, 201, "{made:?}");
        }
        let event = json!({"type": format!("kind.{tenant}"), "payload": tenant});
        let call = Call::new(Method::POST, "/v1/events").json(&event);
        let sent = gateway.call(call.header("postrider-tenant", &name)).await;
        assert_eq!(sent.json()["deliveries"], 10, "{sent:?}");
        for _ in 0..10 {
            sink.next().await;
            await_notice(&mut notices, NoticeKind::Delivered).await;
        }
    }
    gateway.get("/no/such/path").await;
    gateway.get("/v1/deliveries/dlv_0a1b2c3d4e5f6").await;
    let after = Scrape::of(&gateway).await;
    assert_eq!(before.series(), after.series());
    for name in ["tenant-", "endpoint-", "kind.", "no/such", "ep_", "dlv_", "127.0.0.1"] {
        assert!(!after.series().iter().any(|series| series.contains(name)), "{name}");
    }
    after.is("postrider_events_received_total{way=\"api\"}", 5);
    after.is("postrider_deliveries_created_total", 50);
    after.is("postrider_deliveries_ended_total{state=\"delivered\"}", 50);
    after.is("postrider_attempts_total{try=\"first\",outcome=\"delivered\"}", 50);
    after.is("postrider_attempt_duration_seconds_count", 50);
    after.is("postrider_delivery_latency_seconds_count", 50);
    after.is("postrider_deliveries{state=\"delivered\"}", 50);
    after.is("postrider_endpoints{state=\"active\"}", 50);
    after.is("postrider_breakers{state=\"closed\"}", 50);
    after.is("postrider_deliveries_in_flight", 0);
    after.is("postrider_oldest_waiting_age_seconds", 0);
    after.is("postrider_store_commit_rows_sum{operation=\"append\"}", 5);
    after.is("postrider_store_commit_rows_sum{operation=\"settle\"}", 50);
    after.is("postrider_http_requests_total{route=\"events\",status=\"2xx\"}", 5);
    after.is("postrider_http_requests_total{route=\"changing\",status=\"2xx\"}", 55);
    after.is("postrider_http_requests_total{route=\"unknown\",status=\"4xx\"}", 1);
    after.is("postrider_http_requests_total{route=\"reading\",status=\"4xx\"}", 1);
    after.is("postrider_ready", 1);
    after.is("postrider_nodes", 1);
}

#[tokio::test]
async fn what_goes_wrong_is_counted_by_how() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(500).await;
    let policy = json!({
        "schedule": {"list": ["10s"], "jitter": 0.0}, "max_attempts": 2, "classify": {"4xx": "final"},
    });
    let spec = json!({"url": sink.url, "policy": policy});
    let endpoint = gateway.endpoint(spec).await;
    let mut notices = gateway.engine.notices().subscribe();
    let event = json!({"type": "a.b", "payload": 1, "idempotency_key": "k"});
    gateway.event(event.clone()).await;
    sink.next().await;
    await_notice(&mut notices, NoticeKind::RetryScheduled).await;
    gateway.clock.advance(Duration::from_secs(10));
    sink.next().await;
    await_notice(&mut notices, NoticeKind::Dead).await;
    sink.answer(400);
    gateway.event(json!({"type": "a.b", "payload": 2})).await;
    sink.next().await;
    await_notice(&mut notices, NoticeKind::Failed).await;
    assert_eq!(gateway.post("/v1/events", event.clone()).await.status, 200);
    let mut other = event;
    other["payload"] = Value::from(3);
    assert_eq!(gateway.post("/v1/events", other).await.status, 409);
    let verify = json!({"scheme": "github", "secret": "a-secret-of-github"});
    let source = make(&gateway, json!({"name": "github", "verify": verify})).await;
    assert_eq!(gateway.call(post_to(text(&source, "url"), "{}")).await.status, 401);
    gateway.post(&format!("/v1/endpoints/{endpoint}/pause"), json!({})).await;

    let scrape = Scrape::of(&gateway).await;
    for (series, expected) in [
        ("postrider_attempts_total{try=\"first\",outcome=\"retryable\"}", 1),
        ("postrider_attempts_total{try=\"retry\",outcome=\"retryable\"}", 1),
        ("postrider_attempts_total{try=\"first\",outcome=\"final\"}", 1),
        ("postrider_attempts_total{try=\"first\",outcome=\"delivered\"}", 0),
        ("postrider_retries_scheduled_total", 1),
        ("postrider_deliveries_ended_total{state=\"dead\"}", 1),
        ("postrider_deliveries_ended_total{state=\"failed\"}", 1),
        ("postrider_deliveries{state=\"dead\"}", 1),
        ("postrider_delivery_latency_seconds_count", 0),
        ("postrider_events_duplicate_total", 1),
        ("postrider_events_conflicting_total", 1),
        ("postrider_signatures_rejected_total", 1),
        ("postrider_http_requests_total{route=\"inbound\",status=\"4xx\"}", 1),
        ("postrider_endpoints{state=\"paused\"}", 1),
        ("postrider_endpoints{state=\"active\"}", 0),
    ] {
        scrape.is(series, expected);
    }
}

#[tokio::test]
async fn what_nobody_fetches_grows_old_visibly() {
    let gateway = Gateway::start().await;
    gateway.endpoint(json!({"pull": true})).await;
    gateway.event(json!({"type": "a.b", "payload": 1})).await;
    gateway.clock.advance(Duration::from_secs(95));
    let scrape = Scrape::of(&gateway).await;
    scrape.is("postrider_oldest_waiting_age_seconds", 100);
    scrape.is("postrider_deliveries{state=\"pending\"}", 1);
    scrape.is("postrider_hub_lag_seconds", 0);
}

#[tokio::test]
async fn what_waits_for_a_hub_that_is_away_is_its_lag() {
    let gateway = Gateway::start().await;
    let hub = gateway.post("/v1/hubs", json!({"name": "home"})).await.json();
    gateway.endpoint(json!({"hub": hub["id"]})).await;
    gateway.event(json!({"type": "a.b", "payload": 1})).await;
    gateway.clock.advance(Duration::from_secs(55));
    let scrape = Scrape::of(&gateway).await;
    scrape.is("postrider_hub_lag_seconds", 60);
    scrape.is("postrider_hubs_connected", 0);
}

#[tokio::test]
async fn the_store_is_not_asked_for_every_look() {
    let gateway = Gateway::start().await;
    gateway.endpoint(json!({"pull": true})).await;
    let first = Scrape::of(&gateway).await;
    first.is("postrider_deliveries{state=\"pending\"}", 0);
    gateway.event(json!({"type": "a.b", "payload": 1})).await;
    let page = gateway.get("/metrics").await;
    let page = String::from_utf8(page.body.to_vec()).expect("text");
    assert!(page.contains("postrider_deliveries{state=\"pending\"} 0\n"), "{page}");
    let later = Scrape::of(&gateway).await;
    later.is("postrider_deliveries{state=\"pending\"}", 1);
}

#[tokio::test]
async fn two_nodes_own_all_lanes_between_them() {
    let two = Gateway::start_two().await;
    let mut owned = 0.0;
    for node in &two {
        let scrape = Scrape::of(node).await;
        scrape.is("postrider_nodes", 2);
        scrape.is("postrider_lanes", 64);
        owned += scrape.0["postrider_lanes_owned"];
    }
    assert!((owned - 64.0).abs() < 0.5, "{owned}");
}
