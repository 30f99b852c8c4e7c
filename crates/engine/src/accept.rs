//! The way in: match endpoints, store, and hand over in memory what was stored.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use postrider_core::id::Sequence;
use postrider_core::{Delivery, EndpointId, EventId, SourceId, State, TenantId, Timestamp, Trace};
use postrider_store::Error as StoreError;
use postrider_store::journal::{Appended, Appending};
use postrider_store::record::{
    Event, FIRST_FENCE, Headers, MAX_DELIVERIES_PER_EVENT, NewDelivery, NewEvent, Waiting,
    delivery_id,
};
use tokio::runtime::Handle;

use crate::error::Error;
use crate::filter::{Facts, FilterError, Subject};
use crate::metrics::Way;
use crate::route::{Route, Routes};
use crate::scheduler::{Meanwhile, Scheduler};
use crate::shared::Shared;
use crate::spans::Accepting;

/// An event as a producer sends it, already checked.
#[derive(Debug, Clone)]
pub struct Submission {
    pub kind: String,
    pub content_type: String,
    pub body: Bytes,
    pub idempotency_key: Option<String>,
    pub ordering_key: Option<String>,
    pub deliver_at: Option<Timestamp>,
    /// A JSON object, as text.
    pub metadata: Option<String>,
    /// Where it came in, if not by the API.
    pub source: Option<SourceId>,
    /// Whether its source could verify it; none where there was nothing to verify.
    pub verified: Option<bool>,
    /// Kept with it and passed on, names in lower case.
    pub headers: Headers,
    /// The trace that whoever sent it is part of.
    pub trace: Option<Trace>,
}

impl Submission {
    /// What filters see of it.
    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            kind: &self.kind,
            headers: &self.headers,
            metadata: self.metadata.as_deref(),
            content_type: &self.content_type,
            body: &self.body,
            source: self.source,
        }
    }
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    New { id: EventId, received_at: Timestamp, deliveries: u32 },
    Duplicate { id: EventId, kind: String, received_at: Timestamp, deliveries: u32 },
    Conflict { id: EventId },
}

/// Stores events and hands their deliveries over. Once begun it runs to its end even if the caller
/// goes away: what was stored must also be scheduled.
pub(crate) fn accept(
    shared: &Arc<Shared>,
    tenant: TenantId,
    submissions: Vec<Submission>,
) -> impl Future<Output = Result<Vec<Accepted>, Error>> + Send + use<> {
    let work = append(Arc::clone(shared), tenant, submissions);
    Unbroken { work: Some(Box::pin(work)), runtime: shared.runtime.clone() }
}

async fn append(
    shared: Arc<Shared>,
    tenant: TenantId,
    mut submissions: Vec<Submission>,
) -> Result<Vec<Accepted>, Error> {
    let span = Accepting::begin(&shared, tenant, &mut submissions);
    let accepted = store(&shared, tenant, submissions).await;
    if let Some(span) = span {
        span.end(&shared, &accepted);
    }
    accepted
}

async fn store(
    shared: &Arc<Shared>,
    tenant: TenantId,
    submissions: Vec<Submission>,
) -> Result<Vec<Accepted>, Error> {
    let (handed, appending) = begin(shared, tenant, submissions)?;
    match appending.await {
        Ok(answers) => Ok(hand_over(shared, handed, answers)),
        Err(error) => {
            take_back(shared, &handed, &error);
            Err(error.into())
        }
    }
}

/// Gives out ids and queues the events for the store under one lock, so that events are stored in
/// the order of their ids: that is the order in which an ordered endpoint gets them.
fn begin(
    shared: &Shared,
    tenant: TenantId,
    submissions: Vec<Submission>,
) -> Result<(Vec<Handed>, Appending), Error> {
    if shared.fleet.as_ref().is_some_and(|fleet| !fleet.may_give_out_ids()) {
        let why = "this node has lost touch with the others";
        return Err(StoreError::Unavailable(why.into()).into());
    }
    let routes = shared.routes.load();
    // Filters may take their time over a large body; nobody waits for that.
    let addressed = submissions
        .into_iter()
        .map(|submission| address(&routes, tenant, submission))
        .collect::<Result<Vec<_>, _>>()?;
    let mut ids = shared.ids.lock();
    let now = shared.clock.now();
    let events: Vec<NewEvent> =
        addressed.into_iter().map(|addressed| addressed.name(&mut ids, tenant, now)).collect();
    let handed: Vec<Handed> = events.iter().map(Handed::of).collect();
    announce(shared, &handed);
    let appending = shared.store.append(events);
    Ok((handed, appending))
}

/// An event and where it goes.
struct Addressed {
    submission: Submission,
    deliveries: Vec<NewDelivery>,
    filter_errors: Option<String>,
}

