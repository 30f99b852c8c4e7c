//! The writers: tasks that each put everything waiting into one transaction, and answer only when
//! the server has it on disk.

use std::sync::Arc;
use std::time::Instant;

use super::append::{self, find_earlier};
use super::config::MAX_TRIES;
use super::fault::{self, Fault};
use super::janitor::Leftovers;
use super::lines;
use super::link::{Base, Link};
use super::pipeline::Pipeline;
use super::presence::Presence;
use super::queue::{Batch, Queue, Work};
use super::session::Session;
use super::settle;
use super::slots::Slots;
use crate::error::Error;
use crate::journal::Appended;
use crate::record::{Event, NewEvent, Settle, Settled};
use crate::vitals::Load;

/// What a writer needs.
pub(crate) struct Writer {
    pub(crate) base: Arc<Base>,
    pub(crate) presence: Arc<Presence>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) leftovers: Arc<Leftovers>,
    pub(crate) slots: Arc<Slots>,
    /// Which of the writers it is.
    pub(crate) index: i16,
}

/// The statements of a connection that writes.
struct Statements {
    append: append::Statements,
    settle: settle::Statements,
}

impl Writer {
    /// Works until the queue is closed and empty.
    pub(crate) async fn serve(self) {
        let mut link = Link::default();
        while let Some(mut batch) = self.queue.take().await {
            self.commit(&mut link, &mut batch).await;
            self.queue.done(&batch);
        }
        if let Some(session) = link.take() {
            session.close().await;
        }
    }

    async fn commit(&self, link: &mut Link, batch: &mut Batch) {
        let works = std::mem::take(&mut batch.works);
        let ready = match self.presence.check() {
            Ok(()) => self.ready(link).await,
            Err(error) => Err(error),
        };
        match ready {
            Ok((session, statements)) => self.write(session, &statements, works).await,
            Err(error) => refuse(works, &error),
        }
    }

    async fn ready<'l>(&self, link: &'l mut Link) -> Result<(&'l Session, Statements), Error> {
        let session = link.session(&self.base).await?;
        let append = append::Statements::prepare(session).await?;
        let settle = settle::Statements::prepare(session).await?;
        Ok((session, Statements { append, settle }))
    }

    /// Commits `works` together. If one of them cannot be done, the others are done without it; if
    /// the server cannot be written to at all, all of them are refused.
    async fn write(&self, session: &Session, statements: &Statements, works: Vec<Work>) {
        match self.insist(session, statements, &works).await {
            Ok(written) => answer(session, works, written).await,
            Err(Fault::Taken | Fault::Damaged(_)) if works.len() > 1 => {
                for work in works {
                    self.write_one(session, statements, work).await;
                }
            }
            Err(fault) => self.complain(works, fault),
        }
    }

    async fn write_one(&self, session: &Session, statements: &Statements, work: Work) {
        let alone = vec![work];
        match self.insist(session, statements, &alone).await {
            Ok(written) => answer(session, alone, written).await,
            Err(fault) => self.complain(alone, fault),
        }
    }

    fn complain(&self, works: Vec<Work>, fault: Fault) {
        let named = || works.iter().find_map(first_id).unwrap_or_else(|| "this".to_owned());
        let error = fault::exists(fault, named);
        match &error {
            Error::Unavailable(_) | Error::Damaged(_) => self.base.complaints.raise(&error),
            Error::Overloaded | Error::Refused(_) | Error::Exists(_) | Error::Closed => {}
        }
        refuse(works, &error);
    }

    /// Tries again where the server undid the transaction for the sake of another.
    async fn insist(
        &self,
        session: &Session,
        statements: &Statements,
        works: &[Work],
    ) -> Result<Written, Fault> {
        let (slot, mut tries) = (self.slots.writer(self.index), 1);
        loop {
            let started = Instant::now();
            match together(session, statements, works, slot).await {
                Ok(written) => {
                    self.leftovers.add(written.settled.len());
                    self.base.vitals.committed(written.load(), started.elapsed());
                    return Ok(written);
                }
                Err(Fault::Undone(_)) if tries < MAX_TRIES => tries += 1,
                Err(fault) => return Err(fault),
            }
        }
    }
}

fn first_id(work: &Work) -> Option<String> {
    match work {
        Work::Append(events, _) => events.first().map(|new| new.event.id.to_string()),
        Work::Settle(settles, _) => settles.first().map(|settle| settle.id.to_string()),
    }
}

fn refuse(works: Vec<Work>, error: &Error) {
    for work in works {
        work.refuse(error.clone());
    }
}

