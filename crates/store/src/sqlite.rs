//! The embedded backend: one `SQLite` file, one writer that commits for everybody who waits, and
//! readers beside it.
//!
//! Reading order: what the file looks like (`schema`, `code`, `rows`), how it is opened
//! (`file`, `config`), who works on it (`writer`, `readers`, `checkpoint`), and what they
//! do (`append`, `settle`, `leases`, `pages`, `typed`, `retention`, `lists`,
//! `history`, `configuration`, `sources`, `hubs`, `audit`, `sessions`, `declarations`,
//! `measures`, `fleet`); and who looks at it from outside (`copy`, `backup`, `checkup`).

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use postrider_core::delivery::State;
use postrider_core::{
    DeliveryId, Endpoint, EndpointId, EventId, HubId, JobId, KeyId, Source, SourceId, TenantId,
    Timestamp,
};
use rusqlite::Connection;
use tokio::sync::watch;

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

mod rows;
mod schema;

mod config;
mod fault;
mod file;

mod batch;
mod checkpoint;
mod readers;
mod writer;

mod ahead;
mod append;
mod audit;
mod backup;
mod checkup;
mod configuration;
mod copy;
mod declarations;
mod fleet;
mod history;
mod hubs;
mod leases;
mod lists;
mod measures;
mod pages;
mod retention;
mod sessions;
mod settle;
mod sources;
mod standing;
mod typed;

#[doc(hidden)]
pub mod fuzzing;

#[cfg(test)]
mod plans;

pub use backup::{BackupError, Existing, Phase, Progress, Report, backup};
pub use checkup::{Checkup, KNOWN_VERSION, Soundness};
pub use config::{Options, PAGE_BYTES};
pub use copy::Origin;

use batch::Batch;
use checkpoint::Checkpointer;
use config::{JOURNAL_READERS, LEDGER_READERS};
use file::Lock;
use fleet::Company;
use readers::Readers;
use typed::Walk;
use writer::{Belongings, Cost, Writer};

/// Whether a database holds anything that only its keys can open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sealed {
    None,
    Some,
}

/// An open database. Dropping it closes it, as [`Journal::close`] does, but blocks meanwhile.
pub struct Sqlite {
    writer: Writer,
    journal: Readers,
    ledger: Readers,
    keyring: Arc<Keyring>,
    company: Company,
    vitals: Arc<Vitals>,
    /// Held by whoever makes something of a file.
    declaring: Arc<tokio::sync::Mutex<()>>,
    finished: watch::Receiver<bool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Sqlite {
    /// Opens the database at `path`, and makes it if there is none. A file that is not ours, or of a
    /// newer version, or in use, is refused and left as it is. `keyring` seals and opens the
    /// secrets in it.
    pub fn open(path: &Path, options: Options, keyring: Keyring) -> Result<Self, Error> {
        Self::open_asking(path, options, |_| Ok(keyring))
    }

    /// The same, for a caller that makes a key where none is needed yet: `keyring` is told whether
    /// the database holds anything that only its own keys can open.
    pub fn open_asking<E: From<Error>>(
        path: &Path,
        options: Options,
        keyring: impl FnOnce(Sealed) -> Result<Keyring, E>,
    ) -> Result<Self, E> {
        let options = &options;
        let file::Opened { path, lock, writer: conn } = file::open(path, options)?;
        let sealed = if sources::has_sealed(&conn)? { Sealed::Some } else { Sealed::None };
        let keyring = keyring(sealed)?;
        sources::seal_plain(&conn, &keyring)?;
        conn.pragma_update_and_check(None, "secure_delete", false, |_| Ok(()))
            .map_err(Error::from)?;
        Ok(Self::start(conn, lock, &path, options, keyring)?)
    }

    fn start(
        conn: Connection,
        lock: Lock,
        path: &Path,
        options: &Options,
        keyring: Keyring,
    ) -> Result<Self, Error> {
        let company = Company::of(&conn, options)?;
        let (checkpointer, copying) = Checkpointer::start(path, options)?;
        let mut others = vec![copying];
        let vitals = Arc::new(Vitals::default());
        let (journal, threads) =
            Readers::start("store-journal", JOURNAL_READERS, path, options, &vitals)?;
        others.extend(threads);
        let (ledger, threads) =
            Readers::start("store-ledger", LEDGER_READERS, path, options, &vitals)?;
        others.extend(threads);
        let (done, finished) = watch::channel(false);
        let counted = Arc::clone(&vitals);
        let belongings =
            Belongings { conn, checkpointer, others, lock, finished: done, vitals: counted };
        let (writer, thread) = Writer::start(belongings)?;
        let (keyring, thread) = (Arc::new(keyring), Mutex::new(Some(thread)));
        let declaring = Arc::default();
        Ok(Self { writer, journal, ledger, keyring, company, vitals, declaring, finished, thread })
    }

    /// A database in memory, on which every call is done by whoever makes it, at once: for simulations,
    /// in which the same calls have to come to the same.
    pub fn in_memory(options: &Options, keyring: Keyring) -> Result<Self, Error> {
        let conn = file::in_memory(options)?;
        let company = Company::of(&conn, options)?;
        let conn = Arc::new(Mutex::new(Some(conn)));
        let vitals = Arc::new(Vitals::default());
        let (_, finished) = watch::channel(true);
        Ok(Self {
            writer: Writer::inline(Arc::clone(&conn), Arc::clone(&vitals)),
            journal: Readers::inline(Arc::clone(&conn), &vitals),
            ledger: Readers::inline(conn, &vitals),
            keyring: Arc::new(keyring),
            company,
            vitals,
            declaring: Arc::default(),
            finished,
            thread: Mutex::new(None),
        })
    }

    /// Takes nothing on any more. What was taken on is still done.
    fn begin_close(&self) {
        self.writer.close();
        self.journal.close();
        self.ledger.close();
        self.company.close();
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.begin_close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the writer of the store panicked");
        }
    }
}

