//! `/v1/deliveries`, described.

use postrider_core::State;
use serde_json::{Value, json};

use super::operation::{Operation, Tag};
use super::schema::{
    Named, about, answer, count, flag, list_of, maybe, maybe_text, nullable, page_of, reference,
    text, words,
};

const DELIVERY: &str = "The delivery's id.";

pub(super) const CLASSES: [&str; 3] = ["final", "retryable", "rate_limited"];
pub(super) const REASONS: [&str; 3] = ["rejected", "exhausted", "expired"];

pub(crate) fn list() -> Operation {
    let operation = Operation::new(
        Tag::Deliveries,
        "listDeliveries",
        "List deliveries",
        "Newest event first. Plans and attempts are left out; ask for one delivery to see them.",
    );
    filtered(operation, "Only deliveries in one of these states, with commas between them.").gives(
        200,
        "A page of deliveries.",
        "Deliveries",
        &json!({ "data": [shown()], "next_cursor": null }),
    )
}

/// The filters that deliveries and dead letters share.
pub(super) fn filtered(operation: Operation, states: &str) -> Operation {
    filters(operation.page(), states)
}

pub(super) fn filters(operation: Operation, states: &str) -> Operation {
    operation
        .query("state", json!({ "type": "string", "examples": ["dead,failed"] }), states)
        .query("endpoint", reference("EndpointId"), "Only deliveries to this endpoint.")
        .query("event", reference("EventId"), "Only deliveries of this event.")
        .query("type", reference("EventType"), "Only deliveries of events of exactly this type.")
        .query("error_class", class(), "Only deliveries whose last failure was of this class.")
        .query("reason", reason(), "Only deliveries that ended for this reason.")
        .query("since", reference("Time"), "Only of events received at this time or later.")
        .query("until", reference("Time"), "Only of events received before this time.")
}

pub(super) fn class() -> Value {
    words(&CLASSES, "What kind of failure it was.")
}

pub(super) fn reason() -> Value {
    words(
        &REASONS,
        "`rejected`: refused for good; `exhausted`: no attempts left; `expired`: too old.",
    )
}

pub(crate) fn show() -> Operation {
    Operation::new(
        Tag::Deliveries,
        "showDelivery",
        "Show a delivery",
        "Its state, why it has not gone yet (`waiting_on`), what is planned if attempts go on \
         failing (`plan`), and what was tried (`attempt_log`).",
    )
    .path("id", "DeliveryId", DELIVERY)
    .gives(200, "The delivery.", "Delivery", &shown_whole())
}

pub(crate) fn retry() -> Operation {
    Operation::new(
        Tag::Deliveries,
        "retryDelivery",
        "Give a delivery another life",
        "Attempts count from zero again and the first is due at once, under the same policy. What \
         was tried before stays in the log.",
    )
    .path("id", "DeliveryId", DELIVERY)
    .takes_nothing()
    .gives(200, "The delivery, waiting to go.", "Delivery", &shown_whole())
    .refuses_when(409, "It is in flight or delivered, or its endpoint has been deleted.")
}

pub(crate) fn cancel() -> Operation {
    Operation::new(
        Tag::Deliveries,
        "cancelDelivery",
        "Cancel a delivery",
        "It is not tried again. A retry brings it back.",
    )
    .path("id", "DeliveryId", DELIVERY)
    .takes_nothing()
    .gives(200, "The delivery, cancelled.", "Delivery", &shown_whole())
    .refuses_when(409, "It is in flight, or has ended already.")
}

pub(super) fn shown() -> Value {
    json!({
        "id": "dlv_0a1b2c3d4e5f6",
        "event_id": "evt_0a1b2c3d4e5f6",
        "endpoint_id": "ep_0a1b2c3d4e5f6",
        "state": "retrying",
        "attempts": 1,
        "deferrals": 0,
        "next_attempt_at": "2026-01-31T12:00:05.000Z",
        "last_attempt_at": "2026-01-31T12:00:00.010Z",
        "delivered_at": null,
        "ended_at": null,
        "error_class": "retryable",
        "last_error": "the endpoint answered 502",
        "reason": null,
        "waiting_on": { "reason": "backoff", "until": "2026-01-31T12:00:05.000Z" },
        "replay": false,
    })
}

fn shown_whole() -> Value {
    let mut delivery = shown();
    delivery["plan"] = json!([{ "number": 2, "at": "2026-01-31T12:00:05.000Z" }]);
    delivery["attempt_log"] = json!([tried()]);
    delivery
}

