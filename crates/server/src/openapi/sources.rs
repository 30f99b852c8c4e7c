//! `/v1/sources` and `/in/{token}`, described.

use serde_json::{Value, json};

use super::operation::{Operation, Tag};
use super::schema::{
    Named, about, answer, count, maybe, maybe_text, nullable, page_of, reference, request, text,
    words,
};

const SOURCE: &str = "The source's id.";

pub(crate) fn create() -> Operation {
    Operation::new(
        Tag::Sources,
        "createSource",
        "Make a source",
        "The answer has the URL that the third party is to post to. What comes there is verified \
         as `verify` says, on its bytes, before anything reads them.\n\nWhere the type and the \
         dedup key of an event are found depends on the scheme unless it is said: GitHub's \
         `X-GitHub-Event` and `X-GitHub-Delivery`, Stripe's `/type` and `/id`, and so on.",
    )
    .takes(
        "NewSource",
        &json!({
            "name": "GitHub",
            "verify": { "scheme": "github", "secret": "a secret that GitHub has as well" },
            "on_invalid": "reject",
        }),
    )
    .gives(201, "The source, with its URL.", "Source", &shown())
    .refuses_when(409, "There are as many sources as are kept.")
}

pub(crate) fn list() -> Operation {
    let mut listed = shown();
    if let Some(fields) = listed.as_object_mut() {
        fields.remove("url");
    }
    Operation::new(
        Tag::Sources,
        "listSources",
        "List sources",
        "Newest first, without their URLs: whoever has one can post there.",
    )
    .page()
    .gives(
        200,
        "A page of sources.",
        "Sources",
        &json!({ "data": [listed], "next_cursor": null }),
    )
}

pub(crate) fn show() -> Operation {
    Operation::new(
        Tag::Sources,
        "showSource",
        "Show a source",
        "With its URL, and without its secrets, which are never shown.",
    )
    .path("id", "SourceId", SOURCE)
    .gives(200, "The source.", "Source", &shown())
}

pub(crate) fn change() -> Operation {
    Operation::new(
        Tag::Sources,
        "changeSource",
        "Change a source",
        "What is not said stays as it is; `null` is back to the usual, save that `dedup_from: null` \
         makes every webhook an event. To change a secret without losing a request, send `verify` \
         with both in `secrets`, the newest first, and later with the new one alone.",
    )
    .path("id", "SourceId", SOURCE)
    .takes("SourceChange", &json!({ "verify": { "secrets": ["the new one", "the old one"] } }))
    .gives(200, "The source as it is now.", "Source", &shown())
}

pub(crate) fn delete() -> Operation {
    Operation::new(
        Tag::Sources,
        "deleteSource",
        "Delete a source",
        "Its URL is dead at once. The events that came in by it stay.",
    )
    .path("id", "SourceId", SOURCE)
    .answers(204, json!({ "description": "It is gone." }))
}

pub(crate) fn rotate_token() -> Operation {
    Operation::new(
        Tag::Sources,
        "rotateToken",
        "Give a source a new URL",
        "The old one is dead at once.",
    )
    .path("id", "SourceId", SOURCE)
    .takes_nothing()
    .gives(200, "The source, with its new URL.", "Source", &shown())
}

fn ingest(id: &'static str, summary: &'static str, description: &'static str) -> Operation {
    Operation::open(Tag::Ingest, id, summary, description)
        .path("token", "SourceToken", "The last part of the source's URL.")
        .refuses([404, 500])
}

pub(crate) fn receive() -> Operation {
    receives("receiveWebhook", "Post a webhook")
}

pub(crate) fn receive_put() -> Operation {
    receives("receiveWebhookByPut", "Put a webhook")
}

