//! Endpoints: making, changing, stopping and deleting them, in the store and in memory alike.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use postrider_core::delivery::Transition;
use postrider_core::endpoint::{EndpointState, Spec, StoredSecret, Tls};
use postrider_core::outcome::Sighting;
use postrider_core::signing::{Scheme, Secret};
use postrider_core::{
    DeliveryId, Endpoint, EndpointId, EventId, Happening, Jitter, Outcome, TenantId, Timestamp,
    step,
};
use postrider_store::Error as StoreError;
use postrider_store::audit::Audit;
use postrider_store::record::{Attempt, Event, Settle};

use crate::acting::Acting;
use crate::carrier::{Carried, Parcel};
use crate::destination::Guard;
use crate::engine::Engine;
use crate::error::Error;
use crate::failing::{self, Streak};
use crate::fleet::reload;
use crate::notices::{Audience, Draft, NoticeKind};
use crate::route::{Defaults, Judges, Place, Route};
use crate::scheduler::{Blocked, hub_of};
use crate::settler::{self, Decision};
use crate::shared::Shared;

/// The longest that an old secret goes on signing beside its successor.
const MAX_OVERLAP: Duration = Duration::from_hours(30 * 24);
/// Old secrets kept at most.
const MAX_SECRETS: usize = 4;
/// Unfinished deliveries of a deleted endpoint are cancelled this many at a time.
const CANCEL_BATCH: usize = 500;
/// The body of a test event.
const SAMPLE: &[u8] = br#"{"message":"This is a test of your endpoint, sent by Postrider."}"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointAction {
    /// Accept and keep, do not send.
    Pause,
    Resume,
    /// Undo an automatic disable.
    Enable,
}

/// What is said of a new endpoint that is never shown again.
#[derive(Debug, Default)]
pub struct Private {
    /// One is made if none is given.
    pub secret: Option<String>,
    pub tls: Option<Tls>,
}

impl EndpointAction {
    const fn audited(self) -> &'static str {
        match self {
            Self::Pause => "endpoint.pause",
            Self::Resume => "endpoint.resume",
            Self::Enable => "endpoint.enable",
        }
    }
}

/// An endpoint to be disabled by the gateway itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Disable {
    pub(crate) tenant: TenantId,
    pub(crate) id: EndpointId,
    pub(crate) cause: Cause,
    pub(crate) audience: Audience,
}

/// Why an endpoint is of no use.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cause {
    /// It answered that it is gone for good.
    Gone,
    /// Every attempt has failed, for too long.
    Failing(Streak),
}

impl Cause {
    fn sentence(self) -> String {
        match self {
            Self::Gone => "the endpoint answered that it is gone for good".into(),
            Self::Failing(Streak { since, failures, .. }) => {
                format!("every attempt has failed since {since}, the last {failures} in a row")
            }
        }
    }
}

/// When an endpoint's destination is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Now, and again at every dial.
    Now,
    /// Only when it is dialled.
    AtDial,
}

pub(crate) fn compile(
    shared: &Shared,
    endpoint: Arc<Endpoint>,
    check: Check,
) -> Result<Route, Error> {
    let defaults = Defaults {
        timeout: shared.options.default_timeout,
        max_in_flight: shared.options.default_endpoint_in_flight,
    };
    let everything = vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
    let lenient = Guard::new(everything);
    let judges = match check {
        Check::Now => Judges {
            guard: &shared.guard,
            commands: Some(&shared.commands),
            hubs: Some(&shared.hubs),
        },
        Check::AtDial => Judges { guard: &lenient, commands: None, hubs: None },
    };
    Route::compile(endpoint, &shared.options.presets, judges, defaults, shared.clock.now())
}

impl Engine {
    pub fn endpoint(&self, tenant: TenantId, id: EndpointId) -> Option<Arc<Endpoint>> {
        let routes = self.shared.routes.load();
        let route = routes.get(id).filter(|route| route.endpoint.tenant == tenant)?;
        Some(Arc::clone(&route.endpoint))
    }

