//! Connections between requests: idle HTTP/1 connections, shared HTTP/2 connections, per origin and
//! per TLS settings.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::connection::{Connection, Http1, Http2};
use super::endpoint_tls::Identity;
use crate::destination::Origin;

/// How many idle HTTP/1 connections are kept for one origin and one set of TLS settings.
pub const MAX_IDLE_PER_ORIGIN: usize = 128;
/// How many connections are kept for all origins together.
pub const MAX_IDLE: usize = 2048;
/// How long an unused connection is kept. Shorter than the 60 s after which common servers and
/// balancers close, so that they seldom close one just as it is used.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// How often connections that nobody asks for are looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// How long a request waits for another one to dial an origin that may speak HTTP/2, before it
/// dials for itself.
const DIAL_TURN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Pool {
    state: Mutex<State>,
}

/// What connections are shared by.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    pub(super) origin: &'a Arc<Origin>,
    /// The endpoint's own TLS settings, if it has any.
    pub(super) identity: Option<Identity>,
}

#[derive(Default)]
struct State {
    slots: Slots,
    /// Idle and shared connections in all slots.
    kept: usize,
    sweeping: bool,
}

/// Endpoints without TLS settings of their own are the rule, and are found by their origin alone.
#[derive(Default)]
struct Slots {
    plain: HashMap<Arc<Origin>, Slot>,
    identified: HashMap<Identity, HashMap<Arc<Origin>, Slot>>,
}

#[derive(Default)]
struct Slot {
    /// The most recently used last.
    idle: Vec<Idle>,
    shared: Option<SharedConnection>,
    /// Who dials an origin first finds out what it speaks; the others wait for that.
    turn: Option<Arc<Semaphore>>,
    speaks_http1: bool,
}

struct Idle {
    connection: Http1,
    since: Instant,
}

struct SharedConnection {
    connection: Arc<Http2>,
    used: Instant,
}

impl Pool {
    /// Takes a connection that looks alive: the shared one, or the idle one used last.
    pub(super) fn take(&self, key: Key<'_>) -> Option<Connection> {
        if let Some(shared) = self.take_shared(key) {
            return Some(shared);
        }
        let now = Instant::now();
        // Ends with the idle connections of the origin, of which there is a bounded number.
        loop {
            let mut idle = self.pop(key)?;
            if now.saturating_duration_since(idle.since) < IDLE_TIMEOUT && idle.connection.is_idle()
            {
                return Some(Connection::Http1(idle.connection));
            }
        }
    }

    pub(super) fn take_shared(&self, key: Key<'_>) -> Option<Connection> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let slot = state.slots.find(key)?;
        let shared = slot.shared.as_mut()?;
        if shared.connection.is_closed() {
            slot.shared = None;
            state.kept -= 1;
            return None;
        }
        shared.used = Instant::now();
        Some(Connection::Http2(shared.connection.clone()))
    }

    /// Gives back a connection whose answer was read to its end.
    pub(super) fn give(self: &Arc<Self>, key: Key<'_>, connection: Connection) {
        let mut connection = match connection {
            Connection::Http1(connection) => connection,
            // It never left the pool.
            Connection::Http2(_) => return,
        };
        if !connection.is_idle() {
            return;
        }
        let mut state = self.state.lock();
        let full = state.kept >= MAX_IDLE;
        let slot = state.slots.slot(key);
        if full || slot.idle.len() >= MAX_IDLE_PER_ORIGIN {
            // Closed after the lock is released, because the lock is the younger of the two.
            return;
        }
        slot.idle.push(Idle { connection, since: Instant::now() });
        state.kept += 1;
        self.keep_swept(&mut state);
    }

    /// Records what a freshly dialled origin speaks. Of two HTTP/2 connections the first is kept.
    pub(super) fn announce(self: &Arc<Self>, key: Key<'_>, connection: Connection) -> Connection {
        let mut state = self.state.lock();
        let full = state.kept >= MAX_IDLE;
        let slot = state.slots.slot(key);
        let connection = match connection {
            Connection::Http1(connection) => {
                slot.speaks_http1 = true;
                Connection::Http1(connection)
            }
            Connection::Http2(dialed) => {
                slot.speaks_http1 = false;
                let alive = slot.shared.as_ref().filter(|shared| !shared.connection.is_closed());
                if let Some(shared) = alive {
                    return Connection::Http2(shared.connection.clone());
                }
                if !full || slot.shared.is_some() {
                    let connection = dialed.clone();
                    let replaced =
                        slot.shared.replace(SharedConnection { connection, used: Instant::now() });
                    state.kept += usize::from(replaced.is_none());
                }
                Connection::Http2(dialed)
            }
        };
        self.keep_swept(&mut state);
        connection
    }

