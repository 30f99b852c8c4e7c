//! An engine on a real database and virtual time, for tests of what is fetched rather than pushed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use postrider_core::delivery::State;
use postrider_core::endpoint::{Destination, Spec};
use postrider_core::pattern::Pattern;
use postrider_core::{DeliveryId, EndpointId, EventId, TenantId, Timestamp};
use postrider_engine::notices::{Notice, NoticeKind};
use postrider_engine::ports::{Clock, ManualClock, SystemEntropy};
use postrider_engine::{Accepted, Acting, Engine, Options, Submission};
use postrider_store::record::{Attempt, DeliveryRecord, delivery_id};
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{broadcast, watch};

use crate::rig::{self, PATIENCE};

pub(crate) const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
pub(crate) const TENANT: TenantId = TenantId::DEFAULT;
pub(crate) const ACTING: Acting = Acting::gateway(TENANT);

/// A clock that moves when told to, and says until when somebody sleeps.
#[derive(Debug, Clone)]
pub(crate) struct Timepiece {
    hands: ManualClock,
    sleeps: Arc<watch::Sender<BTreeMap<Timestamp, usize>>>,
}

impl Timepiece {
    fn at(now: Timestamp) -> Self {
        Self { hands: ManualClock::at(now), sleeps: Arc::default() }
    }

    pub(crate) fn advance(&self, span: Duration) {
        self.hands.advance(span);
    }

    pub(crate) fn set(&self, to: Timestamp) {
        self.hands.set(to);
    }

    /// How often somebody has gone to sleep until then.
    pub(crate) fn sleeps(&self, until: Timestamp) -> usize {
        self.sleeps.borrow().get(&until).copied().unwrap_or(0)
    }

    /// Waits until somebody has gone to sleep until then more often than `before`.
    pub(crate) async fn asleep(&self, until: Timestamp, before: usize) {
        let mut sleeps = self.sleeps.subscribe();
        let asleep = sleeps.wait_for(|sleeps| sleeps.get(&until).is_some_and(|now| *now > before));
        let waited = tokio::time::timeout(PATIENCE, asleep).await;
        assert!(waited.is_ok(), "nobody sleeps until {until}");
    }
}

impl Clock for Timepiece {
    fn now(&self) -> Timestamp {
        self.hands.now()
    }

    fn monotonic(&self) -> Duration {
        self.hands.monotonic()
    }

    fn sleep_until(&self, time: Timestamp) -> BoxFuture<'static, ()> {
        let sleep = self.hands.sleep_until(time);
        self.sleeps.send_modify(|sleeps| *sleeps.entry(time).or_default() += 1);
        sleep
    }
}

pub(crate) struct Gateway {
    pub(crate) engine: Engine,
    pub(crate) clock: Timepiece,
    notices: broadcast::Receiver<Arc<Notice>>,
    data: TempDir,
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    pub(crate) async fn start_with(options: Options) -> Self {
        Self::open(TempDir::new().expect("a folder"), START, options).await
    }

    async fn open(data: TempDir, now: Timestamp, options: Options) -> Self {
        let keyring = Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("one key");
        let path = data.path().join("postrider.db");
        let store = Sqlite::open(&path, sqlite::Options::default(), keyring).expect("a database");
        let options =
            Options { allowed: vec!["127.0.0.0/8".parse().expect("a network")], ..options };
        let clock = Timepiece::at(now);
        let (ours, entropy) = (Arc::new(clock.clone()), Arc::new(SystemEntropy));
        let engine = Engine::start(options, Arc::new(store), ours, entropy);
        let engine = engine.await.expect("the engine starts");
        let notices = engine.notices().subscribe();
        Self { engine, clock, notices, data }
    }

    /// Stops in good order and starts again, at the same time of day.
    pub(crate) async fn restart(self) -> Self {
        assert_eq!(self.engine.drain(PATIENCE).await.abandoned, 0);
        let now = self.clock.now();
        drop(self.engine);
        Self::open(self.data, now, Options::default()).await
    }

    pub(crate) async fn endpoint(&self, spec: Spec) -> EndpointId {
        rig::create(&self.engine, spec).await
    }

