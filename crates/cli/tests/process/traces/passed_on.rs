//! Without a collector: what a producer says of its trace is passed on as it came, and nothing is added.

use http::{Method, StatusCode};
use serde_json::json;

use super::peer::{Peer, post};
use super::{PRODUCER, TRACE, parent};
use crate::gateway::{Gateway, KEY, Launch, text};

async fn start(data: &tempfile::TempDir) -> Gateway {
    Launch::serve(data.path()).and(["--allow-command", "/usr/bin/env"]).start().await
}

#[tokio::test]
async fn a_trace_is_passed_on_as_it_came_and_none_is_added() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let gateway = start(&data).await;
    let (plain, own) = (Peer::accepting().await, Peer::accepting().await);
    gateway.create_endpoint(json!({ "url": plain.url() })).await;
    let headers = json!({ "traceparent": "its own" });
    gateway.create_endpoint(json!({ "url": own.url(), "headers": headers })).await;
    let state = "rojo=1".to_owned();
    let cases: [(&[(&str, String)], _, _); 5] = [
        (&[], None, None),
        (&[("traceparent", parent())], Some(parent()), None),
        (&[("traceparent", parent()), ("tracestate", state.clone())], Some(parent()), Some(state)),
        (&[("traceparent", parent()), ("tracestate", "No=1".into())], Some(parent()), None),
        (&[("traceparent", parent().to_uppercase()), ("tracestate", "a=1".into())], None, None),
    ];
    for (count, (headers, parent, state)) in (1..).zip(cases) {
        let event = json!({ "type": "order.created", "payload": count }).to_string();
        let answer = post(&gateway, "/v1/events", headers, &event).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "nothing is refused for its trace");
        let received = plain.take(count).await.pop().expect("one more");
        assert_eq!(received.maybe("traceparent"), parent.as_deref(), "{headers:?}");
        assert_eq!(received.maybe("tracestate"), state.as_deref(), "{headers:?}");
        let received = own.take(count).await.pop().expect("one more");
        assert_eq!(received.header("traceparent"), "its own", "the endpoint's header wins");
        let shown = gateway.get(&format!("/v1/events/{}", text(&answer.body, "id"))).await;
        assert_eq!(shown["trace_id"].as_str(), parent.map(|_| TRACE));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn events_of_a_batch_share_the_trace_and_a_duplicate_keeps_the_first() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let gateway = start(&data).await;
    let endpoint = Peer::accepting().await;
    gateway.create_endpoint(json!({ "url": endpoint.url() })).await;
    let event = json!({ "type": "order.created", "payload": 1, "idempotency_key": "once" });
    let other = json!({ "type": "order.paid", "payload": 2 });
    let batch = json!({ "events": [event, other] }).to_string();
    let answer = post(&gateway, "/v1/events/batch", &[("traceparent", parent())], &batch).await;
    for received in endpoint.take(2).await {
        assert_eq!(received.header("traceparent"), parent());
    }
    let elsewhere = format!("00-{}-{PRODUCER}-01", "ab".repeat(16));
    let again = [("traceparent", elsewhere)];
    let duplicate = post(&gateway, "/v1/events", &again, &event.to_string()).await;
    assert_eq!((duplicate.status, &duplicate.body["duplicate"]), (StatusCode::OK, &true.into()));
    let first = text(&answer.body["results"][0], "id");
    assert_eq!(text(&duplicate.body, "id"), first);
    assert_eq!(gateway.get(&format!("/v1/events/{first}")).await["trace_id"], TRACE);
    gateway.stop().await;
}

#[tokio::test]
async fn what_comes_by_a_source_keeps_its_trace() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let gateway = start(&data).await;
    let endpoint = Peer::accepting().await;
    gateway.create_endpoint(json!({ "url": endpoint.url() })).await;
    let source = json!({ "name": "shop", "verify": { "scheme": "none" } }).to_string();
    let source = gateway.call(Method::POST, "/v1/sources", source).await.body;
    let headers = [("traceparent", parent()), ("tracestate", " a=1 , b=2".to_owned())];
    let answer = post(&gateway, &text(&source, "url"), &headers, "{}").await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
    let received = endpoint.take(1).await;
    // The source keeps all headers; they are not there twice.
    assert_eq!(received[0].header("traceparent"), parent());
    assert_eq!(received[0].header("tracestate"), "a=1,b=2");
    gateway.stop().await;
}

#[tokio::test]
async fn a_program_finds_the_trace_in_its_environment() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let gateway = start(&data).await;
    gateway.create_endpoint(json!({ "command": ["/usr/bin/env"] })).await;
    let event = json!({ "type": "order.created", "payload": 1 }).to_string();
    let headers = [("traceparent", parent()), ("tracestate", "a=1".to_owned())];
    let answer = post(&gateway, "/v1/events", &headers, &event).await;
    let event = text(&answer.body, "id");
    let mut delivery = gateway.delivery_of(&event).await;
    crate::within("the program to end", async {
        while delivery["state"] != "delivered" {
            delivery = gateway.delivery_of(&event).await;
        }
    })
    .await;
    let shown = gateway.get(&format!("/v1/deliveries/{}", text(&delivery, "id"))).await;
    let printed = text(&shown["attempt_log"][0], "response_body");
    let printed: Vec<&str> = printed.lines().collect();
    assert!(printed.contains(&format!("TRACEPARENT={}", parent()).as_str()), "{printed:?}");
    assert!(printed.contains(&"TRACESTATE=a=1"), "{printed:?}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_works_for_a_pull_endpoint_finds_the_trace_in_its_environment() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let gateway = start(&data).await;
    gateway.create_endpoint(json!({ "name": "jobs", "pull": true })).await;
    let event = json!({ "type": "order.created", "payload": 1 }).to_string();
    let headers = [("traceparent", parent()), ("tracestate", "a=1".to_owned())];
    post(&gateway, "/v1/events", &headers, &event).await;

    let (url, seen) = (format!("http://{}", gateway.address), data.path().join("seen"));
    let script = r#"echo "$TRACEPARENT $TRACESTATE" > "$0""#;
    let work = ["work", "--gateway", &url, "--endpoint", "jobs", "--", "sh", "-c", script];
    let worker = Launch::with(work)
        .and([&seen])
        .variable("POSTRIDER_KEY", KEY)
        .variable("TRACEPARENT", "of somebody else")
        .spawn();
    let done = worker.stderr.line(|line| line.ends_with(": done")).await;
    assert!(done.is_some(), "{}", worker.stderr.text());
    let seen = std::fs::read_to_string(seen).expect("it was written");
    let trace = parent();
    let (version_and_trace, _) = trace.split_at(35);
    assert!(seen.starts_with(version_and_trace) && seen.ends_with(" a=1\n"), "{seen}");
}