    /// All endpoints of a tenant, newest first.
    pub fn endpoints(&self, tenant: TenantId) -> Vec<Arc<Endpoint>> {
        let routes = self.shared.routes.load();
        let mut endpoints: Vec<_> = routes
            .all()
            .filter(|route| route.endpoint.tenant == tenant)
            .map(|route| Arc::clone(&route.endpoint))
            .collect();
        endpoints.sort_by_key(|endpoint| std::cmp::Reverse(endpoint.id));
        endpoints
    }

    /// Makes an endpoint, with a secret of its own if none is given.
    pub async fn create_endpoint(
        &self,
        acting: Acting,
        spec: Spec,
        private: Private,
    ) -> Result<Arc<Endpoint>, Error> {
        let shared = &self.shared;
        let turn = shared.configuring.lock().await;
        let endpoint = draft(shared, acting.tenant, spec, private)?;
        let audit = acting.audit(endpoint.created_at, "endpoint.create", endpoint.id, None);
        let made = install(shared, endpoint, Check::Now, Some(audit)).await;
        drop(turn);
        self.spread_if(made).await
    }

    /// Replaces what a user said of an endpoint. A new ordering holds for events accepted from now
    /// on; those that wait already go as they were accepted.
    pub async fn update_endpoint(
        &self,
        acting: Acting,
        id: EndpointId,
        spec: Spec,
        tls: Option<Tls>,
    ) -> Result<Arc<Endpoint>, Error> {
        let shared = &self.shared;
        let turn = shared.configuring.lock().await;
        let current = self.endpoint(acting.tenant, id).ok_or(Error::NotFound)?;
        let endpoint = redraft(shared, &current, spec, tls)?;
        if endpoint.spec.destination != current.spec.destination {
            // What is there now has not failed yet.
            failing::forgive(shared, id).await?;
        }
        let detail = changed_fields(&current.spec, &endpoint.spec);
        let audit = acting.audit(endpoint.updated_at, "endpoint.update", id, Some(&detail));
        let changed = install(shared, endpoint, Check::Now, Some(audit)).await;
        drop(turn);
        self.spread_if(changed).await
    }

    /// Judges what is said of an endpoint as making it would, and makes none.
    pub fn try_new_endpoint(
        &self,
        tenant: TenantId,
        spec: Spec,
        private: Private,
    ) -> Result<(), Error> {
        let endpoint = draft(&self.shared, tenant, spec, private)?;
        compile(&self.shared, Arc::new(endpoint), Check::Now).map(drop)
    }

    /// Judges a change as making it would, and changes nothing.
    pub fn try_endpoint_change(
        &self,
        tenant: TenantId,
        id: EndpointId,
        spec: Spec,
        tls: Option<Tls>,
    ) -> Result<(), Error> {
        let current = self.endpoint(tenant, id).ok_or(Error::NotFound)?;
        let endpoint = redraft(&self.shared, &current, spec, tls)?;
        compile(&self.shared, Arc::new(endpoint), Check::Now).map(drop)
    }

    pub async fn set_endpoint_state(
        &self,
        acting: Acting,
        id: EndpointId,
        action: EndpointAction,
    ) -> Result<Arc<Endpoint>, Error> {
        let shared = &self.shared;
        let turn = shared.configuring.lock().await;
        let current = self.endpoint(acting.tenant, id).ok_or(Error::NotFound)?;
        let state = match (current.state, action) {
            (EndpointState::Active | EndpointState::Paused, EndpointAction::Pause) => {
                EndpointState::Paused
            }
            (EndpointState::Active | EndpointState::Paused, EndpointAction::Resume)
            | (EndpointState::Active | EndpointState::Disabled, EndpointAction::Enable) => {
                EndpointState::Active
            }
            (EndpointState::Disabled, EndpointAction::Pause | EndpointAction::Resume) => {
                return Err(Error::Conflict("the endpoint is disabled; enable it first".into()));
            }
            (EndpointState::Paused, EndpointAction::Enable) => {
                return Err(Error::Conflict("the endpoint is paused; resume it instead".into()));
            }
            (EndpointState::Deleted, _) => return Err(Error::NotFound),
        };
        if action == EndpointAction::Enable {
            failing::forgive(shared, id).await?;
        }
        let audit = acting.audit(shared.clock.now(), action.audited(), id, None);
        let changed = set_state(shared, &current, state, audit).await;
        drop(turn);
        self.spread_if(changed).await
    }

