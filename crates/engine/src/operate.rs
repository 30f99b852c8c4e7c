//! What an operator does to deliveries and events, and what the API tells about them.

use std::sync::Arc;

use postrider_core::delivery::{State, Transition, Why};
use postrider_core::endpoint::EndpointState;
use postrider_core::{
    Class, Delivery, DeliveryId, EndpointId, EventId, Happening, Jitter, Policy, TenantId,
    Timestamp, step,
};
use postrider_store::fleet::NodeId;
use postrider_store::ledger::DeliveryFilter;
use postrider_store::record::{
    DeliveryRecord, Event, MAX_DELIVERIES_PER_EVENT, NewDelivery, Settle,
};

use crate::accept::{self, Listening};
use crate::acting::Acting;
use crate::engine::Engine;
use crate::error::Error;
use crate::filter::Facts;
use crate::fleet::words::{Answer, Ask};
use crate::scheduler::Blocked;
use crate::settler::{self, Decision};
use crate::shared::Shared;

/// How often a change is tried again that lost against another one.
const MAX_COLLISIONS: usize = 8;
/// The attempts ahead that are shown.
const MAX_AHEAD: usize = 50;
/// Places in a line are counted up to here.
pub const MAX_PLACE: u64 = 10_000;
/// Dead letters removed in one commit.
const PURGE_BATCH: usize = 500;

/// Why a delivery has not gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingOn {
    pub reason: WaitReason,
    pub until: Option<Timestamp>,
    /// The delivery it has to wait for.
    pub behind: Option<DeliveryId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    Backoff,
    DeliverAt,
    Behind,
    Paused,
    Disabled,
    RateLimit,
    Breaker,
    RetryAfter,
    /// The hub that would take it is not connected.
    HubOffline,
    /// A worker has it.
    Leased,
    Capacity,
}

impl WaitReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Backoff => "backoff",
            Self::DeliverAt => "deliver_at",
            Self::Behind => "behind",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
            Self::RateLimit => "rate_limit",
            Self::Breaker => "breaker",
            Self::RetryAfter => "retry_after",
            Self::HubOffline => "hub_offline",
            Self::Leased => "leased",
            Self::Capacity => "capacity",
        }
    }
}

/// An attempt that lies ahead if all before it fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedAttempt {
    pub number: u32,
    pub at: Timestamp,
}

impl Engine {
    /// Gives a delivery another life: attempts from zero, due at once.
    pub async fn retry(&self, acting: Acting, id: DeliveryId) -> Result<DeliveryRecord, Error> {
        let tenant = acting.tenant;
        for _ in 0..MAX_COLLISIONS {
            let record = self.record(tenant, id).await?;
            let shared = &self.shared;
            let Some(_reserved) = Reserved::take(shared, &record).await else {
                return Err(Error::Conflict("the delivery is in flight".into()));
            };
            // What was read before the reservation may have changed until it.
            let record = self.record(tenant, id).await?;
            if self.settle_record(acting, &record, record.state, Happening::Reset).await? {
                return self.record(tenant, id).await;
            }
        }
        Err(Error::Conflict("the delivery keeps changing; try again".into()))
    }

    /// Ends a delivery. If it is in flight the attempt still arrives, but nothing follows it.
    pub async fn cancel(&self, acting: Acting, id: DeliveryId) -> Result<DeliveryRecord, Error> {
        let tenant = acting.tenant;
        for _ in 0..MAX_COLLISIONS {
            let record = self.record(tenant, id).await?;
            let reserved = Reserved::take(&self.shared, &record).await;
            let record = self.record(tenant, id).await?;
            let in_flight = reserved.is_none() && !record.state.is_terminal();
            let state = if in_flight { State::InFlight } else { record.state };
            if self.settle_record(acting, &record, state, Happening::Cancel).await? {
                return self.record(tenant, id).await;
            }
        }
        Err(Error::Conflict("the delivery keeps changing; try again".into()))
    }

