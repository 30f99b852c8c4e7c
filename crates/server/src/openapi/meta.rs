//! `/v1/stream`, `/v1/stats`, `/v1/nodes`, health and this description itself, described.

use serde_json::{Value, json};

use super::operation::{Operation, Tag};
use super::schema::{
    Named, about, answer, count, flag, list_of, maybe, maybe_text, nullable, number, reference,
    text, words,
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
         `Last-Event-ID` it goes on where it was, as long as that is remembered. Where several nodes \
         share a store, any of them shows the notices of all, and a reader that goes on may be shown \
         a notice again: it has the id that it had before.\n\nKinds: \
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

pub(crate) fn nodes() -> Operation {
    let node = json!({
        "id": "node_3",
        "name": "gateway-a",
        "version": env!("CARGO_PKG_VERSION"),
        "address": "10.0.0.5:8080",
        "live": true,
        "joined_at": "2026-01-31T12:00:00.000Z",
        "seen_at": "2026-01-31T12:03:00.000Z",
        "until": "2026-01-31T12:03:10.000Z",
        "lanes": [0, 5],
        "hubs": ["hub_0a1b2c3d4e5f6"],
        "in_flight": 4,
        "lag_seconds": 0.0,
    });
    Operation::new(
        Tag::Meta,
        "listNodes",
        "List the nodes that share the store",
        "Needs an admin key. Those that live and those that ended within the last hour, in the order \
         in which they joined, and what each of them carries. Where the store has one node at a \
         time, there are none.",
    )
    .gives(200, "The nodes.", "Nodes", &json!({ "me": "node_3", "lanes": 64, "nodes": [node] }))
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
        "200 once the store answers and everything that was waiting has been loaded; where several \
         nodes share the store, while this is one of them.",
    )
    .gives(200, "It can.", "Status", &json!({ "status": "ready" }))
    .refuses([500, 503])
}

pub(crate) fn metrics() -> Operation {
    let example = "# HELP postrider_ready 1 while the store answers.\n\
                   # TYPE postrider_ready gauge\npostrider_ready 1\n";
    Operation::open(
        Tag::Meta,
        "showMetrics",
        "Read the metrics",
        "In the text format of Prometheus. It needs no key: it names no tenant, no endpoint and \
         nothing else that comes from outside, only sums over all of them, and has the same number \
         of series however many there are. What only the store knows is at most five seconds old.",
    )
    .answers(
        200,
        json!({
            "description": "The metrics.",
            "content": {
                "text/plain": { "schema": { "type": "string" }, "example": example },
            },
        }),
    )
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
        ("Nodes", nodes_schema()),
        ("Node", node_schema()),
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
        "endpoints": list_of(
            reference("EndpointStats"),
            "By endpoint, the newest 1,000. Of those that another node carries, what is in flight \
             counts as waiting, and the breaker is not known: each has its own stats.",
        ),
    });
    answer("The counts of a tenant.", properties, &[])
}

fn nodes_schema() -> Value {
    let properties = json!({
        "me": maybe_text("The one that answers; none where the store has one node at a time."),
        "lanes": count("How many parts there are to share."),
        "nodes": list_of(reference("Node"), "In the order in which they joined."),
    });
    answer("Who shares the store.", properties, &[])
}

fn node_schema() -> Value {
    let lane = json!({ "type": "integer", "minimum": 0 });
    let properties = json!({
        "id": text("Given anew at every start."),
        "name": text("For people."),
        "version": text("What it runs."),
        "address": text("Where it listens, for people."),
        "live": flag("Whether it is believed to run."),
        "joined_at": reference("Time"),
        "seen_at": about("Time", "When it last said that it runs."),
        "until": about("Time", "Until when it is believed to run; when it left, if it left."),
        "lanes": list_of(lane, "The parts whose deliveries it sends."),
        "hubs": list_of(reference("HubId"), "The hubs that are connected to it."),
        "in_flight": count("Deliveries under way when it was last seen."),
        "lag_seconds": number("For how long the oldest has waited that could go; 0 if none does."),
    });
    answer("One of the nodes.", properties, &[])
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
