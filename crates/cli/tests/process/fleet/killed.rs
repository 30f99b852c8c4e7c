//! Nodes are killed under load: nothing is lost, the order is kept, nothing is repeated but what was
//! in flight, and others take over in time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

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
    /// The targets that the killed node carried.
    carried: BTreeSet<usize>,
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
        let victim = kills.len() % 3;
        let id = fleet.census(victim).await.expect("it answers").me;
        let at = Instant::now();
        fleet.kill(victim);
        // Nobody takes anything from it before its lease has ended: so this is what it had.
        let census = fleet.census(fleet.other_than(victim)).await.expect("it answers");
        let carried = route.carried_by(&census, &id);
        println!("kill {} of node {victim}, which carried {carried:?}", kills.len());
        kills.push(Kill { at, carried });
        fleet.launch(victim).await;
        next += KILL_EVERY;
    }
    tokio::time::sleep_until((load.started() + duration).into()).await;
    let acks = load.finish().await;
    let repeats = route.check(&fleet, &acks).await;
    check_repeats(&route, &repeats, &kills);
    check_takeovers(&route, &kills);
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
    let mut longest = Duration::ZERO;
    for kill in kills {
        for target in &kill.carried {
            let arrivals = route.targets[*target].sink.arrivals();
            let first = arrivals.iter().find(|arrival| arrival.at > kill.at + LEFTOVERS);
            let first = first.expect("everything arrives in the end");
            longest = longest.max(first.at - kill.at);
        }
    }
    println!("{} kills; taken over within {longest:?}, with a lease of {LEASE:?}", kills.len());
    assert!(kills.iter().any(|kill| !kill.carried.is_empty()), "no kill hit anything");
    assert!(longest <= LEASE + TAKEOVER + SLACK, "{longest:?}");
}