    /// A new secret signs from now on; the old ones go on beside it for `overlap`.
    pub async fn rotate_secret(
        &self,
        acting: Acting,
        id: EndpointId,
        overlap: Duration,
        secret: Option<String>,
    ) -> Result<Arc<Endpoint>, Error> {
        if overlap > MAX_OVERLAP {
            return Err(Error::invalid("overlap", "must be at most 30d"));
        }
        let shared = &self.shared;
        let turn = shared.configuring.lock().await;
        let current = self.endpoint(acting.tenant, id).ok_or(Error::NotFound)?;
        let now = shared.clock.now();
        let text = given_or_new(shared, &current.spec.signing, secret)?;
        let lapse = now.plus(overlap);
        let mut endpoint = (*current).clone();
        for old in &mut endpoint.secrets {
            old.expires_at = Some(old.expires_at.map_or(lapse, |known| known.min(lapse)));
        }
        endpoint.secrets.retain(|old| old.expires_at.is_none_or(|at| at > now));
        endpoint.secrets.truncate(MAX_SECRETS - 1);
        endpoint.secrets.insert(0, StoredSecret { text, expires_at: None });
        endpoint.updated_at = now;
        let audit = acting.audit(now, "endpoint.rotate_secret", id, None);
        let changed = install(shared, endpoint, Check::AtDial, Some(audit)).await;
        drop(turn);
        self.spread_if(changed).await
    }

    /// Deletes an endpoint: it gets nothing more, what is unfinished is cancelled, history stays.
    pub async fn delete_endpoint(&self, acting: Acting, id: EndpointId) -> Result<(), Error> {
        let shared = &self.shared;
        let turn = shared.configuring.lock().await;
        let current = self.endpoint(acting.tenant, id).ok_or(Error::NotFound)?;
        let deleted = Endpoint {
            state: EndpointState::Deleted,
            updated_at: shared.clock.now(),
            ..(*current).clone()
        };
        let audit = acting.audit(deleted.updated_at, "endpoint.delete", id, None);
        let stored = shared.store.put_endpoint(deleted.clone(), Some(audit)).await;
        stored.inspect_err(|error| reload::read_again(shared, error))?;
        shared.routes.store(Arc::new(shared.routes.load().without(id)));
        shared.failing.lock().forget(id);
        if let Ok(route) = compile(shared, Arc::new(deleted), Check::AtDial) {
            // Still known to the scheduler, as one that is not sent to, until its last attempt ends.
            shared.scheduler.lock().put_route(&Arc::new(route), shared.clock.now());
        }
        if shared.looks_after(id) {
            shared.runtime.spawn(cancel_unfinished(Arc::clone(shared), id));
        }
        drop(turn);
        self.spread_if(Ok(())).await
    }

    /// After a change that was made, waits for the other nodes to go by it.
    async fn spread_if<T>(&self, changed: Result<T, Error>) -> Result<T, Error> {
        if changed.is_ok() {
            self.spread().await;
        }
        changed
    }

    /// Sends a sample event, outside all queues and policies, and says what came back.
    pub async fn test_endpoint(&self, tenant: TenantId, id: EndpointId) -> Result<Attempt, Error> {
        let shared = &self.shared;
        let route = shared.routes.load().get(id).cloned();
        let route = route.filter(|route| route.endpoint.tenant == tenant).ok_or(Error::NotFound)?;
        let started_at = shared.clock.now();
        let first = shared.take_ids(2);
        let event = Event {
            id: EventId::from_i64(first),
            tenant,
            kind: "postrider.test".into(),
            content_type: "application/json".into(),
            body: SAMPLE.into(),
            idempotency_key: None,
            ordering_key: None,
            metadata: None,
            received_at: started_at,
            deliver_at: None,
            source: None,
            verified: None,
            headers: Vec::new(),
            filter_errors: None,
            trace: None,
        };
        let parcel = Parcel {
            route: Arc::clone(&route),
            event: Arc::new(event),
            delivery: DeliveryId::from_i64(first + 1),
            number: 1,
            started_at,
            trace: None,
        };
        let stopwatch = std::time::Instant::now();
        let report = match carry_sample(shared, parcel).await? {
            Carried::Reported(report) => report,
            Carried::Returned => return Err(Error::Conflict(unreachable_now(&route.place).into())),
        };
        let outcome = route.policy.classify(report.sighting, report.retry_after);
        Ok(Attempt {
            number: 1,
            counted: false,
            started_at,
            duration: stopwatch.elapsed(),
            status: match report.sighting {
                Sighting::Status(status) => Some(status),
                Sighting::Exit(_)
                | Sighting::Network
                | Sighting::Timeout
                | Sighting::Done
                | Sighting::Told(_) => None,
            },
            class: match outcome {
                Outcome::Delivered => None,
                Outcome::Failed { class, .. } => Some(class),
            },
            error: report.error,
            response: report.response,
        })
    }
}

