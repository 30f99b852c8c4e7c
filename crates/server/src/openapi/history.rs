//! `/v1/stats/history`, described.

use serde_json::{Value, json};

use super::operation::{Operation, Tag};
use super::schema::{Named, about, answer, count, list_of, maybe, number, reference, words};

pub(crate) fn show() -> Operation {
    let point = json!({
        "start": "2026-01-31T12:00:00.000Z",
        "received": 1200,
        "delivered": 1194,
        "failures": 9,
        "dead": 1,
        "p50_ms": 12,
        "p95_ms": 48,
        "p99_ms": 1024,
    });
    let mut total = point.clone();
    total["success_rate"] = json!(0.9992);
    if let Some(fields) = total.as_object_mut() {
        fields.remove("start");
    }
    let example = json!({
        "span": "hour",
        "grain_seconds": 60,
        "since": "2026-01-31T12:00:00.000Z",
        "points": [point],
        "total": total,
        "per_second": { "received": 20.0, "delivered": 19.9 },
        "oldest_waiting_at": "2026-01-31T12:41:07.250Z",
    });
    let whose = json!({ "anyOf": [reference("EndpointId"), { "const": "each" }] });
    Operation::new(
        Tag::Notices,
        "showHistory",
        "See what happened lately, over time",
        "How many deliveries were made, delivered, failed and given up in the last hour (by the \
         minute), day (by the quarter of an hour) or week (by two hours), and how long they took. \
         Unlike the counts of `/v1/stats`, this goes by when it happened and does not depend on \
         retention. A crash of the gateway can lose the last ten seconds of it; what other nodes \
         count shows after as long.",
    )
    .query(
        "span",
        words(&["hour", "day", "week"], "How far back; `hour` if not said."),
        "How far back.",
    )
    .query(
        "endpoint",
        whose,
        "Only what this endpoint got; or `each`, to tell all endpoints apart, in fewer words.",
    )
    .gives(200, "What happened.", "History", &example)
}

pub(super) fn schemas() -> Vec<Named> {
    vec![
        ("History", json!({ "anyOf": [history(), history_of_each()] })),
        (
            "HistoryPoint",
            answer("What happened in one stretch of time.", with_start(counts()), &[]),
        ),
    ]
}

fn counts() -> Value {
    let within = |share: &str| {
        json!({
            "type": ["integer", "null"],
            "minimum": 0,
            "description": format!(
                "Within so many milliseconds {share} of those delivered were, from when they were \
                 to go: to the next step of a scale with two steps to each doubling. None if none was."
            ),
        })
    };
    json!({
        "received": count("Deliveries made: by events that came in, and by replays of events."),
        "delivered": count("Deliveries that succeeded."),
        "failures": count("Attempts that did not succeed."),
        "dead": count("Deliveries that became dead letters."),
        "p50_ms": within("half"),
        "p95_ms": within("95 %"),
        "p99_ms": within("99 %"),
    })
}

fn with_start(mut properties: Value) -> Value {
    properties["start"] = about("Time", "When the stretch begins. The last one is still growing.");
    properties
}

/// What both forms begin with.
fn span() -> Value {
    json!({
        "span": words(&["hour", "day", "week"], "What was asked for."),
        "grain_seconds": count("How long each stretch of time is."),
        "since": about("Time", "When the first one begins."),
    })
}

fn history() -> Value {
    let mut total = counts();
    total["success_rate"] = json!({
        "type": ["number", "null"],
        "minimum": 0,
        "maximum": 1,
        "description": "Delivered, of those delivered or dead. None if there were neither.",
    });
    let rates = json!({
        "received": number("Deliveries made."),
        "delivered": number("Deliveries that succeeded."),
    });
    let mut properties = span();
    properties["points"] = list_of(reference("HistoryPoint"), "All of the span, zeros too.");
    properties["total"] = answer("The points together.", total, &[]);
    properties["per_second"] = answer("Rates over the last minute.", rates, &[]);
    properties["oldest_waiting_at"] = maybe(
        "Time",
        "Since when the longest waits of what is unfinished and not meant for later; none if nothing \
         does. Of more than 250 endpoints that have something waiting, those count that have most.",
    );
    answer("What happened in a span of time.", properties, &[])
}

fn history_of_each() -> Value {
    let outcome = json!({
        "start": reference("Time"),
        "delivered": count("Deliveries that succeeded."),
        "failures": count("Attempts that did not succeed."),
        "dead": count("Deliveries that became dead letters."),
    });
    let points = list_of(answer("What became of deliveries.", outcome, &[]), "In order.");
    let mut properties = span();
    properties["endpoints"] = json!({
        "type": "object",
        "description": "By the id of the endpoint, the stretches in which something became of its \
            deliveries.",
        "additionalProperties": points,
    });
    answer("The same, told apart by endpoint.", properties, &[])
}
