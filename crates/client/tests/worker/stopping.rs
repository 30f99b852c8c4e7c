//! How a worker stops.

use std::sync::Arc;
use std::time::Duration;

use postrider_client::worker::{Happening, Summary, Verdict, Worker, WorkerOptions};
use serde_json::json;
use tokio::sync::watch;

use crate::fake::{Fake, Fault, State, options};
use crate::within;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_hand_is_finished_and_no_more_is_taken() {
    let fake = Fake::start().await;
    fake.put(10);
    let (release, released) = watch::channel(false);
    let stopping = move |happening: &Happening<'_>| {
        if let Happening::Stopping { in_hand } = happening {
            assert_eq!(*in_hand, 3);
            release.send_replace(true);
        }
    };
    let worker = Worker::new(fake.gateway(), WorkerOptions { concurrency: 3, ..options() });
    let worker = worker.expect("valid").watched(stopping);
    let handler = move |_| {
        let mut released = released.clone();
        async move {
            drop(released.wait_for(|released| *released).await);
            Verdict::done()
        }
    };
    let leased = fake.until("three leases", |seen| {
        seen.deliveries.values().filter(|delivery| delivery.state == State::Leased).count() == 3
    });
    // The answer is on its way then, but nothing says that it has arrived: an extension does.
    let stop = async {
        leased.await;
        fake.until("an extension", |seen| !seen.calls_of("extend").is_empty()).await;
    };
    let summary = within("the stop", worker.run(handler, stop)).await.expect("no trouble");
    assert_eq!(summary, Summary { taken: 3, done: 3, ..Summary::default() });
    let seen = fake.look();
    let waiting = seen.deliveries.values().filter(|delivery| delivery.state == State::Waiting);
    assert_eq!(waiting.count(), 7);
    assert_eq!(seen.calls_of("lease").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_finished_in_time_is_given_back_and_costs_no_attempt() {
    // Once because the time to drain is over, once because somebody is in a hurry.
    for drain in [Duration::from_millis(1), Duration::from_mins(1)] {
        let fake = Fake::start().await;
        fake.put(2);
        let worker = Worker::new(fake.gateway(), WorkerOptions { drain, ..options() });
        let (dropping, mut dropped) = watch::channel(());
        let handler = move |_| {
            let held = dropping.clone();
            async move {
                let _held = held;
                std::future::pending().await
            }
        };
        let stop = fake.until("an extension", |seen| !seen.calls_of("extend").is_empty());
        let hurry = async {
            if drain < Duration::from_secs(1) {
                std::future::pending::<()>().await;
            }
        };
        let worker = worker.expect("valid");
        let summary = within("the stop", worker.run_until(handler, stop, hurry)).await;
        assert_eq!(summary, Ok(Summary { taken: 2, given_back: 2, ..Summary::default() }));
        // Every handler is gone, and the closure with them.
        within("the drop", async { while dropped.changed().await.is_ok() {} }).await;
        let seen = fake.look();
        assert!(seen.all(&State::Waiting));
        assert!(seen.deliveries.values().all(|delivery| delivery.attempts == 0));
        let [call] = seen.calls_of("release")[..] else { panic!("not one request") };
        assert_eq!(call.body["leases"], json!(["lse_1_1", "lse_2_1"]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_come_after_the_stop_are_given_back_unopened() {
    let fake = Arc::new(Fake::with(|call| (call.verb() == "lease").then_some(Fault::Hold)).await);
    fake.put(2);
    let releasing = Arc::clone(&fake);
    let worker = Worker::new(fake.gateway(), options()).expect("valid").watched(move |happening| {
        if let Happening::Stopping { .. } = happening {
            releasing.release();
        }
    });
    let handler = |_| async { panic!("it was given to the handler") };
    let stop = fake.until("the leases", |seen| seen.all(&State::Leased));
    let summary = within("the stop", worker.run(handler, stop)).await.expect("no trouble");
    assert_eq!(summary, Summary { taken: 2, given_back: 2, ..Summary::default() });
    assert!(fake.look().all(&State::Waiting));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_gone_does_not_keep_the_worker_from_stopping() {
    let fake = Fake::with(|call| match call.verb() {
        "lease" => None,
        _ => Some(Fault::Break),
    })
    .await;
    fake.put(1);
    let worker = Worker::new(fake.gateway(), WorkerOptions { drain: Duration::ZERO, ..options() });
    let handler = |_| std::future::pending();
    let stop = fake.until("an extension", |seen| !seen.calls_of("extend").is_empty());
    let summary = within("the stop", worker.expect("valid").run(handler, stop)).await;
    assert_eq!(summary.map(|summary| summary.given_back), Ok(0));
}
