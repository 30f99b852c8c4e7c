//! `/v1/dead-letters` and `/v1/jobs`, described.

use serde_json::{Value, json};

use super::deliveries::{class, filtered, filters, reason, shown};
use super::operation::{Operation, Tag};
use super::schema::{
    Named, about, answer, count, flag, list_of, maybe, maybe_text, nullable, reference, request,
    words,
};

const STATES: &str = "`failed`, `dead`, or both with a comma between them.";

pub(crate) fn list() -> Operation {
    let mut dead = shown();
    for (field, value) in [
        ("state", json!("dead")),
        ("attempts", json!(10)),
        ("next_attempt_at", Value::Null),
        ("ended_at", json!("2026-02-03T20:05:00.000Z")),
        ("reason", json!("exhausted")),
        ("waiting_on", Value::Null),
    ] {
        dead[field] = value;
    }
    let operation = Operation::new(
        Tag::DeadLetters,
        "listDeadLetters",
        "List dead letters",
        "Deliveries that ended as `failed` (refused for good) or `dead` (out of attempts, or too \
         old). Newest event first.",
    );
    filtered(operation, STATES).gives(
        200,
        "A page of deliveries.",
        "Deliveries",
        &json!({ "data": [dead], "next_cursor": null }),
    )
}

pub(crate) fn groups() -> Operation {
    let group = json!({
        "endpoint_id": "ep_0a1b2c3d4e5f6",
        "state": "dead",
        "error_class": "retryable",
        "reason": "exhausted",
        "deliveries": 214,
        "newest_at": "2026-02-03T20:05:00.000Z",
        "last_error": "HTTP 503",
    });
    let operation = Operation::new(
        Tag::DeadLetters,
        "groupDeadLetters",
        "Put dead letters together by cause",
        "Dead letters by endpoint, state, class and reason, the largest group first. Only the newest \
         10,000 that match are looked at.",
    );
    filters(operation, STATES).gives(
        200,
        "The groups.",
        "DeadLetterGroups",
        &json!({ "data": [group], "looked_at": 214, "complete": true }),
    )
}

pub(crate) fn replay() -> Operation {
    Operation::new(
        Tag::DeadLetters,
        "replayDeadLetters",
        "Send dead letters again",
        "Resets every dead letter that is named or matches the filter; `{}` as a filter is all of \
         them. It is done by a job that survives restarts, in the order of their events, no faster \
         than `rate_per_second`. With `dry_run` nothing is sent: the answer is how many match.",
    )
    .takes(
        "DeadLetterReplay",
        &json!({ "filter": { "endpoint": "ep_0a1b2c3d4e5f6" }, "rate_per_second": 20 }),
    )
    .gives(200, "A dry run: how many match.", "Matched", &json!({ "matched": 214 }))
    .gives(
        202,
        "The job is on disk, and at work.",
        "JobStarted",
        &json!({ "job": "job_0a1b2c3d4e5f6", "matched": 214 }),
    )
    .leads(202, "job", "showJob", "id")
}

pub(crate) fn purge() -> Operation {
    let operation = Operation::new(
        Tag::DeadLetters,
        "purgeDeadLetters",
        "Throw dead letters away",
        "Deletes every dead letter that is named or matches the filter. The filter stands in the \
         body or in the query string, not in both. An empty one is more often a slip than a wish, \
         so all of them need `all`.",
    );
    let all = json!({ "type": "boolean" });
    filters(operation, STATES)
        .query("all", all, "All dead letters of the tenant.")
        .may_take("DeadLetterPurge", &json!({ "ids": ["dlv_0a1b2c3d4e5f6"] }))
        .gives(200, "They are gone.", "Purged", &json!({ "deleted": 214 }))
}

pub(crate) fn job() -> Operation {
    Operation::new(
        Tag::DeadLetters,
        "showJob",
        "Show how far a replay has come",
        "A job goes on where it was after a restart.",
    )
    .path("id", "JobId", "The job's id.")
    .gives(
        200,
        "The job.",
        "Job",
        &json!({
            "id": "job_0a1b2c3d4e5f6",
            "kind": "dead_letters.replay",
            "state": "running",
            "matched": 214,
            "replayed": 80,
            "skipped": 0,
            "rate_per_second": 20.0,
            "filter": {
                "states": ["failed", "dead"],
                "endpoint": "ep_0a1b2c3d4e5f6",
                "event": null,
                "type": null,
                "error_class": null,
                "reason": null,
                "since": null,
                "until": null,
            },
            "created_at": "2026-01-31T12:00:00.000Z",
            "updated_at": "2026-01-31T12:00:04.000Z",
        }),
    )
}

