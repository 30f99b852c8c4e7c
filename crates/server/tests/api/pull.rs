//! Pull: workers that come and take, and say what became of it.

use std::time::Duration;

use http::Method;
use postrider_core::Timestamp;
use postrider_engine::notices::NoticeKind;
use postrider_engine::ports::Clock as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gateway::{Call, Gateway, PATIENCE, Reply, START, await_notice};
use crate::sink::Sink;

/// Long enough for an answer that should not come.
const EARLY: Duration = Duration::from_millis(100);

impl Gateway {
    /// An endpoint that workers pull from.
    pub(crate) async fn pulled(&self, mut fields: Value) -> String {
        fields["pull"] = true.into();
        self.endpoint(fields).await
    }

    pub(crate) async fn lease(&self, endpoint: &str, wish: Value) -> Vec<Value> {
        let reply = self.post(&format!("/v1/endpoints/{endpoint}/lease"), wish).await;
        leases(&reply)
    }

    /// Leases what has to be the only one.
    async fn lease_one(&self, endpoint: &str) -> Value {
        let [lease] = self.lease(endpoint, json!({"max": 100})).await.try_into().expect("one");
        lease
    }

    async fn tell(&self, lease: &Value, word: &str, body: Value) -> Reply {
        self.post(&format!("/v1/leases/{}/{word}", text(&lease["lease"])), body).await
    }

    /// What a delivery looks like, by a lease of it.
    async fn leased(&self, lease: &Value) -> Value {
        self.get(&format!("/v1/deliveries/{}", text(&lease["delivery_id"]))).await.json()
    }

    async fn some_event(&self) -> String {
        self.event(json!({"type": "a.b", "payload": 1})).await
    }
}

fn leases(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["leases"].as_array().expect("a list").clone()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn events(leases: &[Value]) -> Vec<String> {
    leases.iter().map(|lease| text(&lease["event"]["id"])).collect()
}

fn after(seconds: u64) -> Value {
    json!(START.plus(Duration::from_secs(seconds)))
}

#[track_caller]
fn lapsed(reply: &Reply) {
    assert!(reply.problem(409).is_empty());
    assert_eq!(reply.json()["type"], "urn:postrider:problem:lease-lapsed");
}

#[tokio::test]
async fn a_delivery_is_leased_and_acked_with_a_result() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({"event_types": ["run.*"]})).await;
    let shown = gateway.get(&format!("/v1/endpoints/{endpoint}")).await.json();
    assert_eq!((&shown["pull"], shown.get("url")), (&json!(true), None));
    let event = json!({
        "type": "run.found",
        "payload": {"run": 7},
        "ordering_key": "k",
        "metadata": {"session_id": "s"},
    });
    let event = gateway.event(event).await;

    let lease = gateway.lease_one(&endpoint).await;
    assert!(text(&lease["lease"]).starts_with("lse_"), "{lease}");
    assert_eq!((&lease["attempt"], &lease["expires_at"]), (&json!(1), &after(30)));
    let leased = json!({
        "id": event,
        "type": "run.found",
        "content_type": "application/json",
        "received_at": START,
        "deliver_at": null,
        "idempotency_key": null,
        "ordering_key": "k",
        "metadata": {"session_id": "s"},
        "source": null,
        "verified": null,
        "trace_id": null,
        "headers": [],
        "payload_size": 9,
        "payload": {"run": 7},
    });
    assert_eq!(lease["event"], leased);
    assert_eq!(gateway.lease(&endpoint, json!({})).await, [] as [Value; 0], "it is taken");

    let delivery = gateway.leased(&lease).await;
    assert_eq!((&delivery["state"], &delivery["attempts"]), (&json!("in_flight"), &json!(0)));
    assert_eq!(delivery["waiting_on"], json!({"reason": "leased", "until": after(30)}));
    assert_eq!((delivery.get("result"), &delivery["next_attempt_at"]), (None, &Value::Null));
    let listed = gateway.get("/v1/deliveries?state=in_flight").await.json();
    assert_eq!(listed["data"][0]["id"], lease["delivery_id"]);
    assert_eq!(gateway.get("/v1/deliveries?state=pending").await.json()["data"], json!([]));
    let stats = gateway.get("/v1/stats").await.json();
    assert_eq!(
        (&stats["deliveries"]["in_flight"], &stats["deliveries"]["pending"]),
        (&json!(1), &json!(0))
    );
    let stats = gateway.get(&format!("/v1/endpoints/{endpoint}/stats")).await.json();
    assert_eq!(stats["health"]["in_flight"], 1);
    assert_eq!(gateway.get(&format!("/v1/events/{event}")).await.json()["status"], "processing");

    gateway.clock.advance(Duration::from_secs(2));
    let acked = gateway.tell(&lease, "ack", json!({"result": "Passed"})).await;
    assert_eq!(acked.status, 200, "{acked:?}");
    let expected = json!({
        "lease": lease["lease"],
        "delivery_id": lease["delivery_id"],
        "state": "delivered",
    });
    assert_eq!(acked.json(), expected);
    let delivery = gateway.leased(&lease).await;
    assert_eq!(delivery["state"], "delivered");
    assert_eq!((&delivery["result"], &delivery["attempts"]), (&json!("Passed"), &json!(1)));
    assert_eq!((&delivery["waiting_on"], &delivery["delivered_at"]), (&Value::Null, &after(2)));
    let attempt = &delivery["attempt_log"][0];
    assert_eq!((&attempt["outcome"], &attempt["started_at"]), (&json!("delivered"), &json!(START)));
    assert_eq!((&attempt["duration_ms"], &attempt["status_code"]), (&json!(2_000), &Value::Null));
    assert_eq!(gateway.get(&format!("/v1/events/{event}")).await.json()["status"], "completed");
    lapsed(&gateway.tell(&lease, "ack", json!({})).await);
}