fn receives(id: &'static str, summary: &'static str) -> Operation {
    ingest(
        id,
        summary,
        "For third parties. The body is kept byte for byte with its content type and its headers, \
         after its signature has been verified. The answer comes after the event is on disk; a \
         second webhook with the same dedup key is answered like the first. A provider's handshake \
         (Slack's `url_verification`) is answered as it wants.",
    )
    .takes_any(json!({
        "required": false,
        "description": "Anything.",
        "content": {
            "application/json": { "schema": {}, "example": { "type": "order.created" } },
            "application/octet-stream": { "schema": {}, "example": "any bytes" },
        },
    }))
    .gives(202, "Stored.", "Received", &json!({ "id": "evt_0a1b2c3d4e5f6" }))
    .answers(
        200,
        json!({
            "description": "The answer to a provider's handshake. Nothing was stored.",
            "content": { "text/plain": { "schema": { "type": "string" }, "example": "3eZbrw1a" } },
        }),
    )
    .refuses_when(401, "The signature does not hold, and the source rejects such requests.")
    .refuses_when(431, "There are more headers than are kept with an event.")
    .refuses([503, 508])
}

pub(crate) fn probe() -> Operation {
    ingest(
        "probeSource",
        "See that a source is there",
        "Some providers look whether a URL answers before they post to it. Nothing is stored.",
    )
    .gives(
        200,
        "There is a source.",
        "Probed",
        &json!({ "detail": "this is a source: webhooks are posted here" }),
    )
}

fn shown() -> Value {
    json!({
        "id": "src_0a1b2c3d4e5f6",
        "name": "GitHub",
        "verify": { "scheme": "github", "secrets": 1 },
        "on_invalid": "reject",
        "type_from": { "header": "x-github-event" },
        "dedup_from": { "header": "x-github-delivery" },
        "keep_headers": "all",
        "url": "/in/pX6hJ2m0cUuFqVb1yq3fJ8o3l8u4yS0Qm5m4r7bq0aE",
        "created_at": "2026-01-31T12:00:00.000Z",
        "updated_at": "2026-01-31T12:00:00.000Z",
    })
}

pub(super) fn schemas() -> Vec<Named> {
    let detail = json!({ "detail": text("For people.") });
    let received = json!({ "id": about("EventId", "Of the event, or of the one it repeats.") });
    vec![
        ("NewSource", request("A source to be made.", fields("Verify"), &["name", "verify"])),
        ("SourceChange", request("What is to be otherwise.", fields("VerifyChange"), &[])),
        ("Verify", request("How requests are verified.", verify(), &["scheme"])),
        (
            "VerifyChange",
            request(
                "With a `scheme` it says all there is to say, save that the secrets stay if it is \
                 the one the source has; without, it changes what it names.",
                verify(),
                &[],
            ),
        ),
        ("Place", place()),
        ("TypeFrom", type_from()),
        ("KeepHeaders", keep_headers()),
        ("Source", source()),
        ("Sources", page_of("Source")),
        (
            "SourceToken",
            json!({
                "type": "string",
                "pattern": "^[A-Za-z0-9_-]{43}$",
                "description": "What nobody can guess.",
            }),
        ),
        ("Received", answer("What a third party is told.", received, &[])),
        ("Probed", answer("That there is a source.", detail, &[])),
    ]
}

fn on_invalid() -> Value {
    words(
        &["reject", "mark"],
        "What to do when a signature does not hold: answer with 401 and store nothing, or store \
         the event with `verified: false`.",
    )
}

fn fields(verify: &str) -> Value {
    json!({
        "name": { "type": "string", "minLength": 1, "maxLength": 200, "description": "For people." },
        "verify": reference(verify),
        "on_invalid": nullable(on_invalid()),
        "type_from": maybe("TypeFrom", "Where the event's type is; by scheme if not said."),
        "dedup_from": maybe("Place", "What a repeated webhook is known by; by scheme if not said."),
        "keep_headers": maybe("KeepHeaders", "Which headers are kept; all if not said."),
    })
}

fn place() -> Value {
    json!({
        "description": "A header, or a JSON pointer (RFC 6901) into the body.",
        "oneOf": [in_header(), in_body()],
    })
}

