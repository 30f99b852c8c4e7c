//! The sources of the store, held in memory: a webhook costs one hash and one look-up before its
//! signature is checked.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use postrider_core::verification::{Invalid, Verifier};
use postrider_core::{Source, SourceId, TenantId, Timestamp};
use postrider_engine::Engine;
use postrider_store::audit::Audit;
use postrider_store::{Error, Registry, Store};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::keys::finish;
use crate::problem::Problem;

/// How many sources a tenant has at most. Every change copies the table.
pub(crate) const MAX_SOURCES: usize = 10_000;
/// A source tells of failed signatures no more often than this, however many there are.
const NOTICE_EVERY: Duration = Duration::from_secs(1);

/// The table of sources. Clones are the same table.
#[derive(Clone)]
pub struct Inbound {
    table: Arc<ArcSwap<Table>>,
    /// Held by whoever changes a source, from the look at what is there to the new table.
    changing: Arc<Mutex<()>>,
}

/// Looked up by the hash of its token: whoever times that learns of hashes, which lead back to no
/// 256-bit token.
#[derive(Clone, Default)]
struct Table {
    by_token: HashMap<[u8; 32], Arc<Entry>>,
    by_id: BTreeMap<SourceId, Arc<Entry>>,
}

/// A source that is in use.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) source: Source,
    verifier: Result<Verifier, Invalid>,
    /// The same for all its changes.
    failures: Arc<Failures>,
}

impl Inbound {
    pub async fn load(store: &dyn Registry) -> Result<Self, Error> {
        let table = Table::read(store, &Table::default()).await?;
        Ok(Self {
            table: Arc::new(ArcSwap::from_pointee(table)),
            changing: Arc::new(Mutex::new(())),
        })
    }

    /// What the store has, to be put to use. Nobody changes anything until that is done, or given
    /// up.
    pub(crate) async fn read(&self, store: &dyn Registry) -> Result<Reading, Error> {
        let turn = self.wait().await;
        let table = Table::read(store, &self.table.load()).await?;
        Ok(Reading { table, turn })
    }

    pub(crate) fn by_token(&self, token: &str) -> Option<Arc<Entry>> {
        self.table.load().by_token.get(&hash(token)).cloned()
    }

    pub(crate) fn get(&self, tenant: TenantId, id: SourceId) -> Option<Arc<Entry>> {
        self.table.load().by_id.get(&id).filter(|entry| entry.source.tenant == tenant).cloned()
    }

    /// Up to `limit` sources of a tenant with ids below `below`, newest first.
    pub(crate) fn list(
        &self,
        tenant: TenantId,
        below: Option<SourceId>,
        limit: usize,
    ) -> Vec<Arc<Entry>> {
        let table = self.table.load();
        let upper = below.map_or(Bound::Unbounded, Bound::Excluded);
        let newest_first = table.by_id.range((Bound::Unbounded, upper)).rev();
        newest_first
            .map(|(_, entry)| entry)
            .filter(|entry| entry.source.tenant == tenant)
            .take(limit)
            .cloned()
            .collect()
    }

    /// The right to change sources. One at a time, or two changes of different fields could undo
    /// each other. What other nodes have changed is there.
    pub(crate) async fn turn(&self, store: &dyn Store) -> Result<Turn, Error> {
        if store.fleet().is_some() {
            return Ok(self.read(store).await?.apply());
        }
        Ok(self.wait().await)
    }

    async fn wait(&self) -> Turn {
        Turn { inbound: self.clone(), _held: Arc::clone(&self.changing).lock_owned().await }
    }
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound")
            .field("known", &self.table.load().by_id.len())
            .finish_non_exhaustive()
    }
}

/// What was read from the store, and the turn in which it was.
pub(crate) struct Reading {
    table: Table,
    turn: Turn,
}

impl Reading {
    pub(crate) fn apply(self) -> Turn {
        self.turn.inbound.table.store(Arc::new(self.table));
        self.turn
    }
}

/// The right to change sources, used up by a change.
pub(crate) struct Turn {
    inbound: Inbound,
    _held: OwnedMutexGuard<()>,
}

impl Turn {
    /// Refuses one more source of a tenant that has as many as are kept.
    pub(crate) fn check_room(&self, tenant: TenantId) -> Result<(), Problem> {
        let table = self.inbound.table.load();
        let known = table.by_id.values().filter(|entry| entry.source.tenant == tenant).count();
        if known >= MAX_SOURCES {
            return Err(Problem::conflict(format!(
                "there are {MAX_SOURCES} sources already; delete one that is not used"
            )));
        }
        Ok(())
    }

