//! The backend for more than one machine: a `PostgreSQL` server, connections that commit for
//! everybody who waits, and others that read.
//!
//! Several nodes share it, each a process with connections of its own. What one of them writes is
//! fenced by what it holds; see [`fleet`].
//!
//! What it needs: `PostgreSQL` 14 or later with the encoding UTF-8, a role that may create a schema
//! in the database, and [`Options::connections`] connections for each node. Statements are prepared,
//! settings belong to the session, and one session listens for notifications, so a `PgBouncer` in
//! between has to be in session mode; and it must not end idle server connections of its own accord
//! (`server_idle_timeout` is about those that no client has, and does no harm).
//!
//! Reading order: where it is ([`address`], [`tls`]), what is in it ([`schema`], [`upgrade`],
//! [`rows`], [`text`]), connections ([`session`], [`link`], [`presence`]), who works on it ([`queue`],
//! [`writer`], [`pipeline`], [`slots`], [`changes`], [`readers`], [`janitor`]), and what they do
//! ([`append`], [`settle`], [`lines`], [`leases`], [`pages`], [`typed`], [`retention`],
//! [`partitions`], [`lists`], [`history`], [`configuration`], [`standing`], [`sources`], [`hubs`],
//! [`audit`], [`sessions`], [`declarations`], [`measures`]).

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use postrider_core::delivery::State;
use postrider_core::{
    DeliveryId, Endpoint, EndpointId, EventId, HubId, JobId, KeyId, Source, SourceId, TenantId,
    Timestamp,
};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::Store;
use crate::audit::{Audit, AuditQuery, AuditRecord};
use crate::error::Error;
use crate::fleet::{Fleet, Tenure};
use crate::journal::{
    Appending, Cutoffs, Journal, Lapsed, Page, Paged, Pages, RetentionStep, Unfinished, Urgency,
};
use crate::ledger::{
    Count, DeliveryFilter, DeliveryQuery, EventQuery, Groups, Ledger, Listed, MAX_COUNT,
};
use crate::record::{
    Attempt, DeliveryRecord, Event, Leased, NewDelivery, NewEvent, Settle, Settled, Waiting,
};
use crate::registry::{HubRecord, JobRecord, KeyRecord, Registry, Standing, TenantRecord};
use crate::sealing::Keyring;
use crate::stored::groups::groups;
use crate::stored::pages::dead_letters;
use crate::vitals::Vitals;

mod address;
mod config;
mod fault;
mod rows;
mod schema;
mod text;
mod tls;
mod upgrade;

mod complaints;
mod link;
mod presence;
mod session;

mod changes;
mod janitor;
mod pipeline;
mod queue;
mod readers;
mod slots;
mod writer;

mod ahead;
mod append;
mod audit;
mod clock;
mod configuration;
mod copy;
mod declarations;
mod fleet;
mod history;
mod hubs;
mod leases;
mod lines;
mod lists;
mod measures;
mod pages;
mod partitions;
mod retention;
mod sessions;
mod settle;
mod sources;
mod standing;
mod typed;

pub use clock::clock;
pub use config::Options;
pub use copy::Target;
pub use schema::{Migrated, Pending};
pub use upgrade::{migrate, pending, try_key};

pub use crate::sqlite::Sealed;

use address::Address;
use changes::Changes;
use complaints::Complaints;
use config::MAX_CONNECTIONS;
use fault::Fault;
use fleet::Wire;
use janitor::Leftovers;
use link::Base;
use presence::{Claim, Presence};
use queue::{Command, Cost, Queue, Work};
use readers::Readers;
use session::{Pace, Session};
use slots::Slots;
use typed::Walk;
use writer::Writer;

