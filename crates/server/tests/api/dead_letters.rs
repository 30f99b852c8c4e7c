//! Dead letters: found, replayed, thrown away.

use std::time::Duration;

use http::Method;
use postrider_engine::notices::NoticeKind;
use serde_json::{Value, json};

use crate::gateway::{Call, Gateway, PATIENCE, await_notice};
use crate::sink::Sink;

/// A gateway with `count` deliveries that were refused for good.
async fn with_dead_letters(count: usize) -> (Gateway, Sink, Vec<String>) {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(400).await;
    gateway.endpoint(json!({"url": sink.url, "policy": "edge"})).await;
    let mut notices = gateway.engine.notices().subscribe();
    let mut ids = Vec::new();
    for number in 0..count {
        let event = gateway.event(json!({"type": "a.b", "payload": number})).await;
        sink.next().await;
        await_notice(&mut notices, NoticeKind::Failed).await;
        let delivery = gateway.delivery_of(&event).await;
        ids.push(delivery["id"].as_str().expect("an id").to_owned());
    }
    (gateway, sink, ids)
}

/// Waits until a job has ended, by the deliveries that it wakes.
async fn finished(gateway: &Gateway, job: &str) -> Value {
    let ended = async {
        loop {
            let shown = gateway.get(&format!("/v1/jobs/{job}")).await.json();
            if shown["state"] == "finished" {
                return shown;
            }
            gateway.clock.advance(Duration::from_secs(1));
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the job ends")
}

#[tokio::test]
async fn dead_letters_are_listed_counted_and_replayed_by_a_job() {
    let (gateway, mut sink, _) = with_dead_letters(3).await;
    let listed = gateway.get("/v1/dead-letters?reason=rejected&error_class=final").await.json();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(3));
    assert_eq!(gateway.get("/v1/dead-letters?state=dead").await.json()["data"], json!([]));

    let filter = json!({"filter": {"state": "failed", "reason": "rejected"}, "dry_run": true});
    let dry = gateway.post("/v1/dead-letters/replay", filter).await;
    assert_eq!((dry.status.as_u16(), dry.json()), (200, json!({"matched": 3})));

    sink.answer(200);
    let mut notices = gateway.engine.notices().subscribe();
    let body = json!({"filter": {}, "rate_per_second": 50});
    let replay = gateway.post("/v1/dead-letters/replay", body).await;
    assert_eq!(replay.status, 202, "{replay:?}");
    let job = replay.json()["job"].as_str().expect("a job").to_owned();
    assert!(job.starts_with("job_"));
    let job = finished(&gateway, &job).await;
    assert_eq!(job["matched"], 3);
    assert_eq!(job["replayed"], 3);
    for number in 0..3 {
        assert_eq!(sink.next().await.body, number.to_string(), "in the order of the events");
        await_notice(&mut notices, NoticeKind::Delivered).await;
    }
    assert_eq!(gateway.get("/v1/dead-letters").await.json()["data"], json!([]));
}

#[tokio::test]
async fn chosen_dead_letters_are_replayed_by_id() {
    let (gateway, mut sink, ids) = with_dead_letters(3).await;
    sink.answer(200);
    let mut notices = gateway.engine.notices().subscribe();
    let replay = gateway.post("/v1/dead-letters/replay", json!({"ids": [ids[1]]})).await;
    assert_eq!(replay.status, 202, "{replay:?}");
    assert_eq!(sink.next().await.body, "1");
    await_notice(&mut notices, NoticeKind::Delivered).await;
    let left = gateway.get("/v1/dead-letters").await.json();
    assert_eq!(left["data"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn dead_letters_are_thrown_away_only_by_a_filter_or_all_of_them() {
    let (gateway, _sink, ids) = with_dead_letters(4).await;
    let path = "/v1/dead-letters";
    assert_eq!(gateway.ask(Method::DELETE, path).await.problem(422), ["filter"]);
    let by_body = |body: Value| Call::new(Method::DELETE, path).json(&body);
    assert_eq!(gateway.call(by_body(json!({}))).await.problem(422), ["filter"]);
    assert_eq!(gateway.call(by_body(json!({"filter": {}}))).await.problem(422), ["filter"]);
    let both =
        Call::new(Method::DELETE, &format!("{path}?state=failed")).json(&json!({"all": true}));
    assert_eq!(gateway.call(both).await.problem(422), ["body"]);

    let none = gateway.ask(Method::DELETE, &format!("{path}?reason=expired")).await;
    assert_eq!((none.status.as_u16(), none.json()), (200, json!({"deleted": 0})));
    let one = gateway.call(by_body(json!({"ids": [ids[0]]}))).await;
    assert_eq!(one.json(), json!({"deleted": 1}));
    gateway.get(&format!("/v1/deliveries/{}", ids[0])).await.problem(404);
    let rest = gateway.ask(Method::DELETE, &format!("{path}?all=true")).await;
    assert_eq!(rest.json(), json!({"deleted": 3}));
    assert_eq!(gateway.get(path).await.json()["data"], json!([]));
}

#[tokio::test]
async fn dead_letters_are_put_together_by_where_and_why() {
    let (gateway, _sink, _) = with_dead_letters(3).await;
    let refused = gateway.get("/v1/dead-letters").await.json()["data"][0].clone();
    let down = Sink::answering(503).await;
    let once = json!({"preset": "edge", "max_attempts": 1});
    let other = json!({"url": down.url, "policy": once, "event_types": ["down.*"]});
    let other = gateway.endpoint(other).await;
    // The first endpoint listens to everything, and either may be done first.
    let [mut dead, mut failed] = [(); 2].map(|()| gateway.engine.notices().subscribe());
    gateway.clock.advance(Duration::from_mins(1));
    gateway.event(json!({"type": "down.now", "payload": 0})).await;
    await_notice(&mut dead, NoticeKind::Dead).await;
    await_notice(&mut failed, NoticeKind::Failed).await;

    let path = "/v1/dead-letters/groups";
    let of_refused = json!({
        "endpoint_id": refused["endpoint_id"],
        "state": "failed",
        "error_class": "final",
        "reason": "rejected",
        "deliveries": 4,
        "newest_at": "2026-01-01T00:01:00.000Z",
        "last_error": refused["last_error"],
    });
    let of_down = json!({
        "endpoint_id": other,
        "state": "dead",
        "error_class": "retryable",
        "reason": "exhausted",
        "deliveries": 1,
        "newest_at": "2026-01-01T00:01:00.000Z",
        "last_error": "HTTP 503 Service Unavailable: noted",
    });
    for (query, groups, looked_at) in [
        ("", json!([of_refused, of_down]), 5),
        ("?state=failed", json!([of_refused]), 4),
        ("?reason=exhausted&error_class=retryable", json!([of_down]), 1),
        ("?until=2026-01-01T00:00:00Z", json!([]), 0),
    ] {
        let found = gateway.get(&format!("{path}{query}")).await.json();
        let expected = json!({"data": groups, "looked_at": looked_at, "complete": true});
        assert_eq!(found, expected, "{query}");
    }
    assert_eq!(gateway.get(&format!("{path}?state=pending")).await.problem(422), ["state"]);
    assert_eq!(gateway.get(&format!("{path}?limit=5")).await.problem(422), ["limit"]);
    gateway.tenant("acme").await;
    let inside = Call::new(Method::GET, path).header("postrider-tenant", "acme");
    assert_eq!(gateway.call(inside).await.json()["data"], json!([]), "not theirs");
}
