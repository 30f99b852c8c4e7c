//! The table of routes and the description of the API, which are one thing: a route is put into the
//! table together with what it does, so none can be served that is not described.
//!
//! Reading order: the table here, what can be said of a route in `operation`, the words that schemas
//! are made of in `schema`, then one file for each part of the API.

mod operation;
mod schema;

pub(crate) mod access;
pub(crate) mod dead_letters;
pub(crate) mod deliveries;
pub(crate) mod endpoints;
pub(crate) mod events;
pub(crate) mod history;
pub(crate) mod hubs;
pub(crate) mod leases;
pub(crate) mod meta;
pub(crate) mod policies;
pub(crate) mod sources;

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{self, MethodRouter};
use serde_json::{Map, Value, json};

use crate::App;

pub(crate) use operation::Operation;
use operation::Tag;

/// What is served, and what is said of it.
pub(crate) struct Api {
    router: Router<Arc<App>>,
    paths: Map<String, Value>,
}

/// One method of one path.
pub(crate) struct Route {
    method: &'static str,
    handler: MethodRouter<Arc<App>>,
    operation: Operation,
}

macro_rules! method {
    ($name:ident) => {
        pub(crate) fn $name<H, T>(handler: H, operation: Operation) -> Route
        where
            H: Handler<T, Arc<App>>,
            T: 'static,
        {
            Route { method: stringify!($name), handler: routing::$name(handler), operation }
        }
    };
}

method!(get);
method!(post);
method!(put);
method!(patch);
method!(delete);

impl Api {
    pub(crate) fn new() -> Self {
        Self { router: Router::new(), paths: Map::new() }
    }

    /// Puts the methods of a path into the table.
    pub(crate) fn at<const N: usize>(self, path: &'static str, routes: [Route; N]) -> Self {
        let Self { mut router, mut paths } = self;
        let mut methods = Map::new();
        for Route { method, handler, operation } in routes {
            router = router.route(path, handler);
            methods.insert(method.to_owned(), operation.describe(path));
        }
        paths.insert(path.to_owned(), methods.into());
        Self { router, paths }
    }

    /// The description as the text that is served and committed.
    pub(crate) fn document(&self) -> String {
        let document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Postrider",
                "summary": "A durable webhook gateway",
                "description": ABOUT,
                "version": env!("CARGO_PKG_VERSION"),
                "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            },
            "servers": [{ "url": "/", "description": "This gateway" }],
            "tags": Tag::ALL.map(Tag::describe),
            "paths": self.paths,
            "components": {
                "securitySchemes": {
                    "key": {
                        "type": "http",
                        "scheme": "bearer",
                        "bearerFormat": "pr_…",
                        "description": "A key of this gateway. The key of a tenant acts in its \
                            tenant; an admin key acts in `default`, or in the tenant that the \
                            header `Postrider-Tenant` names.",
                    },
                    "hub": {
                        "type": "http",
                        "scheme": "bearer",
                        "bearerFormat": "prh_…",
                        "description": "The token of a hub. It opens `/v1/hub` and nothing else, \
                            and no key opens that.",
                    },
                },
                "parameters": operation::parameters(),
                "responses": operation::refusals(),
                "schemas": schemas(),
            },
        });
        // Made of texts and numbers alone, it cannot fail to be written.
        let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
        text.push('\n');
        text
    }

    pub(crate) fn into_router(self) -> Router<Arc<App>> {
        self.router
    }
}

