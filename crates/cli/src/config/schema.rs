//! What the API takes for each kind of thing, out of the API's own description of itself: so a file and
//! the API cannot differ in what they know.

use std::sync::OnceLock;

use serde_json::{Map, Value as Json};

use super::declared::Kind;
use super::near::unknown;

/// How deep a description leads; references could go round in a circle.
const MAX_DEPTH: usize = 16;

/// What a value has to be like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schema(&'static Json);

impl Schema {
    pub(super) fn of(kind: Kind) -> Self {
        named(match kind {
            Kind::Tenant => "NewTenant",
            Kind::Hub => "NewHub",
            Kind::Source => "NewSource",
            Kind::Endpoint => "NewEndpoint",
        })
    }

    pub(super) fn policy() -> Self {
        named("PolicyFields")
    }

    /// The fields of an object, with what they are for.
    pub(super) fn fields(self) -> Vec<(&'static str, &'static str)> {
        let alternatives = self.alternatives();
        let properties = alternatives.iter().filter_map(|Self(schema)| properties(schema));
        let fields = properties.flatten().map(|(name, field)| (name.as_str(), about(field)));
        fields.collect()
    }

    /// Tells of keys that are not known and of values of a wrong kind, by the field that the API would
    /// name. Everything else is left to the API.
    pub(super) fn check(self, value: &Json, refuse: &mut dyn FnMut(&str, String)) {
        self.check_at(value, "", MAX_DEPTH, refuse);
    }