/// Why a database cannot be used, by what to do about it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// What it is called makes no sense.
    #[error("the address of the database cannot be used: {0}")]
    Address(String),
    /// It does not answer, or not to this user: perhaps later.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// Another process has it, and does not share it; or this one wants it alone.
    #[error("the database is in use by another postrider, connected from {0}")]
    InUse(String),
    /// It will not do, or is of a newer version.
    #[error("{0}")]
    Refused(String),
}

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Lost(text) | Fault::Undone(text) | Fault::Busy(text) => Self::Unreachable(text),
            Fault::Taken => Self::Refused("the database holds what is not postrider's".to_owned()),
            Fault::Damaged(text) => Self::Refused(text),
        }
    }
}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        match error {
            Error::Unavailable(text) => Self::Unreachable(text),
            other @ (Error::Overloaded
            | Error::Refused(_)
            | Error::Damaged(_)
            | Error::Exists(_)
            | Error::Closed) => Self::Refused(other.to_string()),
        }
    }
}

/// A database in use. Dropping it ends it after what was taken on; only [`Journal::close`] waits for
/// that.
pub struct Postgres {
    queue: Arc<Queue>,
    changes: Arc<Changes>,
    journal: Readers,
    ledger: Readers,
    /// One connection, on which nothing else makes a beat wait.
    members: Readers,
    presence: Arc<Presence>,
    wire: Arc<Wire>,
    slots: Arc<Slots>,
    keyring: Arc<Keyring>,
    drop_from_bytes: u64,
    leftovers: Arc<Leftovers>,
    vitals: Arc<Vitals>,
    tasks: Mutex<Option<JoinSet<()>>>,
    closed: watch::Sender<bool>,
}

impl Postgres {
    /// Connects to the database at `url` (`postgres://…`), and makes its tables if there are none.
    /// Others may use it too. One of a version that is too new, or that somebody has to itself, is
    /// refused and left as it is. `keyring` seals and opens the secrets in it.
    pub async fn connect(url: &str, options: Options, keyring: Keyring) -> Result<Self, OpenError> {
        Self::connect_asking(url, options, |_| Ok::<_, OpenError>(keyring)).await
    }

    /// The same, for whoever must be the only one: while a node is connected it is refused, and until
    /// it is closed no node is let in. When the connection that sees to that is lost, nothing is
    /// written any more.
    pub async fn connect_alone(
        url: &str,
        options: Options,
        keyring: Keyring,
    ) -> Result<Self, OpenError> {
        Self::open(url, options, Claim::Alone, |_| Ok::<_, OpenError>(keyring)).await
    }

    /// The same, for a caller that makes a key where none is needed yet: `keyring` is told whether
    /// the database holds anything that only its own keys can open.
    pub async fn connect_asking<E: From<OpenError>>(
        url: &str,
        options: Options,
        keyring: impl FnOnce(Sealed) -> Result<Keyring, E>,
    ) -> Result<Self, E> {
        Self::open(url, options, Claim::Shared, keyring).await
    }

    async fn open<E: From<OpenError>>(
        url: &str,
        mut options: Options,
        claim: Claim,
        keyring: impl FnOnce(Sealed) -> Result<Keyring, E>,
    ) -> Result<Self, E> {
        for count in
            [&mut options.writers, &mut options.journal_readers, &mut options.ledger_readers]
        {
            *count = (*count).clamp(1, MAX_CONNECTIONS);
        }
        let address = Address::parse(url, options.connect_timeout)?;
        let (complaints, vitals) = (Arc::new(Complaints::default()), Arc::default());
        let base = Base { address, options, complaints, vitals };
        let session = migrated(&base).await?;
        let wire = Arc::new(Wire::new());
        let presence = Presence::take(&base, claim, &wire).await?;
        let ready = match prepare(&session).await {
            Ok(sealed) => keyring(sealed),
            Err(error) => Err(error.into()),
        };
        let ready = match ready {
            Ok(keyring) => match sources::prove_key(&session, &keyring).await {
                Ok(()) => Ok(keyring),
                Err(error) => Err(OpenError::from(error).into()),
            },
            Err(error) => Err(error),
        };
        session.close().await;
        match ready {
            Ok(keyring) => Ok(Self::start(&Arc::new(base), Arc::new(presence), wire, keyring)),
            Err(error) => {
                presence.release().await;
                Err(error)
            }
        }
    }

