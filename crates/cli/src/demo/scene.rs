//! What the demo makes on its gateway before anything is sent: endpoints, a source, a hub.

use anyhow::{Context as _, anyhow};
use postrider_client::hub::{Agent, AgentOptions, Routes};
use postrider_client::{Gateway, Method};
use serde_json::{Value, json};

use super::receivers::Receivers;

/// The source's secret, which is sent along. It is no secret: the whole demo is on this machine.
const TOKEN: &str = "demo-webshop";

/// What is needed of it later on.
pub(super) struct Scene {
    pub(super) hub: Agent,
    pub(super) posting: Posting,
}

/// Where webhooks are posted.
pub(super) struct Posting {
    /// With the source's secret.
    pub(super) genuine: String,
    /// With another one.
    pub(super) forged: String,
}

pub(super) async fn set(gateway: &Gateway, receivers: &Receivers) -> anyhow::Result<Scene> {
    let hub = make(gateway, "/v1/hubs", json!({ "name": "office" })).await?;
    for endpoint in endpoints(receivers, &hub["id"]) {
        make(gateway, "/v1/endpoints", endpoint).await?;
    }
    let source = json!({
        "name": "webshop",
        "verify": { "scheme": "token", "query": "token", "secret": TOKEN },
        "on_invalid": "mark",
        "type_from": { "json_pointer": "/type" },
        "dedup_from": { "json_pointer": "/id" },
    });
    let source = make(gateway, "/v1/sources", source).await?;
    let url = source["url"].as_str().ok_or_else(|| anyhow!("the source has no URL"))?;
    let token = hub["token"].as_str().ok_or_else(|| anyhow!("the hub has no token"))?;
    let options = AgentOptions::new(gateway.url(), token, Routes::to(&receivers.healthy)?);
    Ok(Scene {
        hub: Agent::new(options)?,
        posting: Posting {
            genuine: format!("{url}?token={TOKEN}"),
            forged: format!("{url}?token=guessed"),
        },
    })
}

/// Forwards what the hub's endpoint is sent, until it is told to stop.
pub(super) async fn run_hub(hub: Agent, stop: impl Future<Output = ()> + Send) {
    if let Err(error) = hub.run(stop, drop).await {
        tracing::warn!(%error, "the demo's hub has ended");
    }
}

/// Policies are short, so that within a minute everything has been seen that can become of a
/// delivery.
fn endpoints(receivers: &Receivers, hub: &Value) -> Vec<Value> {
    let list = |delays: &[&str], attempts: u32| json!({ "schedule": { "list": delays, "jitter": 0.1 }, "max_attempts": attempts });
    vec![
        json!({
            "name": "orders (healthy)",
            "url": receivers.healthy,
            "event_types": ["order.*"],
            "ordering": "fifo_by_key",
        }),
        json!({
            "name": "billing (flaky)",
            "url": receivers.flaky,
            "event_types": ["invoice.*", "order.created"],
            "policy": list(&["1s", "3s", "8s", "20s"], 5),
        }),
        json!({
            "name": "warehouse (slow)",
            "url": receivers.slow,
            "event_types": ["order.created", "order.shipped"],
            "ordering": "fifo_by_key",
            "max_in_flight": 3,
            "policy": list(&["2s", "5s", "10s"], 4),
        }),
        json!({
            "name": "crm (dead)",
            "url": receivers.dead,
            "event_types": ["user.*"],
            "policy": list(&["1s", "2s"], 3),
        }),
        json!({
            "name": "newsletter (rate limiting)",
            "url": receivers.rate_limiting,
            "event_types": ["user.*"],
            "policy": list(&["2s", "5s", "10s", "20s"], 5),
        }),
        json!({
            "name": "partner (picky)",
            "url": receivers.picky,
            "event_types": ["user.*", "invoice.paid"],
            "policy": "edge",
        }),
        json!({
            "name": "office (behind a hub)",
            "hub": hub,
            "event_types": ["invoice.paid"],
            "policy": "edge",
        }),
    ]
}

async fn make(gateway: &Gateway, path: &str, body: Value) -> anyhow::Result<Value> {
    let made = gateway.request(Method::POST, path, Some(&body)).await;
    made.with_context(|| format!("the demo could not be set up: {path}"))
}