pub(super) fn schemas() -> Vec<Named> {
    vec![
        ("DeadLetterFilter", filter()),
        ("DeadLetterGroups", groups_schema()),
        ("DeadLetterReplay", replay_schema()),
        ("DeadLetterPurge", purge_schema()),
        ("Matched", answer("A dry run.", json!({ "matched": count("How many match.") }), &[])),
        ("JobStarted", job_started()),
        ("Purged", answer("What is gone.", json!({ "deleted": count("How many.") }), &[])),
        ("Job", job_schema()),
        ("JobFilter", job_filter()),
    ]
}

fn filter() -> Value {
    let properties = json!({
        "state": nullable(words(&["failed", "dead"], "Only this one.")),
        "endpoint": nullable(reference("EndpointId")),
        "event": nullable(reference("EventId")),
        "type": maybe("EventType", "Only of events of exactly this type."),
        "error_class": nullable(class()),
        "reason": nullable(reason()),
        "since": maybe("Time", "Only of events received at this time or later."),
        "until": maybe("Time", "Only of events received before this time."),
    });
    request("Which dead letters; what is left out does not matter.", properties, &[])
}

fn groups_schema() -> Value {
    let group = json!({
        "endpoint_id": reference("EndpointId"),
        "state": words(&["failed", "dead"], "How they ended."),
        "error_class": nullable(class()),
        "reason": nullable(reason()),
        "deliveries": count("How many there are."),
        "newest_at": maybe("Time", "When the newest of them ended."),
        "last_error": maybe_text("What the newest of them said last."),
    });
    let properties = json!({
        "data": list_of(answer("Dead letters of one cause.", group, &[]), "The largest first."),
        "looked_at": count("How many dead letters were looked at."),
        "complete": flag("Whether those were all that match."),
    });
    answer("Dead letters by cause.", properties, &[])
}

fn ids() -> Value {
    json!({
        "type": "array",
        "minItems": 1,
        "maxItems": 1000,
        "items": reference("DeliveryId"),
        "description": "These, one by one.",
    })
}

fn replay_schema() -> Value {
    let mut by_ids = json!({
        "dry_run": flag("Only count them."),
        "rate_per_second": {
            "type": ["number", "null"],
            "minimum": 0.0001,
            "maximum": 10_000,
            "description": "As many a second at most; as fast as they go if not said.",
        },
    });
    let mut by_filter = by_ids.clone();
    by_ids["ids"] = ids();
    by_filter["filter"] = reference("DeadLetterFilter");
    json!({
        "description": "Which dead letters to send again.",
        "oneOf": [
            request("Those that are named.", by_ids, &["ids"]),
            request("Those that match.", by_filter, &["filter"]),
        ],
    })
}

fn purge_schema() -> Value {
    let filter = json!({
        "filter": reference("DeadLetterFilter"),
        "all": flag("Needed where the filter is empty: all dead letters of the tenant."),
    });
    json!({
        "description": "Which dead letters to throw away.",
        "oneOf": [
            request("Those that are named.", json!({ "ids": ids() }), &["ids"]),
            request("Those that match.", filter, &[]),
        ],
    })
}

fn job_started() -> Value {
    let properties = json!({
        "job": reference("JobId"),
        "matched": count("How many dead letters it is about."),
    });
    answer("A job that has begun.", properties, &[])
}

fn job_schema() -> Value {
    let properties = json!({
        "id": reference("JobId"),
        "kind": words(&["dead_letters.replay"], "What it does."),
        "state": words(&["running", "finished"], "Whether there is more to do."),
        "matched": count("How many dead letters it was about when it began."),
        "replayed": count("How many have been reset."),
        "skipped": count("How many were no dead letters any more when their turn came."),
        "rate_per_second": { "type": ["number", "null"], "description": "The pace, if there is one." },
        "filter": about("JobFilter", "What it is about."),
        "created_at": reference("Time"),
        "updated_at": reference("Time"),
    });
    answer("A long piece of work.", properties, &[])
}

fn job_filter() -> Value {
    let properties = json!({
        "ids": list_of(reference("DeliveryId"), "These, one by one."),
        "states": list_of(reference("State"), "In one of these states."),
        "endpoint": nullable(reference("EndpointId")),
        "event": nullable(reference("EventId")),
        "type": nullable(reference("EventType")),
        "error_class": nullable(class()),
        "reason": nullable(reason()),
        "since": nullable(reference("Time")),
        "until": nullable(reference("Time")),
    });
    answer("Which dead letters.", properties, &["ids"])
}
