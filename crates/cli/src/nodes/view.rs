//! What a gateway says of the nodes, taken apart.

use std::collections::BTreeSet;

use anyhow::{Context as _, anyhow};
use postrider_core::Timestamp;
use serde_json::Value;

/// Those that share the store, in the order they joined.
#[derive(Debug)]
pub(super) struct Nodes {
    /// The one that answered; none where the store has one node at a time.
    pub(super) me: Option<String>,
    pub(super) lanes: u16,
    pub(super) members: Vec<Node>,
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) address: String,
    pub(super) live: bool,
    pub(super) joined_at: Timestamp,
    pub(super) seen_at: Timestamp,
    /// It is believed to live until then; one that is gone ended then.
    pub(super) until: Timestamp,
    pub(super) lanes: BTreeSet<u16>,
    pub(super) hubs: usize,
    pub(super) in_flight: u64,
    pub(super) lag_seconds: f64,
}

impl Nodes {
    pub(super) fn read(answer: &Value) -> anyhow::Result<Self> {
        let nodes = answer["nodes"].as_array().context("there is no list of nodes")?;
        Ok(Self {
            me: answer["me"].as_str().map(str::to_owned),
            lanes: number(answer, "lanes")?,
            members: nodes.iter().map(Node::read).collect::<anyhow::Result<_>>()?,
        })
    }

    /// The lanes that no live node has.
    pub(super) fn uncarried(&self) -> BTreeSet<u16> {
        let live = self.members.iter().filter(|node| node.live);
        let carried: BTreeSet<u16> = live.flat_map(|node| &node.lanes).copied().collect();
        (0..self.lanes).filter(|lane| !carried.contains(lane)).collect()
    }

    /// What time it is for them, as nearly as can be told: their times are those of the store's
    /// clock, and `here` is what this machine's says. It is not earlier than the last they heard of
    /// each other, and not later than the lease of the one that was heard of lasts.
    pub(super) fn now(&self, here: Timestamp) -> Timestamp {
        let freshest = self.members.iter().filter(|node| node.live).max_by_key(|node| node.seen_at);
        freshest.map_or(here, |node| here.min(node.until).max(node.seen_at))
    }
}

impl Node {
    fn read(node: &Value) -> anyhow::Result<Self> {
        let lanes = node["lanes"].as_array().context("a node has no list of lanes")?;
        let lane = |lane: &Value| lane.as_u64().and_then(|lane| u16::try_from(lane).ok());
        let lanes: Option<BTreeSet<u16>> = lanes.iter().map(lane).collect();
        Ok(Self {
            id: text(node, "id")?,
            name: text(node, "name")?,
            version: text(node, "version")?,
            address: text(node, "address")?,
            live: node["live"].as_bool().context("a node does not say whether it is live")?,
            joined_at: time(node, "joined_at")?,
            seen_at: time(node, "seen_at")?,
            until: time(node, "until")?,
            lanes: lanes.context("a lane is no number")?,
            hubs: node["hubs"].as_array().context("a node has no list of hubs")?.len(),
            in_flight: number(node, "in_flight")?,
            lag_seconds: node["lag_seconds"].as_f64().context("a node has no lag")?,
        })
    }
}

fn number<N: TryFrom<u64>>(value: &Value, field: &str) -> anyhow::Result<N> {
    let number = value[field].as_u64().and_then(|number| N::try_from(number).ok());
    number.with_context(|| format!("`{field}` is no number"))
}

fn text(value: &Value, field: &str) -> anyhow::Result<String> {
    Ok(value[field].as_str().with_context(|| format!("`{field}` is no text"))?.to_owned())
}

fn time(value: &Value, field: &str) -> anyhow::Result<Timestamp> {
    text(value, field)?.parse().map_err(|error| anyhow!("`{field}`: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer() -> Value {
        json!({
            "me": "node_2",
            "lanes": 8,
            "nodes": [
                {
                    "id": "node_1", "name": "a", "version": "1.2.3", "address": "10.0.0.1:7070",
                    "live": false,
                    "joined_at": "2026-01-01T00:00:00.000Z",
                    "seen_at": "2026-01-01T01:00:00.000Z",
                    "until": "2026-01-01T01:00:10.000Z",
                    "lanes": [0, 1], "hubs": [], "in_flight": 0, "lag_seconds": 0.0,
                },
                {
                    "id": "node_2", "name": "b", "version": "1.2.3", "address": "10.0.0.2:7070",
                    "live": true,
                    "joined_at": "2026-01-01T00:00:01.000Z",
                    "seen_at": "2026-01-01T02:00:00.000Z",
                    "until": "2026-01-01T02:00:10.000Z",
                    "lanes": [2, 3, 4, 7], "hubs": ["hub_1"], "in_flight": 3, "lag_seconds": 1.5,
                },
            ],
        })
    }

    #[test]
    fn what_a_gone_node_had_is_carried_by_nobody() {
        let nodes = Nodes::read(&answer()).expect("as a gateway says it");
        assert_eq!(nodes.uncarried(), BTreeSet::from([0, 1, 5, 6]));
        let node = &nodes.members[1];
        assert_eq!((node.hubs, node.in_flight, node.lag_seconds), (1, 3, 1.5));
        assert_eq!(nodes.me.as_deref(), Some("node_2"));
    }

    #[test]
    fn where_the_store_has_one_node_there_are_no_lanes_to_miss() {
        let nodes = Nodes::read(&json!({ "me": null, "lanes": 0, "nodes": [] })).expect("valid");
        assert!(nodes.me.is_none() && nodes.uncarried().is_empty());
    }

    #[test]
    fn a_clock_that_is_wrong_makes_little_difference() {
        let nodes = Nodes::read(&answer()).expect("valid");
        for (here, now) in [
            ("2026-01-01T02:00:04Z", "2026-01-01T02:00:04Z"),
            ("2026-01-01T01:30:00Z", "2026-01-01T02:00:00Z"),
            ("2026-01-01T09:00:00Z", "2026-01-01T02:00:10Z"),
        ] {
            let [here, now] = [here, now].map(|time| time.parse().expect("a time"));
            assert_eq!(nodes.now(here), now);
        }
    }

    #[test]
    fn an_answer_that_is_none_is_refused_by_what_is_missing() {
        for field in [
            "id",
            "name",
            "version",
            "address",
            "live",
            "joined_at",
            "seen_at",
            "until",
            "lanes",
            "hubs",
            "in_flight",
            "lag_seconds",
        ] {
            let mut answer = answer();
            answer["nodes"][0].as_object_mut().expect("an object").remove(field);
            let refused = Nodes::read(&answer).expect_err(field).to_string();
            let word = field.split('_').next().unwrap_or_default();
            assert!(refused.contains(word), "{field}: {refused}");
        }
        for answer in [json!(null), json!([]), json!({ "lanes": 1 }), json!({ "nodes": [] })] {
            assert!(Nodes::read(&answer).is_err(), "{answer}");
        }
        let mut answer = answer();
        answer["nodes"][1]["lanes"] = json!([70_000]);
        assert!(Nodes::read(&answer).is_err());
    }
}
