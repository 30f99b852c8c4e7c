//! Places in which deliveries are worked on: nothing keeps one for longer than it may.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::policy::Spec;
use postrider_core::{EventId, State};
use postrider_engine::embedded::{Embedded, Handled, HandlerOptions, Message, NewMessage, Queue};
use postrider_store::record::DeliveryRecord;
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Barrier;

use crate::gateway::{Launch, text};
use crate::peer::{Exchange, Peer};
use crate::{delivery_once, within};

/// The binary runs no code of others in its own process, so this is the engine as a library.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_a_worker_slot_lost_to_a_panic() {
    const SLOTS: usize = 3;
    const ATTEMPTS: u32 = 2;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let keyring = Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("one key");
    let path = directory.path().join("runs.db");
    let store = Sqlite::open(&path, sqlite::Options::default(), keyring).expect("a database");
    let policy = json!({ "schedule": { "list": ["1ms"] }, "max_attempts": ATTEMPTS });
    let policy: Spec = serde_json::from_value(policy).expect("a policy");
    let slots = u32::try_from(SLOTS).expect("few");
    let options = HandlerOptions::default().policy(policy).concurrency(slots);
    // Nobody passes before all slots are taken, at the same time, by those that do not panic.
    let everybody = Arc::new(Barrier::new(SLOTS));
    let handler = move |message: Message| {
        assert!(message.bytes() != "at once", "before there is anything to await");
        let everybody = Arc::clone(&everybody);
        async move {
            tokio::task::yield_now().await;
            assert!(message.bytes() != "later", "half-way");
            everybody.wait().await;
            Ok(Handled::done())
        }
    };
    let queue = Embedded::open(Arc::new(store)).handler("runs", ["run.*"], options, handler);
    let queue = queue.start().await.expect("the queue starts");
    for how in ["at once", "later"] {
        for _ in 0..=SLOTS {
            let ended = ended(&queue, enqueue(&queue, how).await).await;
            assert_eq!((ended.state, ended.attempts), (State::Dead, ATTEMPTS), "{ended:?}");
            let error = ended.last_error.unwrap_or_default();
            assert!(error.starts_with("the handler panicked: "), "{error}");
        }
    }
    let mut healthy = Vec::new();
    for _ in 0..SLOTS {
        healthy.push(enqueue(&queue, "well").await);
    }
    for id in healthy {
        assert_eq!(ended(&queue, id).await.state, State::Delivered);
    }
    queue.drain(crate::PATIENCE).await;
}

async fn enqueue(queue: &Queue, how: &'static str) -> EventId {
    queue.enqueue(NewMessage::new("run.found", how)).await.expect("enqueued")
}

async fn ended(queue: &Queue, id: EventId) -> DeliveryRecord {
    let ended = within("the end of a delivery", queue.finished(id)).await.expect("readable");
    let [ended] = ended.try_into().expect("one handler listens");
    ended
}

/// One slot, and an answer whose body has no end: by drops, by floods, or promised and never sent. The
/// status decides at the deadline; the connection is closed, and the slot is free for the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_an_endless_body_held_outside_the_deadline() {
    const EVENTS: usize = 2;
    const IN_CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    const UNTIL_CLOSED: &str = "HTTP/1.1 200 OK\r\n\r\n";
    const PROMISED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n";
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    let flood = format!("2000\r\n{}\r\n", "y".repeat(0x2000));
    let cases = [
        (IN_CHUNKS, "1\r\ny\r\n", Some(Duration::from_millis(50))),
        (UNTIL_CLOSED, "y", Some(Duration::from_millis(50))),
        (IN_CHUNKS, flood.as_str(), Some(Duration::ZERO)),
        (PROMISED, "y", None),
    ];
    let mut peers = Vec::new();
    for (head, piece, pause) in cases {
        let piece = piece.to_owned();
        let peer = Peer::start(async move |mut exchange: Exchange| {
            exchange.read_request().await;
            exchange.write(head).await;
            let mut written = exchange.stream.write_all(piece.as_bytes()).await;
            let Some(pause) = pause else { return exchange.until_closed().await };
            while written.is_ok() {
                tokio::time::sleep(pause).await;
                written = exchange.stream.write_all(piece.as_bytes()).await;
            }
        })
        .await;
        let spec = json!({ "url": peer.url(), "timeout": "1s", "max_in_flight": 1 });
        gateway.create_endpoint(spec).await;
        peers.push(peer);
    }
    for number in 0..EVENTS {
        let event = gateway.send(number as u64).await;
        let list = gateway.get(&format!("/v1/events/{event}/deliveries")).await;
        for delivery in list["data"].as_array().expect("a list") {
            let id = text(delivery, "id");
            let delivered = delivery_once(&gateway, &id, "delivered").await;
            assert_eq!(delivered["attempts"], 1, "{delivered}");
            assert_eq!(delivered["attempt_log"][0]["response_truncated"], true, "{delivered}");
        }
    }
    for peer in &peers {
        for _ in 0..EVENTS {
            within("the end of a connection", peer.exchange_ended()).await;
        }
        assert_eq!(peer.requests().len(), EVENTS);
    }
}
