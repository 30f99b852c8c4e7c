//! Doors for `postrider-fuzzing`: bodies, query strings and cursors, read as the handlers read them,
//! without a gateway around. Nothing else calls these.

use postrider_core::policy::{self, Policy, Presets};
use postrider_core::source::Secrets;
use postrider_core::{
    EndpointId, EventId, HubId, KeyId, Source, SourceId, TenantId, Timestamp, endpoint,
};
use postrider_store::ledger::Position;
use serde::Deserialize;
use serde_json::Value;

use crate::access::{self, After};
use crate::cursor::Cursor;
use crate::extract::{Nothing, Query, parse};
use crate::new_event::Envelope;
use crate::problem::Problem;
use crate::{
    ServerOptions, dead_letters, deliveries, endpoint_fields, endpoints, events, filters, hubs,
    leases, policies, source_fields, tenants,
};

/// The present, for what is judged by it.
const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// A body that some route takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    Event,
    Batch,
    EventReplay,
    Endpoint,
    EndpointChange,
    SecretRotation,
    Source,
    SourceChange,
    Hub,
    TokenRotation,
    DeadLetterReplay,
    DeadLetterPurge,
    PolicyPreview,
    FilterPreview,
    Lease,
    Ack,
    AckBatch,
    Nack,
    NackBatch,
    ReleaseBatch,
    Extension,
    ExtensionBatch,
    Key,
    KeyChange,
    Tenant,
    Nothing,
}

impl Body {
    pub const ALL: [Self; 26] = [
        Self::Event,
        Self::Batch,
        Self::EventReplay,
        Self::Endpoint,
        Self::EndpointChange,
        Self::SecretRotation,
        Self::Source,
        Self::SourceChange,
        Self::Hub,
        Self::TokenRotation,
        Self::DeadLetterReplay,
        Self::DeadLetterPurge,
        Self::PolicyPreview,
        Self::FilterPreview,
        Self::Lease,
        Self::Ack,
        Self::AckBatch,
        Self::Nack,
        Self::NackBatch,
        Self::ReleaseBatch,
        Self::Extension,
        Self::ExtensionBatch,
        Self::Key,
        Self::KeyChange,
        Self::Tenant,
        Self::Nothing,
    ];
}

/// A list that is given out in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    Events,
    Deliveries,
    Endpoints,
    Sources,
    Hubs,
    Keys,
    Tenants,
    Audit,
}

impl List {
    pub const ALL: [Self; 8] = [
        Self::Events,
        Self::Deliveries,
        Self::Endpoints,
        Self::Sources,
        Self::Hubs,
        Self::Keys,
        Self::Tenants,
        Self::Audit,
    ];
}

/// What the answer to something that was not taken says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub status: u16,
    pub detail: String,
    pub fields: Vec<String>,
}

/// Reads a body as its route does, as far as that goes without a gateway.
pub fn read(body: Body, json: &[u8]) -> Result<(), Refused> {
    let read = match body {
        Body::Event => parse::<Envelope<'_>>(json).and_then(|event| event.submit(NOW)).map(drop),
        Body::Batch => batch(json),
        Body::EventReplay => shape::<events::Replay>(json),
        Body::Endpoint => new_endpoint(json).map(drop),
        Body::EndpointChange => parse::<endpoint_fields::Fields>(json).and_then(changed_endpoint),
        Body::SecretRotation => shape::<endpoints::Rotation>(json),
        Body::Source => {
            parse::<source_fields::Fields>(json).and_then(|fields| fields.into_draft().map(drop))
        }
        Body::SourceChange => parse::<source_fields::Fields>(json)
            .and_then(|fields| fields.merge_into(&source()?).map(drop)),
        Body::Hub => shape::<hubs::NewHub>(json),
        Body::TokenRotation => shape::<hubs::Rotation>(json),
        Body::DeadLetterReplay => {
            parse::<dead_letters::Replay>(json).and_then(|replay| replay.read().map(drop))
        }
        Body::DeadLetterPurge => shape::<dead_letters::Purge>(json),
        Body::PolicyPreview => policy_preview(json),
        Body::FilterPreview => shape::<filters::Preview>(json),
        Body::Lease => {
            parse::<leases::Wish>(json).and_then(|wish| wish.of(EndpointId::from_i64(1)).map(drop))
        }
        Body::Ack => shape::<leases::Ack>(json),
        Body::AckBatch => shape::<leases::AckBatch>(json),
        Body::Nack => {
            parse::<leases::NackFields>(json).and_then(|nack| leases::check_nack(nack).map(drop))
        }
        Body::NackBatch => shape::<leases::NackBatch>(json),
        Body::ReleaseBatch => shape::<leases::ReleaseBatch>(json),
        Body::Extension => shape::<leases::Extension>(json),
        Body::ExtensionBatch => shape::<leases::ExtensionBatch>(json),
        Body::Key => shape::<access::NewKey>(json),
        Body::KeyChange => shape::<access::Change>(json),
        Body::Tenant => shape::<tenants::NewTenant>(json),
        Body::Nothing => shape::<Nothing>(json),
    };
    read.map_err(|problem| refused(&problem))
}

