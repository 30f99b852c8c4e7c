//! Leasing, described.

use serde_json::{Value, json};

use super::operation::{Operation, Tag};
use super::schema::{
    Named, about, answer, count, flag, list_of, maybe, nullable, reference, request, text, words,
};

const LEASE: &str = "The lease, as it was given.";
const TOKEN: &str = "lse_0a1b2c3d4e5f600000001";
const LAPSED: &str = "The lease has lapsed, or there never was one like it. Nothing was changed.";

pub(crate) fn lease() -> Operation {
    let mut event = super::events::known();
    event["headers"] = json!([]);
    event["payload_size"] = 33.into();
    event["payload"] = json!({ "order": 1042, "total": "18.50" });
    let example = json!({
        "leases": [
            {
                "lease": TOKEN,
                "delivery_id": "dlv_0a1b2c3d4e5f6",
                "expires_at": "2026-01-31T12:00:30.000Z",
                "attempt": 1,
                "event": event,
            },
        ],
    });
    Operation::new(
        Tag::Pull,
        "leaseDeliveries",
        "Lease deliveries",
        "For endpoints with `pull`. Hands out up to `max` deliveries that are due, new ones and \
         retries alike, the oldest event first; of an ordered endpoint only what is at the head \
         of its line. If there is none, waits up to `wait` for one. None is no error.\n\nA lease \
         is the worker's alone until `expires_at`. Say what became of it by then with `ack` or \
         `nack`, or ask for more time with `extend`: a lease that lapses counts as an attempt that \
         failed, and may be tried again.",
    )
    .path("id", "EndpointId", "The endpoint's id.")
    .may_take("LeaseWish", &json!({ "max": 10, "wait": "0s", "lease": "30s" }))
    .gives(200, "What was leased; perhaps nothing.", "Leases", &example)
    .refuses_when(409, "The endpoint is not one that workers pull from.")
}

pub(crate) fn ack() -> Operation {
    let operation = Operation::new(
        Tag::Pull,
        "ackLease",
        "Say that a delivery is done",
        "The delivery is `delivered`. `result` is a word for what came of it, kept with the \
         delivery.",
    );
    let done = json!({
        "lease": TOKEN,
        "delivery_id": "dlv_0a1b2c3d4e5f6",
        "state": "delivered",
    });
    answers(operation.path("lease", "LeaseToken", LEASE).may_take("Ack", &acked()), &done)
}

pub(crate) fn nack() -> Operation {
    let operation = Operation::new(
        Tag::Pull,
        "nackLease",
        "Say that a delivery has failed",
        "The endpoint's policy says what follows: `final` ends it, `retryable` counts as an \
         attempt, `rate_limited` with `retry_after` does not count and holds the whole endpoint \
         for as long.",
    );
    let done = json!({
        "lease": TOKEN,
        "delivery_id": "dlv_0a1b2c3d4e5f6",
        "state": "retrying",
        "next_attempt_at": "2026-01-31T12:05:00.000Z",
    });
    answers(operation.path("lease", "LeaseToken", LEASE).takes("Nack", &nacked()), &done)
}

pub(crate) fn extend() -> Operation {
    let operation = Operation::new(
        Tag::Pull,
        "extendLease",
        "Ask for more time",
        "The lease goes on for `lease` from now, whatever was left of it. The token stays.",
    );
    let done = json!({
        "lease": TOKEN,
        "delivery_id": "dlv_0a1b2c3d4e5f6",
        "state": "in_flight",
        "expires_at": "2026-01-31T12:01:00.000Z",
    });
    let operation = operation.path("lease", "LeaseToken", LEASE);
    answers(operation.may_take("LeaseExtension", &json!({ "lease": "30s" })), &done)
}

pub(crate) fn release() -> Operation {
    let operation = Operation::new(
        Tag::Pull,
        "releaseLease",
        "Give a delivery back untried",
        "For a worker that stops: the delivery may be leased again at once, and no attempt is \
         counted.",
    );
    let done = json!({
        "lease": TOKEN,
        "delivery_id": "dlv_0a1b2c3d4e5f6",
        "state": "pending",
        "next_attempt_at": "2026-01-31T12:00:10.000Z",
    });
    answers(operation.path("lease", "LeaseToken", LEASE), &done)
}

fn answers(operation: Operation, done: &Value) -> Operation {
    operation.gives(200, "It is on disk.", "LeaseAnswer", done).refuses_when(409, LAPSED)
}

pub(crate) fn ack_batch() -> Operation {
    let operation = Operation::new(
        Tag::Pull,
        "ackLeases",
        "Say that deliveries are done",
        "Several at once, in one commit. Those that have lapsed are told by `ok: false`.",
    );
    answers_batch(operation.takes("AckBatch", &several(acked())), None)
}

pub(crate) fn nack_batch() -> Operation {
    let operation = Operation::new(
        Tag::Pull,
        "nackLeases",
        "Say that deliveries have failed",
        "Several at once, for one reason. Those that have lapsed are told by `ok: false`.",
    );
    answers_batch(operation.takes("NackBatch", &several(nacked())), None)
}

pub(crate) fn extend_batch() -> Operation {
    let operation = Operation::new(
        Tag::Pull,
        "extendLeases",
        "Ask for more time for several",
        "Several at once. Those that have lapsed are told by `ok: false`.",
    );
    let taken = several(json!({ "lease": "30s" }));
    let until = Some("2026-01-31T12:01:00.000Z");
    answers_batch(operation.takes("LeaseExtensionBatch", &taken), until)
}

pub(crate) fn release_batch() -> Operation {
    let operation = Operation::new(
        Tag::Pull,
        "releaseLeases",
        "Give deliveries back untried",
        "Several at once. Those that have lapsed are told by `ok: false`.",
    );
    answers_batch(operation.takes("ReleaseBatch", &several(json!({}))), None)
}