impl std::fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sqlite").finish_non_exhaustive()
    }
}

#[async_trait]
impl Journal for Sqlite {
    fn append(&self, events: Vec<NewEvent>) -> Appending {
        let cost = Cost {
            rows: events.iter().map(|new| 1 + new.deliveries.len()).sum(),
            bytes: events.iter().map(|new| new.event.body.len()).sum(),
        };
        Box::pin(
            self.writer.submit(cost, Urgency::Now, move |batch| append::append(batch, &events)),
        )
    }

    async fn append_deliveries(
        &self,
        event: EventId,
        first: DeliveryId,
        deliveries: Vec<NewDelivery>,
        now: Timestamp,
        audit: Option<Audit>,
    ) -> Result<Vec<Waiting>, Error> {
        let cost = Cost { rows: deliveries.len(), bytes: 0 };
        self.writer
            .submit(cost, Urgency::Now, move |batch| {
                note(batch, audit.as_ref())?;
                append::append_deliveries(batch, event, first, &deliveries, now)
            })
            .await
    }

    async fn settle(&self, settles: Vec<Settle>, urgency: Urgency) -> Result<Vec<Settled>, Error> {
        let cost = settling_cost(&settles);
        self.writer.submit(cost, urgency, move |batch| settle::settle(batch, &settles)).await
    }

    async fn settle_by(&self, settles: Vec<Settle>, audit: Audit) -> Result<Vec<Settled>, Error> {
        let cost = settling_cost(&settles);
        self.writer
            .submit(cost, Urgency::Now, move |batch| settle::settle_by(batch, &settles, &audit))
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
            match self.journal.ask(move |conn| walk.go_on(conn)).await? {
                ControlFlow::Continue(on) => walk = on,
                ControlFlow::Break(paged) => return Ok(paged),
            }
        }
    }

    async fn pages(&self, wanted: Pages) -> Result<Vec<Paged>, Error> {
        self.journal.ask(move |conn| pages::pages(conn, &wanted)).await
    }

    async fn next_due(&self, endpoint: EndpointId) -> Result<Option<Timestamp>, Error> {
        self.journal.ask(move |conn| pages::next_due(conn, endpoint)).await
    }

    async fn waiting(&self, id: DeliveryId) -> Result<Option<Waiting>, Error> {
        self.journal.ask(move |conn| pages::waiting(conn, id)).await
    }

    async fn leased(&self, ids: Vec<DeliveryId>) -> Result<Vec<Leased>, Error> {
        self.journal.ask(move |conn| leases::leased(conn, ids)).await
    }

    async fn lapsed(&self, now: Timestamp, limit: usize) -> Result<Lapsed, Error> {
        self.journal.ask(move |conn| leases::lapsed(conn, now, limit)).await
    }

    async fn unfinished(
        &self,
        endpoint: EndpointId,
        after: DeliveryId,
        born_before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<Unfinished>, Error> {
        self.journal
            .ask(move |conn| pages::unfinished(conn, endpoint, after, born_before, limit))
            .await
    }

    async fn sweep_retention(
        &self,
        cutoffs: Cutoffs,
        after: EventId,
        limit: usize,
    ) -> Result<RetentionStep, Error> {
        let cost = Cost { rows: limit, bytes: 0 };
        self.writer
            .submit(cost, Urgency::Now, move |batch| {
                retention::sweep(batch, &cutoffs, after, limit)
            })
            .await
    }

    async fn highest_id(&self) -> Result<i64, Error> {
        self.journal.ask(configuration::highest_id).await
    }

    async fn close(&self) {
        self.begin_close();
        // A writer that panicked has finished too.
        let _ = self.finished.clone().wait_for(|finished| *finished).await;
    }
}

