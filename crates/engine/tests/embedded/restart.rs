//! What a new start of the program finds, and what it does about handlers that came and went.

use std::sync::Arc;

use postrider_core::endpoint::EndpointState;
use postrider_core::policy::Preset;
use postrider_core::{Class, State, TenantId};
use postrider_engine::embedded::{HandlerOptions, NewMessage};
use postrider_engine::ports::{ManualClock, SystemEntropy};
use postrider_engine::{Acting, EndpointAction, Engine, Options, WaitReason};
use postrider_store::audit::AuditQuery;

use crate::queue::{EVENT_TYPE, Judge, Runs, crashes, message, passes, seconds, store};

fn options() -> HandlerOptions {
    HandlerOptions::default().policy(Preset::Runs).concurrency(1)
}

/// Drained, or stopped dead.
#[tokio::test]
async fn retry_state_outlives_the_program_and_nothing_is_tried_early() {
    for drained in [true, false] {
        let judge = Judge::new(crashes);
        let runs = Runs::start(&judge).await;
        let id = runs.discover("r-1").await;
        let due = runs.until_retrying(id, 1).await.due.expect("scheduled");
        runs.clock.set(due);
        let before = runs.until_retrying(id, 2).await;
        let due = before.due.expect("scheduled");
        let now = runs.now();
        let data = if drained { runs.stop().await } else { runs.image() };

        let runs = Runs::open(data, now, &judge, options()).await;
        let after = runs.queue.delivery(id).await.expect("readable");
        assert_eq!(after, before, "drained: {drained}");
        runs.just_before(due).await;
        assert_eq!(judge.calls().len(), 2, "drained: {drained}");
        judge.says(passes);
        runs.clock.set(due);
        runs.until_state(id, State::Delivered).await;
        let last = judge.calls().pop().expect("it was called");
        assert_eq!((last.attempt, last.is_retry, last.at), (3, true, due), "drained: {drained}");
    }
}

#[tokio::test]
async fn what_somebody_paused_stays_paused() {
    let judge = Judge::new(passes);
    let runs = Runs::start(&judge).await;
    let acting = Acting::gateway(TenantId::DEFAULT);
    let (engine, id) = (runs.queue.engine(), runs.endpoint());
    engine.set_endpoint_state(acting, id, EndpointAction::Pause).await.expect("paused");
    let run = runs.discover("r-1").await;
    let now = runs.now();
    let runs = Runs::open(runs.stop().await, now, &judge, options()).await;
    runs.let_it_act().await;
    assert!(judge.calls().is_empty());
    let engine = runs.queue.engine();
    engine.set_endpoint_state(acting, id, EndpointAction::Resume).await.expect("resumed");
    runs.until_state(run, State::Delivered).await;
}

#[tokio::test]
async fn what_was_disabled_for_failing_is_enabled_by_a_new_start() {
    let judge = Judge::new(passes);
    let runs = Runs::start(&judge).await;
    let (id, now) = (runs.endpoint(), runs.now());
    let mut endpoint =
        (*runs.queue.engine().endpoint(TenantId::DEFAULT, id).expect("there")).clone();
    let data = runs.stop().await;
    let between = store(data.path());
    endpoint.state = EndpointState::Disabled;
    between.put_endpoint(endpoint, None).await.expect("stored");
    between.note_failing(vec![(id, Some(now))]).await.expect("stored");
    between.close().await;
    let runs = Runs::open(data, now, &judge, options()).await;
    let run = runs.discover("r-1").await;
    runs.until_state(run, State::Delivered).await;
    let failing = runs.queue.engine().store().failing().await.expect("readable");
    assert!(failing.is_empty(), "{failing:?}");
}

