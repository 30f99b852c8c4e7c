//! Pull: workers lease deliveries of an endpoint, and say what became of them.
//!
//! A lease is stored: the delivery is `in_flight` until a certain time, under a new fence. The token
//! names the delivery and the fence, so that whoever comes too late changes nothing. A lease that runs
//! out is a failed attempt; what was leased to somebody who had gone before it could be told is put
//! back uncounted.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use postrider_core::delivery::{Next, State, Transition};
use postrider_core::endpoint::Destination;
use postrider_core::pattern::Pattern;
use postrider_core::{
    Class, Delivery, DeliveryId, EndpointId, Happening, Jitter, Outcome, SpanId, TenantId,
    Timestamp, Trace, step,
};
use postrider_store::journal::{Page, Paged};
use postrider_store::record::{Attempt, Event, LeaseIs, Leased, Waiting};
use tokio::sync::{Notify, oneshot};

use crate::courier::{self, Start, Tried};
use crate::engine::Engine;
use crate::error::Error;
use crate::fleet::words::{Answer, Ask};
use crate::route::Route;
use crate::scheduler::{Allowance, Blocked, Health, Queueing};
use crate::settler::{self, Verdict};
use crate::shared::Shared;
use crate::{ports, spans};

/// The most deliveries in one lease.
pub const MAX_LEASES: usize = 100;
/// Bytes of bodies in one lease; one delivery is leased whatever its size.
const MAX_BYTES: usize = 16 << 20;
/// How often a worker looks again at once because all that it was to get had grown too old.
const MAX_BURIALS: usize = 100;
/// How often a change is tried again that lost against another one.
const MAX_COLLISIONS: usize = 3;
/// Leases that have run out are settled this many at a time.
const LAPSE_BATCH: usize = 128;
/// After the store could not be read, the wait before it is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// Leases are looked at this often at least, whatever is known of them.
const LONGEST_NAP: Duration = Duration::from_mins(10);
/// … and this often where other nodes make some.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const TOKEN_PREFIX: &str = "lse_";

/// Names one lease of one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken {
    delivery: DeliveryId,
    fence: u32,
}

impl LeaseToken {
    pub const fn delivery(self) -> DeliveryId {
        self.delivery
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delivery = self.delivery.to_string();
        let digits = delivery.strip_prefix(DeliveryId::PREFIX).unwrap_or(&delivery);
        write!(f, "{TOKEN_PREFIX}{digits}{:08x}", self.fence)
    }
}

/// The text names no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a lease as it was given, like {TOKEN_PREFIX}…")]
pub struct NoLease;

impl FromStr for LeaseToken {
    type Err = NoLease;

    fn from_str(text: &str) -> Result<Self, NoLease> {
        const FENCE_DIGITS: usize = 8;
        let rest = text.strip_prefix(TOKEN_PREFIX).filter(|rest| rest.is_ascii()).ok_or(NoLease)?;
        let at = rest.len().checked_sub(FENCE_DIGITS).ok_or(NoLease)?;
        let (delivery, fence) = rest.split_at(at);
        let token = Self {
            delivery: format!("{}{delivery}", DeliveryId::PREFIX).parse().map_err(|_| NoLease)?,
            fence: u32::from_str_radix(fence, 16).map_err(|_| NoLease)?,
        };
        // One text for each lease, no more.
        if token.to_string() == text { Ok(token) } else { Err(NoLease) }
    }
}

