//! The way into the store, many producers at a time, and from there to the scheduler.
//!
//! Whoever has events to store leaves them here and waits for the answer. One task takes along all that
//! was left by those who were about to ask at the same moment, as one command for the store; when that is
//! on disk it answers everybody, and then hands the deliveries over together. So the store is woken, and
//! the scheduler locked, once for many events. Nobody waits for company that is not there already.

use std::sync::Arc;

use postrider_core::id::Sequence;
use postrider_core::{Delivery, EndpointId, State, Timestamp};
use postrider_store::Error as StoreError;
use postrider_store::journal::{Appended, Appending};
use postrider_store::record::{FIRST_FENCE, NewEvent, Waiting};
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::accept::Accepted;
use crate::error::Error;
use crate::metrics::Way;
use crate::scheduler::{Meanwhile, Scheduler};
use crate::shared::Shared;
use crate::spans::Accepting;

/// What is taken along at a time: whoever has gathered this many events, or bytes of bodies, does not
/// wait for more.
const MAX_EVENTS: usize = 256;
const MAX_BYTES: usize = 1 << 20;

/// Where ids are given out and events gathered. One lock for both, so that events are stored in the order
/// of their ids: that is the order in which an ordered endpoint gets them.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) ids: Sequence,
    gathered: Vec<Request>,
    events: usize,
    bytes: usize,
}

/// The events of one producer, which are stored in one commit, and who waits to hear of them.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) events: Vec<NewEvent>,
    pub(crate) span: Option<Accepting>,
    pub(crate) reply: oneshot::Sender<Result<Vec<Accepted>, Error>>,
}

impl Intake {
    pub(crate) fn new(ids: Sequence) -> Self {
        Self { ids, gathered: Vec::new(), events: 0, bytes: 0 }
    }

    /// Leaves events to be taken along. Once this is done they are stored, and what was stored is
    /// scheduled, even if nobody waits for the answer any more.
    pub(crate) fn leave(&mut self, shared: &Arc<Shared>, request: Request) {
        let first = self.gathered.is_empty();
        self.events += request.events.len();
        self.bytes += request.events.iter().map(|new| new.event.body.len()).sum::<usize>();
        self.gathered.push(request);
        if self.events >= MAX_EVENTS || self.bytes >= MAX_BYTES {
            self.take_along(shared);
        } else if first {
            let shared = Arc::clone(shared);
            shared.runtime.clone().spawn(async move {
                // Those who are about to ask go first.
                yield_now().await;
                shared.intake.lock().take_along(&shared);
            });
        }
    }

    /// Sends what has gathered to the store, if anything has. Events for lines go by themselves: a store
    /// may have more than one writer, but lines only ever one.
    fn take_along(&mut self, shared: &Arc<Shared>) {
        (self.events, self.bytes) = (0, 0);
        let (lined, free): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.gathered).into_iter().partition(Request::is_for_a_line);
        for requests in [lined, free] {
            if !requests.is_empty() {
                announce(shared, &requests);
                let events = requests.iter().flat_map(|request| &request.events);
                let appending = shared.store.append(events.cloned().collect());
                shared.runtime.spawn(store(Arc::clone(shared), requests, appending));
            }
        }
    }
}

impl Request {
    fn is_for_a_line(&self) -> bool {
        self.events.iter().flat_map(|new| &new.deliveries).any(|new| new.line.is_some())
    }

    fn answer(self, shared: &Shared, outcome: Result<Vec<Accepted>, Error>) {
        if let Some(span) = self.span {
            span.end(shared, &outcome);
        }
        // Whoever asked may have gone; what was stored stays.
        let _ = self.reply.send(outcome);
    }
}

/// Keeps pages off the deliveries until they are handed over.
fn announce(shared: &Shared, requests: &[Request]) {
    let events = requests.iter().flat_map(|request| &request.events);
    let mut carried = events.filter(|new| !new.deliveries.is_empty()).peekable();
    if carried.peek().is_some() {
        let mut scheduler = shared.scheduler.lock();
        for new in carried {
            scheduler.expect(new.event.id);
        }
    }
}

/// Waits for the store, answers everybody, and only then schedules what was stored: a producer waits for
/// its answer, and nobody for the delivery.
async fn store(shared: Arc<Shared>, requests: Vec<Request>, appending: Appending) {
    let stored = match appending.await {
        // One of them cannot be stored, and the others have nothing to do with it.
        Err(StoreError::Refused(_) | StoreError::Damaged(_) | StoreError::Exists(_))
            if requests.len() > 1 =>
        {
            let mut stored = Vec::new();
            for request in requests {
                let outcome = shared.store.append(request.events.clone()).await;
                stored.extend(conclude(&shared, vec![request], outcome));
            }
            stored
        }
        outcome => conclude(&shared, requests, outcome),
    };
    if !stored.is_empty() {
        yield_now().await;
        hand_over(&shared, &stored);
    }
}