#[tokio::test]
async fn ack_lease_and_extend_need_no_body() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({})).await;
    gateway.some_event().await;
    let lease =
        leases(&gateway.ask(Method::POST, &format!("/v1/endpoints/{endpoint}/lease")).await);
    let path = format!("/v1/leases/{}", text(&lease[0]["lease"]));
    for word in ["extend", "ack"] {
        let reply = gateway.ask(Method::POST, &format!("{path}/{word}")).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    assert_eq!(gateway.leased(&lease[0]).await["state"], "delivered");
}

#[tokio::test]
async fn a_worker_gets_the_bytes_as_they_came() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({})).await;
    // As it is written, not as another writer would write it.
    let payload = "{\"b\": 1.0,\n \"a\":[1e3, \"\\u00e9\"], \"b\": 2}";
    let call = Call::new(Method::POST, "/v1/events").header("content-type", "application/json");
    let sent = call.body(format!("{{\"type\":\"a.b\",\"payload\": {payload} }}"));
    assert_eq!(gateway.call(sent).await.status, 202);
    let reply = gateway.post(&format!("/v1/endpoints/{endpoint}/lease"), json!({})).await;
    let whole = String::from_utf8(reply.body.to_vec()).expect("text");
    assert!(whole.contains(&format!("\"payload\":{payload}")), "{whole}");

    let call = Call::new(Method::POST, "/v1/events?type=a.b").header("content-type", "x/y");
    assert_eq!(gateway.call(call.body(&b"\0\xff{}"[..])).await.status, 202);
    let event = gateway.lease_one(&endpoint).await["event"].take();
    assert_eq!((event.get("payload"), &event["payload_base64"]), (None, &json!("AP97fQ==")));
    assert_eq!((&event["content_type"], &event["payload_size"]), (&json!("x/y"), &json!(4)));
}

