//! Endpoints that hang do not hold up the others, however few slots there are.

mod rig;

use postrider_core::EndpointId;
use postrider_engine::Engine;
use postrider_engine::notices::NoticeKind;
use rig::sink::{Reply, Sink};
use rig::{IN_FLIGHT, PATIENCE, listen, send, start};

const HANGING: usize = 10;
const DELIVERIES: usize = 200;
/// What an endpoint may have in flight when all slots are taken.
const RESERVE: usize = 4;

/// Ten endpoints that take a request and do not answer it, with far more waiting than they get.
async fn hang(engine: &Engine) -> Vec<(EndpointId, Sink)> {
    let mut hanging = Vec::new();
    for number in 0..HANGING {
        let sink = Sink::start(|_| Reply::status(200).held()).await;
        let event_type = format!("hanging.{number}");
        let endpoint = listen(engine, &sink, &event_type).await;
        send(engine, &event_type, DELIVERIES).await;
        hanging.push((endpoint, sink));
    }
    hanging
}

async fn in_flight(engine: &Engine, endpoint: EndpointId) -> usize {
    engine.endpoint_health(endpoint).await.expect("known").in_flight
}

/// Waits until a healthy endpoint has had all its deliveries settled.
async fn assert_unharmed(engine: &Engine, hanging: &[(EndpointId, Sink)]) {
    let healthy = Sink::answering(200).await;
    let mut notices = engine.notices().subscribe();
    let endpoint = listen(engine, &healthy, "healthy").await;
    let mut before = Vec::with_capacity(hanging.len());
    for (id, _) in hanging {
        before.push(in_flight(engine, *id).await);
    }
    send(engine, "healthy", DELIVERIES).await;
    healthy.nth(DELIVERIES).await;
    let mut delivered = 0;
    while delivered < DELIVERIES {
        let notice = tokio::time::timeout(PATIENCE, notices.recv()).await.expect("in time");
        let notice = notice.expect("the engine runs");
        assert_eq!(notice.endpoint, Some(endpoint), "nobody else has got anywhere");
        assert_eq!(notice.kind, NoticeKind::Delivered);
        delivered += 1;
    }
    for ((id, sink), before) in hanging.iter().zip(before) {
        assert_eq!(in_flight(engine, *id).await, before);
        assert_eq!(sink.count(), before, "what it has is what was sent to it");
    }
}

#[tokio::test]
async fn ten_hanging_endpoints_do_not_slow_a_healthy_one() {
    let (engine, _data) = start(1_024).await;
    let hanging = hang(&engine).await;
    for (endpoint, sink) in &hanging {
        sink.nth(IN_FLIGHT as usize).await;
        assert_eq!(in_flight(&engine, *endpoint).await, IN_FLIGHT as usize, "all it may have");
    }
    assert_unharmed(&engine, &hanging).await;
}

#[tokio::test]
async fn not_even_when_they_take_every_slot_there_is() {
    let (engine, _data) = start(8).await;
    let hanging = hang(&engine).await;
    let (_, first) = &hanging[0];
    first.nth(8).await;
    for (_, sink) in &hanging[1..] {
        sink.nth(RESERVE).await;
    }
    let mut total = 0;
    for (id, _) in &hanging {
        total += in_flight(&engine, *id).await;
    }
    assert_eq!(total, 8 + (HANGING - 1) * RESERVE, "the slots, and everybody's reserve");
    assert_unharmed(&engine, &hanging).await;
}

#[tokio::test]
async fn a_hanging_endpoint_that_answers_at_last_gets_the_rest() {
    let (engine, _data) = start(8).await;
    let hanging = hang(&engine).await;
    for (_, sink) in &hanging {
        sink.nth(RESERVE).await;
        sink.follow(|_| Reply::status(200));
        sink.release(DELIVERIES);
    }
    for (_, sink) in &hanging {
        sink.nth(DELIVERIES).await;
    }
    let drained = engine.drain(PATIENCE).await;
    assert_eq!(drained.abandoned, 0);
    for (_, sink) in &hanging {
        assert_eq!(sink.count(), DELIVERIES, "each once");
    }
}
