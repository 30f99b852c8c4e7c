//! `/v1/events`, described.

use serde_json::{Value, json};

use super::operation::{Operation, Tag};
use super::schema::{
    Named, about, answer, count, flag, list_of, maybe, maybe_text, page_of, reference, request,
    text, words,
};

const EVENT: &str = "The event's id.";
const TRACEPARENT: &str = "W3C trace context: the trace that the events, and all that is done for \
     them, are part of. One that cannot be read is ignored.";
const TRACESTATE: &str = "W3C trace context: what goes with it, passed on as it is.";

fn receipt() -> Value {
    json!({
        "id": "evt_0a1b2c3d4e5f6",
        "type": "order.created",
        "received_at": "2026-01-31T12:00:00.000Z",
        "deliveries": 2,
        "duplicate": false,
    })
}

fn envelope() -> Value {
    json!({
        "type": "order.created",
        "payload": { "order": 1042, "total": "18.50" },
        "idempotency_key": "order-1042-created",
        "metadata": { "correlation_id": "checkout-7" },
    })
}

pub(crate) fn accept() -> Operation {
    let operation = Operation::new(
        Tag::Events,
        "acceptEvent",
        "Send an event",
        "The answer comes after the event and its deliveries are on disk: what was answered with \
         202 survives any crash.\n\nAs `application/json` the body is an envelope with `type` and \
         `payload`, and the query string is empty. With any other content type the body is the \
         event, byte for byte, and `type` and the rest stand in the query string.\n\nWith an \
         idempotency key an event can be sent again without harm: the second time is answered with \
         200, what was said the first time, and `duplicate: true`. The same key with another body \
         is refused with 409.",
    )
    .query("type", reference("EventType"), "The type, where the body is no envelope.")
    .query("idempotency_key", reference("VisibleKey"), "Where the body is no envelope.")
    .query("ordering_key", reference("VisibleKey"), "Where the body is no envelope.")
    .query("deliver_at", reference("Time"), "Where the body is no envelope.")
    .header(
        "Idempotency-Key",
        json!({ "type": "string", "pattern": "^[!-~]+$", "maxLength": 255 }),
        "The idempotency key, if it does not stand in the envelope or in the query string.",
    )
    .header("traceparent", json!({ "type": "string" }), TRACEPARENT)
    .header("tracestate", json!({ "type": "string" }), TRACESTATE)
    .takes_any(json!({
        "required": true,
        "description": "An envelope, or any bytes under any other content type.",
        "content": {
            "application/json": { "schema": reference("NewEvent"), "example": envelope() },
            "application/octet-stream": { "schema": {}, "example": "any bytes" },
            "text/plain": { "schema": { "type": "string" }, "example": "any text" },
        },
    }));
    operation
        .gives(202, "Stored, and on its way.", "Receipt", &receipt())
        .gives(200, "Stored before, by the same idempotency key.", "Receipt", &{
            let mut duplicate = receipt();
            duplicate["duplicate"] = true.into();
            duplicate
        })
        .refuses_when(409, "The idempotency key belongs to an event with another body.")
        .refuses([508])
}

pub(crate) fn accept_batch() -> Operation {
    let example = json!({ "events": [envelope(), { "type": "order.paid", "payload": null }] });
    let results = json!({
        "results": [
            receipt(),
            {
                "error": {
                    "type": "urn:postrider:problem:conflict",
                    "title": "Conflict",
                    "status": 409,
                    "detail": "the idempotency key belongs to evt_0a1b2c3d4e5f6, which has a \
                        different body",
                    "errors": [],
                },
            },
        ],
    });
    Operation::new(
        Tag::Events,
        "acceptEvents",
        "Send up to 1,000 events at once",
        "Those that are valid are stored in one commit; each of the others gets its error, at its \
         place in the results. One that cannot be used does not keep the rest out.",
    )
    .header("traceparent", json!({ "type": "string" }), TRACEPARENT)
    .header("tracestate", json!({ "type": "string" }), TRACESTATE)
    .takes("NewEvents", &example)
    .gives(202, "A result for each event, in their order.", "Receipts", &results)
    .refuses([508])
}

