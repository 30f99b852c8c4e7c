//! What a seed stands for: how many nodes, which endpoints, how much traffic, and what goes wrong.

use std::time::Duration;

use postrider_core::endpoint::Ordering;
use postrider_core::policy::{self, Preset};
use serde_json::json;

use crate::chance::Chance;
use crate::network::Manner;
use crate::store::Frailty;

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    /// For how long things go wrong.
    pub(crate) trouble: Duration,
    pub(crate) endpoints: Vec<EndpointPlan>,
    pub(crate) events: u64,
    pub(crate) lease: Duration,
    pub(crate) lanes: u16,
    pub(crate) frailty: Frailty,
    pub(crate) loss: u64,
    /// Between two disturbances of the whole: crashes, pauses, jumps of clocks, partitions; none is
    /// never.
    pub(crate) disturbance_every: Option<Duration>,
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
}

const HOUR: Duration = Duration::from_hours(1);

impl Scenario {
    pub(crate) fn of(seed: u64) -> Self {
        let chance = Chance::of(seed);
        // Leases of several nodes are renewed all the time, which makes their days long: one node
        // goes through weeks, several through an hour.
        let nodes = match chance.below(4) {
            0 => chance.between(2, 5),
            _ => 1,
        };
        let calm = chance.once_in(5);
        let trouble = if nodes == 1 {
            HOUR * u32::try_from(chance.between(6, 24 * 30)).unwrap_or(24)
        } else {
            Duration::from_mins(chance.between(5, 45))
        };
        let endpoints =
            (0..chance.between(1, 8)).map(|_| endpoint(&chance, calm, nodes > 1)).collect();
        let frailty = if calm {
            Frailty::default()
        } else {
            let rate = |chance: &Chance, most| {
                if chance.once_in(2) { 0 } else { chance.between(20, most) }
            };
            Frailty {
                crash: if chance.once_in(3) { 0 } else { chance.between(150, 2_000) },
                unavailable: rate(&chance, 400),
                unheard: rate(&chance, 400),
                slow: rate(&chance, 100),
            }
        };
        let loss = if calm || chance.once_in(2) { 0 } else { chance.between(5, 60) };
        let disturbed = !calm && !chance.once_in(4);
        let disturbance_every =
            disturbed.then(|| trouble / u32::try_from(chance.between(4, 20)).unwrap_or(4));
        Self {
            seed,
            nodes: usize::try_from(nodes).unwrap_or(1),
            trouble,
            endpoints,
            events: chance.between(20, 150),
            lease: Duration::from_secs(chance.between(8, 40)),
            lanes: if chance.once_in(2) { 8 } else { 16 },
            frailty,
            loss,
            disturbance_every,
        }
    }

    /// Whether nothing goes wrong at all.
    pub(crate) fn is_calm(&self) -> bool {
        let Frailty { crash, unavailable, unheard, slow } = self.frailty;
        crash + unavailable + unheard + slow + self.loss == 0 && self.disturbance_every.is_none()
    }
}

fn endpoint(chance: &Chance, calm: bool, soon: bool) -> EndpointPlan {
    let minutes = |most| Duration::from_mins(chance.between(1, most));
    let manner = match chance.below(if calm { 2 } else { 10 }) {
        0..=2 => Manner::Healthy,
        3 => Manner::Slow,
        4 => Manner::Flapping { period: minutes(300) },
        5 => Manner::RateLimiting { seconds: u32::try_from(chance.between(1, 300)).unwrap_or(1) },
        6 => Manner::Hanging,
        7 => Manner::Lying,
        8 => Manner::Refusing,
        _ => Manner::Outage { until: minutes(24 * 60) },
    };
    let ordering = match chance.below(4) {
        0 => Ordering::Fifo,
        1 => Ordering::FifoByKey,
        _ => Ordering::None,
    };
    let preset = *chance.choose(&Preset::ALL).unwrap_or(&Preset::Standard);
    let policy = if soon {
        brief(preset)
    } else {
        policy::Spec { preset: Some(preset), ..policy::Spec::default() }
    };
    let taker = if chance.once_in(5) { Taker::Workers } else { Taker::Url };
    let rate_per_second = chance.once_in(6).then_some(2.0);
    EndpointPlan { manner, ordering, policy, taker, rate_per_second }
}

/// A policy that comes to its end within the hour, and classifies as the preset does.
fn brief(preset: Preset) -> policy::Spec {
    let spec = json!({
        "preset": preset.as_str(),
        "schedule": {"exponential": {
            "initial": "1s", "multiplier": 2.0, "max_delay": "2m", "jitter": 0.1,
        }},
        "max_attempts": 8,
        "max_age": "1h",
    });
    serde_json::from_value(spec).expect("a policy as the API takes it")
}