impl serde::Serialize for LeaseToken {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a worker asks for.
#[derive(Debug, Clone)]
pub struct LeaseWish {
    pub endpoint: EndpointId,
    /// At most [`MAX_LEASES`].
    pub max: usize,
    /// How long to wait for the first.
    pub wait: Duration,
    /// How long it may keep them.
    pub lease: Duration,
    /// Only events of these types; empty is any.
    pub event_types: Vec<Pattern>,
}

/// A delivery in a worker's hands.
#[derive(Debug, Clone)]
pub struct Lease {
    pub token: LeaseToken,
    pub delivery: DeliveryId,
    pub expires_at: Timestamp,
    /// The number of this try, from 1.
    pub attempt: u32,
    pub event: Arc<Event>,
    /// The trace that what the worker does is part of.
    pub trace: Option<Trace>,
}

/// What a worker says of a failure.
#[derive(Debug, Clone)]
pub struct Nack {
    pub class: Class,
    pub error: String,
    pub retry_after: Option<Duration>,
}

/// What wakes the one who looks after leases that run out.
#[derive(Debug)]
pub(crate) struct Leasing {
    sooner: Notify,
    asleep_until: AtomicI64,
}

impl Default for Leasing {
    fn default() -> Self {
        Self { sooner: Notify::new(), asleep_until: AtomicI64::new(i64::MAX) }
    }
}

impl Leasing {
    fn note(&self, until: Timestamp) {
        if until.as_millis() < self.asleep_until.load(Ordering::Acquire) {
            self.sooner.notify_one();
        }
    }
}

impl Engine {
    /// Leases what may be tried now, oldest event first, or waits for it. Nothing is no error.
    pub async fn lease(&self, tenant: TenantId, wish: LeaseWish) -> Result<Vec<Lease>, Error> {
        let shared = &self.shared;
        let deadline = shared.clock.now().plus(wish.wait);
        let wish = Arc::new(LeaseWish { max: wish.max.clamp(1, MAX_LEASES), ..wish });
        let mut burials = 0;
        loop {
            let route = shared.routes.load().get(wish.endpoint).cloned();
            let route = route.filter(|route| route.endpoint.tenant == tenant);
            let route = route.ok_or(Error::NotFound)?;
            let queueing = shared.scheduler.lock().queueing(wish.endpoint);
            let Some(queueing) =
                queueing.filter(|_| route.endpoint.spec.destination == Destination::Pull)
            else {
                return Err(Error::Conflict(
                    "the endpoint is not one that workers pull from".into(),
                ));
            };
            let rung = queueing.bell.notified();
            tokio::pin!(rung);
            // Registered before looking, so that no ring falls in between.
            rung.as_mut().enable();
            let taken = self.take_unbroken(&wish, Arc::clone(&queueing)).await?;
            if taken.leases.is_empty() && taken.buried && burials < MAX_BURIALS {
                burials += 1;
                continue;
            }
            let now = shared.clock.now();
            if !taken.leases.is_empty() || now >= deadline || shared.scheduler.lock().is_stopped() {
                return Ok(taken.leases);
            }
            let until = taken.look_again.unwrap_or(deadline).min(deadline);
            let slept = std::pin::pin!(ports::pause(&*shared.clock, until.since(now)));
            let _waiter = queueing.enter();
            select(rung, slept).await;
        }
    }

    /// Takes leases in a task of its own, which has its turn to the end: if the worker goes away
    /// meanwhile, what it would have got is put back.
    async fn take_unbroken(
        &self,
        wish: &Arc<LeaseWish>,
        queueing: Arc<Queueing>,
    ) -> Result<Taken, Error> {
        let (tell, told) = oneshot::channel();
        let (engine, wish) = (self.clone(), Arc::clone(wish));
        self.shared.runtime.spawn(async move {
            let _turn = queueing.turn.lock().await;
            if tell.is_closed() {
                return;
            }
            let taken = take(&engine.shared, &wish).await;
            // A worker that has gone, or goes without having listened, drops it.
            drop(tell.send(taken.map(|taken| Untold { engine, taken })));
        });
        told.await.map_or_else(|_| Ok(Taken::default()), |untold| untold.map(Untold::tell))
    }

    async fn give_back(&self, leases: Vec<Lease>) {
        let tokens = leases.iter().map(|lease| lease.token).collect();
        if let Err(error) = self.release_of(None, tokens).await {
            // They run out by themselves.
            tracing::debug!(%error, "could not put back what nobody took");
        }
    }

    /// The worker gives them back untried: somebody else may have them at once, and it counts for
    /// nothing.
    pub async fn release(
        &self,
        tenant: TenantId,
        leases: Vec<LeaseToken>,
    ) -> Result<Vec<bool>, Error> {
        self.release_of(Some(tenant), leases).await
    }

    async fn release_of(
        &self,
        tenant: Option<TenantId>,
        leases: Vec<LeaseToken>,
    ) -> Result<Vec<bool>, Error> {
        self.settle_leases(tenant, leases, |shared, route, leased| {
            let (now, delivery) = (shared.clock.now(), leased.waiting.delivery);
            let moved = step(&delivery, Happening::Release, &route.policy, now, Jitter::MIDDLE);
            let Transition::Moves(next) = moved else { return None };
            Some(untried(route, leased, next, now))
        })
        .await
    }

