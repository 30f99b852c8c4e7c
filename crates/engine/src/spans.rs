//! What the engine tells of its work for traces: one span when something has ended.
//!
//! Who takes the spans is not the engine's affair. They go into a queue with a bound; where it is full
//! they are lost and counted, and nothing waits for it. Without a queue, which is how the engine
//! starts unless it is told otherwise, all of this is one question with the answer no.
//!
//! A span that is recorded becomes the parent of what follows: the acceptance of an event that of its
//! attempts, which is why it is stored with the event; an attempt that of what the receiver does. What
//! is not recorded passes on what it was given.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider_core::delivery::{Next, State};
use postrider_core::{
    Class, DeliveryId, EndpointId, EventId, SourceId, SpanId, TenantId, Timestamp, Trace, TraceId,
};
use postrider_store::record::{Attempt, Event, Waiting};
use tokio::sync::mpsc;

use crate::accept::{Accepted, Submission};
use crate::error::Error;
use crate::ports::Entropy;
use crate::route::{Place, Route};
use crate::shared::Shared;

/// Spans that wait to be taken.
const QUEUE: usize = 8_192;
/// How much of an error goes into a span.
const ERROR_CHARS: usize = 300;

/// Where spans go. Clones are the same place.
#[derive(Debug, Clone)]
pub struct Spans {
    queue: mpsc::Sender<Span>,
    lost: Arc<AtomicU64>,
    ratio: f64,
}

/// Something that the engine did, from its beginning to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its own place in its trace.
    pub trace: Trace,
    /// What it was done for, unless the trace begins with it.
    pub parent: Option<SpanId>,
    pub began_at: Timestamp,
    pub took: Duration,
    pub work: Work,
    /// Why it came to nothing.
    pub error: Option<String>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    Accept(Acceptance),
    Deliver(Try),
}

/// Events were taken in that came together, of one trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acceptance {
    pub tenant: TenantId,
    /// How many.
    pub events: usize,
    /// The first of them, as far as it got.
    pub event: Option<EventId>,
    pub kind: String,
    pub source: Option<SourceId>,
    /// Deliveries that they have, together.
    pub deliveries: u32,
    /// All of them were here before.
    pub duplicate: bool,
}

/// One attempt of a delivery was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Try {
    pub tenant: TenantId,
    pub event: EventId,
    pub kind: String,
    pub delivery: DeliveryId,
    pub endpoint: EndpointId,
    pub endpoint_name: Option<String>,
    /// `http`, `hub`, `pull`, `command` or `handler`.
    pub carrier: &'static str,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    pub status: Option<u16>,
    /// None for a success.
    pub class: Option<Class>,
    /// What became of the delivery.
    pub state: State,
    /// How long it waits for the next attempt.
    pub delay: Option<Duration>,
}

impl Spans {
    /// A place, and where what comes there is taken from. Of the traces that begin here, the part
    /// `ratio` is recorded; of others, those that whoever began them wants recorded.
    pub fn new(ratio: f64) -> (Self, mpsc::Receiver<Span>) {
        let (queue, taken) = mpsc::channel(QUEUE);
        (Self { queue, lost: Arc::default(), ratio }, taken)
    }

