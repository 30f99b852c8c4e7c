//! Nodes are killed under load: nothing is lost, the order is kept, nothing is repeated but what was
//! in flight, and others take over in time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::load::Load;
use super::route::{Repeat, Route};
use super::{Fleet, LEASE, scaled};

const PER_SECOND: u32 = 500;
const SHORT: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_mins(1);
const KILL_EVERY: Duration = Duration::from_secs(5);

/// Others take over within the lease and this …
const TAKEOVER: Duration = Duration::from_secs(1);
/// … on a machine that does nothing else. Here it also runs the producers, the endpoints, the
/// database and perhaps other tests.
const SLACK: Duration = Duration::from_secs(3);

/// What had been sent when a node was killed may be written down so much later.
const LEFTOVERS: Duration = Duration::from_secs(1);

struct Kill {
    at: Instant,
    successor: Successor,
    /// The targets that the killed node carried.
    carried: BTreeSet<usize>,
}

/// What comes after a killed node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Successor {
    /// One on another machine: others carry on when the lease has ended.
    Elsewhere,
    /// Itself: it takes back what it had.
    InPlace,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_killed_under_load_lose_nothing_and_are_replaced_in_time() {
    let mut fleet = Fleet::start().await;
    let route = Route::open(&fleet).await;
    fleet.settled().await;

    let mut load = Load::start(Route::kinds(PER_SECOND), fleet.roster());
    let duration = scaled(SHORT, LONG);
    let mut kills = Vec::new();
    let mut next = KILL_EVERY;
    while next < duration {
        tokio::time::sleep_until((load.started() + next).into()).await;
        let (victim, id) = next_victim(&fleet, &route, kills.len()).await;
        let at = Instant::now();
        fleet.kill(victim);
        // Nobody takes anything from it before its lease has ended: so this is what it had.
        let census = fleet.census(fleet.other_than(victim)).await.expect("it answers");
        let carried = route.carried_by(&census, &id);
        println!("kill {} of node {victim}, which carried {carried:?}", kills.len());
        let successor =
            if kills.len() % 2 == 0 { Successor::Elsewhere } else { Successor::InPlace };
        kills.push(Kill { at, successor, carried });
        match successor {
            Successor::Elsewhere => fleet.replace(victim).await,
            Successor::InPlace => fleet.launch(victim).await,
        }
        next += KILL_EVERY;
    }
    tokio::time::sleep_until((load.started() + duration).into()).await;
    let acks = load.finish().await;
    let repeats = route.check(&fleet, &acks).await;
    check_repeats(&route, &repeats, &kills);
    check_takeovers(&route, &kills);
}

/// One after the other, if it carries anything.
async fn next_victim(fleet: &Fleet, route: &Route, kill: usize) -> (usize, Value) {
    for node in (kill..kill + 3).map(|node| node % 3) {
        let census = fleet.census(node).await.expect("it answers");
        if !route.carried_by(&census, &census.me).is_empty() {
            return (node, census.me);
        }
    }
    panic!("nobody carries anything");
}

/// What arrives again was in flight on a node when it was killed: of every endpoint that it carried,
/// no more than its slots.
fn check_repeats(route: &Route, repeats: &[Repeat], kills: &[Kill]) {
    let mut explained = vec![vec![0; route.targets.len()]; kills.len()];
    for repeat in repeats {
        let explains = |kill: &Kill| {
            repeat.before <= kill.at + LEFTOVERS
                && kill.at <= repeat.again
                && kill.carried.contains(&repeat.target)
        };
        // The first that does: a later one would find it settled.
        let kill = kills.iter().position(explains);
        let kill = kill.unwrap_or_else(|| {
            panic!("{} was not in flight at a kill: {repeat:?}", repeat.delivery)
        });
        explained[kill][repeat.target] += 1;
    }
    println!("repeated after each kill, by endpoint: {explained:?}");
    for after_kill in explained {
        for (repeated, target) in after_kill.into_iter().zip(&route.targets) {
            assert!(repeated <= target.most_in_flight(), "{repeated} at {}", target.endpoint);
        }
    }
}

/// The first arrival at each endpoint that a killed node carried.
fn check_takeovers(route: &Route, kills: &[Kill]) {
    for successor in [Successor::Elsewhere, Successor::InPlace] {
        let mut longest: Option<Duration> = None;
        for kill in kills.iter().filter(|kill| kill.successor == successor) {
            for target in &kill.carried {
                let arrivals = route.targets[*target].sink.arrivals();
                let first = arrivals.iter().find(|arrival| arrival.at > kill.at + LEFTOVERS);
                let first = first.expect("everything arrives in the end");
                longest = longest.max(Some(first.at - kill.at));
            }
        }
        let longest = longest.expect("whoever was killed carried something");
        println!("{successor:?}: taken over within {longest:?}, with a lease of {LEASE:?}");
        assert!(longest <= LEASE + TAKEOVER + SLACK, "{successor:?}: {longest:?}");
    }
}