#[tokio::test]
async fn a_nack_is_what_the_worker_says_it_is() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({"policy": "runs"})).await;
    // Its class, then: state, attempts, deferrals, class and due time.
    let cases = [
        (json!({}), "retrying", 1, 0, "retryable", Some(60)),
        (json!({"class": "retryable"}), "retrying", 1, 0, "retryable", Some(60)),
        (json!({"class": "final"}), "failed", 1, 0, "final", None),
        (json!({"class": "rate_limited"}), "retrying", 1, 0, "rate_limited", Some(60)),
        (
            json!({"class": "rate_limited", "retry_after": "2h"}),
            "retrying",
            0,
            1,
            "rate_limited",
            Some(7_200),
        ),
    ];
    for (mut said, state, attempts, deferrals, class, due) in cases {
        said["error"] = "it would not".into();
        gateway.some_event().await;
        let lease = gateway.lease_one(&endpoint).await;
        let reply = gateway.tell(&lease, "nack", said.clone()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let mut expected = json!({
            "lease": lease["lease"],
            "delivery_id": lease["delivery_id"],
            "state": state,
        });
        if let Some(due) = due {
            expected["next_attempt_at"] = after(due);
        }
        assert_eq!(reply.json(), expected, "{said}");
        let delivery = gateway.leased(&lease).await;
        assert_eq!(delivery["state"], state, "{said}");
        assert_eq!(
            (&delivery["attempts"], &delivery["deferrals"]),
            (&json!(attempts), &json!(deferrals))
        );
        assert_eq!(
            (&delivery["error_class"], &delivery["last_error"]),
            (&json!(class), &json!("it would not"))
        );
        let attempt = &delivery["attempt_log"][0];
        assert_eq!(
            (&attempt["outcome"], &attempt["error"]),
            (&json!(class), &json!("it would not"))
        );
        assert_eq!(attempt["counted"], attempts == 1);
        lapsed(&gateway.tell(&lease, "nack", json!({"error": "again"})).await);
    }
}

#[tokio::test]
async fn a_worker_that_is_told_to_wait_holds_the_endpoint_for_all() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({"policy": "runs"})).await;
    let first = gateway.some_event().await;
    let lease = gateway.lease_one(&endpoint).await;
    let said = json!({"class": "rate_limited", "error": "slow down", "retry_after": "90s"});
    assert_eq!(gateway.tell(&lease, "nack", said).await.status, 200);
    let second = gateway.some_event().await;
    assert!(gateway.lease(&endpoint, json!({"max": 10})).await.is_empty());
    let waiting_on = gateway.delivery_of(&second).await["waiting_on"].take();
    assert_eq!(waiting_on["reason"], "retry_after");
    let until: Timestamp = serde_json::from_value(waiting_on["until"].clone()).expect("a time");
    assert!(until >= START.plus(Duration::from_secs(90)), "{until}");
    gateway.clock.set(until.plus(Duration::from_mins(1)));
    let leases = gateway.lease(&endpoint, json!({"max": 10})).await;
    assert_eq!(events(&leases), [first, second], "the oldest event first");
}

#[tokio::test]
async fn new_work_and_retries_come_by_the_age_of_their_events() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({"policy": "router"})).await;
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.push(gateway.some_event().await);
    }
    let leases = gateway.lease(&endpoint, json!({"max": 2})).await;
    assert_eq!(events(&leases), sent[..2]);
    let second = &leases[1];
    let said = json!({"error": "not now"});
    assert_eq!(gateway.tell(second, "nack", said).await.status, 200);
    sent.push(gateway.some_event().await);
    gateway.clock.advance(Duration::from_secs(29));
    let extend = gateway.tell(&leases[0], "extend", json!({})).await;
    assert_eq!(extend.status, 200, "{extend:?}");
    gateway.clock.advance(Duration::from_secs(1));
    let leases = gateway.lease(&endpoint, json!({"max": 100})).await;
    assert_eq!(events(&leases), sent[1..]);
    let attempts: Vec<&Value> = leases.iter().map(|lease| &lease["attempt"]).collect();
    assert_eq!(attempts, [2, 1, 1]);
}

