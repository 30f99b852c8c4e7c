//! Hubs: agents behind NAT that dial out to the gateway. Each has at most one connection, its line;
//! deliveries go down the line with a number, and answers come back with it.
//!
//! Nothing of a line is stored. What was unanswered when it ended is put back uncounted and goes again
//! when the hub returns: it may arrive twice, it is never lost.

mod line;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use postrider_core::endpoint::Destination;
use postrider_core::hub::{Answer, Deliver, Hello};
use postrider_core::{DeliveryId, EndpointId, HubId, TenantId, Timestamp};
use postrider_store::fleet::Charge;
use postrider_store::registry::HubRecord;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot};

use crate::acting::Acting;
use crate::engine::Engine;
use crate::error::Error;
use crate::fleet::words::{self, Ask};
use crate::fleet::{beats, reload};
use crate::notices::{Audience, Draft, NoticeKind};
use crate::shared::Shared;

use line::Line;

/// What a hub's token begins with.
const TOKEN_PREFIX: &str = "prh_";
/// What a token that somebody chose has at least after that, and at most in all.
const MIN_TOKEN_CHARS: usize = 32;
const MAX_TOKEN_CHARS: usize = 256;
/// A delivery that its hub went away with this often in a row is counted as failed: it may be what
/// the hub dies of.
const MAX_LOSSES: u32 = 10;
/// Deliveries of which losses are remembered.
const LOSSES_KEPT: usize = 10_000;
/// Hubs of one tenant.
const MAX_HUBS: usize = 10_000;

/// A hub, and how it stands.
#[derive(Debug, Clone)]
pub struct HubView {
    pub record: HubRecord,
    pub connection: Option<HubConnection>,
    pub in_flight: usize,
    /// Deliveries of its endpoints that are not finished, those in flight included.
    pub waiting: u64,
    /// When the age of the oldest of these began.
    pub oldest_waiting_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubConnection {
    pub since: Timestamp,
    pub agent: String,
    pub capacity: u32,
}

/// Why the gateway ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ending {
    #[error("another connection uses this hub's token")]
    TakenOver,
    #[error("the hub has been deleted, or has another token")]
    Revoked,
    #[error("a delivery was not answered in time")]
    Unanswered,
    #[error("the gateway is stopping")]
    Stopping,
}

/// An answer to nothing that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an answer has a number that no unanswered delivery has")]
pub struct OutOfTurn;

/// All hubs, connected or not.
#[derive(Debug, Default)]
pub(crate) struct Hubs {
    /// Taken before the scheduler is locked, never after.
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    hubs: HashMap<HubId, Hub>,
    tokens: HashMap<[u8; 32], HubId>,
    /// How often in a row a line ended with a delivery unanswered.
    losses: HashMap<DeliveryId, u32>,
}

#[derive(Debug)]
struct Hub {
    record: HubRecord,
    line: Option<Arc<Line>>,
}

/// A delivery that no answer will come for on this line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Again,
    TooOften,
}

/// A delivery in a hub's hands.
#[derive(Debug)]
pub(crate) struct Handed {
    hubs: Arc<Hubs>,
    line: Arc<Line>,
    delivery: DeliveryId,
    answer: oneshot::Receiver<Answer>,
}

impl Handed {
    pub(crate) async fn answer(&mut self) -> Result<Answer, Lost> {
        match (&mut self.answer).await {
            Ok(answer) => {
                self.hubs.inner.lock().losses.remove(&self.delivery);
                Ok(answer)
            }
            Err(_) => Err(self.hubs.lost(self.delivery)),
        }
    }

    /// The time for an answer is over. A hub that does not keep to it cannot be told how much it
    /// has in its hands: it has to begin anew.
    pub(crate) fn give_up(&self) {
        self.line.end(Ending::Unanswered);
    }
}

impl Hubs {
    pub(crate) fn of(records: Vec<HubRecord>) -> Self {
        let hubs = Self::default();
        for record in records {
            hubs.put(record);
        }
        hubs
    }