    fn start(base: &Arc<Base>, presence: Arc<Presence>, wire: Arc<Wire>, keyring: Keyring) -> Self {
        let queue = Arc::new(Queue::new());
        let leftovers = Arc::new(Leftovers::new());
        let slots = Arc::new(Slots::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(janitor::serve(Arc::clone(base), Arc::clone(&leftovers)));
        for index in (0..).take(base.options.writers) {
            let writer = Writer {
                base: Arc::clone(base),
                presence: Arc::clone(&presence),
                queue: Arc::clone(&queue),
                leftovers: Arc::clone(&leftovers),
                slots: Arc::clone(&slots),
                index,
            };
            tasks.spawn(writer.serve());
        }
        Self {
            queue,
            changes: Arc::new(Changes::new(Arc::clone(base), Arc::clone(&presence))),
            journal: Readers::new(Arc::clone(base), base.options.journal_readers),
            ledger: Readers::new(Arc::clone(base), base.options.ledger_readers),
            members: Readers::new(Arc::new(base.brisk()), 1),
            presence,
            wire,
            slots,
            keyring: Arc::new(keyring),
            drop_from_bytes: base.options.drop_from_bytes,
            leftovers,
            vitals: Arc::clone(&base.vitals),
            tasks: Mutex::new(Some(tasks)),
            closed: watch::Sender::new(false),
        }
    }

    /// Takes nothing on any more. What was taken on is still done.
    fn begin_close(&self) {
        self.queue.close();
        self.leftovers.close();
        self.journal.close();
        self.ledger.close();
        self.members.close();
    }

    fn take_tasks(&self) -> Option<JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn submit<T: Send + 'static>(
        &self,
        cost: Cost,
        urgency: Urgency,
        work: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Work,
    ) -> Pin<Box<dyn Future<Output = Result<T, Error>> + Send>> {
        let (reply, answer) = oneshot::channel();
        let queued = self.queue.push(Command::new(work(reply), cost, urgency));
        let vitals = Arc::clone(&self.vitals);
        Box::pin(async move {
            let answer = match queued {
                Ok(()) => answer.await.unwrap_or(Err(Error::Closed)),
                Err(error) => Err(error),
            };
            vitals.watch(answer)
        })
    }

    /// Makes a change in a transaction of its own, to the end, whether or not somebody waits for it.
    async fn change<T, F>(&self, change: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'s> FnOnce(&'s Session) -> Changing<'s, T> + Send + 'static,
    {
        let changes = Arc::clone(&self.changes);
        let made = tokio::spawn(async move {
            let begun = changes.begin().await?;
            match change(begun.session()?).await {
                Ok(answer) => begun.commit().await.map(|()| answer),
                Err(error) => {
                    begun.undo().await?;
                    Err(error)
                }
            }
        });
        self.vitals.watch(made.await.unwrap_or(Err(Error::Closed)))
    }
}

type Changing<'s, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 's>>;

/// Looks at the server, and brings the schema up to date.
async fn migrated(base: &Base) -> Result<Session, OpenError> {
    let session = Session::open(&base.address, &base.options, Pace::Patient).await?;
    schema::check_server(&session).await?;
    schema::migrate(&session, base.options.lock_patience).await?;
    Ok(session)
}

/// Makes the database ready, and tells whether it holds secrets.
async fn prepare(session: &Session) -> Result<Sealed, OpenError> {
    // Before others knew of this process they may have changed what it cannot do without.
    schema::check_usable(session).await?;
    copy::check_whole(session).await?;
    partitions::make_days(session).await?;
    let sealed = sources::has_sealed(session).await?;
    Ok(if sealed { Sealed::Some } else { Sealed::None })
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.begin_close();
        // The tasks finish what they were given by themselves.
        if let Some(mut tasks) = self.take_tasks() {
            tasks.detach_all();
        }
    }
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}

