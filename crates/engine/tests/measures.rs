//! What happens is counted once, whatever way a delivery takes, and the count outlives the process
//! that made it. Time is virtual.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "rig/gateway.rs"]
mod gateway;
#[allow(dead_code, reason = "shared with other tests")]
mod rig;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::endpoint::{Destination, Spec};
use postrider_core::hub::{Answer, Hello, Met};
use postrider_core::{Class, EndpointId, Timestamp};
use postrider_engine::notices::NoticeKind;
use postrider_engine::ports::{Clock as _, ManualClock, SystemEntropy};
use postrider_engine::{EndpointAction, Engine, Lease, LeaseWish, Nack, Options, Submission};
use postrider_store::measures::{Grain, Measure, Of, Tallies};
use serde_json::json;

use gateway::{ACTING, Gateway, START, TENANT, delivery_of, event, policy, seconds, spec};
use rig::PATIENCE;
use rig::sink::{Reply, Sink};

/// The longest it takes until what was counted is written down.
const FLUSH_EVERY: Duration = Duration::from_secs(10);

/// What is expected of a tenant or an endpoint, times apart.
#[derive(Debug, Default, PartialEq)]
struct Told {
    received: u64,
    delivered: u64,
    failures: u64,
    dead: u64,
}

impl Told {
    fn of(measures: &[Measure]) -> Self {
        let mut told = Self::default();
        for Tallies { received, delivered, failures, dead, latency } in
            measures.iter().map(|measure| &measure.tallies)
        {
            assert_eq!(latency.iter().sum::<u64>(), *delivered, "each delivered one took its time");
            told.received += received;
            told.delivered += delivered;
            told.failures += failures;
            told.dead += dead;
        }
        told
    }
}

/// What an engine has to say of everything.
async fn told(engine: &Engine) -> Told {
    let all = engine.measures(TENANT, Of::Tenant, Grain::TwoHours, START.minus(seconds(7_200)));
    let all = Told::of(&all.await.expect("readable"));
    let each =
        engine.measures(TENANT, Of::EachEndpoint, Grain::TwoHours, START.minus(seconds(7_200)));
    assert_eq!(Told::of(&each.await.expect("readable")), all, "endpoints add up to their tenant");
    all
}

/// What has been written down of the tenant.
async fn stored(engine: &Engine) -> Told {
    let stored = engine.store().measures(TENANT, Of::Tenant, Grain::Minute, Timestamp::MIN);
    Told::of(&stored.await.expect("readable"))
}

/// Looks until so much has been written down.
async fn written(engine: &Engine, wanted: Told) {
    let looking = async {
        while stored(engine).await != wanted {
            tokio::task::yield_now().await;
        }
    };
    let looked = tokio::time::timeout(PATIENCE, looking).await;
    assert!(looked.is_ok(), "{:?} is written, not {wanted:?}", stored(engine).await);
}

fn to(sink: &Sink) -> Spec {
    spec(Destination::Url(sink.url()))
}

async fn lease(engine: &Engine, endpoint: EndpointId) -> Lease {
    let (max, wait, lease) = (1, Duration::ZERO, seconds(40));
    let wish = LeaseWish { endpoint, max, wait, lease, event_types: Vec::new() };
    let mut leases = engine.lease(TENANT, wish).await.expect("the endpoint is there");
    assert_eq!(leases.len(), 1);
    leases.remove(0)
}

async fn ack(engine: &Engine, lease: &Lease) {
    let acked = engine.ack(TENANT, vec![lease.token], None).await;
    assert_eq!(acked.expect("settled"), [true]);
}