#[tokio::test]
async fn a_lease_that_is_extended_goes_on() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({})).await;
    gateway.some_event().await;
    let lease = gateway.lease_one(&endpoint).await;
    gateway.clock.advance(Duration::from_secs(20));
    let reply = gateway.tell(&lease, "extend", json!({"lease": "1m"})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let expected = json!({
        "lease": lease["lease"],
        "delivery_id": lease["delivery_id"],
        "state": "in_flight",
        "expires_at": after(80),
    });
    assert_eq!(reply.json(), expected);
    gateway.clock.advance(Duration::from_secs(59));
    assert!(gateway.lease(&endpoint, json!({})).await.is_empty());
    assert_eq!(gateway.leased(&lease).await["state"], "in_flight");
    assert_eq!(gateway.tell(&lease, "ack", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_lease_that_lapses_is_a_failed_attempt_and_its_token_is_worth_nothing() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({"policy": "router"})).await;
    gateway.some_event().await;
    let old = gateway.lease(&endpoint, json!({"lease": "1s"})).await.remove(0);
    assert_eq!(old["expires_at"], after(1));
    let mut notices = gateway.engine.notices().subscribe();
    gateway.clock.advance(Duration::from_secs(1));
    await_notice(&mut notices, NoticeKind::RetryScheduled).await;
    let refused = async || {
        lapsed(&gateway.tell(&old, "ack", json!({"result": "late"})).await);
        lapsed(&gateway.tell(&old, "nack", json!({"class": "final", "error": "late"})).await);
        lapsed(&gateway.tell(&old, "extend", json!({})).await);
    };
    let delivery = gateway.leased(&old).await;
    assert_eq!((&delivery["state"], &delivery["attempts"]), (&json!("retrying"), &json!(1)));
    assert_eq!(delivery["attempt_log"][0]["outcome"], "retryable");
    assert_eq!(delivery["next_attempt_at"], after(1), "the lease was wait enough");
    refused().await;
    assert_eq!(gateway.leased(&old).await, delivery);

    let new = gateway.lease_one(&endpoint).await;
    assert_eq!((&new["delivery_id"], &new["attempt"]), (&old["delivery_id"], &json!(2)));
    let delivery = gateway.leased(&new).await;
    refused().await;
    assert_eq!(gateway.leased(&new).await, delivery, "nor does it disturb who has it now");
    assert_eq!(gateway.tell(&new, "ack", json!({})).await.status, 200);
}

#[tokio::test]
async fn what_is_given_back_untried_costs_no_attempt_and_may_be_had_at_once() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({"policy": {"max_attempts": 1}})).await;
    gateway.some_event().await;
    for again in [false, true] {
        let lease = gateway.lease_one(&endpoint).await;
        assert_eq!(lease["attempt"], 1);
        let reply = if again {
            let body = json!({ "leases": [lease["lease"]] });
            gateway.post("/v1/leases/release", body).await
        } else {
            gateway.tell(&lease, "release", Value::Null).await
        };
        assert_eq!(reply.status, 200, "{reply:?}");
        let said = reply.json();
        let expected = if again { &said["results"][0]["ok"] } else { &said["state"] };
        assert_eq!(expected, &if again { json!(true) } else { json!("pending") });
        lapsed(&gateway.tell(&lease, "ack", json!({})).await);
        lapsed(&gateway.tell(&lease, "release", json!({})).await);
        let delivery = gateway.leased(&lease).await;
        assert_eq!((&delivery["attempts"], &delivery["state"]), (&json!(0), &json!("pending")));
        assert_eq!(delivery["attempt_log"], json!([]));
    }
}

#[tokio::test]
async fn a_worker_waits_until_something_comes_or_its_time_is_up() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({})).await;
    let wish = json!({"wait": "30s", "max": 5});
    {
        let mut leasing = std::pin::pin!(gateway.lease(&endpoint, wish.clone()));
        assert!(tokio::time::timeout(EARLY, &mut leasing).await.is_err(), "there is nothing yet");
        let event = gateway.some_event().await;
        let leases = leasing.await;
        assert_eq!(events(&leases), [event]);
        assert_eq!(gateway.tell(&leases[0], "ack", json!({})).await.status, 200);
    }
    {
        let mut leasing = std::pin::pin!(gateway.lease(&endpoint, wish.clone()));
        assert!(tokio::time::timeout(EARLY, &mut leasing).await.is_err(), "there is nothing yet");
        gateway.clock.advance(Duration::from_secs(29));
        let early = tokio::time::timeout(EARLY, &mut leasing).await;
        assert!(early.is_err(), "there is a second left");
        gateway.clock.advance(Duration::from_secs(1));
        assert!(leasing.await.is_empty());
    }
    // What waits for its time comes at that time.
    let at = gateway.clock.now().plus(Duration::from_secs(5)).to_string();
    let later = json!({"type": "a.b", "payload": 1, "deliver_at": at});
    let event = gateway.event(later).await;
    let mut leasing = std::pin::pin!(gateway.lease(&endpoint, wish));
    assert!(tokio::time::timeout(EARLY, &mut leasing).await.is_err(), "it is not due");
    gateway.clock.advance(Duration::from_secs(5));
    assert_eq!(events(&leasing.await), [event]);
}

