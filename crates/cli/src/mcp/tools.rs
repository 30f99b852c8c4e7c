//! The tools: what each is called, takes and does. A table, from which come the schemas that clients
//! see and the checks of what they send.

use serde_json::{Map, Value, json};

/// The longest list that a tool gives.
pub(super) const MAX_LIMIT: u64 = 50;
pub(super) const DEFAULT_LIMIT: u64 = 20;
/// How many deliveries can be named one by one.
pub(super) const MAX_IDS: usize = 100;
/// The longest text of an argument.
const MAX_TEXT_CHARS: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    ListEndpoints,
    ListEvents,
    ShowEvent,
    ListDeliveries,
    ShowDelivery,
    ExplainDelivery,
    ListDeadLetters,
    DeadLetterGroups,
    Stats,
    Health,
    RetryDelivery,
    ReplayDeadLetters,
    PauseEndpoint,
    ResumeEndpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    Changes,
}

#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: Name,
    word: &'static str,
    title: &'static str,
    about: &'static str,
    effect: Effect,
    parameters: &'static [Parameter],
}

#[derive(Debug)]
struct Parameter {
    name: &'static str,
    kind: Kind,
    about: &'static str,
    required: bool,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    Word(&'static [&'static str]),
    Limit,
    Flag { default: bool },
    Ids,
    Rate,
}

const fn must(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter { name, kind, about, required: true }
}

const fn may(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter { name, kind, about, required: false }
}

const LIMIT: Parameter = may("limit", Kind::Limit, "How many at most.");
const CURSOR: Parameter =
    may("cursor", Kind::Text, "Where the list goes on: next_cursor of the answer before.");
const TYPE: Parameter = may("type", Kind::Text, "Only events of this type, such as order.created.");
const SINCE: Parameter = may(
    "since",
    Kind::Text,
    "Since then: a time such as 2026-01-31T12:00:00Z, or an age such as 2h.",
);
const UNTIL: Parameter = may("until", Kind::Text, "Before then: a time, or an age such as 30m.");
const ENDPOINT: Parameter =
    may("endpoint", Kind::Text, "Only to this endpoint: its id or its name.");
const EVENT: Parameter = may("event", Kind::Text, "Only of this event, by its id (evt_…).");
const CLASS: Parameter = may(
    "error_class",
    Kind::Word(&["final", "retryable", "rate_limited"]),
    "Only those whose last failure was of this class.",
);
const REASON: Parameter = may(
    "reason",
    Kind::Word(&["rejected", "exhausted", "expired"]),
    "Only those that ended for this reason.",
);
const STATE: Parameter = may(
    "state",
    Kind::Word(&["pending", "in_flight", "retrying", "delivered", "failed", "dead", "cancelled"]),
    "Only those in this state.",
);
const DEAD_STATE: Parameter = may(
    "state",
    Kind::Word(&["failed", "dead"]),
    "Only those refused for good (failed), or out of attempts or time (dead).",
);
const DELIVERY: Parameter = must("id", Kind::Text, "The delivery's id (dlv_…).");
const WHICH: Parameter = must("endpoint", Kind::Text, "The endpoint's id (ep_…) or its name.");