/// What became of all events and changes of a transaction, in the order of its commands. No outcome
/// is that of an event whose key is taken.
struct Written {
    appended: Vec<Option<Appended>>,
    settled: Vec<Settled>,
}

impl Written {
    fn load(&self) -> Load {
        Load { appended: self.appended.len(), settled: self.settled.len() }
    }
}

/// One transaction in one round trip.
async fn together(
    session: &Session,
    statements: &Statements,
    works: &[Work],
    slot: i16,
) -> Result<Written, Fault> {
    let (mut events, mut settles): (Vec<&NewEvent>, Vec<&Settle>) = (Vec::new(), Vec::new());
    for work in works {
        match work {
            Work::Append(new, _) => events.extend(new),
            Work::Settle(some, _) => settles.extend(some),
        }
    }
    let (append, settle) = (append::Load::new(events), settle::Load::new(settles));
    let appends = usize::from(!append.is_empty());
    let locks = lines::locks(append.in_line().chain(settle.in_line()));
    let locking = if locks.is_empty() { None } else { Some(session.prepare(lines::LOCK).await?) };

    let mut pipeline = Pipeline::new(session);
    // A statement by itself is a transaction.
    let many = appends + settle.statements() + usize::from(locking.is_some()) > 1;
    if many {
        pipeline.say("BEGIN");
    }
    if let Some(statement) = &locking {
        let (client, statement) = (session.client(), statement.clone());
        pipeline.send(async move { client.query(&statement, &[&lines::CLASS, &locks]).await });
    }
    if appends > 0 {
        append.send(&mut pipeline, session, &statements.append, slot);
    }
    settle.send(&mut pipeline, session, &statements.settle, slot);
    if many {
        pipeline.say("COMMIT");
    }
    let answers = pipeline.finish().await?;
    let from = usize::from(many) + usize::from(locking.is_some());
    let damaged = |error: Error| Fault::Damaged(error.to_string());
    let appended = match answers.get(from) {
        Some(answer) if appends > 0 => append.read(answer).map_err(damaged)?,
        Some(_) | None => Vec::new(),
    };
    let answers = answers.get(from + appends..).unwrap_or_default();
    Ok(Written { appended, settled: settle.read(answers).map_err(damaged)? })
}

/// Tells everybody. Those whose key was taken are told last, because that has to be looked up.
async fn answer(session: &Session, works: Vec<Work>, written: Written) {
    let mut appended = written.appended.into_iter();
    let mut settled = written.settled.into_iter();
    let mut taken = Vec::new();
    for work in works {
        // Whoever asked may have gone; what was committed stays.
        match work {
            Work::Append(events, reply) => {
                let outcomes: Vec<_> = appended.by_ref().take(events.len()).collect();
                if outcomes.iter().all(Option::is_some) {
                    let _ = reply.send(Ok(outcomes.into_iter().flatten().collect()));
                } else {
                    taken.push((events, outcomes, reply));
                }
            }
            Work::Settle(settles, reply) => {
                let _ = reply.send(Ok(settled.by_ref().take(settles.len()).collect()));
            }
        }
    }
    if taken.is_empty() {
        return;
    }
    let refused: Vec<&Event> = taken
        .iter()
        .flat_map(|(events, outcomes, _)| events.iter().zip(outcomes))
        .filter(|(_, outcome)| outcome.is_none())
        .map(|(new, _)| &*new.event)
        .collect();
    let found = find_earlier(session, &refused).await;
    let mut found = found.map(Vec::into_iter);
    for (_, outcomes, reply) in taken {
        let all = match &mut found {
            Ok(found) => Ok(outcomes
                .into_iter()
                .filter_map(|outcome| outcome.or_else(|| found.next()))
                .collect()),
            Err(error) => Err(error.clone()),
        };
        let _ = reply.send(all);
    }
}

/// Makes changes within a transaction that somebody else began and ends.
pub(crate) async fn settle_within(
    session: &Session,
    settles: &[Settle],
    slot: i16,
) -> Result<Vec<Settled>, Fault> {
    let statements = settle::Statements::prepare(session).await?;
    let load = settle::Load::new(settles.iter().collect());
    let locks = lines::locks(load.in_line());
    if !locks.is_empty() {
        session.rows(lines::LOCK, &[&lines::CLASS, &locks]).await?;
    }
    let mut pipeline = Pipeline::new(session);
    load.send(&mut pipeline, session, &statements, slot);
    let answers = pipeline.finish().await?;
    load.read(&answers).map_err(|error| Fault::Damaged(error.to_string()))
}
