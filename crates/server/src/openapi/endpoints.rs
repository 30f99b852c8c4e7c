//! `/v1/endpoints`, described.

use serde_json::{Value, json};

use super::operation::{Operation, Tag};
use super::schema::{
    Named, about, answer, flag, list_of, maybe, maybe_text, nullable, page_of, reference, request,
    text, words,
};

const ENDPOINT: &str = "The endpoint's id.";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

pub(crate) fn create() -> Operation {
    let mut made = shown();
    made["secret"] = SECRET.into();
    Operation::new(
        Tag::Endpoints,
        "createEndpoint",
        "Make an endpoint",
        "From now on every event that matches `event_types`, `sources` and `filter` is delivered \
         to `url` by a POST with the event's bytes, signed as Standard Webhooks has it unless \
         `signing` says otherwise. Any 2xx is success; `policy` says what happens else.\n\nIn place \
         of `url` a `command` is run, a `hub` forwards, or, with `pull`, workers come and take \
         (see Pull).\n\nThe \
         signing secret is in this answer, and in that of `GET …/secret`, and nowhere else. Only \
         public addresses are taken as destinations, unless the operator has allowed others.",
    )
    .takes(
        "NewEndpoint",
        &json!({
            "name": "orders to the warehouse",
            "url": "https://warehouse.example.com/hooks",
            "event_types": ["order.*"],
            "policy": "standard",
            "ordering": "fifo_by_key",
        }),
    )
    .gives(201, "The endpoint, with its secret.", "Endpoint", &made)
}

pub(crate) fn list() -> Operation {
    Operation::new(
        Tag::Endpoints,
        "listEndpoints",
        "List endpoints",
        "Newest first, without their secrets.",
    )
    .page()
    .gives(
        200,
        "A page of endpoints.",
        "Endpoints",
        &json!({ "data": [shown()], "next_cursor": null }),
    )
}

pub(crate) fn show() -> Operation {
    Operation::new(
        Tag::Endpoints,
        "showEndpoint",
        "Show an endpoint",
        "What was said of it, and its state, without its secret.",
    )
    .path("id", "EndpointId", ENDPOINT)
    .gives(200, "The endpoint.", "Endpoint", &shown())
}

pub(crate) fn change() -> Operation {
    Operation::new(
        Tag::Endpoints,
        "changeEndpoint",
        "Change an endpoint",
        "What is not said stays as it is; `null` is back to the usual. Deliveries that wait go by \
         the new settings from now on. One of `url`, `command`, `hub` and `pull` takes the place of \
         the one before. The secret is changed by `POST …/rotate-secret`.",
    )
    .path("id", "EndpointId", ENDPOINT)
    .takes("EndpointChange", &json!({ "max_in_flight": 4, "policy": { "preset": "edge" } }))
    .gives(200, "The endpoint as it is now.", "Endpoint", &shown())
}

pub(crate) fn preview() -> Operation {
    Operation::new(
        Tag::Endpoints,
        "previewEndpoint",
        "Check an endpoint before making it",
        "Takes what making an endpoint takes and refuses what making it would refuse. Nothing is \
         made and nothing is sent.",
    )
    .takes("NewEndpoint", &json!({ "url": "https://warehouse.example.com/hooks" }))
    .gives(200, "It could be made.", "EndpointPreviewed", &json!({ "ok": true }))
}

pub(crate) fn preview_change() -> Operation {
    Operation::new(
        Tag::Endpoints,
        "previewEndpointChange",
        "Check a change of an endpoint before making it",
        "Takes what changing the endpoint takes and refuses what changing it would refuse. Nothing \
         is changed.",
    )
    .path("id", "EndpointId", ENDPOINT)
    .takes("EndpointChange", &json!({ "max_in_flight": 4 }))
    .gives(200, "It could be changed like this.", "EndpointPreviewed", &json!({ "ok": true }))
}

pub(crate) fn delete() -> Operation {
    Operation::new(
        Tag::Endpoints,
        "deleteEndpoint",
        "Delete an endpoint",
        "What is unfinished is cancelled; its history stays until retention removes it.",
    )
    .path("id", "EndpointId", ENDPOINT)
    .answers(204, json!({ "description": "It is gone." }))
}

