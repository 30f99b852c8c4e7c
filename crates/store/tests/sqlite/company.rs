//! Several nodes on one file: what only a store can be asked that goes by the time it is told.

use std::time::Duration;

use postrider_core::lane::MAX_LANES;
use postrider_store::Fleet;
use postrider_store::fleet::{Beat, Joined, NUMBER_REST, NewNode, NodeId, Pulse};
use postrider_store::journal::Journal as _;

use super::*;

const LEASE: Duration = Duration::from_secs(10);
const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_hours(1);

fn shared(directory: &Directory) -> Sqlite {
    directory.store(Options { shared: true, ..Options::default() })
}

async fn join(store: &Sqlite, now: Timestamp) -> Joined {
    let new = NewNode {
        name: "node".to_owned(),
        version: String::new(),
        address: String::new(),
        place: None,
        lease: LEASE,
        lanes: 8,
        now,
    };
    store.join(new).await.expect("joined")
}

async fn beat(store: &Sqlite, node: NodeId, now: Timestamp) -> Option<Beat> {
    let pulse = Pulse { node, takes: true, now, listens: false, in_flight: 0, waiting_since: None };
    store.beat(pulse).await.expect("answered")
}

fn lanes(beat: &Beat, node: NodeId) -> usize {
    beat.held.iter().filter(|held| held.node == node).count()
}

#[tokio::test]
async fn a_store_has_one_node_unless_it_is_opened_for_more() {
    let directory = Directory::new();
    assert!(directory.store(Options::default()).fleet().is_none());
    assert!(shared(&directory).fleet().is_some());
}

#[tokio::test]
async fn a_lease_ends_at_its_end_and_not_before() {
    let directory = Directory::new();
    let store = shared(&directory);
    let (first, second) = (join(&store, NOW).await.node, join(&store, NOW).await.node);
    beat(&store, first, NOW).await.expect("a member");
    let end = NOW.plus(LEASE);
    let before = beat(&store, second, end.minus(MILLISECOND)).await.expect("a member");
    assert_eq!((before.nodes.len(), before.next_lapse), (2, Some(MILLISECOND)));
    assert_eq!((lanes(&before, first), lanes(&before, second)), (4, 4));
    let after = beat(&store, second, end).await.expect("a member");
    assert_eq!((after.nodes.len(), after.next_lapse), (1, None));
    assert_eq!((lanes(&after, first), lanes(&after, second)), (0, 8));
}

#[tokio::test]
async fn a_number_is_given_again_when_it_has_rested() {
    let directory = Directory::new();
    let store = shared(&directory);
    let away = join(&store, NOW).await;
    let left = join(&store, NOW).await;
    store.leave(left.node).await.expect("left");
    let rested = NOW.plus(NUMBER_REST);
    assert_eq!(join(&store, rested.minus(MILLISECOND)).await.number, 2);
    assert_eq!(join(&store, rested).await.number, 1, "it left when it joined");
    let heir = join(&store, rested.plus(LEASE)).await;
    assert_eq!(heir.number, 0, "a lease of the other later");

    // Two with one number would make the same ids.
    assert!(beat(&store, away.node, rested.plus(LEASE)).await.is_none());
    let last = beat(&store, heir.node, rested.plus(LEASE)).await.expect("a member");
    assert!(last.nodes.iter().all(|member| member.node != away.node));
}

#[tokio::test]
async fn one_that_was_away_for_long_is_a_member_while_its_number_is_its_own() {
    let directory = Directory::new();
    let store = shared(&directory);
    let away = join(&store, NOW).await;
    let before = beat(&store, away.node, NOW).await.expect("a member");
    let later = NOW.plus(30 * NUMBER_REST);
    let back = beat(&store, away.node, later).await.expect("a member");
    assert_eq!(back.held, before.held, "nobody took it");
}

#[tokio::test]
async fn a_node_that_ended_is_forgotten_after_an_hour() {
    let directory = Directory::new();
    let store = shared(&directory);
    let first = join(&store, NOW).await;
    let before = beat(&store, first.node, NOW).await.expect("a member");
    let ended = NOW.plus(LEASE);
    let known = async |now| store.nodes(now).await.expect("a list").len();
    assert_eq!(known(ended.plus(HOUR)).await, 1);
    assert_eq!(known(ended.plus(HOUR).plus(MILLISECOND)).await, 0);
    let heir = join(&store, ended.plus(HOUR).plus(MILLISECOND)).await;
    let late = ended.plus(HOUR).plus(2 * MILLISECOND);
    assert!(beat(&store, first.node, late).await.is_none(), "it has to join again");
    let after = beat(&store, heir.node, late).await.expect("a member");
    assert_eq!(lanes(&after, heir.node), 8, "nothing stays with what is forgotten");
    let epochs = |beat: &Beat| beat.held.iter().map(|held| held.tenure.epoch).collect::<Vec<_>>();
    assert!(epochs(&before).iter().zip(epochs(&after)).all(|(old, new)| new == old + 1));
}

#[tokio::test]
async fn time_does_not_go_back_whatever_is_told() {
    let directory = Directory::new();
    let store = shared(&directory);
    let (ahead, behind) = (join(&store, NOW).await.node, join(&store, NOW).await.node);
    let later = NOW.plus(Duration::from_mins(5));
    beat(&store, ahead, later).await.expect("a member");
    let late = beat(&store, behind, NOW).await.expect("a member");
    assert_eq!(late.now, later, "nodes with other clocks agree");
    assert_eq!((late.nodes.len(), late.next_lapse), (2, Some(LEASE)));
    store.close().await;

    let store = shared(&directory);
    store.leave(ahead).await.expect("left");
    let nodes = store.nodes(NOW).await.expect("a list");
    assert_eq!((nodes[0].until, nodes[0].live), (later, false), "nor after it was opened again");
    assert!(nodes[1].live);
}

#[tokio::test]
async fn lanes_are_bounded() {
    for (wanted, lanes) in [(0, 1), (1, 1), (MAX_LANES, MAX_LANES), (u16::MAX, MAX_LANES)] {
        let directory = Directory::new();
        let store = shared(&directory);
        let new = NewNode {
            name: String::new(),
            version: String::new(),
            address: String::new(),
            place: None,
            lease: Duration::MAX,
            lanes: wanted,
            now: NOW,
        };
        let joined = store.join(new).await.expect("joined");
        assert_eq!(joined.lanes, lanes);
        let beat = beat(&store, joined.node, NOW).await.expect("a member");
        assert_eq!(beat.held.len(), usize::from(lanes));
    }
}
