//! The nodes that share the store: who is there, and who carries what. For admin keys only, as in the
//! API.

use askama::Template;
use axum::Router;
use axum::routing::get;
use postrider_core::{HubId, Timestamp};
use serde::Deserialize;

use super::Dashboard;
use super::api::{Api, Refused};
use super::chrome::{Chrome, Section};
use super::html::{Shown, show};
use super::session::Visitor;
use super::words::{self, Moment};

/// How much of what a node says of itself is shown.
const MAX_NAME_CHARS: usize = 80;

pub(crate) fn routes() -> Router<Dashboard> {
    Router::new().route("/nodes", get(page))
}

async fn page(visitor: Visitor) -> Shown {
    let fleet = Fleet::find(&visitor.api, visitor.now).await?;
    show(&Page { chrome: Chrome::new(&visitor, Section::Nodes), fleet })
}

#[derive(Template)]
#[template(path = "nodes.html")]
struct Page {
    chrome: Chrome,
    fleet: Fleet,
}

/// What `/v1/nodes` tells.
#[derive(Debug, Deserialize)]
struct Answer {
    me: Option<String>,
    lanes: u16,
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    name: String,
    version: String,
    address: String,
    live: bool,
    joined_at: Timestamp,
    seen_at: Timestamp,
    lanes: Vec<u16>,
    hubs: Vec<HubId>,
    in_flight: u64,
    lag_seconds: f64,
}

/// All nodes, those that are gone first.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// Whether the store is one that several nodes can share.
    pub(crate) is_shared: bool,
    pub(crate) lanes: u16,
    pub(crate) nodes: Vec<NodeRow>,
}

#[derive(Debug)]
pub(crate) struct NodeRow {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) address: String,
    /// It made this page.
    pub(crate) is_me: bool,
    pub(crate) live: bool,
    pub(crate) joined: Moment,
    pub(crate) seen: Moment,
    pub(crate) lane_count: usize,
    /// Which ones, as ranges.
    pub(crate) lanes: String,
    pub(crate) hubs: Vec<HubId>,
    pub(crate) in_flight: u64,
    pub(crate) lag: String,
}

impl Fleet {
    pub(crate) async fn find(api: &Api, now: Timestamp) -> Result<Self, Refused> {
        Ok(Self::read(api.get("/v1/nodes").await?, now))
    }

    fn read(answer: Answer, now: Timestamp) -> Self {
        let Answer { me, lanes, mut nodes } = answer;
        nodes.sort_by(|one, other| {
            (one.live, &one.name, &one.id).cmp(&(other.live, &other.name, &other.id))
        });
        let row = |node: Node| NodeRow {
            is_me: me.as_ref() == Some(&node.id),
            live: node.live,
            joined: words::moment(node.joined_at, now),
            seen: words::moment(node.seen_at, now),
            lane_count: node.lanes.len(),
            lanes: ranges(&node.lanes),
            hubs: node.hubs,
            in_flight: node.in_flight,
            lag: lag(node.lag_seconds),
            id: node.id,
            name: words::line(node.name, MAX_NAME_CHARS),
            version: words::line(node.version, MAX_NAME_CHARS),
            address: words::line(node.address, MAX_NAME_CHARS),
        };
        Self { is_shared: me.is_some(), lanes, nodes: nodes.into_iter().map(row).collect() }
    }

    /// None where there is only one: there is nothing to tell apart.
    pub(crate) fn of_several(self) -> Option<Self> {
        Some(self).filter(|fleet| fleet.nodes.len() > 1)
    }

    /// How many have stopped without a word.
    pub(crate) fn lost(&self) -> usize {
        self.nodes.iter().filter(|node| !node.live).count()
    }

    /// Lanes that nobody carries: their deliveries wait until somebody takes them over.
    pub(crate) fn unheld(&self) -> usize {
        let live = self.nodes.iter().filter(|node| node.live);
        let held: usize = live.map(|node| node.lane_count).sum();
        usize::from(self.lanes).saturating_sub(held)
    }
}

/// Numbers in order as people write them: `0–3, 7, 9–10`.
fn ranges(numbers: &[u16]) -> String {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            Some(_) | None => runs.push((*number, *number)),
        }
    }
    let written = runs.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    });
    written.collect::<Vec<_>>().join(", ")
}

/// How long what waits at a node has been due.
fn lag(seconds: f64) -> String {
    if seconds < 0.05 { "none".into() } else { format!("{seconds:.1} s") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lanes_are_written_as_ranges() {
        let table: [(&[u16], &str); 6] = [
            (&[], ""),
            (&[5], "5"),
            (&[0, 1], "0, 1"),
            (&[0, 1, 2, 3, 7, 9, 10, 11], "0–3, 7, 9–11"),
            (&[65_534, 65_535], "65534, 65535"),
            (&[3, 1], "3, 1"),
        ];
        for (numbers, text) in table {
            assert_eq!(ranges(numbers), text);
        }
    }

    #[test]
    fn a_node_that_is_gone_comes_first_and_its_lanes_are_nobodys() {
        let now = Timestamp::from_millis(1_767_225_600_000);
        let node = |id: &str, live: bool, lanes: &[u16]| {
            json!({
                "id": id, "name": id, "version": "1", "address": "a", "live": live,
                "joined_at": now, "seen_at": now, "lanes": lanes, "hubs": [],
                "in_flight": 0, "lag_seconds": 0.0, "until": now,
            })
        };
        let answer = json!({
            "me": "b",
            "lanes": 8,
            "nodes": [node("b", true, &[0, 1, 2]), node("c", false, &[3]), node("a", true, &[4])],
        });
        let fleet = Fleet::read(serde_json::from_value(answer).expect("an answer"), now);
        let order: Vec<(&str, bool)> =
            fleet.nodes.iter().map(|node| (node.id.as_str(), node.is_me)).collect();
        assert_eq!(order, [("c", false), ("a", false), ("b", true)]);
        assert_eq!((fleet.lost(), fleet.unheld(), fleet.is_shared), (1, 4, true));
        assert!(fleet.of_several().is_some());
        let alone = json!({"me": null, "lanes": 0, "nodes": []});
        let alone = Fleet::read(serde_json::from_value(alone).expect("an answer"), now);
        assert!(!alone.is_shared && alone.unheld() == 0 && alone.of_several().is_none());
    }
}