static TOOLS: [Tool; 14] = [
    Tool {
        name: Name::ListEndpoints,
        word: "list_endpoints",
        title: "List endpoints",
        about: "Where events go: each endpoint with its filter, policy and state.",
        effect: Effect::Reads,
        parameters: &[LIMIT, CURSOR],
    },
    Tool {
        name: Name::ListEvents,
        word: "list_events",
        title: "List events",
        about: "Events, newest first, each with what has become of it.",
        effect: Effect::Reads,
        parameters: &[TYPE, SINCE, UNTIL, LIMIT, CURSOR],
    },
    Tool {
        name: Name::ShowEvent,
        word: "show_event",
        title: "Show an event",
        about: "One event with its headers and its deliveries, and its payload if asked for.",
        effect: Effect::Reads,
        parameters: &[
            must("id", Kind::Text, "The event's id (evt_…)."),
            may("payload", Kind::Flag { default: false }, "With the beginning of its payload."),
        ],
    },
    Tool {
        name: Name::ListDeliveries,
        word: "list_deliveries",
        title: "List deliveries",
        about: "Deliveries, newest first: what is on its way, and what was.",
        effect: Effect::Reads,
        parameters: &[STATE, ENDPOINT, EVENT, TYPE, CLASS, REASON, SINCE, UNTIL, LIMIT, CURSOR],
    },
    Tool {
        name: Name::ShowDelivery,
        word: "show_delivery",
        title: "Show a delivery",
        about: "One delivery with its last attempts, what they were answered, and what is planned.",
        effect: Effect::Reads,
        parameters: &[DELIVERY],
    },
    Tool {
        name: Name::ExplainDelivery,
        word: "explain_delivery",
        title: "Explain a delivery",
        about: "In a few sentences: why a delivery is where it is, what came of the last attempt, \
                and what happens next.",
        effect: Effect::Reads,
        parameters: &[DELIVERY],
    },
    Tool {
        name: Name::ListDeadLetters,
        word: "list_dead_letters",
        title: "List dead letters",
        about: "Deliveries that ended without success and wait to be retried or purged, newest first.",
        effect: Effect::Reads,
        parameters: &[
            DEAD_STATE, ENDPOINT, EVENT, TYPE, CLASS, REASON, SINCE, UNTIL, LIMIT, CURSOR,
        ],
    },
    Tool {
        name: Name::DeadLetterGroups,
        word: "dead_letter_groups",
        title: "Group dead letters",
        about: "How many dead letters there are for each endpoint and cause.",
        effect: Effect::Reads,
        parameters: &[DEAD_STATE, ENDPOINT, TYPE, CLASS, REASON, SINCE, UNTIL],
    },
    Tool {
        name: Name::Stats,
        word: "stats",
        title: "Statistics",
        about: "How many events and deliveries there are, by state, in all and for each endpoint, \
                those with most waiting or dead first.",
        effect: Effect::Reads,
        parameters: &[LIMIT],
    },
    Tool {
        name: Name::Health,
        word: "health",
        title: "Health",
        about: "Whether the gateway answers and is ready to take events.",
        effect: Effect::Reads,
        parameters: &[],
    },
    Tool {
        name: Name::RetryDelivery,
        word: "retry_delivery",
        title: "Retry a delivery",
        about: "Begins a delivery anew: it is due now, with no attempts counted. Its endpoint may get \
                the event a second time.",
        effect: Effect::Changes,
        parameters: &[DELIVERY],
    },
    Tool {
        name: Name::ReplayDeadLetters,
        word: "replay_dead_letters",
        title: "Replay dead letters",
        about: "Sends dead letters again: those named by ids, or all that the filters leave. Only \
                counts them unless dry_run is false.",
        effect: Effect::Changes,
        parameters: &[
            may("ids", Kind::Ids, "These deliveries; not with filters."),
            DEAD_STATE,
            ENDPOINT,
            EVENT,
            TYPE,
            CLASS,
            REASON,
            SINCE,
            UNTIL,
            may("dry_run", Kind::Flag { default: true }, "Only say how many match."),
            may("rate_per_second", Kind::Rate, "The most that are sent in a second."),
        ],
    },
    Tool {
        name: Name::PauseEndpoint,
        word: "pause_endpoint",
        title: "Pause an endpoint",
        about: "Stops sending to an endpoint. What is accepted for it waits.",
        effect: Effect::Changes,
        parameters: &[WHICH],
    },
    Tool {
        name: Name::ResumeEndpoint,
        word: "resume_endpoint",
        title: "Resume an endpoint",
        about: "Goes on sending to an endpoint that was paused.",
        effect: Effect::Changes,
        parameters: &[WHICH],
    },
];

/// Those that are offered, as clients see them.
pub(super) fn list(with_changes: bool) -> Vec<Value> {
    offered(with_changes).map(Tool::describe).collect()
}

pub(super) fn find(word: &str, with_changes: bool) -> Option<&'static Tool> {
    offered(with_changes).find(|tool| tool.word == word)
}

fn offered(with_changes: bool) -> impl Iterator<Item = &'static Tool> {
    TOOLS.iter().filter(move |tool| match tool.effect {
        Effect::Reads => true,
        Effect::Changes => with_changes,
    })
}

impl Tool {
    fn describe(&self) -> Value {
        let properties: Map<String, Value> = self
            .parameters
            .iter()
            .map(|parameter| (parameter.name.to_owned(), parameter.schema()))
            .collect();
        let required: Vec<&str> = self
            .parameters
            .iter()
            .filter(|parameter| parameter.required)
            .map(|parameter| parameter.name)
            .collect();
        let reads = self.effect == Effect::Reads;
        let idempotent = !matches!(self.name, Name::RetryDelivery | Name::ReplayDeadLetters);
        json!({
            "name": self.word,
            "title": self.title,
            "description": self.about,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            },
            "annotations": {
                "title": self.title,
                "readOnlyHint": reads,
                // Nothing that a tool does throws anything away.
                "destructiveHint": false,
                "idempotentHint": idempotent,
                "openWorldHint": false,
            },
        })
    }

    /// What is wrong with the arguments, in a sentence that a model can act on.
    pub(super) fn check(&self, arguments: &Map<String, Value>) -> Result<(), String> {
        for (name, value) in arguments {
            let Some(parameter) = self.parameters.iter().find(|known| known.name == name) else {
                let known: Vec<&str> = self.parameters.iter().map(|known| known.name).collect();
                let name: String = name.chars().take(MAX_TEXT_CHARS).collect();
                let takes = match known.as_slice() {
                    [] => "takes no arguments".to_owned(),
                    _ => format!("takes {}", known.join(", ")),
                };
                return Err(format!("{} does not take {name:?}; it {takes}", self.word));
            };
            if !value.is_null() {
                parameter.check(value).map_err(|expected| format!("{name} must be {expected}"))?;
            }
        }
        let missing = self.parameters.iter().find(|parameter| {
            parameter.required && arguments.get(parameter.name).is_none_or(Value::is_null)
        });
        match missing {
            Some(parameter) => Err(format!("{} is missing: {}", parameter.name, parameter.about)),
            None => Ok(()),
        }
    }
}

