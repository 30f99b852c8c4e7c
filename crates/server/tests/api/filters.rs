//! Filters: who gets an event, what shows when an expression does not fit, trying one beforehand.

use serde_json::{Value, json};

use crate::gateway::Gateway;
use crate::sink::Sink;

async fn with_filter(gateway: &Gateway, sink: &Sink, filter: &str) -> String {
    gateway.endpoint(json!({"url": sink.url, "filter": filter})).await
}

#[tokio::test]
async fn an_event_goes_where_the_filter_lets_it_pass() {
    let gateway = Gateway::start().await;
    let mut large = Sink::answering(204).await;
    let mut vip = Sink::answering(204).await;
    with_filter(&gateway, &large, "payload.total > 100").await;
    with_filter(&gateway, &vip, r#"metadata.tier == "vip" && event.type.startsWith("order.")"#)
        .await;
    for (number, total, tier) in
        [(1, json!(100), "vip"), (2, json!(100.5), "plain"), (3, json!(7), "plain")]
    {
        let body = json!({"type": "order.created", "payload": {"n": number, "total": total},
            "metadata": {"tier": tier}});
        let reply = gateway.post("/v1/events", body).await.json();
        assert_eq!(reply["deliveries"], [1, 1, 0][number - 1], "{reply}");
    }
    let got = |body: &[u8]| serde_json::from_slice::<Value>(body).expect("JSON")["n"].clone();
    assert_eq!(got(&large.next().await.body), 2);
    assert_eq!(got(&vip.next().await.body), 1);
}

#[tokio::test]
async fn a_filter_that_does_not_fit_an_event_shows_on_it() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(204).await;
    let endpoint = with_filter(&gateway, &sink, "payload.total > 100").await;
    let event = gateway.event(json!({"type": "order.created", "payload": {"sum": 7}})).await;
    let shown = gateway.get(&format!("/v1/events/{event}")).await.json();
    let error = shown["filter_errors"][&endpoint].as_str().expect("an error for the endpoint");
    assert!(error.contains("total"), "{error}");
    assert_eq!(shown["deliveries"], 0);
    // Put right, it can be sent there.
    let changed = json!({"filter": null});
    let call = crate::gateway::Call::new(http::Method::PATCH, &format!("/v1/endpoints/{endpoint}"));
    assert_eq!(gateway.call(call.json(&changed)).await.status, 200);
    let replayed = gateway.post(&format!("/v1/events/{event}/replay"), json!({})).await;
    assert_eq!(replayed.json()["deliveries"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_filter_is_read_when_it_is_set() {
    let gateway = Gateway::start().await;
    for filter in ["payload.total >", "nonsense(1)", "payload.total > ", &"x".repeat(100_000)] {
        let body = json!({"url": "https://example.com/", "filter": filter});
        assert_eq!(gateway.post("/v1/endpoints", body).await.problem(422), ["filter"], "{filter}");
    }
}

#[tokio::test]
async fn a_filter_is_tried_on_a_stored_or_a_given_event() {
    let gateway = Gateway::start().await;
    let event = gateway.event(json!({"type": "order.created", "payload": {"total": 7}})).await;
    let given = json!({"type": "a.b", "payload": {"total": 101}, "headers": {"X-Shop": "one"}});
    let cases = [
        (json!({"filter": "payload.total > 100", "event_id": event}), json!(false)),
        (json!({"filter": "payload.total > 100", "event": given}), json!(true)),
        (json!({"filter": r#"headers["x-shop"] == "one""#, "event": given}), json!(true)),
        (json!({"filter": "payload.absent > 100", "event": given}), Value::Null),
    ];
    for (body, passes) in cases {
        let reply = gateway.post("/v1/filters/preview", body.clone()).await.json();
        assert_eq!(reply["passes"], passes, "{body}: {reply}");
        assert_eq!(reply["error"].is_string(), passes.is_null(), "{reply}");
    }
    for body in
        [json!({"filter": "true"}), json!({"filter": "true", "event_id": event, "event": given})]
    {
        assert_eq!(gateway.post("/v1/filters/preview", body).await.problem(422), ["event"]);
    }
    let gone = json!({"filter": "true", "event_id": "evt_0000000000000"});
    gateway.post("/v1/filters/preview", gone).await.problem(404);
}
