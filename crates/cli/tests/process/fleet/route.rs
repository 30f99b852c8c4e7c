//! Where events go: endpoints with and without order, spread over the lanes, and what has to be true
//! of all that arrives there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::census::{Census, lane_of};
use super::load::{Ack, Kind};
use super::{Fleet, NAMES};
use crate::gateway::payload;
use crate::sink::{Arrival, Reply, Sink};

/// Endpoints of either sort.
const PAIRS: u8 = 4;
/// A line's producer waits for each acknowledgement: so there is room between two events.
const IN_A_LINE_PER_SECOND: u32 = 25;
const PRODUCERS_WITHOUT_ORDER: usize = 4;
const MAX_IN_FLIGHT: usize = 8;
/// How long an endpoint takes to answer, so that something is in flight at any moment.
const ANSWERING: Duration = Duration::from_millis(20);
const ANSWERING_IN_A_LINE: Duration = Duration::from_millis(4);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ordering {
    Fifo,
    None,
}

pub(super) struct Target {
    pub(super) endpoint: String,
    pub(super) sink: Sink,
    pub(super) ordering: Ordering,
    /// The kinds that it gets, by their numbers.
    kinds: Vec<u8>,
}

impl Target {
    pub(super) const fn most_in_flight(&self) -> usize {
        match self.ordering {
            Ordering::Fifo => 1,
            Ordering::None => MAX_IN_FLIGHT,
        }
    }

    /// What has to arrive there.
    fn expected<'a>(&self, acks: &'a [Ack]) -> Vec<&'a Ack> {
        acks.iter().filter(|ack| self.kinds.contains(&kind_of(ack.number))).collect()
    }
}

/// A delivery that arrived again.
#[derive(Debug, Clone)]
pub(super) struct Repeat {
    pub(super) target: usize,
    pub(super) delivery: String,
    pub(super) before: Instant,
    pub(super) again: Instant,
}

pub(super) struct Route {
    pub(super) targets: Vec<Target>,
}

impl Route {
    /// Kinds `line.K` go to an ordered endpoint and to one without order; kinds `plain.K` go to the
    /// latter only. Each endpoint is made through another node.
    pub(super) async fn open(fleet: &Fleet) -> Self {
        let mut targets = Vec::new();
        for pair in 0..PAIRS {
            for ordering in [Ordering::Fifo, Ordering::None] {
                let (word, delay, kinds) = match ordering {
                    Ordering::Fifo => ("fifo", ANSWERING_IN_A_LINE, vec![pair]),
                    Ordering::None => ("none", ANSWERING, vec![pair, PAIRS + pair]),
                };
                let sink = Sink::start(move |_| Reply::After(delay)).await;
                let spec = json!({
                    "name": format!("{word} {pair}"),
                    "url": sink.url(),
                    "event_types": kinds.iter().map(|kind| name_of(*kind)).collect::<Vec<_>>(),
                    "ordering": word,
                    "policy": { "schedule": { "list": ["200ms"] }, "max_attempts": 1000 },
                    "max_in_flight": match ordering {
                        Ordering::Fifo => 1,
                        Ordering::None => MAX_IN_FLIGHT,
                    },
                });
                let node = fleet.node(targets.len() % NAMES.len());
                let endpoint = node.create_endpoint(spec).await;
                targets.push(Target { endpoint, sink, ordering, kinds });
            }
        }
        Self { targets }
    }

    /// So many events a second, of all kinds together.
    pub(super) fn kinds(per_second: u32) -> Vec<Kind> {
        let of_a_pair = per_second / u32::from(PAIRS);
        let lines = IN_A_LINE_PER_SECOND.min(of_a_pair / 2);
        let plain = of_a_pair - lines;
        let kind = |number: u8| {
            let (per_second, producers) =
                if number < PAIRS { (lines, 1) } else { (plain, PRODUCERS_WITHOUT_ORDER) };
            Kind { name: name_of(number), per_second, producers }
        };
        (0..2 * PAIRS).map(kind).collect()
    }