    /// Changes what is said of an endpoint.
    pub(crate) async fn change(&self, endpoint: EndpointId, change: impl FnOnce(&mut Spec)) {
        let mut spec = self.engine.endpoint(TENANT, endpoint).expect("known").spec.clone();
        change(&mut spec);
        let changed = self.engine.update_endpoint(ACTING, endpoint, spec, None).await;
        changed.expect("changed");
    }

    pub(crate) async fn send(&self, kind: &str) -> EventId {
        self.send_all([event(kind)]).await[0]
    }

    /// Stores events, all in one commit.
    pub(crate) async fn send_all(
        &self,
        events: impl IntoIterator<Item = Submission>,
    ) -> Vec<EventId> {
        self.send_as(TENANT, events).await
    }

    pub(crate) async fn send_as(
        &self,
        tenant: TenantId,
        events: impl IntoIterator<Item = Submission>,
    ) -> Vec<EventId> {
        let accepted = self.engine.accept(tenant, events.into_iter().collect()).await;
        let id = |one: Accepted| match one {
            Accepted::New { id, .. } => id,
            other @ (Accepted::Duplicate { .. } | Accepted::Conflict { .. }) => {
                panic!("no key was given, but {other:?}")
            }
        };
        accepted.expect("accepted").into_iter().map(id).collect()
    }

    /// A tenant beside the one that is always there.
    pub(crate) async fn other_tenant(&self) -> TenantId {
        let audit = ACTING.audit(self.clock.now(), "tenant.create", "other", None);
        let made = self.engine.store().make_tenant("other".into(), self.clock.now(), audit).await;
        made.expect("a tenant").id
    }

    /// The next notice of this kind; others pass by.
    pub(crate) async fn notice(&mut self, kind: NoticeKind) -> Arc<Notice> {
        let found = async {
            loop {
                let notice = self.notices.recv().await.expect("the engine goes on");
                if notice.kind == kind {
                    return notice;
                }
            }
        };
        let found = tokio::time::timeout(PATIENCE, found).await;
        found.unwrap_or_else(|_| panic!("no {kind:?} came"))
    }

    /// All notices of this kind so far that nobody has looked at.
    pub(crate) fn notices(&mut self, kind: NoticeKind) -> Vec<Arc<Notice>> {
        let next = || self.notices.try_recv().ok();
        std::iter::from_fn(next).filter(|notice| notice.kind == kind).collect()
    }

    pub(crate) async fn record(&self, delivery: DeliveryId) -> DeliveryRecord {
        let record = self.engine.store().delivery(TENANT, delivery).await.expect("readable");
        record.expect("known")
    }

    pub(crate) async fn state(&self, delivery: DeliveryId) -> State {
        self.record(delivery).await.state
    }

    pub(crate) async fn attempts(&self, delivery: DeliveryId) -> Vec<Attempt> {
        self.engine.store().attempts(delivery).await.expect("readable")
    }
}

/// An event that says nothing but its type, which is its body as well.
pub(crate) fn event(kind: &str) -> Submission {
    Submission {
        kind: kind.to_owned(),
        content_type: "text/plain".into(),
        body: Bytes::copy_from_slice(kind.as_bytes()),
        idempotency_key: None,
        ordering_key: None,
        deliver_at: None,
        metadata: None,
        source: None,
        verified: None,
        headers: Vec::new(),
        trace: None,
    }
}

/// An endpoint that every event goes to.
pub(crate) fn spec(destination: Destination) -> Spec {
    Spec {
        destination,
        event_types: vec![Pattern::Any],
        policy: policy(serde_json::json!({
            "schedule": {"list": ["10s"], "jitter": 0.0},
            "max_attempts": 5,
        })),
        ..rig::spec(String::new(), "replaced.above")
    }
}

pub(crate) fn policy(json: Value) -> postrider_core::policy::Spec {
    serde_json::from_value(json).expect("a policy")
}

/// The only delivery of an event.
pub(crate) fn delivery_of(event: EventId) -> DeliveryId {
    delivery_id(event, 0)
}

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}
