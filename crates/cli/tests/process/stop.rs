//! A stop by signal: what is in flight is finished and settled first, within a limit.

use http::{Method, StatusCode};
use serde_json::json;

use crate::client::Connection;
use crate::gateway::{KEY, Launch};
use crate::sink::{Arrival, Reply, Sink};

const IN_FLIGHT: u64 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_flight_is_finished_and_settled_before_it_exits() {
    for signal in ["TERM", "INT"] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let launch = Launch::serve(directory.path()).and(["--drain", "60s"]);
        let gateway = launch.start().await;
        let sink = Sink::start(|_| Reply::WhenReleased).await;
        gateway.create_endpoint(json!({ "url": sink.url(), "timeout": "60s" })).await;
        let mut idle = gateway.connect().await;
        let mut events = Vec::new();
        for number in 0..IN_FLIGHT {
            let answer = idle.send_event(number).await.expect("an answer");
            events.push(crate::gateway::text(&answer.body, "id"));
        }
        sink.until("all attempts", |seen| seen.arrivals.len() as u64 == IN_FLIGHT).await;

        let address = gateway.address;
        gateway.process.signal(signal);
        let stopping = gateway.process.stderr.line(|line| line.contains("stopping")).await;
        assert!(stopping.is_some(), "{}", gateway.process.stderr.text());
        assert!(Connection::open(address, KEY).await.is_err(), "it takes new connections");
        assert!(idle.send_event(99).await.is_err(), "it takes events on an old connection");
        sink.release();
        let finished = gateway.process.finished().await.expect_code(0);
        assert!(finished.stderr.contains("stopped"), "{}", finished.stderr);

        let gateway = launch.start().await;
        for event in &events {
            let delivery = gateway.delivery_of(event).await;
            assert_eq!(delivery["state"], "delivered", "{delivery}");
            assert_eq!(delivery["attempts"], 1, "{delivery}");
        }
        // Older events go first: had any of them been sent again, it would have been before this.
        let last = gateway.send(IN_FLIGHT).await;
        sink.until("the last", |seen| seen.arrivals.iter().any(|arrival| arrival.event == last))
            .await;
        assert_eq!(sink.arrivals().len() as u64, IN_FLIGHT + 1);
        gateway.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_hangs_beyond_the_limit_is_cut_off_and_made_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launch = Launch::serve(directory.path()).and(["--drain", "1s"]);
    let gateway = launch.start().await;
    let sink = Sink::start({
        let first = std::sync::atomic::AtomicBool::new(true);
        move |_| {
            if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
                Reply::Never
            } else {
                Reply::Now(StatusCode::OK)
            }
        }
    })
    .await;
    gateway.create_endpoint(json!({ "url": sink.url(), "timeout": "60s" })).await;
    let event = gateway.send(1).await;
    sink.until("the first attempt", |seen| seen.arrivals.len() == 1).await;
    let finished = gateway.stop().await;
    assert!(finished.stderr.contains("abandoned=1"), "{}", finished.stderr);

    let gateway = launch.start().await;
    sink.until("the second attempt", |seen| seen.delivered.contains(&event)).await;
    let [cut_off, again] = &sink.arrivals()[..] else { panic!("{:?}", sink.arrivals()) };
    // An attempt of which nothing is known has not been counted.
    assert_eq!(cut_off, &Arrival { at: cut_off.at, ..again.clone() });
    gateway.stop().await;
    let gateway = launch.start().await;
    let delivery = gateway.delivery_of(&event).await;
    assert_eq!((&delivery["state"], &delivery["attempts"]), (&json!("delivered"), &json!(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_that_waits_is_neither_lost_nor_early_after_a_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // So long that no test machine is too slow for it.
    let launch = Launch::serve(directory.path())
        .variable("RETRY_BASE_DELAY", "1h")
        .variable("RETRY_MAX_DELAY", "2h");
    let sink = Sink::start(|arrival| {
        Reply::Now(match arrival.attempt {
            1 => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::OK,
        })
    })
    .await;
    let gateway = launch.start().await;
    let endpoint = json!({ "url": sink.url(), "policy": "inbox" });
    let endpoint = gateway.create_endpoint(endpoint).await;
    let event = gateway.send(1).await;
    sink.until("the first attempt", |seen| seen.arrivals.len() == 1).await;
    gateway.stop().await;

    let gateway = launch.start().await;
    let before = gateway.delivery_of(&event).await;
    assert_eq!(before["state"], "retrying", "{before}");
    assert_eq!(before["waiting_on"]["reason"], "backoff", "{before}");
    gateway.process.kill();

    let gateway = launch.start().await;
    let after = gateway.delivery_of(&event).await;
    assert_eq!(after["next_attempt_at"], before["next_attempt_at"]);
    assert_eq!(after["attempts"], 1);
    // Whatever is due has gone before this one, which goes at once.
    let other = gateway.send(2).await;
    sink.until("the other", |seen| seen.arrivals.iter().any(|arrival| arrival.event == other))
        .await;
    assert_eq!(sink.arrivals().len(), 2, "it was tried early");

    let delivery = crate::gateway::text(&after, "id");
    let retry = format!("/v1/deliveries/{delivery}/retry");
    let answer = gateway.call(Method::POST, &retry, String::new()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    sink.until("the delivery", |seen| seen.delivered.contains(&event)).await;
    let stats = gateway.get(&format!("/v1/endpoints/{endpoint}/stats")).await;
    assert_eq!(stats["state"], "active", "{stats}");
}
