//! The way in: what an event is when it comes, who listens to it, and what becomes of it.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::id::Sequence;
use postrider_core::{EndpointId, EventId, SourceId, TenantId, Timestamp, Trace};
use postrider_store::Error as StoreError;
use postrider_store::record::{Event, Headers, MAX_DELIVERIES_PER_EVENT, NewDelivery, NewEvent};
use tokio::sync::oneshot;

use crate::error::Error;
use crate::filter::{Facts, FilterError, Subject};
use crate::intake::Request;
use crate::route::{Route, Routes};
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

/// Stores events, all in one commit, and hands their deliveries over. Once begun that runs to its end
/// even if the caller goes away.
pub(crate) async fn accept(
    shared: &Arc<Shared>,
    tenant: TenantId,
    mut submissions: Vec<Submission>,
) -> Result<Vec<Accepted>, Error> {
    let span = Accepting::begin(shared, tenant, &mut submissions);
    let addressed = match address_all(shared, tenant, submissions) {
        Ok(addressed) => addressed,
        Err(error) => {
            let refused = Err(error);
            if let Some(span) = span {
                span.end(shared, &refused);
            }
            return refused;
        }
    };
    let (reply, answer) = oneshot::channel();
    {
        let mut intake = shared.intake.lock();
        let now = shared.clock.now();
        let name = |addressed: Addressed| addressed.name(&mut intake.ids, tenant, now);
        let events = addressed.into_iter().map(name).collect();
        intake.leave(shared, Request { events, span, reply });
    }
    answer.await.unwrap_or(Err(Error::Store(StoreError::Closed)))
}

/// Filters may take their time over a large body; nobody waits for that.
fn address_all(
    shared: &Shared,
    tenant: TenantId,
    submissions: Vec<Submission>,
) -> Result<Vec<Addressed>, Error> {
    if shared.fleet.as_ref().is_some_and(|fleet| !fleet.may_give_out_ids()) {
        let why = "this node has lost touch with the others";
        return Err(StoreError::Unavailable(why.into()).into());
    }
    let routes = shared.routes.load();
    // Collected from results, they would get room for four, and nearly always there is one.
    let mut addressed = Vec::with_capacity(submissions.len());
    for submission in submissions {
        addressed.push(address(&routes, tenant, submission)?);
    }
    Ok(addressed)
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
