//! The nodes as text: a line for each, and one for all. What came from outside is made inert.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::{Timestamp, span};

use super::view::{Node, Nodes};
use crate::output::{Table, inert, inert_to};

const HEADINGS: [&str; COLUMNS] =
    ["node", "id", "state", "lanes", "hubs", "in flight", "lag", "version", "address", "last seen"];
const COLUMNS: usize = 10;

/// Lanes next to one another are shown as one range; of more ranges than this, only the first.
const MAX_RANGES: usize = 4;
/// Of a node's name: a mark may follow it in its cell.
const MAX_NAME_CHARS: usize = 50;

/// The whole view, ending in a newline.
pub(super) fn render(nodes: &Nodes, now: Timestamp) -> String {
    let Some(me) = &nodes.me else {
        return "One node at a time: this gateway keeps its data in a file that it has to itself, and \
                carries everything.\nSeveral nodes can share a PostgreSQL: `postrider serve --store \
                postgres://…`\n"
            .to_owned();
    };
    let mut table = Table::new(&HEADINGS);
    for node in &nodes.members {
        table.row(cells(node, node.id == *me, now));
    }
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _infallible = table.write(&mut text);
    format!("{}\n{}\n", String::from_utf8_lossy(&text), summary(nodes, me))
}

fn cells(node: &Node, is_me: bool, now: Timestamp) -> [String; COLUMNS] {
    let (state, since) = if node.live { ("live", node.joined_at) } else { ("gone", node.until) };
    let lanes = match node.lanes.len() {
        0 => "0".to_owned(),
        count => format!("{count}: {}", ranges(&node.lanes)),
    };
    let lag = Duration::try_from_secs_f64(node.lag_seconds).unwrap_or_default();
    [
        format!("{}{}", inert_to(&node.name, MAX_NAME_CHARS), if is_me { " *" } else { "" }),
        node.id.clone(),
        format!("{state} {}", short(now.since(since))),
        lanes,
        node.hubs.to_string(),
        node.in_flight.to_string(),
        short(lag),
        node.version.clone(),
        node.address.clone(),
        format!("{} ago", short(now.since(node.seen_at))),
    ]
}

fn summary(nodes: &Nodes, me: &str) -> String {
    let live = nodes.members.iter().filter(|node| node.live).count();
    let gone = match nodes.members.len() - live {
        0 => String::new(),
        gone => format!(", {gone} gone"),
    };
    let lanes = usize::from(nodes.lanes);
    let missing = nodes.uncarried();
    let carried = match missing.len() {
        0 => format!("{lanes} of {lanes} lanes carried"),
        count => {
            format!("{} of {lanes} lanes carried, nobody has {}", lanes - count, all(&missing))
        }
    };
    let named = nodes.members.iter().find(|node| node.id == me).map_or(me, |node| &node.name);
    format!("{live} live{gone}; {carried}; {} answered", inert(named))
}

/// `0–4, 9`, or the beginning of it.
fn ranges(lanes: &BTreeSet<u16>) -> String {
    let ranges = runs(lanes);
    let mut shown: Vec<String> = ranges.iter().copied().take(MAX_RANGES).map(range).collect();
    if ranges.len() > MAX_RANGES {
        shown.push("…".to_owned());
    }
    shown.join(", ")
}

fn all(lanes: &BTreeSet<u16>) -> String {
    runs(lanes).into_iter().map(range).collect::<Vec<_>>().join(", ")
}

/// The first and the last of lanes that follow one another.
fn runs(lanes: &BTreeSet<u16>) -> Vec<(u16, u16)> {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for &lane in lanes {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(lane) => *last = lane,
            Some(_) | None => runs.push((lane, lane)),
        }
    }
    runs
}

fn range((first, last): (u16, u16)) -> String {
    if first == last { first.to_string() } else { format!("{first}–{last}") }
}

