//! What is made, changed or taken away through one node is so on all of them when the answer comes.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Fleet, LEASE};
use crate::client::Connection;
use crate::cluster::Cluster;
use crate::gateway::{KEY, payload, text};
use crate::sink::Sink;

/// Each begins on another node.
const ROUNDS: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_made_on_one_node_is_in_force_on_all_when_the_answer_comes() {
    let fleet = Fleet::start().await;
    fleet.settled().await;
    for round in 0..ROUNDS {
        let nodes = [0, 1, 2].map(|place| (round + place) % 3);
        let trial = Trial { fleet: &fleet, nodes };
        trial.endpoints().await;
        trial.keys().await;
        trial.sources().await;
        trial.tenants(round).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_paused_on_one_node_is_sent_nothing_by_any() {
    let fleet = Fleet::start().await;
    fleet.settled().await;
    for round in 0..ROUNDS {
        let [first, second, third] = [0, 1, 2].map(|place| (round + place) % 3);
        let (old, new) = (Sink::accepting().await, Sink::accepting().await);
        let endpoint = fleet.node(first).create_endpoint(json!({ "url": old.url() })).await;
        let path = format!("/v1/endpoints/{endpoint}");
        let change = async |node: usize, method: Method, path: &str, body: Value| {
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let answer = fleet.node(node).call(method, path, body).await;
            assert!(answer.status.is_success(), "{path}: {}", answer.body);
        };
        change(second, Method::POST, &format!("{path}/pause"), Value::Null).await;
        let mut waiting = Vec::new();
        for (number, node) in [first, second, third].into_iter().enumerate() {
            waiting.push(fleet.node(node).send(number as u64).await);
        }
        for event in &waiting {
            let delivery = fleet.delivery_of(third, event).await;
            assert_eq!(delivery["waiting_on"]["reason"], "paused", "{delivery}");
        }
        // Where they go is changed while they wait: so what arrives at the old place was sent too
        // early.
        change(third, Method::PATCH, &path, json!({ "url": new.url() })).await;
        change(first, Method::POST, &format!("{path}/resume"), Value::Null).await;
        new.until("what waited", |seen| seen.delivered.len() == waiting.len()).await;
        assert_eq!(old.arrivals().len(), 0, "something was sent while it was paused");
        change(second, Method::DELETE, &path, Value::Null).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_just_come_knows_what_is_made_from_then_on() {
    let mut fleet = Fleet::idle(&Cluster::shared().database(), LEASE).await;
    fleet.launch(0).await;
    for round in 0..ROUNDS {
        fleet.launch(1).await;
        let spec = json!({ "pull": true });
        let endpoint = fleet.node(0).create_endpoint(spec).await;
        let event = fleet.node(1).send(1).await;
        let list = fleet.node(1).get(&format!("/v1/events/{event}/deliveries")).await;
        let made = list["data"].as_array().map(Vec::len);
        assert_eq!(made, Some(round + 1), "without {endpoint}: {list}");
        fleet.stop(1).await;
    }
}

/// Whichever node is asked first, one event is stored, and all answer with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_key_on_several_nodes_at_once_is_one_event() {
    const KEYS: usize = 40;
    let fleet = Fleet::start().await;
    for key in 0..KEYS {
        let body = json!({ "type": "t", "idempotency_key": format!("k{key}"), "payload": key });
        let ask = |node: usize| fleet.node(node).call(Method::POST, "/v1/events", body.to_string());
        let (one, two, three) = tokio::join!(ask(0), ask(1), ask(2));
        let answers = [one, two, three];
        let fresh = answers.iter().filter(|answer| answer.status == StatusCode::ACCEPTED).count();
        assert_eq!(fresh, 1, "{answers:?}");
        let first = text(&answers[0].body, "id");
        for answer in &answers {
            assert!(answer.status.is_success(), "{answer:?}");
            assert_eq!(text(&answer.body, "id"), first, "{answers:?}");
        }
    }
    let stats = fleet.node(0).get("/v1/stats").await;
    assert_eq!(stats["events"], KEYS, "{stats}");
}

/// Something is made on the first node and used on the others at once.
struct Trial<'a> {
    fleet: &'a Fleet,
    nodes: [usize; 3],
}

impl Trial<'_> {
    async fn make(&self, path: &str, body: Value) -> Value {
        let maker = self.fleet.node(self.nodes[0]);
        let answer = maker.call(Method::POST, path, body.to_string()).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{path}: {}", answer.body);
        answer.body
    }

    /// Takes it away on the second node.
    async fn remove(&self, path: &str) {
        let node = self.fleet.node(self.nodes[1]);
        let answer = node.call(Method::DELETE, path, String::new()).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.body);
    }

    /// How many deliveries an event makes on each node.
    async fn deliveries(&self) -> Vec<Value> {
        let mut counts = Vec::new();
        for node in self.nodes {
            let body = json!({ "type": "setting.used", "payload": 1 }).to_string();
            let answer = self.fleet.node(node).call(Method::POST, "/v1/events", body).await;
            assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
            counts.push(answer.body["deliveries"].clone());
        }
        counts
    }

    async fn endpoints(&self) {
        let sink = Sink::accepting().await;
        assert_eq!(self.deliveries().await, [0, 0, 0]);
        let spec = json!({ "url": sink.url(), "event_types": ["setting.*"] });
        let made = self.make("/v1/endpoints", spec).await;
        assert_eq!(self.deliveries().await, [1, 1, 1]);
        sink.until("what was sent", |seen| seen.delivered.len() == 3).await;
        self.remove(&format!("/v1/endpoints/{}", text(&made, "id"))).await;
        assert_eq!(self.deliveries().await, [0, 0, 0]);
    }

    async fn keys(&self) {
        let made = self.make("/v1/keys", json!({ "name": "new", "tenant": "default" })).await;
        let key = text(&made, "key");
        assert_eq!(self.let_in(&key).await, [StatusCode::OK; 3]);
        self.remove(&format!("/v1/keys/{}", text(&made, "id"))).await;
        assert_eq!(self.let_in(&key).await, [StatusCode::UNAUTHORIZED; 3]);
    }

    async fn let_in(&self, key: &str) -> [StatusCode; 3] {
        let mut answers = [StatusCode::OK; 3];
        for (answer, node) in answers.iter_mut().zip(self.nodes) {
            let address = self.fleet.node(node).address;
            let mut connection = Connection::open(address, key).await.expect("it listens");
            let asked = connection.call(Method::GET, "/v1/endpoints", String::new()).await;
            *answer = asked.expect("an answer").status;
        }
        answers
    }

    async fn sources(&self) {
        let spec = json!({ "name": "provider", "verify": { "scheme": "none" } });
        let made = self.make("/v1/sources", spec).await;
        let path = text(&made, "url");
        assert_eq!(self.post_all(&path).await, [StatusCode::ACCEPTED; 3]);
        self.remove(&format!("/v1/sources/{}", text(&made, "id"))).await;
        assert_eq!(self.post_all(&path).await, [StatusCode::NOT_FOUND; 3]);
    }

    async fn post_all(&self, path: &str) -> [StatusCode; 3] {
        let mut answers = [StatusCode::OK; 3];
        for (answer, node) in answers.iter_mut().zip(self.nodes) {
            let asked = self.fleet.node(node).call(Method::POST, path, payload(1)).await;
            *answer = asked.status;
        }
        answers
    }

    async fn tenants(&self, round: usize) {
        let name = format!("tenant-{round}");
        self.make("/v1/tenants", json!({ "name": name })).await;
        for node in self.nodes {
            let path = format!("/v1/tenants/{name}");
            assert_eq!(text(&self.fleet.node(node).get(&path).await, "name"), name);
        }
        let made = self.make("/v1/keys", json!({ "name": "new", "tenant": name })).await;
        assert_eq!(self.let_in(&text(&made, "key")).await, [StatusCode::OK; 3]);
        assert_ne!(text(&made, "key"), KEY);
    }
}
