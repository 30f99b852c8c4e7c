//! `/v1/policies` and `/v1/filters`, described.

use postrider_core::policy::{MAX_LIST, MAX_MULTIPLIER, Preset};
use serde_json::{Value, json};

use super::operation::{Operation, Tag};
use super::schema::{
    Named, about, answer, count, flag, list_of, maybe, maybe_text, nullable, number, page_of,
    reference, request, text, words,
};

fn plan_example() -> Value {
    json!({
        "attempts": [
            { "number": 1, "delay_seconds": 0.0, "earliest_seconds": 0.0, "latest_seconds": 0.0 },
            { "number": 2, "delay_seconds": 30.0, "earliest_seconds": 30.0, "latest_seconds": 30.0 },
        ],
        "gives_up": { "reason": "exhausted", "after_seconds": 30.0 },
    })
}

pub(crate) fn list() -> Operation {
    Operation::new(
        Tag::Policies,
        "listPolicies",
        "List the named policies",
        "The presets, spelled out, each with what it will do. All of them are on one page.",
    )
    .refuses([422])
    .gives(
        200,
        "Every preset.",
        "Presets",
        &json!({
            "data": [{
                "name": "router",
                "about": "half a minute, then longer and longer waits up to six hours",
                "default": false,
                "policy": {
                    "schedule": { "list": ["30s", "2m", "10m", "1h", "6h"], "jitter": 0.0 },
                    "max_attempts": 5,
                    "max_age": null,
                    "classify": { "network": "retryable", "timeout": "retryable" },
                },
                "plan": plan_example(),
            }],
            "next_cursor": null,
        }),
    )
}

pub(crate) fn preview() -> Operation {
    Operation::new(
        Tag::Policies,
        "previewPolicy",
        "Show what a policy would do",
        "Each attempt with the earliest and the latest time at which it can happen, counted from \
         the event's arrival, if every attempt fails at once; and when the policy gives up.",
    )
    .takes(
        "PolicyPreview",
        &json!({ "policy": { "schedule": { "list": ["30s"] }, "max_attempts": 2 } }),
    )
    .gives(200, "The plan.", "Plan", &plan_example())
}

pub(crate) fn preview_filter() -> Operation {
    Operation::new(
        Tag::Filters,
        "previewFilter",
        "Try a filter on an event",
        "Evaluates a filter, an expression in CEL, on a stored event or on one that is given, as \
         it would be for an endpoint. An expression that is none is refused with 422; one that \
         cannot be evaluated on this event answers with its error.",
    )
    .takes(
        "FilterPreview",
        &json!({
            "filter": "event.type == 'order.created' && event.payload.total > 100",
            "event": { "type": "order.created", "payload": { "total": 120 } },
        }),
    )
    .gives(200, "What came of it.", "FilterTried", &json!({ "passes": true, "error": null }))
}

pub(super) fn schemas() -> Vec<Named> {
    vec![
        ("PresetName", words(&Preset::ALL.map(Preset::as_str), "The name of a policy.")),
        ("Policy", policy()),
        ("PolicyFields", policy_fields()),
        ("Schedule", schedule()),
        ("Exponential", exponential()),
        ("Classify", classify()),
        ("Preset", preset()),
        ("Presets", page_of("Preset")),
        ("PolicyPreview", preview_schema()),
        ("Plan", plan()),
        ("FilterPreview", filter_preview()),
        ("FilterTried", filter_tried()),
    ]
}

fn policy() -> Value {
    json!({
        "description": "When to try again and when to give up: the name of a preset, or an object.",
        "anyOf": [reference("PresetName"), reference("PolicyFields")],
    })
}

fn policy_fields() -> Value {
    let properties = json!({
        "preset": maybe("PresetName", "What holds where nothing else is said; `standard` if none."),
        "schedule": maybe("Schedule", "How long to wait after each failure."),
        "max_attempts": {
            "type": ["integer", "null"],
            "minimum": 1,
            "maximum": u32::MAX,
            "description": "How often to try; `null` is no limit, if there is a `max_age`.",
        },
        "max_age": maybe("Duration", "How long to try, from the event's arrival; `null` is no limit."),
        "classify": reference("Classify"),
    });
    request("A policy spelled out, or a preset with some things said otherwise.", properties, &[])
}

