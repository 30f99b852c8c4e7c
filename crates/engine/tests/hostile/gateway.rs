//! The engine that visits hostile receivers, and the look around afterwards for harm done.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use postrider_core::{DeliveryId, EndpointId, TenantId};
use postrider_engine::notices::{Notice, NoticeKind};
use postrider_engine::{BreakerOptions, Engine, Options};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::broadcast::Receiver;

use crate::certificate::{Authority, Leaf};
use crate::memory::Mark;
use crate::panics;
use crate::rig::sink::{Reply, Sink};
use crate::rig::{self, PATIENCE};
use crate::story::Story;

/// How often each receiver is visited. Also the number of slots there are, so that a single one
/// that is not given back shows.
pub(crate) const HUNDRED: usize = 100;
const SLOTS: u32 = 100;

/// Longer than any exchange takes that comes to an end by itself.
const AMPLE: Duration = Duration::from_secs(25);
/// For receivers that never answer: a hundred of them wait side by side.
pub(crate) const SHORT: Duration = Duration::from_millis(500);
/// For receivers that begin to answer and never come to an end: time enough to begin.
pub(crate) const BRIEF: Duration = Duration::from_secs(2);

pub(crate) struct Gateway {
    engine: Engine,
    _data: TempDir,
    /// Trusted by the engine.
    pub(crate) authority: Authority,
    /// Of that authority, and on its list of what was taken back.
    pub(crate) revoked: Leaf,
    endpoints: Mutex<Vec<EndpointId>>,
    visits: AtomicUsize,
    memory: Mark,
}

/// What an endpoint is set up with.
#[derive(Debug, Clone)]
pub(crate) struct Visit {
    url: String,
    policy: Value,
    timeout: Duration,
    at_once: u32,
    until: NoticeKind,
}

