//! Questions to the node that carries something, and its answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use postrider_core::{DeliveryId, EndpointId};
use postrider_store::fleet::{Charge, NodeId, NodeRecord, To};
use tokio::sync::{Notify, mpsc};

use super::words::{Answer, Ask, Word, pieces};
use crate::notices::Notice;
use crate::ports;
use crate::scheduler::{Blocked, EndpointHealth, charge_of};
use crate::shared::Shared;

/// How long an answer is waited for. Who does not answer by then may be gone.
const PATIENCE: Duration = Duration::from_secs(2);
/// What is kept out of scheduling for another node comes back after so long, whatever became of it.
const LONGEST_RESERVATION: Duration = Duration::from_secs(15);
/// Reservations for other nodes at the same time.
const MAX_RESERVATIONS: usize = 10_000;
/// Parts of an answer that may wait to be read.
const PARTS: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Asks {
    next: AtomicU64,
    open: Mutex<HashMap<u64, mpsc::Sender<Answer>>>,
    /// What is reserved here for others, and until when by monotonic time.
    reserved: Mutex<HashMap<(EndpointId, DeliveryId), Duration>>,
    renamed: Notify,
}

impl Asks {
    pub(super) fn answered(&self, number: u64, answer: Answer) {
        let open = self.open.lock();
        if let Some(asker) = open.get(&number)
            && asker.try_send(answer).is_err()
        {
            tracing::debug!(number, "an answer came to nobody");
        }
    }

    /// The node has another id, and hears under that.
    pub(super) fn hear_anew(&self) {
        self.renamed.notify_one();
    }

    pub(super) async fn renamed(&self) {
        self.renamed.notified().await;
    }

    /// Lets go of what others have forgotten.
    pub(super) fn forget_old(&self, shared: &Arc<Shared>) {
        let passed = shared.clock.monotonic();
        let mut lapsed = Vec::new();
        self.reserved.lock().retain(|key, until| {
            let keep = *until > passed;
            if !keep {
                lapsed.push(*key);
            }
            keep
        });
        lapsed.sort_unstable();
        unreserve(shared, &lapsed);
    }
}

fn unreserve(shared: &Arc<Shared>, reserved: &[(EndpointId, DeliveryId)]) {
    if reserved.is_empty() {
        return;
    }
    let now = shared.clock.now();
    {
        let mut scheduler = shared.scheduler.lock();
        for (endpoint, delivery) in reserved {
            scheduler.unreserve(*endpoint, *delivery, now);
        }
    }
    shared.pump();
}

/// Removed when nobody waits any more.
struct Open<'a> {
    asks: &'a Asks,
    number: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.asks.open.lock().remove(&self.number);
    }
}

/// How an endpoint stands: whether the delivery is in flight, its health, and what is in its way.
pub(crate) type Looks = (bool, Option<EndpointHealth>, Option<Blocked>);

impl Shared {
    /// The node that carries an endpoint, if it is another one.
    pub(crate) fn carrier_elsewhere(&self, endpoint: EndpointId) -> Option<NodeId> {
        self.fleet.as_ref()?.holder(self.charge_of(endpoint)?)
    }

    /// The first part of an answer; none if there is none in time.
    pub(crate) async fn ask(&self, node: NodeId, ask: Ask) -> Option<Answer> {
        self.ask_all(vec![node], ask, |_| true).await.into_iter().next()
    }

    /// Tells a node what it need not answer.
    pub(crate) fn ask_nothing(&self, node: NodeId, ask: Ask) {
        if let Some((fleet, store)) = self.sharing() {
            fleet.tell(store, To::Node(node), &Word::Ask { number: 0, ask });
        }
    }

    /// All parts of the answers of several nodes, as far as they come in time. `is_last` tells the
    /// last part of each.
    async fn ask_all(
        &self,
        nodes: Vec<NodeId>,
        ask: Ask,
        is_last: impl Fn(&Answer) -> bool,
    ) -> Vec<Answer> {
        let Some((fleet, store)) = self.sharing() else { return Vec::new() };
        if nodes.is_empty() {
            return Vec::new();
        }
        let number = fleet.asks.next.fetch_add(1, Ordering::Relaxed);
        let (asker, mut answers) = mpsc::channel(PARTS);
        fleet.asks.open.lock().insert(number, asker);
        let _open = Open { asks: &fleet.asks, number };
        for node in &nodes {
            fleet.tell(store, To::Node(*node), &Word::Ask { number, ask });
        }
        let mut parts = Vec::new();
        let mut waiting_for = nodes.len();
        let mut late = std::pin::pin!(ports::pause(fleet.clock.machine(), PATIENCE));
        while waiting_for > 0 {
            tokio::select! {
                biased;
                answer = answers.recv() => {
                    let Some(answer) = answer else { break };
                    waiting_for -= usize::from(is_last(&answer));
                    parts.push(answer);
                }
                () = &mut late => break,
            }
        }
        parts
    }

    /// The answer of the node that carries an endpoint; none if that is this one, or nobody answers.
    /// What is known of the others may be out of date: then the store is asked who it is.
    pub(crate) async fn ask_whoever_carries(
        &self,
        endpoint: EndpointId,
        ask: Ask,
    ) -> Option<(NodeId, Answer)> {
        if self.fleet.is_none() || self.scheduler.lock().has_part_in(endpoint) {
            return None;
        }
        let known = self.carrier_elsewhere(endpoint);
        if let Some(node) = known {
            match self.ask(node, ask).await {
                Some(Answer::NotMine) | None => {}
                Some(answer) => return Some((node, answer)),
            }
        }
        let node = self.find_carrier(endpoint).await.filter(|node| known != Some(*node))?;
        Some((node, self.ask(node, ask).await?))
    }