#[async_trait]
impl Journal for Postgres {
    fn append(&self, events: Vec<NewEvent>) -> Appending {
        let cost = Cost {
            rows: events.iter().map(|new| 1 + new.deliveries.len()).sum(),
            bytes: events.iter().map(|new| new.event.body.len()).sum(),
        };
        self.submit(cost, Urgency::Now, |reply| Work::Append(events, reply))
    }

    async fn append_deliveries(
        &self,
        event: EventId,
        first: DeliveryId,
        deliveries: Vec<NewDelivery>,
        now: Timestamp,
        audit: Option<Audit>,
    ) -> Result<Vec<Waiting>, Error> {
        let slot = self.slots.changes();
        self.change(move |session| {
            Box::pin(async move {
                note(session, audit.as_ref()).await?;
                append::append_deliveries(session, event, first, &deliveries, now, slot).await
            })
        })
        .await
    }

    async fn settle(&self, settles: Vec<Settle>, urgency: Urgency) -> Result<Vec<Settled>, Error> {
        let cost = settling_cost(&settles);
        self.submit(cost, urgency, |reply| Work::Settle(settles, reply)).await
    }

    async fn settle_by(&self, settles: Vec<Settle>, audit: Audit) -> Result<Vec<Settled>, Error> {
        settling_cost(&settles);
        let slot = self.slots.changes();
        self.change(move |session| {
            Box::pin(async move {
                let answers = writer::settle_within(session, &settles, slot).await?;
                let applied = |(_, answer): &(&Settle, &Settled)| match answer {
                    Settled::Applied { .. } => true,
                    Settled::Stale => false,
                };
                let applied = settles.iter().zip(&answers).filter(applied);
                let subjects: Vec<String> =
                    applied.map(|(settle, _)| settle.id.to_string()).collect();
                let subjects: Vec<&str> = subjects.iter().map(String::as_str).collect();
                audit::note_each(session, &audit, &subjects).await?;
                Ok(answers)
            })
        })
        .await
    }

    async fn page(&self, page: Page) -> Result<Paged, Error> {
        if page.event_types.is_empty() {
            let mut paged = self.pages(page.into()).await?;
            return Ok(paged.pop().unwrap_or_default());
        }
        let mut walk = Walk::new(page);
        loop {
            // One piece at a time, so that what other endpoints ask is answered in between.
            let reader = self.journal.session().await?;
            match walk.go_on(reader.session()?).await? {
                ControlFlow::Continue(on) => walk = on,
                ControlFlow::Break(paged) => return Ok(paged),
            }
        }
    }

    async fn pages(&self, wanted: Pages) -> Result<Vec<Paged>, Error> {
        let reader = self.journal.session().await?;
        pages::pages(reader.session()?, &wanted).await
    }

    async fn next_due(&self, endpoint: EndpointId) -> Result<Option<Timestamp>, Error> {
        let reader = self.journal.session().await?;
        pages::next_due(reader.session()?, endpoint).await
    }

    async fn waiting(&self, id: DeliveryId) -> Result<Option<Waiting>, Error> {
        let reader = self.journal.session().await?;
        pages::waiting(reader.session()?, id).await
    }

    async fn leased(&self, ids: Vec<DeliveryId>) -> Result<Vec<Leased>, Error> {
        let reader = self.journal.session().await?;
        leases::leased(reader.session()?, ids).await
    }

    async fn lapsed(&self, now: Timestamp, limit: usize) -> Result<Lapsed, Error> {
        let reader = self.journal.session().await?;
        leases::lapsed(reader.session()?, now, limit).await
    }