/// A request that waits for something to lease, on a connection of its own.
async fn wait_by_hand(gateway: &Gateway, endpoint: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).await.expect("a connection");
    let body = r#"{"wait":"30s"}"#;
    let request = format!(
        "POST /v1/endpoints/{endpoint}/lease HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\n\
         content-length: {}\r\n\r\n{body}",
        gateway.key,
        body.len()
    );
    stream.write_all(request.as_bytes()).await.expect("writable");
    let early = tokio::time::timeout(EARLY, stream.read_u8()).await;
    assert!(early.is_err(), "there is nothing yet: {early:?}");
    stream
}

#[tokio::test]
async fn a_worker_that_went_away_while_it_waited_gets_nothing() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({})).await;
    drop(wait_by_hand(&gateway, &endpoint).await);
    let mut leasing = std::pin::pin!(gateway.lease(&endpoint, json!({"wait": "30s"})));
    assert!(tokio::time::timeout(EARLY, &mut leasing).await.is_err(), "there is nothing yet");
    let event = gateway.some_event().await;
    let leases = tokio::time::timeout(PATIENCE, leasing).await.expect("in time");
    assert_eq!(events(&leases), [event]);
    assert_eq!(leases[0]["attempt"], 1);
}

#[tokio::test]
async fn a_stop_ends_the_waiting() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({})).await;
    let mut stream = wait_by_hand(&gateway, &endpoint).await;
    gateway.stop.send(()).expect("the server runs");
    let mut answer = String::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await;
    read.expect("in time").expect("readable");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with(r#"{"leases":[]}"#), "{answer}");
    let ended = tokio::time::timeout(PATIENCE, gateway.server).await.expect("in time");
    ended.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn of_an_ordered_endpoint_only_heads_are_leased() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({"ordering": "fifo"})).await;
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.push(gateway.some_event().await);
    }
    let all = json!({"max": 100});
    for event in &sent {
        let lease = gateway.lease_one(&endpoint).await;
        assert_eq!(lease["event"]["id"], event.as_str());
        assert!(gateway.lease(&endpoint, all.clone()).await.is_empty(), "it is still under way");
        assert_eq!(gateway.tell(&lease, "ack", json!({})).await.status, 200);
    }
    let path = format!("/v1/endpoints/{endpoint}");
    assert_eq!(gateway.patch(&path, json!({"ordering": "fifo_by_key"})).await.status, 200);
    let mut sent = Vec::new();
    for key in ["a", "a", "b"] {
        let event = json!({"type": "a.b", "payload": 1, "ordering_key": key});
        sent.push(gateway.event(event).await);
    }
    let heads = gateway.lease(&endpoint, all).await;
    assert_eq!(events(&heads), [sent[0].as_str(), sent[2].as_str()]);
    let behind = gateway.delivery_of(&sent[1]).await["waiting_on"].take();
    assert_eq!(behind["reason"], "behind");
    assert_eq!(behind["delivery_id"], heads[0]["delivery_id"]);
}

#[tokio::test]
async fn a_worker_takes_only_the_types_it_asks_for() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({})).await;
    let mut sent = Vec::new();
    for kind in ["order.made", "invoice.paid", "order.item.added", "order"] {
        sent.push(gateway.event(json!({"type": kind, "payload": 1})).await);
    }
    let orders = json!({"max": 100, "event_types": ["order.*"]});
    let leases = gateway.lease(&endpoint, orders.clone()).await;
    assert_eq!(events(&leases), [sent[0].as_str(), sent[2].as_str()]);
    assert!(gateway.lease(&endpoint, orders).await.is_empty());
    let named = json!({"max": 100, "event_types": ["order", "nothing"]});
    assert_eq!(events(&gateway.lease(&endpoint, named).await), [sent[3].as_str()]);
    let any = json!({"max": 100, "event_types": ["*"]});
    assert_eq!(events(&gateway.lease(&endpoint, any).await), [sent[1].as_str()]);
}

#[tokio::test]
async fn no_more_is_leased_than_was_asked_for_or_is_allowed() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({"max_in_flight": 4})).await;
    let mut sent = Vec::new();
    for _ in 0..6 {
        sent.push(gateway.some_event().await);
    }
    let first = gateway.lease(&endpoint, json!({})).await;
    assert_eq!(events(&first), sent[..1], "one, if nothing is said");
    let second = gateway.lease(&endpoint, json!({"max": 2})).await;
    assert_eq!(events(&second), sent[1..3]);
    let third = gateway.lease(&endpoint, json!({"max": 3})).await;
    assert_eq!(events(&third), sent[3..4]);
    assert!(gateway.lease(&endpoint, json!({"max": 3})).await.is_empty());
    assert_eq!(gateway.tell(&first[0], "ack", json!({})).await.status, 200);
    assert_eq!(events(&gateway.lease(&endpoint, json!({"max": 3})).await), sent[4..5]);
}

