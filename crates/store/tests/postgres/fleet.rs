//! Several nodes on one database: who has which lanes, whatever joins, leaves, dies or comes at the
//! same time.

use std::collections::{BTreeMap, HashMap};

use postrider_core::{HubId, Lane};
use postrider_store::fleet::{
    Beat, Charge, Fleet as _, Joined, NewNode, NodeId, NodeRecord, Pulse, Tenure,
};
use postrider_store::{Error, Ledger as _};
use tokio::task::JoinSet;

use super::*;

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(300);
const LANES: u16 = 64;

/// Nobody waits for more rounds than this for what is to happen.
const MAX_ROUNDS: usize = 2_000;

pub(super) fn new_node(lease: Duration) -> NewNode {
    NewNode {
        name: "a node".to_owned(),
        version: "1.2.3".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        place: None,
        lease,
        lanes: LANES,
        // The server knows better.
        now: Timestamp::from_millis(5),
    }
}

fn pulse(node: NodeId) -> Pulse {
    Pulse {
        node,
        takes: true,
        now: Timestamp::from_millis(5),
        listens: false,
        in_flight: 0,
        waiting_since: None,
    }
}

async fn beat(store: &Postgres, node: NodeId) -> Beat {
    store.beat(pulse(node)).await.expect("answered").expect("a member")
}

fn lanes_of(beat: &Beat, node: NodeId) -> Vec<Tenure> {
    let mine = beat.held.iter().filter(|held| held.node == node).map(|held| held.tenure);
    mine.filter(|tenure| matches!(tenure.charge, Charge::Lane(_))).collect()
}

async fn records(store: &Postgres) -> Vec<NodeRecord> {
    store.nodes(Timestamp::from_millis(5)).await.expect("a list")
}

/// A node in a process of its own.
struct Node {
    store: Postgres,
    id: NodeId,
}

impl Node {
    async fn join(database: &Database, lease: Duration) -> Self {
        let store = database.store(few()).await;
        let Joined { node, lanes, .. } = store.join(new_node(lease)).await.expect("it joins");
        assert_eq!(lanes, LANES);
        Self { store, id: node }
    }

    /// Beats, and gives up what it has beyond its share. Returns how many lanes it has then.
    async fn turn(&self) -> usize {
        let beat = beat(&self.store, self.id).await;
        let mut lanes = lanes_of(&beat, self.id);
        let excess: Vec<Tenure> = lanes.drain(..beat.surplus).collect();
        self.store.release(self.id, excess).await.expect("released");
        lanes.len()
    }
}

/// What an even sharing among `count` looks like, in the order they joined.
fn even(count: usize) -> Vec<usize> {
    let lanes = usize::from(LANES);
    (0..count).map(|place| lanes / count + usize::from(place < lanes % count)).collect()
}