    fn put(&self, record: HubRecord) {
        let mut inner = self.inner.lock();
        inner.tokens.insert(record.sha256, record.id);
        inner.hubs.insert(record.id, Hub { record, line: None });
    }

    fn record(&self, tenant: TenantId, id: HubId) -> Option<HubRecord> {
        let inner = self.inner.lock();
        let hub = inner.hubs.get(&id).filter(|hub| hub.record.tenant == tenant)?;
        Some(hub.record.clone())
    }

    /// Refuses a hub that the tenant does not have.
    pub(crate) fn check(&self, tenant: TenantId, id: HubId) -> Result<(), Error> {
        match self.record(tenant, id) {
            Some(_) => Ok(()),
            None => Err(Error::invalid("hub", format!("there is no {id}"))),
        }
    }

    /// Sends a delivery down its hub's line; none if there is no line, or no room on it.
    pub(crate) fn hand(self: &Arc<Self>, id: HubId, deliver: Deliver) -> Option<Handed> {
        let line = self.inner.lock().hubs.get(&id)?.line.clone()?;
        let delivery = deliver.delivery;
        let answer = line.send(deliver)?;
        Some(Handed { hubs: Arc::clone(self), line, delivery, answer })
    }

    fn lost(&self, delivery: DeliveryId) -> Lost {
        let mut inner = self.inner.lock();
        if inner.losses.len() >= LOSSES_KEPT && !inner.losses.contains_key(&delivery) {
            inner.losses.clear();
        }
        let times = inner.losses.entry(delivery).or_default();
        *times += 1;
        if *times < MAX_LOSSES {
            return Lost::Again;
        }
        inner.losses.remove(&delivery);
        Lost::TooOften
    }

    /// How many hubs are connected to this node.
    pub(crate) fn connected(&self) -> usize {
        self.inner.lock().hubs.values().filter(|hub| hub.line.is_some()).count()
    }

    /// How a hub is connected to this node.
    pub(crate) fn connection(&self, id: HubId) -> Option<HubConnection> {
        let inner = self.inner.lock();
        let line = inner.hubs.get(&id)?.line.as_ref()?;
        Some(line.connection.clone())
    }

    /// Goes by what is stored: another node may have changed it.
    pub(crate) fn renew(&self, shared: &Shared, records: Vec<HubRecord>) {
        let known: HashSet<HubId> = records.iter().map(|record| record.id).collect();
        let gone: Vec<HubId> =
            self.inner.lock().hubs.keys().filter(|id| !known.contains(id)).copied().collect();
        for id in gone {
            forget(shared, id);
        }
        for record in records {
            self.renew_one(shared, record);
        }
    }

    /// Takes over how a hub is. Whoever is connected with a token that it has no more is not it.
    fn renew_one(&self, shared: &Shared, record: HubRecord) {
        let id = record.id;
        let mut inner = self.inner.lock();
        inner.tokens.insert(record.sha256, id);
        let before = match inner.hubs.entry(id) {
            Entry::Occupied(mut hub) => {
                let (before, after) = (hub.get().record.sha256, record.sha256);
                hub.get_mut().record = record;
                (before != after).then_some(before)
            }
            Entry::Vacant(place) => {
                place.insert(Hub { record, line: None });
                None
            }
        };
        if let Some(before) = before {
            inner.tokens.remove(&before);
            drop(inner);
            end_line(shared, id, Ending::Revoked);
        }
    }

    /// Ends every connection.
    pub(crate) fn stop(&self) {
        let lines: Vec<Arc<Line>> =
            self.inner.lock().hubs.values().filter_map(|hub| hub.line.clone()).collect();
        for line in lines {
            line.end(Ending::Stopping);
        }
    }
}

/// The gateway's end of one connection. When it is dropped the hub is away.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    hub: HubId,
    line: Arc<Line>,
    outgoing: mpsc::Receiver<Deliver>,
    ending: oneshot::Receiver<Ending>,
    ended: Option<Ending>,
}

