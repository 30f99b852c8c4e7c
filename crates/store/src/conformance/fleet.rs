//! What the cases about several nodes share: short words for joining, beating and handing over, and
//! a witness of who carried what.
//!
//! A server goes by its own clock and a file by what it is told, so a case that needs a lease to end
//! lets both go on, and asserts nothing about when that is.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use postrider_core::Timestamp;

use super::scene::Scene;
use crate::fleet::{Beat, Charge, Fleet, Held, Joined, NewNode, NodeId, Pulse, Tenure};

/// Of nodes that live until the case is over.
pub(super) const LONG: Duration = Duration::from_mins(10);
/// Of nodes that are to end.
pub(super) const SHORT: Duration = Duration::from_millis(300);

const STEP: Duration = Duration::from_millis(20);
/// After so many steps without it, what a case waits for will not come.
const MAX_STEPS: usize = 1_000;
/// Handing over comes to rest within so many rounds.
const MAX_ROUNDS: usize = 10;

impl Scene {
    pub(super) fn fleet(&self) -> &dyn Fleet {
        self.store.fleet().expect("it was opened to be shared")
    }

    pub(super) fn newcomer(&self, lease: Duration, lanes: u16) -> NewNode {
        NewNode {
            name: "b\u{fc}ro".to_owned(),
            version: "1.2.3".to_owned(),
            address: "127.0.0.1:8080".to_owned(),
            place: None,
            lease,
            lanes,
            now: self.now,
        }
    }

    pub(super) async fn joined(&self, lease: Duration, lanes: u16) -> Joined {
        self.fleet().join(self.newcomer(lease, lanes)).await.expect("joined")
    }

    pub(super) async fn join(&self, lease: Duration, lanes: u16) -> NodeId {
        self.joined(lease, lanes).await.node
    }

    pub(super) fn pulse(&self, node: NodeId) -> Pulse {
        Pulse {
            node,
            takes: true,
            now: self.now,
            listens: false,
            in_flight: 0,
            waiting_since: None,
        }
    }

    pub(super) async fn beat(&self, node: NodeId) -> Beat {
        self.send(self.pulse(node)).await
    }

    /// A beat of one that is stopping.
    pub(super) async fn last_beat(&self, node: NodeId) -> Beat {
        self.send(Pulse { takes: false, ..self.pulse(node) }).await
    }

    async fn send(&self, pulse: Pulse) -> Beat {
        let mut beat = self.fleet().beat(pulse).await.expect("answered").expect("a member");
        beat.held.sort_unstable_by_key(|held| held.tenure.charge);
        beat
    }

    /// Lets `node` beat until something is as it is `wanted`, while others' leases run out.
    pub(super) async fn beat_until(
        &mut self,
        node: NodeId,
        mut wanted: impl FnMut(&Beat) -> bool,
    ) -> Beat {
        for _ in 0..MAX_STEPS {
            let beat = self.beat(node).await;
            if wanted(&beat) {
                return beat;
            }
            self.pass(STEP);
            tokio::time::sleep(STEP).await;
        }
        panic!("it never came to that")
    }

    /// Lets the nodes beat and hand over what they have too much of, until they come to rest;
    /// returns how things stand then.
    pub(super) async fn share_out(&self, nodes: &[NodeId], lanes: u16, seen: &mut Witness) -> Beat {
        let mut quiet = 0;
        for _ in 0..MAX_ROUNDS {
            let mut surplus = 0;
            let mut last = None;
            for node in nodes {
                let beat = self.beat(*node).await;
                seen.see(&beat);
                let given: Vec<Tenure> =
                    lanes_of(&beat, *node).into_iter().rev().take(beat.surplus).collect();
                surplus += beat.surplus;
                seen.given_up(&given);
                self.fleet().release(*node, given).await.expect("released");
                last = Some(beat);
            }
            // In the first quiet round the last may have said something that concerns the first.
            quiet = if surplus == 0 { quiet + 1 } else { 0 };
            let rests = |beat: &Beat| quiet > 1 && lanes_in(beat) == usize::from(lanes);
            if let Some(beat) = last.filter(rests) {
                return beat;
            }
        }
        panic!("the lanes go round and round")
    }
}

/// The lanes that `node` has.
pub(super) fn lanes_of(beat: &Beat, node: NodeId) -> Vec<Tenure> {
    let own = beat.held.iter().filter(|held| held.node == node).map(|held| held.tenure);
    own.filter(|tenure| is_lane(*tenure)).collect()
}

/// How many lanes each of `nodes` has.
pub(super) fn counts(beat: &Beat, nodes: &[NodeId]) -> Vec<usize> {
    nodes.iter().map(|node| lanes_of(beat, *node).len()).collect()
}

/// What each of so many nodes should have.
pub(super) fn shares(lanes: u16, nodes: usize) -> Vec<usize> {
    let lanes = usize::from(lanes);
    (0..nodes).map(|place| lanes / nodes + usize::from(place < lanes % nodes)).collect()
}

pub(super) fn members(beat: &Beat) -> Vec<NodeId> {
    beat.nodes.iter().map(|member| member.node).collect()
}

fn lanes_in(beat: &Beat) -> usize {
    beat.held.iter().filter(|held| is_lane(held.tenure)).count()
}

fn is_lane(tenure: Tenure) -> bool {
    match tenure.charge {
        Charge::Lane(_) => true,
        Charge::Hub(_) => false,
    }
}

/// Sees every beat of a case, and that nothing ever has two holders.
#[derive(Default)]
pub(super) struct Witness {
    /// Who had what, at any time.
    held: HashMap<(i64, i64), NodeId>,
    last: BTreeMap<i64, Held>,
    given_up: HashSet<(i64, i64)>,
    now: Option<Timestamp>,
}

impl Witness {
    /// Of beats that come one after another.
    pub(super) fn see(&mut self, beat: &Beat) {
        assert!(self.now <= Some(beat.now), "the time went back");
        self.now = Some(beat.now);
        self.see_any(beat);
        for held in &beat.held {
            let key = held.tenure.charge.key();
            if let Some(before) = self.last.insert(key, *held).filter(|before| before != held) {
                assert!(held.tenure.epoch > before.tenure.epoch, "{before:?} then {held:?}");
                let given_up = self.given_up.contains(&(key, before.tenure.epoch));
                assert!(given_up, "{held:?} was taken from a live node: {before:?}");
            }
        }
    }

    /// Of beats in whatever order.
    pub(super) fn see_any(&mut self, beat: &Beat) {
        let keys: HashSet<i64> = beat.held.iter().map(|held| held.tenure.charge.key()).collect();
        assert_eq!(keys.len(), beat.held.len(), "something is held twice: {:?}", beat.held);
        for held in &beat.held {
            let tenure = (held.tenure.charge.key(), held.tenure.epoch);
            let holder = *self.held.entry(tenure).or_insert(held.node);
            assert_eq!(holder, held.node, "{:?} went to two", held.tenure);
        }
    }

    /// These may pass to others.
    pub(super) fn given_up(&mut self, tenures: &[Tenure]) {
        self.given_up.extend(tenures.iter().map(|tenure| (tenure.charge.key(), tenure.epoch)));
    }
}
