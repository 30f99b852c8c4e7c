//! What is handed out, to whom, and how much of it.

use bytes::Bytes;
use postrider_core::endpoint::{RateLimit, Spec};
use postrider_core::{Class, Reason, State};
use postrider_engine::notices::NoticeKind;
use postrider_engine::ports::Clock as _;
use postrider_engine::{Error, LeaseWish, MAX_LEASES, Options, Submission};
use serde_json::json;
use std::time::Duration;

use crate::gateway::{Gateway, START, TENANT, delivery_of, event, policy, seconds};
use crate::rig::sink::{Reply, Sink};
use crate::{LEASE, kinds, nack, patterns, pull, wish};

#[tokio::test]
async fn a_worker_is_told_all_there_is_to_know() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    let submitted = Submission {
        metadata: Some(r#"{"session_id":"s-1"}"#.into()),
        headers: vec![("x-a".into(), Bytes::from_static(b"\xff"))],
        body: Bytes::from_static(b"\x00 any bytes \xff"),
        ..event("order.created")
    };
    let id = gateway.send_all([submitted.clone()]).await[0];
    let lease = gateway.lease_one(endpoint).await;
    assert_eq!((lease.event.id, lease.delivery), (id, delivery_of(id)));
    assert_eq!((lease.token.delivery(), lease.attempt), (lease.delivery, 1));
    assert_eq!(lease.expires_at, START.plus(LEASE));
    assert_eq!((&lease.event.body, &lease.event.headers), (&submitted.body, &submitted.headers));
    assert_eq!(lease.event.metadata, submitted.metadata);
    let record = gateway.record(lease.delivery).await;
    assert_eq!((record.state, record.due), (State::InFlight, Some(lease.expires_at)));
    assert_eq!((record.attempts, record.tries), (0, 0));
    assert!(gateway.lease(endpoint, 10).await.is_empty(), "it is in somebody's hands");
}

#[tokio::test]
async fn the_oldest_event_goes_first_whether_it_was_tried_before_or_not() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send_all(["n.1", "n.2", "n.3", "n.4", "n.5"].map(event)).await;
    let chosen = LeaseWish { event_types: patterns(&["n.4", "n.2"]), ..wish(endpoint, 10) };
    let leases = gateway.lease_as(chosen).await;
    assert_eq!(kinds(&leases), ["n.2", "n.4"]);
    for lease in &leases {
        assert!(gateway.nack(lease, nack(Class::Retryable)).await);
    }
    gateway.clock.advance(seconds(10));
    gateway.send("n.6").await;
    let attempts = |leases: &[postrider_engine::Lease]| -> Vec<u32> {
        leases.iter().map(|lease| lease.attempt).collect()
    };
    let first = gateway.lease(endpoint, 3).await;
    assert_eq!((kinds(&first), attempts(&first)), (vec!["n.1", "n.2", "n.3"], vec![1, 2, 1]));
    let rest = gateway.lease(endpoint, 10).await;
    assert_eq!((kinds(&rest), attempts(&rest)), (vec!["n.4", "n.5", "n.6"], vec![2, 1, 1]));
}

#[tokio::test]
async fn a_worker_gets_no_more_than_it_asks_for_and_never_more_than_the_most() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send_all((0..120).map(|_| event("order.created"))).await;
    for (asked, given) in [(0, 1), (1, 1), (3, 3), (usize::MAX, MAX_LEASES), (MAX_LEASES, 15)] {
        assert_eq!(gateway.lease(endpoint, asked).await.len(), given, "{asked}");
    }
}

#[tokio::test]
async fn bodies_in_one_lease_are_bounded_but_one_is_always_given() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    let sized = |mebibytes: usize| Submission {
        body: Bytes::from(vec![b'0'; mebibytes << 20]),
        ..event("order.created")
    };
    gateway.send_all([sized(17), sized(8), sized(8), sized(1)]).await;
    for given in [1, 2, 1] {
        assert_eq!(gateway.lease(endpoint, 10).await.len(), given);
    }
}