    /// The targets that a node carries, or carried when it was last heard of.
    pub(super) fn carried_by(&self, census: &Census, node: &Value) -> BTreeSet<usize> {
        let lanes = census.held_by(node);
        let carried = |target: &usize| {
            lanes.contains(&lane_of(&self.targets[*target].endpoint, census.lanes))
        };
        (0..self.targets.len()).filter(carried).collect()
    }

    /// Waits until something has arrived everywhere since then.
    pub(super) async fn reached_since(&self, since: Instant) {
        for target in &self.targets {
            let recent = |seen: &crate::sink::Seen| {
                seen.arrivals.last().is_some_and(|arrival| arrival.at >= since)
            };
            target.sink.until("arrivals at every endpoint", recent).await;
        }
    }

    /// Waits until everything acknowledged has arrived, and been recorded, everywhere, and checks
    /// that it is what was sent, in its order. Returns what arrived more than once.
    pub(super) async fn check(&self, fleet: &Fleet, acks: &[Ack]) -> Vec<Repeat> {
        let mut repeats = Vec::new();
        let mut deliveries = 0;
        for target in &self.targets {
            let expected = target.expected(acks);
            let all = |seen: &crate::sink::Seen| seen.delivered.len() >= expected.len();
            target.sink.until("the arrival of everything acknowledged", all).await;
            deliveries += expected.len();
        }
        fleet.all_delivered(acks.len(), deliveries).await;
        for (index, target) in self.targets.iter().enumerate() {
            let arrivals = target.sink.arrivals();
            check_complete(&arrivals, &target.expected(acks));
            match target.ordering {
                Ordering::Fifo => check_order(&arrivals),
                Ordering::None => {}
            }
            repeats.extend(repeats_among(index, &arrivals));
        }
        println!("{deliveries} deliveries, {} repeated", repeats.len());
        repeats
    }
}

fn name_of(kind: u8) -> String {
    if kind < PAIRS { format!("line.{kind}") } else { format!("plain.{}", kind - PAIRS) }
}

fn kind_of(number: u64) -> u8 {
    u8::try_from(number % u64::from(2 * PAIRS)).expect("there are a few")
}

/// Everything acknowledged has arrived, as it was sent, under the id that was given for it; and
/// nothing else.
pub(super) fn check_complete(arrivals: &[Arrival], acks: &[&Ack]) {
    let mut events: HashMap<u64, (&str, &str)> = HashMap::new();
    for arrival in arrivals {
        assert_eq!(arrival.body, payload(arrival.number), "{arrival:?}");
        let is = (arrival.event.as_str(), arrival.delivery.as_str());
        assert_eq!(*events.entry(arrival.number).or_insert(is), is, "{arrival:?}");
    }
    for ack in acks {
        let arrived = events.get(&ack.number).map(|(event, _)| *event);
        assert_eq!(arrived, Some(ack.event.as_str()), "{ack:?} was lost");
    }
    assert_eq!(events.len(), acks.len(), "something arrived that nobody sent");
}

/// No event arrives after a later one, be it for the first time or again.
pub(super) fn check_order(arrivals: &[Arrival]) {
    for pair in arrivals.windows(2) {
        assert!(pair[0].number <= pair[1].number, "{:?} arrived before {:?}", pair[0], pair[1]);
    }
}

pub(super) fn repeats_among(target: usize, arrivals: &[Arrival]) -> Vec<Repeat> {
    let mut last: BTreeMap<&str, Instant> = BTreeMap::new();
    let mut repeats = Vec::new();
    for arrival in arrivals {
        if let Some(before) = last.insert(&arrival.delivery, arrival.at) {
            let delivery = arrival.delivery.clone();
            repeats.push(Repeat { target, delivery, before, again: arrival.at });
        }
    }
    repeats
}
