//! Which endpoints an event goes to, and what each needs to be sent to: compiled from
//! configuration once, read by every event.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use postrider_core::endpoint::{Destination as Target, EndpointState};
use postrider_core::pattern::{Pattern, is_reserved};
use postrider_core::policy::Presets;
use postrider_core::signing::{Secret, Signer};
use postrider_core::{Endpoint, EndpointId, HubId, Policy, TenantId, Timestamp};

use crate::carriers::command::Allowed;
use crate::destination::{Destination, Guard};
use crate::error::Error;
use crate::filter::Filter;
use crate::http_client::{EndpointTls, TlsPem};
use crate::hubs::Hubs;
use crate::notices::NoticeKind;

/// An endpoint, ready to be used.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) policy: Policy,
    pub(crate) signer: Signer,
    pub(crate) place: Place,
    /// What an event has to meet.
    pub(crate) filter: Option<Filter>,
    /// What the endpoint needs of TLS beyond the rest.
    pub(crate) tls: Option<Arc<EndpointTls>>,
    /// The endpoint's own headers.
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
    pub(crate) max_in_flight: u32,
}

/// Where an endpoint's deliveries go.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Url(Arc<Destination>),
    Command(Arc<[String]>),
    Hub(HubId),
    Handler(Arc<str>),
    /// Nowhere: workers come and lease.
    Pull,
}

/// Who says where an endpoint may send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judges<'a> {
    pub(crate) guard: &'a Guard,
    /// None: a command is judged when it is run.
    pub(crate) commands: Option<&'a Allowed>,
    /// None: whether there is such a hub is seen when it connects.
    pub(crate) hubs: Option<&'a Hubs>,
}

/// What an endpoint gets that says nothing of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    pub(crate) timeout: Duration,
    pub(crate) max_in_flight: u32,
}

impl Route {
    /// Checks everything about an endpoint; an endpoint that passes can be sent to.
    pub(crate) fn compile(
        endpoint: Arc<Endpoint>,
        presets: &Presets,
        judges: Judges<'_>,
        defaults: Defaults,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let spec = &endpoint.spec;
        let policy = spec.policy.build(presets).map_err(|invalid| {
            Error::invalid(format!("policy.{}", invalid.field), invalid.message)
        })?;
        let place = match &spec.destination {
            Target::Url(url) => {
                let checked = judges.guard.check_url(url);
                let destination =
                    checked.map_err(|refusal| Error::invalid("url", refusal.to_string()))?;
                Place::Url(Arc::new(destination))
            }
            Target::Command(words) => {
                if let Some(allowed) = judges.commands {
                    allowed.check(words)?;
                }
                Place::Command(words.as_slice().into())
            }
            Target::Hub(id) => {
                if let Some(hubs) = judges.hubs {
                    hubs.check(endpoint.tenant, *id)?;
                }
                Place::Hub(*id)
            }
            Target::Pull => Place::Pull,
            Target::Handler(name) => Place::Handler(name.as_str().into()),
        };
        check_fields(&endpoint, &place)?;
        let tls = endpoint
            .tls
            .as_ref()
            .map(|tls| {
                EndpointTls::from_pem(TlsPem {
                    client_cert: tls.client_cert.as_deref(),
                    client_key: tls.client_key.as_deref(),
                    ca: tls.ca.as_deref(),
                })
            })
            .transpose()
            .map_err(|error| Error::invalid(error.field, error.message))?;
        let filter = spec
            .filter
            .as_deref()
            .map(Filter::compile)
            .transpose()
            .map_err(|invalid| Error::invalid("filter", invalid.to_string()))?;
        let mut headers = HeaderMap::with_capacity(spec.headers.len());
        for (name, value) in &spec.headers {
            let field = || format!("headers.{name}");
            let header = HeaderName::try_from(name.as_str())
                .map_err(|_| Error::invalid(field(), "is not a header name"))?;
            let value = HeaderValue::try_from(value.as_str())
                .map_err(|_| Error::invalid(field(), "has a value that no header can have"))?;
            headers.insert(header, value);
        }
        let live = |lapses: Option<Timestamp>| lapses.is_none_or(|at| at > now);
        let secrets = endpoint
            .secrets
            .iter()
            .filter(|secret| live(secret.expires_at))
            .map(|secret| Secret::parse(&secret.text, &spec.signing))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Error::invalid("secret", error.to_string()))?;
        if secrets.is_empty() {
            return Err(Error::invalid("secret", "is needed"));
        }
        Ok(Self {
            signer: Signer::new(&spec.signing, &secrets),
            policy,
            place,
            filter,
            tls: tls.map(Arc::new),
            headers,
            timeout: spec.timeout.unwrap_or(defaults.timeout),
            max_in_flight: spec.max_in_flight.unwrap_or(defaults.max_in_flight),
            endpoint,
        })
    }

    pub(crate) fn id(&self) -> EndpointId {
        self.endpoint.id
    }

    /// When a secret lapses and the route has to be compiled anew.
    pub(crate) fn stale_at(&self) -> Option<Timestamp> {
        self.endpoint.secrets.iter().filter_map(|secret| secret.expires_at).min()
    }
}

