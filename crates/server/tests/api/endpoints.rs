//! Endpoints: made, changed, stopped, deleted.

use std::time::Duration;

use http::Method;
use postrider_engine::notices::NoticeKind;
use serde_json::{Value, json};

use crate::gateway::{Call, Gateway, await_notice};
use crate::sink::Sink;

#[tokio::test]
async fn an_endpoint_is_made_shown_changed_and_deleted() {
    let gateway = Gateway::start().await;
    let made = gateway
        .post(
            "/v1/endpoints",
            json!({
                "name": "orders",
                "url": "https://example.com/hook",
                "event_types": ["order.*", "refund.made"],
                "policy": {"preset": "router", "max_attempts": 3},
                "ordering": "fifo_by_key",
                "rate_limit": {"per_second": 2.5, "burst": 4},
                "max_in_flight": 7,
                "timeout": "5s",
                "headers": {"x-team": "blue"},
                "metadata": {"owner": "team"},
            }),
        )
        .await;
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    let id = made["id"].as_str().expect("an id").to_owned();
    assert!(id.starts_with("ep_"));
    assert_eq!(made["state"], "active");
    assert!(made["secret"].as_str().is_some_and(|secret| secret.starts_with("whsec_")));

    let path = format!("/v1/endpoints/{id}");
    let shown = gateway.get(&path).await.json();
    let mut expected = made.clone();
    expected.as_object_mut().expect("an object").remove("secret");
    assert_eq!(shown, expected);
    assert_eq!(shown["policy"], json!({"preset": "router", "max_attempts": 3}));
    assert_eq!(shown["rate_limit"], json!({"per_second": 2.5, "burst": 4}));
    assert_eq!(shown["timeout"], "5s");
    assert_eq!(shown["event_types"], json!(["order.*", "refund.made"]));
    let secret = gateway.get(&format!("{path}/secret")).await.json();
    assert_eq!(secret["secret"], made["secret"]);

    let change =
        json!({"url": "https://example.org/", "name": null, "policy": "edge", "timeout": null});
    let changed = gateway.call(Call::new(Method::PATCH, &path).json(&change)).await.json();
    assert_eq!(changed["url"], "https://example.org/");
    assert_eq!(changed["name"], Value::Null);
    assert_eq!(changed["policy"], "edge");
    assert_eq!(changed["timeout"], Value::Null);
    assert_eq!(changed["max_in_flight"], 7);
    assert_eq!(gateway.get(&path).await.json(), changed);

    let gone = gateway.ask(Method::DELETE, &path).await;
    assert_eq!((gone.status.as_u16(), gone.body.len()), (204, 0));
    gateway.get(&path).await.problem(404);
    gateway.ask(Method::DELETE, &path).await.problem(404);
}

#[tokio::test]
async fn endpoints_are_listed_newest_first_by_pages() {
    let gateway = Gateway::start().await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(gateway.endpoint(json!({"url": "https://example.com/"})).await);
    }
    made.reverse();
    let mut seen = Vec::new();
    let mut path = "/v1/endpoints?limit=2".to_owned();
    loop {
        let page = gateway.get(&path).await.json();
        let rows = page["data"].as_array().expect("a list");
        seen.extend(rows.iter().map(|row| row["id"].as_str().expect("an id").to_owned()));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/endpoints?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, made);
}

#[tokio::test]
async fn what_the_engine_refuses_is_named_too() {
    let gateway = Gateway::start().await;
    let endless = json!({"preset": "standard", "max_attempts": null});
    let cases = [
        (json!({"url": "http://10.0.0.1/"}), "url"),
        (json!({"url": "http://169.254.169.254/latest/meta-data"}), "url"),
        (json!({"url": "ftp://example.com/"}), "url"),
        (json!({"url": "https://user:pass@example.com/"}), "url"),
        (json!({"url": "not a url"}), "url"),
        (json!({"url": "https://example.com/", "policy": endless}), "policy.max_attempts"),
        (
            json!({"url": "https://example.com/", "policy": {"schedule": {"list": []}}}),
            "policy.schedule.list",
        ),
        (json!({"url": "https://example.com/", "secret": "short"}), "secret"),
    ];
    for (body, field) in cases {
        assert_eq!(
            gateway.post("/v1/endpoints", body.clone()).await.problem(422),
            [field],
            "{body}"
        );
    }
    assert_eq!(gateway.get("/v1/endpoints").await.json()["data"], json!([]));
}