    async fn unfinished(
        &self,
        endpoint: EndpointId,
        after: DeliveryId,
        born_before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<Unfinished>, Error> {
        let reader = self.journal.session().await?;
        pages::unfinished(reader.session()?, endpoint, after, born_before, limit).await
    }

    async fn sweep_retention(
        &self,
        cutoffs: Cutoffs,
        after: EventId,
        limit: usize,
    ) -> Result<RetentionStep, Error> {
        if after.as_i64() == 0 {
            self.changes.make_days().await?;
        }
        let large = self.drop_from_bytes;
        self.change(move |session| {
            Box::pin(async move { retention::sweep(session, &cutoffs, after, limit, large).await })
        })
        .await
    }

    async fn highest_id(&self) -> Result<i64, Error> {
        let reader = self.journal.session().await?;
        configuration::highest_id(reader.session()?).await
    }

    async fn close(&self) {
        self.begin_close();
        let Some(mut tasks) = self.take_tasks() else {
            // Somebody else closes it.
            let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
            return;
        };
        while let Some(ended) = tasks.join_next().await {
            if ended.is_err() {
                tracing::error!("a task of the store panicked");
            }
        }
        self.changes.close().await;
        self.presence.release().await;
        self.closed.send_replace(true);
    }
}

fn settling_cost(settles: &[Settle]) -> Cost {
    for settle in settles {
        let [from, to] = [settle.from, settle.next.state].map(State::is_terminal);
        assert!(!(from && to), "{} cannot go from one end to another", settle.id);
    }
    for settle in settles.iter().filter(|settle| settle.next.state == State::InFlight) {
        let ends = settle.next.due.is_some();
        assert!(ends, "{} cannot be leased for ever", settle.id);
        let holds = settle.next.hold_endpoint_until.is_some();
        let tried = settle.attempt.is_some() || settle.result.is_some() || holds;
        assert!(!tried, "{} cannot have come to anything while it is leased", settle.id);
    }
    Cost { rows: settles.len(), bytes: settles.iter().map(answer_bytes).sum() }
}

/// Notes who asked for the change that follows in the same transaction.
async fn note(session: &Session, audit: Option<&Audit>) -> Result<(), Error> {
    match audit {
        Some(audit) => audit::note(session, audit, &audit.subject).await,
        None => Ok(()),
    }
}

fn answer_bytes(settle: &Settle) -> usize {
    let response = settle.attempt.as_ref().and_then(|attempt| attempt.response.as_ref());
    response.map_or(0, |response| {
        let headers = response.headers.iter().map(|(name, value)| name.len() + value.len());
        response.body.len() + headers.sum::<usize>()
    })
}

#[async_trait]
impl Ledger for Postgres {
    async fn event(&self, tenant: TenantId, id: EventId) -> Result<Option<Event>, Error> {
        let reader = self.ledger.session().await?;
        history::event(reader.session()?, tenant, id).await
    }

    async fn events(&self, tenant: TenantId, query: EventQuery) -> Result<Listed<Event>, Error> {
        let reader = self.ledger.session().await?;
        lists::events(reader.session()?, tenant, &query).await
    }

    async fn event_deliveries(
        &self,
        tenant: TenantId,
        id: EventId,
    ) -> Result<Vec<DeliveryRecord>, Error> {
        let reader = self.ledger.session().await?;
        history::event_deliveries(reader.session()?, tenant, id).await
    }

    async fn delivery(
        &self,
        tenant: TenantId,
        id: DeliveryId,
    ) -> Result<Option<DeliveryRecord>, Error> {
        let reader = self.ledger.session().await?;
        history::delivery(reader.session()?, tenant, id).await
    }

    async fn attempts(&self, id: DeliveryId) -> Result<Vec<Attempt>, Error> {
        let reader = self.ledger.session().await?;
        history::attempts(reader.session()?, id).await
    }

    async fn ahead_of(&self, id: DeliveryId) -> Result<Option<DeliveryRecord>, Error> {
        let reader = self.ledger.session().await?;
        history::ahead_of(reader.session()?, id).await
    }

    async fn ahead_count(&self, id: DeliveryId, limit: usize) -> Result<u64, Error> {
        let reader = self.ledger.session().await?;
        ahead::ahead_count(reader.session()?, id, limit).await
    }

    async fn deliveries(
        &self,
        tenant: TenantId,
        query: DeliveryQuery,
    ) -> Result<Listed<DeliveryRecord>, Error> {
        let reader = self.ledger.session().await?;
        lists::deliveries(reader.session()?, tenant, &query).await
    }