    /// How many found no room in the queue.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn put(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The trace that events belong to which came without one.
    fn begin(&self, entropy: &dyn Entropy) -> Option<Trace> {
        if self.ratio <= 0.0 {
            return None;
        }
        let [id @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = entropy.secret_bytes();
        let id = TraceId::new(id).filter(|id| id.is_within(self.ratio))?;
        Some(Trace::begin(id, span_id(entropy)))
    }
}

fn span_id(entropy: &dyn Entropy) -> SpanId {
    // Once in 2^64 times it would be none.
    std::iter::from_fn(|| Some(entropy.number())).find_map(SpanId::new).unwrap_or_else(|| {
        unreachable!("the numbers do not end");
    })
}

/// Events that are being accepted, as traces see it.
#[derive(Debug)]
pub(crate) struct Accepting {
    began_at: Timestamp,
    stopwatch: Duration,
    tenant: TenantId,
    groups: Vec<Group>,
}

/// Some that came one after the other with the same trace.
#[derive(Debug)]
struct Group {
    /// What they came with.
    given: Option<Trace>,
    /// What is stored with them.
    trace: Option<Trace>,
    /// Whether a span is made of it.
    recorded: bool,
    events: usize,
    kind: String,
    source: Option<SourceId>,
}

impl Accepting {
    /// Gives each event the trace that it will be stored with. None, where nobody asks for spans.
    pub(crate) fn begin(
        shared: &Shared,
        tenant: TenantId,
        submissions: &mut [Submission],
    ) -> Option<Self> {
        let spans = shared.options.spans.as_ref()?;
        let mut groups: Vec<Group> = Vec::new();
        for submission in submissions {
            match groups.last_mut().filter(|group| group.given == submission.trace) {
                Some(group) => group.events += 1,
                None => groups.push(Group::of(spans, &*shared.entropy, submission)),
            }
            submission.trace = groups.last().and_then(|group| group.trace.clone());
        }
        groups.iter().any(|group| group.recorded).then(|| Self {
            began_at: shared.clock.now(),
            stopwatch: shared.clock.monotonic(),
            tenant,
            groups,
        })
    }

    pub(crate) fn end(self, shared: &Shared, accepted: &Result<Vec<Accepted>, Error>) {
        let Some(spans) = &shared.options.spans else { return };
        let took = shared.clock.monotonic().saturating_sub(self.stopwatch);
        let mut rest = accepted.as_deref();
        for group in self.groups {
            let some = rest.map(|rest| rest.split_at(group.events.min(rest.len())));
            let own = some.map(|(own, _)| own);
            rest = some.map(|(_, rest)| rest);
            if let Some(trace) = group.trace.clone().filter(|_| group.recorded) {
                spans.put(Span {
                    trace,
                    parent: group.given.as_ref().map(Trace::span),
                    began_at: self.began_at,
                    took,
                    error: match own {
                        Ok(own) => conflict(own),
                        Err(error) => Some(cut(&error.to_string())),
                    },
                    work: Work::Accept(group.accepted(self.tenant, own.unwrap_or_default())),
                });
            }
        }
    }
}

impl Group {
    fn of(spans: &Spans, entropy: &dyn Entropy, first: &Submission) -> Self {
        let given = first.trace.clone();
        let (trace, recorded) = match &given {
            Some(trace) if trace.is_sampled() => (Some(trace.child(span_id(entropy))), true),
            Some(trace) => (Some(trace.clone()), false),
            None => {
                let trace = spans.begin(entropy);
                let recorded = trace.is_some();
                (trace, recorded)
            }
        };
        let (kind, source) = (first.kind.clone(), first.source);
        Self { given, trace, recorded, events: 1, kind, source }
    }

