//! Who is calling, and in which tenant: by an API key, or by the token of a hub.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Extensions, HeaderMap};
use postrider_core::{TenantId, Timestamp};
use postrider_engine::Acting;
use postrider_store::audit::Actor;
use postrider_store::registry::{HubRecord, Role};

use crate::App;
use crate::keys::{Denied, Keys, Known, Turn};
use crate::problem::Problem;

/// The header by which an admin key says in which tenant it acts.
const TENANT_HEADER: &str = "postrider-tenant";

/// What the two kinds of credentials begin with. One never opens what the other one does.
const KEY_PREFIX: &str = "pr_";
const HUB_TOKEN_PREFIX: &str = "prh_";

/// A caller that showed a key. Taken first by every handler that needs one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    /// Everything it reads and changes is in here.
    pub(crate) tenant: TenantId,
    /// In whose name it changes something: its key's.
    pub(crate) actor: Actor,
    pub(crate) role: Role,
    /// Where its look at keys and at changes ends; none is nowhere: an admin key that named no
    /// tenant sees those of all.
    pub(crate) reach: Option<TenantId>,
}

impl Caller {
    pub(crate) fn acting(&self) -> Acting {
        Acting { tenant: self.tenant, by: self.actor }
    }

    /// The right to change keys and tenants, and the time. Its own key is looked at again: it may
    /// have been revoked while the rest of the request was on its way, and whoever holds a stolen
    /// key must not get another one by being slow.
    pub(crate) async fn turn(&self, app: &App) -> Result<(Turn, Timestamp), Problem> {
        let turn = app.keys.turn(&**app.engine.store()).await?;
        let now = app.engine.clock().now();
        match self.actor {
            Actor::Key(id) => app.keys.check(id, now).map_err(refuse)?,
            Actor::Gateway | Actor::File => {}
        }
        Ok((turn, now))
    }
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        identify(parts, app)
    }
}

/// A caller that showed an admin key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admin(pub(crate) Caller);

impl FromRequestParts<Arc<App>> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let caller = identify(parts, app)?;
        match caller.role {
            Role::Admin => Ok(Self(caller)),
            Role::Tenant(_) => Err(Problem::forbidden("this needs an admin key")),
        }
    }
}

/// A hub that showed its token.
#[derive(Debug, Clone)]
pub(crate) struct Hub(pub(crate) HubRecord);

impl FromRequestParts<Arc<App>> for Hub {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let now = app.engine.clock().now();
        app.throttle.admit(&parts.extensions, now)?;
        let token = bearer(&parts.headers).ok_or_else(|| {
            Problem::unauthorized("send `Authorization: Bearer prh_…`, the token of a hub")
        })?;
        if token.starts_with(KEY_PREFIX) {
            return Err(Problem::unauthorized(
                "this is an API key, and a hub connects with its own token, `prh_…`",
            ));
        }
        app.engine.hub_of_token(token).map(Self).ok_or_else(|| {
            let unknown =
                "this hub token is not known: its hub has been deleted, or given another one";
            app.throttle.failed_login(&parts.extensions, now, unknown)
        })
    }
}

/// Put into a request by the dashboard: who signed in, with a key that was looked at just before. It
/// is no header: nothing that comes over a connection has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Within(pub(crate) Caller);

pub(crate) fn identify(parts: &Parts, app: &App) -> Result<Caller, Problem> {
    if let Some(Within(caller)) = parts.extensions.get() {
        return Ok(*caller);
    }
    let now = app.engine.clock().now();
    app.throttle.admit(&parts.extensions, now)?;
    let key = bearer(&parts.headers)
        .ok_or_else(|| Problem::unauthorized("send `Authorization: Bearer pr_…`"))?;
    let known = recognise(key, &parts.extensions, app, now)?;
    place(known, &parts.headers, &app.keys)
}

/// Whose key this is, shown by a request that was admitted. `about` says which address it is from.
pub(crate) fn recognise(
    key: &str,
    about: &Extensions,
    app: &App,
    now: Timestamp,
) -> Result<Known, Problem> {
    let known = app.keys.identify(key, now, app.throttle.per_key());
    known.map_err(|denied| match denied {
        // It is in the wrong place rather than a guess.
        Denied::Unknown if key.starts_with(HUB_TOKEN_PREFIX) => Problem::unauthorized(
            "this is the token of a hub, which opens /v1/hub and nothing else; send an API key, \
             `pr_…`",
        ),
        Denied::Unknown => app.throttle.failed_login(about, now, UNKNOWN_KEY),
        // Whoever shows a key that once was good is not guessing: it is not counted as a failed
        // login, which would shut out the new key beside it.
        other @ (Denied::Revoked | Denied::Expired | Denied::TooOften(_)) => refuse(other),
    })
}

const UNKNOWN_KEY: &str = "this key is not known";

pub(crate) fn refuse(denied: Denied) -> Problem {
    match denied {
        Denied::Unknown => Problem::unauthorized(UNKNOWN_KEY),
        Denied::Revoked => Problem::unauthorized("this key has been revoked"),
        Denied::Expired => Problem::unauthorized("this key has expired"),
        Denied::TooOften(wait) => {
            Problem::too_many("this key is used more often than it may be; go slower", wait)
        }
    }
}

/// Finds the tenant in which a key acts.
fn place(Known { id, role }: Known, headers: &HeaderMap, keys: &Keys) -> Result<Caller, Problem> {
    let named = match headers.get(TENANT_HEADER) {
        None => None,
        Some(name) => {
            let tenant = name.to_str().ok().and_then(|name| keys.tenant_named(name));
            Some(tenant)
        }
    };
    let reach = match (role, named) {
        (Role::Admin, None) => None,
        (Role::Admin, Some(tenant)) => Some(tenant.ok_or_else(|| Problem::not_found("tenant"))?),
        (Role::Tenant(own), None) => Some(own),
        (Role::Tenant(own), Some(Some(named))) if own == named => Some(own),
        (Role::Tenant(_), Some(_)) => {
            return Err(Problem::forbidden("the key of a tenant acts in its own tenant only"));
        }
    };
    let tenant = reach.unwrap_or(TenantId::DEFAULT);
    Ok(Caller { tenant, actor: Actor::Key(id), role, reach })
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}