    /// Waits until no other request dials this origin, unless it is known to speak only HTTP/1 or
    /// the other takes too long.
    pub(super) async fn turn_to_dial(
        self: &Arc<Self>,
        key: Key<'_>,
    ) -> Option<OwnedSemaphorePermit> {
        let turn = {
            let mut state = self.state.lock();
            let slot = state.slots.slot(key);
            if slot.speaks_http1 {
                return None;
            }
            let turn = slot.turn.get_or_insert_with(|| Arc::new(Semaphore::new(1))).clone();
            self.keep_swept(&mut state);
            turn
        };
        tokio::time::timeout(DIAL_TURN, turn.acquire_owned()).await.ok()?.ok()
    }

    fn pop(&self, key: Key<'_>) -> Option<Idle> {
        let mut state = self.state.lock();
        let idle = state.slots.find(key)?.idle.pop()?;
        state.kept -= 1;
        Some(idle)
    }

    /// One timer for the whole pool, and none while it is empty.
    fn keep_swept(self: &Arc<Self>, state: &mut State) {
        if state.sweeping {
            return;
        }
        state.sweeping = true;
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP_EVERY).await;
                let Some(pool) = pool.upgrade() else { return };
                if pool.sweep(Instant::now()) == Sweep::Empty {
                    return;
                }
            }
        });
    }

    /// Closes what is too old or was closed by its peer, and forgets origins without connections.
    pub(super) fn sweep(&self, now: Instant) -> Sweep {
        let mut closed = Vec::new();
        let mut state = self.state.lock();
        let fresh = |since| now.saturating_duration_since(since) < IDLE_TIMEOUT;
        state.slots.retain(|slot| {
            closed.extend(
                slot.idle.extract_if(.., |idle| !fresh(idle.since) || !idle.connection.is_idle()),
            );
            if let Some(shared) = &slot.shared {
                let in_use = Arc::strong_count(&shared.connection) > 1;
                if shared.connection.is_closed() || !in_use && !fresh(shared.used) {
                    slot.shared = None;
                }
            }
            let dialling = slot.turn.as_ref().is_some_and(|turn| Arc::strong_count(turn) > 1);
            !slot.idle.is_empty() || slot.shared.is_some() || dialling
        });
        let held = |slot: &Slot| slot.idle.len() + usize::from(slot.shared.is_some());
        let kept = state.slots.all().map(held).sum();
        state.kept = kept;
        let empty = state.slots.all().next().is_none();
        state.sweeping = !empty;
        let sweep = if state.sweeping { Sweep::Kept } else { Sweep::Empty };
        // Closing sockets takes system calls, which nobody should wait for at the lock.
        drop(state);
        drop(closed);
        sweep
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    Kept,
    Empty,
}

impl Slots {
    fn find(&mut self, key: Key<'_>) -> Option<&mut Slot> {
        let origins = match key.identity {
            None => &mut self.plain,
            Some(identity) => self.identified.get_mut(&identity)?,
        };
        origins.get_mut(key.origin)
    }

    fn slot(&mut self, key: Key<'_>) -> &mut Slot {
        let origins = match key.identity {
            None => &mut self.plain,
            Some(identity) => self.identified.entry(identity).or_default(),
        };
        origins.entry(key.origin.clone()).or_default()
    }

    fn all(&self) -> impl Iterator<Item = &Slot> {
        self.plain.values().chain(self.identified.values().flat_map(HashMap::values))
    }

    fn retain(&mut self, mut wanted: impl FnMut(&mut Slot) -> bool) {
        self.plain.retain(|_, slot| wanted(slot));
        self.identified.retain(|_, origins| {
            origins.retain(|_, slot| wanted(slot));
            !origins.is_empty()
        });
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Pool")
            .field("origins", &state.slots.all().count())
            .field("kept", &state.kept)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Pool {
    pub(super) fn kept(&self) -> usize {
        self.state.lock().kept
    }
}