/// Carries a parcel that is in no queue. What a hub is given takes the hub's room until it has come
/// back, whether or not somebody still waits for it.
async fn carry_sample(shared: &Arc<Shared>, parcel: Parcel) -> Result<Carried, Error> {
    let Some(hub) = hub_of(&parcel.route) else { return Ok(shared.carrier.carry(parcel).await) };
    let entered = shared.scheduler.lock().enter_hub(hub);
    match entered {
        Ok(()) => {}
        Err(Blocked::Offline) => return Ok(Carried::Returned),
        Err(
            Blocked::Busy
            | Blocked::Crowded
            | Blocked::Stopped
            | Blocked::Hold(_)
            | Blocked::RateLimit(_)
            | Blocked::Breaker(_),
        ) => {
            let full = "the endpoint's hub has as much as it can hold; try again later";
            return Err(Error::Conflict(full.into()));
        }
    }
    let (carrying, shared) = (shared.carrier.carry(parcel), Arc::clone(shared));
    let carried = shared.runtime.clone().spawn(async move {
        let carried = carrying.await;
        let now = shared.clock.now();
        shared.scheduler.lock().leave_hub(hub, now);
        shared.pump();
        carried
    });
    // It does not end otherwise than well, but for the end of everything.
    Ok(carried.await.unwrap_or(Carried::Returned))
}

/// Why a test came back with nothing to say.
const fn unreachable_now(place: &Place) -> &'static str {
    match place {
        Place::Hub(_) => "the endpoint's hub is not connected",
        Place::Pull => "workers come for what this endpoint has: there is nowhere to send a test",
        Place::Url(_) | Place::Command(_) | Place::Handler(_) => "the endpoint cannot be reached",
    }
}

/// Stores an endpoint and puts it to use; in this order, so that memory never runs ahead.
/// An endpoint as it would be made.
fn draft(
    shared: &Shared,
    tenant: TenantId,
    spec: Spec,
    private: Private,
) -> Result<Endpoint, Error> {
    let now = shared.clock.now();
    let text = given_or_new(shared, &spec.signing, private.secret)?;
    Ok(Endpoint {
        id: EndpointId::from_i64(shared.take_ids(1)),
        tenant,
        state: EndpointState::Active,
        secrets: vec![StoredSecret { text, expires_at: None }],
        tls: private.tls,
        spec,
        created_at: now,
        updated_at: now,
    })
}

/// An endpoint as it would be after a change.
fn redraft(
    shared: &Shared,
    current: &Endpoint,
    spec: Spec,
    tls: Option<Tls>,
) -> Result<Endpoint, Error> {
    let mut endpoint = Endpoint { spec, tls, ..current.clone() };
    endpoint.updated_at = shared.clock.now();
    let usable =
        |secret: &StoredSecret| Secret::parse(&secret.text, &endpoint.spec.signing).is_ok();
    if !endpoint.secrets.iter().all(usable) {
        // Another scheme needs another kind of secret.
        let text = given_or_new(shared, &endpoint.spec.signing, None)?;
        endpoint.secrets = vec![StoredSecret { text, expires_at: None }];
    }
    Ok(endpoint)
}

