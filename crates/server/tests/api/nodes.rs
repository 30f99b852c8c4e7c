//! Several nodes on one store: what is changed through one of them is in force on all when the
//! answer comes.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Method;
use postrider_server::ensure_admin_key;
use postrider_store::Store;
use postrider_store::registry::{KeyRecord, Role};
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::gateway::{Call, Gateway, PATIENCE, START};
use crate::ingest::post_to;
use crate::sink::Sink;
use crate::sources::{make, text};
use crate::stream::Reader;

/// Asks again until the answer is as wanted: for what no answer waits for.
async fn until(gateway: &Gateway, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let asking = async {
        loop {
            let answer = gateway.get(path).await.json();
            if wanted(&answer) {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("{path} never was"))
}

#[tokio::test]
async fn a_key_is_in_force_on_all_nodes_or_on_none() {
    let [one, other] = Gateway::start_two().await;
    let key = one.key(json!({"name": "a"})).await;
    assert_eq!(other.try_key(&key).await, 200);
    assert_eq!(other.patch(&key.path(), json!({"name": "b"})).await.status, 200);
    assert_eq!(one.get(&key.path()).await.json()["name"], "b");
    assert_eq!(one.ask(Method::DELETE, &key.path()).await.status, 204);
    assert_eq!(other.try_key(&key).await, 401);
    other.patch(&key.path(), json!({"name": "again"})).await.problem(409);
    assert_eq!(one.try_key(&key).await, 401);
}

#[tokio::test]
async fn the_last_admin_key_that_stays_is_the_same_for_all_nodes() {
    let [one, other] = Gateway::start_two().await;
    let second = other.key(json!({"name": "second", "role": "admin"})).await;
    let first = one.own().await;
    assert_eq!(one.ask(Method::DELETE, &second.path()).await.status, 204);
    other.ask(Method::DELETE, &first.path()).await.problem(409);
}

#[tokio::test]
async fn a_tenant_can_be_acted_in_on_all_nodes() {
    let [one, other] = Gateway::start_two().await;
    one.tenant("acme").await;
    let inside = Call::new(Method::GET, "/v1/events").header("postrider-tenant", "acme");
    assert_eq!(other.call(inside).await.status, 200);
    other.post("/v1/tenants", json!({"name": "acme"})).await.problem(409);
    let key = other.key(json!({"name": "theirs", "tenant": "acme"})).await;
    assert_eq!(one.get(&key.path()).await.json()["tenant"], "acme");
}

#[tokio::test]
async fn a_source_takes_in_on_all_nodes() {
    let [one, other] = Gateway::start_two().await;
    let made = make(&one, json!({"name": "open", "verify": {"scheme": "none"}})).await;
    let url = text(&made, "url");
    let path = format!("/v1/sources/{}", text(&made, "id"));
    assert_eq!(other.call(post_to(url, "1")).await.status, 202);
    let rotated = other.ask(Method::POST, &format!("{path}/rotate-token")).await.json();
    one.call(post_to(url, "2")).await.problem(404);
    let url = text(&rotated, "url");
    assert_eq!(one.call(post_to(url, "3")).await.status, 202);
    let change = json!({"verify": {"scheme": "github", "secret": "s"}});
    assert_eq!(one.patch(&path, change).await.status, 200);
    other.call(post_to(url, "4")).await.problem(401);
    assert_eq!(other.ask(Method::DELETE, &path).await.status, 204);
    one.call(post_to(url, "5")).await.problem(404);
    for gateway in [&one, &other] {
        assert_eq!(gateway.get("/v1/stats").await.json()["events"], 2);
        assert_eq!(gateway.get("/v1/sources").await.json()["data"], json!([]));
    }
}

#[tokio::test]
async fn changes_through_several_nodes_at_once_are_all_made() {
    let [one, other] = Gateway::start_two().await;
    let make_some = async |gateway: &Gateway, name: &str| {
        let mut made = Vec::new();
        for number in 0..10 {
            let name = format!("{name}-{number}");
            gateway.tenant(&name).await;
            made.push(gateway.key(json!({"name": name, "tenant": name})).await);
            let verify = json!({"scheme": "none"});
            make(gateway, json!({"name": name, "verify": verify})).await;
        }
        made
    };
    let (ones, others) = tokio::join!(make_some(&one, "one"), make_some(&other, "other"));
    for key in &ones {
        assert_eq!(other.try_key(key).await, 200);
    }
    for key in &others {
        assert_eq!(one.try_key(key).await, 200);
    }
    let ids: BTreeSet<&str> = ones.iter().chain(&others).map(|key| key.id.as_str()).collect();
    assert_eq!(ids.len(), 20);
    for gateway in [&one, &other] {
        for (path, count) in [("/v1/keys", 21), ("/v1/tenants", 21), ("/v1/sources", 20)] {
            let listed = gateway.get(path).await.json();
            assert_eq!(listed["data"].as_array().map(Vec::len), Some(count), "{path}");
        }
    }
}

#[tokio::test]
async fn what_another_node_changes_loses_no_last_use() {
    let [one, other] = Gateway::start_two().await;
    let key = one.key(json!({"name": "used"})).await;
    assert_eq!(other.try_key(&key).await, 200);
    let used = other.get(&key.path()).await.json()["last_used_at"].clone();
    assert!(used.is_string(), "{used}");
    assert_eq!(one.get(&key.path()).await.json()["last_used_at"], Value::Null);
    assert_eq!(one.patch(&key.path(), json!({"name": "renamed"})).await.status, 200);
    let shown = other.get(&key.path()).await.json();
    assert_eq!((&shown["name"], &shown["last_used_at"]), (&json!("renamed"), &used));
    // Once it is written down, it is known to all that read.
    other.keys.flush(&**other.engine.store()).await.expect("written");
    one.keys.reload(&**one.engine.store()).await.expect("read");
    assert_eq!(one.get(&key.path()).await.json()["last_used_at"], used);
}

/// Sends events through a node, one after the other, until something else has come about. What
/// happens on other nodes is told from when they know that somebody listens: the first ones may not
/// be told.
async fn send_until<T>(
    gateway: &Gateway,
    (sink, endpoints): (&mut Sink, usize),
    come: impl Future<Output = T>,
) -> T {
    let sending = async {
        loop {
            gateway.event(json!({"type": "a.b", "payload": 0})).await;
            for _ in 0..endpoints {
                sink.next().await;
            }
        }
    };
    let come = tokio::time::timeout(PATIENCE, come);
    tokio::select! {
        () = sending => unreachable!("it goes on"),
        come = come => come.expect("in time"),
    }
}

#[tokio::test]
async fn a_stream_ends_when_another_node_revokes_its_key() {
    let [one, other] = Gateway::start_two().await;
    let mut sink = Sink::answering(200).await;
    other.endpoint(json!({"url": sink.url})).await;
    let key = one.key(json!({"name": "reader"})).await;
    let mut reader = Reader::open(&other, key.call(Method::GET, "/v1/stream")).await;
    assert!(send_until(&one, (&mut sink, 1), reader.next()).await.is_some());
    assert_eq!(one.ask(Method::DELETE, &key.path()).await.status, 204);
    let ended = async {
        // Some may have been on their way.
        while reader.next().await.is_some() {}
    };
    send_until(&one, (&mut sink, 1), ended).await;
}

#[tokio::test]
async fn the_stream_shows_what_happens_on_any_node() {
    /// So many that each node carries some.
    const ENDPOINTS: usize = 12;
    let [one, other] = Gateway::start_two().await;
    let mut sink = Sink::answering(200).await;
    for _ in 0..ENDPOINTS {
        one.endpoint(json!({"url": sink.url})).await;
    }
    for (here, there) in [(&one, &other), (&other, &one)] {
        let mut reader = Reader::open(here, Call::new(Method::GET, "/v1/stream")).await;
        let all_are_told_of = async {
            let mut endpoints = BTreeSet::new();
            while endpoints.len() < ENDPOINTS {
                let (_, notice) = reader.next().await.expect("a notice");
                endpoints.insert(text(&notice, "endpoint_id").to_owned());
            }
        };
        send_until(there, (&mut sink, ENDPOINTS), all_are_told_of).await;
    }
    let last = one.event(json!({"type": "a.b", "payload": 1})).await;
    until(&one, &format!("/v1/events/{last}"), |event| event["status"] == "completed").await;
    for gateway in [&one, &other] {
        let resume = Call::new(Method::GET, "/v1/stream").header("last-event-id", "0");
        let mut reader = Reader::open(gateway, resume).await;
        let all_are_shown = async {
            let (mut ids, mut endpoints) = (BTreeSet::new(), BTreeSet::new());
            while endpoints.len() < ENDPOINTS {
                let (id, notice) = reader.next().await.expect("a notice");
                assert!(ids.insert(id), "shown twice: {notice}");
                if notice["event_id"] == last.as_str() {
                    endpoints.insert(text(&notice, "endpoint_id").to_owned());
                }
            }
        };
        tokio::time::timeout(PATIENCE, all_are_shown).await.expect("all of them");
    }
}

#[tokio::test]
async fn nodes_are_shown_to_admin_keys() {
    let [one, other] = Gateway::start_two().await;
    let shown = one.get("/v1/nodes").await.json();
    assert_eq!(shown["lanes"], 64);
    let nodes = shown["nodes"].as_array().expect("nodes");
    let [first, second] = &nodes[..] else { panic!("{shown}") };
    assert_eq!(
        (&shown["me"], &other.get("/v1/nodes").await.json()["me"]),
        (&first["id"], &second["id"])
    );
    let mut lanes = BTreeSet::new();
    for node in nodes {
        assert!(node["id"].as_str().is_some_and(|id| id.starts_with("node_")), "{node}");
        assert_eq!(node["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!((&node["live"], &node["in_flight"]), (&json!(true), &json!(0)));
        assert_eq!(node["lanes"].as_array().map(Vec::len), Some(32), "{node}");
        assert_eq!((&node["hubs"], &node["lag_seconds"]), (&json!([]), &json!(0.0)));
        assert!(text(node, "joined_at") <= text(node, "seen_at"), "{node}");
        assert!(text(node, "seen_at") < text(node, "until"), "{node}");
        lanes.extend(node["lanes"].as_array().expect("lanes").iter().filter_map(Value::as_u64));
    }
    assert_eq!(lanes, (0..64).collect());
    for gateway in [&one, &other] {
        assert_eq!(gateway.call(Call::new(Method::GET, "/readyz").without_key()).await.status, 200);
    }
    let key = one.key(json!({"name": "a tenant's"})).await;
    other.call(key.call(Method::GET, "/v1/nodes")).await.problem(403);
    other.call(Call::new(Method::GET, "/v1/nodes").without_key()).await.problem(401);
}

#[tokio::test]
async fn where_a_store_has_one_node_at_a_time_there_are_none_to_show() {
    let gateway = Gateway::start().await;
    let shown = gateway.get("/v1/nodes").await;
    assert_eq!(shown.status, 200);
    assert_eq!(shown.json(), json!({"me": null, "lanes": 0, "nodes": []}));
}

#[tokio::test]
async fn how_a_delivery_stands_can_be_asked_of_any_node() {
    let [one, other] = Gateway::start_two().await;
    let mut sink = Sink::answering(200).await;
    let gate = sink.hold().await;
    let endpoint = one.endpoint(json!({"url": sink.url})).await;
    let event = other.event(json!({"type": "a.b", "payload": 1})).await;
    sink.next().await;
    let stats = format!("/v1/endpoints/{endpoint}/stats");
    for gateway in [&one, &other] {
        assert_eq!(gateway.delivery_of(&event).await["state"], "in_flight");
        assert_eq!(gateway.get(&stats).await.json()["deliveries"]["in_flight"], 1);
        // In a list it is as it is stored, or as it is known here.
        for path in ["/v1/deliveries?state=in_flight,pending", "/v1/events"] {
            let listed = gateway.get(path).await.json();
            assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "{path}: {listed}");
        }
    }
    drop(gate);
    for gateway in [&one, &other] {
        let path = format!("/v1/events/{event}");
        until(gateway, &path, |event| event["status"] == "completed").await;
    }
}

#[tokio::test]
async fn a_hub_is_served_by_the_node_it_connects_to() {
    let [one, other] = Gateway::start_two().await;
    let hub = one.hub("the office").await;
    let endpoint = one.endpoint(json!({"hub": hub.id})).await;
    for (here, there) in [(&other, &one), (&one, &other)] {
        let mut connection = here.connect(&hub, 4).await;
        there.event(json!({"type": "a.b", "payload": 1})).await;
        assert_eq!(connection.take().await.endpoint.to_string(), endpoint);
    }
}

/// Nodes that start at the same moment, on a store that nobody has used.
struct Starters {
    store: Arc<dyn Store>,
    _folder: tempfile::TempDir,
}

impl Starters {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("postrider.db");
        let keyring = Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("one key");
        let options = sqlite::Options { shared: true, ..Default::default() };
        let store = Sqlite::open(&path, options, keyring).expect("a database");
        Self { store: Arc::new(store), _folder: folder }
    }

    /// What each of them has made.
    async fn start(&self, nodes: u8, given: Option<&str>) -> Vec<Option<String>> {
        let starts =
            (0..nodes).map(|node| ensure_admin_key(&*self.store, START, [node; 32], given));
        let started = futures_util::future::join_all(starts).await;
        started.into_iter().map(|made| made.expect("a start goes on")).collect()
    }

    async fn live_admins(&self) -> Vec<KeyRecord> {
        let mut keys = self.store.keys().await.expect("keys");
        keys.retain(|key| key.role == Role::Admin && key.revoked_at.is_none());
        keys
    }
}

#[tokio::test]
async fn of_nodes_that_start_at_once_one_makes_the_first_key() {
    for nodes in [1, 2, 3, 8] {
        let starters = Starters::new();
        let made = starters.start(nodes, None).await;
        let shown: Vec<String> = made.into_iter().flatten().collect();
        let [key] = &shown[..] else { panic!("{} of {nodes} made one", shown.len()) };
        let live = starters.live_admins().await;
        assert_eq!(live.len(), 1, "of {nodes}");
        let sha256: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        assert_eq!(live[0].sha256, sha256, "it is the one that was shown");
        assert_eq!(starters.start(nodes, None).await, vec![None; usize::from(nodes)]);
    }
}

#[tokio::test]
async fn nodes_that_are_given_the_same_first_key_all_start() {
    let given = format!("pr_{}", "g".repeat(32));
    let starters = Starters::new();
    assert_eq!(starters.start(8, Some(&given)).await, vec![None; 8]);
    assert_eq!(starters.store.keys().await.expect("keys").len(), 1);
    assert_eq!(starters.live_admins().await.len(), 1);
}