#[tokio::test]
async fn a_retry_counts_as_a_failure_and_its_success_as_the_time_since_the_event() {
    let mut gateway = Gateway::start().await;
    let sink = Sink::in_turn([Reply::status(500), Reply::status(200)]).await;
    let endpoint = gateway.endpoint(to(&sink)).await;
    gateway.endpoint(Spec { event_types: Vec::new(), ..spec(Destination::Pull) }).await;
    gateway.send("order.created").await;
    gateway.notice(NoticeKind::RetryScheduled).await;
    let tried = Told { received: 1, failures: 1, ..Told::default() };
    assert_eq!(told(&gateway.engine).await, tried);
    gateway.clock.advance(seconds(10));
    gateway.notice(NoticeKind::Delivered).await;
    assert_eq!(told(&gateway.engine).await, Told { delivered: 1, ..tried });
    for (of, expected) in [(Of::Tenant, None), (Of::Endpoint(endpoint), Some(endpoint))] {
        let measures = gateway.engine.measures(TENANT, of, Grain::Minute, START).await;
        let measures = measures.expect("readable");
        let [measure] = &measures[..] else { panic!("{measures:?}") };
        assert_eq!((measure.start, measure.endpoint, measure.tenant), (START, expected, TENANT));
        // The first bound above ten seconds.
        assert_eq!(measure.tallies.quantile(0.5), Some(12_288));
    }
}

#[tokio::test]
async fn what_is_refused_exhausted_or_too_old_is_dead() {
    let refused = json!("edge");
    let exhausted = json!({"preset": "router", "max_attempts": 1});
    for (status, policy_of, kind) in
        [(400, refused, NoticeKind::Failed), (500, exhausted, NoticeKind::Dead)]
    {
        let mut gateway = Gateway::start().await;
        let sink = Sink::answering(status).await;
        gateway.endpoint(Spec { policy: policy(policy_of), ..to(&sink) }).await;
        gateway.send("order.created").await;
        gateway.notice(kind).await;
        let expected = Told { received: 1, failures: 1, dead: 1, ..Told::default() };
        assert_eq!(told(&gateway.engine).await, expected, "{status}");
    }
    let mut gateway = Gateway::start().await;
    let day = policy(json!({"preset": "edge", "max_age": "1d"}));
    let endpoint = gateway.endpoint(Spec { policy: day, ..spec(Destination::Pull) }).await;
    let pause = EndpointAction::Pause;
    gateway.engine.set_endpoint_state(ACTING, endpoint, pause).await.expect("paused");
    gateway.send("order.created").await;
    gateway.clock.advance(Duration::from_hours(25));
    gateway.notice(NoticeKind::Dead).await;
    let expected = Told { received: 1, dead: 1, ..Told::default() };
    assert_eq!(told(&gateway.engine).await, expected, "nobody tried it");
}

#[tokio::test]
async fn a_replay_of_an_event_makes_a_delivery_and_a_retry_does_not() {
    let mut gateway = Gateway::start().await;
    let sink = Sink::answering(400).await;
    gateway.endpoint(Spec { policy: policy(json!("edge")), ..to(&sink) }).await;
    let event = gateway.send("order.created").await;
    gateway.notice(NoticeKind::Failed).await;
    sink.answer(200);
    gateway.clock.advance(Duration::from_hours(1));
    gateway.engine.replay_event(ACTING, event, None).await.expect("replayed");
    gateway.notice(NoticeKind::Delivered).await;
    let replayed = Told { received: 2, failures: 1, dead: 1, delivered: 1 };
    assert_eq!(told(&gateway.engine).await, replayed);
    gateway.engine.retry(ACTING, delivery_of(event)).await.expect("reset");
    gateway.notice(NoticeKind::Delivered).await;
    assert_eq!(told(&gateway.engine).await, Told { delivered: 2, ..replayed });
    let hour = START.plus(Duration::from_hours(1));
    let later = gateway.engine.measures(TENANT, Of::Tenant, Grain::Minute, hour).await;
    let later = later.expect("readable");
    assert_eq!(later.len(), 1, "{later:?}");
    let slowest = later[0].tallies.quantile(1.0);
    assert_eq!(slowest, Some(1), "the time counts from the beginning of its new life");
}