#[tokio::test]
async fn only_events_of_the_types_asked_for_are_handed_out_however_many_others_wait() {
    const NOISE: usize = 2_100;
    let gateway = Gateway::start().await;
    let cases: [(&[&str], &[&str]); 6] = [
        (&["order.created"], &["order.created"]),
        (&["order.*"], &["order.created", "order.item.added"]),
        (&["invoice", "order.item.added"], &["invoice", "order.item.added"]),
        (&["order.*", "order.created"], &["order.created", "order.item.added"]),
        (&["order"], &[]),
        (&["*"], &["noise", "noise", "noise", "noise"]),
    ];
    let mut endpoints = Vec::new();
    for _ in &cases {
        endpoints.push(gateway.endpoint(pull()).await);
    }
    let noise = (0..NOISE).map(|_| event("noise"));
    gateway
        .send_all(noise.chain(["invoice", "order.created", "order.item.added"].map(event)))
        .await;
    for (endpoint, (asked, given)) in endpoints.into_iter().zip(cases) {
        let wish = LeaseWish { event_types: patterns(asked), ..wish(endpoint, 4) };
        let leases = gateway.lease_as(wish.clone()).await;
        assert_eq!(kinds(&leases), given, "{asked:?}");
        // A retry is found behind the others as well.
        if let Some(last) = leases.last().filter(|last| last.event.kind != "noise") {
            assert!(gateway.nack(last, nack(Class::Retryable)).await);
            gateway.clock.advance(seconds(10));
            assert_eq!(kinds(&gateway.lease_as(wish).await), [&*last.event.kind], "{asked:?}");
        }
    }
}

#[tokio::test]
async fn what_is_to_go_later_is_not_handed_out_before() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(pull()).await;
    let later = Some(START.plus(seconds(60)));
    gateway.send_all([Submission { deliver_at: later, ..event("later") }, event("now")]).await;
    let now = gateway.lease_one(endpoint).await;
    assert_eq!(now.event.kind, "now");
    assert!(gateway.ack(&now).await);
    gateway.clock.advance(seconds(59));
    assert!(gateway.lease(endpoint, 10).await.is_empty());
    gateway.clock.advance(seconds(1));
    assert_eq!(kinds(&gateway.lease(endpoint, 10).await), ["later"]);
}

#[tokio::test]
async fn what_has_grown_too_old_dies_instead_and_does_not_stand_before_the_others() {
    // The sweep would find it, too.
    let options = Options { housekeeping_every: seconds(1_000_000), ..Options::default() };
    let mut gateway = Gateway::start_with(options).await;
    let an_hour = policy(json!({"preset": "dispatch", "max_attempts": null, "max_age": "1h"}));
    let endpoint = gateway.endpoint(Spec { policy: an_hour, ..pull() }).await;
    let old = gateway.send_all(["old", "old", "old"].map(event)).await;
    gateway.clock.advance(seconds(3_601));
    gateway.send("young").await;
    let leases = gateway.lease(endpoint, 1).await;
    assert_eq!(kinds(&leases), ["young"], "the first that can be had");
    for id in old {
        let notice = gateway.notice(NoticeKind::Dead).await;
        let told = notice.delivery.as_ref().expect("about a delivery");
        assert_eq!((told.delivery_id, told.reason), (delivery_of(id), Some(Reason::Expired)));
        let record = gateway.record(delivery_of(id)).await;
        assert_eq!((record.state, record.reason), (State::Dead, Some(Reason::Expired)));
        assert_eq!(gateway.attempts(delivery_of(id)).await, []);
    }
}

#[tokio::test]
async fn a_rate_limit_holds_and_no_token_is_lost_to_who_gets_nothing() {
    let gateway = Gateway::start().await;
    let limit = Some(RateLimit { per_second: 1.0, burst: 3 });
    let endpoint = gateway.endpoint(Spec { rate_limit: limit, ..pull() }).await;
    for _ in 0..5 {
        assert!(gateway.lease(endpoint, 10).await.is_empty());
    }
    gateway.send_all((0..6).map(|_| event("order.created"))).await;
    let others = LeaseWish { event_types: patterns(&["other"]), ..wish(endpoint, 10) };
    assert!(gateway.lease_as(others).await.is_empty());
    assert_eq!(gateway.lease(endpoint, 1).await.len(), 1);
    assert_eq!(gateway.lease(endpoint, 10).await.len(), 2, "the rest of the burst");
    assert!(gateway.lease(endpoint, 10).await.is_empty());
    gateway.clock.advance(seconds(1));
    assert_eq!(gateway.lease(endpoint, 10).await.len(), 1);
    gateway.clock.advance(Duration::from_millis(999));
    assert!(gateway.lease(endpoint, 10).await.is_empty());
}

#[tokio::test]
async fn no_more_are_leased_than_may_be_in_flight_whoever_asks() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(Spec { max_in_flight: Some(2), ..pull() }).await;
    gateway.send_all((0..9).map(|_| event("order.created"))).await;
    let held = gateway.lease(endpoint, 10).await;
    assert_eq!(held.len(), 2);
    assert!(gateway.lease(endpoint, 10).await.is_empty());
    // However it ends, one that ends makes room for one.
    assert!(gateway.ack(&held[0]).await);
    let third = gateway.lease_one(endpoint).await;
    assert!(gateway.nack(&third, nack(Class::Final)).await);
    let fourth = gateway.lease_one(endpoint).await;
    assert!(gateway.nack(&fourth, nack(Class::Retryable)).await);
    let fifth = gateway.lease_one(endpoint).await;
    gateway.engine.cancel(crate::gateway::ACTING, fifth.delivery).await.expect("cancelled");
    gateway.lease_one(endpoint).await;
    assert!(gateway.lease(endpoint, 10).await.is_empty());
    gateway.change(endpoint, |spec| spec.max_in_flight = Some(3)).await;
    gateway.lease_one(endpoint).await;
    gateway.change(endpoint, |spec| spec.max_in_flight = None).await;
    assert_eq!(gateway.lease(endpoint, 10).await.len(), 2, "all that is left and due");
}

