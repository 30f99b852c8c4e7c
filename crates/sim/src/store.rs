//! The real store with a disk and a network that can fail: a node's own view of the one database.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::delivery::State;
use postrider_core::{
    DeliveryId, Endpoint, EndpointId, EventId, HubId, JobId, KeyId, Source, SourceId, TenantId,
    Timestamp,
};
use postrider_store::audit::{Audit, AuditQuery, AuditRecord};
use postrider_store::declarations::{Declaration, Declarations, DeclaredKind, DeclaringTurn};
use postrider_store::fleet::{
    Beat, Fleet, Heard, Joined, Looked, NewNode, NodeId, NodeRecord, Pulse, Tenure, To,
};
use postrider_store::journal::{
    Appending, Cutoffs, Journal, Lapsed, Page, Paged, Pages, RetentionStep, Unfinished, Urgency,
};
use postrider_store::ledger::{
    Count, DeliveryFilter, DeliveryQuery, EventQuery, Groups, Ledger, Listed,
};
use postrider_store::measures::{Grain, Measure, Measures, Of};
use postrider_store::record::{
    Attempt, DeliveryRecord, Event, Leased, NewDelivery, NewEvent, Settle, Settled, Waiting,
};
use postrider_store::registry::{
    HubRecord, JobRecord, KeyRecord, Registry, Standing, TenantRecord,
};
use postrider_store::sessions::{SessionRecord, Sessions};
use postrider_store::sqlite::Sqlite;
use postrider_store::{Error, Store, Vitals};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::chance::Chance;
use crate::clock::TrueTime;
use crate::gate::{Gate, Life};
use crate::history::{Chronicle, FaultKind, Hitch};
use crate::network::Internet;

/// How often what goes wrong; once in so many operations, and never for 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Frailty {
    pub(crate) crash: u64,
    /// Not done, and reported so.
    pub(crate) refused: u64,
    /// Done, but reported as not done.
    pub(crate) unheard: u64,
    /// Operations that take their time.
    pub(crate) slow: u64,
}

/// What can be switched while a node runs.
#[derive(Debug, Default)]
pub(crate) struct Weather {
    disk_full: AtomicBool,
    cut_off: AtomicBool,
    /// Nothing goes wrong by itself any more.
    calm: AtomicBool,
}

impl Weather {
    pub(crate) fn fill_disk(&self, full: bool) {
        self.disk_full.store(full, Ordering::Relaxed);
    }

    /// Between the node and its store.
    pub(crate) fn cut_off(&self, cut: bool) {
        self.cut_off.store(cut, Ordering::Relaxed);
    }

    /// All is well from here on.
    pub(crate) fn clear_up(&self) {
        self.fill_disk(false);
        self.cut_off(false);
        self.calm.store(true, Ordering::Relaxed);
    }
}

/// One node's way to the store.
pub(crate) struct Frail {
    pub(crate) inner: Arc<Sqlite>,
    pub(crate) node: usize,
    pub(crate) gate: Arc<Gate>,
    pub(crate) weather: Arc<Weather>,
    pub(crate) frailty: Frailty,
    pub(crate) chance: Chance,
    pub(crate) chronicle: Chronicle,
    pub(crate) time: TrueTime,
    pub(crate) internet: Internet,
}

impl fmt::Debug for Frail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frail").field("node", &self.node).finish_non_exhaustive()
    }
}

/// The longest that an operation takes which takes its time.
const SLOWEST_MS: u64 = 2_000;

impl Frail {
    async fn reading<T>(
        &self,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.begin().await?;
        let answer = operation.await;
        self.gate.pass().await;
        answer
    }

    async fn writing<T>(
        &self,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.begin().await?;
        if self.weather.disk_full.load(Ordering::Relaxed) {
            return Err(Error::Unavailable("the disk is full".to_owned()));
        }
        let answer = operation.await;
        self.end(answer).await
    }

    /// What may go wrong before anything is done.
    async fn begin(&self) -> Result<(), Error> {
        self.gate.pass().await;
        self.perhaps_crash().await;
        if self.drawn(self.frailty.slow) {
            self.chronicle.hitch(Hitch::SlowStore);
            sleep(Duration::from_millis(self.chance.between(1, SLOWEST_MS))).await;
            self.gate.pass().await;
        }
        if self.weather.cut_off.load(Ordering::Relaxed) || self.is_refused() {
            return Err(Error::Unavailable("the store is out of reach".to_owned()));
        }
        Ok(())
    }