    async fn count_dead_letters(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
    ) -> Result<u64, Error> {
        let Some(mut query) = dead_letters(filter, crate::journal::MAX_PAGE) else {
            return Ok(0);
        };
        let mut count = 0;
        loop {
            let listed = self.deliveries(tenant, query.clone()).await?;
            count += listed.rows.len() as u64;
            if listed.next.is_none() || count >= MAX_COUNT {
                return Ok(count.min(MAX_COUNT));
            }
            query.after = listed.next;
        }
    }

    async fn dead_letter_groups(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
    ) -> Result<Groups, Error> {
        groups(self, tenant, filter).await
    }

    async fn purge_dead_letters(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        limit: usize,
        audit: Option<Audit>,
    ) -> Result<u64, Error> {
        let Some(mut query) = dead_letters(filter, limit) else { return Ok(0) };
        let mut removed = 0;
        while removed < limit as u64 {
            query.limit = limit - usize::try_from(removed).unwrap_or(limit);
            let found = self.deliveries(tenant, query.clone()).await?;
            let rows = found.rows;
            if !rows.is_empty() {
                let audit = audit.clone();
                removed += self
                    .change(move |session| {
                        Box::pin(async move {
                            note(session, audit.as_ref()).await?;
                            retention::purge(session, &rows).await
                        })
                    })
                    .await?;
            }
            if found.next.is_none() {
                break;
            }
            query.after = found.next;
        }
        Ok(removed)
    }

    async fn counts(&self, tenant: TenantId) -> Result<Vec<Count>, Error> {
        let reader = self.ledger.session().await?;
        history::counts(reader.session()?, tenant).await
    }

    async fn totals(&self) -> Result<Vec<(State, u64)>, Error> {
        let reader = self.ledger.session().await?;
        history::totals(reader.session()?).await
    }

    async fn event_count(&self, tenant: TenantId) -> Result<u64, Error> {
        let reader = self.ledger.session().await?;
        history::event_count(reader.session()?, tenant).await
    }

    async fn ping(&self) -> Result<(), Error> {
        let reader = self.ledger.session().await?;
        history::ping(reader.session()?).await
    }
}

#[async_trait]
impl Registry for Postgres {
    async fn endpoints(&self) -> Result<Vec<Endpoint>, Error> {
        let reader = self.ledger.session().await?;
        configuration::endpoints(reader.session()?, &self.keyring).await
    }

    async fn put_endpoint(&self, endpoint: Endpoint, audit: Option<Audit>) -> Result<(), Error> {
        let keyring = Arc::clone(&self.keyring);
        self.change(move |session| {
            Box::pin(async move {
                note(session, audit.as_ref()).await?;
                configuration::put_endpoint(session, &endpoint, &keyring).await
            })
        })
        .await
    }

    async fn forget_endpoint(&self, id: EndpointId) -> Result<(), Error> {
        self.change(move |session| Box::pin(configuration::forget_endpoint(session, id))).await
    }

    async fn failing(&self) -> Result<Vec<(EndpointId, Timestamp)>, Error> {
        let reader = self.ledger.session().await?;
        configuration::failing(reader.session()?).await
    }

    async fn note_failing(&self, since: Vec<(EndpointId, Option<Timestamp>)>) -> Result<(), Error> {
        self.change(move |session| {
            Box::pin(async move { configuration::note_failing(session, &since).await })
        })
        .await
    }

    async fn sources(&self) -> Result<Vec<Source>, Error> {
        let reader = self.ledger.session().await?;
        sources::sources(reader.session()?, &self.keyring).await
    }

    async fn put_source(&self, source: Source, audit: Audit) -> Result<(), Error> {
        let keyring = Arc::clone(&self.keyring);
        self.change(move |session| {
            Box::pin(async move {
                note(session, Some(&audit)).await?;
                sources::put_source(session, &source, &keyring).await
            })
        })
        .await
    }

    async fn delete_source(&self, id: SourceId, audit: Audit) -> Result<(), Error> {
        self.change(move |session| {
            Box::pin(async move {
                note(session, Some(&audit)).await?;
                sources::delete_source(session, id).await
            })
        })
        .await
    }

