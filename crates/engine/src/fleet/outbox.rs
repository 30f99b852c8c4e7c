//! What is told to other nodes about what was stored and what happened: gathered while the last word
//! is on its way, so that there are few words however much happens.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postrider_core::{EndpointId, Timestamp};
use postrider_store::fleet::{Charge, NodeId, To};
use tokio::sync::Notify;

use super::words::{self, Word};
use crate::notices::Notice;
use crate::ports;
use crate::route::Place;
use crate::scheduler::charge_of;
use crate::shared::Shared;

/// Between two words about the same: those who carry what was stored read it no more often.
const GATHER: Duration = Duration::from_millis(20);
/// Endpoints named in one word.
const ENDPOINTS: usize = 150;
/// Notices that wait to be told; beyond that the oldest are lost.
const NOTICES: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    ready: BTreeMap<EndpointId, Option<Timestamp>>,
    notices: VecDeque<Notice>,
}

impl Outbox {
    fn ready(&self, stored: BTreeMap<EndpointId, Option<Timestamp>>) {
        let mut waiting = self.waiting.lock();
        if waiting.ready.is_empty() {
            waiting.ready = stored;
        } else {
            for (endpoint, due) in stored {
                let known = waiting.ready.entry(endpoint).or_insert(due);
                *known = known.zip(due).map(|(known, due)| known.min(due));
            }
        }
        drop(waiting);
        self.wake.notify_one();
    }

    fn notice(&self, notice: &Notice) {
        let mut waiting = self.waiting.lock();
        if waiting.notices.len() == NOTICES {
            waiting.notices.pop_front();
        }
        waiting.notices.push_back(notice.clone());
        drop(waiting);
        self.wake.notify_one();
    }
}

impl Shared {
    /// Tells others what was stored for endpoints that they carry.
    pub(crate) fn tell_ready(&self, stored: BTreeMap<EndpointId, Option<Timestamp>>) {
        if let Some(fleet) = self.fleet.as_ref().filter(|_| !stored.is_empty()) {
            fleet.outbox.ready(stored);
        }
    }

    /// Tells others which endpoints their workers are to leave alone for a while.
    pub(crate) fn tell_holds(&self, holds: Vec<(EndpointId, Timestamp)>) {
        let Some((fleet, store)) = self.sharing() else { return };
        for (endpoint, until) in holds {
            fleet.tell(store, To::All, &Word::Hold { endpoint, until });
        }
    }

    /// Tells others what happened, if somebody there listens.
    pub(crate) fn relay(&self, notice: &Arc<Notice>) {
        if let Some(fleet) = self.fleet.as_ref().filter(|fleet| fleet.is_listened_to()) {
            fleet.outbox.notice(notice);
        }
    }
}

/// Sends what is in the outbox, for as long as the engine lives.
pub(crate) async fn run(shared: Arc<Shared>) {
    let Some((fleet, store)) = shared.sharing() else { return };
    loop {
        fleet.outbox.wake.notified().await;
        let waiting = std::mem::take(&mut *fleet.outbox.waiting.lock());
        for (to, endpoints) in address(&shared, waiting.ready) {
            for some in endpoints.chunks(ENDPOINTS) {
                fleet.tell(store, to, &Word::Ready(some.to_vec()));
            }
        }
        let listening: Vec<NodeId> = {
            let inner = fleet.inner.lock();
            let others = inner.members.iter().filter(|one| one.listens && one.node != inner.node);
            others.map(|member| member.node).collect()
        };
        for piece in words::pieces(waiting.notices.into()) {
            let word = Word::Notices(piece);
            for node in &listening {
                fleet.tell(store, To::Node(*node), &word);
            }
        }
        ports::pause(fleet.clock.machine(), GATHER).await;
    }
}

type Stored = Vec<(EndpointId, Option<Timestamp>)>;

/// Who has to know what: the node that carries an endpoint; all of them where workers may wait
/// anywhere. What nobody is known to carry is found by whoever takes it.
fn address(shared: &Shared, ready: BTreeMap<EndpointId, Option<Timestamp>>) -> Vec<(To, Stored)> {
    let Some(fleet) = &shared.fleet else { return Vec::new() };
    let routes = shared.routes.load();
    let mut to_all = Stored::new();
    let mut to_nodes: BTreeMap<NodeId, Stored> = BTreeMap::new();
    for (endpoint, due) in ready {
        let route = routes.get(endpoint);
        let charge = match route.map(|route| &route.place) {
            Some(Place::Pull) => {
                to_all.push((endpoint, due));
                continue;
            }
            Some(Place::Url(_) | Place::Command(_) | Place::Hub(_) | Place::Handler(_)) | None => {
                route.map(|route| charge_of(route, fleet.lanes))
            }
        };
        let charge = charge.unwrap_or_else(|| Charge::Lane(fleet.lane_of(endpoint)));
        if let Some(node) = fleet.holder(charge) {
            to_nodes.entry(node).or_default().push((endpoint, due));
        }
    }
    let mut all: Vec<_> = to_nodes.into_iter().map(|(node, some)| (To::Node(node), some)).collect();
    if !to_all.is_empty() {
        all.push((To::All, to_all));
    }
    all
}