/// Finds every endpoint that listens to an event.
fn address(routes: &Routes, tenant: TenantId, submission: Submission) -> Result<Addressed, Error> {
    let listening = listening(routes, tenant, submission.facts());
    if listening.routes.len() > MAX_DELIVERIES_PER_EVENT {
        let message = format!("goes to more than {MAX_DELIVERIES_PER_EVENT} endpoints");
        return Err(Error::invalid("type", message));
    }
    let key = submission.ordering_key.as_deref();
    let deliveries = listening
        .routes
        .iter()
        .map(|route| NewDelivery {
            endpoint: route.id(),
            line: route.endpoint.spec.ordering.line(key).map(str::to_owned),
        })
        .collect();
    let filter_errors = write_errors(&listening.errors);
    Ok(Addressed { submission, deliveries, filter_errors })
}

impl Addressed {
    /// Gives an event its id, and each of its deliveries the ones that follow.
    fn name(self, sequence: &mut Sequence, tenant: TenantId, now: Timestamp) -> NewEvent {
        let Self { submission, deliveries, filter_errors } = self;
        let ids = u32::try_from(deliveries.len() + 1).unwrap_or(u32::MAX);
        let event = Arc::new(Event {
            id: EventId::from_i64(sequence.take(now, ids)),
            tenant,
            kind: submission.kind,
            content_type: submission.content_type,
            body: submission.body,
            idempotency_key: submission.idempotency_key,
            ordering_key: submission.ordering_key,
            metadata: submission.metadata,
            received_at: now,
            deliver_at: submission.deliver_at,
            source: submission.source,
            verified: submission.verified,
            headers: submission.headers,
            filter_errors,
            trace: submission.trace,
        });
        NewEvent { event, deliveries }
    }
}

/// Who listens to an event.
pub(crate) struct Listening<'r> {
    /// Oldest first.
    pub(crate) routes: Vec<&'r Arc<Route>>,
    /// Endpoints whose filter could not be evaluated: neither sent to nor silently passed over.
    pub(crate) errors: Vec<(EndpointId, FilterError)>,
}

/// The endpoints whose event types, sources and filter an event meets.
pub(crate) fn listening<'r>(
    routes: &'r Routes,
    tenant: TenantId,
    facts: Facts<'_>,
) -> Listening<'r> {
    let mut chosen = routes.matching(tenant, facts.kind);
    let mut errors = Vec::new();
    let picky = |route: &Route| route.filter.is_some() || !route.endpoint.spec.sources.is_empty();
    if chosen.iter().any(|route| picky(route)) {
        let subject = Subject::new(facts);
        chosen.retain(|route| {
            let sources = &route.endpoint.spec.sources;
            let heard = sources.is_empty() || facts.source.is_some_and(|id| sources.contains(&id));
            heard
                && match route.filter.as_ref().map(|filter| filter.passes(&subject)) {
                    None => true,
                    Some(Ok(passes)) => passes,
                    Some(Err(error)) => {
                        errors.push((route.id(), error));
                        false
                    }
                }
        });
    }
    Listening { routes: chosen, errors }
}

/// How many filter errors are kept with an event.
const MAX_FILTER_ERRORS: usize = 50;

fn write_errors(errors: &[(EndpointId, FilterError)]) -> Option<String> {
    if errors.is_empty() {
        return None;
    }
    let by_endpoint: serde_json::Map<_, _> = errors
        .iter()
        .take(MAX_FILTER_ERRORS)
        .map(|(endpoint, error)| (endpoint.to_string(), error.to_string().into()))
        .collect();
    Some(serde_json::Value::Object(by_endpoint).to_string())
}

/// What is kept in memory of an event while it is being stored.
struct Handed {
    event: Arc<Event>,
    /// Each endpoint, and whether the delivery stands in a line.
    endpoints: Vec<(EndpointId, bool)>,
}

impl Handed {
    fn of(new: &NewEvent) -> Self {
        let endpoints =
            new.deliveries.iter().map(|new| (new.endpoint, new.line.is_some())).collect();
        Self { event: Arc::clone(&new.event), endpoints }
    }

    fn waiting(&self, index: usize) -> Waiting {
        let (endpoint, in_line) = self.endpoints[index];
        let born = self.event.born();
        Waiting {
            id: delivery_id(self.event.id, index),
            endpoint,
            event: Arc::clone(&self.event),
            delivery: Delivery {
                state: State::Pending,
                attempts: 0,
                deferrals: 0,
                due: born,
                born,
            },
            tries: 0,
            fence: FIRST_FENCE,
            in_line,
        }
    }
}

/// Keeps pages off the deliveries until they are handed over.
fn announce(shared: &Shared, handed: &[Handed]) {
    if handed.iter().all(|handed| handed.endpoints.is_empty()) {
        return;
    }
    let mut scheduler = shared.scheduler.lock();
    for handed in handed.iter().filter(|handed| !handed.endpoints.is_empty()) {
        scheduler.expect(handed.event.id);
    }
}