fn settling_cost(settles: &[Settle]) -> Cost {
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
fn note(batch: &mut Batch<'_>, audit: Option<&Audit>) -> Result<(), Error> {
    audit.map_or(Ok(()), |audit| audit::note(batch, audit, &audit.subject))
}

fn answer_bytes(settle: &Settle) -> usize {
    let response = settle.attempt.as_ref().and_then(|attempt| attempt.response.as_ref());
    response.map_or(0, |response| {
        let headers = response.headers.iter().map(|(name, value)| name.len() + value.len());
        response.body.len() + headers.sum::<usize>()
    })
}

#[async_trait]
impl Ledger for Sqlite {
    async fn event(&self, tenant: TenantId, id: EventId) -> Result<Option<Event>, Error> {
        self.ledger.ask(move |conn| history::event(conn, tenant, id)).await
    }

    async fn events(&self, tenant: TenantId, query: EventQuery) -> Result<Listed<Event>, Error> {
        self.ledger.ask(move |conn| lists::events(conn, tenant, &query)).await
    }

    async fn event_deliveries(
        &self,
        tenant: TenantId,
        id: EventId,
    ) -> Result<Vec<DeliveryRecord>, Error> {
        self.ledger.ask(move |conn| history::event_deliveries(conn, tenant, id)).await
    }

    async fn delivery(
        &self,
        tenant: TenantId,
        id: DeliveryId,
    ) -> Result<Option<DeliveryRecord>, Error> {
        self.ledger.ask(move |conn| history::delivery(conn, tenant, id)).await
    }

    async fn attempts(&self, id: DeliveryId) -> Result<Vec<Attempt>, Error> {
        self.ledger.ask(move |conn| history::attempts(conn, id)).await
    }

    async fn ahead_of(&self, id: DeliveryId) -> Result<Option<DeliveryRecord>, Error> {
        self.ledger.ask(move |conn| history::ahead_of(conn, id)).await
    }

    async fn ahead_count(&self, id: DeliveryId, limit: usize) -> Result<u64, Error> {
        self.ledger.ask(move |conn| ahead::ahead_count(conn, id, limit)).await
    }

    async fn deliveries(
        &self,
        tenant: TenantId,
        query: DeliveryQuery,
    ) -> Result<Listed<DeliveryRecord>, Error> {
        self.ledger.ask(move |conn| lists::deliveries(conn, tenant, &query)).await
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
            let cost = Cost { rows: rows.len(), bytes: 0 };
            if !rows.is_empty() {
                let audit = audit.clone();
                removed += self
                    .writer
                    .submit(cost, Urgency::Now, move |batch| {
                        note(batch, audit.as_ref())?;
                        history::purge(batch, &rows)
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
        self.ledger.ask(move |conn| history::counts(conn, tenant)).await
    }

    async fn totals(&self) -> Result<Vec<(State, u64)>, Error> {
        self.ledger.ask(history::totals).await
    }

    async fn event_count(&self, tenant: TenantId) -> Result<u64, Error> {
        self.ledger.ask(move |conn| history::event_count(conn, tenant)).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.ledger.ask(history::ping).await
    }
}

/// What a rarely changed piece of configuration costs to write.
const ONE_ROW: Cost = Cost { rows: 1, bytes: 0 };

#[async_trait]
impl Registry for Sqlite {
    async fn endpoints(&self) -> Result<Vec<Endpoint>, Error> {
        let keyring = Arc::clone(&self.keyring);
        self.ledger.ask(move |conn| configuration::endpoints(conn, &keyring)).await
    }

    async fn put_endpoint(&self, endpoint: Endpoint, audit: Option<Audit>) -> Result<(), Error> {
        let keyring = Arc::clone(&self.keyring);
        self.configure(move |batch| {
            note(batch, audit.as_ref())?;
            configuration::put_endpoint(batch, &endpoint, &keyring)
        })
        .await
    }

    async fn forget_endpoint(&self, id: EndpointId) -> Result<(), Error> {
        self.configure(move |batch| configuration::forget_endpoint(batch, id)).await
    }

    async fn failing(&self) -> Result<Vec<(EndpointId, Timestamp)>, Error> {
        self.ledger.ask(configuration::failing).await
    }

    async fn note_failing(&self, since: Vec<(EndpointId, Option<Timestamp>)>) -> Result<(), Error> {
        let cost = Cost { rows: since.len(), bytes: 0 };
        self.writer
            .submit(cost, Urgency::Lazy, move |batch| configuration::note_failing(batch, &since))
            .await
    }

    async fn sources(&self) -> Result<Vec<Source>, Error> {
        let keyring = Arc::clone(&self.keyring);
        self.ledger.ask(move |conn| sources::sources(conn, &keyring)).await
    }

    async fn put_source(&self, source: Source, audit: Audit) -> Result<(), Error> {
        let keyring = Arc::clone(&self.keyring);
        self.configure(move |batch| {
            note(batch, Some(&audit))?;
            sources::put_source(batch, &source, &keyring)
        })
        .await
    }

    async fn delete_source(&self, id: SourceId, audit: Audit) -> Result<(), Error> {
        self.configure(move |batch| {
            note(batch, Some(&audit))?;
            sources::delete_source(batch, id)
        })
        .await
    }

    async fn hubs(&self) -> Result<Vec<HubRecord>, Error> {
        self.ledger.ask(hubs::hubs).await
    }

    async fn put_hub(&self, hub: HubRecord, audit: Audit) -> Result<(), Error> {
        self.configure(move |batch| {
            note(batch, Some(&audit))?;
            hubs::put_hub(batch, &hub)
        })
        .await
    }

    async fn delete_hub(&self, id: HubId, audit: Audit) -> Result<(), Error> {
        self.configure(move |batch| {
            note(batch, Some(&audit))?;
            hubs::delete_hub(batch, id)
        })
        .await
    }

    async fn reseal(&self) -> Result<u64, Error> {
        let keyring = Arc::clone(&self.keyring);
        self.configure(move |batch| sources::reseal(batch.conn, &keyring)).await
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, Error> {
        self.ledger.ask(configuration::keys).await
    }

    async fn put_key(&self, key: KeyRecord, audit: Option<Audit>) -> Result<(), Error> {
        self.configure(move |batch| {
            note(batch, audit.as_ref())?;
            configuration::put_key(batch, &key)
        })
        .await
    }

    async fn touch_keys(&self, used: Vec<(KeyId, Timestamp)>) -> Result<(), Error> {
        let cost = Cost { rows: used.len(), bytes: 0 };
        self.writer
            .submit(cost, Urgency::Lazy, move |batch| configuration::touch_keys(batch, &used))
            .await
    }

    async fn tenants(&self) -> Result<Vec<TenantRecord>, Error> {
        self.ledger.ask(configuration::tenants).await
    }

    async fn make_tenant(
        &self,
        name: String,
        created_at: Timestamp,
        audit: Audit,
    ) -> Result<TenantRecord, Error> {
        self.configure(move |batch| {
            let made = configuration::make_tenant(batch, &name, created_at)?;
            note(batch, Some(&audit))?;
            Ok(made)
        })
        .await
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditRecord>, Error> {
        self.ledger.ask(move |conn| audit::list(conn, &query)).await
    }

    async fn instance(&self, candidate: [u8; 16]) -> Result<[u8; 16], Error> {
        self.configure(move |batch| configuration::instance(batch, candidate)).await
    }

    async fn job(&self, tenant: TenantId, id: JobId) -> Result<Option<JobRecord>, Error> {
        self.ledger.ask(move |conn| configuration::job(conn, tenant, id)).await
    }

    async fn open_jobs(&self) -> Result<Vec<JobRecord>, Error> {
        self.ledger.ask(configuration::open_jobs).await
    }

    async fn put_job(
        &self,
        job: JobRecord,
        audit: Option<Audit>,
        tenure: Option<Tenure>,
    ) -> Result<bool, Error> {
        self.configure(move |batch| {
            let put = configuration::put_job(batch, &job, tenure)?;
            note(batch, audit.as_ref().filter(|_| put))?;
            Ok(put)
        })
        .await
    }

    async fn standings(&self) -> Result<Vec<Standing>, Error> {
        self.ledger.ask(standing::standings).await
    }

    async fn note_breakers(
        &self,
        breakers: Vec<(EndpointId, Option<String>)>,
    ) -> Result<(), Error> {
        let cost = Cost { rows: breakers.len(), bytes: 0 };
        self.writer
            .submit(cost, Urgency::Lazy, move |batch| standing::note_breakers(batch, &breakers))
            .await
    }
}

impl Store for Sqlite {
    fn fleet(&self) -> Option<&dyn Fleet> {
        self.company.is_shared().then_some(self)
    }

    fn vitals(&self) -> &Vitals {
        &self.vitals
    }
}

impl Sqlite {
    /// Makes a change that is one row, or few.
    fn configure<T, F>(&self, change: F) -> impl Future<Output = Result<T, Error>> + use<T, F>
    where
        T: Send + 'static,
        F: FnMut(&mut Batch<'_>) -> Result<T, Error> + Send + 'static,
    {
        self.writer.submit(ONE_ROW, Urgency::Now, change)
    }
}
