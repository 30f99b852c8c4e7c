//! What a seed stands for: how many nodes, which endpoints, how much traffic, and what goes wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::endpoint::Ordering;
use postrider_core::policy::{self, Preset};
use serde_json::json;

use crate::chance::Chance;
use crate::hazard::{Cuts, Hazard};
use crate::network::{Manner, Mishaps};
use crate::store::Frailty;

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    /// For how long things go wrong.
    pub(crate) trouble: Duration,
    pub(crate) endpoints: Vec<EndpointPlan>,
    pub(crate) events: u64,
    /// Between two events, about.
    pub(crate) pace: Duration,
    pub(crate) lease: Duration,
    pub(crate) lanes: u16,
    /// What goes wrong between a node and the store.
    pub(crate) frailty: Frailty,
    /// What goes wrong with what nodes send.
    pub(crate) mishaps: Mishaps,
    /// Between two disturbances of the whole: crashes, pauses, jumps of clocks, partitions; none is
    /// never.
    pub(crate) disturbance_every: Option<Duration>,
    /// Whether there is a second tenant, and operators who stop, cancel, delete and replay.
    pub(crate) operated: bool,
    /// Whether nodes start again when all is well, or go on as they are.
    pub(crate) starts_again: bool,
    /// What was left out of it.
    pub(crate) without: BTreeSet<Hazard>,
}

#[derive(Debug, Clone)]
pub(crate) struct EndpointPlan {
    pub(crate) manner: Manner,
    pub(crate) ordering: Ordering,
    pub(crate) policy: policy::Spec,
    pub(crate) taker: Taker,
    pub(crate) rate_per_second: Option<f64>,
}

/// Who takes what goes to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taker {
    Url,
    Workers,
    Hub,
}

pub(crate) const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);

impl Scenario {
    pub(crate) fn of(seed: u64) -> Self {
        let chance = Chance::of(seed);
        // Nodes that share a store look at it every second, which makes their days long: one node lives
        // through days, several through minutes.
        let nodes = if chance.once_in(4) { chance.between(2, 5) } else { 1 };
        let calm = chance.once_in(5);
        let trouble = if nodes == 1 {
            HOUR.saturating_mul(u32::try_from(chance.between(6, 24 * 14)).unwrap_or(24))
        } else {
            MINUTE.saturating_mul(u32::try_from(chance.between(2, 8)).unwrap_or(2))
        };
        let endpoints = chance.between(1, 6);
        let endpoints =
            (0..endpoints).map(|_| endpoint(&chance, calm, nodes > 1, trouble)).collect();
        // Once in so many, where it happens at all.
        let rate = |least, most| {
            let rate = chance.between(least, most);
            if calm || chance.once_in(2) { 0 } else { rate }
        };
        let frailty = Frailty {
            crash: rate(150, 2_000),
            refused: rate(20, 400),
            unheard: rate(20, 400),
            slow: rate(20, 100),
        };
        let mishaps = Mishaps { loss: rate(5, 60), delay: rate(5, 60), duplication: rate(5, 60) };
        let disturbances = u32::try_from(chance.between(4, 20)).unwrap_or(4);
        let disturbed = !calm && !chance.once_in(4);
        let events = chance.between(20, 100);
        let mut scenario = Self {
            seed,
            nodes: usize::try_from(nodes).unwrap_or(1),
            trouble,
            endpoints,
            events,
            pace: trouble / u32::try_from(events).unwrap_or(u32::MAX),
            lease: Duration::from_secs(chance.between(8, 40)),
            lanes: if chance.once_in(2) { 8 } else { 16 },
            frailty,
            mishaps,
            disturbance_every: disturbed.then(|| trouble / disturbances),
            operated: chance.once_in(2),
            starts_again: chance.once_in(2),
            without: BTreeSet::new(),
        };
        if nodes > 1 && chance.once_in(2) {
            scenario.be_steady();
        }
        scenario
    }

    /// What can befall any operation of the store and any word between nodes is an excuse for much. A
    /// world of several nodes without it can be judged more strictly.
    fn be_steady(&mut self) {
        self.frailty = Frailty { refused: 0, slow: 0, ..self.frailty };
        self.mishaps = Mishaps::default();
    }