    /// Stores a source and puts it to use, on all nodes; in this order, so that memory never runs
    /// ahead.
    pub(crate) async fn put(
        self,
        engine: &Engine,
        source: Source,
        verifier: Verifier,
        audit: Audit,
    ) -> Result<Arc<Entry>, Problem> {
        let engine = engine.clone();
        finish(async move {
            engine.store().put_source(source.clone(), audit).await?;
            let entry = self.alter(|table| {
                let failures = table.failures(source.id);
                let entry = Arc::new(Entry { source, verifier: Ok(verifier), failures });
                table.put(Arc::clone(&entry));
                entry
            });
            engine.spread().await;
            Ok(entry)
        })
        .await
        .map_err(Problem::from)
    }

    pub(crate) async fn delete(
        self,
        engine: &Engine,
        id: SourceId,
        audit: Audit,
    ) -> Result<(), Problem> {
        let engine = engine.clone();
        finish(async move {
            engine.store().delete_source(id, audit).await?;
            self.alter(|table| table.remove(id));
            engine.spread().await;
            Ok(())
        })
        .await
        .map_err(Problem::from)
    }

    /// Ends the turn. It must not last until other nodes know of the change: one of them may be
    /// waiting, in a turn of its own, for this node to read what it has changed.
    fn alter<T>(self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = Table::clone(&self.inbound.table.load());
        let changed = change(&mut table);
        self.inbound.table.store(Arc::new(table));
        changed
    }
}

impl Table {
    /// What the store has. A source that cannot verify as it is stored is there to be looked at and
    /// changed, and takes nothing in. What is as it was `before` is not made anew.
    async fn read(store: &dyn Registry, before: &Self) -> Result<Self, Error> {
        let mut table = Self::default();
        for source in store.sources().await? {
            let known = before.by_id.get(&source.id).filter(|entry| entry.source == source);
            table.put(match known {
                Some(entry) => Arc::clone(entry),
                None => Arc::new(Entry::new(before.failures(source.id), source)),
            });
        }
        Ok(table)
    }

    fn put(&mut self, entry: Arc<Entry>) {
        self.remove(entry.source.id);
        self.by_token.insert(hash(&entry.source.secrets.token), Arc::clone(&entry));
        self.by_id.insert(entry.source.id, entry);
    }

    fn remove(&mut self, id: SourceId) {
        if let Some(entry) = self.by_id.remove(&id) {
            self.by_token.remove(&hash(&entry.source.secrets.token));
        }
    }

    fn failures(&self, id: SourceId) -> Arc<Failures> {
        self.by_id.get(&id).map(|entry| Arc::clone(&entry.failures)).unwrap_or_default()
    }
}

impl Entry {
    fn new(failures: Arc<Failures>, source: Source) -> Self {
        let verifier = Verifier::new(&source.spec.verify, &source.secrets.signing);
        if let Err(error) = &verifier {
            tracing::error!(source = %source.id, %error, "cannot verify as configured; it takes nothing in");
        }
        Self { source, verifier, failures }
    }

    pub(crate) fn verifier(&self) -> Result<&Verifier, Problem> {
        self.verifier.as_ref().map_err(|_| {
            Problem::unavailable("this source cannot verify anything as it is configured")
        })
    }

    /// Counts a failed signature. If it is time for a notice: how many were passed over since the
    /// last one.
    pub(crate) fn note_failure(&self, now: Timestamp) -> Option<u64> {
        self.failures.note(now)
    }
}

/// Keeps an attacker who posts nonsense from flooding the stream of notices.
#[derive(Debug, Default)]
struct Failures {
    /// When the last notice was given, in milliseconds; 0 if none was.
    noticed_at: AtomicI64,
    passed_over: AtomicU64,
}

impl Failures {
    fn note(&self, now: Timestamp) -> Option<u64> {
        let now = now.as_millis();
        let last = self.noticed_at.load(Ordering::Relaxed);
        // A clock that was set back must not silence the source until it has caught up.
        let due = u128::from(now.abs_diff(last)) >= NOTICE_EVERY.as_millis();
        // Of several at once, one is chosen.
        let chosen = due
            && self
                .noticed_at
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if chosen {
            Some(self.passed_over.swap(0, Ordering::Relaxed))
        } else {
            self.passed_over.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_once_a_second_and_the_rest_are_counted() {
        let failures = Failures::default();
        let at = |millis: i64| Timestamp::from_millis(1_767_225_600_000 + millis);
        assert_eq!(failures.note(at(0)), Some(0));
        for millis in 0..999 {
            assert_eq!(failures.note(at(millis)), None);
        }
        assert_eq!(failures.note(at(1_000)), Some(999));
        assert_eq!(failures.note(at(1_001)), None);
        assert_eq!(failures.note(at(-60_000)), Some(1), "after the clock was set back");
    }
}