async fn install(
    shared: &Arc<Shared>,
    endpoint: Endpoint,
    check: Check,
    audit: Option<Audit>,
) -> Result<Arc<Endpoint>, Error> {
    let endpoint = Arc::new(endpoint);
    let route = Arc::new(compile(shared, Arc::clone(&endpoint), check)?);
    let stored = shared.store.put_endpoint((*endpoint).clone(), audit).await;
    stored.inspect_err(|error| reload::read_again(shared, error))?;
    put_to_use(shared, &route);
    Ok(endpoint)
}

fn put_to_use(shared: &Arc<Shared>, route: &Arc<Route>) {
    // The scheduler first: an event that matches must find its queue.
    shared.scheduler.lock().put_route(route, shared.clock.now());
    shared.routes.store(Arc::new(shared.routes.load().with(Arc::clone(route))));
    shared.pump();
}

async fn set_state(
    shared: &Arc<Shared>,
    current: &Arc<Endpoint>,
    state: EndpointState,
    audit: Audit,
) -> Result<Arc<Endpoint>, Error> {
    let endpoint = Endpoint { state, updated_at: audit.at, ..(**current).clone() };
    install(shared, endpoint, Check::AtDial, Some(audit)).await
}

/// The names of what is not as it was. Values are left out: a URL or a header may hold a secret.
fn changed_fields(before: &Spec, after: &Spec) -> serde_json::Value {
    let fields = |spec: &Spec| match serde_json::to_value(spec) {
        Ok(serde_json::Value::Object(fields)) => fields,
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    let (before, after) = (fields(before), fields(after));
    let changed: BTreeSet<&String> = before
        .keys()
        .chain(after.keys())
        .filter(|name| before.get(*name) != after.get(*name))
        .collect();
    serde_json::json!({ "changed": changed })
}

fn given_or_new(shared: &Shared, scheme: &Scheme, given: Option<String>) -> Result<String, Error> {
    match given {
        Some(text) => Secret::parse(&text, scheme)
            .map(|_| text)
            .map_err(|error| Error::invalid("secret", error.to_string())),
        None => Ok(Secret::generate(scheme, shared.entropy.secret_bytes()).text().to_owned()),
    }
}

/// Compiles endpoints anew whose secrets have lapsed, so that those sign no longer.
pub(crate) async fn drop_lapsed_secrets(shared: &Arc<Shared>) {
    let _turn = shared.configuring.lock().await;
    let now = shared.clock.now();
    let routes = shared.routes.load_full();
    let stale = |route: &&Arc<Route>| route.stale_at().is_some_and(|at| at <= now);
    for route in routes.all().filter(stale).filter(|route| shared.looks_after(route.id())) {
        let mut endpoint = (*route.endpoint).clone();
        endpoint.secrets.retain(|secret| secret.expires_at.is_none_or(|at| at > now));
        if let Err(error) = install(shared, endpoint, Check::AtDial, None).await {
            tracing::warn!(endpoint = %route.id(), %error, "could not drop a lapsed secret");
        }
    }
}

/// Switches off an endpoint that is of no use. Its deliveries wait until it is enabled.
pub(crate) async fn disable(shared: Arc<Shared>, disable: Disable) {
    let Disable { tenant, id, cause, audience } = disable;
    let _turn = shared.configuring.lock().await;
    let engine = Engine { shared: Arc::clone(&shared) };
    let Some(current) = engine.endpoint(tenant, id) else { return };
    match (current.state, cause) {
        (EndpointState::Active, _) | (EndpointState::Paused, Cause::Gone) => {}
        // Somebody has taken care of it: it is sent to no more until they say so.
        (EndpointState::Paused, Cause::Failing(_))
        | (EndpointState::Disabled | EndpointState::Deleted, _) => return,
    }
    let reason = cause.sentence();
    let detail = serde_json::json!({ "reason": reason });
    let now = shared.clock.now();
    let audit = Acting::gateway(tenant).audit(now, "endpoint.disable", id, Some(&detail));
    match set_state(&shared, &current, EndpointState::Disabled, audit).await {
        Ok(_) => {
            tracing::warn!(endpoint = %id, reason, "disabled");
            shared.publish([Draft {
                at: now,
                tenant,
                kind: NoticeKind::EndpointDisabled,
                endpoint: Some(id),
                source: None,
                hub: None,
                delivery: None,
                detail: Some(reason),
                audience,
            }]);
        }
        Err(error) => {
            tracing::warn!(endpoint = %id, %error, "could not disable it; it is sent to again");
            if let Some(route) = shared.routes.load().get(id) {
                shared.scheduler.lock().put_route(route, shared.clock.now());
            }
            shared.pump();
        }
    }
}

/// Sees to the deleted endpoints that this node looks after: whatever was stored for them by nodes
/// that did not know yet is cancelled.
pub(crate) async fn end_deleted(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let _turn = shared.configuring.lock().await;
    end_deleted_locked(shared).await
}

/// The same, for whoever has its turn to change configuration.
pub(crate) async fn end_deleted_locked(shared: &Arc<Shared>) -> Result<(), StoreError> {
    for endpoint in shared.store.endpoints().await? {
        let id = endpoint.id;
        if endpoint.state != EndpointState::Deleted || !shared.looks_after(id) {
            continue;
        }
        let first = DeliveryId::from_i64(0);
        if !shared.store.unfinished(id, first, None, 1).await?.is_empty() {
            shared.runtime.spawn(cancel_unfinished(Arc::clone(shared), id));
        }
    }
    Ok(())
}

/// Cancels all that is unfinished of a deleted endpoint, waiting for what is in flight.
pub(crate) async fn cancel_unfinished(shared: Arc<Shared>, id: EndpointId) {
    loop {
        let settled = shared.settled.notified();
        match cancel_pass(&shared, id).await {
            Ok(Pass::Done) => break,
            Ok(Pass::Overtaken) => {}
            Ok(Pass::InFlight) => settled.await,
            Err(error) => {
                tracing::warn!(endpoint = %id, %error, "could not cancel what is unfinished, trying again");
                let retry_at = shared.clock.now().plus(Duration::from_secs(1));
                shared.clock.sleep_until(retry_at).await;
            }
        }
    }
    shared.scheduler.lock().remove_route(id);
}

enum Pass {
    Done,
    /// Some changed before they could be cancelled: a worker got hold of them, or let go.
    Overtaken,
    InFlight,
}

async fn cancel_pass(shared: &Arc<Shared>, id: EndpointId) -> Result<Pass, Error> {
    let mut after = DeliveryId::from_i64(0);
    let (mut in_flight, mut overtaken) = (false, false);
    loop {
        let unfinished = shared.store.unfinished(id, after, None, CANCEL_BATCH).await?;
        let Some(last) = unfinished.last() else { break };
        after = last.id;
        let now = shared.clock.now();
        let mut decisions = Vec::with_capacity(unfinished.len());
        for row in unfinished {
            // What another node has in flight is not known: it ends there, and changes nothing any more.
            if shared.scheduler.lock().is_in_flight(id, row.id) {
                in_flight = true;
                continue;
            }
            let policy = shared.options.presets.policy(postrider_core::policy::Preset::default());
            let moved = step(&row.delivery, Happening::Cancel, &policy, now, Jitter::MIDDLE);
            let Transition::Moves(next) = moved else { continue };
            decisions.push(Decision {
                tenant: row.tenant,
                event: row.event,
                correlation_id: None,
                settle: Settle {
                    id: row.id,
                    endpoint: id,
                    fence: row.fence,
                    in_line: row.in_line,
                    from: row.delivery.state,
                    next,
                    at: now,
                    attempt: None,
                    lease: None,
                    result: None,
                    tenure: None,
                },
            });
        }
        overtaken |= settler::apply(shared, decisions, None).await?.contains(&false);
    }
    Ok(match (overtaken, in_flight) {
        (true, _) => Pass::Overtaken,
        (false, true) => Pass::InFlight,
        (false, false) => Pass::Done,
    })
}

/// Whether an endpoint's age limit has to be swept for, and from when on.
pub(crate) fn age_cutoff(route: &Route, now: Timestamp) -> Option<Timestamp> {
    route.policy.max_age().map(|age| now.minus(age))
}
