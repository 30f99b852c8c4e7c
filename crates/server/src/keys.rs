//! API keys: who a caller is, by the hash of what it shows.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_core::{KeyId, TenantId, Timestamp};
use postrider_engine::Engine;
use postrider_engine::ports::{Entropy as _, SystemEntropy};
use postrider_store::audit::Audit;
use postrider_store::registry::{KeyRecord, Role, TenantRecord};
use postrider_store::{Error, Registry, Store};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::background::Background;
use crate::throttle::{Rate, SharedBucket};

pub(crate) const PREFIX: &str = "pr_";
/// How often it is written down when keys were last used.
const NOTE_USES_EVERY: Duration = Duration::from_mins(1);
/// How many of those are written at once.
const MAX_NOTED: usize = 512;
/// How long a one-time link is good.
const LINK_LASTS: Duration = Duration::from_mins(10);
/// How many of them there are at once.
const MAX_LINKS: usize = 16;
const ONE_TIME_PATH: &str = "/sign-in?once=";

/// The keys and tenants of the store, held in memory: a request costs one hash and one look-up.
/// Whoever times the look-up learns of hashes, which lead back to no 256-bit secret.
#[derive(Clone)]
pub struct Keys {
    table: Arc<ArcSwap<Table>>,
    /// Held by whoever changes a key or a tenant, from the look at what is there to the new table.
    changing: Arc<Mutex<()>>,
    links: Arc<parking_lot::Mutex<Links>>,
}

#[derive(Clone, Default)]
struct Table {
    by_hash: HashMap<[u8; 32], Arc<Entry>>,
    by_id: BTreeMap<KeyId, Arc<Entry>>,
    tenants: BTreeMap<TenantId, TenantRecord>,
    by_name: HashMap<String, TenantId>,
}

struct Entry {
    record: KeyRecord,
    /// Outlives changes of the record.
    meter: Arc<Meter>,
}

/// What using a key changes, without a lock.
struct Meter {
    /// In milliseconds; 0 is never.
    used_at: AtomicI64,
    /// As far as the store knows it.
    noted_at: AtomicI64,
    bucket: SharedBucket,
}

/// Whose key was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) id: KeyId,
    pub(crate) role: Role,
}

/// Why a key opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    Unknown,
    Revoked,
    Expired,
    /// It would, after this long.
    TooOften(Duration),
}

/// The right to change keys and tenants.
#[derive(Debug)]
pub(crate) struct Turn {
    _held: OwnedMutexGuard<()>,
}

impl Keys {
    pub async fn load(store: &dyn Registry) -> Result<Self, Error> {
        let table = Table::read(store, &Table::default()).await?;
        Ok(Self {
            table: Arc::new(ArcSwap::from_pointee(table)),
            changing: Arc::new(Mutex::new(())),
            links: Arc::default(),
        })
    }

    /// Takes over what has changed in the store.
    pub async fn reload(&self, store: &dyn Registry) -> Result<(), Error> {
        drop(self.read(store).await?.apply());
        Ok(())
    }

    /// What the store has, to be put to use. Nobody changes anything until that is done, or given
    /// up.
    pub(crate) async fn read(&self, store: &dyn Registry) -> Result<Reading, Error> {
        let turn = self.wait().await;
        let table = Table::read(store, &self.table.load()).await?;
        Ok(Reading { keys: self.clone(), table, turn })
    }