    fn check_at(
        self,
        value: &Json,
        field: &str,
        depth: usize,
        refuse: &mut dyn FnMut(&str, String),
    ) {
        let alternatives = self.alternatives();
        if depth == 0 {
            return;
        }
        if !alternatives.iter().any(|schema| schema.allows(value)) {
            refuse(field, format!("must be {}, not {}", wanted(&alternatives), kind(value)));
            return;
        }
        match value {
            Json::Object(fields) => {
                for (name, value) in fields {
                    let inner =
                        if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
                    match of_field(&alternatives, name) {
                        Field::Known(schema) => schema.check_at(value, &inner, depth - 1, refuse),
                        Field::Anything => {}
                        Field::Unknown => {
                            let known = alternatives.iter().flat_map(|schema| schema.fields());
                            refuse(&inner, unknown(name, known.map(|(name, _)| name)));
                        }
                    }
                }
            }
            Json::Array(entries) => {
                let items = alternatives.iter().find_map(|Self(schema)| schema.get("items"));
                let Some(items) = items.map(Self) else { return };
                for (at, entry) in entries.iter().enumerate() {
                    items.check_at(entry, &format!("{field}[{at}]"), depth - 1, refuse);
                }
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }

    /// What it can be, with references followed.
    fn alternatives(self) -> Vec<Self> {
        let mut found = Vec::new();
        self.collect(MAX_DEPTH, &mut found);
        found
    }

    fn collect(self, depth: usize, found: &mut Vec<Self>) {
        let Self(schema) = self;
        if depth == 0 {
            return;
        }
        if let Some(reference) = schema.get("$ref").and_then(Json::as_str) {
            named(reference.rsplit('/').next().unwrap_or_default()).collect(depth - 1, found);
            return;
        }
        let choice = ["anyOf", "oneOf"].iter().find_map(|word| schema.get(word)?.as_array());
        match choice {
            // A choice of what is required is none of what it is.
            Some(choice) if schema.get("properties").is_none() => {
                for schema in choice {
                    Self(schema).collect(depth - 1, found);
                }
            }
            Some(_) | None => found.push(self),
        }
    }

    fn allows(self, value: &Json) -> bool {
        let Self(schema) = self;
        let fits = |name: &str| match value {
            Json::Null => name == "null",
            Json::Bool(_) => name == "boolean",
            Json::Number(number) => {
                name == "number" || name == "integer" && (number.is_i64() || number.is_u64())
            }
            Json::String(_) => name == "string",
            Json::Array(_) => name == "array",
            Json::Object(_) => name == "object",
        };
        match (schema.get("type"), schema.get("const")) {
            (Some(Json::String(name)), _) => fits(name),
            (Some(Json::Array(names)), _) => names.iter().filter_map(Json::as_str).any(fits),
            (Some(_) | None, Some(only)) => kind(only) == kind(value),
            (Some(_) | None, None) => true,
        }
    }
}

/// What is known of a field.
enum Field {
    Known(Schema),
    Anything,
    Unknown,
}

fn of_field(alternatives: &[Schema], name: &str) -> Field {
    let objects = alternatives.iter().filter(|schema| schema.allows(&Json::Object(Map::new())));
    let mut field = Field::Unknown;
    for Schema(schema) in objects {
        if let Some(known) = properties(schema).and_then(|properties| properties.get(name)) {
            return Field::Known(Schema(known));
        }
        match schema.get("additionalProperties") {
            Some(Json::Bool(false)) => {}
            Some(every @ Json::Object(_)) => return Field::Known(Schema(every)),
            Some(_) | None => field = Field::Anything,
        }
    }
    field
}

fn properties(schema: &'static Json) -> Option<&'static Map<String, Json>> {
    schema.get("properties")?.as_object()
}

fn about(schema: &'static Json) -> &'static str {
    let said = |Schema(schema): Schema| schema.get("description").and_then(Json::as_str);
    let Some(own) = said(Schema(schema)) else {
        let referred = schema.get("$ref").and_then(Json::as_str);
        let referred = referred.and_then(|reference| reference.rsplit('/').next()).map(named);
        let within = ["anyOf", "oneOf"].iter().find_map(|word| schema.get(word)?.get(0));
        let within = referred.or_else(|| within.map(Schema));
        return within.filter(|Schema(inner)| *inner != schema).map_or("", |Schema(s)| about(s));
    };
    own
}

/// What a value is, for people.
fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "nothing",
        Json::Bool(_) => "true or false",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "a table",
    }
}

fn wanted(alternatives: &[Schema]) -> String {
    let mut words = Vec::new();
    for Schema(schema) in alternatives {
        let names = match schema.get("type") {
            Some(Json::String(name)) => vec![name.as_str()],
            Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).collect(),
            Some(_) | None => match schema.get("const") {
                Some(only) => vec![kind(only)],
                None => Vec::new(),
            },
        };
        for name in names {
            let word = match name {
                "boolean" => "true or false",
                "number" => "a number",
                "integer" => "a whole number",
                "string" => "a text",
                "array" => "a list",
                "object" => "a table",
                "null" => continue,
                other => other,
            };
            if !words.contains(&word) {
                words.push(word);
            }
        }
    }
    words.join(" or ")
}

fn named(name: &str) -> Schema {
    static DOCUMENT: OnceLock<Json> = OnceLock::new();
    static ANYTHING: Json = Json::Null;
    let document = DOCUMENT
        .get_or_init(|| serde_json::from_str(&postrider_server::openapi()).unwrap_or(Json::Null));
    let found = document.get("components").and_then(|parts| parts.get("schemas")?.get(name));
    Schema(found.unwrap_or(&ANYTHING))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(schema: Schema, value: &Json) -> Vec<(String, String)> {
        let mut found = Vec::new();
        schema.check(value, &mut |field, message| found.push((field.to_owned(), message)));
        found
    }

    #[test]
    fn the_kinds_are_described_by_the_api() {
        for (kind, field) in [
            (Kind::Tenant, "name"),
            (Kind::Hub, "name"),
            (Kind::Source, "verify"),
            (Kind::Endpoint, "url"),
            (Kind::Endpoint, "policy"),
        ] {
            let fields = Schema::of(kind).fields();
            let found = fields.iter().find(|(name, _)| *name == field);
            assert!(
                found.is_some_and(|(_, about)| !about.is_empty() || field == "name"),
                "{field}"
            );
        }
        assert!(Schema::policy().fields().iter().any(|(name, _)| *name == "max_attempts"));
    }

    #[test]
    fn what_the_api_takes_has_no_fault() {
        for (kind, value) in [
            (
                Kind::Endpoint,
                json!({
                    "name": "a", "url": "https://example.com", "event_types": ["order.*"],
                    "policy": {"preset": "router", "max_attempts": null, "max_age": "7d",
                        "schedule": {"exponential": {"initial": "1s", "max_delay": "1h"}},
                        "classify": {"4xx": "final"}},
                    "rate_limit": {"per_second": 2.5, "burst": 3}, "headers": {"X-A": "b"},
                    "signing": {"scheme": "none"}, "metadata": {"any": {"thing": [1]}},
                    "format": {"telegram": {"chat_id": "1"}},
                    "tls": {"ca": "…"}
                }),
            ),
            (Kind::Endpoint, json!({"pull": true, "policy": "edge", "format": "slack"})),
            (
                Kind::Source,
                json!({"name": "a", "verify": {"scheme": "hmac", "secrets": ["a"],
                    "timestamp": {"header": "x"}}, "type_from": {"header": "x"},
                    "keep_headers": ["x"]}),
            ),
            (Kind::Source, json!({"name": "a", "keep_headers": "all", "on_invalid": "mark"})),
        ] {
            assert_eq!(faults(Schema::of(kind), &value), [], "{value}");
        }
    }

    #[test]
    fn what_it_does_not_know_or_is_of_a_wrong_kind_is_told_by_its_field() {
        for (kind, value, field, word) in [
            (Kind::Endpoint, json!({"uri": "x"}), "uri", "did you mean url?"),
            (Kind::Endpoint, json!({"url": 5}), "url", "must be a text, not a number"),
            (Kind::Endpoint, json!({"event_types": "a"}), "event_types", "must be a list"),
            (Kind::Endpoint, json!({"event_types": ["a", 1]}), "event_types[1]", "a text"),
            (Kind::Endpoint, json!({"max_in_flight": 1.5}), "max_in_flight", "a whole number"),
            (Kind::Endpoint, json!({"policy": 3}), "policy", "a text or a table"),
            (
                Kind::Endpoint,
                json!({"policy": {"max_attempt": 3}}),
                "policy.max_attempt",
                "max_attempts",
            ),
            (Kind::Endpoint, json!({"headers": {"X-A": 1}}), "headers.X-A", "a text"),
            (Kind::Source, json!({"verify": "hunter2"}), "verify", "must be a table"),
            (Kind::Source, json!({"verify": {"secrt": "x"}}), "verify.secrt", "secret"),
        ] {
            let found = faults(Schema::of(kind), &value);
            assert_eq!(found.len(), 1, "{value}: {found:?}");
            assert_eq!(found[0].0, field, "{value}");
            assert!(found[0].1.contains(word), "{value}: {found:?}");
            assert!(!found[0].1.contains("hunter2"), "{found:?}");
        }
    }
}
