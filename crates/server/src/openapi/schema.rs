//! The words that schemas are made of, and the schemas that all parts of the API share.

use postrider_core::pattern::MAX_TYPE_BYTES;
use postrider_core::{DeliveryId, EndpointId, EventId, HubId, JobId, KeyId, SourceId};
use serde_json::{Value, json};

/// A schema and its name.
pub(super) type Named = (&'static str, Value);

/// The longest idempotency or ordering key, in characters.
const MAX_KEY_CHARS: usize = 255;

pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// A reference that says more than the schema it leads to.
pub(super) fn about(name: &str, description: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}"), "description": description })
}

pub(super) fn nullable(schema: Value) -> Value {
    let choices = [schema, json!({ "type": "null" })];
    json!({ "anyOf": choices })
}

/// A time, id or the like that may be `null`, and what that means.
pub(super) fn maybe(name: &str, description: &str) -> Value {
    json!({ "anyOf": [reference(name), { "type": "null" }], "description": description })
}

pub(super) fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

pub(super) fn maybe_text(description: &str) -> Value {
    json!({ "type": ["string", "null"], "description": description })
}

pub(super) fn count(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": description })
}

pub(super) fn flag(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

pub(super) fn number(description: &str) -> Value {
    json!({ "type": "number", "description": description })
}

pub(super) fn words(words: &[&str], description: &str) -> Value {
    json!({ "type": "string", "enum": words, "description": description })
}

pub(super) fn list_of(items: Value, description: &str) -> Value {
    let mut list = json!({ "type": "array", "description": description });
    list["items"] = items;
    list
}

/// What is answered: every property is there, save those that are named.
pub(super) fn answer(description: &str, properties: Value, sometimes: &[&str]) -> Value {
    let always: Vec<&str> = names(&properties).filter(|name| !sometimes.contains(name)).collect();
    let mut schema = json!({ "type": "object", "description": description, "required": always });
    schema["properties"] = properties;
    schema
}

/// What is taken: nothing but these properties, and at least those that are named.
pub(super) fn request(description: &str, properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({
        "type": "object",
        "description": description,
        "additionalProperties": false,
    });
    schema["properties"] = properties;
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// One page of a list.
pub(super) fn page_of(name: &str) -> Value {
    let properties = json!({
        "data": list_of(reference(name), "The entries."),
        "next_cursor": maybe_text("Where the next page starts; none after the last one."),
    });
    answer("One page of a list.", properties, &[])
}

fn names(properties: &Value) -> impl Iterator<Item = &str> {
    properties.as_object().into_iter().flat_map(|fields| fields.keys().map(String::as_str))
}

/// Thirteen digits of base 32, which hold 63 bits.
fn id(prefix: &str, of: &str) -> Value {
    json!({
        "type": "string",
        "description": format!("The id of {of}. Ids sort by time."),
        "pattern": format!("^{prefix}[0-7][0-9a-hjkmnp-tv-z]{{12}}$"),
        "examples": [format!("{prefix}0a1b2c3d4e5f6")],
    })
}

pub(super) fn shared() -> Vec<Named> {
    vec![
        ("EventId", id(EventId::PREFIX, "an event")),
        ("DeliveryId", id(DeliveryId::PREFIX, "a delivery")),
        ("EndpointId", id(EndpointId::PREFIX, "an endpoint")),
        ("SourceId", id(SourceId::PREFIX, "a source")),
        ("HubId", id(HubId::PREFIX, "a hub")),
        ("JobId", id(JobId::PREFIX, "a job")),
        ("KeyId", id(KeyId::PREFIX, "a key, which is not the key itself")),
        (
            "AttemptId",
            json!({
                "type": "string",
                "description": "The id of an attempt: its delivery's, and its number.",
                "pattern": "^att_[0-7][0-9a-hjkmnp-tv-z]{12}[0-9]{4,}$",
            }),
        ),
        (
            "Time",
            json!({
                "type": "string",
                "format": "date-time",
                "description": "RFC 3339. Answers are in UTC, to the millisecond.",
                "examples": ["2026-01-31T12:00:00.000Z"],
            }),
        ),
        (
            "Duration",
            json!({
                "type": "string",
                "description": "Whole numbers with the units d, h, m, s and ms, the longest first.",
                "pattern": "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
                "minLength": 2,
                "maxLength": 64,
                "examples": ["500ms", "30s", "1h30m", "7d"],
            }),
        ),
        (
            "EventType",
            json!({
                "type": "string",
                "description": "Parts with dots between them. Those that begin with `postrider.` \
                    are the gateway's own.",
                "pattern": "^[A-Za-z0-9_/:-]+(\\.[A-Za-z0-9_/:-]+)*$",
                "maxLength": MAX_TYPE_BYTES,
                "examples": ["order.created"],
            }),
        ),
        (
            "EventTypePattern",
            json!({
                "type": "string",
                "description": "An event type; `order.*` for every type that goes on after the dot; \
                    or `*` for every type but those that begin with `postrider.`.",
                "pattern": "^(\\*|[A-Za-z0-9_/:-]+(\\.[A-Za-z0-9_/:-]+)*(\\.\\*)?)$",
                "maxLength": MAX_TYPE_BYTES + 2,
                "examples": ["order.created", "order.*", "*"],
            }),
        ),
        (
            "VisibleKey",
            json!({
                "type": "string",
                "description": "Visible characters without spaces.",
                "pattern": "^\\S+$",
                "minLength": 1,
                "maxLength": MAX_KEY_CHARS,
            }),
        ),
        (
            "Metadata",
            json!({
                "type": "object",
                "description": "Whatever you like to keep with it; at most 16 KiB.",
                "additionalProperties": true,
            }),
        ),
        (
            "TenantName",
            json!({
                "type": "string",
                "description": "The name of a tenant.",
                "pattern": "^[a-z0-9][a-z0-9_-]*$",
                "maxLength": 63,
                "examples": ["default"],
            }),
        ),
        ("Nothing", request("No settings.", json!({}), &[])),
        ("Problem", problem()),
    ]
}

fn problem() -> Value {
    let error = json!({
        "field": text("The field, parameter or header, as in `policy.schedule.list[1]`."),
        "message": text("What is wrong with it."),
    });
    let properties = json!({
        "type": {
            "type": "string",
            "pattern": "^urn:postrider:problem:[a-z-]+$",
            "description": "What kind of problem it is.",
        },
        "title": text("The kind in words."),
        "status": json!({ "type": "integer", "minimum": 400, "maximum": 599 }),
        "detail": text("What it was this time, as a sentence to act on."),
        "errors": list_of(answer("A field at fault.", error, &[]), "The fields at fault."),
    });
    answer("Why a request was not served (RFC 9457).", properties, &[])
}
