//! Follows what other nodes change of the configuration, and sees to it that they follow this one. A change
//! of this one's own that may have been stored without its hearing of it is followed as well.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use postrider_core::EndpointId;
use postrider_core::endpoint::EndpointState;
use postrider_store::Error as StoreError;
use postrider_store::fleet::{NodeId, To};
use tokio::sync::{Notify, watch};

use super::words::Word;
use crate::endpoints::{self, Check};
use crate::engine::Engine;
use crate::ports;
use crate::route::{Route, Routes};
use crate::shared::Shared;

/// How long a change waits for the other nodes to follow. One that does not answer gets it later.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long this node has to read what others have changed, when somebody waits for it.
const CATCH_UP: Duration = Duration::from_secs(30);
/// After the store could not be read, the wait before it is tried again.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Configuration {
    /// What this node goes by.
    seen: AtomicI64,
    /// What the engine has read; the server reads its part when it changes.
    read: watch::Sender<u64>,
    asked: Notify,
    /// What other nodes go by.
    others: Mutex<HashMap<NodeId, i64>>,
    followed: Notify,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            seen: AtomicI64::new(0),
            read: watch::Sender::new(0),
            asked: Notify::new(),
            others: Mutex::default(),
            followed: Notify::new(),
        }
    }
}

impl Configuration {
    pub(super) fn seen(&self) -> i64 {
        self.seen.load(Ordering::Acquire)
    }

    /// Has the store looked at.
    pub(super) fn ask(&self) {
        self.asked.notify_one();
    }

    pub(super) fn seen_by(&self, node: NodeId, revision: i64) {
        let mut others = self.others.lock();
        let known = others.entry(node).or_insert(revision);
        *known = revision.max(*known);
        drop(others);
        self.followed.notify_waiters();
    }

    fn is_followed(&self, nodes: &[NodeId], revision: i64) -> bool {
        let mut others = self.others.lock();
        // Those that are gone are forgotten.
        others.retain(|node, _| nodes.contains(node));
        nodes.iter().all(|node| others.get(node).is_some_and(|seen| *seen >= revision))
    }
}

impl Engine {
    /// After a change of configuration was stored: ends when every live node goes by it, or could not
    /// be reached in time.
    pub async fn spread(&self) {
        let Some((fleet, store)) = self.shared.sharing() else { return };
        let (others, revision) = match self.others_and_revision().await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, "the others will see by themselves what has changed");
                return;
            }
        };
        if others.is_empty() {
            return;
        }
        let followed = async {
            loop {
                let told = fleet.configuration.followed.notified();
                tokio::pin!(told);
                told.as_mut().enable();
                if fleet.configuration.is_followed(&others, revision) {
                    break;
                }
                told.await;
            }
        };
        fleet.tell(store, To::All, &Word::Changed(revision));
        tokio::select! {
            biased;
            () = followed => {}
            () = ports::pause(fleet.clock.machine(), PATIENCE) => {
                tracing::debug!("not every node has followed a change in time");
            }
        }
    }

    /// Ends when this node goes by all that was changed before this was asked for, by whatever node;
    /// or fails when that takes too long.
    pub async fn catch_up(&self) -> Result<(), StoreError> {
        let Some((fleet, store)) = self.shared.sharing() else { return Ok(()) };
        let revision = store.look(Vec::new()).await?.revision;
        let mut read = self.configuration_changes();
        let wanted = u64::try_from(revision).unwrap_or(0);
        fleet.configuration.ask();
        tokio::select! {
            biased;
            _ = read.wait_for(|read| *read >= wanted) => {}
            () = ports::pause(fleet.clock.machine(), CATCH_UP) => {
                let why = "what other nodes have changed could not be read in time";
                return Err(StoreError::Unavailable(why.to_owned()));
            }
        }
        Ok(())
    }

    /// The other nodes, by the store, because one may just have come; and how configuration stands.
    async fn others_and_revision(&self) -> Result<(Vec<NodeId>, i64), StoreError> {
        let Some((fleet, store)) = self.shared.sharing() else { return Ok((Vec::new(), 0)) };
        let (node, nodes) = (fleet.node(), store.nodes(fleet.clock.machine().now()).await?);
        let others = nodes.into_iter().filter(|other| other.live && other.node != node);
        let others: Vec<NodeId> = others.map(|other| other.node).collect();
        if others.is_empty() {
            return Ok((others, 0));
        }
        Ok((others, store.look(Vec::new()).await?.revision))
    }

    /// Changes when another node may have changed keys, tenants or sources: they have to be read again,
    /// and [`Engine::configuration_reloaded`] to be told.
    pub fn configuration_changes(&self) -> watch::Receiver<u64> {
        match &self.shared.fleet {
            Some(fleet) => fleet.configuration.read.subscribe(),
            // Nobody else changes anything: it never does.
            None => watch::Sender::new(0).subscribe(),
        }
    }

    /// What [`Engine::configuration_changes`] announced is in force.
    pub fn configuration_reloaded(&self, change: u64) {
        follow(&self.shared, i64::try_from(change).unwrap_or(i64::MAX));
    }
}