    /// The worker has done it; false for leases that had run out, or never were.
    pub async fn ack(
        &self,
        tenant: TenantId,
        leases: Vec<LeaseToken>,
        result: Option<String>,
    ) -> Result<Vec<bool>, Error> {
        self.settle_leases(Some(tenant), leases, |shared, route, leased| {
            Some(tried(shared, route, leased, Outcome::Delivered, None, result.clone()))
        })
        .await
    }

    /// The worker could not do it.
    pub async fn nack(
        &self,
        tenant: TenantId,
        leases: Vec<LeaseToken>,
        nack: Nack,
    ) -> Result<Vec<bool>, Error> {
        let Nack { class, error, retry_after } = nack;
        let outcome = Outcome::Failed { class, retry_after, disable: false };
        self.settle_leases(Some(tenant), leases, |shared, route, leased| {
            Some(tried(shared, route, leased, outcome, Some(error.clone()), None))
        })
        .await
    }

    /// The worker needs more time: when each lease now ends, none for those that had run out.
    pub async fn extend(
        &self,
        tenant: TenantId,
        leases: Vec<LeaseToken>,
        lease: Duration,
    ) -> Result<Vec<Option<Timestamp>>, Error> {
        let until = self.shared.clock.now().plus(lease);
        let extended = self
            .settle_leases(Some(tenant), leases, |shared, route, leased| {
                let now = shared.clock.now();
                let next = Next { due: Some(until), ..held(&leased.waiting.delivery) };
                Some(untried(route, leased, next, now))
            })
            .await?;
        self.shared.leasing.note(until);
        Ok(extended.into_iter().map(|extended| extended.then_some(until)).collect())
    }

    /// Makes a change to each lease that is live and belongs to the tenant. The answers are in the
    /// order of `tokens`.
    async fn settle_leases(
        &self,
        tenant: Option<TenantId>,
        tokens: Vec<LeaseToken>,
        decide: impl Fn(&Shared, &Arc<Route>, Leased) -> Option<Verdict>,
    ) -> Result<Vec<bool>, Error> {
        let mut answers = vec![false; tokens.len()];
        for _ in 0..MAX_COLLISIONS {
            // One that was made longer in the same moment may have been missed.
            if !self.settle_live(tenant, &tokens, &mut answers, &decide).await? {
                break;
            }
        }
        Ok(answers)
    }