    /// The same with something left out.
    pub(crate) fn cut(mut self, cuts: &Cuts) -> Self {
        self.events = cuts.events.map_or(self.events, |events| events.min(self.events));
        if let Some(places) = &cuts.endpoints {
            let plans = self.endpoints.into_iter().enumerate();
            let left = plans.filter(|(place, _)| places.contains(place));
            self.endpoints = left.map(|(_, plan)| plan).collect();
        }
        self.without = cuts.without.iter().copied().collect();
        for hazard in &self.without {
            match hazard {
                Hazard::Crashes => self.frailty.crash = 0,
                Hazard::Refusals => self.frailty.refused = 0,
                Hazard::Unheard => self.frailty.unheard = 0,
                Hazard::Slowness => self.frailty.slow = 0,
                Hazard::Loss => self.mishaps.loss = 0,
                Hazard::Delay => self.mishaps.delay = 0,
                Hazard::Duplication => self.mishaps.duplication = 0,
                Hazard::Manners => {
                    self.endpoints.iter_mut().for_each(|plan| plan.manner = Manner::Healthy);
                }
                Hazard::Operator => self.operated = false,
                // Whoever disturbs the world passes these over.
                Hazard::Pauses
                | Hazard::Jumps
                | Hazard::FullDisks
                | Hazard::CutOffs
                | Hazard::Partitions
                | Hazard::Outages => {}
            }
        }
        self
    }

    /// Whether nothing goes wrong at all.
    pub(crate) fn is_calm(&self) -> bool {
        self.frailty == Frailty::default()
            && self.mishaps == Mishaps::default()
            && self.disturbance_every.is_none()
    }

    /// Whether everything has to end within minutes instead of days.
    pub(crate) fn is_brief(&self) -> bool {
        self.nodes > 1
    }

    /// How soon what has grown too old is seen to, where nothing else lets it die.
    pub(crate) fn housekeeping_every(&self) -> Duration {
        if self.is_brief() { 2 * MINUTE } else { HOUR }
    }
}

fn endpoint(chance: &Chance, calm: bool, brief: bool, trouble: Duration) -> EndpointPlan {
    let part_of = |whole: Duration| whole.mul_f64(0.01 + chance.share());
    let manner = match chance.below(if calm { 3 } else { 10 }) {
        0..=2 => Manner::Healthy,
        3 => Manner::Slow,
        4 => Manner::Flapping { period: part_of(trouble / 4) },
        5 => {
            let longest = if brief { 20 } else { 300 };
            let seconds = u32::try_from(chance.between(1, longest)).unwrap_or(1);
            Manner::RateLimiting { seconds }
        }
        6 => Manner::Hanging,
        7 => Manner::Lying,
        8 => Manner::Refusing,
        _ => Manner::Outage { until: part_of(trouble) },
    };
    let ordering = match chance.below(4) {
        0 => Ordering::Fifo,
        1 => Ordering::FifoByKey,
        _ => Ordering::None,
    };
    let preset = *chance.choose(&Preset::ALL).unwrap_or(&Preset::Standard);
    let policy = if brief {
        brief_policy(preset)
    } else {
        policy::Spec { preset: Some(preset), ..policy::Spec::default() }
    };
    let taker = match chance.below(6) {
        0 => Taker::Workers,
        1 => Taker::Hub,
        _ => Taker::Url,
    };
    let rate_per_second = chance.once_in(6).then_some(2.0);
    EndpointPlan { manner, ordering, policy, taker, rate_per_second }
}

/// A policy that comes to its end within minutes, and classifies as the preset does.
fn brief_policy(preset: Preset) -> policy::Spec {
    let spec = json!({
        "preset": preset.as_str(),
        "schedule": {"exponential": {
            "initial": "1s", "multiplier": 2.0, "max_delay": "20s", "jitter": 0.1,
        }},
        "max_attempts": 6,
        "max_age": "8m",
    });
    serde_json::from_value(spec).expect("a policy as the API takes it")
}