/// Every node has its turn until all have what is fair; returns how many rounds that took.
async fn settle(nodes: &[Node]) -> usize {
    for round in 1..MAX_ROUNDS {
        let mut shares = Vec::new();
        for node in nodes {
            shares.push(node.turn().await);
        }
        if shares == even(nodes.len()) {
            return round;
        }
    }
    panic!("{} nodes do not agree", nodes.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_are_even_as_nodes_join_and_leave() {
    let database = Database::new();
    let mut nodes = Vec::new();
    for _ in 0..5 {
        nodes.push(Node::join(&database, LONG).await);
        let rounds = settle(&nodes).await;
        assert!(rounds <= 3, "{} nodes took {rounds} rounds", nodes.len());
    }
    // The first, which has more than others; one in the middle; and the last.
    for leaving in [0, 1, 2] {
        let Node { store, id } = nodes.remove(leaving);
        store.leave(id).await.expect("it leaves");
        let rounds = settle(&nodes).await;
        assert!(rounds <= 3, "{} nodes took {rounds} rounds", nodes.len());
        assert!(store.beat(pulse(id)).await.expect("answered").is_none(), "it has left");
        let left = records(&store).await.into_iter().find(|record| record.node == id);
        let left = left.expect("it is remembered");
        assert!(!left.live && left.held.is_empty(), "{left:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_node_had_is_shared_out_when_its_lease_ends() {
    let database = Database::new();
    let nodes = [Node::join(&database, LONG).await, Node::join(&database, LONG).await];
    settle(&nodes).await;
    let dying = Node::join(&database, SHORT).await;
    let hub = HubId::from_i64(1 << 40);
    let seized = dying.store.seize(dying.id, hub).await.expect("seized");
    assert_eq!(seized, Tenure { charge: Charge::Hub(hub), epoch: 1 });
    let mut before = beat(&dying.store, dying.id).await;
    for _ in 0..MAX_ROUNDS {
        if !lanes_of(&before, dying.id).is_empty() {
            break;
        }
        for node in &nodes {
            node.turn().await;
        }
        before = beat(&dying.store, dying.id).await;
    }
    assert!(!lanes_of(&before, dying.id).is_empty(), "room was made for it");
    // It is heard of no more.
    settle(&nodes).await;
    let after = beat(&nodes[0].store, nodes[0].id).await;
    assert!(after.now > before.now);
    assert_eq!(after.nodes.len(), 2);
    for lost in lanes_of(&before, dying.id) {
        let now = after.held.iter().find(|held| held.tenure.charge == lost.charge);
        let now = now.expect("somebody has it");
        assert!(now.node != dying.id && now.tenure.epoch > lost.epoch, "{now:?}");
    }
    assert!(after.held.iter().all(|held| held.tenure != seized), "hubs are not taken by beats");
    // Late as it is, it has not lost what nobody has taken: the hub.
    let late = beat(&dying.store, dying.id).await;
    assert!(late.held.iter().any(|held| held.node == dying.id && held.tenure == seized));
    assert!(lanes_of(&late, dying.id).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_has_no_share_and_takes_nothing() {
    let database = Database::new();
    let nodes = [Node::join(&database, LONG).await, Node::join(&database, LONG).await];
    settle(&nodes).await;
    let [one, two] = nodes;
    let stopping = Pulse { takes: false, ..pulse(one.id) };
    let beat_of_one = one.store.beat(stopping).await.expect("answered").expect("a member");
    assert_eq!(beat_of_one.surplus, 32, "all that it has");
    assert_eq!(beat_of_one.nodes.len(), 2, "it lives");
    assert_eq!(beat(&two.store, two.id).await.surplus, 0);
    let all = lanes_of(&beat_of_one, one.id);
    one.store.release(one.id, all).await.expect("released");
    assert_eq!(two.turn().await, 64, "the whole is its share");
    let again = one.store.beat(stopping).await.expect("answered").expect("a member");
    assert_eq!((again.surplus, lanes_of(&again, one.id).len()), (0, 0));
    one.store.leave(one.id).await.expect("it leaves");
    assert_eq!(two.turn().await, 64);
}

/// A lane that was given up is there for whoever comes first: all come at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_come_at_once_exactly_one_gets_a_lane() {
    const NODES: usize = 8;
    const BEATS: usize = 50;
    let database = Database::new();
    let mut racing = JoinSet::new();
    for number in 0..NODES {
        let node = Node::join(&database, LONG).await;
        racing.spawn(async move {
            let mut seen = Vec::new();
            for turn in 0..BEATS {
                let beat = beat(&node.store, node.id).await;
                let lanes = lanes_of(&beat, node.id);
                // What is too much, and now and then more.
                let some = (beat.surplus + (turn + number) % 3).min(lanes.len());
                node.store.release(node.id, lanes[..some].to_vec()).await.expect("released");
                seen.push(beat);
            }
            (node, seen)
        });
    }
    let mut nodes = Vec::new();
    let mut holders: HashMap<(i64, i64), NodeId> = HashMap::new();
    while let Some(raced) = racing.join_next().await {
        let (node, seen) = raced.expect("no panic");
        let mut epochs: BTreeMap<i64, i64> = BTreeMap::new();
        for beat in &seen {
            let keys: Vec<i64> = beat.held.iter().map(|held| held.tenure.charge.key()).collect();
            assert!(keys.is_sorted_by(|a, b| a < b), "a lane has one holder: {keys:?}");
            for held in &beat.held {
                let Tenure { charge, epoch } = held.tenure;
                let last = epochs.insert(charge.key(), epoch);
                assert!(last <= Some(epoch), "{charge:?} went back from {last:?} to {epoch}");
                let holder = *holders.entry((charge.key(), epoch)).or_insert(held.node);
                assert_eq!(holder, held.node, "two have {charge:?} with epoch {epoch}");
            }
        }
        nodes.push(node);
    }
    assert!(holders.len() > usize::from(LANES) + NODES, "they changed hands");
    nodes.sort_unstable_by_key(|node| node.id);
    settle(&nodes).await;
}

/// Leases end all the time here, and are renewed in the moment in which others look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_taken_from_a_node_before_its_lease_has_ended() {
    const NODES: u64 = 6;
    const BEATS: u64 = 150;
    const LEASE: Duration = Duration::from_millis(4);
    let database = Database::new();
    let mut racing = JoinSet::new();
    for number in 0..NODES {
        let node = Node::join(&database, LEASE).await;
        racing.spawn(async move {
            let mut mine = Vec::new();
            for turn in 0..BEATS {
                let beat = beat(&node.store, node.id).await;
                mine.extend(lanes_of(&beat, node.id).iter().map(|has| (*has, beat.now)));
                tokio::time::sleep(Duration::from_millis((turn * (number + 1)) % 8)).await;
            }
            mine
        });
    }
    // When each tenure was first and last confirmed to whoever had it.
    let mut spans: BTreeMap<(i64, i64), (Timestamp, Timestamp)> = BTreeMap::new();
    while let Some(mine) = racing.join_next().await {
        for (has, at) in mine.expect("no panic") {
            let span = spans.entry((has.charge.key(), has.epoch)).or_insert((at, at));
            *span = (span.0.min(at), span.1.max(at));
        }
    }
    assert!(spans.len() > 10 * usize::from(LANES), "lanes changed hands: {}", spans.len());
    for ((lane, epoch), (_, last)) in &spans {
        if let Some((taken, _)) = spans.get(&(*lane, epoch + 1)) {
            let ended = last.plus(LEASE);
            assert!(*taken >= ended, "lane {lane}, {epoch}: taken {taken:?}, held to {ended:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_one_still_has_is_given_up() {
    let database = Database::new();
    let [one, two] = [Node::join(&database, LONG).await, Node::join(&database, LONG).await];
    let hub = HubId::from_i64(1 << 40);
    let first = one.store.seize(one.id, hub).await.expect("seized");
    let second = two.store.seize(two.id, hub).await.expect("seized");
    assert_eq!(second.epoch, first.epoch + 1);
    let has = async |node: &Node| {
        let seen = beat(&node.store, node.id).await;
        seen.held.iter().find(|held| held.tenure.charge == second.charge).copied()
    };
    let older = Tenure { epoch: second.epoch - 1, ..second };
    for (node, tenure) in [(&one, first), (&one, second), (&two, older)] {
        node.store.release(node.id, vec![tenure]).await.expect("answered");
        let held = has(&one).await.expect("it was not given up");
        assert_eq!((held.node, held.tenure), (two.id, second), "{tenure:?}");
    }
    two.store.release(two.id, vec![second]).await.expect("released");
    assert_eq!(has(&two).await, None);
    let third = one.store.seize(one.id, hub).await.expect("seized");
    assert_eq!(third.epoch, second.epoch + 1, "it only grows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_rests_before_another_has_it() {
    let database = Database::new();
    let store = database.store(few()).await;
    let join = async || store.join(new_node(LONG)).await.expect("it joins");
    let ended = |joined: Joined, ago: &str| {
        let set = format!("UPDATE postrider.nodes SET until = postrider.clock_ms() - {ago}");
        database.sql(&format!("{set} WHERE id = {}", joined.node.0));
    };
    let [zero, one] = [join().await, join().await];
    assert_eq!((zero.number, one.number), (0, 1));
    store.leave(zero.node).await.expect("it leaves");
    ended(one, "1");
    assert_eq!(join().await.number, 2, "both rest");
    ended(zero, "119000");
    assert_eq!(join().await.number, 3, "it still rests");
    ended(one, "121000");
    assert_eq!(join().await.number, 1);
    let heir = store.beat(pulse(one.node)).await.expect("answered");
    assert!(heir.is_none(), "another makes ids with its number");

    database.sql(
        "INSERT INTO postrider.nodes (number, name, version, address, lease_ms, joined_at, seen_at, \
         until) SELECT n, '', '', '', 1, 0, 0, postrider.clock_ms() FROM generate_series(0, 255) n",
    );
    let refused = store.join(new_node(LONG)).await.expect_err("no number is free");
    assert!(matches!(&refused, Error::Refused(said) if said.contains("256")), "{refused}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_forgotten_joins_again() {
    let database = Database::new();
    let node = Node::join(&database, LONG).await;
    assert_eq!(node.turn().await, 64);
    database.sql("UPDATE postrider.nodes SET until = until - 2 * 3600000");
    let other = Node::join(&database, LONG).await;
    assert!(node.store.beat(pulse(node.id)).await.expect("answered").is_none());
    assert_eq!(records(&node.store).await.len(), 1, "it is not remembered");
    assert_eq!(other.turn().await, 64);
    let Joined { node: id, .. } = node.store.join(new_node(LONG)).await.expect("it joins again");
    assert!(id > other.id);
    settle(&[other, Node { store: node.store, id }]).await;
}

#[tokio::test]
async fn what_a_node_says_of_itself_is_seen_by_the_clock_of_the_server() {
    let database = Database::new();
    let clock = || database.sql("SELECT postrider.clock_ms()").parse().expect("a number");
    let before: i64 = clock();
    let node = Node::join(&database, LONG).await;
    let said = Pulse {
        listens: true,
        in_flight: 7,
        waiting_since: Some(Timestamp::from_millis(9)),
        ..pulse(node.id)
    };
    let beat = node.store.beat(said).await.expect("answered").expect("a member");
    let after = clock();
    assert!((before..=after).contains(&beat.now.as_millis()), "{:?}", beat.now);
    assert!(beat.nodes[0].listens && beat.next_lapse.is_none() && beat.revision >= 1);
    let [record] = &records(&node.store).await[..] else { panic!("one node") };
    let (name, version, address) = (&*record.name, &*record.version, &*record.address);
    assert_eq!((name, version, address), ("a node", "1.2.3", "127.0.0.1:1"));
    assert_eq!((record.seen_at, record.until), (beat.now, beat.now.plus(LONG)));
    assert!((before..=after).contains(&record.joined_at.as_millis()));
    assert!(record.live && record.in_flight == 7 && record.held.len() == usize::from(LANES));
    assert_eq!(record.waiting_since, said.waiting_since);
    let other = Node::join(&database, SHORT).await;
    let beat = self::beat(&node.store, node.id).await;
    let lapse = beat.next_lapse.expect("the other lives");
    assert!(lapse <= SHORT && beat.nodes[1].node == other.id, "{lapse:?}");
}

#[tokio::test]
async fn the_first_that_joins_says_how_many_lanes_there_are() {
    let database = Database::new();
    let store = database.store(few()).await;
    for (wanted, has) in [(7, 7), (64, 7), (0, 7)] {
        let new = NewNode { lanes: wanted, ..new_node(LONG) };
        assert_eq!(store.join(new).await.expect("it joins").lanes, has, "{wanted}");
    }
    let beat = beat(&store, NodeId(1)).await;
    let lanes: Vec<Charge> = lanes_of(&beat, NodeId(1)).iter().map(|held| held.charge).collect();
    assert_eq!(lanes, [0, 1, 2].map(|lane| Charge::Lane(Lane(lane))));
    store.close().await;
    assert!(matches!(store.beat(pulse(NodeId(1))).await, Err(Error::Closed)));
}

#[tokio::test]
async fn every_node_counts_in_rows_of_its_own() {
    let database = Database::new();
    let [zero, one] = [Node::join(&database, LONG).await, Node::join(&database, LONG).await];
    for (number, node) in (0..).zip([&zero, &one]) {
        node.store.append(vec![event(number, &Bytes::new())]).await.expect("stored");
    }
    let slots = database.sql(
        "SELECT string_agg((slot / 65)::text, ' ' ORDER BY slot) FROM postrider.delivery_counts",
    );
    assert_eq!(slots, "0 1");
    let counts = zero.store.counts(TenantId::DEFAULT).await.expect("counted");
    assert_eq!(counts[0].deliveries, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_endpoints_are_looked_at_by_their_indexes() {
    const MANY: i64 = 5_000;
    let database = Database::new();
    database.sql("VACUUM ANALYZE");
    let store = database.store(few()).await;
    let ids: Vec<EndpointId> = (1..=MANY).map(EndpointId::from_i64).collect();
    let empty = store.look(ids.clone()).await.expect("looked");
    assert!(empty.found.is_empty());
    // Every tenth has a hundred, of which the first by id is not the oldest; every hundredth has
    // something that is due at a time. What is parked, or leased, is nothing to carry.
    database.sql(&format!(
        "SET search_path = postrider; \
         INSERT INTO unfinished (id, tenant_id, event_id, endpoint_id, born, at, attempts, \
             deferrals, tries, fence, state, place, replay) \
         SELECT 1000 * e + n, 1, 1000 - n, e, 5000 + n, 0, 0, 0, 0, 0, 0, 1, false \
             FROM generate_series(10, {MANY}, 10) e, generate_series(1, 100) n \
         UNION ALL SELECT -1000 * e - n, 1, n, e, 0, 7000 + n, 0, 0, 0, 0, 2, 2, false \
             FROM generate_series(100, {MANY}, 100) e, generate_series(1, 3) n \
         UNION ALL SELECT -1000 * e, 1, 1, e, 0, 0, 0, 0, 0, 0, 0, 3 + e % 2, false \
             FROM generate_series(1, {MANY}) e; \
         UPDATE revision SET n = n + 41"
    ));
    database.sql("SELECT pg_stat_reset()");
    let looked = store.look(ids).await.expect("looked");
    store.close().await;
    assert_eq!(looked.revision, empty.revision + 41);
    let mut found: Vec<(i64, Option<i64>, Option<i64>)> = looked
        .found
        .iter()
        .map(|found| {
            let millis = |time: Option<Timestamp>| time.map(Timestamp::as_millis);
            (found.endpoint.as_i64(), millis(found.ready), millis(found.due))
        })
        .collect();
    found.sort_unstable();
    let expected: Vec<_> = (10..=MANY)
        .step_by(10)
        .map(|id| (id, Some(5_100), (id % 100 == 0).then_some(7_001)))
        .collect();
    assert_eq!(found, expected);
    let read = database.sql(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'unfinished'",
    );
    let read: i64 = read.parse().expect("a number");
    assert!(read <= 2 * MANY, "{read} rows were read of what waits");
}