fn type_from() -> Value {
    let fixed = json!({ "fixed": about("EventType", "Always this one.") });
    json!({
        "description": "A header, a JSON pointer into the body, or always the same.",
        "oneOf": [in_header(), in_body(), request("Always the same.", fixed, &["fixed"])],
    })
}

fn in_header() -> Value {
    let name = json!({ "header": { "type": "string", "pattern": "^[A-Za-z0-9-]+$" } });
    request("In a header.", name, &["header"])
}

fn in_body() -> Value {
    let pointer = json!({
        "json_pointer": { "type": "string", "pattern": "^/", "maxLength": 256 },
    });
    request("In the body.", pointer, &["json_pointer"])
}

fn keep_headers() -> Value {
    json!({
        "description": "`all` but those of the connection and credentials, or these.",
        "anyOf": [
            { "const": "all" },
            { "type": "array", "maxItems": 64, "items": { "type": "string" } },
        ],
    })
}

fn schemes() -> Value {
    words(
        &[
            "none", "standard", "stripe", "github", "slack", "shopify", "twilio", "linear",
            "paddle", "telegram", "hmac", "token",
        ],
        "How the third party signs. `hmac` and `token` are for those that have no scheme of their \
         own here.",
    )
}

/// The options of all schemes.
fn options() -> Value {
    json!({
        "scheme": schemes(),
        "tolerance": maybe("Duration", "How old a signature may be, where it has a time: 1s to 1d."),
        "header": maybe_text("`hmac`, `token`: the header that holds the signature or the token."),
        "query": maybe_text("`token`: the query parameter that holds it."),
        "authorization": nullable(words(&["bearer", "basic"], "`token`: in `Authorization`.")),
        "algorithm": nullable(words(&["sha1", "sha256", "sha512"], "`hmac`: the hash.")),
        "encoding": nullable(words(&["hex", "base64", "base64url"], "`hmac`: how it is written.")),
        "prefix": maybe_text("`hmac`, `token`: what stands before it, like `sha256=`."),
        "signed": maybe_text("`hmac`: what is signed, like `{timestamp}.{body}`."),
        "timestamp": {
            "description": "`hmac`: where the time stands that is signed along.",
            "anyOf": [
                request(
                    "A time in a header.",
                    json!({
                        "header": { "type": "string" },
                        "format": words(&["unix", "unix_ms", "rfc3339"], "How it is written."),
                        "tolerance": nullable(reference("Duration")),
                    }),
                    &["header"],
                ),
                { "type": "null" },
            ],
        },
    })
}

fn verify() -> Value {
    let mut properties = options();
    properties["secret"] = json!({
        "type": "string",
        "minLength": 1,
        "maxLength": 512,
        "description": "What the third party signs with. Not for the scheme `none`.",
    });
    properties["secrets"] = json!({
        "type": "array",
        "maxItems": 8,
        "items": { "type": "string", "minLength": 1, "maxLength": 512 },
        "description": "Several that are live, the newest first, in place of `secret`.",
    });
    properties
}

fn source() -> Value {
    let mut verify = options();
    verify["secrets"] = count("How many are live. They are never shown.");
    let names: Vec<String> = verify
        .as_object()
        .into_iter()
        .flat_map(|fields| fields.keys())
        .filter(|name| !["scheme", "secrets"].contains(&name.as_str()))
        .cloned()
        .collect();
    let sometimes: Vec<&str> = names.iter().map(String::as_str).collect();
    let properties = json!({
        "id": reference("SourceId"),
        "name": text("For people."),
        "verify": answer("How requests are verified.", verify, &sometimes),
        "on_invalid": on_invalid(),
        "type_from": reference("TypeFrom"),
        "dedup_from": maybe("Place", "What a repeated webhook is known by; none: by nothing."),
        "keep_headers": reference("KeepHeaders"),
        "url": text("Where the third party posts. Not in lists."),
        "created_at": reference("Time"),
        "updated_at": reference("Time"),
    });
    answer("An inbound URL.", properties, &["url"])
}