#[tokio::test]
async fn only_endpoints_for_workers_can_be_leased_from() {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(200).await;
    let pushed = crate::rig::listen(&gateway.engine, &sink, "order.created").await;
    let refused = gateway.engine.lease(TENANT, wish(pushed, 1)).await;
    assert!(matches!(&refused, Err(Error::Conflict(_))), "{refused:?}");
    let tested = gateway.engine.test_endpoint(TENANT, gateway.endpoint(pull()).await).await;
    assert!(matches!(&tested, Err(Error::Conflict(_))), "{tested:?}");
    let unknown = postrider_core::EndpointId::from_i64(1);
    let refused = gateway.engine.lease(TENANT, wish(unknown, 1)).await;
    assert!(matches!(&refused, Err(Error::NotFound)), "{refused:?}");
}

#[tokio::test]
async fn what_is_on_its_way_to_a_url_is_not_handed_out_when_workers_take_over() {
    let mut gateway = Gateway::start().await;
    let sink = Sink::start(|_| Reply::status(500).held()).await;
    let spec = Spec { max_in_flight: Some(2), ..pull() };
    let pushed =
        Spec { destination: postrider_core::endpoint::Destination::Url(sink.url()), ..spec };
    let endpoint = gateway.endpoint(pushed).await;
    let events = gateway.send_all(["n.1", "n.2", "n.3"].map(event)).await;
    sink.nth(2).await;
    gateway
        .change(endpoint, |spec| {
            spec.destination = postrider_core::endpoint::Destination::Pull;
            spec.max_in_flight = None;
        })
        .await;
    let leases = gateway.lease(endpoint, 10).await;
    assert_eq!(kinds(&leases), ["n.3"], "the others are not here");
    assert!(gateway.engine.is_in_flight(endpoint, delivery_of(events[0])).await);
    sink.release(2);
    for _ in 0..2 {
        gateway.notice(NoticeKind::RetryScheduled).await;
    }
    assert_eq!(gateway.engine.endpoint_health(endpoint).await.expect("known").in_flight, 0);
    gateway.clock.advance(seconds(10));
    let back = gateway.lease(endpoint, 10).await;
    assert_eq!(kinds(&back), ["n.1", "n.2"]);
    assert!(back.iter().all(|lease| lease.attempt == 2));

    // And the other way round: what a worker has is not sent.
    gateway
        .change(endpoint, |spec| {
            spec.destination = postrider_core::endpoint::Destination::Url(sink.url());
        })
        .await;
    sink.answer(200);
    assert!(gateway.ack(&back[0]).await && gateway.ack(&leases[0]).await);
    gateway.clock.set(back[1].expires_at);
    let notice = gateway.notice(NoticeKind::RetryScheduled).await;
    assert_eq!(notice.delivery.as_ref().map(|told| told.delivery_id), Some(back[1].delivery));
    assert_eq!(sink.nth(3).await.body_text(), "n.2", "once its lease has run out");
    assert_eq!(gateway.clock.now(), back[1].expires_at);
}

#[tokio::test]
async fn another_tenant_neither_leases_nor_answers() {
    let gateway = Gateway::start().await;
    let other = gateway.other_tenant().await;
    let endpoint = gateway.endpoint(pull()).await;
    gateway.send("order.created").await;
    let refused = gateway.engine.lease(other, wish(endpoint, 1)).await;
    assert!(matches!(&refused, Err(Error::NotFound)), "{refused:?}");
    let lease = gateway.lease_one(endpoint).await;
    let before = gateway.record(lease.delivery).await;
    let token = || vec![lease.token];
    assert_eq!(gateway.engine.ack(other, token(), None).await.expect("answered"), [false]);
    let nacked = gateway.engine.nack(other, token(), nack(Class::Final)).await;
    assert_eq!(nacked.expect("answered"), [false]);
    assert_eq!(gateway.engine.extend(other, token(), LEASE).await.expect("answered"), [None]);
    assert_eq!(gateway.record(lease.delivery).await, before);
    assert!(gateway.ack(&lease).await);
}
