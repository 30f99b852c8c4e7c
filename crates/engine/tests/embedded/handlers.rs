//! How handlers end, well or badly, and what cannot be one.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::endpoint::Ordering;
use postrider_core::policy::{self, Preset};
use postrider_core::{Class, State};
use postrider_engine::Error;
use postrider_engine::embedded::{
    Failure, Handled, HandlerOptions, MAX_BATCH, Message, NewMessage, StartError,
};
use postrider_engine::ports::ManualClock;
use postrider_store::record::DeliveryRecord;
use tempfile::TempDir;
use tokio::sync::{Notify, mpsc};

use crate::queue::{EVENT_TYPE, HANDLER, PATIENCE, Runs, START, message, text};

async fn start<F, Work>(data: TempDir, options: HandlerOptions, handler: F) -> Runs
where
    F: Fn(Message) -> Work + Send + Sync + 'static,
    Work: Future<Output = Result<Handled, Failure>> + Send + 'static,
{
    let clock = ManualClock::at(START);
    let embedded = Runs::embedded(&data, &clock).handler(HANDLER, [EVENT_TYPE], options, handler);
    let queue = embedded.start().await.expect("the queue starts");
    Runs { queue, clock, data }
}

fn folder() -> TempDir {
    TempDir::new().expect("a folder")
}

/// What becomes of a message that this handler is given once.
async fn once<F, Work>(options: HandlerOptions, handler: F) -> DeliveryRecord
where
    F: Fn(Message) -> Work + Send + Sync + 'static,
    Work: Future<Output = Result<Handled, Failure>> + Send + 'static,
{
    let runs = start(folder(), options, handler).await;
    let id = runs.discover("r-1").await;
    runs.until(id, |record| record.tries == 1).await
}

fn options() -> HandlerOptions {
    HandlerOptions::default().policy(Preset::Runs)
}

#[tokio::test]
async fn a_panic_is_a_retryable_failure_that_says_why() {
    let failed =
        once(options(), |message| async move { panic!("no luck with {}", text(&message)) });
    let failed = failed.await;
    assert_eq!((failed.state, failed.class), (State::Retrying, Some(Class::Retryable)));
    assert_eq!(failed.last_error.as_deref(), Some("the handler panicked: no luck with r-1"));
    // Before there is anything to await.
    let failed = once(options(), |message: Message| {
        assert!(message.is_retry(), "not now");
        async { Ok(Handled::done()) }
    });
    assert_eq!(failed.await.last_error.as_deref(), Some("the handler panicked: not now"));
}

#[tokio::test]
async fn an_error_that_is_passed_on_is_retryable_and_a_body_that_cannot_be_read_is_final() {
    let failed = once(options(), |message| async move {
        let _: u32 = text(&message).parse()?;
        Ok(Handled::done())
    });
    let failed = failed.await;
    assert_eq!((failed.state, failed.class), (State::Retrying, Some(Class::Retryable)));
    assert_eq!(failed.last_error.as_deref(), Some("invalid digit found in string"));
    let failed = once(options(), |message| async move {
        let _: u32 = message.json()?;
        Ok(Handled::done())
    });
    let failed = failed.await;
    assert_eq!((failed.state, failed.class), (State::Failed, Some(Class::Final)));
    assert!(failed.last_error.is_some_and(|error| error.starts_with("the body cannot be read")));
}

/// Tells when it is dropped.
struct Mark(mpsc::UnboundedSender<()>);

impl Drop for Mark {
    fn drop(&mut self) {
        // Nobody may be left to be told.
        let _ = self.0.send(());
    }
}