impl Link {
    /// The next delivery to pass on, or why there will be none. Nothing is lost by not waiting for
    /// the end of it.
    pub async fn next(&mut self) -> Result<Deliver, Ending> {
        if let Some(ending) = self.ended {
            return Err(ending);
        }
        let delivery = std::pin::pin!(self.outgoing.recv());
        let ending = match select(&mut self.ending, delivery).await {
            Either::Left((ending, _)) => ending,
            Either::Right((Some(deliver), _)) => return Ok(deliver),
            Either::Right((None, ending)) => ending.await,
        };
        Err(*self.ended.insert(ending.unwrap_or(Ending::Stopping)))
    }

    /// Takes in what the hub says of a delivery.
    pub fn answer(&self, answer: Answer) -> Result<(), OutOfTurn> {
        self.line.answer(answer)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Before what it had comes back, or that would be sent in vain.
        part(&self.shared, self.hub, |line| Arc::ptr_eq(line, &self.line));
        self.line.end(Ending::Stopping);
        self.shared.pump();
    }
}

/// A line may end before its connection does, which may be stuck: the hub is away from then on.
pub(crate) fn note_ended(shared: &Shared, id: HubId) {
    part(shared, id, |line| line.has_ended());
}

/// A hub goes away, if its line is the one that is meant. All that depends on a hub's being there
/// changes under one lock: lines begin and end at the same time.
fn part(shared: &Shared, id: HubId, is_meant: impl FnOnce(&Arc<Line>) -> bool) {
    let mut inner = shared.hubs.inner.lock();
    let Some(hub) = inner.hubs.get_mut(&id) else { return };
    if hub.line.take_if(|line| is_meant(line)).is_some() {
        depart(shared, &hub.record);
    }
}

/// A hub is no more: its connection ends, and its token opens nothing.
fn forget(shared: &Shared, id: HubId) {
    let line = {
        let mut inner = shared.hubs.inner.lock();
        let Some(hub) = inner.hubs.remove(&id) else { return };
        inner.tokens.remove(&hub.record.sha256);
        if hub.line.is_some() {
            depart(shared, &hub.record);
        }
        hub.line
    };
    if let Some(line) = line {
        line.end(Ending::Revoked);
    }
}

/// Ends a hub's connection to this node, if it has one.
pub(crate) fn end_line(shared: &Shared, id: HubId, ending: Ending) {
    let line = shared.hubs.inner.lock().hubs.get(&id).and_then(|hub| hub.line.clone());
    if let Some(line) = line {
        part(shared, id, |current| Arc::ptr_eq(current, &line));
        line.end(ending);
    }
}

/// What follows from a hub's having no line any more.
fn depart(shared: &Shared, hub: &HubRecord) {
    let now = shared.clock.now();
    shared.leave_hub(hub.id);
    shared.scheduler.lock().set_hub(hub.id, None, now);
    shared.publish([notice(hub, NoticeKind::HubDisconnected, now)]);
    tracing::info!(hub = %hub.id, name = hub.name, "hub disconnected");
}

fn notice(hub: &HubRecord, kind: NoticeKind, at: Timestamp) -> Draft {
    Draft {
        at,
        tenant: hub.tenant,
        kind,
        endpoint: None,
        source: None,
        hub: Some(hub.id),
        delivery: None,
        detail: Some(hub.name.clone()),
        audience: Audience::Everyone,
    }
}

impl Engine {
    /// Makes a hub with a token of its own. The second value is that token, which nobody can be told
    /// again.
    pub async fn create_hub(
        &self,
        acting: Acting,
        name: String,
    ) -> Result<(HubRecord, String), Error> {
        self.create_hub_with(acting, name, None).await
    }

    /// The same, with a token that somebody chose, if there is one.
    pub async fn create_hub_with(
        &self,
        acting: Acting,
        name: String,
        token: Option<String>,
    ) -> Result<(HubRecord, String), Error> {
        let token = self.hub_token(token)?;
        let shared = &self.shared;
        let turn = shared.configuring.lock().await;
        let now = shared.clock.now();
        let tenants_own = |hub: &&Hub| hub.record.tenant == acting.tenant;
        if shared.hubs.inner.lock().hubs.values().filter(tenants_own).count() >= MAX_HUBS {
            return Err(Error::Conflict(format!("a tenant has at most {MAX_HUBS} hubs")));
        }
        let record = HubRecord {
            id: HubId::from_i64(shared.take_ids(1)),
            tenant: acting.tenant,
            name,
            sha256: Sha256::digest(token.as_bytes()).into(),
            created_at: now,
        };
        let audit = acting.audit(now, "hub.create", record.id, None);
        let stored = shared.store.put_hub(record.clone(), audit).await;
        stored.inspect_err(|error| reload::read_again(shared, error))?;
        shared.hubs.put(record.clone());
        drop(turn);
        self.spread().await;
        Ok((record, token))
    }