pub(crate) fn pause() -> Operation {
    let operation = Operation::new(
        Tag::Endpoints,
        "pauseEndpoint",
        "Pause an endpoint",
        "It goes on taking events in and keeping them, and sends nothing until it is resumed.",
    );
    acts(operation, "It is disabled; enable it first.")
}

pub(crate) fn resume() -> Operation {
    let operation = Operation::new(
        Tag::Endpoints,
        "resumeEndpoint",
        "Resume a paused endpoint",
        "What has waited goes out, oldest first.",
    );
    acts(operation, "It is disabled; enable it first.")
}

pub(crate) fn enable() -> Operation {
    let operation = Operation::new(
        Tag::Endpoints,
        "enableEndpoint",
        "Enable a disabled endpoint",
        "Brings back an endpoint that was disabled automatically, because it answered 410 or has \
         failed for days. What has waited goes out, oldest first.",
    );
    acts(operation, "It is paused; resume it instead.")
}

fn acts(operation: Operation, conflict: &str) -> Operation {
    operation
        .path("id", "EndpointId", ENDPOINT)
        .takes_nothing()
        .gives(200, "The endpoint as it is now.", "Endpoint", &shown())
        .refuses_when(409, conflict)
}

pub(crate) fn test() -> Operation {
    let mut tried = super::deliveries::tried();
    tried["id"] = Value::Null;
    tried["counted"] = false.into();
    Operation::new(
        Tag::Endpoints,
        "testEndpoint",
        "Send a sample event to an endpoint",
        "Makes one attempt, whatever state the endpoint is in, and answers with it, whatever came \
         of it. Nothing is stored and nothing is retried.",
    )
    .path("id", "EndpointId", ENDPOINT)
    .takes_nothing()
    .gives(200, "The attempt.", "Attempt", &tried)
    .refuses_when(409, "Its hub is not connected, or workers come for what it has.")
}

pub(crate) fn rotate_secret() -> Operation {
    Operation::new(
        Tag::Endpoints,
        "rotateSecret",
        "Give an endpoint a new secret",
        "The new secret signs from now on; the old ones go on signing beside it for `overlap` (a \
         day if not said), so that the receiver can change over without losing a request.",
    )
    .path("id", "EndpointId", ENDPOINT)
    .may_take("SecretRotation", &json!({ "overlap": "24h" }))
    .gives(200, "All live secrets, the newest first.", "Secrets", &secrets())
}

pub(crate) fn secret() -> Operation {
    Operation::new(
        Tag::Endpoints,
        "showSecret",
        "Show an endpoint's secrets",
        "What the receiver verifies with.",
    )
    .path("id", "EndpointId", ENDPOINT)
    .gives(200, "All live secrets, the newest first.", "Secrets", &secrets())
}

pub(crate) fn stats() -> Operation {
    Operation::new(
        Tag::Endpoints,
        "showEndpointStats",
        "Count an endpoint's deliveries",
        "How many deliveries are in which state, and how the endpoint is doing at the moment.",
    )
    .path("id", "EndpointId", ENDPOINT)
    .gives(200, "The counts.", "EndpointStats", &super::meta::endpoint_stats())
}

fn secrets() -> Value {
    json!({
        "secret": SECRET,
        "secrets": [
            { "secret": SECRET, "expires_at": null },
            { "secret": "whsec_C2FVsBQIhrscChlQIMV-b5sSYspob7oD", "expires_at": "2026-02-01T12:00:00.000Z" },
        ],
    })
}

fn shown() -> Value {
    json!({
        "id": "ep_0a1b2c3d4e5f6",
        "name": "orders to the warehouse",
        "url": "https://warehouse.example.com/hooks",
        "event_types": ["order.*"],
        "sources": [],
        "filter": null,
        "policy": "standard",
        "ordering": "fifo_by_key",
        "rate_limit": null,
        "max_in_flight": null,
        "timeout": null,
        "headers": {},
        "signing": { "scheme": "standard" },
        "format": null,
        "metadata": {},
        "state": "active",
        "created_at": "2026-01-31T12:00:00.000Z",
        "updated_at": "2026-01-31T12:00:00.000Z",
    })
}