#[tokio::test]
async fn a_paused_endpoint_keeps_what_comes_until_it_is_resumed() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(200).await;
    let id = gateway.endpoint(json!({"url": sink.url})).await;
    let paused = gateway.ask(Method::POST, &format!("/v1/endpoints/{id}/pause")).await;
    assert_eq!((paused.status.as_u16(), paused.json()["state"].clone()), (200, json!("paused")));
    let event = gateway.event(json!({"type": "a.b", "payload": 1})).await;
    let delivery = gateway.delivery_of(&event).await;
    assert_eq!(delivery["state"], "pending");
    assert_eq!(delivery["waiting_on"]["reason"], "paused");
    gateway.ask(Method::POST, &format!("/v1/endpoints/{id}/enable")).await.problem(409);
    let resumed = gateway.ask(Method::POST, &format!("/v1/endpoints/{id}/resume")).await;
    assert_eq!(resumed.json()["state"], "active");
    assert_eq!(sink.next().await.headers["webhook-id"], event.as_str());
}

#[tokio::test]
async fn an_endpoint_that_is_gone_is_disabled_and_can_be_enabled() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(410).await;
    let id = gateway.endpoint(json!({"url": sink.url})).await;
    let mut notices = gateway.engine.notices().subscribe();
    gateway.event(json!({"type": "a.b", "payload": 1})).await;
    sink.next().await;
    await_notice(&mut notices, NoticeKind::EndpointDisabled).await;
    let path = format!("/v1/endpoints/{id}");
    assert_eq!(gateway.get(&path).await.json()["state"], "disabled");
    gateway.ask(Method::POST, &format!("{path}/resume")).await.problem(409);
    let enabled = gateway.ask(Method::POST, &format!("{path}/enable")).await;
    assert_eq!(enabled.json()["state"], "active");
}

#[tokio::test]
async fn a_test_answers_with_the_attempt() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(418).await;
    let id = gateway.endpoint(json!({"url": sink.url})).await;
    let attempt = gateway.ask(Method::POST, &format!("/v1/endpoints/{id}/test")).await;
    assert_eq!(attempt.status, 200);
    let attempt = attempt.json();
    assert_eq!(attempt["status_code"], 418);
    assert_eq!(attempt["outcome"], "retryable");
    assert_eq!(attempt["response_body"], "noted");
    assert_eq!(attempt["response_headers"]["x-sink"], "one");
    sink.next().await;
}

#[tokio::test]
async fn a_rotated_secret_goes_on_for_its_overlap() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(200).await;
    let id = gateway.endpoint(json!({"url": sink.url})).await;
    let path = format!("/v1/endpoints/{id}");
    let old = gateway.get(&format!("{path}/secret")).await.json();
    let rotated = gateway.post(&format!("{path}/rotate-secret"), json!({"overlap": "2h"})).await;
    assert_eq!(rotated.status, 200, "{rotated:?}");
    let rotated = rotated.json();
    assert_ne!(rotated["secret"], old["secret"]);
    assert_eq!(rotated["secrets"][1]["secret"], old["secret"]);
    assert_eq!(rotated["secrets"][1]["expires_at"], "2026-01-01T02:00:00.000Z");
    assert_eq!(gateway.get(&format!("{path}/secret")).await.json(), rotated);
    gateway.event(json!({"type": "a.b", "payload": 1})).await;
    let signatures = sink.next().await.headers["webhook-signature"].clone();
    assert_eq!(signatures.to_str().expect("text").matches("v1,").count(), 2);

    let too_long = gateway.post(&format!("{path}/rotate-secret"), json!({"overlap": "31d"})).await;
    assert_eq!(too_long.problem(422), ["overlap"]);
}