    /// Gives a hub another token: the one that somebody chose, or a new one. The old one opens nothing
    /// any more, and whoever is connected with it is cut off.
    pub async fn rotate_hub_token(
        &self,
        acting: Acting,
        id: HubId,
        token: Option<String>,
    ) -> Result<(HubRecord, String), Error> {
        let token = self.hub_token(token)?;
        let shared = &self.shared;
        let turn = shared.configuring.lock().await;
        let mut record = shared.hubs.record(acting.tenant, id).ok_or(Error::NotFound)?;
        record.sha256 = Sha256::digest(token.as_bytes()).into();
        let audit = acting.audit(shared.clock.now(), "hub.rotate_token", id, None);
        let stored = shared.store.put_hub(record.clone(), audit).await;
        stored.inspect_err(|error| reload::read_again(shared, error))?;
        shared.hubs.renew_one(shared, record.clone());
        drop(turn);
        self.spread().await;
        Ok((record, token))
    }

    /// A token that can be used, made if none was chosen.
    fn hub_token(&self, chosen: Option<String>) -> Result<String, Error> {
        let Some(token) = chosen else {
            let mut token = TOKEN_PREFIX.to_owned();
            let secret = self.shared.entropy.secret_bytes();
            token.extend(secret.iter().map(|byte| format!("{byte:02x}")));
            return Ok(token);
        };
        let own = token.strip_prefix(TOKEN_PREFIX).map_or(0, str::len);
        if own < MIN_TOKEN_CHARS
            || token.len() > MAX_TOKEN_CHARS
            || !token.bytes().all(|byte| byte.is_ascii_graphic())
        {
            let message = format!(
                "must be {TOKEN_PREFIX} and at least {MIN_TOKEN_CHARS} further characters, at most \
                 {MAX_TOKEN_CHARS} in all, of visible ASCII"
            );
            return Err(Error::invalid("token", message));
        }
        Ok(token)
    }

    /// Deletes a hub: its connection ends at once and its token opens nothing. Its endpoints stay,
    /// and what they have waits until they are given another way or are deleted.
    pub async fn delete_hub(&self, acting: Acting, id: HubId) -> Result<(), Error> {
        let shared = &self.shared;
        let turn = shared.configuring.lock().await;
        shared.hubs.record(acting.tenant, id).ok_or(Error::NotFound)?;
        let now = shared.clock.now();
        let audit = acting.audit(now, "hub.delete", id, None);
        let stored = shared.store.delete_hub(id, audit).await;
        stored.inspect_err(|error| reload::read_again(shared, error))?;
        forget(shared, id);
        drop(turn);
        self.spread().await;
        Ok(())
    }

    /// All hubs of a tenant, newest first.
    pub async fn hubs(&self, tenant: TenantId) -> Result<Vec<HubView>, Error> {
        let mut records: Vec<HubRecord> = {
            let inner = self.shared.hubs.inner.lock();
            let hubs = inner.hubs.values().filter(|hub| hub.record.tenant == tenant);
            hubs.map(|hub| hub.record.clone()).collect()
        };
        records.sort_by_key(|record| std::cmp::Reverse(record.id));
        self.look_at_hubs(tenant, records).await
    }

    pub async fn hub(&self, tenant: TenantId, id: HubId) -> Result<HubView, Error> {
        let record = self.shared.hubs.record(tenant, id).ok_or(Error::NotFound)?;
        let views = self.look_at_hubs(tenant, vec![record]).await?;
        views.into_iter().next().ok_or(Error::NotFound)
    }