pub(crate) fn list() -> Operation {
    Operation::new(
        Tag::Events,
        "listEvents",
        "List events",
        "Newest first. Headers and sizes are left out; ask for one event to see them.",
    )
    .page()
    .query("type", reference("EventType"), "Only events of exactly this type.")
    .query("idempotency_key", json!({ "type": "string" }), "Only the event with this key.")
    .query("source", reference("SourceId"), "Only events that came in by this source.")
    .query("since", reference("Time"), "Only events received at this time or later.")
    .query("until", reference("Time"), "Only events received before this time.")
    .gives(
        200,
        "A page of events.",
        "Events",
        &json!({ "data": [shown()], "next_cursor": null }),
    )
}

pub(crate) fn show() -> Operation {
    let mut example = shown();
    example["headers"] = json!([{ "name": "x-github-event", "value": "push" }]);
    example["payload_size"] = 33.into();
    Operation::new(
        Tag::Events,
        "showEvent",
        "Show an event",
        "What is known of the event, and what became of it: `status` sums up its deliveries.",
    )
    .path("id", "EventId", EVENT)
    .gives(200, "The event.", "Event", &example)
}

pub(crate) fn payload() -> Operation {
    Operation::new(
        Tag::Events,
        "showPayload",
        "Fetch an event's bytes",
        "The body and the content type as they were received, with headers that keep a browser \
         from running what is in it.",
    )
    .path("id", "EventId", EVENT)
    .answers(
        200,
        json!({
            "description": "The bytes, with the content type they came with.",
            "content": { "*/*": { "schema": {}, "example": { "order": 1042 } } },
        }),
    )
}

pub(crate) fn deliveries() -> Operation {
    let example = json!({ "data": [super::deliveries::shown()], "next_cursor": null });
    Operation::new(
        Tag::Events,
        "listDeliveriesOfEvent",
        "List an event's deliveries",
        "One for each endpoint that matched when the event came, and one for each replay.",
    )
    .path("id", "EventId", EVENT)
    .page()
    .gives(200, "A page of deliveries.", "Deliveries", &example)
}

pub(crate) fn replay() -> Operation {
    Operation::new(
        Tag::Events,
        "replayEvent",
        "Send an old event again",
        "Makes new deliveries of the event: to the endpoints that are named, or to all that match \
         it now. The old deliveries stay as they are.",
    )
    .path("id", "EventId", EVENT)
    .may_take("Replay", &json!({ "endpoints": ["ep_0a1b2c3d4e5f6"] }))
    .gives(
        202,
        "The deliveries are on disk, and on their way.",
        "Replayed",
        &json!({ "id": "evt_0a1b2c3d4e5f6", "deliveries": ["dlv_0a1b2c3d4e5f6"] }),
    )
}

fn shown() -> Value {
    let mut event = known();
    event["status"] = "completed".into();
    event["deliveries"] = 1.into();
    event["counts"] = super::deliveries::counted();
    event
}

/// An event without what became of it.
pub(super) fn known() -> Value {
    json!({
        "id": "evt_0a1b2c3d4e5f6",
        "type": "order.created",
        "content_type": "application/json",
        "received_at": "2026-01-31T12:00:00.000Z",
        "deliver_at": null,
        "idempotency_key": "order-1042-created",
        "ordering_key": null,
        "metadata": { "correlation_id": "checkout-7" },
        "source": null,
        "verified": null,
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
    })
}

pub(super) fn schemas() -> Vec<Named> {
    vec![
        ("NewEvent", new_event()),
        ("NewEvents", new_events()),
        ("Receipt", receipt_schema()),
        ("Receipts", receipts()),
        ("Event", event()),
        ("Events", page_of("Event")),
        ("EventHeader", event_header()),
        ("Replay", replay_schema()),
        ("Replayed", replayed()),
    ]
}

