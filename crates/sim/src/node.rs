//! A node: an engine with a clock, a store and a network that are its own to lose.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use postrider_engine::{Engine, NodeOptions, Options, Retention};
use postrider_store::sqlite::Sqlite;

use crate::chance::Chance;
use crate::clock::{NodeClock, Setting, TrueTime};
use crate::gate::{Gate, Life};
use crate::history::Chronicle;
use crate::network::{Internet, Wire};
use crate::scenario::Scenario;
use crate::store::{Frail, Frailty, Weather};

/// Longer than any world lasts: what happened can be looked at in the end.
const KEEP: Duration = Duration::from_hours(24 * 365);

/// What nodes are made from.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    pub(crate) store: Arc<Sqlite>,
    pub(crate) time: TrueTime,
    pub(crate) chance: Chance,
    pub(crate) chronicle: Chronicle,
    pub(crate) internet: Internet,
    pub(crate) lease: Duration,
    pub(crate) lanes: u16,
    pub(crate) housekeeping_every: Duration,
}

/// One life of a node: a process from its start to its end.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) index: usize,
    pub(crate) engine: Engine,
    pub(crate) gate: Arc<Gate>,
    pub(crate) weather: Arc<Weather>,
    pub(crate) setting: Arc<Setting>,
}

impl Node {
    /// Starts a process. None if it died, or could not start, on the way.
    pub(crate) async fn start(ground: &Ground, index: usize, frailty: Frailty) -> Option<Self> {
        let gate = Arc::new(Gate::open());
        let weather = Arc::new(Weather::default());
        let setting = Arc::new(Setting::default());
        let store = Frail {
            inner: Arc::clone(&ground.store),
            node: index,
            gate: Arc::clone(&gate),
            weather: Arc::clone(&weather),
            frailty,
            chance: ground.chance.apart(),
            chronicle: ground.chronicle.clone(),
            time: ground.time,
            internet: ground.internet.clone(),
        };
        let options = Options {
            network: Some(Arc::new(Wire {
                internet: ground.internet.clone(),
                node: index,
                gate: Arc::clone(&gate),
            })),
            retention: Retention { delivered: KEEP, failed: KEEP, dead: KEEP },
            disable_after: None,
            housekeeping_every: ground.housekeeping_every,
            node: NodeOptions {
                name: format!("node {index}"),
                lease: ground.lease,
                lanes: ground.lanes,
                ..NodeOptions::default()
            },
            ..Options::default()
        };
        let clock = NodeClock::new(ground.time, Arc::clone(&gate), Arc::clone(&setting));
        let entropy = Arc::new(ground.chance.apart());
        let starting = Engine::start(options, Arc::new(store), Arc::new(clock), entropy);
        // A process that dies while it starts does not come back from that.
        let engine = match select(pin!(starting), pin!(gate.died())).await {
            Either::Left((started, _)) => started.ok()?,
            Either::Right(_) => return None,
        };
        Some(Self { index, engine, gate, weather, setting })
    }

    /// Whatever befell it is over, and it goes on.
    pub(crate) fn recover(&self) {
        self.weather.clear_up();
        self.setting.correct();
        self.gate.resume();
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.gate.life() != Life::Dead
    }
}

impl Ground {
    pub(crate) fn new(
        scenario: &Scenario,
        store: Arc<Sqlite>,
        time: TrueTime,
        chance: Chance,
        chronicle: Chronicle,
        internet: Internet,
    ) -> Self {
        let Scenario { lease, lanes, .. } = *scenario;
        let housekeeping_every = scenario.housekeeping_every();
        Self { store, time, chance, chronicle, internet, lease, lanes, housekeeping_every }
    }
}