fn answers_batch(operation: Operation, until: Option<&str>) -> Operation {
    let mut done = json!({ "lease": TOKEN, "ok": true });
    if let Some(until) = until {
        done["expires_at"] = until.into();
    }
    let description = "What became of each lease, in their order.";
    operation.gives(200, description, "LeaseResults", &json!({ "results": [done] }))
}

fn acked() -> Value {
    json!({ "result": "Passed" })
}

fn nacked() -> Value {
    json!({ "class": "retryable", "error": "the printer is out of paper", "retry_after": "1m" })
}

fn several(mut fields: Value) -> Value {
    fields["leases"] = json!([TOKEN]);
    fields
}

pub(super) fn schemas() -> Vec<Named> {
    vec![
        (
            "LeaseToken",
            json!({
                "type": "string",
                "description": "Names one lease of one delivery.",
                "pattern": "^lse_[0-7][0-9a-hjkmnp-tv-z]{12}[0-9a-f]{8}$",
                "examples": [TOKEN],
            }),
        ),
        ("LeaseWish", wish()),
        ("Leases", leases()),
        ("LeasedEvent", leased_event()),
        ("Ack", request("How it ended.", ack_fields(), &[])),
        ("AckBatch", batch("How they ended.", ack_fields(), &[])),
        ("Nack", request("Why it failed.", nack_fields(), &["error"])),
        ("NackBatch", batch("Why they failed.", nack_fields(), &["error"])),
        ("ReleaseBatch", batch("What is given back.", json!({}), &[])),
        ("LeaseExtension", request("For how long.", extension_fields(), &[])),
        ("LeaseExtensionBatch", batch("For how long.", extension_fields(), &[])),
        ("LeaseAnswer", lease_answer()),
        ("LeaseResults", results()),
    ]
}

fn wish() -> Value {
    let properties = json!({
        "max": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": 100,
            "default": 1,
            "description": "How many at most.",
        },
        "wait": maybe("Duration", "How long to wait for the first, up to 30s; 0s if not said."),
        "lease": maybe("Duration", "For how long: 1s to 12h; 30s if not said."),
        "event_types": {
            "type": ["array", "null"],
            "minItems": 1,
            "maxItems": 100,
            "items": reference("EventTypePattern"),
            "description": "Only events of these types; all of the endpoint's if not said.",
        },
    });
    request("What a worker is ready to take.", properties, &[])
}

fn ack_fields() -> Value {
    json!({
        "result": {
            "type": ["string", "null"],
            "minLength": 1,
            "maxLength": 200,
            "description": "What came of it, in a word.",
        },
    })
}

fn nack_fields() -> Value {
    json!({
        "class": nullable(words(
            &super::deliveries::CLASSES,
            "What kind of failure it was; `retryable` if not said.",
        )),
        "error": {
            "type": "string",
            "minLength": 1,
            "maxLength": 2000,
            "description": "What went wrong.",
        },
        "retry_after": maybe("Duration", "How long to wait before the next attempt, at least."),
    })
}

fn extension_fields() -> Value {
    json!({ "lease": maybe("Duration", "From now on: 1s to 12h; 30s if not said.") })
}

fn batch(description: &str, mut properties: Value, required: &[&str]) -> Value {
    properties["leases"] = json!({
        "type": "array",
        "minItems": 1,
        "maxItems": 100,
        "items": reference("LeaseToken"),
        "description": "The leases, as they were given.",
    });
    let required: Vec<&str> = required.iter().copied().chain(["leases"]).collect();
    request(description, properties, &required)
}

fn leases() -> Value {
    let lease = json!({
        "lease": about("LeaseToken", "By which the worker says what became of it."),
        "delivery_id": reference("DeliveryId"),
        "expires_at": about("Time", "When the lease lapses."),
        "attempt": count("The number of this attempt; 1 is the first."),
        "event": reference("LeasedEvent"),
        "trace": answer(
            "The trace that what the worker does is part of, as W3C trace context writes it.",
            json!({
                "traceparent": text("The trace and the span of this attempt."),
                "tracestate": text("What goes with it."),
            }),
            &["tracestate"],
        ),
    });
    let lease = answer("A delivery in a worker's hands.", lease, &["trace"]);
    let properties = json!({ "leases": list_of(lease, "The oldest event first.") });
    answer("What was leased.", properties, &[])
}

fn leased_event() -> Value {
    let mut properties = super::events::event_fields();
    properties["payload"] = json!({
        "description": "The body, where it is JSON: its text here is the text that was received.",
    });
    properties["payload_base64"] = json!({
        "type": "string",
        "contentEncoding": "base64",
        "description": "The body, where it is anything else, or has spaces around its JSON.",
    });
    let sometimes = ["filter_errors", "payload", "payload_base64"];
    answer("An event with its body.", properties, &sometimes)
}

fn lease_answer() -> Value {
    let properties = json!({
        "lease": reference("LeaseToken"),
        "delivery_id": reference("DeliveryId"),
        "state": about("State", "What the delivery is now."),
        "expires_at": about("Time", "When the lease lapses, where it goes on."),
        "next_attempt_at": about("Time", "When it is tried again, where it is."),
    });
    answer("What came of it.", properties, &["expires_at", "next_attempt_at"])
}

fn results() -> Value {
    let result = json!({
        "lease": reference("LeaseToken"),
        "ok": flag("Whether the lease was live; if not, nothing was changed."),
        "expires_at": about("Time", "When the lease lapses, where it goes on."),
    });
    let result = answer("What came of one lease.", result, &["expires_at"]);
    let properties = json!({ "results": list_of(result, "In the order of the leases.") });
    answer("What came of each lease.", properties, &[])
}