#[tokio::test]
async fn neither_a_duplicate_nor_what_was_cancelled_counts() {
    let mut gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(spec(Destination::Pull)).await;
    let keyed = Submission { idempotency_key: Some("once".into()), ..event("order.created") };
    let id = gateway.send_all([keyed.clone()]).await[0];
    gateway.engine.accept(TENANT, vec![keyed]).await.expect("known already");
    gateway.engine.cancel(ACTING, delivery_of(id)).await.expect("cancelled");
    gateway.notice(NoticeKind::Cancelled).await;
    assert_eq!(told(&gateway.engine).await, Told { received: 1, ..Told::default() });
    let other = gateway.other_tenant().await;
    let none = gateway.engine.measures(other, Of::Endpoint(endpoint), Grain::Minute, START).await;
    assert_eq!(none.expect("readable"), [], "it is not theirs");
}

#[tokio::test]
async fn what_workers_say_counts_and_so_does_their_silence() {
    let mut gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(spec(Destination::Pull)).await;
    gateway.send_all(["a", "b", "c"].map(event)).await;
    let engine = &gateway.engine;
    let expected = Told { received: 3, ..Told::default() };
    let acked = lease(engine, endpoint).await;
    assert_eq!(told(engine).await, expected, "to have it in hand is nothing");
    ack(engine, &acked).await;
    let expected = Told { delivered: 1, ..expected };
    assert_eq!(told(engine).await, expected);
    for (class, dead) in [(Class::Final, 1), (Class::Retryable, 0)] {
        let nack = Nack { class, error: "no".into(), retry_after: None };
        let token = lease(engine, endpoint).await.token;
        let nacked = engine.nack(TENANT, vec![token], nack).await;
        assert_eq!(nacked.expect("settled"), [true]);
        let counted = told(engine).await;
        assert_eq!(counted.dead, 1, "{class:?}");
        assert_eq!(counted.failures, 2 - dead, "{class:?}");
    }
    gateway.clock.advance(seconds(10));
    let silent = lease(&gateway.engine, endpoint).await;
    gateway.clock.set(silent.expires_at);
    // The first is that of the one who said no.
    gateway.notice(NoticeKind::RetryScheduled).await;
    gateway.notice(NoticeKind::RetryScheduled).await;
    assert_eq!(told(&gateway.engine).await, Told { failures: 3, dead: 1, ..expected });
    let late = gateway.engine.ack(TENANT, vec![silent.token], None).await;
    assert_eq!(late.expect("looked at"), [false]);
    let expected = Told { received: 3, delivered: 1, failures: 3, dead: 1 };
    assert_eq!(told(&gateway.engine).await, expected, "too late");
}

#[tokio::test]
async fn what_a_hub_takes_counts_like_anything_else() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.engine.create_hub(ACTING, "the workshop".into()).await.expect("a hub").0.id;
    gateway.endpoint(spec(Destination::Hub(hub))).await;
    gateway.send("order.created").await;
    let hello = Hello { agent: "test/1.0".into(), capacity: 10 };
    let mut link = gateway.engine.connect_hub(hub, &hello).await.expect("known");
    for (status, kind) in [(500, NoticeKind::RetryScheduled), (200, NoticeKind::Delivered)] {
        let deliver = tokio::time::timeout(PATIENCE, link.next()).await.expect("it comes");
        let seq = deliver.expect("the line is open").seq;
        let (headers, body, truncated) = (Vec::new(), Bytes::new(), false);
        let met = Met::Status { status, headers, body, truncated };
        link.answer(Answer { seq, duration: seconds(1), met }).expect("it was asked");
        gateway.notice(kind).await;
        gateway.clock.advance(seconds(10));
    }
    let expected = Told { received: 1, failures: 1, delivered: 1, dead: 0 };
    assert_eq!(told(&gateway.engine).await, expected);
}

