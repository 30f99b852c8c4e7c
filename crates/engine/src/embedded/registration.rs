//! How a handler is described, and how that is brought together with what the store knows of it.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::endpoint::{
    Destination, EndpointState, Ordering, RateLimit, Spec, StoredSecret,
};
use postrider_core::id::Sequence;
use postrider_core::pattern::Pattern;
use postrider_core::policy::{self, Presets};
use postrider_core::signing::{Scheme, Secret};
use postrider_core::{Endpoint, EndpointId, TenantId, Timestamp, span};
use postrider_store::{Error as StoreError, Store};
use serde_json::{Map, Value};

use crate::acting::Acting;
use crate::error::Error;
use crate::filter::Filter;
use crate::ports::Entropy;

const MAX_NAME_CHARS: usize = 200;
const MAX_EVENT_TYPES: usize = 100;
const MAX_CONCURRENCY: u32 = 1_000;
const MIN_TIMEOUT: Duration = Duration::from_millis(1);
const MAX_TIMEOUT: Duration = Duration::from_hours(24);
const MAX_PER_SECOND: f64 = 100_000.0;
const MAX_BURST: u32 = 100_000;

/// Says in an endpoint's metadata that it is paused only because its handler was missing.
const MISSING: &str = "handler_missing";

/// How a handler is called. What is not said is as for any endpoint of the engine.
///
/// ```
/// use std::time::Duration;
///
/// use postrider_core::policy::Preset;
/// use postrider_engine::embedded::HandlerOptions;
///
/// let one_at_a_time = HandlerOptions::default()
///     .policy(Preset::Runs)
///     .concurrency(1)
///     .timeout(Duration::from_mins(10))
///     .filter(r#"payload.category in ["any%", "100%"]"#);
/// # drop(one_at_a_time);
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct HandlerOptions {
    policy: policy::Spec,
    ordering: Option<Ordering>,
    concurrency: Option<u32>,
    timeout: Option<Duration>,
    rate_limit: Option<RateLimit>,
    filter: Option<String>,
}

impl HandlerOptions {
    /// When to try again and when to give up: a [`Preset`](policy::Preset), or a
    /// [`Spec`](policy::Spec) that says some of it otherwise. Else it is `standard`.
    pub fn policy(mut self, policy: impl Into<policy::Spec>) -> Self {
        self.policy = policy.into();
        self
    }

    /// Whether a message waits until the one before it has ended. Else it does not, unless the
    /// policy is of the preset `edge`.
    pub fn ordering(mut self, ordering: Ordering) -> Self {
        self.ordering = Some(ordering);
        self
    }

    /// How many messages it is given at the same time, 1 to 1,000. Else it is
    /// [`default_endpoint_in_flight`](crate::Options::default_endpoint_in_flight). With 1, the
    /// oldest message that may be tried is the next one.
    pub fn concurrency(mut self, messages: u32) -> Self {
        self.concurrency = Some(messages);
        self
    }

    /// How long it may take over a message, up to 24 hours. Else it is
    /// [`default_timeout`](crate::Options::default_timeout). It is stopped where it awaits
    /// something: what blocks its thread cannot be stopped, and belongs in
    /// `tokio::task::spawn_blocking`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many messages it is given in a second, and how many at once after a quiet time. Waiting
    /// for that is no attempt.
    pub fn rate_limit(mut self, per_second: f64, burst: u32) -> Self {
        self.rate_limit = Some(RateLimit { per_second, burst });
        self
    }

    /// An expression that a message has to meet when it is enqueued, over `type`, `payload` (the
    /// body, where that is JSON), `metadata` and `content_type`. What does not meet it is kept, but
    /// not handled.
    pub fn filter(mut self, expression: impl Into<String>) -> Self {
        self.filter = Some(expression.into());
        self
    }
}

/// A handler as it was described.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) name: String,
    pub(super) event_types: Vec<String>,
    pub(super) options: HandlerOptions,
}

impl Registration {
    /// The endpoint that stands for it, or why there cannot be one.
    pub(super) fn spec(&self, presets: &Presets) -> Result<Spec, Error> {
        let HandlerOptions { policy, ordering, concurrency, timeout, rate_limit, filter } =
            self.options.clone();
        check_name(&self.name)?;
        if let Err(invalid) = policy.build(presets) {
            return Err(Error::invalid(format!("policy.{}", invalid.field), invalid.message));
        }
        if concurrency.is_some_and(|messages| !(1..=MAX_CONCURRENCY).contains(&messages)) {
            return Err(Error::invalid("concurrency", format!("must be 1 to {MAX_CONCURRENCY}")));
        }
        if timeout.is_some_and(|timeout| !(MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout)) {
            let (min, max) = (span::format(MIN_TIMEOUT), span::format(MAX_TIMEOUT));
            return Err(Error::invalid("timeout", format!("must be {min} to {max}")));
        }
        rate_limit.map_or(Ok(()), check_rate_limit)?;
        if let Some(Err(invalid)) = filter.as_deref().map(Filter::compile) {
            return Err(Error::invalid("filter", invalid.to_string()));
        }
        Ok(Spec {
            name: Some(self.name.clone()),
            destination: Destination::Handler(self.name.clone()),
            event_types: self.patterns()?,
            sources: Vec::new(),
            filter,
            ordering: ordering.unwrap_or(Ordering::default_for(policy.preset)),
            policy,
            rate_limit,
            max_in_flight: concurrency,
            timeout,
            headers: BTreeMap::new(),
            signing: Scheme::None,
            format: None,
            metadata: Map::new(),
        })
    }

