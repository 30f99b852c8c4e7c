//! Failures that gateways and queues are known for. Each has one test here that fails if this one has
//! it, and is called `never_…`: with the real binary over HTTP, or with the engine as a library where a
//! failure needs code of one's own.

#[allow(dead_code, reason = "the process tests need the rest")]
#[path = "../process/client.rs"]
mod client;
#[allow(dead_code, reason = "the store's own tests need the rest")]
#[path = "../../../store/tests/postgres/cluster.rs"]
mod cluster;
#[allow(dead_code, reason = "the process tests need the rest")]
#[path = "../process/gateway.rs"]
mod gateway;
#[allow(dead_code, reason = "the process tests need the rest")]
#[path = "../process/output.rs"]
mod output;
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests of the HTTP client")]
#[path = "../../../engine/src/http_client/tests/peer.rs"]
mod peer;
#[allow(dead_code, reason = "the process tests need the rest")]
#[path = "../process/sink.rs"]
mod sink;
mod wire;

mod crashed;
mod failover;
mod leased;
mod operated;
mod scheduled;
mod slots;

use std::time::Duration;

use gateway::Gateway;
use http::{Method, StatusCode};
use serde_json::Value;

/// How long anything may take before it counts as hanging. No test asserts on speed.
const PATIENCE: Duration = Duration::from_mins(2);

/// How often something is looked at that nobody tells of.
const LOOK: Duration = Duration::from_millis(20);

/// Waits for something that has to happen.
async fn within<T>(what: &str, happening: impl Future<Output = T>) -> T {
    let happened = tokio::time::timeout(PATIENCE, happening).await;
    happened.unwrap_or_else(|_| panic!("{what} did not happen within {PATIENCE:?}"))
}

/// Asks until the answer is as wanted.
async fn shown(gateway: &Gateway, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let asking = async {
        loop {
            last = gateway.get(path).await;
            if wanted(&last) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, asking).await.is_ok();
    assert!(in_time, "{path} stays {last:#}");
    last
}

/// The delivery with this id, once it is in this state.
async fn delivery_once(gateway: &Gateway, id: &str, state: &str) -> Value {
    let path = format!("/v1/deliveries/{id}");
    shown(gateway, &path, |delivery| delivery["state"] == state).await
}

/// Posts, and returns what was answered with this status.
async fn post(gateway: &Gateway, path: &str, body: Value, status: StatusCode) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = gateway.call(Method::POST, path, body).await;
    assert_eq!(answer.status, status, "{path}: {}", answer.body);
    answer.body
}

/// Takes one delivery of a pull endpoint as a worker does, when there is one.
async fn lease_one(gateway: &Gateway, endpoint: &str, lease: &str) -> Value {
    let path = format!("/v1/endpoints/{endpoint}/lease");
    let wish = serde_json::json!({ "max": 1, "wait": "1s", "lease": lease });
    let taking = async {
        loop {
            let answer = post(gateway, &path, wish.clone(), StatusCode::OK).await;
            if let Some(lease) = answer["leases"].get(0) {
                return lease.clone();
            }
        }
    };
    within("something to lease", taking).await
}