/// Every named schema.
fn schemas() -> Map<String, Value> {
    let parts = [
        schema::shared(),
        access::schemas(),
        dead_letters::schemas(),
        deliveries::schemas(),
        endpoints::schemas(),
        events::schemas(),
        history::schemas(),
        hubs::schemas(),
        leases::schemas(),
        meta::schemas(),
        policies::schemas(),
        sources::schemas(),
    ];
    parts.into_iter().flatten().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

const ABOUT: &str = "\
Postrider takes webhooks and events in, stores them before it says yes, and carries each one to its \
endpoints until it is delivered, refused for good, or dead and waiting for an operator.

An **event** is one immutable message. An **endpoint** is a subscription: where matching events go, \
and how. A **delivery** is one event on its way to one endpoint; it has the state. A **source** is an \
inbound URL that third parties post to. A **hub** is an agent that dials out and forwards deliveries \
behind NAT; with a **lease**, a worker takes deliveries itself. A **policy** says when to try again and when to give up.

**Requests** are JSON unless said otherwise; a field that is not known, or is of the wrong type, is \
refused with 422 and its name. **Times** are RFC 3339 in UTC with milliseconds, **durations** are \
texts like `30s`, `1h30m` or `7d`. **Ids** say by their prefix what they are of, and sort by time.

**Lists** take `limit` (1 to 250, 50 if not said) and `cursor`, and answer with `data` and \
`next_cursor`, newest first unless said otherwise. A cursor stays valid while rows come and go.

**Refusals** are problem documents (RFC 9457, `application/problem+json`); `errors` names the fields \
that are at fault. What another tenant has is not found (404). 429 and 503 say in `Retry-After` when \
to come back. New fields may be added to answers at any time: ignore what you do not know.";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::routes;

    fn document() -> Value {
        serde_json::from_str(&routes().document()).expect("JSON")
    }

    fn operations(document: &Value) -> Vec<(String, &Value)> {
        let paths = document["paths"].as_object().expect("paths");
        let methods = paths.iter().flat_map(|(path, item)| {
            let methods = item.as_object().expect("methods");
            methods.iter().map(move |(method, operation)| (format!("{method} {path}"), operation))
        });
        methods.collect()
    }

    fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_component_is_used() {
        let document = document();
        let mut used = BTreeSet::new();
        references(&document, &mut used);
        for reference in &used {
            let pointer = reference.strip_prefix('#').expect("within the document");
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
        for kind in ["schemas", "responses", "parameters"] {
            for name in document["components"][kind].as_object().expect("components").keys() {
                let reference = format!("#/components/{kind}/{name}");
                assert!(used.contains(reference.as_str()), "nobody uses {reference}");
            }
        }
    }

    #[test]
    fn every_operation_has_a_name_of_its_own_and_says_what_it_does() {
        let document = document();
        let mut names = BTreeSet::new();
        for (place, operation) in operations(&document) {
            assert!(names.insert(operation["operationId"].as_str().expect("a name")), "{place}");
            for field in ["summary", "description"] {
                let text = operation[field].as_str().unwrap_or_default();
                assert!(!text.is_empty(), "{place} has no {field}");
            }
            let summary = operation["summary"].as_str().unwrap_or_default();
            assert!(summary.len() <= 60 && !summary.ends_with('.'), "{place}: {summary}");
        }
    }

    #[test]
    fn what_is_in_braces_in_a_path_is_a_described_parameter() {
        let document = document();
        for (place, operation) in operations(&document) {
            let in_path = place
                .split('/')
                .filter_map(|part| part.strip_prefix('{').and_then(|part| part.strip_suffix('}')));
            let described: Vec<&str> = operation["parameters"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default()
                .iter()
                .filter(|parameter| parameter["in"] == "path")
                .filter_map(|parameter| parameter["name"].as_str())
                .collect();
            assert_eq!(described, in_path.collect::<Vec<_>>(), "{place}");
        }
    }

    #[test]
    fn whatever_is_taken_or_given_has_an_example() {
        let document = document();
        for (place, operation) in operations(&document) {
            for (_, body) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
                assert!(has_example(body), "{place}: the request has no example");
            }
            for (status, response) in operation["responses"].as_object().expect("responses") {
                let contents = response["content"].as_object().into_iter().flatten();
                for (_, body) in contents.filter(|_| status.starts_with('2')) {
                    assert!(has_example(body), "{place}: {status} has no example");
                }
            }
        }
    }

    fn has_example(body: &Value) -> bool {
        body.get("example").or(body.get("examples")).is_some()
    }

    /// Why a value is not of a schema, as far as the words go that schemas here are made of.
    fn misfit(document: &Value, schema: &Value, value: &Value) -> Option<String> {
        if let Some(reference) = schema["$ref"].as_str() {
            return misfit(document, document.pointer(&reference[1..])?, value);
        }
        let choices = schema.get("anyOf").or(schema.get("oneOf")).and_then(Value::as_array);
        if let Some(choices) = choices {
            let reasons: Vec<String> =
                choices.iter().map_while(|choice| misfit(document, choice, value)).collect();
            return (reasons.len() == choices.len()).then(|| reasons.join("; "));
        }
        let kinds = match &schema["type"] {
            Value::String(kind) => vec![kind.as_str()],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let fits = kinds.contains(&kind) || (kind == "integer" && kinds.contains(&"number"));
        if !kinds.is_empty() && !fits {
            return Some(format!("{value} is no {kinds:?}"));
        }
        if schema["enum"].as_array().is_some_and(|words| !value.is_null() && !words.contains(value))
        {
            return Some(format!("{value} is none of {}", schema["enum"]));
        }
        if schema.get("const").is_some_and(|only| only != value) {
            return Some(format!("{value} is not {}", schema["const"]));
        }
        match value {
            Value::Array(items) => {
                items.iter().find_map(|item| misfit(document, &schema["items"], item))
            }
            Value::Object(fields) if schema.get("properties").is_some() => {
                let required = schema["required"].as_array().into_iter().flatten();
                let missing = required
                    .filter_map(Value::as_str)
                    .find(|name| !fields.contains_key(*name))
                    .map(|name| format!("{name} is missing"));
                missing.or_else(|| {
                    fields.iter().find_map(|(name, value)| match schema["properties"].get(name) {
                        Some(field) => misfit(document, field, value),
                        None if schema["additionalProperties"] == true => None,
                        None => Some(format!("{name} is not described")),
                    })
                })
            }
            Value::Object(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_) => None,
        }
    }

    #[test]
    fn every_example_fits_its_schema() {
        let document = document();
        let mut seen = 0;
        for (place, operation) in operations(&document) {
            let responses = operation["responses"].as_object().expect("responses").values();
            let bodies = responses.chain(operation.get("requestBody"));
            for body in bodies.filter_map(|body| body["content"].as_object()) {
                for media in body.values().filter(|media| media.get("example").is_some()) {
                    seen += 1;
                    let misfit = misfit(&document, &media["schema"], &media["example"]);
                    assert_eq!(misfit, None, "{place}");
                }
            }
        }
        assert!(seen > operations(&document).len(), "only {seen} examples");
    }

    #[test]
    fn everything_but_ingest_and_health_needs_a_key() {
        let document = document();
        let open: Vec<String> = operations(&document)
            .into_iter()
            .filter(|(_, operation)| operation["security"] == json!([]))
            .map(|(place, _)| place)
            .collect();
        for place in &open {
            let path = place.split(' ').next_back().unwrap_or_default();
            assert!(!path.starts_with("/v1/"), "{place} is open to everybody");
        }
        assert!(open.iter().any(|place| place == "get /healthz"), "{open:?}");
    }
}