#[tokio::test]
async fn several_leases_are_answered_for_at_once() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({"policy": "router"})).await;
    for _ in 0..4 {
        gateway.some_event().await;
    }
    let leases = gateway.lease(&endpoint, json!({"max": 4})).await;
    let token = |index: usize| text(&leases[index]["lease"]);
    assert_eq!(gateway.tell(&leases[3], "ack", json!({})).await.status, 200);
    let results = async |word: &str, body: Value| {
        let reply = gateway.post(&format!("/v1/leases/{word}"), body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["results"].take()
    };
    gateway.clock.advance(Duration::from_secs(10));
    let extended = results("extend", json!({"leases": [token(0), token(3)], "lease": "1m"})).await;
    let expected = json!([
        {"lease": token(0), "ok": true, "expires_at": after(70)},
        {"lease": token(3), "ok": false},
    ]);
    assert_eq!(extended, expected);
    // The last one has been answered for, and one never was.
    let unknown = "lse_00000000000000000000f";
    let body = json!({"leases": [unknown, token(0), token(3), token(1)], "result": "ok"});
    let expected = json!([
        {"lease": unknown, "ok": false},
        {"lease": token(0), "ok": true},
        {"lease": token(3), "ok": false},
        {"lease": token(1), "ok": true},
    ]);
    assert_eq!(results("ack", body).await, expected);
    let body = json!({"leases": [token(2), token(1)], "class": "final", "error": "no"});
    let expected = json!([{"lease": token(2), "ok": true}, {"lease": token(1), "ok": false}]);
    assert_eq!(results("nack", body).await, expected);
    let mut seen = Vec::new();
    for lease in &leases {
        let delivery = gateway.leased(lease).await;
        seen.push((text(&delivery["state"]), delivery.get("result").cloned()));
    }
    let ok = Some(json!("ok"));
    let expected =
        [("delivered", ok.clone()), ("delivered", ok), ("failed", None), ("delivered", None)];
    assert_eq!(seen, expected.map(|(state, result)| (state.to_owned(), result)));
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_by_its_name() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({})).await;
    gateway.some_event().await;
    let lease = gateway.lease_one(&endpoint).await;
    let token = text(&lease["lease"]);
    let wish = format!("/v1/endpoints/{endpoint}/lease");
    let one = |word: &str| format!("/v1/leases/{token}/{word}");
    let all = |word: &str| format!("/v1/leases/{word}");
    let long = |count: usize| "é".repeat(count);
    let (many, types) = (vec![token.as_str(); 101], vec!["a"; 101]);
    let cases = [
        (wish.clone(), json!({"max": 0}), "max"),
        (wish.clone(), json!({"max": 101}), "max"),
        (wish.clone(), json!({"max": -1}), "max"),
        (wish.clone(), json!({"max": "ten"}), "max"),
        (wish.clone(), json!({"wait": "31s"}), "wait"),
        (wish.clone(), json!({"wait": 5}), "wait"),
        (wish.clone(), json!({"wait": "-1s"}), "wait"),
        (wish.clone(), json!({"lease": "0s"}), "lease"),
        (wish.clone(), json!({"lease": "999ms"}), "lease"),
        (wish.clone(), json!({"lease": "12h1ms"}), "lease"),
        (wish.clone(), json!({"event_types": []}), "event_types"),
        (wish.clone(), json!({"event_types": types}), "event_types"),
        (wish.clone(), json!({"event_types": ["a", "b c"]}), "event_types[1]"),
        (wish.clone(), json!({"event_types": "a"}), "event_types"),
        (wish.clone(), json!({"count": 1}), "count"),
        (wish, json!([]), "body"),
        (one("ack"), json!({"result": ""}), "result"),
        (one("ack"), json!({"result": long(201)}), "result"),
        (one("ack"), json!({"result": "a\nb"}), "result"),
        (one("ack"), json!({"result": 7}), "result"),
        (one("ack"), json!({"leases": [token]}), "leases"),
        (one("nack"), json!({}), "error"),
        (one("nack"), json!({"error": ""}), "error"),
        (one("nack"), json!({"error": long(2_001)}), "error"),
        (one("nack"), json!({"error": "e", "class": "fatal"}), "class"),
        (one("nack"), json!({"error": "e", "retry_after": 60}), "retry_after"),
        (one("nack"), json!({"error": "e", "result": "ok"}), "result"),
        (one("extend"), json!({"lease": "13h"}), "lease"),
        (one("extend"), json!({"lease": "half a minute"}), "lease"),
        (one("extend"), json!({"by": "1s"}), "by"),
        (all("ack"), json!({}), "leases"),
        (all("ack"), json!({"leases": []}), "leases"),
        (all("ack"), json!({"leases": many}), "leases"),
        (all("ack"), json!({"leases": [token, "lse_"]}), "leases[1]"),
        (all("ack"), json!({"leases": [7]}), "leases[0]"),
        (all("ack"), json!({"leases": [token], "result": long(201)}), "result"),
        (all("nack"), json!({"leases": [token]}), "error"),
        (all("nack"), json!({"leases": [token], "error": "e", "class": 1}), "class"),
        (all("extend"), json!({"leases": [token], "lease": "0s"}), "lease"),
    ];
    for (path, body, field) in cases {
        assert_eq!(gateway.post(&path, body.clone()).await.problem(422), [field], "{path} {body}");
    }
    let call = Call::new(Method::POST, &one("nack"));
    assert_eq!(gateway.call(call).await.problem(422), ["body"], "a failure has a reason");
    assert_eq!(gateway.leased(&lease).await["state"], "in_flight", "nothing of it was done");

    let (just, long) = (long(2_000), long(200));
    let said = json!({"error": just, "class": "final"});
    assert_eq!(gateway.tell(&lease, "nack", said).await.status, 200);
    assert_eq!(gateway.leased(&lease).await["last_error"], just.as_str());
    gateway.some_event().await;
    let wish = json!({"max": 100, "wait": "30s", "lease": "12h", "event_types": null});
    let lease = gateway.lease(&endpoint, wish).await.remove(0);
    assert_eq!(gateway.tell(&lease, "ack", json!({"result": long})).await.status, 200);
}

