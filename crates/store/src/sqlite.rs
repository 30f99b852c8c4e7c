//! The embedded backend: one `SQLite` file, one writer that commits for everybody who waits, and
//! readers beside it.
//!
//! Reading order: what the file looks like ([`schema`], [`code`], [`rows`]), how it is opened
//! ([`file`], [`config`]), who works on it ([`writer`], [`readers`], [`checkpoint`]), and what they
//! do ([`append`], [`settle`], [`pages`], [`retention`], [`lists`], [`history`],
//! [`configuration`]).

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use postrider_core::delivery::State;
use postrider_core::{DeliveryId, Endpoint, EndpointId, EventId, JobId, TenantId, Timestamp};
use tokio::sync::watch;

use crate::error::Error;
use crate::journal::{
    Appending, Cutoffs, Journal, Page, Paged, RetentionStep, Unfinished, Urgency,
};
use crate::ledger::{Count, DeliveryFilter, DeliveryQuery, EventQuery, Ledger, Listed, MAX_COUNT};
use crate::record::{
    Attempt, DeliveryRecord, Event, NewDelivery, NewEvent, Settle, Settled, Waiting,
};
use crate::registry::{JobRecord, KeyRecord, Registry, TenantRecord};

mod code;
mod response;
mod rows;
mod schema;

mod config;
mod fault;
mod file;

mod batch;
mod checkpoint;
mod readers;
mod writer;

mod append;
mod configuration;
mod history;
mod lists;
mod pages;
mod retention;
mod settle;

#[cfg(test)]
mod plans;

pub use config::{Options, PAGE_BYTES};

use checkpoint::Checkpointer;
use config::{JOURNAL_READERS, LEDGER_READERS};
use readers::Readers;
use writer::{Belongings, Cost, Writer};

/// An open database. Dropping it closes it, as [`Journal::close`] does, but blocks meanwhile.
pub struct Sqlite {
    writer: Writer,
    journal: Readers,
    ledger: Readers,
    finished: watch::Receiver<bool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Sqlite {
    /// Opens the database at `path`, and makes it if there is none. A file that is not ours, or of a
    /// newer version, or in use, is refused and left as it is.
    pub fn open(path: &Path, options: Options) -> Result<Self, Error> {
        let options = &options;
        let file::Opened { path, lock, writer: conn } = file::open(path, options)?;
        let (checkpointer, copying) = Checkpointer::start(&path, options)?;
        let mut others = vec![copying];
        let (journal, threads) = Readers::start("store-journal", JOURNAL_READERS, &path, options)?;
        others.extend(threads);
        let (ledger, threads) = Readers::start("store-ledger", LEDGER_READERS, &path, options)?;
        others.extend(threads);
        let (done, finished) = watch::channel(false);
        let belongings = Belongings { conn, checkpointer, others, lock, finished: done };
        let (writer, thread) = Writer::start(belongings)?;
        Ok(Self { writer, journal, ledger, finished, thread: Mutex::new(Some(thread)) })
    }

    /// Takes nothing on any more. What was taken on is still done.
    fn begin_close(&self) {
        self.writer.close();
        self.journal.close();
        self.ledger.close();
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
    ) -> Result<Vec<Waiting>, Error> {
        let cost = Cost { rows: deliveries.len(), bytes: 0 };
        self.writer
            .submit(cost, Urgency::Now, move |batch| {
                append::append_deliveries(batch, event, first, &deliveries, now)
            })
            .await
    }

    async fn settle(&self, settles: Vec<Settle>, urgency: Urgency) -> Result<Vec<Settled>, Error> {
        for settle in &settles {
            let states = [settle.from, settle.next.state];
            assert!(
                !states.contains(&State::InFlight),
                "{} is in flight only in memory",
                settle.id
            );
        }
        let cost = Cost { rows: settles.len(), bytes: settles.iter().map(answer_bytes).sum() };
        self.writer.submit(cost, urgency, move |batch| settle::settle(batch, &settles)).await
    }

    async fn page(&self, page: Page) -> Result<Paged, Error> {
        self.journal.ask(move |conn| pages::page(conn, &page)).await
    }

    async fn next_due(&self, endpoint: EndpointId) -> Result<Option<Timestamp>, Error> {
        self.journal.ask(move |conn| pages::next_due(conn, endpoint)).await
    }

    async fn waiting(&self, id: DeliveryId) -> Result<Option<Waiting>, Error> {
        self.journal.ask(move |conn| pages::waiting(conn, id)).await
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
        let Some(mut query) = history::dead_letters(filter, crate::journal::MAX_PAGE) else {
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

    async fn purge_dead_letters(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        limit: usize,
    ) -> Result<u64, Error> {
        let Some(mut query) = history::dead_letters(filter, limit) else { return Ok(0) };
        let mut removed = 0;
        while removed < limit as u64 {
            query.limit = limit - usize::try_from(removed).unwrap_or(limit);
            let found = self.deliveries(tenant, query.clone()).await?;
            let rows = found.rows;
            let cost = Cost { rows: rows.len(), bytes: 0 };
            if !rows.is_empty() {
                removed += self
                    .writer
                    .submit(cost, Urgency::Now, move |batch| history::purge(batch, &rows))
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
        self.ledger.ask(configuration::endpoints).await
    }

    async fn put_endpoint(&self, endpoint: Endpoint) -> Result<(), Error> {
        self.writer
            .submit(ONE_ROW, Urgency::Now, move |batch| {
                configuration::put_endpoint(batch, &endpoint)
            })
            .await
    }

    async fn forget_endpoint(&self, id: EndpointId) -> Result<(), Error> {
        self.writer
            .submit(ONE_ROW, Urgency::Now, move |batch| configuration::forget_endpoint(batch, id))
            .await
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>, Error> {
        self.ledger.ask(configuration::keys).await
    }

    async fn put_key(&self, key: KeyRecord) -> Result<(), Error> {
        self.writer
            .submit(ONE_ROW, Urgency::Now, move |batch| configuration::put_key(batch, &key))
            .await
    }

    async fn tenants(&self) -> Result<Vec<TenantRecord>, Error> {
        self.ledger.ask(configuration::tenants).await
    }

    async fn job(&self, tenant: TenantId, id: JobId) -> Result<Option<JobRecord>, Error> {
        self.ledger.ask(move |conn| configuration::job(conn, tenant, id)).await
    }

    async fn open_jobs(&self) -> Result<Vec<JobRecord>, Error> {
        self.ledger.ask(configuration::open_jobs).await
    }

    async fn put_job(&self, job: JobRecord) -> Result<(), Error> {
        self.writer
            .submit(ONE_ROW, Urgency::Now, move |batch| configuration::put_job(batch, &job))
            .await
    }
}