fn schedule() -> Value {
    let list = json!({
        "list": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_LIST,
            "items": reference("Duration"),
            "description": "The wait after each failure; the last one repeats.",
        },
        "jitter": jitter(),
    });
    let exponential = json!({ "exponential": reference("Exponential") });
    json!({
        "description": "How long to wait after each failure.",
        "oneOf": [
            request("Waits that are listed.", list, &["list"]),
            request("Waits that grow.", exponential, &["exponential"]),
        ],
    })
}

fn jitter() -> Value {
    json!({
        "type": "number",
        "default": 0,
        "minimum": 0,
        "maximum": 1,
        "description": "The share by which a wait is changed at random, up or down.",
    })
}

fn exponential() -> Value {
    let properties = json!({
        "initial": about("Duration", "The first wait."),
        "multiplier": {
            "type": "number",
            "minimum": 1,
            "maximum": MAX_MULTIPLIER,
            "default": 2,
            "description": "By how much each wait is longer than the one before.",
        },
        "max_delay": about("Duration", "No wait is longer than this."),
        "jitter": jitter(),
    });
    request("Waits that grow.", properties, &["initial", "max_delay"])
}

fn classify() -> Value {
    let rules =
        ["final", "final_and_disable", "retryable", "rate_limited", "rate_limited_if_hinted"];
    json!({
        "type": "object",
        "description": "What a failure means: by status (`410`), by hundred (`4xx`), or for \
            `network` and `timeout`. The most specific entry holds.",
        "maxProperties": 100,
        "propertyNames": { "pattern": "^([13-9]([0-9]{2}|xx)|network|timeout)$" },
        "additionalProperties": words(&rules, "What it means."),
        "examples": [{ "410": "final", "4xx": "final", "429": "rate_limited", "5xx": "retryable" }],
    })
}

fn preset() -> Value {
    let policy = json!({
        "schedule": reference("Schedule"),
        "max_attempts": { "type": ["integer", "null"], "minimum": 1 },
        "max_age": nullable(reference("Duration")),
        "classify": reference("Classify"),
    });
    let properties = json!({
        "name": reference("PresetName"),
        "about": text("What it is for."),
        "default": flag("Whether it is what endpoints have that say nothing."),
        "policy": answer("The policy spelled out, as it can be sent.", policy, &[]),
        "plan": reference("Plan"),
    });
    answer("A named policy.", properties, &[])
}

fn preview_schema() -> Value {
    request("A policy to look at.", json!({ "policy": reference("Policy") }), &["policy"])
}

fn plan() -> Value {
    let attempt = json!({
        "number": count("1 is the first."),
        "delay_seconds": number("The wait before it, without jitter."),
        "earliest_seconds": number("When it can happen at the earliest, from the event's arrival."),
        "latest_seconds": number("When it can happen at the latest."),
    });
    let gives_up = json!({
        "reason": super::deliveries::reason(),
        "after_seconds": number("When, from the event's arrival."),
    });
    let mut gives_up = nullable(answer("The end.", gives_up, &[]));
    gives_up["description"] = "None when the plan is longer than is shown.".into();
    let properties = json!({
        "attempts": list_of(answer("An attempt.", attempt, &[]), "The first attempts."),
        "gives_up": gives_up,
    });
    answer("What a policy does if every attempt fails at once.", properties, &[])
}

fn filter_preview() -> Value {
    let given = json!({
        "type": reference("EventType"),
        "payload": { "description": "Any JSON; `null` if not said." },
        "metadata": nullable(reference("Metadata")),
        "headers": { "type": "object", "additionalProperties": { "type": "string" } },
        "source": nullable(reference("SourceId")),
    });
    let filter = text("The expression.");
    let stored = json!({ "filter": filter, "event_id": reference("EventId") });
    let given = json!({
        "filter": filter,
        "event": request("The event.", given, &["type"]),
    });
    json!({
        "description": "A filter, and what to try it on.",
        "oneOf": [
            request("A stored event.", stored, &["filter", "event_id"]),
            request("An event that is given.", given, &["filter", "event"]),
        ],
    })
}

fn filter_tried() -> Value {
    let properties = json!({
        "passes": {
            "type": ["boolean", "null"],
            "description": "Whether the endpoint would get it; none if that could not be found out.",
        },
        "error": maybe_text("Why not."),
    });
    answer("What came of a filter.", properties, &[])
}
