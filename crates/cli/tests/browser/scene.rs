//! A gateway with something of everything: endpoints that are well and ill, deliveries in most states,
//! a source, a hub, keys, tenants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gateway::{Gateway, Launch, text};
use crate::sink::{Reply, Sink};
use crate::within;

/// A gateway and a receiver that can be ill.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) gateway: Gateway,
    pub(crate) sink: Sink,
    ill: Arc<AtomicBool>,
    _data: TempDir,
}

impl Scene {
    /// Nothing in it yet.
    pub(crate) async fn empty() -> Self {
        let data = tempfile::tempdir().expect("a folder");
        let gateway = Launch::serve(data.path()).start().await;
        let ill = Arc::new(AtomicBool::new(false));
        let is_ill = Arc::clone(&ill);
        let sink = Sink::start(move |_| {
            Reply::Now(if is_ill.load(Ordering::SeqCst) {
                StatusCode::INTERNAL_SERVER_ERROR
            } else {
                StatusCode::OK
            })
        })
        .await;
        Self { gateway, sink, ill, _data: data }
    }

    /// From now on what arrives is answered with 500, or well again.
    pub(crate) fn make_ill(&self, ill: bool) {
        self.ill.store(ill, Ordering::SeqCst);
    }

    /// An endpoint for events of this type, with so long between attempts; after the last wait it is
    /// tried once more.
    pub(crate) async fn endpoint(&self, name: &str, kind: &str, waits: &[&str]) -> String {
        // A list has to have something in it, also where it is not waited at all.
        let list = if waits.is_empty() { &["1s"] } else { waits };
        let policy = json!({ "schedule": { "list": list }, "max_attempts": waits.len() + 1 });
        let spec = json!({
            "name": name,
            "url": self.sink.url(),
            "event_types": [kind],
            "policy": policy,
        });
        self.gateway.create_endpoint(spec).await
    }

    /// Makes something, and returns it.
    pub(crate) async fn create(&self, path: &str, spec: &Value) -> Value {
        let answer = self.gateway.call(Method::POST, path, spec.to_string()).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{path}: {}", answer.body);
        answer.body
    }

    /// Sends an event and returns its id.
    pub(crate) async fn send(&self, event: &Value) -> String {
        let answer = self.gateway.call(Method::POST, "/v1/events", event.to_string()).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
        text(&answer.body, "id")
    }

    /// The id of the only delivery of an event, once it is in this state.
    pub(crate) async fn delivery_in(&self, event: &str, state: &str) -> String {
        within(&format!("a delivery that is {state}"), async {
            loop {
                let delivery = self.gateway.delivery_of(event).await;
                if delivery["state"] == state {
                    return text(&delivery, "id");
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// Something of everything. Returns also where no link leads: pages that come after a change.
    pub(crate) async fn full() -> (Self, Vec<String>) {
        let scene = Self::empty().await;
        scene.endpoint("Orders", "order.*", &["1h"]).await;
        let dying = scene.endpoint("Invoices", "invoice.*", &[]).await;
        scene.endpoint("Customers", "customer.*", &["1h", "2h"]).await;
        let workers = json!({ "name": "Workers", "pull": true, "event_types": ["work.*"] });
        scene.create("/v1/endpoints", &workers).await;
        let open = json!({ "name": "shop", "verify": { "scheme": "none" } });
        scene.create("/v1/sources", &open).await;
        let github = json!({ "scheme": "github", "secret": "s3cret" });
        scene.create("/v1/sources", &json!({ "name": "forge", "verify": github })).await;
        let hub = scene.create("/v1/hubs", &json!({ "name": "office" })).await;
        let spec = json!({ "name": "Office", "hub": hub["id"], "event_types": ["office.*"] });
        scene.create("/v1/endpoints", &spec).await;
        scene.create("/v1/tenants", &json!({ "name": "acme" })).await;
        scene.create("/v1/keys", &json!({ "name": "shop", "tenant": "acme" })).await;

        let event = |kind: &str| json!({ "type": kind, "payload": { "id": 1, "total": 19.99 } });
        let delivered = scene.send(&event("order.created")).await;
        scene.delivery_in(&delivered, "delivered").await;
        scene.make_ill(true);
        for (kind, state) in [("invoice.paid", "dead"), ("customer.updated", "retrying")] {
            let id = scene.send(&event(kind)).await;
            scene.delivery_in(&id, state).await;
        }
        let replayed = scene.send(&event("invoice.drafted")).await;
        let dead = scene.delivery_in(&replayed, "dead").await;
        let pause = format!("/v1/endpoints/{dying}/pause");
        scene.gateway.call(Method::POST, &pause, String::new()).await;
        let ids = json!({ "ids": [dead] }).to_string();
        let job = scene.gateway.call(Method::POST, "/v1/dead-letters/replay", ids).await;
        assert_eq!(job.status, StatusCode::ACCEPTED, "{}", job.body);
        // It waits: its endpoint is paused.
        scene.delivery_in(&replayed, "pending").await;
        let job = format!("/jobs/{}", text(&job.body, "job"));
        (scene, vec![job, "/first-run".to_owned()])
    }
}