#[tokio::test]
async fn a_handler_that_takes_too_long_is_stopped() {
    let (sender, mut dropped) = mpsc::unbounded_channel();
    let options = options().timeout(Duration::from_millis(20));
    let failed = once(options, move |_| {
        let mark = Mark(sender.clone());
        async move {
            std::future::pending::<()>().await;
            drop(mark);
            Ok(Handled::done())
        }
    });
    let failed = failed.await;
    assert_eq!((failed.state, failed.class), (State::Retrying, Some(Class::Retryable)));
    assert_eq!(failed.last_error.as_deref(), Some("did not end within 20ms and was stopped"));
    let gone = tokio::time::timeout(PATIENCE, dropped.recv()).await;
    assert_eq!(gone, Ok(Some(())), "nothing of it goes on");
}

#[tokio::test]
async fn a_drain_waits_for_handlers_and_stops_those_that_take_too_long() {
    let (started, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (sender, mut dropped) = mpsc::unbounded_channel();
    let (begun, done) = (Arc::clone(&started), Arc::clone(&finish));
    let handler = move |_| {
        let (started, finish) = (Arc::clone(&started), Arc::clone(&finish));
        let mark = Mark(sender.clone());
        async move {
            started.notify_one();
            finish.notified().await;
            drop(mark);
            Ok(Handled::done().result("in time"))
        }
    };
    let runs = start(folder(), options(), handler.clone()).await;
    let id = runs.discover("r-1").await;
    begun.notified().await;
    assert_eq!(runs.queue.delivery(id).await.expect("readable").state, State::InFlight);
    let drained = runs.queue.drain(Duration::ZERO).await;
    assert_eq!(drained.abandoned, 1);
    let gone = tokio::time::timeout(PATIENCE, dropped.recv()).await;
    assert_eq!(gone, Ok(Some(())), "it is stopped");

    let runs = start(runs.data, options(), handler).await;
    begun.notified().await;
    let waiting = tokio::spawn({
        let queue = runs.queue.clone();
        async move { queue.drain(PATIENCE).await }
    });
    done.notify_one();
    assert_eq!(waiting.await.expect("it ends").abandoned, 0);
    let data = runs.data;
    let runs = start(data, options(), |_| async { Err(Failure::fatal("again")) }).await;
    let record = runs.queue.delivery(id).await.expect("readable");
    assert_eq!((record.state, record.attempts), (State::Delivered, 1));
    assert_eq!(record.result.as_deref(), Some("in time"));
}

#[tokio::test]
async fn a_handler_is_given_all_that_was_said_of_a_message() {
    let (sender, mut seen) = mpsc::unbounded_channel();
    let handler = move |message: Message| {
        drop(sender.send(message));
        async { Ok(Handled::done()) }
    };
    let runs = start(folder(), options(), handler).await;
    let body = serde_json::json!({"category": "any%"});
    let new = NewMessage::json(EVENT_TYPE, &body)
        .expect("JSON")
        .idempotency_key("i-1")
        .ordering_key("o-1")
        .deliver_at(START.plus(Duration::from_mins(1)))
        .metadata("session_id", "s-1");
    let id = runs.queue.enqueue(new).await.expect("enqueued");
    runs.just_before(START.plus(Duration::from_mins(1))).await;
    assert!(seen.try_recv().is_err(), "not before its time");
    runs.clock.advance(Duration::from_millis(1));
    let message = seen.recv().await.expect("handled");
    assert_eq!((message.id(), message.event_type()), (id, EVENT_TYPE));
    assert_eq!(message.delivery_id(), runs.only(id).await);
    assert_eq!(message.json::<serde_json::Value>().expect("JSON"), body);
    assert_eq!((message.attempt(), message.is_retry()), (1, false));
    assert_eq!(message.received_at(), START);
    assert_eq!(message.metadata()["session_id"], "s-1");
    assert_eq!(message.idempotency_key(), Some("i-1"));
    assert_eq!(message.ordering_key(), Some("o-1"));
}

#[tokio::test]
async fn what_must_not_be_overtaken_is_not() {
    let (sender, mut seen) = mpsc::unbounded_channel();
    let handler = move |message: Message| {
        let run = text(&message);
        let first = run == "first" && !message.is_retry();
        drop(sender.send(run));
        async move { if first { Err(Failure::retryable("no")) } else { Ok(Handled::done()) } }
    };
    let runs = start(folder(), options().ordering(Ordering::Fifo), handler).await;
    let first = runs.discover("first").await;
    let second = runs.discover("second").await;
    let due = runs.until_retrying(first, 1).await.due.expect("scheduled");
    runs.just_before(due).await;
    runs.clock.set(due);
    runs.until_state(second, State::Delivered).await;
    let order: Vec<String> = std::iter::from_fn(|| seen.try_recv().ok()).collect();
    assert_eq!(order, ["first", "first", "second"]);
}

#[tokio::test]
async fn what_cannot_be_a_handler_is_refused_at_the_start() {
    let data = folder();
    let clock = ManualClock::at(START);
    let ends_never = policy::Spec { max_attempts: Some(None), ..policy::Spec::default() };
    let types = |text: &str| vec![text.to_owned()];
    let long = "n".repeat(201);
    for (name, event_types, options, field) in [
        ("", types("run.*"), options(), "name"),
        ("a\nb", types("run.*"), options(), "name"),
        (long.as_str(), types("run.*"), options(), "name"),
        ("a", Vec::new(), options(), "event_types"),
        ("a", vec!["run".to_owned(); 101], options(), "event_types"),
        ("a", types("run.*.x"), options(), "event_types"),
        ("a", types("run.*"), options().policy(ends_never), "policy.max_attempts"),
        ("a", types("run.*"), options().concurrency(0), "concurrency"),
        ("a", types("run.*"), options().concurrency(1_001), "concurrency"),
        ("a", types("run.*"), options().timeout(Duration::ZERO), "timeout"),
        ("a", types("run.*"), options().timeout(Duration::from_hours(25)), "timeout"),
        ("a", types("run.*"), options().rate_limit(0.0, 1), "rate_limit.per_second"),
        ("a", types("run.*"), options().rate_limit(f64::NAN, 1), "rate_limit.per_second"),
        ("a", types("run.*"), options().rate_limit(1.0, 0), "rate_limit.burst"),
        ("a", types("run.*"), options().filter("payload."), "filter"),
    ] {
        let embedded = Runs::embedded(&data, &clock);
        let done = |_| async { Ok(Handled::done()) };
        let refused = embedded.handler(name, event_types, options, done).start().await;
        match refused.expect_err(field) {
            StartError::Handler { name: named, source: Error::Invalid { field: at, .. } } => {
                assert_eq!((named.as_str(), at.as_str()), (name, field));
            }
            other => panic!("{field}: {other}"),
        }
    }
    let twice =
        Runs::embedded(&data, &clock)
            .handler("bystander", ["run.*"], options(), |_| async { Ok(Handled::done()) });
    let error = twice.start().await.expect_err("refused").to_string();
    assert_eq!(error, "the handler \"bystander\": it is registered twice");
}

#[tokio::test]
async fn what_cannot_be_a_message_is_refused_and_nothing_is_stored() {
    let runs = start(folder(), options(), |_| async { Ok(Handled::done()) }).await;
    let too_many = (0..=MAX_BATCH).map(|number| message(&number.to_string())).collect();
    for (messages, field) in [
        (too_many, "messages"),
        (vec![message("good"), NewMessage::new("unheard", "")], "type"),
        (vec![message("good"), message("no key")], "idempotency_key"),
    ] {
        match runs.queue.enqueue_all(messages).await.expect_err(field) {
            Error::Invalid { field: named, .. } => assert_eq!(named, field),
            other @ (Error::NotFound | Error::Conflict(_) | Error::Store(_)) => {
                panic!("{field}: {other}")
            }
        }
    }
    assert!(runs.queue.enqueue_all(Vec::new()).await.expect("nothing").is_empty());
    let good = runs.queue.enqueue(message("good")).await.expect("it is not there yet");
    assert_eq!(runs.queue.finished(good).await.expect("readable")[0].state, State::Delivered);
}