fn new_event() -> Value {
    let properties = json!({
        "type": reference("EventType"),
        "payload": { "description": "Any JSON. Its text is kept and sent as it is written here." },
        "idempotency_key": maybe("VisibleKey", "Of two events with one key only the first counts."),
        "ordering_key": maybe("VisibleKey", "What endpoints with `fifo_by_key` keep in order."),
        "deliver_at": maybe("Time", "Not before this time; at most a year ahead."),
        "metadata": maybe("Metadata", "Kept with the event; not sent."),
    });
    request("An event to be sent.", properties, &["type", "payload"])
}

fn new_events() -> Value {
    // What is wrong with one of them is said in its place among the results.
    let properties = json!({
        "events": {
            "type": "array",
            "maxItems": 1000,
            "items": reference("NewEvent"),
        },
    });
    request("Several events.", properties, &["events"])
}

fn receipt_schema() -> Value {
    let properties = json!({
        "id": reference("EventId"),
        "type": reference("EventType"),
        "received_at": reference("Time"),
        "deliveries": count("How many endpoints it goes to."),
        "duplicate": flag("Whether it was there already, by its idempotency key."),
    });
    answer("What a producer is told of its event.", properties, &[])
}

fn receipts() -> Value {
    let refused = json!({ "error": reference("Problem") });
    let result = json!({
        "anyOf": [reference("Receipt"), answer("One that was refused.", refused, &[])],
    });
    let properties = json!({ "results": list_of(result, "In the order of the events.") });
    answer("What became of each event.", properties, &[])
}

/// What is known of an event, wherever it is shown.
pub(super) fn event_fields() -> Value {
    json!({
        "id": reference("EventId"),
        "type": reference("EventType"),
        "content_type": text("As it was received."),
        "received_at": reference("Time"),
        "deliver_at": maybe("Time", "When its deliveries may start, if not at once."),
        "idempotency_key": maybe_text("By which it is not stored twice."),
        "ordering_key": maybe_text("What endpoints with `fifo_by_key` keep in order."),
        "metadata": maybe("Metadata", "What was sent along to be kept."),
        "source": maybe("SourceId", "The source by which it came in; none for `/v1/events`."),
        "verified": {
            "type": ["boolean", "null"],
            "description": "Whether its signature held; none where there was nothing to verify.",
        },
        "trace_id": maybe_text("The trace that it is part of, as W3C trace context names it."),
        "filter_errors": {
            "type": "object",
            "description": "Endpoints that did not get it because their filter could not be \
                evaluated, and why.",
            "additionalProperties": { "type": "string" },
        },
        "headers": list_of(
            reference("EventHeader"),
            "The headers that were kept, repeats in their order. Not in lists.",
        ),
        "payload_size": count("Bytes of its body. Not in lists."),
    })
}

fn event() -> Value {
    let mut properties = event_fields();
    properties["status"] =
        words(&["pending", "processing", "completed", "failed"], "The summary of its deliveries.");
    properties["deliveries"] = count("How many there are.");
    properties["counts"] = about("StateCounts", "How many are in which state.");
    let sometimes = ["filter_errors", "headers", "payload_size"];
    answer("One immutable message.", properties, &sometimes)
}

fn event_header() -> Value {
    let properties = json!({
        "name": text("In lower case."),
        "value": text("Where it is text."),
        "value_base64": text("Where it is not."),
    });
    answer("A header as it came.", properties, &["value", "value_base64"])
}

fn replay_schema() -> Value {
    let properties = json!({
        "endpoints": {
            "type": ["array", "null"],
            "minItems": 1,
            "maxItems": 1000,
            "items": reference("EndpointId"),
            "description": "Where to; if not said, to all that match now.",
        },
    });
    request("Where to send it.", properties, &[])
}

fn replayed() -> Value {
    let properties = json!({
        "id": reference("EventId"),
        "deliveries": list_of(reference("DeliveryId"), "The deliveries that were made."),
    });
    answer("What a replay made.", properties, &[])
}