pub(super) fn schemas() -> Vec<Named> {
    vec![
        ("NewEndpoint", new_endpoint()),
        ("EndpointChange", endpoint_change()),
        ("Endpoint", endpoint()),
        ("Endpoints", page_of("Endpoint")),
        (
            "EndpointPreviewed",
            answer("Nothing stands against it.", json!({ "ok": { "const": true } }), &[]),
        ),
        (
            "EndpointState",
            words(
                &["active", "paused", "disabled", "deleted"],
                "`paused` by an operator, `disabled` automatically; both keep what is accepted.",
            ),
        ),
        ("Ordering", ordering()),
        ("RateLimit", rate_limit()),
        ("Signing", signing()),
        ("Format", format()),
        ("SecretRotation", rotation()),
        ("Secrets", secrets_schema()),
    ]
}

/// What can be said of an endpoint, when it is made and when it is changed.
fn fields() -> Value {
    json!({
        "name": { "type": ["string", "null"], "maxLength": 200, "description": "For people." },
        "url": {
            "type": "string",
            "pattern": "^https?://",
            "description": "Where deliveries go: http or https, without a user name in it.",
            "examples": ["https://warehouse.example.com/hooks"],
        },
        "command": {
            "type": "array",
            "minItems": 1,
            "maxItems": 64,
            "items": { "type": "string", "maxLength": 4096 },
            "description": "A program to run for each delivery, by its whole path, and its \
                arguments: the event's bytes on its input, what is known of it in `POSTRIDER_…` \
                variables; 0 is success, 69, 71, 74 and 75 may pass, any other from 64 to 78 is \
                final, all else as `network` in the policy. Only programs that the operator \
                allows, and instead of `url`.",
            "examples": [["/usr/local/bin/page-somebody", "--quietly"]],
        },
        "hub": about("HubId", "A hub that forwards deliveries to where it is, in place of `url`."),
        "pull": {
            "type": ["boolean", "null"],
            "description": "`true`: nothing is sent, workers come and lease, in place of `url`.",
        },
        "event_types": {
            "type": ["array", "null"],
            "minItems": 1,
            "maxItems": 100,
            "items": reference("EventTypePattern"),
            "description": "Which events; every type if not said.",
        },
        "sources": {
            "type": ["array", "null"],
            "maxItems": 100,
            "items": reference("SourceId"),
            "description": "Only events that came in by one of these; empty is any event.",
        },
        "filter": maybe_text("An expression in CEL that an event has to meet."),
        "policy": nullable(reference("Policy")),
        "ordering": maybe("Ordering", "`none` if not said, save that `edge` keeps `fifo`."),
        "rate_limit": nullable(reference("RateLimit")),
        "max_in_flight": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": 1000,
            "description": "How many deliveries may be under way at once.",
        },
        "timeout": maybe("Duration", "For one attempt in all: 100ms to 1m."),
        "headers": {
            "type": ["object", "null"],
            "maxProperties": 50,
            "additionalProperties": { "type": "string", "maxLength": 4096 },
            "description": "Sent with every attempt. Those that the gateway sends are refused.",
        },
        "signing": nullable(reference("Signing")),
        "format": maybe("Format", "How an event is written; its bytes as they are if not said."),
        "metadata": maybe("Metadata", "Kept with the endpoint; not sent."),
        "tls": {
            "description": "Certificates for this endpoint, as PEM. Said at all, it is said whole.",
            "anyOf": [
                request(
                    "Certificates as PEM.",
                    json!({
                        "client_cert": maybe_text("What the gateway shows."),
                        "client_key": maybe_text("Its private key; never shown again."),
                        "ca": maybe_text("Authorities trusted beside the public ones."),
                    }),
                    &[],
                ),
                { "type": "null" },
            ],
        },
    })
}

fn new_endpoint() -> Value {
    let mut properties = fields();
    properties["secret"] =
        maybe_text("The signing secret; a new one is made if not said. Refused once it exists.");
    let mut schema = request("An endpoint to be made.", properties, &[]);
    let pulled = json!({ "required": ["pull"], "properties": { "pull": { "const": true } } });
    let others = ["url", "command", "hub"].map(|field| json!({ "required": [field] }));
    let one: Vec<Value> = others.into_iter().chain([pulled]).collect();
    schema["oneOf"] = one.into();
    schema
}

