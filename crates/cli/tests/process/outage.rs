//! A disk with no room: events are refused, nothing acknowledged is lost, and it recovers by itself.
//!
//! The room is taken away by a limit on the size of files (`RLIMIT_FSIZE`), which any user can set
//! and lift for a process of their own.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Instant;

use http::StatusCode;
use http::header::RETRY_AFTER;
use serde_json::json;

use crate::gateway::{Gateway, KEY, Launch, text};
use crate::sink::{Reply, Sink};

/// Room for some events, but not for many.
const ROOM_BYTES: u64 = 1 << 20;
/// Far more events than fit.
const MOST_EVENTS: u64 = 100_000;
/// The store complains once a second: this many complaints show that it keeps to that.
const COMPLAINTS: usize = 3;
/// Events that are on their way when the room runs out.
const HELD: u64 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_events_and_loses_none_that_was_acknowledged() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launch = Launch::serve(directory.path()).surviving_size_limit();
    let gateway = launch.start().await;
    let sink = Sink::start(|arrival| {
        if arrival.number < HELD { Reply::WhenReleased } else { Reply::Now(StatusCode::OK) }
    })
    .await;
    gateway.create_endpoint(json!({ "url": sink.url(), "timeout": "60s" })).await;
    let mut acknowledged = BTreeSet::new();
    for number in 0..HELD {
        acknowledged.insert(gateway.send(number).await);
    }
    sink.until("what is held", |seen| seen.arrivals.len() as u64 == HELD).await;

    limit_files(&gateway, &ROOM_BYTES.to_string());
    let mut numbers = HELD..MOST_EVENTS;
    let full = fill(&gateway, &mut numbers, &mut acknowledged).await;
    // What was delivered meanwhile cannot be written down either.
    sink.release();
    refuse_for_a_while(&gateway, &mut numbers).await;
    check_log(&gateway, full);
    assert_eq!(gateway.get("/v1/stats").await["events"], acknowledged.len());

    limit_files(&gateway, "unlimited");
    recover(&gateway, &mut numbers, &mut acknowledged).await;
    sink.until("the delivery of all", |seen| {
        let arrived: BTreeSet<&str> = seen.arrivals.iter().map(|seen| &*seen.event).collect();
        arrived.len() >= acknowledged.len()
    })
    .await;
    gateway.stop().await;

    let gateway = launch.start().await;
    let stats = gateway.get("/v1/stats").await;
    assert_eq!(stats["deliveries"]["delivered"], acknowledged.len(), "{stats}");
    assert_eq!(stats["events"], acknowledged.len(), "{stats}");
    let arrived: Vec<String> = sink.arrivals().into_iter().map(|arrival| arrival.event).collect();
    assert_eq!(arrived.len(), acknowledged.len(), "something was sent twice");
    assert_eq!(arrived.into_iter().collect::<BTreeSet<_>>(), acknowledged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_full_disk_it_still_stops_and_makes_up_for_it_later() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launch = Launch::serve(directory.path()).and(["--drain", "1s"]).surviving_size_limit();
    let gateway = launch.start().await;
    let sink = Sink::start(|_| Reply::WhenReleased).await;
    gateway.create_endpoint(json!({ "url": sink.url(), "timeout": "60s" })).await;
    let event = gateway.send(0).await;
    sink.until("the attempt", |seen| seen.arrivals.len() == 1).await;
    limit_files(&gateway, "0");
    sink.release();
    let complaint = gateway.process.stderr.line(|line| line.contains("the store cannot write"));
    assert!(complaint.await.is_some());
    gateway.stop().await;

    let gateway = launch.start().await;
    sink.until("another attempt", |seen| seen.arrivals.len() == 2).await;
    gateway.stop().await;
    let gateway = launch.start().await;
    assert_eq!(gateway.delivery_of(&event).await["state"], "delivered");
}

/// Sends events until one is refused. Returns when that was.
async fn fill(
    gateway: &Gateway,
    numbers: &mut std::ops::Range<u64>,
    acknowledged: &mut BTreeSet<String>,
) -> Instant {
    let mut connection = gateway.connect().await;
    for number in numbers {
        let before = Instant::now();
        let answer = connection.send_event(number).await.expect("an answer");
        match answer.status {
            StatusCode::ACCEPTED => acknowledged.insert(text(&answer.body, "id")),
            StatusCode::SERVICE_UNAVAILABLE => return before,
            other => panic!("{other}: {}", answer.body),
        };
    }
    panic!("the disk never filled up");
}

/// Sends events, which are all refused, until the log has said so several times.
async fn refuse_for_a_while(gateway: &Gateway, numbers: &mut std::ops::Range<u64>) {
    let mut connection = gateway.connect().await;
    while complaints(gateway).len() < COMPLAINTS {
        let number = numbers.next().expect("the log says nothing");
        let answer = connection.send_event(number).await.expect("an answer");
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.body);
        assert_eq!(answer.body["status"], 503, "{}", answer.body);
        let wait = answer.headers.get(RETRY_AFTER).expect("it says when to come back");
        let wait: u32 = wait.to_str().expect("text").parse().expect("seconds");
        assert!(wait >= 1);
    }
}

/// One line at once, and no more than one for each second that has gone by.
fn check_log(gateway: &Gateway, since: Instant) {
    let lines = gateway.process.stderr.lines();
    let troubled: Vec<&String> =
        lines.iter().filter(|line| line.contains("WARN") || line.contains("ERROR")).collect();
    let allowed = since.elapsed().as_secs() + 2;
    assert!(troubled.len() as u64 <= allowed, "more than {allowed}: {troubled:#?}");
    assert!(lines.iter().all(|line| !line.contains(KEY)));
}

fn complaints(gateway: &Gateway) -> Vec<String> {
    let mut lines = gateway.process.stderr.lines();
    lines.retain(|line| line.contains("the store cannot write"));
    lines
}

/// Sends events until one is accepted again.
async fn recover(
    gateway: &Gateway,
    numbers: &mut std::ops::Range<u64>,
    acknowledged: &mut BTreeSet<String>,
) {
    let mut connection = gateway.connect().await;
    for number in numbers {
        let answer = connection.send_event(number).await.expect("an answer");
        if answer.status == StatusCode::ACCEPTED {
            acknowledged.insert(text(&answer.body, "id"));
            return;
        }
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.body);
    }
    panic!("it did not recover");
}

/// Sets how large a file may grow that the gateway writes to. The hard limit stays, so that this
/// can be undone.
fn limit_files(gateway: &Gateway, bytes: &str) {
    let limited = Command::new("prlimit")
        .args(["--pid", &gateway.process.id().to_string(), &format!("--fsize={bytes}:")])
        .status()
        .expect("prlimit runs");
    assert!(limited.success(), "the limit could not be set");
}