#[tokio::test]
async fn stats_count_by_state() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(200).await;
    let broken = Sink::answering(400).await;
    let good = gateway.endpoint(json!({"url": sink.url})).await;
    let bad = gateway.endpoint(json!({"url": broken.url, "policy": "edge"})).await;
    let mut notices = gateway.engine.notices().subscribe();
    gateway.event(json!({"type": "a.b", "payload": 1})).await;
    let mut ended = 0;
    while ended < 2 {
        let notice = tokio::time::timeout(Duration::from_secs(20), notices.recv()).await;
        let notice = notice.expect("in time").expect("a notice");
        ended += usize::from(matches!(notice.kind, NoticeKind::Delivered | NoticeKind::Failed));
    }
    let stats = gateway.get("/v1/stats").await.json();
    assert_eq!(stats["events"], 1);
    assert_eq!(stats["deliveries"]["delivered"], 1);
    assert_eq!(stats["deliveries"]["failed"], 1);
    assert_eq!(stats["deliveries"]["pending"], 0);
    assert_eq!(stats["endpoints"].as_array().map(Vec::len), Some(2));
    let of_good = gateway.get(&format!("/v1/endpoints/{good}/stats")).await.json();
    assert_eq!(of_good["deliveries"]["delivered"], 1);
    assert_eq!(of_good["health"]["breaker"], "closed");
    assert_eq!(of_good["health"]["in_flight"], 0);
    let of_bad = gateway.get(&format!("/v1/endpoints/{bad}/stats")).await.json();
    assert_eq!(of_bad["deliveries"]["failed"], 1);
    assert_eq!(of_bad["deliveries"]["delivered"], 0);
}

#[tokio::test]
async fn a_preview_says_what_making_it_would_say_and_makes_nothing() {
    let gateway = Gateway::start().await;
    let id = gateway.endpoint(json!({"name": "kept", "url": "https://example.com/a"})).await;
    let one = format!("/v1/endpoints/{id}");
    let before = gateway.get(&one).await.json();
    let good = json!({"url": "https://example.com/b", "policy": "edge", "filter": "payload.n > 1"});
    let change =
        json!({"name": "other", "url": "https://example.com/b", "signing": {"scheme": "ed25519"}});
    for (path, body) in [("/v1/endpoints/preview", &good), (&*format!("{one}/preview"), &change)] {
        let reply = gateway.post(path, body.clone()).await;
        assert_eq!((reply.status.as_u16(), reply.json()), (200, json!({"ok": true})), "{path}");
    }
    let cases = [
        (json!({"url": "http://10.0.0.1/"}), "url"),
        (json!({"url": "https://example.com/", "colour": 1}), "colour"),
        (json!({"url": "https://example.com/", "filter": "payload.n >"}), "filter"),
        (
            json!({"url": "https://example.com/", "policy": {"max_attempts": null}}),
            "policy.max_attempts",
        ),
        (json!({"url": "https://example.com/", "timeout": "2m"}), "timeout"),
        (json!({"url": "https://example.com/", "secret": "short"}), "secret"),
    ];
    for (body, field) in cases {
        for path in ["/v1/endpoints/preview", &format!("{one}/preview")] {
            let refused = gateway.post(path, body.clone()).await.problem(422);
            assert_eq!(refused, [field], "{path} {body}");
        }
    }
    assert_eq!(gateway.post("/v1/endpoints/preview", json!({})).await.problem(422), ["url"]);
    let missing = "/v1/endpoints/ep_0000000000007/preview";
    gateway.post(missing, json!({"name": "other"})).await.problem(404);
    assert_eq!(gateway.get(&one).await.json(), before);
    let listed = gateway.get("/v1/endpoints").await.json();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
}