/// Refuses what means nothing to an endpoint of this kind.
fn check_fields(endpoint: &Endpoint, place: &Place) -> Result<(), Error> {
    let spec = &endpoint.spec;
    let (posted, dialled) = match place {
        Place::Url(_) => (true, true),
        Place::Hub(_) => (true, false),
        Place::Command(_) | Place::Handler(_) | Place::Pull => (false, false),
    };
    let fields = [
        ("headers", spec.headers.is_empty() || posted, "with a url or a hub"),
        ("format", spec.format.is_none() || posted, "with a url or a hub"),
        ("tls", endpoint.tls.is_none() || dialled, "with a url"),
    ];
    match fields.into_iter().find(|(_, fits, _)| !fits) {
        Some((field, _, whose)) => Err(Error::invalid(field, format!("is for endpoints {whose}"))),
        None => Ok(()),
    }
}

/// All routes. Replaced as a whole when configuration changes, so that readers need no lock.
#[derive(Debug, Default, Clone)]
pub(crate) struct Routes {
    by_id: HashMap<EndpointId, Arc<Route>>,
    by_tenant: HashMap<TenantId, Index>,
    /// The kinds of notices that each tenant has told to it as events.
    told: HashMap<TenantId, HashSet<NoticeKind>>,
}

/// One tenant's endpoints by what they listen to: a lookup per part of an event's type rather than
/// a test per endpoint.
#[derive(Debug, Default, Clone)]
struct Index {
    any: Vec<Arc<Route>>,
    exact: HashMap<String, Vec<Arc<Route>>>,
    prefix: HashMap<String, Vec<Arc<Route>>>,
}

impl Routes {
    pub(crate) fn of(routes: impl IntoIterator<Item = Arc<Route>>) -> Self {
        let mut all = Self::default();
        for route in routes {
            let index = all.by_tenant.entry(route.endpoint.tenant).or_default();
            for pattern in &route.endpoint.spec.event_types {
                let bucket = match pattern {
                    Pattern::Any => &mut index.any,
                    Pattern::Exact(name) => index.exact.entry(name.clone()).or_default(),
                    Pattern::Prefix(prefix) => index.prefix.entry(prefix.clone()).or_default(),
                };
                bucket.push(Arc::clone(&route));
                if pattern.names_reserved() {
                    let told = all.told.entry(route.endpoint.tenant).or_default();
                    let asked_for = |kind: &NoticeKind| pattern.matches(&kind.event_type());
                    told.extend(NoticeKind::ALL.into_iter().filter(asked_for));
                }
            }
            all.by_id.insert(route.id(), route);
        }
        all
    }

    /// These routes with one put in, or in place of the one with its id.
    pub(crate) fn with(&self, route: Arc<Route>) -> Self {
        let id = route.id();
        let others = self.by_id.values().filter(|known| known.id() != id).cloned();
        Self::of(others.chain([route]))
    }

    pub(crate) fn without(&self, id: EndpointId) -> Self {
        Self::of(self.by_id.values().filter(|known| known.id() != id).cloned())
    }

    pub(crate) fn get(&self, id: EndpointId) -> Option<&Arc<Route>> {
        self.by_id.get(&id)
    }

    /// Oldest first, so that whatever is done for each is done in the same order every time.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Route>> {
        let mut all: Vec<&Arc<Route>> = self.by_id.values().collect();
        all.sort_unstable_by_key(|route| route.id());
        all.into_iter()
    }

    /// Whether anybody at all has notices told to them as events.
    pub(crate) fn tells(&self) -> bool {
        !self.told.is_empty()
    }

    /// Whether an endpoint of the tenant asks for notices of this kind.
    pub(crate) fn tells_of(&self, tenant: TenantId, kind: NoticeKind) -> bool {
        self.told.get(&tenant).is_some_and(|kinds| kinds.contains(&kind))
    }

    /// The endpoints an event of this type goes to, each once, oldest first. Paused and disabled
    /// ones too: what they would have got waits for them.
    pub(crate) fn matching(&self, tenant: TenantId, kind: &str) -> Vec<&Arc<Route>> {
        let Some(index) = self.by_tenant.get(&tenant) else { return Vec::new() };
        let any = if is_reserved(kind) { &[][..] } else { &index.any };
        let mut found: Vec<&Arc<Route>> = any.iter().collect();
        found.extend(index.exact.get(kind).into_iter().flatten());
        if !index.prefix.is_empty() {
            for (dot, _) in kind.match_indices('.') {
                found.extend(index.prefix.get(&kind[..=dot]).into_iter().flatten());
            }
        }
        if found.len() > 1 {
            found.sort_by_key(|route| route.id());
            found.dedup_by_key(|route| route.id());
        }
        found
    }
}

/// Whether an endpoint in this state is sent to.
pub(crate) const fn sends(state: EndpointState) -> bool {
    match state {
        EndpointState::Active => true,
        EndpointState::Paused | EndpointState::Disabled | EndpointState::Deleted => false,
    }
}