#[tokio::test]
async fn what_is_no_lease_is_not_found() {
    let gateway = Gateway::start().await;
    let zeros = "0".repeat(21);
    for bad in ["x", "lse_", "dlv_0000000000000", "lse_0", &zeros, "%00", "lse_zzz"] {
        for word in ["ack", "nack", "extend"] {
            let path = format!("/v1/leases/{bad}/{word}");
            let body = if word == "nack" { json!({"error": "e"}) } else { json!({}) };
            assert_eq!(gateway.post(&path, body).await.problem(404), ["id"], "{path}");
        }
    }
    lapsed(&gateway.post("/v1/leases/lse_000000000000000000001/ack", json!({})).await);
}

#[tokio::test]
async fn only_endpoints_with_pull_are_pulled_from() {
    let gateway = Gateway::start().await;
    let pushed = gateway.endpoint(json!({"url": "https://example.com/"})).await;
    gateway.post(&format!("/v1/endpoints/{pushed}/lease"), json!({})).await.problem(409);
    let unknown = "/v1/endpoints/ep_0000000000000/lease";
    gateway.post(unknown, json!({})).await.problem(404);
    let pulled = gateway.pulled(json!({})).await;
    gateway.ask(Method::POST, &format!("/v1/endpoints/{pulled}/test")).await.problem(409);
    for (field, value) in
        [("headers", json!({"x-a": "1"})), ("format", json!("slack")), ("tls", json!({"ca": "x"}))]
    {
        let body = json!({"pull": true, field: value});
        assert_eq!(gateway.post("/v1/endpoints", body).await.problem(422), [field]);
    }
    let secret = gateway.get(&format!("/v1/endpoints/{pulled}/secret")).await.json();
    assert!(text(&secret["secret"]).starts_with("whsec_"), "{secret}");
}