/// Its two largest units, or milliseconds.
fn short(span: Duration) -> String {
    const SECOND: u64 = 1_000;
    const HOUR: u64 = 3_600 * SECOND;
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let unit = match millis {
        0..SECOND => 1,
        SECOND..HOUR => SECOND,
        HOUR.. if millis < 24 * HOUR => 60 * SECOND,
        HOUR.. => HOUR,
    };
    span::format(Duration::from_millis(millis - millis % unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_767_225_600_000 + millis)
    }

    fn node(id: &str, name: &str, lanes: impl IntoIterator<Item = u16>) -> Node {
        Node {
            id: id.into(),
            name: name.into(),
            version: "1.2.3".into(),
            address: "10.0.0.5:7070".into(),
            live: true,
            joined_at: at(-11_533_000),
            seen_at: at(-1_200),
            until: at(8_800),
            lanes: lanes.into_iter().collect(),
            hubs: 0,
            in_flight: 0,
            lag_seconds: 0.0,
        }
    }

    fn of(members: Vec<Node>, lanes: u16) -> Nodes {
        Nodes { me: Some("node_2".into()), lanes, members }
    }

    #[test]
    fn each_node_has_a_line_and_all_have_one() {
        let gone = Node { live: false, until: at(-130_000), ..node("node_1", "old", []) };
        let busy = Node {
            hubs: 2,
            in_flight: 14,
            lag_seconds: 1.25,
            ..node("node_2", "web-1", (0..5).chain([9]))
        };
        let shown = render(&of(vec![gone, busy, node("node_13", "b", [5, 6, 7, 8])], 10), at(0));
        let expected = "\
node     id       state       lanes      hubs  in flight  lag  version  address        last seen
old      node_1   gone 2m10s  0          0     0          0s   1.2.3    10.0.0.5:7070  1s ago
web-1 *  node_2   live 3h12m  6: 0–4, 9  2     14         1s   1.2.3    10.0.0.5:7070  1s ago
b        node_13  live 3h12m  4: 5–8     0     0          0s   1.2.3    10.0.0.5:7070  1s ago

2 live, 1 gone; 10 of 10 lanes carried; web-1 answered
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn lanes_that_nobody_carries_are_named_each_of_them() {
        let dead = Node { live: false, ..node("node_1", "a", [0, 1, 2]) };
        let odd = (3..20).filter(|lane| lane % 2 == 1);
        let shown = render(&of(vec![dead, node("node_2", "b", odd)], 20), at(0));
        let last = "1 live, 1 gone; 9 of 20 lanes carried, nobody has 0–2, 4, 6, 8, 10, 12, 14, 16, 18; \
                    b answered";
        assert_eq!(shown.lines().next_back(), Some(last));
        assert!(shown.contains("9: 3, 5, 7, 9, …"), "{shown}");
    }

    #[test]
    fn a_store_that_one_node_has_to_itself_is_said_to_be_so() {
        let shown = render(&Nodes { me: None, lanes: 0, members: vec![] }, at(0));
        assert!(shown.contains("One node at a time"), "{shown}");
        assert!(shown.contains("postgres://"), "{shown}");
    }

    #[test]
    fn what_a_node_calls_itself_cannot_move_the_cursor() {
        let long = "x".repeat(500);
        for name in ["a\x1b[2J\nb", long.as_str()] {
            let shown = render(&of(vec![node("node_2", name, [0])], 1), at(0));
            assert!(!shown.contains('\x1b'), "{shown:?}");
            assert_eq!(shown.lines().count(), 4, "{shown}");
            assert!(shown.lines().all(|line| line.chars().count() < 200), "{shown}");
        }
    }

    #[test]
    fn a_span_is_shown_by_its_two_largest_units() {
        for (millis, expected) in [
            (0, "0s"),
            (250, "250ms"),
            (1_999, "1s"),
            (65_500, "1m5s"),
            (3_600_000, "1h"),
            (11_533_000, "3h12m"),
            (93_784_000, "1d2h"),
        ] {
            assert_eq!(short(Duration::from_millis(millis)), expected);
        }
    }
}