    /// Writes down when keys were last used, where the store does not know it yet. It is done every
    /// minute while the server runs; a stop does it once more.
    pub async fn flush(&self, store: &dyn Registry) -> Result<(), Error> {
        let table = self.table.load_full();
        let used: Vec<_> = table.by_id.values().filter_map(|entry| entry.unnoted()).collect();
        for some in used.chunks(MAX_NOTED) {
            store.touch_keys(some.to_vec()).await?;
            for (id, at) in some {
                if let Some(entry) = table.by_id.get(id) {
                    entry.meter.noted_at.fetch_max(at.as_millis(), Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Learns when keys were last used through other nodes.
    async fn learn_uses(&self, store: &dyn Registry) -> Result<(), Error> {
        let stored = store.keys().await?;
        let table = self.table.load();
        for record in &stored {
            if let Some(entry) = table.by_id.get(&record.id) {
                entry.meter.learn(record);
            }
        }
        Ok(())
    }

    /// Flushes every minute, until what is returned is dropped.
    pub(crate) fn note_uses(&self, engine: &Engine) -> Background {
        let (keys, clock, store) =
            (self.clone(), Arc::clone(engine.clock()), Arc::clone(engine.store()));
        Background::spawn(async move {
            let mut next = clock.now().plus(NOTE_USES_EVERY);
            loop {
                clock.sleep_until(next).await;
                if clock.now() < next {
                    continue;
                }
                let mut noted = keys.flush(&*store).await;
                if noted.is_ok() && store.fleet().is_some() {
                    noted = keys.learn_uses(&*store).await;
                }
                if let Err(error) = noted {
                    tracing::warn!(%error, "cannot note when keys were last used; trying again");
                }
                next = clock.now().plus(NOTE_USES_EVERY);
            }
        })
    }

    /// Whose key this is, if it opens anything at this time. That it was used is noted.
    pub(crate) fn identify(
        &self,
        key: &str,
        now: Timestamp,
        limit: Option<Rate>,
    ) -> Result<Known, Denied> {
        let table = self.table.load();
        let entry = table.by_hash.get(&hash(key)).ok_or(Denied::Unknown)?;
        entry.used(now, limit)
    }

    /// The same for a key that was shown a while ago, by whoever has signed in with it.
    pub(crate) fn visit(
        &self,
        id: KeyId,
        now: Timestamp,
        limit: Option<Rate>,
    ) -> Result<Known, Denied> {
        self.table.load().by_id.get(&id).ok_or(Denied::Unknown)?.used(now, limit)
    }

    /// The path of a page that signs in with this key, once and within ten minutes: for whoever
    /// starts a gateway to look at it. The newest few are good, and on this node alone.
    pub fn one_time_link(&self, key: KeyId, now: Timestamp) -> String {
        let token = URL_SAFE_NO_PAD.encode(SystemEntropy.secret_bytes());
        self.links.lock().put(hash(&token), key, now);
        format!("{ONE_TIME_PATH}{token}")
    }

    /// The key that a one-time link is for. It is worth nothing after that.
    pub(crate) fn take_link(&self, token: &str, now: Timestamp) -> Option<KeyId> {
        self.links.lock().take(&hash(token), now)
    }

    /// Whether a key that was shown a while ago still opens anything.
    pub(crate) fn check(&self, id: KeyId, now: Timestamp) -> Result<(), Denied> {
        self.table.load().by_id.get(&id).ok_or(Denied::Unknown)?.check(now)
    }

    /// A key by its id, with its last use as it is known here.
    pub(crate) fn record(&self, id: KeyId) -> Option<KeyRecord> {
        self.table.load().by_id.get(&id).map(|entry| entry.as_used())
    }

    /// Keys below an id, newest first.
    pub(crate) fn records(
        &self,
        below: Option<KeyId>,
        limit: usize,
        wanted: impl Fn(Role) -> bool,
    ) -> Vec<KeyRecord> {
        let table = self.table.load();
        let rows = table.by_id.values().rev();
        rows.filter(|entry| below.is_none_or(|below| entry.record.id < below))
            .filter(|entry| wanted(entry.record.role))
            .take(limit)
            .map(|entry| entry.as_used())
            .collect()
    }

    /// How many keys a tenant has, or how many admin keys there are, revoked ones included.
    pub(crate) fn count(&self, role: Role) -> usize {
        self.table.load().by_id.values().filter(|entry| entry.record.role == role).count()
    }

    /// Whether nobody could get in for good if this admin key were gone. Keys that will expire are
    /// no help: the last of them would lock everybody out without anybody's doing.
    pub(crate) fn is_last_admin(&self, id: KeyId, now: Timestamp) -> bool {
        let table = self.table.load();
        let stays = |record: &KeyRecord| is_live_admin(record, now) && record.expires_at.is_none();
        let mut records = table.by_id.values().map(|entry| &entry.record);
        table.by_id.get(&id).is_some_and(|entry| is_live_admin(&entry.record, now))
            && !records.any(|other| other.id != id && stays(other))
    }

    pub(crate) fn tenant_named(&self, name: &str) -> Option<TenantId> {
        self.table.load().by_name.get(name).copied()
    }

    pub(crate) fn tenant_name(&self, id: TenantId) -> Option<String> {
        self.table.load().tenants.get(&id).map(|tenant| tenant.name.clone())
    }

    /// Every tenant, newest first.
    pub(crate) fn tenants(&self) -> Vec<TenantRecord> {
        self.table.load().tenants.values().rev().cloned().collect()
    }

    /// Waits for the right to change something. What is looked at before a change is looked at
    /// after this: what other nodes have changed is there by then.
    pub(crate) async fn turn(&self, store: &dyn Store) -> Result<Turn, Error> {
        if store.fleet().is_some() {
            return Ok(self.read(store).await?.apply());
        }
        Ok(self.wait().await)
    }

    async fn wait(&self) -> Turn {
        Turn { _held: Arc::clone(&self.changing).lock_owned().await }
    }

    /// Stores a new or changed key; from then on it is judged by what is in `record`, on all nodes.
    pub(crate) async fn put(
        &self,
        turn: Turn,
        engine: &Engine,
        record: KeyRecord,
        audit: Audit,
    ) -> Result<(), Error> {
        let (keys, engine) = (self.clone(), engine.clone());
        finish(async move {
            engine.store().put_key(record.clone(), Some(audit)).await?;
            keys.change(turn, |table| table.put(record));
            engine.spread().await;
            Ok(())
        })
        .await
    }

    pub(crate) async fn make_tenant(
        &self,
        turn: Turn,
        engine: &Engine,
        name: String,
        audit: Audit,
    ) -> Result<TenantRecord, Error> {
        let (keys, engine) = (self.clone(), engine.clone());
        finish(async move {
            let made = engine.store().make_tenant(name, audit.at, audit).await?;
            keys.change(turn, |table| table.put_tenant(made.clone()));
            engine.spread().await;
            Ok(made)
        })
        .await
    }

    /// Ends the turn. It must not last until other nodes know of the change: one of them may be
    /// waiting, in a turn of its own, for this node to read what it has changed.
    fn change(&self, turn: Turn, change: impl FnOnce(&mut Table)) {
        let mut table = Table::clone(&self.table.load());
        change(&mut table);
        self.table.store(Arc::new(table));
        drop(turn);
    }
}

/// Carries a change through, even if whoever asked for it has hung up: a key that is revoked in the
/// store alone would go on opening things.
pub(crate) async fn finish<T: Send + 'static>(
    change: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    // It fails only where the runtime ends before the change does.
    tokio::spawn(change).await.unwrap_or(Err(Error::Closed))
}

/// What was read from the store, and the turn in which it was.
pub(crate) struct Reading {
    keys: Keys,
    table: Table,
    turn: Turn,
}

impl Reading {
    pub(crate) fn apply(self) -> Turn {
        self.keys.table.store(Arc::new(self.table));
        self.turn
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.table.load().by_id.len();
        f.debug_struct("Keys").field("known", &known).finish_non_exhaustive()
    }
}

impl Table {
    /// What the store has; what is known of the use of keys is taken over from `before`.
    async fn read(store: &dyn Registry, before: &Self) -> Result<Self, Error> {
        let mut table = Self::default();
        for record in store.keys().await? {
            let meter = before.meter(&record);
            meter.learn(&record);
            table.insert(record, meter);
        }
        // After the keys, so that none is of a tenant that is not known.
        for tenant in store.tenants().await? {
            table.put_tenant(tenant);
        }
        Ok(table)
    }

    fn put(&mut self, record: KeyRecord) {
        let meter = self.meter(&record);
        self.insert(record, meter);
    }

    fn insert(&mut self, record: KeyRecord, meter: Arc<Meter>) {
        let entry = Arc::new(Entry { record, meter });
        self.by_hash.insert(entry.record.sha256, Arc::clone(&entry));
        self.by_id.insert(entry.record.id, entry);
    }

    fn meter(&self, record: &KeyRecord) -> Arc<Meter> {
        let known = self.by_id.get(&record.id);
        known.map_or_else(|| Meter::of(record), |entry| Arc::clone(&entry.meter))
    }

    fn put_tenant(&mut self, tenant: TenantRecord) {
        self.by_name.insert(tenant.name.clone(), tenant.id);
        self.tenants.insert(tenant.id, tenant);
    }
}

impl Entry {
    fn check(&self, now: Timestamp) -> Result<(), Denied> {
        if self.record.revoked_at.is_some() {
            Err(Denied::Revoked)
        } else if self.record.expires_at.is_some_and(|expiry| expiry <= now) {
            Err(Denied::Expired)
        } else {
            Ok(())
        }
    }

    /// Notes that it is used, if it may be.
    fn used(&self, now: Timestamp, limit: Option<Rate>) -> Result<Known, Denied> {
        self.check(now)?;
        let Self { record, meter } = self;
        if let Some(rate) = limit {
            meter.bucket.take(rate, now).map_err(Denied::TooOften)?;
        }
        // Looked at before it is written: many that use one key at once would fight over the line
        // of memory otherwise.
        if meter.used_at.load(Ordering::Relaxed) < now.as_millis() {
            meter.used_at.store(now.as_millis(), Ordering::Relaxed);
        }
        Ok(Known { id: record.id, role: record.role })
    }

    fn as_used(&self) -> KeyRecord {
        let used_at = self.meter.used_at.load(Ordering::Relaxed);
        let last_used_at = (used_at > 0).then(|| Timestamp::from_millis(used_at));
        KeyRecord { last_used_at, ..self.record.clone() }
    }

    /// Its last use, where the store does not know it.
    fn unnoted(&self) -> Option<(KeyId, Timestamp)> {
        let used_at = self.meter.used_at.load(Ordering::Relaxed);
        let noted_at = self.meter.noted_at.load(Ordering::Relaxed);
        (used_at > noted_at).then(|| (self.record.id, Timestamp::from_millis(used_at)))
    }
}

impl Meter {
    fn of(record: &KeyRecord) -> Arc<Self> {
        let used_at = record.last_used_at.map_or(0, Timestamp::as_millis);
        Arc::new(Self {
            used_at: AtomicI64::new(used_at),
            noted_at: AtomicI64::new(used_at),
            bucket: SharedBucket::default(),
        })
    }

    /// Takes over what the store knows of its last use: it may have been through another node.
    fn learn(&self, record: &KeyRecord) {
        let stored = record.last_used_at.map_or(0, Timestamp::as_millis);
        self.used_at.fetch_max(stored, Ordering::Relaxed);
        self.noted_at.fetch_max(stored, Ordering::Relaxed);
    }
}

/// Links that sign in, by the hashes of their tokens, oldest first.
#[derive(Default)]
struct Links(VecDeque<Link>);

struct Link {
    sha256: [u8; 32],
    key: KeyId,
    until: Timestamp,
}

impl Links {
    fn put(&mut self, sha256: [u8; 32], key: KeyId, now: Timestamp) {
        if self.0.len() == MAX_LINKS {
            self.0.pop_front();
        }
        self.0.push_back(Link { sha256, key, until: now.plus(LINK_LASTS) });
    }

    fn take(&mut self, sha256: &[u8; 32], now: Timestamp) -> Option<KeyId> {
        let found = self.0.iter().position(|link| link.sha256 == *sha256)?;
        self.0.remove(found).filter(|link| now < link.until).map(|link| link.key)
    }
}

/// A key that is shown once and then known by its hash.
pub(crate) fn new_key(random: [u8; 32]) -> String {
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random))
}

pub(crate) fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

pub(crate) fn is_live_admin(record: &KeyRecord, now: Timestamp) -> bool {
    record.role == Role::Admin
        && record.revoked_at.is_none()
        && record.expires_at.is_none_or(|expiry| expiry > now)
}