    /// Makes new deliveries of an old event: to the given endpoints, or to all that listen to it now.
    pub async fn replay_event(
        &self,
        acting: Acting,
        id: EventId,
        endpoints: Option<Vec<EndpointId>>,
    ) -> Result<Vec<DeliveryId>, Error> {
        let (shared, tenant) = (&self.shared, acting.tenant);
        let event = shared.store.event(tenant, id).await?.ok_or(Error::NotFound)?;
        let now = shared.clock.now();
        let deliveries = self.addressees(&event, endpoints)?;
        if deliveries.is_empty() {
            return Ok(Vec::new());
        }
        let count = u32::try_from(deliveries.len()).unwrap_or(u32::MAX);
        let first = DeliveryId::from_i64(shared.take_ids(count));
        let ids = (0..i64::from(count)).map(|offset| DeliveryId::from_i64(first.as_i64() + offset));
        let endpoints: Vec<EndpointId> = deliveries.iter().map(|new| new.endpoint).collect();
        let detail = serde_json::json!({ "deliveries": count });
        let audit = acting.audit(now, "event.replay", id, Some(&detail));
        let appended = shared.store.append_deliveries(id, first, deliveries, now, Some(audit));
        appended.await.inspect_err(|error| shared.look_again(error, endpoints.iter().copied()))?;
        shared.metrics.deliveries_created.add(u64::from(count));
        shared.measures.made(tenant, endpoints.iter().map(|endpoint| (now, *endpoint)));
        let mut scheduler = shared.scheduler.lock();
        let orphans = endpoints
            .into_iter()
            .filter(|endpoint| !scheduler.note_stored(*endpoint, None, now))
            .collect();
        drop(scheduler);
        shared.cancel_orphans(orphans);
        shared.pump();
        Ok(ids.collect())
    }

    /// Without a choice, all that listen to it and whose filter lets it pass.
    fn addressees(
        &self,
        event: &Event,
        endpoints: Option<Vec<EndpointId>>,
    ) -> Result<Vec<NewDelivery>, Error> {
        let (tenant, ordering_key) = (event.tenant, event.ordering_key.as_deref());
        let routes = self.shared.routes.load();
        let chosen = match endpoints {
            None => {
                let Listening { routes, errors } = accept::listening(&routes, tenant, facts(event));
                if let Some((endpoint, error)) = errors.into_iter().next() {
                    let message = format!("the filter of {endpoint} cannot be evaluated: {error}");
                    return Err(Error::invalid("endpoints", message));
                }
                routes
            }
            Some(ids) if ids.len() > MAX_DELIVERIES_PER_EVENT => {
                return Err(Error::invalid("endpoints", "are too many"));
            }
            Some(mut ids) => {
                ids.sort_unstable();
                ids.dedup();
                ids.iter()
                    .map(|id| {
                        let route = routes.get(*id).filter(|route| route.endpoint.tenant == tenant);
                        route
                            .ok_or_else(|| Error::invalid("endpoints", format!("there is no {id}")))
                    })
                    .collect::<Result<_, _>>()?
            }
        };
        Ok(chosen
            .into_iter()
            .map(|route| NewDelivery {
                endpoint: route.id(),
                line: route.endpoint.spec.ordering.line(ordering_key).map(str::to_owned),
            })
            .collect())
    }

    /// Removes dead letters for good.
    pub async fn purge_dead_letters(
        &self,
        acting: Acting,
        filter: DeliveryFilter,
    ) -> Result<u64, Error> {
        let (store, tenant) = (&self.shared.store, acting.tenant);
        let detail = serde_json::to_value(&filter).ok();
        let now = self.shared.clock.now();
        let audit = acting.audit(now, "dead_letters.purge", "dead letters", detail.as_ref());
        let mut removed = 0;
        loop {
            let audit = Some(audit.clone());
            let batch =
                store.purge_dead_letters(tenant, filter.clone(), PURGE_BATCH, audit).await?;
            removed += batch;
            if batch == 0 {
                return Ok(removed);
            }
        }
    }