/// Reads the cursor of a list, and writes it as that list would.
pub fn cursor(list: List, text: &str) -> Result<String, Refused> {
    let again = match list {
        List::Events => again::<EventId>(text),
        List::Deliveries => again::<Position>(text),
        List::Endpoints => again::<EndpointId>(text),
        List::Sources => again::<SourceId>(text),
        List::Hubs => again::<HubId>(text),
        List::Keys => again::<After<KeyId>>(text),
        List::Tenants => again::<After<String>>(text),
        List::Audit => again::<After<u64>>(text),
    };
    again.map_err(|problem| refused(&problem))
}

/// Reads a query string as the list of deliveries does.
pub fn query(text: &str) -> Result<(), Refused> {
    let read = || {
        let mut query = Query::parse(text)?;
        deliveries::read_filter(&mut query)?;
        query.page::<Position>()?;
        query.finish()
    };
    read().map_err(|problem: Problem| refused(&problem))
}

/// What is refused further on needs a gateway, or has no rules of its own.
fn shape<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<(), Problem> {
    parse::<T>(json).map(drop)
}

fn batch(json: &[u8]) -> Result<(), Problem> {
    let limit = ServerOptions::default().event_limit_bytes;
    let batch = parse::<events::Batch<'_>>(json)?;
    batch.events.iter().try_for_each(|text| events::read_entry(text, limit, NOW).map(drop))
}

fn new_endpoint(json: &[u8]) -> Result<endpoint::Spec, Problem> {
    let mut fields = parse::<endpoint_fields::Fields>(json)?;
    let _ = (fields.secret.take(), fields.tls(None));
    let spec = fields.into_spec()?;
    // The engine would judge it so.
    build(&spec.policy)?;
    Ok(spec)
}

fn changed_endpoint(fields: endpoint_fields::Fields) -> Result<(), Problem> {
    let spec = new_endpoint(br#"{"url":"https://example.com/hooks","name":"billing"}"#)?;
    fields.merge_into(spec).map(drop)
}

fn source() -> Result<Source, Problem> {
    let json = br#"{"name":"billing","verify":{"scheme":"stripe","secret":"whsec_stripe"}}"#;
    let draft = parse::<source_fields::Fields>(json)?.into_draft()?;
    Ok(Source {
        id: SourceId::from_i64(1),
        tenant: TenantId(1),
        spec: draft.spec,
        secrets: Secrets { token: "token".to_owned(), signing: draft.signing },
        created_at: NOW,
        updated_at: NOW,
    })
}

fn policy_preview(json: &[u8]) -> Result<(), Problem> {
    let preview = parse::<policies::Preview>(json)?;
    // Whatever can be built can be planned.
    build(&preview.policy).map(|policy| drop(policy.plan()))
}

fn build(spec: &policy::Spec) -> Result<Policy, Problem> {
    spec.build(&Presets::default())
        .map_err(|invalid| Problem::invalid(format!("policy.{}", invalid.field), invalid.message))
}

fn again<C: Cursor>(text: &str) -> Result<String, Problem> {
    C::parse(text).map(|cursor| cursor.to_text())
}

/// As whoever asked would read it.
fn refused(problem: &Problem) -> Refused {
    let document = serde_json::to_value(problem).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let errors = document["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    Refused {
        status: document["status"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(0),
        detail: text(&document["detail"]),
        fields: errors.iter().map(|error| text(&error["field"])).collect(),
    }
}
