//! What the daemon for runs is promised: classified errors, a schedule, fair order, and a result.

use std::sync::Arc;

use parking_lot::Mutex;
use postrider_core::policy::Preset;
use postrider_core::{Class, Reason, State, TenantId};
use postrider_engine::embedded::{Failure, Handled, HandlerOptions, NewMessage};
use postrider_engine::ports::ManualClock;
use postrider_engine::{Acting, WaitReason};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::queue::{
    EVENT_TYPE, HANDLER, Judge, PATIENCE, Runs, START, crashes, message, passes, seconds, text,
};

#[tokio::test]
async fn a_run_is_tried_eight_times_from_a_minute_to_an_hour_apart() {
    let judge = Judge::new(crashes);
    let runs = Runs::start(&judge).await;
    let id = runs.discover("r-1").await;
    for (attempts, delay) in (1..).zip([60, 120, 240, 480, 960, 1_920, 3_600]) {
        let failed = runs.until_retrying(id, attempts).await;
        let due = runs.now().plus(seconds(delay));
        assert_eq!((failed.due, failed.class), (Some(due), Some(Class::Retryable)));
        assert_eq!(failed.last_error.as_deref(), Some("the emulator crashed"));
        runs.just_before(due).await;
        assert_eq!(judge.calls().len(), attempts as usize, "not before it is due");
        runs.clock.set(due);
    }
    let dead = runs.until_state(id, State::Dead).await;
    assert_eq!((dead.attempts, dead.reason, dead.due), (8, Some(Reason::Exhausted), None));
    let calls = judge.calls();
    let attempts: Vec<u32> = calls.iter().map(|call| call.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(calls.iter().all(|call| call.is_retry == (call.attempt > 1)), "{calls:?}");

    let dead_letters = runs.queue.dead_letters(None).await.expect("readable");
    assert_eq!(dead_letters.rows.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
    judge.says(passes);
    runs.queue.retry(id).await.expect("it has another life");
    let passed = runs.until_state(id, State::Delivered).await;
    assert_eq!((passed.attempts, passed.result.as_deref()), (1, Some("Passed")));
    assert_eq!(runs.queue.attempts(id).await.expect("readable").len(), 9, "history is kept");
    assert!(runs.queue.dead_letters(None).await.expect("readable").rows.is_empty());
}

#[tokio::test]
async fn a_final_error_is_never_retried() {
    let judge = Judge::new(|_, _| Err(Failure::fatal("the replay is cut short")));
    let runs = Runs::start(&judge).await;
    let id = runs.discover("r-1").await;
    let failed = runs.until_state(id, State::Failed).await;
    assert_eq!((failed.attempts, failed.reason, failed.due), (1, Some(Reason::Rejected), None));
    assert_eq!(failed.class, Some(Class::Final));
    assert_eq!(failed.last_error.as_deref(), Some("the replay is cut short"));
    runs.clock.advance(seconds(86_400));
    runs.let_it_act().await;
    assert_eq!(judge.calls().len(), 1);
}

#[tokio::test]
async fn a_rate_limit_with_a_hint_waits_as_asked_and_does_not_count() {
    let hint = Some(seconds(7_200));
    let judge = Judge::new(move |_, _| Err(Failure::rate_limited("slow down", hint)));
    let runs = Runs::start(&judge).await;
    let id = runs.discover("limited").await;
    let deferred = runs.until(id, |record| record.deferrals == 1).await;
    let due = runs.now().plus(seconds(7_200));
    assert_eq!((deferred.state, deferred.attempts), (State::Retrying, 0));
    assert_eq!((deferred.due, deferred.class), (Some(due), Some(Class::RateLimited)));

    let other = runs.discover("other").await;
    let held = runs.queue.delivery(other).await.expect("readable");
    let waiting_on = runs.queue.engine().waiting_on(&held).await.expect("readable");
    assert_eq!(waiting_on.expect("it waits").reason, WaitReason::RetryAfter);
    runs.just_before(due).await;
    assert_eq!(judge.order(), ["limited"], "the wish holds for all of the handler's runs");
    judge.says(|_, _| Err(Failure::rate_limited("slow down", None)));
    runs.clock.set(due);
    let failed = runs.until_retrying(id, 1).await;
    assert_eq!(failed.due, Some(due.plus(seconds(60))), "without a hint it backs off and counts");
    assert_eq!((failed.deferrals, failed.class), (1, Some(Class::RateLimited)));
    runs.until_retrying(other, 1).await;
}

#[tokio::test]
async fn success_clears_what_was_scheduled_and_keeps_the_result() {
    let judge = Judge::new(|_, attempt| match attempt {
        1 => Err(Failure::retryable("the emulator crashed")),
        _ => Ok(Handled::done().result("NeedsReview")),
    });
    let runs = Runs::start(&judge).await;
    let id = runs.discover("r-1").await;
    let due = runs.until_retrying(id, 1).await.due.expect("scheduled");
    runs.clock.set(due);
    let passed = runs.until_state(id, State::Delivered).await;
    assert_eq!((passed.due, passed.class, passed.reason), (None, None, None));
    assert_eq!((passed.attempts, passed.result.as_deref()), (2, Some("NeedsReview")));
}

/// The table of the seed document: the oldest that may be tried goes first, retry or not, and one
/// that is not due holds up nobody.
#[tokio::test]
async fn retries_and_new_runs_compete_by_age() {
    let data = TempDir::new().expect("a folder");
    let clock = ManualClock::at(START);
    let (gate, order) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (open, seen) = (Arc::clone(&gate), Arc::clone(&order));
    let options = HandlerOptions::default().policy(Preset::Runs).concurrency(1);
    let queue = Runs::embedded(&data, &clock)
        .handler(HANDLER, [EVENT_TYPE], options, move |message| {
            let (gate, order) = (Arc::clone(&gate), Arc::clone(&order));
            async move {
                let run = text(&message);
                order.lock().push(run.clone());
                if run == "long" {
                    gate.acquire().await.expect("it stays open").forget();
                }
                let crashes = !message.is_retry() && run.starts_with("flaky");
                if crashes { Err(Failure::retryable("crashed")) } else { Ok(Handled::done()) }
            }
        })
        .start()
        .await
        .expect("the queue starts");
    let runs = Runs { queue, clock, data };
    let oldest = runs.discover("flaky-1").await;
    runs.until_retrying(oldest, 1).await;
    runs.clock.advance(seconds(30));
    let not_ready = runs.discover("flaky-2").await;
    let later = runs.until_retrying(not_ready, 1).await.due.expect("scheduled");
    runs.clock.advance(seconds(10));
    // While this one is judged, two new ones come in and the oldest becomes due.
    runs.discover("long").await;
    let new = [runs.discover("new-1").await, runs.discover("new-2").await];
    runs.clock.advance(seconds(20));
    let engine = runs.queue.engine();
    let window = async || engine.endpoint_health(runs.endpoint()).await.expect("known").window;
    let all_wait = async {
        while window().await < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, all_wait).await.expect("the retry is found");
    open.add_permits(1);
    for id in new {
        runs.until_state(id, State::Delivered).await;
    }
    assert_eq!(*seen.lock(), ["flaky-1", "flaky-2", "long", "flaky-1", "new-1", "new-2"]);
    runs.clock.set(later);
    runs.until_state(not_ready, State::Delivered).await;
}

#[tokio::test]
async fn only_allowed_categories_are_judged_and_the_others_are_kept() {
    let options = |allowed: &str| {
        let filter = format!("payload.category in [{allowed}]");
        HandlerOptions::default().policy(Preset::Runs).filter(filter)
    };
    let run = |category: &str| {
        NewMessage::json(EVENT_TYPE, &serde_json::json!({"category": category})).expect("JSON")
    };
    let judge = Judge::new(passes);
    let data = TempDir::new().expect("a folder");
    let runs = Runs::open(data, START, &judge, options("'any%', '100%'")).await;
    let any = runs.queue.enqueue(run("any%")).await.expect("enqueued");
    let meme = runs.queue.enqueue(run("memes")).await.expect("enqueued");
    assert_eq!(runs.queue.finished(any).await.expect("readable").len(), 1);
    assert!(runs.queue.finished(meme).await.expect("readable").is_empty());
    assert_eq!(judge.order(), [r#"{"category":"any%"}"#]);

    let (now, data) = (runs.now(), runs.stop().await);
    let runs = Runs::open(data, now, &judge, options("'memes'")).await;
    let acting = Acting::gateway(TenantId::DEFAULT);
    let again = runs.queue.engine().replay_event(acting, meme, None).await.expect("it is kept");
    runs.until_state(again[0], State::Delivered).await;
    assert_eq!(judge.order()[1..], [r#"{"category":"memes"}"#]);
}

#[tokio::test]
async fn a_run_that_is_discovered_again_is_the_same_run() {
    let judge = Judge::new(passes);
    let runs = Runs::start(&judge).await;
    let first = runs.queue.enqueue(message("r-1")).await.expect("enqueued");
    let again = runs.queue.enqueue(message("r-1")).await.expect("known");
    assert_eq!(first, again);
    let other = NewMessage::new(EVENT_TYPE, "other").idempotency_key("r-1");
    let refused = runs.queue.enqueue(other).await.expect_err("another run").to_string();
    assert!(refused.contains(&first.to_string()), "{refused}");
    runs.queue.finished(first).await.expect("readable");
    runs.let_it_act().await;
    assert_eq!(judge.order(), ["r-1"]);
}