#[tokio::test]
async fn it_is_written_down_every_ten_seconds() {
    let mut gateway = Gateway::start().await;
    let sink = Sink::answering(200).await;
    gateway.endpoint(to(&sink)).await;
    for sent in 1..=2 {
        gateway.send("order.created").await;
        gateway.notice(NoticeKind::Delivered).await;
        let before = Told { received: sent - 1, delivered: sent - 1, ..Told::default() };
        assert_eq!(stored(&gateway.engine).await, before, "it has not been long");
        if sent > 1 {
            // The ten seconds begin with the first that is counted.
            gateway.clock.asleep(gateway.clock.now().plus(FLUSH_EVERY), 0).await;
        }
        gateway.clock.advance(FLUSH_EVERY);
        let all = || Told { received: sent, delivered: sent, ..Told::default() };
        written(&gateway.engine, all()).await;
        assert_eq!(told(&gateway.engine).await, all(), "not twice");
    }
}

#[tokio::test]
async fn a_stop_in_good_order_loses_nothing() {
    let mut gateway = Gateway::start().await;
    let sink = Sink::answering(200).await;
    gateway.endpoint(to(&sink)).await;
    for life in 1..=3 {
        gateway.send("order.created").await;
        gateway.notice(NoticeKind::Delivered).await;
        gateway = gateway.restart().await;
        let expected = Told { received: life, delivered: life, ..Told::default() };
        assert_eq!(stored(&gateway.engine).await, expected);
        assert_eq!(told(&gateway.engine).await, expected);
    }
}

/// Of a kind that nobody pushes, so that neither carries what the other has accepted.
#[tokio::test]
async fn what_two_engines_count_adds_up_in_their_store() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.endpoint(spec(Destination::Pull)).await;
    // A second ahead, so that they do not give out the same ids.
    let clock = ManualClock::at(gateway.clock.now().plus(seconds(1)));
    let store = Arc::clone(gateway.engine.store());
    let other =
        Engine::start(Options::default(), store, Arc::new(clock.clone()), Arc::new(SystemEntropy));
    let other = other.await.expect("the engine starts");
    gateway.send_all(["a", "b"].map(event)).await;
    other.accept(TENANT, vec![event("c")]).await.expect("accepted");
    for engine in [&gateway.engine, &other, &other] {
        ack(engine, &lease(engine, endpoint).await).await;
    }
    let here = Told { received: 2, delivered: 1, ..Told::default() };
    assert_eq!(told(&gateway.engine).await, here, "it does not know of the other yet");
    gateway.clock.advance(FLUSH_EVERY);
    written(&gateway.engine, here).await;
    clock.advance(FLUSH_EVERY);
    let both = || Told { received: 3, delivered: 3, ..Told::default() };
    written(&other, both()).await;
    for engine in [&gateway.engine, &other] {
        assert_eq!(told(engine).await, both());
    }
}

#[tokio::test]
async fn what_no_chart_shows_any_more_is_removed() {
    let mut gateway = Gateway::start().await;
    let sink = Sink::answering(200).await;
    gateway.endpoint(to(&sink)).await;
    gateway.send("order.created").await;
    gateway.notice(NoticeKind::Delivered).await;
    gateway.clock.advance(FLUSH_EVERY);
    written(&gateway.engine, Told { received: 1, delivered: 1, ..Told::default() }).await;
    let mut kept = Grain::ALL.to_vec();
    for gone in Grain::ALL {
        let age = Duration::from_millis(gone.kept_millis().unsigned_abs());
        // Housekeeping comes every hour.
        gateway.clock.set(START.plus(age + Duration::from_hours(3)));
        kept.retain(|grain| *grain != gone);
        let removed = async {
            while !left(&gateway.engine, gone).await.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, removed).await.expect("removed");
        for grain in &kept {
            assert_eq!(left(&gateway.engine, *grain).await.len(), 1, "{grain:?} goes later");
        }
    }
}

async fn left(engine: &Engine, grain: Grain) -> Vec<Measure> {
    let left = engine.store().measures(TENANT, Of::Tenant, grain, Timestamp::MIN);
    left.await.expect("readable")
}