impl Parameter {
    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            Kind::Text => json!({ "type": "string", "maxLength": MAX_TEXT_CHARS }),
            Kind::Word(words) => json!({ "type": "string", "enum": words }),
            Kind::Limit => {
                json!({ "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT })
            }
            Kind::Flag { default } => json!({ "type": "boolean", "default": default }),
            Kind::Ids => json!({
                "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": MAX_IDS,
            }),
            Kind::Rate => json!({ "type": "number", "exclusiveMinimum": 0 }),
        };
        schema["description"] = self.about.into();
        schema
    }

    fn check(&self, value: &Value) -> Result<(), String> {
        let (fits, expected) = match self.kind {
            Kind::Text => {
                let fits = |text: &str| text.chars().count() <= MAX_TEXT_CHARS;
                (
                    value.as_str().is_some_and(fits),
                    format!("a text of at most {MAX_TEXT_CHARS} characters"),
                )
            }
            Kind::Word(words) => {
                let fits = value.as_str().is_some_and(|word| words.contains(&word));
                (fits, format!("one of {}", words.join(", ")))
            }
            Kind::Limit => {
                let fits = value.as_u64().is_some_and(|limit| (1..=MAX_LIMIT).contains(&limit));
                (fits, format!("a whole number from 1 to {MAX_LIMIT}"))
            }
            Kind::Flag { .. } => (value.is_boolean(), "true or false".to_owned()),
            Kind::Ids => {
                let fits = value.as_array().is_some_and(|ids| {
                    (1..=MAX_IDS).contains(&ids.len()) && ids.iter().all(Value::is_string)
                });
                (fits, format!("a list of 1 to {MAX_IDS} ids"))
            }
            Kind::Rate => {
                (value.as_f64().is_some_and(|rate| rate > 0.0), "a number above 0".to_owned())
            }
        };
        if fits { Ok(()) } else { Err(expected) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn what_changes_something_is_there_only_when_allowed() {
        let changing =
            ["retry_delivery", "replay_dead_letters", "pause_endpoint", "resume_endpoint"];
        for word in changing {
            assert!(find(word, false).is_none() && find(word, true).is_some(), "{word}");
        }
        let read_only = list(false);
        assert_eq!(read_only.len(), TOOLS.len() - changing.len());
        for tool in &read_only {
            assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");
        }
        let all = list(true);
        let changes = all.iter().filter(|tool| tool["annotations"]["readOnlyHint"] == false);
        assert_eq!(changes.count(), changing.len());
        let names: HashSet<&str> = all.iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert_eq!(names.len(), TOOLS.len(), "names are unique");
    }

    #[test]
    fn arguments_are_checked_by_the_schema_that_clients_see() {
        for (tool, arguments, says) in [
            ("show_event", json!({}), "id is missing"),
            ("show_event", json!({"id": null}), "id is missing"),
            ("show_event", json!({"id": 7}), "id must be a text"),
            ("show_event", json!({"id": "x".repeat(501)}), "id must be a text"),
            (
                "show_event",
                json!({"id": "evt_1", "payload": "yes"}),
                "payload must be true or false",
            ),
            ("list_events", json!({"limit": 0}), "limit must be a whole number"),
            ("list_events", json!({"limit": 51}), "limit must be a whole number"),
            ("list_deliveries", json!({"state": "gone"}), "state must be one of pending"),
            ("list_dead_letters", json!({"state": "pending"}), "state must be one of failed"),
            ("replay_dead_letters", json!({"ids": []}), "ids must be a list"),
            ("replay_dead_letters", json!({"rate_per_second": 0}), "rate_per_second must be"),
            ("health", json!({"a": 1}), "takes no arguments"),
            ("stats", json!({"a": 1}), "it takes limit"),
        ] {
            let Value::Object(arguments) = arguments else { panic!("an object") };
            let error = find(tool, true).expect(tool).check(&arguments).expect_err(tool);
            assert!(error.contains(says), "{tool}: {error}");
        }
        let fine = json!({"state": "dead", "limit": 50, "cursor": null});
        let Value::Object(fine) = fine else { panic!("an object") };
        assert_eq!(find("list_deliveries", false).expect("there").check(&fine), Ok(()));
    }
}
