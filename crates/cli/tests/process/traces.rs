//! One trace from the producer through the gateway to the endpoint, as a collector sees it.

mod collector;
mod passed_on;
mod peer;

use http::StatusCode;
use serde_json::json;

use crate::gateway::{Gateway, Launch, text};
use collector::{Collector, Span};
use peer::{Peer, Reply, post};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PRODUCER: &str = "b7ad6b7169203331";

fn parent() -> String {
    format!("00-{TRACE}-{PRODUCER}-01")
}

/// Trace, span and flags of what was received.
fn read(traceparent: &str) -> (&str, &str, &str) {
    let parts: Vec<&str> = traceparent.split('-').collect();
    let ["00", trace, span, flags] = parts[..] else { panic!("no traceparent: {traceparent}") };
    (trace, span, flags)
}

fn launch(data: &tempfile::TempDir, collector: &Collector) -> Launch {
    Launch::serve(data.path()).and(["--otlp-endpoint", &collector.url()])
}

async fn push_to(gateway: &Gateway, endpoint: &Peer) -> String {
    let policy = json!({ "schedule": { "list": ["100ms"] }, "max_attempts": 5 });
    let spec = json!({ "name": "billing", "url": endpoint.url(), "policy": policy });
    gateway.create_endpoint(spec).await
}

/// Sends an event as part of the producer's trace and returns its id.
async fn send(gateway: &Gateway) -> String {
    let headers = [("traceparent", parent()), ("tracestate", "rojo=1,congo=two".to_owned())];
    let event = json!({ "type": "order.created", "payload": { "number": 1 } });
    let answer = post(gateway, "/v1/events", &headers, &event.to_string()).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
    text(&answer.body, "id")
}

fn first<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name}: {spans:?}"))
}

#[tokio::test]
async fn one_trace_runs_from_the_producer_through_the_gateway_to_the_endpoint() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let collector = Collector::start().await;
    let fails_once = |before: usize| match before {
        0 => Reply::Status(StatusCode::SERVICE_UNAVAILABLE),
        _ => Reply::Status(StatusCode::OK),
    };
    let endpoint = Peer::start(fails_once).await;
    let with_header = ["--otlp-header", "x-scope=tests"];
    let gateway = launch(&data, &collector).and(with_header).start().await;
    let endpoint_id = push_to(&gateway, &endpoint).await;
    let event = send(&gateway).await;
    let [one, two] = endpoint.take(2).await.try_into().expect("two attempts");
    let spans = collector.spans(3).await;

    let accept = first(&spans, "accept");
    assert_eq!((accept.trace.as_str(), accept.kind), (TRACE, 2), "of the producer's trace");
    assert_eq!(accept.parent.as_deref(), Some(PRODUCER));
    assert_eq!((accept.text("postrider.event.id"), accept.failed), (Some(event.as_str()), false));

    let delivers: Vec<&Span> = spans.iter().filter(|span| span.name == "deliver").collect();
    for (received, (attempt, status, state)) in
        [&one, &two].into_iter().zip([("1", "503", "retrying"), ("2", "200", "delivered")])
    {
        let (trace, span, flags) = read(received.header("traceparent"));
        assert_eq!((trace, flags), (TRACE, "01"));
        assert_eq!(received.header("tracestate"), "rojo=1,congo=two");
        let told = delivers.iter().find(|told| told.id == span).expect("the span of the attempt");
        assert_eq!((told.trace.as_str(), told.kind), (TRACE, 3));
        assert_eq!(told.parent.as_ref(), Some(&accept.id), "what was accepted is delivered");
        assert_eq!(told.whole("postrider.attempt"), Some(attempt));
        assert_eq!(told.flag("postrider.retry"), Some(attempt != "1"));
        assert_eq!(told.whole("http.response.status_code"), Some(status));
        assert_eq!(told.text("postrider.state"), Some(state));
        assert_eq!(told.text("postrider.endpoint.id"), Some(endpoint_id.as_str()));
        assert_eq!(told.text("postrider.event.id"), Some(event.as_str()));
        assert_eq!(told.failed, status == "503");
        assert_eq!(told.whole("postrider.next_attempt_delay_ms").is_some(), status == "503");
        assert!(told.begin >= accept.begin && told.end >= told.begin, "{told:?} of {accept:?}");
    }
    let ids = [read(one.header("traceparent")).1, read(two.header("traceparent")).1];
    assert_ne!(ids[0], ids[1], "each attempt is a span of its own");

    let asked = collector.peer.take(1).await;
    assert_eq!(asked[0].path, "/v1/traces");
    assert_eq!(asked[0].header("content-type"), "application/json");
    assert_eq!(asked[0].header("x-scope"), "tests");
    assert_eq!(gateway.get(&format!("/v1/events/{event}")).await["trace_id"], TRACE);
    gateway.stop().await;
}

#[tokio::test]
async fn a_trace_goes_on_after_the_gateway_was_killed() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let collector = Collector::start().await;
    let endpoint = Peer::start(|before| match before {
        0 => Reply::Never,
        _ => Reply::Status(StatusCode::OK),
    })
    .await;
    let gateway = launch(&data, &collector).start().await;
    push_to(&gateway, &endpoint).await;
    send(&gateway).await;
    let before = endpoint.take(1).await;
    let accept = first(&collector.spans(1).await, "accept").clone();
    gateway.process.kill();

    let gateway = launch(&data, &collector).start().await;
    let after = endpoint.take(2).await;
    let spans = collector.spans(2).await;
    let deliver = first(&spans, "deliver");
    assert_eq!((deliver.trace.as_str(), deliver.parent.as_ref()), (TRACE, Some(&accept.id)));
    let (trace, span, _) = read(after[1].header("traceparent"));
    assert_eq!((trace, span), (TRACE, deliver.id.as_str()));
    let (trace, cut_off, _) = read(before[0].header("traceparent"));
    assert_eq!(trace, TRACE);
    assert_ne!(cut_off, span, "the attempt that was cut off was another one");
    gateway.stop().await;
}