    /// Says why a waiting delivery has not gone; none if nothing is in its way or it has ended.
    pub async fn waiting_on(&self, record: &DeliveryRecord) -> Result<Option<WaitingOn>, Error> {
        let shared = &self.shared;
        let flies = |in_flight: bool| record.state.is_terminal() || in_flight;
        let here = shared.scheduler.lock().is_in_flight(record.endpoint, record.id);
        let elsewhere = shared.ask_carrier(record.endpoint, Some(record.id)).await;
        if flies(here || elsewhere.is_some_and(|(in_flight, _, _)| in_flight)) {
            return Ok(None);
        }
        let on = |reason, until| Some(WaitingOn { reason, until, behind: None });
        if record.state == State::InFlight {
            return Ok(on(WaitReason::Leased, record.due));
        }
        let state = shared.routes.load().get(record.endpoint).map(|route| route.endpoint.state);
        match state {
            Some(EndpointState::Paused) => return Ok(on(WaitReason::Paused, None)),
            Some(EndpointState::Disabled) => return Ok(on(WaitReason::Disabled, None)),
            Some(EndpointState::Active | EndpointState::Deleted) | None => {}
        }
        if record.parked {
            let ahead = shared.store.ahead_of(record.id).await?;
            let behind = ahead.as_ref().map(|ahead| ahead.id);
            let until = ahead.and_then(|ahead| ahead.due);
            return Ok(Some(WaitingOn { reason: WaitReason::Behind, until, behind }));
        }
        let now = shared.clock.now();
        if let Some(due) = record.due.filter(|due| *due > now) {
            let reason = match (record.state, record.class) {
                (State::Pending, _) => WaitReason::DeliverAt,
                (_, Some(Class::RateLimited)) => WaitReason::RetryAfter,
                (_, Some(Class::Final | Class::Retryable) | None) => WaitReason::Backoff,
            };
            return Ok(on(reason, Some(due)));
        }
        let blocked = match elsewhere {
            Some((_, _, blocked)) => blocked,
            None => shared.scheduler.lock().blocked(record.endpoint, now),
        };
        Ok(match blocked {
            Some(Blocked::Hold(until)) => on(WaitReason::RetryAfter, Some(until)),
            Some(Blocked::Breaker(until)) => on(WaitReason::Breaker, until),
            Some(Blocked::RateLimit(until)) => on(WaitReason::RateLimit, Some(until)),
            Some(Blocked::Offline) => on(WaitReason::HubOffline, None),
            Some(Blocked::Busy | Blocked::Crowded | Blocked::Stopped) | None => {
                on(WaitReason::Capacity, None)
            }
        })
    }

    /// Which place a delivery has in its line, if it has to wait for others of it: the first is the
    /// head, and the last one counted is [`MAX_PLACE`], which stands for any further back.
    pub async fn place_in_line(&self, record: &DeliveryRecord) -> Result<Option<u64>, Error> {
        if !record.parked || record.state.is_terminal() {
            return Ok(None);
        }
        // A bound on how many are ahead is one less than that of the place.
        let most = usize::try_from(MAX_PLACE - 1).unwrap_or(usize::MAX);
        Ok(Some(self.shared.store.ahead_count(record.id, most).await? + 1))
    }

    /// The attempts ahead, at their nominal times, if every one fails at once.
    pub fn plan(&self, record: &DeliveryRecord) -> Vec<PlannedAttempt> {
        let routes = self.shared.routes.load();
        let Some(route) = routes.get(record.endpoint) else { return Vec::new() };
        let now = self.shared.clock.now();
        plan_ahead(record, &route.policy, now)
    }

    async fn record(&self, tenant: TenantId, id: DeliveryId) -> Result<DeliveryRecord, Error> {
        self.shared.store.delivery(tenant, id).await?.ok_or(Error::NotFound)
    }