/// Nothing was stored, as far as is known. It may have been all the same, where the word that it was
/// got lost: then nobody was told of it, but it is there and has to be carried, so it is looked for.
fn take_back(shared: &Arc<Shared>, handed: &[Handed], error: &StoreError) {
    let in_doubt = error.leaves_doubt();
    let now = shared.clock.now();
    let mut scheduler = shared.scheduler.lock();
    for handed in handed {
        let seen = scheduler.arrived(handed.event.id) != Meanwhile::Nothing;
        if seen || in_doubt {
            for (endpoint, _) in &handed.endpoints {
                scheduler.note_stored(*endpoint, None, now);
            }
        }
    }
    drop(scheduler);
    shared.pump();
}

/// Counts what was stored.
fn measure(shared: &Shared, handed: &[Handed], answers: &[Appended]) {
    let Some(tenant) = handed.first().map(|handed| handed.event.tenant) else { return };
    let metrics = &shared.metrics;
    let stored = handed.iter().zip(answers).filter(|(handed, answer)| match answer {
        Appended::New { .. } => {
            let event = &handed.event;
            metrics.note_received(Way::of(event.source, &event.kind), handed.endpoints.len());
            true
        }
        Appended::Duplicate { .. } => {
            metrics.duplicates.one();
            false
        }
        Appended::Conflict { .. } => {
            metrics.conflicts.one();
            false
        }
    });
    let made = stored.flat_map(|(handed, _)| {
        let at = handed.event.received_at;
        handed.endpoints.iter().map(move |(endpoint, _)| (at, *endpoint))
    });
    shared.measures.made(tenant, made);
}

fn hand_over(shared: &Arc<Shared>, handed: Vec<Handed>, answers: Vec<Appended>) -> Vec<Accepted> {
    measure(shared, &handed, &answers);
    let now = shared.clock.now();
    let mut orphans = Vec::new();
    let mut any = false;
    let accepted = handed
        .into_iter()
        .zip(answers)
        .map(|(handed, answer)| {
            if !handed.endpoints.is_empty() {
                any = true;
                orphans.extend(handed.offer(&mut shared.scheduler.lock(), &answer, now));
            }
            handed.receipt(answer)
        })
        .collect();
    if any {
        shared.pump();
    }
    shared.cancel_orphans(orphans);
    accepted
}

impl Handed {
    /// Schedules what was stored. Returns endpoints that nobody knows any more.
    fn offer(
        &self,
        scheduler: &mut Scheduler,
        answer: &Appended,
        now: Timestamp,
    ) -> Vec<EndpointId> {
        let meanwhile = scheduler.arrived(self.event.id);
        let parked = match answer {
            Appended::New { parked } => parked,
            Appended::Duplicate { .. } | Appended::Conflict { .. } => return Vec::new(),
        };
        let later = self.event.deliver_at.filter(|at| *at > now);
        let mut orphans = Vec::new();
        for (index, (endpoint, _)) in self.endpoints.iter().enumerate() {
            let known = match (meanwhile, parked.contains(&index), later) {
                // It will be handed on by the one before it.
                (Meanwhile::Nothing, true, _) => continue,
                // That may have happened already. The store knows how it stands.
                (Meanwhile::PassedOver, true, _) | (Meanwhile::Reserved, _, _) => {
                    scheduler.note_stored(*endpoint, None, now)
                }
                (Meanwhile::Nothing | Meanwhile::PassedOver, false, Some(at)) => {
                    scheduler.note_stored(*endpoint, Some(at), now)
                }
                (Meanwhile::Nothing | Meanwhile::PassedOver, false, None) => {
                    scheduler.offer(self.waiting(index), now)
                }
            };
            if !known {
                orphans.push(*endpoint);
            }
        }
        orphans
    }

    fn receipt(&self, answer: Appended) -> Accepted {
        let event = &self.event;
        match answer {
            Appended::New { .. } => {
                let deliveries = u32::try_from(self.endpoints.len()).unwrap_or(u32::MAX);
                Accepted::New { id: event.id, received_at: event.received_at, deliveries }
            }
            Appended::Duplicate { id, kind, received_at, deliveries } => {
                Accepted::Duplicate { id, kind, received_at, deliveries }
            }
            Appended::Conflict { id } => Accepted::Conflict { id },
        }
    }
}

/// A future that, when dropped half-way, goes on as a task of its own.
struct Unbroken<T: Send + 'static> {
    work: Option<BoxFuture<'static, T>>,
    runtime: Handle,
}

impl<T: Send + 'static> Future for Unbroken<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let done = work.as_mut().poll(context);
        if done.is_ready() {
            self.work = None;
        }
        done
    }
}

impl<T: Send + 'static> Drop for Unbroken<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.runtime.spawn(work);
        }
    }
}