pub(super) fn tried() -> Value {
    json!({
        "id": "att_0a1b2c3d4e5f60001",
        "number": 1,
        "counted": true,
        "started_at": "2026-01-31T12:00:00.010Z",
        "duration_ms": 31,
        "status_code": 502,
        "outcome": "retryable",
        "error": "the endpoint answered 502",
        "response_body": "bad gateway",
        "response_headers": { "content-type": "text/plain" },
        "response_truncated": false,
    })
}

pub(super) fn counted() -> Value {
    json!({
        "pending": 0,
        "in_flight": 0,
        "retrying": 0,
        "delivered": 1,
        "failed": 0,
        "dead": 0,
        "cancelled": 0,
    })
}

pub(super) fn schemas() -> Vec<Named> {
    vec![
        ("State", words(&State::ALL.map(State::as_str), "What has become of a delivery so far.")),
        ("StateCounts", state_counts()),
        ("Delivery", delivery()),
        ("Deliveries", page_of("Delivery")),
        ("WaitingOn", waiting_on()),
        ("Attempt", attempt()),
    ]
}

fn state_counts() -> Value {
    let properties: serde_json::Map<String, Value> = State::ALL
        .iter()
        .map(|state| (state.as_str().to_owned(), json!({ "type": "integer", "minimum": 0 })))
        .collect();
    answer("How many deliveries are in which state.", properties.into(), &[])
}

fn delivery() -> Value {
    let planned = json!({ "number": count("The attempt's number."), "at": reference("Time") });
    let properties = json!({
        "id": reference("DeliveryId"),
        "event_id": reference("EventId"),
        "endpoint_id": reference("EndpointId"),
        "state": reference("State"),
        "attempts": count("Attempts that counted, since it was last reset."),
        "deferrals": count("Attempts that did not: rate limited, and told how long to wait."),
        "next_attempt_at": maybe("Time", "When it is due, while it waits."),
        "last_attempt_at": maybe("Time", "When it was last tried."),
        "delivered_at": maybe("Time", "When it was delivered."),
        "ended_at": maybe("Time", "When it ended, in whatever way."),
        "error_class": nullable(class()),
        "last_error": maybe_text("What went wrong the last time."),
        "reason": nullable(reason()),
        "waiting_on": nullable(about(
            "WaitingOn",
            "Why it has not gone yet, while it waits; and until when a worker has it. In lists not \
             for what another node carries, whose `state` there is as it is stored: it may be in \
             flight.",
        )),
        "replay": flag("Whether a replay made it."),
        "result": text("What the worker that took it called its result, if it did."),
        "plan": list_of(
            answer("An attempt that lies ahead.", planned, &[]),
            "When it will be tried if every attempt fails at once. Not in lists.",
        ),
        "attempt_log": list_of(reference("Attempt"), "What was tried. Not in lists."),
    });
    answer("One event on its way to one endpoint.", properties, &["result", "plan", "attempt_log"])
}

fn waiting_on() -> Value {
    let reasons = [
        "backoff",
        "deliver_at",
        "behind",
        "paused",
        "disabled",
        "rate_limit",
        "breaker",
        "retry_after",
        "hub_offline",
        "leased",
        "capacity",
    ];
    let properties = json!({
        "reason": words(&reasons, "What it waits for."),
        "until": maybe("Time", "Until when, where that is known."),
        "delivery_id": about("DeliveryId", "The delivery it is behind."),
        "position": count(
            "Its place in its line, where it is behind another: 1 is the one that is tried. 10000 \
             stands for any further back. Not in lists.",
        ),
    });
    answer("Why a delivery has not gone yet.", properties, &["delivery_id", "position"])
}

fn attempt() -> Value {
    let properties = json!({
        "id": maybe("AttemptId", "None for a test, which belongs to no delivery."),
        "number": count("1 is the first."),
        "counted": flag("Whether it counts against the policy's attempts."),
        "started_at": reference("Time"),
        "duration_ms": count("How long it took, in milliseconds."),
        "status_code": {
            "type": ["integer", "null"],
            "description": "What the endpoint answered, if it did.",
        },
        "outcome": words(
            &["delivered", CLASSES[0], CLASSES[1], CLASSES[2]],
            "What it came to: delivered, or the class of its failure.",
        ),
        "error": maybe_text("What went wrong."),
        "response_body": maybe_text("The first 16 KiB of the answer, as text."),
        "response_headers": {
            "type": ["object", "null"],
            "description": "The headers of the answer; repeats are joined by commas.",
            "additionalProperties": { "type": "string" },
        },
        "response_truncated": flag("Whether the answer was longer than what was kept."),
    });
    answer("One try of a delivery.", properties, &[])
}