    /// Takes one step with a delivery. False if it changed under our hands.
    async fn settle_record(
        &self,
        acting: Acting,
        record: &DeliveryRecord,
        state: State,
        happening: Happening,
    ) -> Result<bool, Error> {
        let shared = &self.shared;
        let Some(policy) =
            shared.routes.load().get(record.endpoint).map(|route| route.policy.clone())
        else {
            return Err(Error::Conflict("its endpoint has been deleted".into()));
        };
        let now = shared.clock.now();
        let delivery = Delivery { state, ..record.for_step() };
        match step(&delivery, happening, &policy, now, Jitter::MIDDLE) {
            Transition::Moves(next) => {
                let event = shared.store.event(record.tenant, record.event).await?;
                let metadata = event.as_ref().and_then(|event| event.metadata.as_deref());
                let decision = Decision {
                    tenant: record.tenant,
                    event: record.event,
                    correlation_id: settler::correlation(metadata),
                    settle: Settle {
                        id: record.id,
                        endpoint: record.endpoint,
                        fence: record.fence,
                        in_line: record.line.is_some(),
                        from: record.state,
                        next,
                        at: now,
                        attempt: None,
                        lease: None,
                        result: None,
                        tenure: None,
                    },
                };
                let action = match happening {
                    Happening::Cancel => "delivery.cancel",
                    Happening::Reset
                    | Happening::Start
                    | Happening::Finish(_)
                    | Happening::LeaseExpired
                    | Happening::Release
                    | Happening::Sweep => "delivery.retry",
                };
                let audit = acting.audit(now, action, record.id, None);
                let applied = settler::apply(shared, vec![decision], Some(audit)).await?;
                Ok(applied.first().copied().unwrap_or(false))
            }
            Transition::Stays(why) => Err(Error::Conflict(
                match why {
                    Why::InFlight => "the delivery is in flight",
                    Why::AlreadyDelivered => "the delivery has been delivered",
                    Why::AlreadyEnded => "the delivery has ended already",
                    Why::NotDue | Why::NotInFlight | Why::WithinAge => {
                        "the delivery cannot do that now"
                    }
                }
                .into(),
            )),
        }
    }
}

/// What filters see of a stored event.
pub fn facts(event: &Event) -> Facts<'_> {
    Facts {
        kind: &event.kind,
        headers: &event.headers,
        metadata: event.metadata.as_deref(),
        content_type: &event.content_type,
        body: &event.body,
        source: event.source,
    }
}

fn plan_ahead(record: &DeliveryRecord, policy: &Policy, now: Timestamp) -> Vec<PlannedAttempt> {
    let mut planned = Vec::new();
    if record.state.is_terminal() {
        return planned;
    }
    let mut number = record.tries + 1;
    let mut attempts = record.attempts;
    let mut at = record.due.unwrap_or(record.born).max(now);
    let expires = policy.expires(record.born);
    while planned.len() < MAX_AHEAD && expires.is_none_or(|expires| at <= expires) {
        planned.push(PlannedAttempt { number, at });
        attempts += 1;
        number += 1;
        if policy.max_attempts().is_some_and(|max| attempts >= max) {
            break;
        }
        at = at.plus(policy.delay(attempts, Jitter::MIDDLE));
    }
    planned
}

/// A delivery kept out of scheduling while it is being changed, by the node that carries it.
pub(crate) struct Reserved<'a> {
    shared: &'a Arc<Shared>,
    endpoint: EndpointId,
    delivery: DeliveryId,
    /// Another node that has been asked to.
    by: Option<NodeId>,
}

impl<'a> Reserved<'a> {
    /// None if it is in flight, or being changed by somebody else.
    async fn take(shared: &'a Arc<Shared>, record: &DeliveryRecord) -> Option<Self> {
        Self::of(shared, record.endpoint, record.id, record.event).await
    }

    pub(crate) async fn of(
        shared: &'a Arc<Shared>,
        endpoint: EndpointId,
        delivery: DeliveryId,
        event: EventId,
    ) -> Option<Self> {
        let ask = Ask::Reserve { endpoint, delivery, event };
        let by = match shared.ask_whoever_carries(endpoint, ask).await {
            Some((node, Answer::Reserved(true))) => Some(node),
            Some((_, Answer::Reserved(false))) => return None,
            // Whoever does not answer is probably gone. The fence of the delivery sees to it
            // that only one change is made, whatever that node does.
            Some((
                _,
                Answer::NotMine
                | Answer::Looks { .. }
                | Answer::Allowed(_)
                | Answer::Hub { .. }
                | Answer::Notices { .. },
            ))
            | None => None,
        };
        if by.is_none() && !shared.scheduler.lock().reserve(endpoint, delivery, event) {
            return None;
        }
        Some(Self { shared, endpoint, delivery, by })
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let (endpoint, delivery) = (self.endpoint, self.delivery);
        if let Some(node) = self.by {
            self.shared.ask_nothing(node, Ask::Unreserve { endpoint, delivery });
            return;
        }
        let now = self.shared.clock.now();
        self.shared.scheduler.lock().unreserve(endpoint, delivery, now);
        self.shared.pump();
    }
}