impl Visit {
    /// One attempt each, all at the same time, until each has ended.
    pub(crate) fn to(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            policy: json!({"max_attempts": 1}),
            timeout: AMPLE,
            at_once: SLOTS,
            until: NoticeKind::Dead,
        }
    }

    pub(crate) fn within(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    pub(crate) fn at_once(self, at_once: u32) -> Self {
        Self { at_once, ..self }
    }

    /// Up to this many attempts, one right after the other.
    pub(crate) fn tries(self, max_attempts: u32) -> Self {
        let policy = json!({"schedule": {"list": ["1ms"]}, "max_attempts": max_attempts});
        Self { policy, ..self }
    }

    /// Under this policy, until each has its next attempt scheduled.
    pub(crate) fn until_scheduled(self, policy: Value) -> Self {
        Self { policy, until: NoticeKind::RetryScheduled, ..self }
    }
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        panics::watch();
        let authority = Authority::new();
        let (revoked, list) = authority.issue_and_revoke("127.0.0.1");
        let options = Options {
            max_in_flight: HUNDRED,
            default_endpoint_in_flight: SLOTS,
            default_timeout: AMPLE,
            // Each of the hundred has to go, however many of those before it failed.
            breaker: BreakerOptions {
                failing_for: Duration::from_hours(1),
                ..BreakerOptions::default()
            },
            extra_roots: vec![authority.root.clone()],
            revoked: vec![list],
            ..Options::default()
        };
        let (engine, data) = rig::start_with(options).await;
        Self {
            engine,
            _data: data,
            authority,
            revoked,
            endpoints: Mutex::default(),
            visits: AtomicUsize::new(0),
            memory: Mark::here(),
        }
    }

    /// A hundred deliveries, and what became of them.
    pub(crate) async fn hundred(&self, visit: Visit) -> Vec<Story> {
        let bodies = (0..HUNDRED).map(|number| Bytes::from(number.to_string())).collect();
        self.deliver(visit, bodies).await
    }

    /// A hundred deliveries, each after the one before has ended and `between` has passed.
    pub(crate) async fn one_by_one(
        &self,
        visit: Visit,
        mut between: impl AsyncFnMut(),
    ) -> Vec<Story> {
        let until = visit.until;
        let (endpoint, event_type) = self.listen(visit).await;
        let mut stories = Vec::with_capacity(HUNDRED);
        for number in 0..HUNDRED {
            let body = Bytes::from(number.to_string());
            stories.extend(self.send(endpoint, &event_type, until, vec![body]).await);
            between().await;
        }
        stories
    }

    pub(crate) async fn deliver(&self, visit: Visit, bodies: Vec<Bytes>) -> Vec<Story> {
        let until = visit.until;
        let (endpoint, event_type) = self.listen(visit).await;
        self.send(endpoint, &event_type, until, bodies).await
    }

    async fn listen(&self, visit: Visit) -> (EndpointId, String) {
        let Visit { url, policy, timeout, at_once, until: _ } = visit;
        let event_type = format!("visit.{}", self.visits.fetch_add(1, Ordering::SeqCst));
        let mut spec = rig::spec(url, &event_type);
        spec.policy = serde_json::from_value(policy).expect("a policy");
        spec.timeout = Some(timeout);
        spec.max_in_flight = Some(at_once);
        let endpoint = rig::create(&self.engine, spec).await;
        self.endpoints.lock().push(endpoint);
        (endpoint, event_type)
    }

    async fn send(
        &self,
        endpoint: EndpointId,
        event_type: &str,
        until: NoticeKind,
        bodies: Vec<Bytes>,
    ) -> Vec<Story> {
        let mut notices = self.engine.notices().subscribe();
        let events = rig::send_bodies(&self.engine, event_type, bodies).await;
        settled(&mut notices, endpoint, until, events.len()).await;
        let store = self.engine.store();
        let mut stories = Vec::with_capacity(events.len());
        for event in events {
            let mut records =
                store.event_deliveries(TenantId::DEFAULT, event).await.expect("readable");
            let record = records.pop().expect("one delivery");
            assert!(records.is_empty(), "nobody else listens to {event_type}");
            let attempts = store.attempts(record.id).await.expect("readable");
            stories.push(Story { record, attempts });
        }
        stories
    }

    /// Nothing is held that should have been given back, nothing panicked, memory is bounded.
    pub(crate) async fn assert_unharmed(self) {
        let endpoints = self.endpoints.lock().clone();
        for endpoint in endpoints {
            let health = self.engine.endpoint_health(endpoint).await.expect("known");
            assert_eq!(health.in_flight, 0);
        }
        // Every slot there is, all at the same time: those that every endpoint has in reserve would
        // not be enough.
        let healthy = Sink::start(|_| Reply::status(200).held()).await;
        let endpoint = rig::listen(&self.engine, &healthy, "healthy").await;
        let mut notices = self.engine.notices().subscribe();
        rig::send(&self.engine, "healthy", HUNDRED).await;
        healthy.nth(HUNDRED).await;
        healthy.release(HUNDRED);
        settled(&mut notices, endpoint, NoticeKind::Delivered, HUNDRED).await;
        self.memory.assert_bounded();
        assert_eq!(self.engine.drain(PATIENCE).await.abandoned, 0);
        panics::assert_none();
    }
}

/// Waits until so many deliveries of an endpoint have ended, or have got as far as `until`.
async fn settled(
    notices: &mut Receiver<Arc<Notice>>,
    endpoint: EndpointId,
    until: NoticeKind,
    count: usize,
) {
    let mut settled: BTreeSet<DeliveryId> = BTreeSet::new();
    let everybody = async {
        while settled.len() < count {
            let notice = notices.recv().await.expect("the engine runs");
            let far_enough = [NoticeKind::Delivered, NoticeKind::Failed, NoticeKind::Dead, until];
            if notice.endpoint == Some(endpoint)
                && far_enough.contains(&notice.kind)
                && let Some(delivery) = &notice.delivery
            {
                settled.insert(delivery.delivery_id);
            }
        }
    };
    let waited = tokio::time::timeout(PATIENCE, everybody).await;
    assert!(waited.is_ok(), "{} of {count} settled", settled.len());
}

/// How much the process grew at the peak of a hundred visits, and what the next hundred added.
pub(crate) async fn growth(
    gateway: &Gateway,
    visit: &Visit,
    check: impl Fn(&[Story]),
) -> (u64, u64) {
    let mark = Mark::with_peak();
    check(&gateway.hundred(visit.clone()).await);
    let peak = mark.peak_growth();
    // What is set up once, code and threads and tables, is not what remains of an attempt.
    let mark = Mark::here();
    check(&gateway.hundred(visit.clone()).await);
    (peak, mark.growth())
}
