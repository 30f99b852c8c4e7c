//! `/v1/nodes`: who shares the store, and who carries what. For admin keys only.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use postrider_core::{HubId, Timestamp};
use postrider_store::fleet::{Charge, NodeId, NodeRecord};
use serde::Serialize;

use crate::App;
use crate::answer::{Answer, json};
use crate::auth::Admin;

pub(crate) async fn list(State(app): State<Arc<App>>, _: Admin) -> Answer {
    let view = match app.engine.nodes().await? {
        Some(known) => {
            let now = app.engine.clock().now();
            let nodes = known.nodes.into_iter().map(|node| NodeView::of(node, now));
            View { me: Some(text(known.me)), lanes: known.lanes, nodes: nodes.collect() }
        }
        None => View { me: None, lanes: 0, nodes: Vec::new() },
    };
    json(StatusCode::OK, &view)
}

/// The nodes as the API shows them.
#[derive(Serialize)]
struct View {
    /// The one that answers; none where the store has one node at a time, like all the rest.
    me: Option<String>,
    lanes: u16,
    nodes: Vec<NodeView>,
}

#[derive(Serialize)]
struct NodeView {
    id: String,
    name: String,
    version: String,
    address: String,
    live: bool,
    joined_at: Timestamp,
    seen_at: Timestamp,
    until: Timestamp,
    lanes: Vec<u16>,
    hubs: Vec<HubId>,
    in_flight: u32,
    lag_seconds: f64,
}

impl NodeView {
    fn of(node: NodeRecord, now: Timestamp) -> Self {
        let (mut lanes, mut hubs) = (Vec::new(), Vec::new());
        for tenure in &node.held {
            match tenure.charge {
                Charge::Lane(lane) => lanes.push(lane.0),
                Charge::Hub(hub) => hubs.push(hub),
            }
        }
        lanes.sort_unstable();
        hubs.sort_unstable();
        let lag = node.waiting_since.map(|since| now.since(since));
        Self {
            id: text(node.node),
            name: node.name,
            version: node.version,
            address: node.address,
            live: node.live,
            joined_at: node.joined_at,
            seen_at: node.seen_at,
            until: node.until,
            lanes,
            hubs,
            in_flight: node.in_flight,
            lag_seconds: lag.unwrap_or_default().as_secs_f64(),
        }
    }
}

fn text(node: NodeId) -> String {
    node.to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_core::Lane;
    use postrider_store::fleet::Tenure;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_node_holds_is_told_apart_and_in_order() {
        let now = Timestamp::from_millis(1_767_225_600_000);
        let hub = |number: i64| HubId::from_i64(HubId::floor(now).as_i64() + number);
        let held = [
            Charge::Lane(Lane(5)),
            Charge::Hub(hub(2)),
            Charge::Lane(Lane(0)),
            Charge::Hub(hub(1)),
        ];
        let mut node = NodeRecord {
            node: NodeId(3),
            number: 7,
            name: "a".into(),
            version: "1.2.3".into(),
            address: "127.0.0.1:8080".into(),
            joined_at: now,
            seen_at: now,
            until: now.plus(Duration::from_secs(10)),
            live: true,
            in_flight: 2,
            waiting_since: Some(now.minus(Duration::from_millis(1_500))),
            held: held.map(|charge| Tenure { charge, epoch: 1 }).to_vec(),
        };
        let shown = |node: &NodeRecord| {
            serde_json::to_value(NodeView::of(node.clone(), now)).expect("JSON")
        };
        let expected = json!({
            "id": "node_3",
            "name": "a",
            "version": "1.2.3",
            "address": "127.0.0.1:8080",
            "live": true,
            "joined_at": "2026-01-01T00:00:00.000Z",
            "seen_at": "2026-01-01T00:00:00.000Z",
            "until": "2026-01-01T00:00:10.000Z",
            "lanes": [0, 5],
            "hubs": [hub(1), hub(2)],
            "in_flight": 2,
            "lag_seconds": 1.5,
        });
        assert_eq!(shown(&node), expected);
        // Nothing waits; or, by clocks that differ, it does so only from now on.
        for since in [None, Some(now.plus(Duration::from_secs(1)))] {
            node.waiting_since = since;
            assert_eq!(shown(&node)["lag_seconds"], 0.0);
        }
    }
}
