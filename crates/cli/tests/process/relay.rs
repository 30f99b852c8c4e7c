//! The relay: a gateway, hubs that dial it, and services behind them.
//!
//! The gateway and each hub are processes of the real binary. The services belong to the test's own
//! process: what arrives is written down where nobody is killed.

mod chance;
mod feed;
pub(crate) mod proxy;
mod service;

mod away;
mod half_open;
mod tokens;
mod torture;
mod unchanged;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::gateway::{Gateway, Launch, payload, text};

/// A hub as its gateway knows it.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) id: String,
    token: String,
}

impl Hub {
    pub(crate) async fn create(gateway: &Gateway, name: &str) -> Self {
        let body = json!({ "name": name }).to_string();
        let answer = gateway.call(Method::POST, "/v1/hubs", body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
        Self { id: text(&answer.body, "id"), token: text(&answer.body, "token") }
    }

    /// `postrider hub`, which forwards to `to` what the gateway at `gateway` has for it.
    pub(crate) fn launch(&self, gateway: &str, to: &str) -> Launch {
        Launch::with(["hub", "--gateway", gateway, "--to", to])
            .variable("POSTRIDER_HUB_TOKEN", &self.token)
    }

    async fn shown(&self, gateway: &Gateway) -> Value {
        gateway.get(&format!("/v1/hubs/{}", self.id)).await
    }

    /// Waits until the gateway has seen it come.
    pub(crate) async fn connected(&self, gateway: &Gateway) {
        self.said(gateway, "hub connected").await;
    }

    /// Waits until the gateway has seen it go.
    pub(crate) async fn disconnected(&self, gateway: &Gateway) {
        self.said(gateway, "hub disconnected").await;
    }

    async fn said(&self, gateway: &Gateway, what: &str) {
        let stderr = &gateway.process.stderr;
        let line = stderr.line(|line| line.contains(what) && line.contains(&self.id)).await;
        assert!(line.is_some(), "{what} was never said: {}", stderr.text());
    }
}

fn url_of(gateway: &Gateway) -> String {
    format!("http://{}", gateway.address)
}

/// Sends an event of this type, with this number in its payload, and returns its id.
async fn send(gateway: &Gateway, kind: &str, number: u64) -> String {
    let event = format!(r#"{{"type":"{kind}","payload":{}}}"#, payload(number));
    let answer = gateway.call(Method::POST, "/v1/events", event).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
    text(&answer.body, "id")
}
