//! `/v1/stream`, `/v1/stats`, health and this description itself, described.

use serde_json::{Value, json};

use super::operation::{Operation, Tag};
use super::schema::{
    Named, about, answer, count, list_of, maybe, nullable, reference, text, words,
};

pub(crate) fn stream() -> Operation {
    let example = "id: 17\ndata: {\"id\":\"17\",\"topic\":\"gateway:webhooks\",\
                   \"kind\":\"delivery.dead\",\"at\":\"2026-01-31T12:00:00.000Z\",\
                   \"tenant\":\"default\",\"endpoint_id\":\"ep_0a1b2c3d4e5f6\",\
                   \"delivery_id\":\"dlv_0a1b2c3d4e5f6\",\"event_id\":\"evt_0a1b2c3d4e5f6\",\
                   \"correlation_id\":null,\"attempts\":10,\"reason\":\"exhausted\",\
                   \"last_error\":\"the endpoint answered 502\",\"next_attempt_at\":null}\n\n";
    Operation::new(
        Tag::Notices,
        "followStream",
        "Follow what happens",
        "Server-sent events, without an end: each has an `id` and, as `data`, a notice in JSON. \
         Comments come every 15 seconds so that a reader that went away is noticed. A reader that \
         falls too far behind gets an event `dropped` and the end of the stream; with \
         `Last-Event-ID` it goes on where it was, as long as that is remembered.\n\nKinds: \
         `delivery.delivered`, `delivery.retry_scheduled`, `delivery.failed`, `delivery.dead`, \
         `delivery.cancelled`, `endpoint.disabled`, `endpoint.breaker_opened`, \
         `endpoint.breaker_closed`, `source.signature_failed`, `hub.connected`, `hub.disconnected`.",
    )
    .query("topic", json!({ "const": "gateway:webhooks" }), "There is only this one.")
    .header(
        "Last-Event-ID",
        json!({ "type": "string", "pattern": "^[0-9]+$" }),
        "The id of the last notice that was seen.",
    )
    .answers(
        200,
        json!({
            "description": "Notices of the tenant, as they happen. `Notice` is the `data` of each.",
            "content": {
                "text/event-stream": {
                    "schema": { "type": "string", "contentMediaType": "text/event-stream" },
                    "example": example,
                    "x-data": reference("Notice"),
                },
            },
        }),
    )
}

pub(crate) fn stats() -> Operation {
    let example = json!({
        "events": 1,
        "deliveries": super::deliveries::counted(),
        "endpoints": [endpoint_stats()],
    });
    Operation::new(
        Tag::Notices,
        "showStats",
        "Count a tenant's events and deliveries",
        "All that are kept: what retention has removed is not counted any more.",
    )
    .gives(200, "The counts.", "Stats", &example)
}

pub(crate) fn alive() -> Operation {
    Operation::open(Tag::Meta, "healthz", "See that the process answers", "For whoever starts it.")
        .gives(200, "It does.", "Status", &json!({ "status": "ok" }))
}

pub(crate) fn ready() -> Operation {
    Operation::open(
        Tag::Meta,
        "readyz",
        "See that the gateway can work",
        "200 once the store answers and everything that was waiting has been loaded.",
    )
    .gives(200, "It can.", "Status", &json!({ "status": "ready" }))
    .refuses([500, 503])
}

pub(crate) fn document() -> Operation {
    Operation::open(
        Tag::Meta,
        "showDescription",
        "Fetch this description",
        "OpenAPI 3.1, made from the table of routes that is served.",
    )
    .answers(
        200,
        json!({
            "description": "The description.",
            "content": {
                "application/json": {
                    "schema": { "type": "object", "additionalProperties": true },
                    "example": { "openapi": "3.1.0" },
                },
            },
        }),
    )
}

pub(crate) fn page() -> Operation {
    let about = "Shows this description, and sends requests from the browser. It loads nothing \
                 from anywhere else.";
    file("showDocs", "Read this description", about, "text/html", "<!doctype html>")
}

pub(crate) fn page_style() -> Operation {
    let about = "Part of the page at `/docs`.";
    file("showDocsStyle", "Fetch the page's style", about, "text/css", ":root {}")
}

pub(crate) fn page_script() -> Operation {
    let about = "Part of the page at `/docs`.";
    file("showDocsScript", "Fetch the page's script", about, "text/javascript", "'use strict';")
}

fn file(
    id: &'static str,
    summary: &'static str,
    description: &'static str,
    content_type: &str,
    example: &str,
) -> Operation {
    let content = json!({ content_type: { "schema": { "type": "string" }, "example": example } });
    Operation::open(Tag::Meta, id, summary, description)
        .answers(200, json!({ "description": "The file.", "content": content }))
}

pub(super) fn endpoint_stats() -> Value {
    json!({
        "endpoint_id": "ep_0a1b2c3d4e5f6",
        "state": "active",
        "deliveries": super::deliveries::counted(),
        "health": { "in_flight": 0, "window": 0, "breaker": "closed", "hold_until": null },
    })
}

pub(super) fn schemas() -> Vec<Named> {
    vec![
        ("Notice", notice()),
        ("Stats", stats_schema()),
        ("EndpointStats", endpoint_stats_schema()),
        (
            "Status",
            answer(
                "That all is well.",
                json!({ "status": words(&["ok", "ready"], "It is.") }),
                &[],
            ),
        ),
    ]
}

fn notice() -> Value {
    let properties = json!({
        "id": text("Later notices have higher numbers."),
        "topic": { "const": "gateway:webhooks" },
        "kind": text("What happened."),
        "at": reference("Time"),
        "tenant": reference("TenantName"),
        "endpoint_id": about("EndpointId", "Where it is about one."),
        "source_id": about("SourceId", "Where it is about one."),
        "hub_id": about("HubId", "Where it is about one."),
        "delivery_id": about("DeliveryId", "Where it is about one, like all that follow."),
        "event_id": reference("EventId"),
        "correlation_id": {
            "type": ["string", "null"],
            "description": "The event's `metadata.session_id` or `metadata.correlation_id`.",
        },
        "attempts": count("Attempts that counted."),
        "reason": nullable(super::deliveries::reason()),
        "last_error": { "type": ["string", "null"] },
        "next_attempt_at": maybe("Time", "When it is tried again."),
        "detail": text("More about it."),
    });
    let sometimes = [
        "endpoint_id",
        "source_id",
        "hub_id",
        "delivery_id",
        "event_id",
        "correlation_id",
        "attempts",
        "reason",
        "last_error",
        "next_attempt_at",
        "detail",
    ];
    answer("Something that happened.", properties, &sometimes)
}

fn stats_schema() -> Value {
    let properties = json!({
        "events": count("How many events are kept."),
        "deliveries": reference("StateCounts"),
        "endpoints": list_of(reference("EndpointStats"), "By endpoint, the newest 1,000."),
    });
    answer("The counts of a tenant.", properties, &[])
}

fn endpoint_stats_schema() -> Value {
    let breaker = words(
        &["closed", "open", "half_open", "ramping"],
        "`open`: nothing is sent to it for the moment, because it fails.",
    );
    let health = json!({
        "in_flight": count("Deliveries under way, or in the hands of workers."),
        "window": count("Deliveries held in memory, ready to go."),
        "breaker": nullable(breaker),
        "hold_until": maybe("Time", "Until when the endpoint asked not to be called."),
    });
    let properties = json!({
        "endpoint_id": reference("EndpointId"),
        "state": reference("EndpointState"),
        "deliveries": reference("StateCounts"),
        "health": answer("How it is doing.", health, &[]),
    });
    answer("The counts of an endpoint.", properties, &[])
}
