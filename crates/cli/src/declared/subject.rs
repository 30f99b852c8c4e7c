//! What a piece of a plan is about, and what it is called: in a file, in the API, to people.

use std::fmt;

use postrider_core::{EndpointId, HubId, SourceId};
use postrider_store::declarations::DeclaredKind;

use crate::config::declared::{Item, Kind};
use crate::output::inert;

/// One thing: its kind, whose it is, and its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Subject {
    pub(super) kind: Kind,
    /// None is the tenant `default`.
    pub(super) tenant: Option<String>,
    pub(super) name: String,
}

impl Subject {
    pub(super) fn of(item: &Item) -> Self {
        let Item { kind, tenant, name, .. } = item;
        Self { kind: *kind, tenant: tenant.clone(), name: name.clone() }
    }

    /// Another thing of the same tenant.
    pub(super) fn beside(&self, kind: Kind, name: &str) -> Self {
        Self { kind, tenant: self.tenant.clone(), name: name.to_owned() }
    }

    /// Where a field of it stands in a file; the field may be empty.
    pub(super) fn key(&self, field: &str) -> String {
        let table = match self.kind {
            Kind::Tenant => "tenants",
            Kind::Hub => "hubs",
            Kind::Source => "sources",
            Kind::Endpoint => "endpoints",
        };
        let name = quoted(&self.name);
        let key = match &self.tenant {
            Some(tenant) => format!("tenants.{}.{table}.{name}", quoted(tenant)),
            None => format!("{table}.{name}"),
        };
        if field.is_empty() { key } else { format!("{key}.{}", field.escape_debug()) }
    }
}

/// As a plan names it: `endpoint billing`, `endpoint crm of acme`.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, tenant, name } = self;
        write!(f, "{} {}", word(*kind), inert(name))?;
        match tenant {
            Some(tenant) => write!(f, " of {}", inert(tenant)),
            None => Ok(()),
        }
    }
}

pub(super) const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Tenant => "tenant",
        Kind::Hub => "hub",
        Kind::Source => "source",
        Kind::Endpoint => "endpoint",
    }
}

/// Where the API has them.
pub(super) const fn path(kind: Kind) -> &'static str {
    match kind {
        Kind::Tenant => "/v1/tenants",
        Kind::Hub => "/v1/hubs",
        Kind::Source => "/v1/sources",
        Kind::Endpoint => "/v1/endpoints",
    }
}

/// How a store calls the kind; tenants stay, and so nothing is noted of them.
pub(super) const fn stored(kind: Kind) -> Option<DeclaredKind> {
    match kind {
        Kind::Tenant => None,
        Kind::Hub => Some(DeclaredKind::Hub),
        Kind::Source => Some(DeclaredKind::Source),
        Kind::Endpoint => Some(DeclaredKind::Endpoint),
    }
}

pub(super) const fn kind_of(stored: DeclaredKind) -> Kind {
    match stored {
        DeclaredKind::Hub => Kind::Hub,
        DeclaredKind::Source => Kind::Source,
        DeclaredKind::Endpoint => Kind::Endpoint,
    }
}

/// The number of an id as the API writes it.
pub(super) fn number(kind: DeclaredKind, id: &str) -> Option<i64> {
    match kind {
        DeclaredKind::Hub => id.parse::<HubId>().ok().map(HubId::as_i64),
        DeclaredKind::Source => id.parse::<SourceId>().ok().map(SourceId::as_i64),
        DeclaredKind::Endpoint => id.parse::<EndpointId>().ok().map(EndpointId::as_i64),
    }
}

/// A key as a file of TOML has it.
fn quoted(key: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
    if !key.is_empty() && key.chars().all(plain) {
        key.to_owned()
    } else {
        format!("\"{}\"", key.escape_debug())
    }
}