    async fn look_at_hubs(
        &self,
        tenant: TenantId,
        records: Vec<HubRecord>,
    ) -> Result<Vec<HubView>, Error> {
        let shared = &self.shared;
        let mut endpoints: HashMap<HubId, Vec<EndpointId>> = HashMap::new();
        for route in shared.routes.load().all().filter(|route| route.endpoint.tenant == tenant) {
            if let Destination::Hub(hub) = route.endpoint.spec.destination {
                endpoints.entry(hub).or_default().push(route.id());
            }
        }
        let counts = shared.store.counts(tenant).await?;
        let mut views = Vec::with_capacity(records.len());
        for record in records {
            let own = endpoints.get(&record.id).map_or(&[][..], Vec::as_slice);
            let waiting = counts
                .iter()
                .filter(|count| own.contains(&count.endpoint) && !count.state.is_terminal())
                .map(|count| count.deliveries)
                .sum();
            let mut oldest_waiting_at = None;
            for endpoint in own.iter().filter(|_| waiting > 0) {
                let none = DeliveryId::from_i64(0);
                let oldest = shared.store.unfinished(*endpoint, none, None, 1).await?;
                let born = oldest.first().map(|oldest| oldest.delivery.born);
                oldest_waiting_at = [oldest_waiting_at, born].into_iter().flatten().min();
            }
            let (connection, in_flight) = self.look_at_line(record.id).await;
            views.push(HubView { record, connection, in_flight, waiting, oldest_waiting_at });
        }
        Ok(views)
    }

    /// How a hub is connected, to whatever node, and what it has in its hands.
    async fn look_at_line(&self, id: HubId) -> (Option<HubConnection>, usize) {
        let shared = &self.shared;
        let here = shared.hubs.connection(id);
        let holder = || shared.fleet.as_ref()?.holder(Charge::Hub(id));
        if let (None, Some(node)) = (&here, holder())
            && let Some(words::Answer::Hub { connection, in_flight }) =
                shared.ask(node, Ask::Hub(id)).await
        {
            return (connection, in_flight);
        }
        (here, shared.scheduler.lock().hub_in_flight(id))
    }

    /// The hub that a token belongs to.
    pub fn hub_of_token(&self, token: &str) -> Option<HubRecord> {
        let sha256: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let inner = self.shared.hubs.inner.lock();
        let hub = inner.hubs.get(inner.tokens.get(&sha256)?)?;
        Some(hub.record.clone())
    }

    /// Opens a hub's line. An older one of the same hub ends, whatever node has it.
    pub async fn connect_hub(&self, id: HubId, hello: &Hello) -> Result<Link, Error> {
        let shared = &self.shared;
        let tenure = shared.seize_hub(id).await?;
        let legacies = match tenure {
            Some(_) => beats::legacies(shared).await?,
            None => HashMap::new(),
        };
        let now = shared.clock.now();
        let connection =
            HubConnection { since: now, agent: hello.agent.clone(), capacity: hello.capacity };
        let (line, outgoing, ending) = Line::new(connection);
        let line = Arc::new(line);
        let capacity = usize::try_from(hello.capacity).unwrap_or(usize::MAX);
        let old = {
            let mut inner = shared.hubs.inner.lock();
            let hub = inner.hubs.get_mut(&id).ok_or(Error::NotFound)?;
            let old = hub.line.replace(Arc::clone(&line));
            {
                let mut scheduler = shared.scheduler.lock();
                if let Some(tenure) = tenure {
                    scheduler.grant(&[tenure], &legacies, now);
                }
                scheduler.set_hub(id, Some(capacity), now);
            }
            let record = &hub.record;
            shared.publish([notice(record, NoticeKind::HubConnected, now)]);
            let (name, agent) = (&record.name, &hello.agent);
            tracing::info!(hub = %id, name, agent, capacity, "hub connected");
            old
        };
        if let Some(old) = old {
            old.end(Ending::TakenOver);
        }
        shared.pump();
        Ok(Link { shared: Arc::clone(shared), hub: id, line, outgoing, ending, ended: None })
    }
}