#[tokio::test]
async fn an_endpoint_can_be_turned_round() {
    let gateway = Gateway::start().await;
    let mut sink = Sink::answering(200).await;
    let endpoint = gateway.endpoint(json!({"url": sink.url, "headers": {"x-a": "1"}})).await;
    let path = format!("/v1/endpoints/{endpoint}");
    let turn = json!({"pull": true});
    assert_eq!(gateway.patch(&path, turn).await.problem(422), ["headers"]);
    let turned = gateway.patch(&path, json!({"pull": true, "headers": null})).await.json();
    assert_eq!((&turned["pull"], turned.get("url")), (&json!(true), None));
    let (first, second) = (gateway.some_event().await, gateway.some_event().await);
    let lease = gateway.lease(&endpoint, json!({})).await.remove(0);
    assert_eq!(lease["event"]["id"], first.as_str());

    let turned = gateway.patch(&path, json!({"url": sink.url})).await.json();
    assert_eq!((&turned["url"], turned.get("pull")), (&json!(sink.url), None));
    assert_eq!(sink.next().await.headers["webhook-id"], second.as_str());
    gateway.post(&format!("{path}/lease"), json!({})).await.problem(409);
    // Whoever has it still has it.
    assert_eq!(gateway.tell(&lease, "ack", json!({})).await.status, 200);
    assert_eq!(gateway.leased(&lease).await["state"], "delivered");
}

#[tokio::test]
async fn a_paused_endpoint_hands_out_nothing() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({})).await;
    let path = format!("/v1/endpoints/{endpoint}");
    assert_eq!(gateway.ask(Method::POST, &format!("{path}/pause")).await.status, 200);
    let event = gateway.some_event().await;
    let mut leasing = std::pin::pin!(gateway.lease(&endpoint, json!({"wait": "30s"})));
    assert!(tokio::time::timeout(EARLY, &mut leasing).await.is_err(), "it is paused");
    assert_eq!(gateway.delivery_of(&event).await["waiting_on"]["reason"], "paused");
    assert_eq!(gateway.ask(Method::POST, &format!("{path}/resume")).await.status, 200);
    let leases = tokio::time::timeout(PATIENCE, leasing).await.expect("in time");
    assert_eq!(events(&leases), [event]);
}

#[tokio::test]
async fn a_leased_delivery_can_be_cancelled_and_its_lease_is_over() {
    let gateway = Gateway::start().await;
    let endpoint = gateway.pulled(json!({})).await;
    gateway.some_event().await;
    let lease = gateway.lease_one(&endpoint).await;
    let path = format!("/v1/deliveries/{}", text(&lease["delivery_id"]));
    gateway.ask(Method::POST, &format!("{path}/retry")).await.problem(409);
    let cancelled = gateway.ask(Method::POST, &format!("{path}/cancel")).await;
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    assert_eq!(cancelled.json()["state"], "cancelled");
    lapsed(&gateway.tell(&lease, "ack", json!({})).await);
    // Another life, another lease.
    assert_eq!(gateway.ask(Method::POST, &format!("{path}/retry")).await.status, 200);
    let again = gateway.lease_one(&endpoint).await;
    assert_ne!(again["lease"], lease["lease"]);
    assert_eq!(gateway.tell(&again, "ack", json!({})).await.status, 200);
}

#[tokio::test]
async fn another_tenant_can_do_nothing_with_a_lease() {
    let gateway = Gateway::start().await;
    gateway.tenant("acme").await;
    let theirs = gateway.key(json!({"name": "theirs", "tenant": "acme"})).await;
    let endpoint = gateway.pulled(json!({})).await;
    gateway.some_event().await;
    gateway.some_event().await;
    let post = async |path: &str, body: Value| {
        gateway.call(theirs.call(Method::POST, path).json(&body)).await
    };
    post(&format!("/v1/endpoints/{endpoint}/lease"), json!({})).await.problem(404);
    let lease = gateway.lease(&endpoint, json!({})).await.remove(0);
    let before = gateway.leased(&lease).await;
    let token = text(&lease["lease"]);
    for (word, mut body) in [
        ("ack", json!({"result": "theirs"})),
        ("nack", json!({"class": "final", "error": "theirs"})),
        ("extend", json!({"lease": "12h"})),
    ] {
        lapsed(&post(&format!("/v1/leases/{token}/{word}"), body.clone()).await);
        body["leases"] = json!([token]);
        let reply = post(&format!("/v1/leases/{word}"), body).await;
        assert_eq!(reply.json(), json!({"results": [{"lease": token, "ok": false}]}));
    }
    assert_eq!(gateway.leased(&lease).await, before);
    assert_eq!(gateway.tell(&lease, "ack", json!({})).await.status, 200);
}