    /// The other node that carries an endpoint, by the store.
    async fn find_carrier(&self, endpoint: EndpointId) -> Option<NodeId> {
        let (fleet, store) = self.sharing()?;
        let charge = self.charge_of(endpoint)?;
        let nodes = store.nodes(fleet.clock.machine().now()).await.ok()?;
        let holds = |node: &NodeRecord| node.held.iter().any(|tenure| tenure.charge == charge);
        let holder = nodes.iter().find(|node| node.live && holds(node))?.node;
        (holder != fleet.node()).then_some(holder)
    }

    /// What an endpoint is carried with.
    fn charge_of(&self, endpoint: EndpointId) -> Option<Charge> {
        let fleet = self.fleet.as_ref()?;
        let routes = self.routes.load();
        let lane = || Charge::Lane(fleet.lane_of(endpoint));
        let route = routes.get(endpoint);
        Some(route.map_or_else(lane, |route| charge_of(route, fleet.lanes)))
    }

    /// How an endpoint stands with the node that carries it; none if that is this one, or nobody
    /// answers.
    pub(crate) async fn ask_carrier(
        &self,
        endpoint: EndpointId,
        delivery: Option<DeliveryId>,
    ) -> Option<Looks> {
        let (_, answer) =
            self.ask_whoever_carries(endpoint, Ask::Look { endpoint, delivery }).await?;
        match answer {
            Answer::Looks { in_flight, health, blocked } => Some((in_flight, health, blocked)),
            Answer::Reserved(_)
            | Answer::NotMine
            | Answer::Allowed(_)
            | Answer::Hub { .. }
            | Answer::Notices { .. } => None,
        }
    }

    /// What other nodes remember of what happened after `id`.
    pub(crate) async fn recall(&self, id: u64) -> Vec<Notice> {
        let Some(fleet) = &self.fleet else { return Vec::new() };
        let is_last = |answer: &Answer| match answer {
            Answer::Notices { last, .. } => *last,
            Answer::Reserved(_)
            | Answer::NotMine
            | Answer::Looks { .. }
            | Answer::Allowed(_)
            | Answer::Hub { .. } => true,
        };
        let parts = self.ask_all(fleet.others(), Ask::Recall(id), is_last).await;
        let notices = parts.into_iter().filter_map(|part| match part {
            Answer::Notices { notices, .. } => Some(notices),
            Answer::Reserved(_)
            | Answer::NotMine
            | Answer::Looks { .. }
            | Answer::Allowed(_)
            | Answer::Hub { .. } => None,
        });
        notices.flatten().collect()
    }
}

/// Answers another node.
pub(super) fn answer(shared: &Arc<Shared>, from: NodeId, number: u64, ask: Ask) {
    let Some((fleet, store)) = shared.sharing() else { return };
    let reply = |answer| fleet.tell(store, To::Node(from), &Word::Answer { number, answer });
    let now = shared.clock.now();
    match ask {
        Ask::Reserve { endpoint, delivery, event } => {
            if !shared.scheduler.lock().carries(endpoint) {
                return reply(Answer::NotMine);
            }
            let mut reserved = fleet.asks.reserved.lock();
            let granted = reserved.len() < MAX_RESERVATIONS
                && shared.scheduler.lock().reserve(endpoint, delivery, event);
            if granted {
                let until = shared.clock.monotonic() + LONGEST_RESERVATION;
                reserved.insert((endpoint, delivery), until);
            }
            drop(reserved);
            reply(Answer::Reserved(granted));
        }
        Ask::Unreserve { endpoint, delivery } => {
            if fleet.asks.reserved.lock().remove(&(endpoint, delivery)).is_some() {
                unreserve(shared, &[(endpoint, delivery)]);
            }
        }
        Ask::Look { endpoint, delivery } => {
            let answer = {
                let scheduler = shared.scheduler.lock();
                if !scheduler.carries(endpoint) {
                    drop(scheduler);
                    return reply(Answer::NotMine);
                }
                let flies = |delivery| scheduler.is_in_flight(endpoint, delivery);
                Answer::Looks {
                    in_flight: delivery.is_some_and(flies),
                    health: scheduler.health(endpoint),
                    blocked: scheduler.blocked(endpoint, now),
                }
            };
            reply(answer);
        }
        Ask::Allow { endpoint, wanted } => {
            let allowed = shared.scheduler.lock().allow(endpoint, wanted, now);
            reply(Answer::Allowed(allowed.map(|allowance| allowance.count)));
        }
        Ask::Hub(hub) => {
            let connection = shared.hubs.connection(hub);
            let in_flight = shared.scheduler.lock().hub_in_flight(hub);
            reply(Answer::Hub { connection, in_flight });
        }
        Ask::Recall(after) => {
            let notices = shared.notices.since(after);
            let notices = notices.iter().map(|notice| (**notice).clone()).collect();
            let mut parts = pieces(notices);
            let end = parts.pop().unwrap_or_default();
            for notices in parts {
                reply(Answer::Notices { notices, last: false });
            }
            reply(Answer::Notices { notices: end, last: true });
        }
    }
}