    fn patterns(&self) -> Result<Vec<Pattern>, Error> {
        if !(1..=MAX_EVENT_TYPES).contains(&self.event_types.len()) {
            let message = format!("must have 1 to {MAX_EVENT_TYPES} entries; \"*\" is every type");
            return Err(Error::invalid("event_types", message));
        }
        self.event_types
            .iter()
            .map(|text| {
                Pattern::parse(text).map_err(|error| {
                    Error::invalid("event_types", format!("{text:?} is none: {error}"))
                })
            })
            .collect()
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    if (1..=MAX_NAME_CHARS).contains(&name.chars().count()) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let message = format!("must have 1 to {MAX_NAME_CHARS} characters, none for control");
    Err(Error::invalid("name", message))
}

fn check_rate_limit(limit: RateLimit) -> Result<(), Error> {
    if !(limit.per_second > 0.0 && limit.per_second <= MAX_PER_SECOND) {
        let message = format!("must be above 0 and at most {MAX_PER_SECOND}");
        return Err(Error::invalid("rate_limit.per_second", message));
    }
    if !(1..=MAX_BURST).contains(&limit.burst) {
        return Err(Error::invalid("rate_limit.burst", format!("must be 1 to {MAX_BURST}")));
    }
    Ok(())
}

/// Makes the store say what the program says, before anything is carried: a handler that is known
/// gets its new description, a new one is made, and the deliveries of one that is missing wait.
pub(super) async fn reconcile(
    store: &dyn Store,
    entropy: &dyn Entropy,
    mut specs: Vec<Spec>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let acting = Acting::gateway(TenantId::DEFAULT);
    for known in store.endpoints().await? {
        let Destination::Handler(_) = known.spec.destination else { continue };
        if known.tenant != acting.tenant || known.state == EndpointState::Deleted {
            continue;
        }
        let place = specs.iter().position(|spec| spec.destination == known.spec.destination);
        let wanted = match place {
            Some(place) => present(&known, specs.remove(place)),
            None => missing(&known),
        };
        if wanted != known {
            if known.state == EndpointState::Disabled {
                store.note_failing(vec![(known.id, None)]).await?;
            }
            let wanted = Endpoint { updated_at: now, ..wanted };
            let audit = acting.audit(now, "endpoint.update", known.id, None);
            store.put_endpoint(wanted, Some(audit)).await?;
        }
    }
    let mut ids = Sequence::after(store.highest_id().await?);
    for spec in specs {
        let id = EndpointId::from_i64(ids.take(now, 1));
        // Nothing is signed for a handler, but every endpoint has one.
        let secret = Secret::generate(&spec.signing, entropy.secret_bytes());
        let endpoint = Endpoint {
            id,
            tenant: acting.tenant,
            state: EndpointState::Active,
            spec,
            secrets: vec![StoredSecret { text: secret.text().to_owned(), expires_at: None }],
            tls: None,
            created_at: now,
            updated_at: now,
        };
        let audit = acting.audit(now, "endpoint.create", id, None);
        store.put_endpoint(endpoint, Some(audit)).await?;
    }
    Ok(())
}

/// A handler that the program has. What stopped it by itself is over with a new start of the
/// program; what somebody paused stays paused.
fn present(known: &Endpoint, mut spec: Spec) -> Endpoint {
    spec.metadata.clone_from(&known.spec.metadata);
    let was_missing = spec.metadata.remove(MISSING).is_some();
    let state = match known.state {
        EndpointState::Paused if !was_missing => EndpointState::Paused,
        EndpointState::Paused | EndpointState::Active | EndpointState::Disabled => {
            EndpointState::Active
        }
        EndpointState::Deleted => EndpointState::Deleted,
    };
    Endpoint { spec, state, ..known.clone() }
}

/// One that it does not have, or has no more.
fn missing(known: &Endpoint) -> Endpoint {
    let mut wanted = known.clone();
    match known.state {
        EndpointState::Active => {
            wanted.state = EndpointState::Paused;
            wanted.spec.metadata.insert(MISSING.to_owned(), Value::Bool(true));
        }
        EndpointState::Paused | EndpointState::Disabled | EndpointState::Deleted => {}
    }
    wanted
}