    async fn hubs(&self) -> Result<Vec<HubRecord>, Error> {
        let reader = self.ledger.session().await?;
        hubs::hubs(reader.session()?).await
    }

    async fn put_hub(&self, hub: HubRecord, audit: Audit) -> Result<(), Error> {
        self.change(move |session| {
            Box::pin(async move {
                note(session, Some(&audit)).await?;
                hubs::put_hub(session, &hub).await
            })
        })
        .await
    }

    async fn delete_hub(&self, id: HubId, audit: Audit) -> Result<(), Error> {
        self.change(move |session| {
            Box::pin(async move {
                note(session, Some(&audit)).await?;
                hubs::delete_hub(session, id).await
            })
        })
        .await
    }

    async fn reseal(&self) -> Result<u64, Error> {
        let keyring = Arc::clone(&self.keyring);
        self.change(move |session| {
            Box::pin(async move { sources::reseal(session, &keyring).await })
        })
        .await
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, Error> {
        let reader = self.ledger.session().await?;
        configuration::keys(reader.session()?).await
    }

    async fn put_key(&self, key: KeyRecord, audit: Option<Audit>) -> Result<(), Error> {
        self.change(move |session| {
            Box::pin(async move {
                note(session, audit.as_ref()).await?;
                configuration::put_key(session, &key).await
            })
        })
        .await
    }

    async fn touch_keys(&self, used: Vec<(KeyId, Timestamp)>) -> Result<(), Error> {
        self.change(move |session| {
            Box::pin(async move { configuration::touch_keys(session, &used).await })
        })
        .await
    }

    async fn tenants(&self) -> Result<Vec<TenantRecord>, Error> {
        let reader = self.ledger.session().await?;
        configuration::tenants(reader.session()?).await
    }

    async fn make_tenant(
        &self,
        name: String,
        created_at: Timestamp,
        audit: Audit,
    ) -> Result<TenantRecord, Error> {
        self.change(move |session| {
            Box::pin(async move {
                let made = configuration::make_tenant(session, &name, created_at).await?;
                note(session, Some(&audit)).await?;
                Ok(made)
            })
        })
        .await
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditRecord>, Error> {
        let reader = self.ledger.session().await?;
        audit::list(reader.session()?, &query).await
    }

    async fn instance(&self, candidate: [u8; 16]) -> Result<[u8; 16], Error> {
        self.change(move |session| Box::pin(configuration::instance(session, candidate))).await
    }

    async fn job(&self, tenant: TenantId, id: JobId) -> Result<Option<JobRecord>, Error> {
        let reader = self.ledger.session().await?;
        configuration::job(reader.session()?, tenant, id).await
    }

    async fn open_jobs(&self) -> Result<Vec<JobRecord>, Error> {
        let reader = self.ledger.session().await?;
        configuration::open_jobs(reader.session()?).await
    }

    async fn put_job(
        &self,
        job: JobRecord,
        audit: Option<Audit>,
        tenure: Option<Tenure>,
    ) -> Result<bool, Error> {
        self.change(move |session| {
            Box::pin(async move {
                let put = configuration::put_job(session, &job, tenure).await?;
                note(session, audit.as_ref().filter(|_| put)).await?;
                Ok(put)
            })
        })
        .await
    }

    async fn standings(&self) -> Result<Vec<Standing>, Error> {
        let reader = self.ledger.session().await?;
        standing::standings(reader.session()?).await
    }

    async fn note_breakers(
        &self,
        breakers: Vec<(EndpointId, Option<String>)>,
    ) -> Result<(), Error> {
        self.change(move |session| {
            Box::pin(async move { standing::note_breakers(session, &breakers).await })
        })
        .await
    }
}

impl Store for Postgres {
    fn fleet(&self) -> Option<&dyn Fleet> {
        Some(self)
    }

    fn vitals(&self) -> &Vitals {
        &self.vitals
    }
}
