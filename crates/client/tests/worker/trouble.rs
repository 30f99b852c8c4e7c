//! A worker while its gateway or the way to it is in trouble.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_client::worker::{Ending, Happening, Summary, Verdict, Work, Worker, WorkerOptions};
use tokio::sync::watch;

use crate::fake::{Call, Fake, Fault, State, options};
use crate::within;

/// Tells when it is dropped.
struct Dropped(watch::Sender<bool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

fn unavailable() -> Fault {
    Fault::Answer(503, &[], String::new())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_is_asked_for_again_after_trouble() {
    let trouble = |call: &Call| match (call.verb(), call.number) {
        ("lease", 1) => Some(Fault::Break),
        ("lease", 2) => Some(unavailable()),
        _ => None,
    };
    let fake = Fake::with(trouble).await;
    fake.put(1);
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let worker = Worker::new(fake.gateway(), options()).expect("valid").watched(move |happening| {
        let line = match happening {
            Happening::Trouble { error, .. } => error.to_string(),
            Happening::Recovered => "recovered".to_owned(),
            Happening::Ended { ending: Ending::Told(verdict), job, .. } => {
                format!("{} {} {verdict:?}", job.kind, job.attempt)
            }
            _ => return,
        };
        telling.lock().expect("sound").push(line);
    });
    let done = fake.until("the delivery", |seen| seen.all(&State::Done(None)));
    let handler = |_| std::future::ready(Verdict::done());
    let summary = within("the work", worker.run(handler, done)).await.expect("it passes");
    assert_eq!(summary.done, 1);
    let told = told.lock().expect("sound");
    let [first, second, rest @ ..] = &told[..] else { panic!("{told:?}") };
    assert!(first.contains("does not answer"), "{first}");
    assert!(second.contains("503"), "{second}");
    assert_eq!(rest, ["recovered", "order.created 1 Done { result: None }"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_is_told_again_until_it_is_heard() {
    let trouble = |call: &Call| match (call.verb(), call.number) {
        ("ack", 1) => Some(Fault::Break),
        ("ack", 2) => Some(unavailable()),
        _ => None,
    };
    let fake = Fake::with(trouble).await;
    fake.put(1);
    let lease = Duration::from_secs(30);
    let worker = Worker::new(fake.gateway(), WorkerOptions { lease, ..options() }).expect("valid");
    let done = fake.until("the delivery", |seen| seen.all(&State::Done(None)));
    let handler = |_| std::future::ready(Verdict::done());
    let summary = within("the work", worker.run(handler, done)).await.expect("it passes");
    assert_eq!(summary, Summary { taken: 1, done: 1, ..Summary::default() });
    assert_eq!(fake.look().calls_of("ack").len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_whose_answer_was_lost_is_not_told_as_heard() {
    let fake =
        Fake::with(|call| (call.verb() == "ack" && call.number == 1).then_some(Fault::DoAndBreak))
            .await;
    fake.put(1);
    let worker = Worker::new(fake.gateway(), options()).expect("valid");
    let again = fake.until("the second time", |seen| seen.calls_of("ack").len() == 2);
    let handler = |_| std::future::ready(Verdict::done());
    let summary = within("the work", worker.run(handler, again)).await.expect("it passes");
    // The gateway did it, and then did not know the lease any more.
    assert_eq!(summary, Summary { taken: 1, lapsed: 1, ..Summary::default() });
    assert!(fake.look().all(&State::Done(None)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_that_the_gateway_will_not_hear_is_given_up() {
    let refusal = r#"{"detail":"result: is not to my taste"}"#;
    let fake = Fake::with(move |call| {
        (call.verb() == "ack").then(|| Fault::Answer(422, &[], refusal.into()))
    })
    .await;
    fake.put(1);
    let refused = Arc::new(watch::Sender::new(String::new()));
    let mut seen = refused.subscribe();
    let worker = Worker::new(fake.gateway(), options()).expect("valid").watched(move |happening| {
        if let Happening::Ended { ending: Ending::Refused(error), .. } = happening {
            refused.send_replace(error.to_string());
        }
    });
    let stop = async { drop(seen.wait_for(|error| error.contains("not to my taste")).await) };
    let handler = |_| std::future::ready(Verdict::done());
    let summary = within("the work", worker.run(handler, stop)).await.expect("it goes on");
    assert_eq!((summary.done, fake.look().calls_of("ack").len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_lapsed_ends_its_handler() {
    // The gateway says that it has lapsed; or it cannot be reached for as long as the lease lasts.
    for fault in [Fault::Lapse, Fault::Break, Fault::Hang] {
        let given = fault.clone();
        let fake = Fake::with(move |call| (call.verb() == "extend").then(|| given.clone())).await;
        fake.put(1);
        let (dropping, mut dropped) = watch::channel(false);
        let worker = Worker::new(fake.gateway(), options()).expect("valid");
        let handler = move |work: Work| {
            let guard = Dropped(dropping.clone());
            async move {
                if work.attempt == 1 {
                    std::future::pending::<()>().await;
                }
                drop(guard);
                Verdict::done()
            }
        };
        let stop = async {
            drop(dropped.wait_for(|dropped| *dropped).await);
            fake.until("the second try", |seen| seen.all(&State::Done(None))).await;
        };
        let summary = within("the work", worker.run(handler, stop)).await.expect("it passes");
        let expected = Summary { taken: 2, done: 1, lapsed: 1, ..Summary::default() };
        assert_eq!(summary, expected, "{fault:?}");
        assert_eq!(fake.look().calls_of("nack").len(), 0, "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_that_failed_is_tried_again_in_time() {
    let fake = Fake::with(|call| {
        (call.verb() == "extend" && call.number % 2 == 1).then_some(Fault::Break)
    })
    .await;
    fake.put(1);
    let worker = Worker::new(fake.gateway(), options()).expect("valid");
    let (release, released) = watch::channel(false);
    let handler = move |_| {
        let mut released = released.clone();
        async move {
            drop(released.wait_for(|released| *released).await);
            Verdict::done()
        }
    };
    let stop = async {
        fake.until("extensions", |seen| seen.calls_of("extend").len() >= 8).await;
        release.send_replace(true);
    };
    let summary = within("the work", worker.run(handler, stop)).await.expect("it passes");
    assert_eq!(summary, Summary { taken: 1, done: 1, ..Summary::default() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_will_not_pass_ends_the_worker_after_what_is_in_hand() {
    for status in [401, 403, 404, 409, 422] {
        let fake = Fake::with(move |call| {
            let later = call.verb() == "lease" && call.number > 1;
            later.then(|| Fault::Answer(status, &[], r#"{"detail":"no more"}"#.into()))
        })
        .await;
        fake.put(1);
        let worker = Worker::new(fake.gateway(), options()).expect("valid");
        let (release, released) = watch::channel(false);
        let handler = move |_| {
            let mut released = released.clone();
            async move {
                drop(released.wait_for(|released| *released).await);
                Verdict::done()
            }
        };
        let running = worker.run(handler, std::future::pending());
        let releasing = async {
            fake.until("the refusal", |seen| seen.calls_of("lease").len() == 2).await;
            release.send_replace(true);
        };
        let (ended, ()) = within("the end", async { tokio::join!(running, releasing) }).await;
        let error = ended.expect_err("it does not pass");
        assert_eq!(error.to_string(), format!("the gateway says {status}: no more"));
        assert!(fake.look().all(&State::Done(None)));
    }
}