/// Tells everybody what became of their events. Returns those that are to be scheduled.
fn conclude(
    shared: &Arc<Shared>,
    requests: Vec<Request>,
    outcome: Result<Vec<Appended>, StoreError>,
) -> Vec<(NewEvent, Appended)> {
    let mut stored = Vec::new();
    match outcome {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            for mut request in requests {
                let events = std::mem::take(&mut request.events);
                let own: Vec<Appended> = answers.by_ref().take(events.len()).collect();
                measure(shared, &events, &own);
                let accepted = events.iter().zip(&own).map(|(new, own)| receipt(new, own));
                request.answer(shared, Ok(accepted.collect()));
                let carried = events.into_iter().zip(own);
                stored.extend(carried.filter(|(new, _)| !new.deliveries.is_empty()));
            }
        }
        Err(error) => {
            for request in requests {
                take_back(shared, &request.events, &error);
                request.answer(shared, Err(error.clone().into()));
            }
        }
    }
    stored
}

fn receipt(new: &NewEvent, answer: &Appended) -> Accepted {
    match answer {
        Appended::New { .. } => {
            let deliveries = u32::try_from(new.deliveries.len()).unwrap_or(u32::MAX);
            Accepted::New { id: new.event.id, received_at: new.event.received_at, deliveries }
        }
        Appended::Duplicate { id, kind, received_at, deliveries } => Accepted::Duplicate {
            id: *id,
            kind: kind.clone(),
            received_at: *received_at,
            deliveries: *deliveries,
        },
        Appended::Conflict { id } => Accepted::Conflict { id: *id },
    }
}

/// Counts what was stored.
fn measure(shared: &Shared, events: &[NewEvent], answers: &[Appended]) {
    let Some(tenant) = events.first().map(|new| new.event.tenant) else { return };
    let metrics = &shared.metrics;
    let stored = events.iter().zip(answers).filter(|(new, answer)| match answer {
        Appended::New { .. } => {
            let event = &new.event;
            metrics.note_received(Way::of(event.source, &event.kind), new.deliveries.len());
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
    let made = stored.flat_map(|(new, _)| {
        let at = new.event.received_at;
        new.deliveries.iter().map(move |new| (at, new.endpoint))
    });
    shared.measures.made(tenant, made);
}

/// Nothing was stored, as far as is known. It may have been all the same, where the word that it was
/// got lost: then nobody was told of it, but it is there and has to be carried, so it is looked for.
fn take_back(shared: &Arc<Shared>, events: &[NewEvent], error: &StoreError) {
    let in_doubt = error.leaves_doubt();
    let now = shared.clock.now();
    let mut scheduler = shared.scheduler.lock();
    for new in events {
        let seen = scheduler.arrived(new.event.id) != Meanwhile::Nothing;
        if seen || in_doubt {
            for delivery in &new.deliveries {
                scheduler.note_stored(delivery.endpoint, None, now);
            }
        }
    }
    drop(scheduler);
    shared.pump();
}

fn hand_over(shared: &Arc<Shared>, stored: &[(NewEvent, Appended)]) {
    let now = shared.clock.now();
    let mut orphans = Vec::new();
    {
        let mut scheduler = shared.scheduler.lock();
        for (new, answer) in stored {
            offer(&mut scheduler, new, answer, now, &mut orphans);
        }
    }
    shared.pump();
    shared.cancel_orphans(orphans);
}

/// Schedules what was stored. Adds to `orphans` the endpoints that nobody knows any more.
fn offer(
    scheduler: &mut Scheduler,
    new: &NewEvent,
    answer: &Appended,
    now: Timestamp,
    orphans: &mut Vec<EndpointId>,
) {
    let meanwhile = scheduler.arrived(new.event.id);
    let parked = match answer {
        Appended::New { parked } => parked,
        Appended::Duplicate { .. } | Appended::Conflict { .. } => return,
    };
    let later = new.event.deliver_at.filter(|at| *at > now);
    for (index, delivery) in new.deliveries.iter().enumerate() {
        let endpoint = delivery.endpoint;
        let known = match (meanwhile, parked.contains(&index), later) {
            // It will be handed on by the one before it.
            (Meanwhile::Nothing, true, _) => continue,
            // That may have happened already. The store knows how it stands.
            (Meanwhile::PassedOver, true, _) | (Meanwhile::Reserved, _, _) => {
                scheduler.note_stored(endpoint, None, now)
            }
            (Meanwhile::Nothing | Meanwhile::PassedOver, false, Some(at)) => {
                scheduler.note_stored(endpoint, Some(at), now)
            }
            (Meanwhile::Nothing | Meanwhile::PassedOver, false, None) => {
                scheduler.offer(waiting(new, index), now)
            }
        };
        if !known {
            orphans.push(endpoint);
        }
    }
}

fn waiting(new: &NewEvent, index: usize) -> Waiting {
    let delivery = &new.deliveries[index];
    let born = new.event.born();
    Waiting {
        id: new.delivery_id(index),
        endpoint: delivery.endpoint,
        event: Arc::clone(&new.event),
        delivery: Delivery { state: State::Pending, attempts: 0, deferrals: 0, due: born, born },
        tries: 0,
        fence: FIRST_FENCE,
        in_line: delivery.line.is_some(),
    }
}