    /// Makes the change to those that have no yes for an answer yet. True if some were live and yet
    /// not changed.
    async fn settle_live(
        &self,
        tenant: Option<TenantId>,
        tokens: &[LeaseToken],
        answers: &mut [bool],
        decide: &impl Fn(&Shared, &Arc<Route>, Leased) -> Option<Verdict>,
    ) -> Result<bool, Error> {
        let shared = &self.shared;
        let open = tokens.iter().zip(&*answers).filter(|(_, done)| !**done);
        let found = shared.store.leased(open.map(|(token, _)| token.delivery).collect()).await?;
        let routes = shared.routes.load_full();
        let mut verdicts = Vec::with_capacity(found.len());
        let mut missed = false;
        let mut places = Vec::with_capacity(found.len());
        for leased in found {
            let waiting = &leased.waiting;
            let token = LeaseToken { delivery: waiting.id, fence: waiting.fence };
            let own = tenant.is_none_or(|tenant| waiting.event.tenant == tenant);
            // A lease named twice is settled once.
            let place = tokens.iter().position(|asked| *asked == token).filter(|_| own);
            if let (Some(place), Some(route)) = (place, routes.get(waiting.endpoint))
                && let Some(verdict) = decide(shared, route, leased)
            {
                places.push(place);
                verdicts.push(verdict);
            }
        }
        for (place, applied) in places.into_iter().zip(settler::settle_now(shared, verdicts).await?)
        {
            answers[place] = applied;
            missed |= !applied;
        }
        Ok(missed)
    }
}

/// What came of asking.
#[derive(Debug, Default)]
struct Taken {
    leases: Vec<Lease>,
    /// When there may be something, if nobody rings before.
    look_again: Option<Timestamp>,
    /// Some that were found could not be tried any more and have ended: others may stand behind
    /// them.
    buried: bool,
}

/// What a worker has not been told yet. Dropped untold, it is put back.
#[derive(Debug)]
struct Untold {
    engine: Engine,
    taken: Taken,
}

impl Untold {
    fn tell(mut self) -> Taken {
        std::mem::take(&mut self.taken)
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        let leases = std::mem::take(&mut self.taken.leases);
        if !leases.is_empty() {
            let engine = self.engine.clone();
            self.engine.shared.runtime.spawn(async move { engine.give_back(leases).await });
        }
    }
}

async fn take(shared: &Arc<Shared>, wish: &LeaseWish) -> Result<Taken, Error> {
    let now = shared.clock.now();
    let allowed = shared.scheduler.lock().allow(wish.endpoint, wish.max, now);
    let allowance = match ask_leave(shared, wish, allowed).await {
        Ok(allowance) => allowance,
        Err(Blocked::Hold(until) | Blocked::RateLimit(until) | Blocked::Breaker(Some(until))) => {
            return Ok(Taken { look_again: Some(until), ..Taken::default() });
        }
        // What resumes or changes will ring.
        Err(
            Blocked::Stopped
            | Blocked::Busy
            | Blocked::Crowded
            | Blocked::Offline
            | Blocked::Breaker(None),
        ) => return Ok(Taken::default()),
    };
    let route = allowance.route;
    let leased = match hands_free(shared, &route, allowance.count).await {
        Ok(count) => page_and_lease(shared, wish, &route, count, allowance.away).await,
        Err(error) => Err(error),
    };
    let used = leased.as_ref().map_or(0, |taken| taken.leases.len());
    shared.scheduler.lock().disallow(wish.endpoint, allowance.count - used);
    leased
}

/// How fast workers get the deliveries of an endpoint is for one node to say, whatever node they come
/// to: the one that looks after it. If that one does not answer, this one goes by what it knows.
async fn ask_leave(
    shared: &Shared,
    wish: &LeaseWish,
    here: Result<Allowance, Blocked>,
) -> Result<Allowance, Blocked> {
    let mut allowance = here?;
    if allowance.route.endpoint.spec.rate_limit.is_none() {
        return Ok(allowance);
    }
    let Some(node) = shared.carrier_elsewhere(wish.endpoint) else { return Ok(allowance) };
    let ask = Ask::Allow { endpoint: wish.endpoint, wanted: allowance.count };
    if let Some(Answer::Allowed(allowed)) = shared.ask(node, ask).await {
        let asked = allowance.count;
        match allowed {
            Ok(count) => allowance.count = count.min(asked),
            Err(blocked) => {
                shared.scheduler.lock().disallow(wish.endpoint, asked);
                return Err(blocked);
            }
        }
    }
    Ok(allowance)
}

/// As many of `wanted` as the endpoint may have in flight beside what is leased already.
async fn hands_free(shared: &Shared, route: &Route, wanted: usize) -> Result<usize, Error> {
    let Some(max) = route.endpoint.spec.max_in_flight else { return Ok(wanted) };
    let counts = shared.store.counts(route.endpoint.tenant).await?;
    let leased = counts
        .iter()
        .find(|count| count.endpoint == route.id() && count.state == State::InFlight)
        .map_or(0, |count| count.deliveries);
    let free = u64::from(max).saturating_sub(leased);
    Ok(wanted.min(usize::try_from(free).unwrap_or(usize::MAX)))
}

async fn page_and_lease(
    shared: &Arc<Shared>,
    wish: &LeaseWish,
    route: &Arc<Route>,
    count: usize,
    away: Vec<DeliveryId>,
) -> Result<Taken, Error> {
    if count == 0 {
        // Whoever gives one back will ring.
        return Ok(Taken::default());
    }
    let asked_at = shared.clock.now();
    let page = Page {
        endpoint: wish.endpoint,
        now: asked_at,
        limit: count,
        max_bytes: MAX_BYTES,
        held: away,
        event_types: wish.event_types.clone(),
    };
    let Paged { waiting, more: _, next_due } = shared.store.page(page).await?;
    let until = shared.clock.now().plus(wish.lease);
    let mut verdicts = Vec::with_capacity(waiting.len());
    let mut leases = Vec::with_capacity(count);
    for mut waiting in waiting.into_iter().take(count) {
        // What was ready when it was stored stays so, even if the clock was set back.
        waiting.delivery.due = waiting.delivery.due.min(asked_at);
        let at = shared.clock.now();
        let next = match courier::start(shared, route, &waiting) {
            Start::Go => Next { due: Some(until), ..held(&waiting.delivery) },
            Start::Ends(next) => next,
            Start::NotDue => continue,
        };
        leases.push((next.state == State::InFlight).then(|| Lease {
            token: LeaseToken { delivery: waiting.id, fence: waiting.fence + 1 },
            delivery: waiting.id,
            expires_at: until,
            attempt: waiting.tries + 1,
            trace: spans::onward(
                &waiting.event,
                spans::lease(shared, &waiting.event, waiting.id, waiting.fence + 1),
            ),
            event: Arc::clone(&waiting.event),
        }));
        verdicts.push(Verdict {
            at,
            route: Arc::clone(route),
            waiting,
            next,
            attempt: None,
            health: Health::Unknown,
            lease: None,
            result: None,
            tenure: None,
        });
    }
    let buried = verdicts.iter().any(|verdict| verdict.next.state != State::InFlight);
    let applied = settler::settle_now(shared, verdicts).await?;
    let leases: Vec<Lease> = leases
        .into_iter()
        .zip(applied)
        .filter_map(|(lease, applied)| lease.filter(|_| applied))
        .collect();
    if !leases.is_empty() {
        shared.leasing.note(until);
    }
    Ok(Taken { leases, look_again: next_due, buried })
}

/// A delivery in a worker's hands, as it is.
fn held(delivery: &Delivery) -> Next {
    Next {
        state: State::InFlight,
        attempts: delivery.attempts,
        deferrals: delivery.deferrals,
        born: delivery.born,
        due: None,
        reason: None,
        class: None,
        counted: false,
        hold_endpoint_until: None,
        disable_endpoint: false,
    }
}

/// A change to a live lease that no attempt led to.
fn untried(route: &Arc<Route>, leased: Leased, next: Next, at: Timestamp) -> Verdict {
    Verdict {
        at,
        route: Arc::clone(route),
        waiting: leased.waiting,
        next,
        attempt: None,
        health: Health::Unknown,
        lease: Some(LeaseIs::Live),
        result: None,
        tenure: None,
    }
}

/// The span of a delivery in a worker's hands.
fn span_of(shared: &Shared, leased: &Waiting) -> Option<SpanId> {
    spans::lease(shared, &leased.event, leased.id, leased.fence)
}

/// What a worker's word makes of a delivery.
fn tried(
    shared: &Shared,
    route: &Arc<Route>,
    leased: Leased,
    outcome: Outcome,
    error: Option<String>,
    result: Option<String>,
) -> Verdict {
    let tried = Tried {
        started_at: leased.leased_at,
        duration: shared.clock.now().since(leased.leased_at),
        outcome,
        status: None,
        error,
        response: None,
        result,
        span: span_of(shared, &leased.waiting),
    };
    let verdict = courier::conclude(shared, route, leased.waiting, tried);
    Verdict { lease: Some(LeaseIs::Live), ..verdict }
}

/// Looks after leases that run out, for as long as the engine lives.
pub(crate) async fn watch(shared: Arc<Shared>) {
    loop {
        if !shared.keeps_house() {
            // Another node looks after them, until it does not.
            ports::pause(&*shared.clock, LOOK_EVERY).await;
            continue;
        }
        // Whatever is leased from here on is noted.
        shared.leasing.asleep_until.store(i64::MAX, Ordering::Release);
        let now = shared.clock.now();
        let wake_at = match lapse(&shared, now).await {
            Ok(wake_at) => wake_at,
            Err(Error::Store(postrider_store::Error::Closed)) => return,
            Err(error) => {
                tracing::warn!(%error, "could not look for leases that have run out");
                Some(now.plus(PAUSE))
            }
        };
        let nap = if shared.fleet.is_some() { LOOK_EVERY } else { LONGEST_NAP };
        let wake_at = wake_at.unwrap_or(Timestamp::MAX).min(now.plus(nap));
        shared.leasing.asleep_until.store(wake_at.as_millis(), Ordering::Release);
        let sooner = std::pin::pin!(shared.leasing.sooner.notified());
        match select(sooner, shared.clock.sleep_until(wake_at)).await {
            Either::Left(_) | Either::Right(_) => {}
        }
    }
}

/// Settles what has run out by `now`. Returns when the next does.
async fn lapse(shared: &Arc<Shared>, now: Timestamp) -> Result<Option<Timestamp>, Error> {
    let lapsed = shared.store.lapsed(now, LAPSE_BATCH).await?;
    let routes = shared.routes.load_full();
    let full = lapsed.leased.len() >= LAPSE_BATCH;
    let verdicts: Vec<Verdict> = lapsed
        .leased
        .into_iter()
        .filter_map(|leased| {
            // That of a deleted endpoint is being cancelled.
            let route = routes.get(leased.waiting.endpoint)?;
            ran_out(shared, route, leased, now)
        })
        .collect();
    // If none of a full batch could be settled, to look again at once would never end.
    let again = full && !verdicts.is_empty();
    settler::settle_now(shared, verdicts).await?;
    Ok(if again { Some(now) } else { lapsed.next })
}

fn ran_out(shared: &Shared, route: &Arc<Route>, leased: Leased, now: Timestamp) -> Option<Verdict> {
    let Leased { waiting, leased_at } = leased;
    let jitter = shared.entropy.jitter();
    let moved = step(&waiting.delivery, Happening::LeaseExpired, &route.policy, now, jitter);
    let Transition::Moves(next) = moved else { return None };
    let attempt = Attempt {
        number: waiting.tries + 1,
        counted: next.counted,
        started_at: leased_at,
        duration: now.since(leased_at),
        status: None,
        class: next.class,
        error: Some("the lease ran out before its worker answered".into()),
        response: None,
    };
    courier::log(shared, &waiting, &next, &attempt);
    spans::tell(shared, span_of(shared, &waiting), route, &waiting, &next, &attempt);
    Some(Verdict {
        at: now,
        route: Arc::clone(route),
        waiting,
        next,
        attempt: Some(attempt),
        health: Health::Unknown,
        lease: Some(LeaseIs::Lapsed),
        result: None,
        tenure: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(delivery: i64, fence: u32) -> LeaseToken {
        LeaseToken { delivery: DeliveryId::from_i64(delivery), fence }
    }

    #[test]
    fn a_lease_is_read_as_it_was_written() {
        for (delivery, fence, text) in [
            (0, 0, "lse_000000000000000000000"),
            (1, 1, "lse_000000000000100000001"),
            (32, 0xabcd_ef01, "lse_0000000000010abcdef01"),
            (i64::MAX, u32::MAX, "lse_7zzzzzzzzzzzzffffffff"),
        ] {
            let token = token(delivery, fence);
            assert_eq!(token.to_string(), text);
            assert_eq!(text.parse(), Ok(token));
            assert_eq!(token.delivery(), DeliveryId::from_i64(delivery));
            assert_eq!(serde_json::to_value(token).expect("text"), text);
        }
    }

    #[test]
    fn a_lease_has_one_text_and_no_other_is_taken_for_it() {
        let text = token(i64::MAX >> 1, 0xab).to_string();
        let (digits, fence) = text["lse_".len()..].split_at(13);
        for other in [
            String::new(),
            "lse_".into(),
            digits.into(),
            format!("{digits}{fence}"),
            format!("dlv_{digits}"),
            format!("dlv_{digits}{fence}"),
            format!("lse_{digits}"),
            format!("lse_{fence}"),
            format!("LSE_{digits}{fence}"),
            format!("lse_{}{fence}", digits.to_uppercase()),
            format!("lse_{digits}{}", fence.to_uppercase()),
            format!("lse_{digits}+{}", &fence[1..]),
            format!("lse_{digits}{}g", &fence[1..]),
            format!("lse_{digits}0{fence}"),
            format!("lse_{digits}{}", &fence[1..]),
            format!("lse_0{digits}{fence}"),
            format!("lse_dlv_{digits}{fence}"),
            format!("lse_{}u{fence}", &digits[1..]),
            format!("lse_8{}{fence}", &digits[1..]),
            format!(" {text}"),
            format!("{text} "),
            format!("{text}\n"),
            format!("lse_{}é{fence}", &digits[2..]),
            format!("lse_{digits}{}é", &fence[2..]),
        ] {
            assert_eq!(other.parse::<LeaseToken>(), Err(NoLease), "{other:?}");
        }
        assert!(NoLease.to_string().contains("lse_"));
    }
}
