//! A worker at work while nothing goes wrong but its handlers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use postrider_client::worker::{Summary, Verdict, Work, Worker, WorkerOptions};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::fake::{Fake, Fault, State, options};
use crate::within;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_delivery_is_handled_once_and_never_more_at_a_time_than_there_are_hands() {
    const HANDS: usize = 5;
    let fake = Fake::start().await;
    fake.put(300);
    let (busy, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let worker = Worker::new(
        fake.gateway(),
        WorkerOptions { concurrency: HANDS, lease: Duration::from_secs(30), ..options() },
    )
    .expect("valid");
    let handler = {
        let most = Arc::clone(&most);
        move |work: Work| {
            let (busy, most) = (Arc::clone(&busy), Arc::clone(&most));
            async move {
                most.fetch_max(busy.fetch_add(1, SeqCst) + 1, SeqCst);
                tokio::task::yield_now().await;
                busy.fetch_sub(1, SeqCst);
                let payload: Value = work.json().expect("JSON");
                Verdict::done_with(format!("{} of {}", payload["number"], work.attempt))
            }
        }
    };
    let all_done = fake.until("all", |seen| {
        seen.deliveries.values().all(|delivery| matches!(delivery.state, State::Done(_)))
    });
    let summary = within("the work", worker.run(handler, all_done)).await.expect("no trouble");

    assert_eq!((summary.taken, summary.lapsed, summary.given_back), (300, 0, 0));
    assert!(most.load(SeqCst) <= HANDS, "{most:?}");
    let seen = fake.look();
    for (number, delivery) in &seen.deliveries {
        assert_eq!(delivery.state, State::Done(Some(format!("{number} of 1"))));
    }
    for call in seen.calls_of("lease") {
        let asked = usize::try_from(call.body["max"].as_u64().expect("given")).expect("small");
        assert!(asked + call.leased <= HANDS, "asked for {asked} with {} in hand", call.leased);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verdicts_are_told_as_they_were_given() {
    let second = Some(Duration::from_secs(1));
    let cases: Vec<(Verdict, &str, Value)> = vec![
        (Verdict::done(), "ack", json!({})),
        (Verdict::done_with("Passed"), "ack", json!({ "result": "Passed" })),
        (Verdict::done_with(""), "ack", json!({})),
        (Verdict::fatal("no"), "nack", json!({ "class": "final", "error": "no" })),
        (Verdict::retryable("later"), "nack", json!({ "class": "retryable", "error": "later" })),
        (
            Verdict::rate_limited("slow", second),
            "nack",
            json!({ "class": "rate_limited", "error": "slow", "retry_after": "1s" }),
        ),
    ];
    for (verdict, verb, fields) in cases {
        let fake = Fake::start().await;
        fake.put(1);
        let worker = Worker::new(fake.gateway(), options()).expect("valid");
        let given = verdict.clone();
        let handler = move |_| std::future::ready(given.clone());
        let told = fake.until("a verdict", |seen| !seen.calls_of(verb).is_empty());
        within("the work", worker.run(handler, told)).await.expect("no trouble");
        let seen = fake.look();
        let mut body = seen.calls_of(verb)[0].body.clone();
        let leases = body.as_object_mut().expect("an object").remove("leases");
        assert_eq!(leases, Some(json!(["lse_1_1"])));
        assert_eq!(body, fields, "{verdict:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_has_failed_and_harms_no_other() {
    let fake = Fake::start().await;
    fake.put(3);
    let worker = Worker::new(fake.gateway(), options()).expect("valid");
    let handler = |work: Work| {
        // Both where the future is made and where it runs.
        assert!(work.attempt != 1 || work.event.id.as_i64() != 1, "before it began");
        async move {
            assert!(work.attempt != 1 || work.event.id.as_i64() != 2, "in the middle");
            Verdict::done()
        }
    };
    let done = fake.until("all", |seen| seen.all(&State::Done(None)));
    let summary = within("the work", worker.run(handler, done)).await.expect("no trouble");
    assert_eq!((summary.done, summary.failed, summary.taken), (3, 2, 5));
    let seen = fake.look();
    let mut errors: Vec<&str> = seen
        .calls_of("nack")
        .iter()
        .map(|call| call.body["error"].as_str().expect("given"))
        .collect();
    errors.sort_unstable();
    let expected = ["the handler panicked: before it began", "the handler panicked: in the middle"];
    assert_eq!(errors, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_extended_for_as_long_as_their_handlers_run() {
    let fake = Fake::start().await;
    fake.put(3);
    let worker = Worker::new(fake.gateway(), options()).expect("valid");
    let (release, released) = watch::channel(false);
    let handler = move |_| {
        let mut released = released.clone();
        async move {
            drop(released.wait_for(|released| *released).await);
            Verdict::done()
        }
    };
    // Far beyond the one second of the lease.
    let long = fake.until("six extensions", |seen| seen.calls_of("extend").len() >= 6);
    let stop = async {
        long.await;
        release.send_replace(true);
    };
    let summary = within("the work", worker.run(handler, stop)).await.expect("no trouble");
    assert_eq!(summary, Summary { taken: 3, done: 3, ..Summary::default() });
    let seen = fake.look();
    assert!(seen.all(&State::Done(None)));
    // Those that were leased together are extended together.
    for call in seen.calls_of("extend") {
        assert_eq!(call.body["leases"].as_array().map(Vec::len), Some(3), "{call:?}");
        assert_eq!(call.body["lease"], "1s");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_ready_at_the_same_time_is_told_in_one_request() {
    const DELIVERIES: usize = 200;
    let fake = Fake::with(|call| (call.verb() == "ack").then_some(Fault::Hold)).await;
    fake.put(i64::try_from(DELIVERIES).expect("small"));
    let options =
        WorkerOptions { concurrency: DELIVERIES, lease: Duration::from_mins(1), ..options() };
    let worker = Worker::new(fake.gateway(), options).expect("valid");
    let count = Arc::new(watch::Sender::new(0));
    let mut counted = count.subscribe();
    let handler = move |_| {
        count.send_modify(|count| *count += 1);
        std::future::ready(Verdict::done())
    };
    let stop = async {
        let all = counted.wait_for(|count| *count == DELIVERIES);
        drop(within("all handlers", all).await);
        fake.release();
        fake.until("all", |seen| seen.all(&State::Done(None))).await;
    };
    let summary = within("the work", worker.run(handler, stop)).await.expect("no trouble");
    assert_eq!(summary.done, DELIVERIES as u64);
    // While the first are on their way, the others gather.
    let requests = fake.look().calls_of("ack").len();
    assert!(requests < DELIVERIES / 4, "{requests} requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_takes_too_long_is_dropped() {
    let fake = Fake::start().await;
    fake.put(1);
    let timeout = Some(Duration::from_millis(50));
    let worker = Worker::new(fake.gateway(), WorkerOptions { timeout, ..options() });
    let handler = |work: Work| async move {
        match work.attempt {
            1 => std::future::pending().await,
            _ => Verdict::done(),
        }
    };
    let done = fake.until("the second try", |seen| seen.all(&State::Done(None)));
    let summary = within("the work", worker.expect("valid").run(handler, done)).await;
    assert_eq!(summary, Ok(Summary { taken: 2, done: 1, failed: 1, ..Summary::default() }));
    let seen = fake.look();
    assert_eq!(seen.calls_of("nack")[0].body["error"], "the handler did not end within 50ms");
}
