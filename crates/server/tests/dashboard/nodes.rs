//! The page of nodes: who shares the store, and who carries what.

use std::sync::Arc;

use postrider_engine::ports::{SystemClock, SystemEntropy};
use postrider_engine::{Engine, NodeOptions, Options};
use postrider_server::{ConnectionLimits, Inbound, Keys, ServerOptions, ensure_admin_key};
use postrider_store::Store;
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::PATIENCE;
use crate::browser::Browser;
use crate::client::Client;
use crate::gateway::Gateway;

#[tokio::test]
async fn a_gateway_with_a_file_of_its_own_is_the_only_node() {
    let browser = Browser::signed_in().await;
    let page = browser.get("/nodes").await.expect(200);
    page.assert_has("the only node");
    page.assert_lacks("<table");
    browser.get("/").await.expect(200).assert_lacks("Who carries what");
}

#[tokio::test]
async fn nodes_are_for_admin_keys() {
    let browser = Browser::signed_in().await;
    let theirs = browser.gateway.tenant("acme").await;
    let visitor = Browser::with_key(&browser.gateway, &theirs.key).await;
    visitor.get("/nodes").await.expect(403).assert_has("this needs an admin key");
}

/// Two nodes on one store, of which one is looked at. They go by the machine's clock, because they
/// wait for one another.
struct Two {
    gateway: Arc<Gateway>,
    engines: [Engine; 2],
    _folder: TempDir,
}

impl Two {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("postrider.db");
        let keyring = Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("one key");
        let shared = sqlite::Options { shared: true, ..Default::default() };
        let store: Arc<dyn Store> =
            Arc::new(Sqlite::open(&path, shared, keyring).expect("a store"));
        // A gateway of its own lends its shape; what it is asked goes to the first of the two.
        let mut gateway = Gateway::start().await;
        let key = ensure_admin_key(&*store, gateway.now(), [9; 32], None).await.expect("a key");
        let key = key.expect("the first start makes one");
        let start = async || {
            // A disk that is busy with other things must not make the nodes give one another up.
            let node = NodeOptions { lease: PATIENCE, ..NodeOptions::default() };
            let options = Options { node, ..Options::default() };
            let store = Arc::clone(&store);
            Engine::start(options, store, Arc::new(SystemClock), Arc::new(SystemEntropy))
                .await
                .expect("the engine starts")
        };
        let engines = [start().await, start().await];
        let keys = Keys::load(&*store).await.expect("the keys");
        let inbound = Inbound::load(&*store).await.expect("the sources");
        let options = ServerOptions::default();
        let routes = postrider_server::router(engines[0].clone(), keys, inbound, options);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let never = std::future::pending();
        tokio::spawn(postrider_server::serve(listener, routes, ConnectionLimits::default(), never));
        let borrowed = Arc::get_mut(&mut gateway).expect("nobody else has it");
        borrowed.address = address;
        borrowed.client = Client { address, key };
        let two = Self { gateway, engines, _folder: folder };
        timeout(PATIENCE, two.even()).await.expect("lanes are shared");
        two
    }

    /// Returns when each carries its half.
    async fn even(&self) {
        loop {
            let known = self.engines[0].nodes().await.expect("known").expect("nodes");
            let share = usize::from(known.lanes) / 2;
            if known.nodes.iter().filter(|node| node.held.len() == share).count() == 2 {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn of_several_nodes_is_shown_who_carries_what() {
    let two = Two::start().await;
    let key = two.gateway.client.key.clone();
    let browser = Browser::with_key(&two.gateway, &key).await;
    let page = browser.get("/nodes").await.expect(200);
    let known = two.engines[0].nodes().await.expect("known").expect("nodes");
    page.assert_has("2 nodes share");
    for node in &known.nodes {
        page.assert_has(&node.node.to_string());
    }
    let share = format!("<td class=\"number\">{} of {}</td>", known.lanes / 2, known.lanes);
    assert_eq!(page.text.matches(&share).count(), 2, "{}", page.text);
    page.assert_has("(made this page)");
    page.assert_lacks("carried by nobody");
    let endpoint = json!({"url": "https://example.com/hook"});
    two.gateway.client.post("/v1/endpoints", &endpoint).await.expect(201);
    let overview = browser.get("/").await.expect(200);
    overview.assert_has("Who carries what");
    overview.assert_has("All is well");
}