    fn is_refused(&self) -> bool {
        let refused = self.drawn(self.frailty.refused);
        if refused {
            self.chronicle.hitch(Hitch::Refused);
        }
        refused
    }

    /// What may go wrong after it was done.
    async fn end<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        self.perhaps_crash().await;
        if answer.is_ok() && self.drawn(self.frailty.unheard) {
            self.chronicle.fault(self.node, FaultKind::Unheard);
            return Err(Error::Unavailable("the answer of the store was lost".to_owned()));
        }
        self.gate.pass().await;
        answer
    }

    async fn perhaps_crash(&self) {
        self.draw_crash();
        self.gate.pass().await;
    }

    fn draw_crash(&self) {
        if self.gate.life() != Life::Dead && self.drawn(self.frailty.crash) {
            self.chronicle.fault(self.node, FaultKind::Crash);
            self.gate.kill();
        }
    }

    fn drawn(&self, once_in: u64) -> bool {
        once_in > 0 && !self.weather.calm.load(Ordering::Relaxed) && self.chance.once_in(once_in)
    }
}

#[async_trait]
impl Journal for Frail {
    /// The place of what is appended is taken when this is called, so what may go wrong before that is
    /// drawn at once.
    fn append(&self, events: Vec<NewEvent>) -> Appending {
        self.draw_crash();
        if self.gate.life() != Life::Runs {
            // Whoever asked is told nothing by a process that stands still, and that has done nothing.
            let gate = Arc::clone(&self.gate);
            return Box::pin(async move {
                gate.pass().await;
                Err(Error::Unavailable("nothing was stored".to_owned()))
            });
        }
        let fails = self.weather.cut_off.load(Ordering::Relaxed)
            || self.weather.disk_full.load(Ordering::Relaxed)
            || self.is_refused();
        if fails {
            return Box::pin(async { Err(Error::Unavailable("nothing was stored".to_owned())) });
        }
        let appended = self.inner.append(events);
        let after = After {
            node: self.node,
            gate: Arc::clone(&self.gate),
            crash: self.drawn(self.frailty.crash),
            unheard: self.drawn(self.frailty.unheard),
            slow: self.drawn(self.frailty.slow).then(|| self.chance.between(1, SLOWEST_MS)),
            chronicle: self.chronicle.clone(),
        };
        Box::pin(async move { after.answer(appended.await).await })
    }

    async fn append_deliveries(
        &self,
        event: EventId,
        first: DeliveryId,
        deliveries: Vec<NewDelivery>,
        now: Timestamp,
        audit: Option<Audit>,
    ) -> Result<Vec<Waiting>, Error> {
        self.writing(self.inner.append_deliveries(event, first, deliveries, now, audit)).await
    }

    async fn settle(&self, settles: Vec<Settle>, urgency: Urgency) -> Result<Vec<Settled>, Error> {
        let noted = settles.clone();
        self.writing(async {
            let settled = self.inner.settle(settles, urgency).await?;
            self.chronicle.settled(self.node, &noted, &settled);
            Ok(settled)
        })
        .await
    }

    async fn settle_by(&self, settles: Vec<Settle>, audit: Audit) -> Result<Vec<Settled>, Error> {
        let noted = settles.clone();
        self.writing(async {
            let settled = self.inner.settle_by(settles, audit).await?;
            self.chronicle.settled(self.node, &noted, &settled);
            Ok(settled)
        })
        .await
    }

    async fn page(&self, page: Page) -> Result<Paged, Error> {
        self.reading(self.inner.page(page)).await
    }

    async fn pages(&self, pages: Pages) -> Result<Vec<Paged>, Error> {
        self.reading(self.inner.pages(pages)).await
    }

    async fn next_due(&self, endpoint: EndpointId) -> Result<Option<Timestamp>, Error> {
        self.reading(self.inner.next_due(endpoint)).await
    }

    async fn waiting(&self, id: DeliveryId) -> Result<Option<Waiting>, Error> {
        self.reading(self.inner.waiting(id)).await
    }

    async fn leased(&self, ids: Vec<DeliveryId>) -> Result<Vec<Leased>, Error> {
        self.reading(self.inner.leased(ids)).await
    }

    async fn lapsed(&self, now: Timestamp, limit: usize) -> Result<Lapsed, Error> {
        self.reading(self.inner.lapsed(now, limit)).await
    }

