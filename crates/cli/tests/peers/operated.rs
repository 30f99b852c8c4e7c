//! What operators and producers ask for: retries, replays, batches, pauses.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

use http::StatusCode;
use serde_json::{Value, json};

use crate::gateway::{Gateway, Launch, text};
use crate::sink::{Reply, Sink};
use crate::{delivery_once, post, shown};

/// Refuses every event so many times, then takes it.
async fn refusing(times: usize) -> Sink {
    let met = Mutex::new(HashMap::<String, usize>::new());
    Sink::start(move |arrival| {
        let mut met = met.lock().expect("no panic");
        let count = met.entry(arrival.event.clone()).or_default();
        *count += 1;
        let refused = *count <= times;
        Reply::Now(if refused { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK })
    })
    .await
}

fn policy(attempts: usize) -> Value {
    json!({ "schedule": { "list": ["10ms"] }, "max_attempts": attempts })
}

fn keyed(key: &str, number: u64) -> Value {
    json!({ "type": "keyed.event", "idempotency_key": key, "payload": { "number": number } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_an_idempotency_key_that_blocks_a_manual_retry() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    // Two retries and a replay by hand are refused, too, before it is taken.
    let sink = refusing(3).await;
    gateway.create_endpoint(json!({ "url": sink.url(), "policy": policy(1) })).await;
    let accepted = post(&gateway, "/v1/events", keyed("k", 1), StatusCode::ACCEPTED).await;
    let event = text(&accepted, "id");
    let id = text(&gateway.delivery_of(&event).await, "id");
    for arrivals in 1..=3 {
        sink.until("an attempt", |seen| seen.arrivals.len() == arrivals).await;
        delivery_once(&gateway, &id, "dead").await;
        // The producer sends it again and learns that it is known, which changes nothing.
        let again = post(&gateway, "/v1/events", keyed("k", 1), StatusCode::OK).await;
        assert_eq!((&again["id"], &again["duplicate"]), (&json!(event), &json!(true)));
        if arrivals < 3 {
            post(&gateway, &format!("/v1/deliveries/{id}/retry"), Value::Null, StatusCode::OK)
                .await;
        } else {
            let body = json!({ "ids": [id] });
            post(&gateway, "/v1/dead-letters/replay", body, StatusCode::ACCEPTED).await;
        }
    }
    delivery_once(&gateway, &id, "delivered").await;
    // Nor does it stand in the way of a delivery that is a new one.
    let path = format!("/v1/events/{event}/replay");
    let replayed = post(&gateway, &path, json!({}), StatusCode::ACCEPTED).await;
    let new = replayed["deliveries"].as_array().map(Vec::len);
    assert_eq!(new, Some(1), "{replayed}");
    sink.until("the replay", |seen| seen.arrivals.len() == 5).await;
    let stats = shown(&gateway, "/v1/stats", |stats| stats["deliveries"]["delivered"] == 2).await;
    assert_eq!(stats["events"], 1, "{stats}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_a_batch_that_one_duplicate_fails() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    let sink = Sink::accepting().await;
    gateway.create_endpoint(json!({ "url": sink.url() })).await;
    let known = post(&gateway, "/v1/events", keyed("known", 1), StatusCode::ACCEPTED).await;
    let batch = json!({ "events": [
        keyed("first", 2),
        keyed("known", 1),
        keyed("second", 3),
        keyed("second", 3),
        keyed("known", 9),
        keyed("third", 4),
    ] });
    let answer = post(&gateway, "/v1/events/batch", batch, StatusCode::ACCEPTED).await;
    let results = answer["results"].as_array().expect("a list");
    assert_eq!(results.len(), 6, "{answer}");
    let fresh: Vec<Option<bool>> =
        results.iter().map(|result| result["duplicate"].as_bool()).collect();
    let expected = [Some(false), Some(true), Some(false), Some(true), None, Some(false)];
    assert_eq!(fresh, expected, "{answer}");
    assert_eq!(results[1]["id"], known["id"], "{answer}");
    assert_eq!(results[3]["id"], results[2]["id"], "{answer}");
    assert_eq!(results[4]["error"]["status"], 409, "{answer}");
    sink.until("all that is new", |seen| seen.delivered.len() == 4).await;
    let numbers: BTreeSet<u64> = sink.arrivals().iter().map(|arrival| arrival.number).collect();
    assert_eq!(numbers, BTreeSet::from([1, 2, 3, 4]));
    assert_eq!(sink.arrivals().len(), 4);
    assert_eq!(gateway.get("/v1/stats").await["events"], 4);
}

/// However something is sent again, it gets all the attempts that the policy has for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_a_replay_without_retries() {
    const ATTEMPTS: usize = 2;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    // The first attempt of what is sent again is refused as well: only a retry can succeed.
    let sink = refusing(ATTEMPTS + 1).await;
    let endpoint = json!({ "url": sink.url(), "policy": policy(ATTEMPTS) });
    gateway.create_endpoint(endpoint).await;
    for way in [Way::Retry, Way::Job, Way::Replay] {
        let event = gateway.send(1).await;
        let id = text(&gateway.delivery_of(&event).await, "id");
        delivery_once(&gateway, &id, "dead").await;
        let again = way.send_again(&gateway, &event, &id).await;
        let delivered = delivery_once(&gateway, &again, "delivered").await;
        assert_eq!(delivered["attempts"], ATTEMPTS, "{way:?}: {delivered}");
        let arrivals = sink.arrivals();
        let arrived = arrivals.iter().filter(|arrival| arrival.event == event).count();
        assert_eq!(arrived, 2 * ATTEMPTS, "{way:?}");
    }
}

#[derive(Debug, Clone, Copy)]
enum Way {
    /// The delivery, by hand.
    Retry,
    /// Dead letters, by a job.
    Job,
    /// The event, as a new delivery.
    Replay,
}

impl Way {
    /// Returns the delivery that this makes, or makes anew.
    async fn send_again(self, gateway: &Gateway, event: &str, id: &str) -> String {
        match self {
            Self::Retry => {
                let path = format!("/v1/deliveries/{id}/retry");
                post(gateway, &path, Value::Null, StatusCode::OK).await;
                id.to_owned()
            }
            Self::Job => {
                let body = json!({ "ids": [id] });
                post(gateway, "/v1/dead-letters/replay", body, StatusCode::ACCEPTED).await;
                id.to_owned()
            }
            Self::Replay => {
                let path = format!("/v1/events/{event}/replay");
                let answer = post(gateway, &path, json!({}), StatusCode::ACCEPTED).await;
                let path = format!("/v1/events/{event}/deliveries");
                let list = gateway.get(&path).await;
                let list = list["data"].as_array().expect("a list");
                let new = list.iter().find(|delivery| delivery["id"] != *id);
                text(new.unwrap_or_else(|| panic!("no new delivery: {answer}")), "id")
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_a_pause_that_discards() {
    const BEFORE_AND_AFTER_A_CRASH: u64 = 10;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launch = Launch::serve(directory.path());
    let gateway = launch.start().await;
    let sink = Sink::start(|arrival| {
        let refused = arrival.number == 0 && arrival.attempt == 1;
        Reply::Now(if refused { StatusCode::BAD_GATEWAY } else { StatusCode::OK })
    })
    .await;
    // What waits for a retry when the pause begins falls due while it lasts.
    let spec = json!({ "url": sink.url(), "policy": {
        "schedule": { "list": ["1s"] }, "max_attempts": 3,
    } });
    let endpoint = gateway.create_endpoint(spec).await;
    let mut sent = BTreeSet::from([gateway.send(0).await]);
    sink.until("the first attempt", |seen| seen.arrivals.len() == 1).await;
    let path = format!("/v1/endpoints/{endpoint}");
    post(&gateway, &format!("{path}/pause"), Value::Null, StatusCode::OK).await;

    let half = BEFORE_AND_AFTER_A_CRASH / 2;
    for number in 1..=half {
        sent.insert(gateway.send(number).await);
    }
    gateway.process.kill();
    let gateway = launch.start().await;
    for number in half + 1..=BEFORE_AND_AFTER_A_CRASH {
        sent.insert(gateway.send(number).await);
    }
    for event in &sent {
        let id = text(&gateway.delivery_of(event).await, "id");
        let paused = |delivery: &Value| delivery["waiting_on"]["reason"] == "paused";
        let delivery = shown(&gateway, &format!("/v1/deliveries/{id}"), paused).await;
        let waits = delivery["state"] == "pending" || delivery["state"] == "retrying";
        assert!(waits, "{delivery}");
    }
    assert_eq!(sink.arrivals().len(), 1, "something was sent during the pause");

    post(&gateway, &format!("{path}/resume"), Value::Null, StatusCode::OK).await;
    sink.until("all of it", |seen| seen.delivered.len() == sent.len()).await;
    assert_eq!(sink.delivered().into_iter().collect::<BTreeSet<_>>(), sent);
    let done = |stats: &Value| stats["deliveries"]["delivered"] == sent.len();
    shown(&gateway, "/v1/stats", done).await;
    // The one that was refused came twice, all others once.
    assert_eq!(sink.arrivals().len(), sent.len() + 1);
}