/// This node goes by a revision, and says so.
fn follow(shared: &Shared, revision: i64) {
    let Some((fleet, store)) = shared.sharing() else { return };
    fleet.configuration.seen.fetch_max(revision, Ordering::AcqRel);
    fleet.tell(store, To::All, &Word::Seen(fleet.configuration.seen()));
}

/// Reads configuration when it has changed, or may have, for as long as the engine lives.
pub(crate) async fn run(shared: Arc<Shared>) {
    let (asked, clock) = match &shared.fleet {
        Some(fleet) => (&fleet.configuration.asked, fleet.clock.machine()),
        None => (&shared.unsure, &*shared.clock),
    };
    loop {
        asked.notified().await;
        loop {
            match reload(&shared).await {
                Ok(()) => break,
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::debug!(%error, "could not read the configuration, trying again");
                    ports::pause(clock, PAUSE).await;
                }
            }
        }
    }
}

/// Reads all of it, and puts to use what is not as it was.
async fn reload(shared: &Arc<Shared>) -> Result<(), StoreError> {
    // One at a time with this node's own changes: what is read is not older than they are.
    let turn = shared.configuring.lock().await;
    let Some((fleet, store)) = shared.sharing() else { return put_all(shared).await };
    let revision = store.look(Vec::new()).await?.revision;
    if revision > fleet.configuration.seen() {
        put_all(shared).await?;
    }
    drop(turn);
    let read = &fleet.configuration.read;
    read.send_replace(u64::try_from(revision).unwrap_or(0));
    if read.receiver_count() == 0 {
        // There is no server here that would have to follow as well.
        follow(shared, revision);
    }
    Ok(())
}

/// After a change of configuration of which nobody knows whether it was stored: it is read again.
pub(crate) fn read_again(shared: &Shared, error: &StoreError) {
    if error.leaves_doubt() {
        match &shared.fleet {
            Some(fleet) => fleet.configuration.ask(),
            None => shared.unsure.notify_one(),
        }
    }
}

/// Puts to use what the store has. Whoever asks for it holds the turn to configure.
async fn put_all(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let endpoints = shared.store.endpoints().await?;
    shared.hubs.renew(shared, shared.store.hubs().await?);
    put_endpoints(shared, endpoints);
    endpoints::end_deleted_locked(shared).await
}

/// Puts endpoints to use as they are now, and forgets those that are no more.
fn put_endpoints(shared: &Arc<Shared>, endpoints: Vec<postrider_core::Endpoint>) {
    let known = shared.routes.load_full();
    let mut routes: HashMap<EndpointId, Arc<Route>> = HashMap::with_capacity(endpoints.len());
    let mut changed = Vec::new();
    for endpoint in endpoints {
        let id = endpoint.id;
        let as_before = known.get(id).filter(|route| *route.endpoint == endpoint);
        if let Some(route) = as_before {
            routes.insert(id, Arc::clone(route));
            continue;
        }
        if endpoint.state == EndpointState::Deleted && known.get(id).is_none() {
            continue;
        }
        let deleted = endpoint.state == EndpointState::Deleted;
        match endpoints::compile(shared, Arc::new(endpoint), Check::AtDial) {
            Ok(route) => {
                let route = Arc::new(route);
                changed.push(Arc::clone(&route));
                if !deleted {
                    routes.insert(id, route);
                }
            }
            Err(error) => {
                tracing::error!(endpoint = %id, %error, "cannot be sent to as configured; its deliveries wait");
            }
        }
    }
    let gone: Vec<EndpointId> =
        known.all().map(|route| route.id()).filter(|id| !routes.contains_key(id)).collect();
    {
        let (mut scheduler, now) = (shared.scheduler.lock(), shared.clock.now());
        for route in &changed {
            scheduler.put_route(route, now);
        }
    }
    {
        let mut failing = shared.failing.lock();
        for id in gone {
            failing.forget(id);
        }
    }
    shared.routes.store(Arc::new(Routes::of(routes.into_values())));
    shared.pump();
}
