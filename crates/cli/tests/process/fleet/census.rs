//! `/v1/nodes`: who is there, and who carries what.

use std::collections::BTreeSet;

use postrider_core::{EndpointId, Lane};
use serde_json::Value;

use crate::gateway::text;

#[derive(Debug)]
pub(super) struct Census {
    /// Whoever was asked.
    pub(super) me: Value,
    pub(super) lanes: u16,
    pub(super) nodes: Vec<Seat>,
}

/// A node, as the others know it.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) id: Value,
    pub(super) name: String,
    pub(super) live: bool,
    pub(super) lanes: BTreeSet<u16>,
}

impl Census {
    #[track_caller]
    pub(super) fn read(body: &Value) -> Self {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_else(|| panic!("{body}"));
        let number = |value: &Value| {
            let number = value.as_u64().and_then(|number| u16::try_from(number).ok());
            number.unwrap_or_else(|| panic!("{value} in {body}"))
        };
        let seat = |node: Value| Seat {
            id: node["id"].clone(),
            name: text(&node, "name"),
            live: node["live"].as_bool().unwrap_or_else(|| panic!("{node}")),
            lanes: list(&node["lanes"]).iter().map(number).collect(),
        };
        Self {
            me: body["me"].clone(),
            lanes: number(&body["lanes"]),
            nodes: list(&body["nodes"]).into_iter().map(seat).collect(),
        }
    }

    /// Whether these and no others are there, and share all the lanes evenly.
    pub(super) fn is_even_among(&self, names: &[&str]) -> bool {
        let live: Vec<&Seat> = self.nodes.iter().filter(|node| node.live).collect();
        let mut present: Vec<&str> = live.iter().map(|node| node.name.as_str()).collect();
        present.sort_unstable();
        let held: BTreeSet<u16> = live.iter().flat_map(|node| &node.lanes).copied().collect();
        let sum: usize = live.iter().map(|node| node.lanes.len()).sum();
        let share = usize::from(self.lanes) / names.len().max(1);
        let is_even = |node: &&Seat| (share..=share + 1).contains(&node.lanes.len());
        present == names
            && held.iter().copied().eq(0..self.lanes)
            && sum == held.len()
            && live.iter().all(is_even)
    }

    /// What a node had when it was last heard of: nobody else takes it before its lease ends.
    pub(super) fn held_by(&self, id: &Value) -> BTreeSet<u16> {
        let node = self.nodes.iter().find(|node| node.id == *id);
        node.map(|node| node.lanes.clone()).unwrap_or_default()
    }

    pub(super) fn carrier_of(&self, endpoint: &str) -> Option<&str> {
        let lane = lane_of(endpoint, self.lanes);
        let node = self.nodes.iter().find(|node| node.live && node.lanes.contains(&lane));
        node.map(|node| node.name.as_str())
    }
}

/// The lane of an endpoint, by its public id.
pub(super) fn lane_of(endpoint: &str, lanes: u16) -> u16 {
    let id: EndpointId = endpoint.parse().expect("the id of an endpoint");
    Lane::of(id, lanes).0
}