    async fn unfinished(
        &self,
        endpoint: EndpointId,
        after: DeliveryId,
        born_before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<Unfinished>, Error> {
        self.reading(self.inner.unfinished(endpoint, after, born_before, limit)).await
    }

    async fn sweep_retention(
        &self,
        cutoffs: Cutoffs,
        after: EventId,
        limit: usize,
    ) -> Result<RetentionStep, Error> {
        self.writing(self.inner.sweep_retention(cutoffs, after, limit)).await
    }

    async fn highest_id(&self) -> Result<i64, Error> {
        self.reading(self.inner.highest_id()).await
    }

    /// The database is the world's, and goes on.
    async fn close(&self) {}
}

/// What goes wrong after an append that was done.
struct After {
    node: usize,
    gate: Arc<Gate>,
    crash: bool,
    unheard: bool,
    slow: Option<u64>,
    chronicle: Chronicle,
}

impl After {
    async fn answer<T>(self, answer: Result<T, Error>) -> Result<T, Error> {
        if self.crash {
            self.chronicle.fault(self.node, FaultKind::Crash);
            self.gate.kill();
        }
        if let Some(slow) = self.slow {
            self.chronicle.hitch(Hitch::SlowStore);
            sleep(Duration::from_millis(slow)).await;
        }
        self.gate.pass().await;
        if answer.is_ok() && self.unheard {
            self.chronicle.fault(self.node, FaultKind::Unheard);
            return Err(Error::Unavailable("the answer of the store was lost".to_owned()));
        }
        answer
    }
}

/// Implements a trait by passing everything on.
macro_rules! pass_on {
    ($trait:ident { $($way:ident $name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)* }) => {
        #[async_trait]
        impl $trait for Frail {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$answer, Error> {
                self.$way($trait::$name(&*self.inner, $($arg),*)).await
            })*
        }
    };
}

pass_on! { Ledger {
    reading event(tenant: TenantId, id: EventId) -> Option<Event>;
    reading events(tenant: TenantId, query: EventQuery) -> Listed<Event>;
    reading event_deliveries(tenant: TenantId, id: EventId) -> Vec<DeliveryRecord>;
    reading delivery(tenant: TenantId, id: DeliveryId) -> Option<DeliveryRecord>;
    reading attempts(id: DeliveryId) -> Vec<Attempt>;
    reading ahead_of(id: DeliveryId) -> Option<DeliveryRecord>;
    reading ahead_count(id: DeliveryId, limit: usize) -> u64;
    reading deliveries(tenant: TenantId, query: DeliveryQuery) -> Listed<DeliveryRecord>;
    reading count_dead_letters(tenant: TenantId, filter: DeliveryFilter) -> u64;
    reading dead_letter_groups(tenant: TenantId, filter: DeliveryFilter) -> Groups;
    writing purge_dead_letters(
        tenant: TenantId, filter: DeliveryFilter, limit: usize, audit: Option<Audit>
    ) -> u64;
    reading counts(tenant: TenantId) -> Vec<Count>;
    reading totals() -> Vec<(State, u64)>;
    reading event_count(tenant: TenantId) -> u64;
    reading ping() -> ();
} }

pass_on! { Registry {
    reading endpoints() -> Vec<Endpoint>;
    writing put_endpoint(endpoint: Endpoint, audit: Option<Audit>) -> ();
    writing forget_endpoint(id: EndpointId) -> ();
    reading failing() -> Vec<(EndpointId, Timestamp)>;
    writing note_failing(since: Vec<(EndpointId, Option<Timestamp>)>) -> ();
    reading standings() -> Vec<Standing>;
    writing note_breakers(breakers: Vec<(EndpointId, Option<String>)>) -> ();
    reading sources() -> Vec<Source>;
    writing put_source(source: Source, audit: Audit) -> ();
    writing delete_source(id: SourceId, audit: Audit) -> ();
    reading hubs() -> Vec<HubRecord>;
    writing put_hub(hub: HubRecord, audit: Audit) -> ();
    writing delete_hub(id: HubId, audit: Audit) -> ();
    writing reseal() -> u64;
    reading keys() -> Vec<KeyRecord>;
    writing put_key(key: KeyRecord, audit: Option<Audit>) -> ();
    writing touch_keys(used: Vec<(KeyId, Timestamp)>) -> ();
    reading tenants() -> Vec<TenantRecord>;
    writing make_tenant(name: String, created_at: Timestamp, audit: Audit) -> TenantRecord;
    reading audit(query: AuditQuery) -> Vec<AuditRecord>;
    writing instance(candidate: [u8; 16]) -> [u8; 16];
    reading job(tenant: TenantId, id: JobId) -> Option<JobRecord>;
    reading open_jobs() -> Vec<JobRecord>;
    writing put_job(job: JobRecord, audit: Option<Audit>, tenure: Option<Tenure>) -> bool;
} }