#[tokio::test]
async fn what_waits_for_company_is_sent_when_the_gateway_stops() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let collector = Collector::start().await;
    let endpoint = Peer::accepting().await;
    let gateway = launch(&data, &collector).start().await;
    push_to(&gateway, &endpoint).await;
    for _ in 0..20 {
        send(&gateway).await;
    }
    endpoint.take(20).await;
    gateway.stop().await;
    let spans = collector.spans(40).await;
    assert_eq!(spans.iter().filter(|span| span.name == "deliver").count(), 20);
}

#[tokio::test]
async fn a_collector_that_hangs_delays_nothing() {
    const EVENTS: usize = 300;
    let data = tempfile::tempdir().expect("a temporary directory");
    let collector = Collector::hanging().await;
    let endpoint = Peer::accepting().await;
    let gateway = launch(&data, &collector).start().await;
    push_to(&gateway, &endpoint).await;
    send(&gateway).await;
    // It has been asked, and it has not answered.
    collector.peer.take(1).await;
    for _ in 1..EVENTS {
        send(&gateway).await;
    }
    endpoint.take(EVENTS).await;
    let finished = gateway.stop().await;
    let complaints = finished.stderr.matches("the collector does not take spans").count();
    assert_eq!(complaints, 1, "said once a minute at most: {}", finished.stderr);
}

#[tokio::test]
async fn a_collector_that_comes_late_gets_what_was_kept_for_it() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let collector = Collector::late().await;
    let endpoint = Peer::accepting().await;
    let gateway = launch(&data, &collector).start().await;
    push_to(&gateway, &endpoint).await;
    send(&gateway).await;
    let spans = collector.spans(2).await;
    assert_eq!((first(&spans, "accept").trace.as_str(), spans.len()), (TRACE, 2));
    let again = gateway.process.stderr.line(|line| line.contains("takes spans again")).await;
    assert!(again.is_some());
    gateway.stop().await;
}

#[tokio::test]
async fn a_trace_that_begins_here_is_recorded_as_often_as_was_asked_for() {
    for (ratio, recorded) in [("1", true), ("0", false)] {
        let data = tempfile::tempdir().expect("a temporary directory");
        let collector = Collector::start().await;
        let endpoint = Peer::accepting().await;
        let gateway = launch(&data, &collector).and(["--trace-sample", ratio]).start().await;
        push_to(&gateway, &endpoint).await;
        let event = gateway.send(1).await;
        let received = endpoint.take(1).await;
        let shown = gateway.get(&format!("/v1/events/{event}")).await;
        gateway.stop().await;
        let parent = received[0].maybe("traceparent");
        assert_eq!((parent.is_some(), shown["trace_id"].is_string()), (recorded, recorded));
        let spans = collector.so_far();
        assert_eq!(spans.len(), if recorded { 2 } else { 0 }, "{spans:?}");
        if let Some(parent) = parent {
            let (accept, deliver) = (first(&spans, "accept"), first(&spans, "deliver"));
            assert_eq!(
                (accept.parent.as_ref(), shown["trace_id"].as_str()),
                (None, Some(accept.trace.as_str()))
            );
            assert_eq!(read(parent), (accept.trace.as_str(), deliver.id.as_str(), "01"));
        }
    }
}

#[tokio::test]
async fn a_trace_that_the_producer_does_not_record_is_not_recorded_here() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let collector = Collector::start().await;
    let endpoint = Peer::accepting().await;
    let gateway = launch(&data, &collector).start().await;
    push_to(&gateway, &endpoint).await;
    let unsampled = format!("00-{TRACE}-{PRODUCER}-00");
    let event = json!({ "type": "order.created", "payload": null }).to_string();
    post(&gateway, "/v1/events", &[("traceparent", unsampled.clone())], &event).await;
    let received = endpoint.take(1).await;
    gateway.stop().await;
    assert_eq!(received[0].header("traceparent"), unsampled, "passed on as it came");
    assert_eq!(collector.so_far(), []);
}

#[tokio::test]
async fn a_worker_gets_the_span_under_which_its_attempt_is_recorded() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let collector = Collector::start().await;
    let gateway = launch(&data, &collector).start().await;
    let endpoint = gateway.create_endpoint(json!({ "pull": true })).await;
    send(&gateway).await;
    let path = format!("/v1/endpoints/{endpoint}/lease");
    let leases = post(&gateway, &path, &[], r#"{"wait":"10s"}"#).await.body;
    let lease = &leases["leases"][0];
    let parent = text(&lease["trace"], "traceparent");
    assert_eq!(lease["trace"]["tracestate"], "rojo=1,congo=two");
    let path = format!("/v1/leases/{}/ack", text(lease, "lease"));
    assert_eq!(post(&gateway, &path, &[], "{}").await.status, StatusCode::OK);
    let spans = collector.spans(2).await;
    let deliver = first(&spans, "deliver");
    assert_eq!(read(&parent), (TRACE, deliver.id.as_str(), "01"));
    assert_eq!(deliver.parent.as_ref(), Some(&first(&spans, "accept").id));
    assert_eq!(deliver.text("postrider.carrier"), Some("pull"));
    gateway.stop().await;
}
