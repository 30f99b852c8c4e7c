//! Who is calling, and in which tenant.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use postrider_core::TenantId;
use postrider_store::registry::Role;

use crate::App;
use crate::keys::Keys;
use crate::problem::Problem;

/// The header by which an admin key says in which tenant it acts.
const TENANT_HEADER: &str = "postrider-tenant";

/// A caller that showed a key. Taken first by every handler that needs one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    /// Everything it reads and changes is in here.
    pub(crate) tenant: TenantId,
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        identify(&parts.headers, &app.keys)
    }
}

fn identify(headers: &HeaderMap, keys: &Keys) -> Result<Caller, Problem> {
    let key = bearer(headers)
        .ok_or_else(|| Problem::unauthorized("send `Authorization: Bearer pr_…`"))?;
    let role = keys.role(key).ok_or_else(|| Problem::unauthorized("this key is not known"))?;
    let named = match headers.get(TENANT_HEADER) {
        None => None,
        Some(name) => {
            let tenant = name.to_str().ok().and_then(|name| keys.tenant_named(name));
            Some(tenant)
        }
    };
    let tenant = match (role, named) {
        (Role::Admin, None) => TenantId::DEFAULT,
        (Role::Admin, Some(tenant)) => tenant.ok_or_else(|| Problem::not_found("tenant"))?,
        (Role::Tenant(own), None) => own,
        (Role::Tenant(own), Some(Some(named))) if own == named => own,
        (Role::Tenant(_), Some(_)) => {
            return Err(Problem::forbidden("the key of a tenant acts in its own tenant only"));
        }
    };
    Ok(Caller { tenant })
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}