pass_on! { Sessions {
    writing put_session(session: SessionRecord) -> ();
    reading session(sha256: [u8; 32]) -> Option<SessionRecord>;
    writing touch_session(sha256: [u8; 32], seen_at: Timestamp) -> ();
    writing end_session(sha256: [u8; 32]) -> ();
    writing end_old_sessions(begun_before: Timestamp, seen_before: Timestamp, limit: usize) -> u64;
} }

pass_on! { Measures {
    writing add_measures(measures: Vec<Measure>) -> ();
    reading measures(tenant: TenantId, of: Of, grain: Grain, since: Timestamp) -> Vec<Measure>;
    writing forget_measures(grain: Grain, before: Timestamp, limit: usize) -> u64;
} }

pass_on! { Declarations {
    reading declarations() -> Vec<Declaration>;
    writing put_declaration(declaration: Declaration) -> ();
    writing remove_declaration(tenant: TenantId, kind: DeclaredKind, name: String) -> ();
    reading declaring() -> DeclaringTurn;
} }

impl Store for Frail {
    fn fleet(&self) -> Option<&dyn Fleet> {
        self.inner.fleet().map(|_| self as &dyn Fleet)
    }

    fn vitals(&self) -> &Vitals {
        self.inner.vitals()
    }
}

/// The store has a clock of its own, as a server has: what a node believes the time to be is not asked.
#[async_trait]
impl Fleet for Frail {
    async fn join(&self, new: NewNode) -> Result<Joined, Error> {
        let new = NewNode { now: self.time.now(), ..new };
        self.writing(self.inner.join(new)).await
    }

    async fn beat(&self, pulse: Pulse) -> Result<Option<Beat>, Error> {
        self.writing(async {
            let pulse = Pulse { now: self.time.now(), ..pulse };
            self.inner.beat(pulse).await
        })
        .await
    }

    async fn seize(&self, node: NodeId, hub: HubId) -> Result<Tenure, Error> {
        self.writing(self.inner.seize(node, hub)).await
    }

    async fn release(&self, node: NodeId, tenures: Vec<Tenure>) -> Result<(), Error> {
        self.writing(self.inner.release(node, tenures)).await
    }

    async fn leave(&self, node: NodeId) -> Result<(), Error> {
        self.writing(self.inner.leave(node)).await
    }

    async fn nodes(&self, _now: Timestamp) -> Result<Vec<NodeRecord>, Error> {
        self.reading(async { self.inner.nodes(self.time.now()).await }).await
    }

    async fn look(&self, endpoints: Vec<EndpointId>) -> Result<Looked, Error> {
        self.reading(self.inner.look(endpoints)).await
    }

    /// Words are hints: they get lost, come late, or twice, as whatever nodes send.
    fn tell(&self, from: NodeId, to: To, word: String) {
        if self.gate.life() != Life::Runs || self.weather.cut_off.load(Ordering::Relaxed) {
            return;
        }
        if self.internet.loses() {
            self.chronicle.hitch(Hitch::LostWord);
            return;
        }
        if self.internet.doubles() {
            self.chronicle.hitch(Hitch::DoubledWord);
            self.inner.tell(from, to, word.clone());
        }
        match self.internet.delay() {
            None => self.inner.tell(from, to, word),
            Some(late) => {
                self.chronicle.hitch(Hitch::LateWord);
                let store = Arc::clone(&self.inner);
                tokio::spawn(async move {
                    sleep(late).await;
                    store.tell(from, to, word);
                });
            }
        }
    }

    /// A process that stands still hears later, and a dead one nothing.
    fn hear(&self, node: NodeId, room: usize) -> mpsc::Receiver<Heard> {
        let mut heard = self.inner.hear(node, room);
        let (pass_on, passed_on) = mpsc::channel(1);
        let gate = Arc::clone(&self.gate);
        tokio::spawn(async move {
            while let Some(word) = heard.recv().await {
                if !gate.lets_pass().await || pass_on.send(word).await.is_err() {
                    return;
                }
            }
        });
        passed_on
    }
}