fn endpoint_change() -> Value {
    request("What is to be otherwise.", fields(), &[])
}

fn endpoint() -> Value {
    let tls = json!({
        "client_cert": maybe_text("What the gateway shows."),
        "has_client_key": flag("Whether it has a private key for it."),
        "ca": maybe_text("Authorities trusted beside the public ones."),
    });
    let properties = json!({
        "id": reference("EndpointId"),
        "name": maybe_text("For people."),
        "url": text("Where deliveries go."),
        "command": list_of(json!({ "type": "string" }), "The program that is run, if it is one."),
        "hub": about("HubId", "The hub that forwards, if one does."),
        "pull": { "const": true, "description": "Workers come and lease." },
        "handler": text("The function of the embedding program that is called, if one is."),
        "event_types": list_of(reference("EventTypePattern"), "Which events."),
        "sources": list_of(reference("SourceId"), "Only events by one of these; empty is any."),
        "filter": maybe_text("An expression in CEL that an event has to meet."),
        "policy": reference("Policy"),
        "ordering": reference("Ordering"),
        "rate_limit": nullable(reference("RateLimit")),
        "max_in_flight": { "type": ["integer", "null"], "minimum": 1 },
        "timeout": nullable(reference("Duration")),
        "headers": { "type": "object", "additionalProperties": { "type": "string" } },
        "signing": reference("Signing"),
        "format": maybe("Format", "How an event is written; none: its bytes as they are."),
        "tls": answer("Certificates as PEM; the key is not shown.", tls, &[]),
        "metadata": reference("Metadata"),
        "state": reference("EndpointState"),
        "created_at": reference("Time"),
        "updated_at": reference("Time"),
        "secret": text("The signing secret. Only in the answer that made it."),
    });
    let sometimes = ["url", "command", "hub", "pull", "handler", "tls", "secret"];
    answer("A subscription.", properties, &sometimes)
}

fn ordering() -> Value {
    words(
        &["none", "fifo", "fifo_by_key"],
        "`fifo`: the next event starts when the one before it has ended. `fifo_by_key`: the same \
         among events that share an ordering key.",
    )
}

fn rate_limit() -> Value {
    let properties = json!({
        "per_second": { "type": "number", "exclusiveMinimum": 0, "maximum": 100_000 },
        "burst": { "type": "integer", "minimum": 1, "maximum": 100_000, "default": 1 },
    });
    request("How often to send. Waiting for it costs no attempt.", properties, &["per_second"])
}

fn signing() -> Value {
    let properties = json!({
        "scheme": words(
            &["standard", "ed25519", "sha256_hex", "none"],
            "Standard Webhooks, symmetric or with a key pair; or `sha256=<hex>` in a header.",
        ),
        "header": maybe_text("The header of `sha256_hex`; `X-Signature` if not said."),
    });
    request("How requests are signed.", properties, &["scheme"])
}

fn format() -> Value {
    let chat = json!({
        "chat_id": { "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^\\S+$" },
    });
    let chat = json!({ "telegram": request("A chat.", chat, &["chat_id"]) });
    json!({
        "description": "A message for people in place of the event's bytes: as Slack and those \
            compatible with it take it, or as `sendMessage` of a Telegram bot does.",
        "anyOf": [{ "const": "slack" }, request("A Telegram bot.", chat, &["telegram"])],
    })
}

fn rotation() -> Value {
    let properties = json!({
        "overlap": maybe("Duration", "How long the old secrets go on signing; at most 30d."),
        "secret": maybe_text("The new secret; one is made if not said."),
    });
    request("How to change over.", properties, &[])
}

fn secrets_schema() -> Value {
    let secret = json!({
        "secret": text("As the receiver takes it."),
        "expires_at": maybe("Time", "When it stops signing."),
    });
    let properties = json!({
        "secret": maybe_text("The newest one."),
        "public_key": text("What asymmetric signatures are verified with."),
        "secrets": list_of(answer("A secret.", secret, &[]), "All that sign, the newest first."),
    });
    answer("What an endpoint's requests are signed with.", properties, &["public_key"])
}
