//! Bad input of every kind at every path: the right 4xx that names the field, and nothing stored.

use http::Method;
use postrider_server::{ConnectionLimits, ServerOptions};
use serde_json::{Value, json};

use crate::gateway::{Call, Gateway};

const NO_ENDPOINT: &str = "/v1/endpoints/ep_0000000000000";

async fn assert_nothing_stored(gateway: &Gateway) {
    let stats = gateway.get("/v1/stats").await.json();
    assert_eq!(stats["events"], 0);
    assert_eq!(stats["endpoints"], json!([]));
    assert!(stats["deliveries"].as_object().expect("counts").values().all(|count| count == 0));
    assert!(gateway.engine.store().open_jobs().await.expect("jobs").is_empty());
}

#[tokio::test]
async fn a_bad_body_is_refused_by_the_name_of_its_field() {
    let gateway = Gateway::start().await;
    let event = |extra: &str| format!(r#"{{"type":"a.b","payload":1,{extra}}}"#);
    let endpoint = |extra: &str| format!(r#"{{"url":"https://example.com/",{extra}}}"#);
    let deep = "[".repeat(200_000);
    let cases: Vec<(Method, &str, Vec<u8>, &str)> = [
        ("/v1/events", String::new(), "body"),
        ("/v1/events", "null".into(), "body"),
        ("/v1/events", "[]".into(), "body"),
        ("/v1/events", deep.clone(), "body"),
        ("/v1/events", "{".into(), "body"),
        ("/v1/events", r#"{"payload":1}"#.into(), "type"),
        ("/v1/events", r#"{"type":"a.b"}"#.into(), "payload"),
        ("/v1/events", r#"{"type":null,"payload":1}"#.into(), "type"),
        ("/v1/events", r#"{"type":"a..b","payload":1}"#.into(), "type"),
        ("/v1/events", format!(r#"{{"type":"a.b","payload":{deep}"#), "payload"),
        ("/v1/events", event(r#""payload":2"#), "payload"),
        ("/v1/events", event(r#""colour":2"#), "colour"),
        ("/v1/events", event(r#""idempotency_key":7"#), "idempotency_key"),
        ("/v1/events", event(r#""ordering_key":"""#), "ordering_key"),
        ("/v1/events", event(r#""deliver_at":1767225600"#), "deliver_at"),
        ("/v1/events", event(r#""deliver_at":"2028-01-01T00:00:00Z""#), "deliver_at"),
        ("/v1/events", event(r#""metadata":"text""#), "metadata"),
        ("/v1/events/batch", "{}".into(), "events"),
        ("/v1/events/batch", r#"{"events":{}}"#.into(), "events"),
        ("/v1/events/batch", r#"{"events":[],"more":1}"#.into(), "more"),
        ("/v1/events/batch", format!(r#"{{"events":[{}]}}"#, vec!["1"; 1_001].join(",")), "events"),
        ("/v1/events/evt_0000000000000/replay", r#"{"endpoints":"all"}"#.into(), "endpoints"),
        ("/v1/events/evt_0000000000000/replay", r#"{"endpoints":[]}"#.into(), "endpoints"),
        (
            "/v1/events/evt_0000000000000/replay",
            r#"{"endpoints":["evt_0000000000000"]}"#.into(),
            "endpoints[0]",
        ),
        ("/v1/events/evt_0000000000000/replay", r#"{"to":[]}"#.into(), "to"),
        ("/v1/endpoints", "{}".into(), "url"),
        ("/v1/endpoints", r#"{"url":7}"#.into(), "url"),
        ("/v1/endpoints", endpoint(r#""pull":true"#), "pull"),
        ("/v1/endpoints", endpoint(r#""hub":"hub_0000000000000""#), "hub"),
        ("/v1/endpoints", endpoint(r#""timeout":"1h""#), "timeout"),
        ("/v1/endpoints", endpoint(r#""policy":{"max_age":"-1s"}"#), "policy.max_age"),
        ("/v1/endpoints", endpoint(r#""rate_limit":{"per_second":-1}"#), "rate_limit.per_second"),
        ("/v1/endpoints", endpoint(&format!(r#""metadata":{deep}"#)), "metadata"),
        ("/v1/endpoints/ep_0000000000000/pause", r#"{"for":"1h"}"#.into(), "for"),
        ("/v1/endpoints/ep_0000000000000/resume", "[]".into(), "body"),
        ("/v1/endpoints/ep_0000000000000/enable", "x".into(), "body"),
        ("/v1/endpoints/ep_0000000000000/test", r#"{"type":"a"}"#.into(), "type"),
        ("/v1/endpoints/ep_0000000000000/rotate-secret", r#"{"overlap":24}"#.into(), "overlap"),
        ("/v1/deliveries/dlv_0000000000000/retry", r#"{"now":true}"#.into(), "now"),
        ("/v1/deliveries/dlv_0000000000000/cancel", r#"{"why":"so"}"#.into(), "why"),
        ("/v1/events", r#"["a.b",1]"#.into(), "body"),
        ("/v1/dead-letters/replay", r#"{"filter":["failed"]}"#.into(), "filter"),
        ("/v1/dead-letters/replay", "{}".into(), "filter"),
        ("/v1/dead-letters/replay", r#"{"ids":[],"filter":{}}"#.into(), "ids"),
        ("/v1/dead-letters/replay", r#"{"ids":[]}"#.into(), "ids"),
        ("/v1/dead-letters/replay", r#"{"ids":["ep_0000000000000"]}"#.into(), "ids[0]"),
        ("/v1/dead-letters/replay", r#"{"filter":{"state":"delivered"}}"#.into(), "filter.state"),
        ("/v1/dead-letters/replay", r#"{"filter":{"state":"lost"}}"#.into(), "filter.state"),
        ("/v1/dead-letters/replay", r#"{"filter":{"colour":1}}"#.into(), "filter.colour"),
        ("/v1/dead-letters/replay", r#"{"filter":{"since":"noon"}}"#.into(), "filter.since"),
        ("/v1/dead-letters/replay", r#"{"filter":{},"dry_run":"yes"}"#.into(), "dry_run"),
        (
            "/v1/dead-letters/replay",
            r#"{"filter":{},"rate_per_second":0}"#.into(),
            "rate_per_second",
        ),
        (
            "/v1/dead-letters/replay",
            r#"{"filter":{},"rate_per_second":1e300}"#.into(),
            "rate_per_second",
        ),
        ("/v1/policies/preview", "{}".into(), "policy"),
    ]
    .into_iter()
    .map(|(path, body, field)| (Method::POST, path, body.into_bytes(), field))
    .chain([
        (Method::POST, "/v1/events", b"{\"type\":\"\xff\",\"payload\":1}".to_vec(), "type"),
        (Method::POST, "/v1/events", b"{\"type\":\"a\",\"payload\":\"\xc3\"}".to_vec(), "payload"),
        (Method::POST, "/v1/endpoints", b"{\"url\":\"\xff\"}".to_vec(), "url"),
        (Method::PATCH, NO_ENDPOINT, br#"{"secret":"whsec_"}"#.to_vec(), "secret"),
        (Method::PATCH, NO_ENDPOINT, br#"{"name":[]}"#.to_vec(), "name"),
        (Method::PATCH, NO_ENDPOINT, Vec::new(), "body"),
        (Method::DELETE, "/v1/dead-letters", br#"{"everything":true}"#.to_vec(), "everything"),
        (Method::DELETE, "/v1/dead-letters", br#"{"ids":["x"]}"#.to_vec(), "ids[0]"),
    ])
    .collect::<Vec<_>>();
    for (method, path, body, field) in cases {
        let shown = String::from_utf8_lossy(&body[..body.len().min(100)]).into_owned();
        let call = Call::new(method, path).header("content-type", "application/json").body(body);
        assert_eq!(gateway.call(call).await.problem(422), [field], "{path} {shown}");
    }
    assert_nothing_stored(&gateway).await;
}

#[tokio::test]
async fn a_bad_parameter_is_refused_by_its_name() {
    let gateway = Gateway::start().await;
    for (path, field) in [
        ("/v1/events?limit=0", "limit"),
        ("/v1/events?limit=251", "limit"),
        ("/v1/events?limit=ten", "limit"),
        ("/v1/events?cursor=***", "cursor"),
        ("/v1/events?type=a%20b", "type"),
        ("/v1/events?since=yesterday", "since"),
        ("/v1/events?until=%FF", "until"),
        ("/v1/events?source=ep_0000000000000", "source"),
        ("/v1/events?colour=red", "colour"),
        ("/v1/events?limit=1&limit=2", "limit"),
        ("/v1/endpoints?state=active", "state"),
        ("/v1/endpoints?cursor=AWUAAAAAAAAAAA", "cursor"),
        ("/v1/deliveries?state=lost", "state"),
        ("/v1/deliveries?endpoint=evt_0000000000000", "endpoint"),
        ("/v1/deliveries?event=nothing", "event"),
        ("/v1/deliveries?error_class=bad", "error_class"),
        ("/v1/deliveries?reason=none", "reason"),
        ("/v1/dead-letters?state=pending", "state"),
        ("/v1/dead-letters?all=true", "all"),
        ("/v1/policies?name=edge", "name"),
        ("/v1/stream?topic=other", "topic"),
    ] {
        assert_eq!(gateway.get(path).await.problem(422), [field], "{path}");
    }
    for (path, field) in [
        ("/v1/dead-letters", "filter"),
        ("/v1/dead-letters?all=1", "all"),
        ("/v1/dead-letters?state=delivered", "state"),
        ("/v1/dead-letters?limit=5", "limit"),
    ] {
        assert_eq!(gateway.ask(Method::DELETE, path).await.problem(422), [field], "{path}");
    }
    for (path, kind, field) in [
        ("/v1/events", "text/plain", "type"),
        ("/v1/events?type=", "text/plain", "type"),
        ("/v1/events?type=a&colour=1", "text/plain", "colour"),
        ("/v1/events?type=a&deliver_at=soon", "text/plain", "deliver_at"),
        ("/v1/events?type=a&idempotency_key=%00", "text/plain", "idempotency_key"),
        ("/v1/events?type=a", "application/json", "type"),
    ] {
        let call = Call::new(Method::POST, path).header("content-type", kind);
        assert_eq!(gateway.call(call.body("{}")).await.problem(422), [field], "{path} {kind}");
    }
    let bad_id = Call::new(Method::GET, "/v1/stream").header("last-event-id", "first");
    assert_eq!(gateway.call(bad_id).await.problem(422), ["last-event-id"]);
    assert_nothing_stored(&gateway).await;
}

#[tokio::test]
async fn an_id_of_another_kind_is_not_found_and_one_that_is_unknown_too() {
    let gateway = Gateway::start().await;
    let get = Method::GET;
    let post = Method::POST;
    let routes: Vec<(Method, &str, &str, &str)> = vec![
        (get.clone(), "/v1/events/", "evt_", ""),
        (get.clone(), "/v1/events/", "evt_", "/payload"),
        (get.clone(), "/v1/events/", "evt_", "/deliveries"),
        (post.clone(), "/v1/events/", "evt_", "/replay"),
        (get.clone(), "/v1/endpoints/", "ep_", ""),
        (Method::DELETE, "/v1/endpoints/", "ep_", ""),
        (post.clone(), "/v1/endpoints/", "ep_", "/pause"),
        (post.clone(), "/v1/endpoints/", "ep_", "/resume"),
        (post.clone(), "/v1/endpoints/", "ep_", "/enable"),
        (post.clone(), "/v1/endpoints/", "ep_", "/test"),
        (post.clone(), "/v1/endpoints/", "ep_", "/rotate-secret"),
        (post.clone(), "/v1/endpoints/", "ep_", "/lease"),
        (get.clone(), "/v1/hubs/", "hub_", ""),
        (Method::DELETE, "/v1/hubs/", "hub_", ""),
        (get.clone(), "/v1/endpoints/", "ep_", "/secret"),
        (get.clone(), "/v1/endpoints/", "ep_", "/stats"),
        (get.clone(), "/v1/deliveries/", "dlv_", ""),
        (post.clone(), "/v1/deliveries/", "dlv_", "/retry"),
        (post.clone(), "/v1/deliveries/", "dlv_", "/cancel"),
        (get, "/v1/jobs/", "job_", ""),
    ];
    for (method, start, prefix, end) in routes {
        let unknown = format!("{start}{prefix}0000000000000{end}");
        assert!(gateway.ask(method.clone(), &unknown).await.problem(404).is_empty(), "{unknown}");
        let long = "x".repeat(5_000);
        for bad in ["src_0000000000000", "7", "%FF", "a%2Fb", "%00", "..", &long] {
            let path = format!("{start}{bad}{end}");
            assert_eq!(gateway.ask(method.clone(), &path).await.problem(404), ["id"], "{path}");
        }
    }
    let change = Call::new(Method::PATCH, "/v1/endpoints/evt_0000000000000").json(&json!({}));
    assert_eq!(gateway.call(change).await.problem(404), ["id"]);
    let change = Call::new(Method::PATCH, NO_ENDPOINT).json(&json!({"name": "x"}));
    gateway.call(change).await.problem(404);
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_not_stored() {
    let options = ServerOptions {
        event_limit_bytes: 1_000,
        batch_limit_bytes: 10_000,
        ..ServerOptions::default()
    };
    let gateway = Gateway::start_with(options, ConnectionLimits::default()).await;
    let large = |bytes: usize| json!({"type": "a.b", "payload": "x".repeat(bytes)});
    for (path, body) in [
        ("/v1/events", large(1_000)),
        ("/v1/events", large(4_000_000)),
        ("/v1/events/batch", json!({"events": vec![large(900); 12]})),
        ("/v1/endpoints", json!({"url": "x".repeat(300_000)})),
        ("/v1/dead-letters/replay", json!({"ids": vec!["dlv_0000000000000"; 20_000]})),
    ] {
        gateway.post(path, body).await.problem(413);
    }
    let bytes = Call::new(Method::POST, "/v1/events?type=a").body(vec![0; 1_001]);
    gateway.call(bytes).await.problem(413);
    assert_nothing_stored(&gateway).await;
    let whole = Call::new(Method::POST, "/v1/events?type=a").body(vec![0; 1_000]);
    assert_eq!(gateway.call(whole).await.status, 202);
}

#[tokio::test]
async fn an_unknown_path_or_method_is_a_problem_too() {
    let gateway = Gateway::start().await;
    for path in ["/nothing", "/v1", "/v1/event", "/v1/events/", "/v1/events/a/b/c", "/v2/events"] {
        assert!(gateway.get(path).await.problem(404).is_empty(), "{path}");
    }
    for (method, path, allowed) in [
        (Method::DELETE, "/v1/events", "POST"),
        (Method::GET, "/v1/events/batch", "POST"),
        (Method::PUT, NO_ENDPOINT, "PATCH"),
        (Method::POST, "/healthz", "GET"),
    ] {
        let reply = gateway.ask(method, path).await;
        assert!(reply.problem(405).is_empty(), "{path}");
        let allow = reply.headers["allow"].to_str().expect("text");
        assert!(allow.split(',').any(|known| known == allowed), "{path}: {allow}");
    }
}

#[tokio::test]
async fn a_database_that_is_closed_is_unavailable_not_broken() {
    let gateway = Gateway::start().await;
    gateway.engine.store().close().await;
    let event: Value = json!({"type": "a.b", "payload": 1});
    let reply = gateway.post("/v1/events", event).await;
    reply.problem(503);
    assert_eq!(reply.headers["retry-after"], "1");
    gateway.call(Call::new(Method::GET, "/readyz").without_key()).await.problem(503);
    assert_eq!(gateway.call(Call::new(Method::GET, "/healthz").without_key()).await.status, 200);
}