    fn accepted(self, tenant: TenantId, accepted: &[Accepted]) -> Acceptance {
        let told = accepted.iter().map(|accepted| match accepted {
            Accepted::New { id, deliveries, .. } => (*id, *deliveries, false),
            Accepted::Duplicate { id, deliveries, .. } => (*id, *deliveries, true),
            Accepted::Conflict { id } => (*id, 0, false),
        });
        Acceptance {
            tenant,
            events: self.events,
            event: told.clone().next().map(|(id, ..)| id),
            kind: self.kind,
            source: self.source,
            deliveries: told.clone().map(|(_, deliveries, _)| deliveries).sum(),
            duplicate: !accepted.is_empty() && told.clone().all(|(.., duplicate)| duplicate),
        }
    }
}

fn conflict(accepted: &[Accepted]) -> Option<String> {
    accepted.iter().find_map(|accepted| match accepted {
        Accepted::Conflict { id } => Some(format!("the idempotency key belongs to {id}")),
        Accepted::New { .. } | Accepted::Duplicate { .. } => None,
    })
}

/// The span of an attempt that is about to be made, if it is to be recorded.
pub(crate) fn attempt(shared: &Shared, event: &Event) -> Option<SpanId> {
    is_recorded(shared, event).then(|| span_id(&*shared.entropy))
}

/// That of a lease, which whoever ends it finds again, on whatever node and after whatever restart.
pub(crate) fn lease(
    shared: &Shared,
    event: &Event,
    delivery: DeliveryId,
    fence: u32,
) -> Option<SpanId> {
    let trace = event.trace.as_ref().filter(|_| is_recorded(shared, event))?;
    Some(SpanId::of(trace.id(), [delivery.as_i64().cast_unsigned(), fence.into()]))
}

fn is_recorded(shared: &Shared, event: &Event) -> bool {
    shared.options.spans.is_some() && event.trace.as_ref().is_some_and(Trace::is_sampled)
}

/// What a receiver is told of the trace.
pub(crate) fn onward(event: &Event, span: Option<SpanId>) -> Option<Trace> {
    let trace = event.trace.as_ref()?;
    Some(span.map_or_else(|| trace.clone(), |span| trace.child(span)))
}

/// Tells of an attempt that has ended.
pub(crate) fn tell(
    shared: &Shared,
    span: Option<SpanId>,
    route: &Route,
    waiting: &Waiting,
    next: &Next,
    attempt: &Attempt,
) {
    let (Some(spans), Some(span)) = (&shared.options.spans, span) else { return };
    let event = &waiting.event;
    let Some(stored) = &event.trace else { return };
    let ended_at = attempt.started_at.plus(attempt.duration);
    spans.put(Span {
        trace: stored.child(span),
        parent: Some(stored.span()),
        began_at: attempt.started_at,
        took: attempt.duration,
        error: attempt.class.map(|_| cut(attempt.error.as_deref().unwrap_or_default())),
        work: Work::Deliver(Try {
            tenant: event.tenant,
            event: event.id,
            kind: event.kind.clone(),
            delivery: waiting.id,
            endpoint: waiting.endpoint,
            endpoint_name: route.endpoint.spec.name.clone(),
            carrier: match route.place {
                Place::Url(_) => "http",
                Place::Command(_) => "command",
                Place::Hub(_) => "hub",
                Place::Handler(_) => "handler",
                Place::Pull => "pull",
            },
            attempt: attempt.number,
            status: attempt.status,
            class: attempt.class,
            state: next.state,
            delay: next.due.map(|due| due.since(ended_at)),
        }),
    });
}

fn cut(error: &str) -> String {
    error.chars().take(ERROR_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::SystemEntropy;

    fn span() -> Span {
        let (spans, _) = Spans::new(1.0);
        Span {
            trace: spans.begin(&SystemEntropy).expect("every trace is recorded"),
            parent: None,
            began_at: Timestamp::MIN,
            took: Duration::ZERO,
            error: None,
            work: Work::Accept(Acceptance {
                tenant: TenantId::DEFAULT,
                events: 1,
                event: None,
                kind: "order.created".into(),
                source: None,
                deliveries: 0,
                duplicate: false,
            }),
        }
    }

    #[test]
    fn what_finds_no_room_is_lost_and_counted() {
        let (spans, mut taken) = Spans::new(1.0);
        let one = span();
        for _ in 0..QUEUE + 3 {
            spans.put(one.clone());
        }
        assert_eq!(spans.lost(), 3);
        assert_eq!(taken.try_recv(), Ok(one.clone()));
        spans.put(one.clone());
        assert_eq!(spans.lost(), 3, "there was room again");
        drop(taken);
        spans.put(one);
        assert_eq!(spans.lost(), 4, "nobody takes them any more");
    }

    #[test]
    fn traces_begin_as_often_as_was_asked_for() {
        let begun = |ratio| {
            let (spans, _taken) = Spans::new(ratio);
            (0..1_000).filter(|_| spans.begin(&SystemEntropy).is_some()).count()
        };
        assert_eq!((begun(0.0), begun(1.0)), (0, 1_000));
        let half = begun(0.5);
        assert!((350..650).contains(&half), "{half} of 1000");
    }
}