#[tokio::test]
async fn a_handler_that_is_missing_keeps_its_messages_until_it_is_back() {
    let judge = Judge::new(crashes);
    let runs = Runs::start(&judge).await;
    let old = runs.discover("old").await;
    let due = runs.until_retrying(old, 1).await.due.expect("scheduled");
    let data = runs.stop().await;

    let clock = ManualClock::at(due.plus(seconds(86_400)));
    let queue = Runs::embedded(&data, &clock).start().await.expect("the queue starts");
    let without = Runs { queue, clock, data };
    let new = without.discover("new").await;
    without.let_it_act().await;
    for (id, attempts) in [(old, 1), (new, 0)] {
        let waits = without.queue.delivery(id).await.expect("readable");
        assert_eq!((waits.state.is_terminal(), waits.attempts), (false, attempts));
        let waiting_on = without.queue.engine().waiting_on(&waits).await.expect("readable");
        assert_eq!(waiting_on.map(|on| on.reason), Some(WaitReason::Paused));
    }
    let now = without.now();
    let data = without.stop().await;

    judge.says(passes);
    let back = Runs::open(data, now, &judge, options()).await;
    for id in [old, new] {
        back.until_state(id, State::Delivered).await;
    }
    assert_eq!(judge.order(), ["old", "old", "new"]);
    let engine = back.queue.engine();
    let endpoint = engine.endpoint(TenantId::DEFAULT, back.endpoint()).expect("there");
    assert_eq!(endpoint.state, EndpointState::Active);
    assert!(endpoint.spec.metadata.is_empty(), "{:?}", endpoint.spec.metadata);
}

/// An engine that knows of no handlers, as the gateway is one.
#[tokio::test]
async fn an_engine_without_the_handler_says_so_and_tries_again() {
    let judge = Judge::new(crashes);
    let runs = Runs::start(&judge).await;
    let id = runs.discover("r-1").await;
    let due = runs.until_retrying(id, 1).await.due.expect("scheduled");
    let data = runs.stop().await;
    let clock = ManualClock::at(due);
    let (time, entropy) = (Arc::new(clock.clone()), Arc::new(SystemEntropy));
    let engine = Engine::start(Options::default(), store(data.path()), time, entropy)
        .await
        .expect("the engine starts");
    let mut notices = engine.notices().subscribe();
    let failed = loop {
        let store = engine.store();
        let record = store.delivery(TenantId::DEFAULT, id).await.expect("readable").expect("there");
        if record.attempts == 2 {
            break record;
        }
        notices.recv().await.expect("the engine goes on");
    };
    assert_eq!((failed.state, failed.class), (State::Retrying, Some(Class::Retryable)));
    let error = failed.last_error.expect("it says why");
    assert_eq!(error, "no handler named judge is registered in this program");
}

#[tokio::test]
async fn a_start_brings_the_store_up_to_date_and_changes_nothing_else() {
    let judge = Judge::new(passes);
    let runs = Runs::start(&judge).await;
    let (id, now) = (runs.endpoint(), runs.now());
    let data = runs.stop().await;
    let same = Runs::open(data, now, &judge, options()).await;
    let query = || AuditQuery { subject: Some(id.to_string()), limit: 10, ..AuditQuery::default() };
    let changes = |rows: Vec<postrider_store::audit::AuditRecord>| {
        rows.into_iter().map(|row| row.action).collect::<Vec<_>>()
    };
    let rows = same.queue.engine().store().audit(query()).await.expect("readable");
    assert_eq!(changes(rows), ["endpoint.create"], "the same again is no change");
    let data = same.stop().await;

    let other = HandlerOptions::default().policy(Preset::Edge).concurrency(3);
    let runs = Runs::open(data, now, &judge, other).await;
    let engine = runs.queue.engine();
    let endpoint = engine.endpoint(TenantId::DEFAULT, id).expect("it is the same one");
    assert_eq!(endpoint.spec.policy, Preset::Edge.into());
    assert_eq!(endpoint.spec.max_in_flight, Some(3));
    let rows = engine.store().audit(query()).await.expect("readable");
    assert_eq!(changes(rows), ["endpoint.update", "endpoint.create"]);
    runs.queue.enqueue(message("r-1")).await.expect("it is listened to");
    let unknown = NewMessage::new(format!("{EVENT_TYPE}x"), "");
    let error = runs.queue.enqueue(unknown).await.expect_err("nobody listens").to_string();
    assert!(error.contains("no handler listens to \"run.discoveredx\""), "{error}");
}
