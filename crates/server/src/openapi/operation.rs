//! What can be said of an operation, and what all of them have in common: who may call it, and how
//! it refuses.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::schema::reference;

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

/// The parts of the API, in reading order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Events,
    Endpoints,
    Deliveries,
    DeadLetters,
    Pull,
    Hubs,
    Sources,
    Ingest,
    Policies,
    Filters,
    Notices,
    Keys,
    Tenants,
    Audit,
    Meta,
}

impl Tag {
    pub(super) const ALL: [Self; 15] = [
        Self::Events,
        Self::Endpoints,
        Self::Deliveries,
        Self::DeadLetters,
        Self::Pull,
        Self::Hubs,
        Self::Sources,
        Self::Ingest,
        Self::Policies,
        Self::Filters,
        Self::Notices,
        Self::Keys,
        Self::Tenants,
        Self::Audit,
        Self::Meta,
    ];

    const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Events => ("Events", "Taking events in, looking at them, sending them again."),
            Self::Endpoints => ("Endpoints", "Subscriptions: which events go where, and how."),
            Self::Deliveries => ("Deliveries", "What is on its way, why it waits, what was tried."),
            Self::DeadLetters => {
                ("Dead letters", "Deliveries that ended badly: find, replay, throw away.")
            }
            Self::Pull => ("Pull", "Workers that come and take: lease, ack, nack, extend."),
            Self::Hubs => ("Hubs", "Agents behind NAT that dial out and forward deliveries."),
            Self::Sources => ("Sources", "Inbound URLs for third parties, and how they sign."),
            Self::Ingest => ("Ingest", "Where third parties post. No key: the URL is the secret."),
            Self::Policies => ("Policies", "When to try again, and when to give up."),
            Self::Filters => ("Filters", "Expressions that say which events an endpoint wants."),
            Self::Notices => ("Notices", "What happens in the gateway, as it happens, and counts."),
            Self::Keys => ("Keys", "Who may get in, and until when."),
            Self::Tenants => ("Tenants", "Name spaces with their own keys, endpoints and events."),
            Self::Audit => ("Audit", "Who changed what."),
            Self::Meta => ("Meta", "Nodes, health, and this description."),
        }
    }

    pub(super) fn describe(self) -> Value {
        let (name, description) = self.texts();
        json!({ "name": name, "description": description })
    }
}

/// What has to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Key,
    HubToken,
}

/// What a route does.
pub(crate) struct Operation {
    tag: Tag,
    id: &'static str,
    summary: &'static str,
    description: &'static str,
    shown: Shown,
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: BTreeMap<u16, Value>,
}

impl Operation {
    /// One that needs a key, of any role.
    pub(super) fn new(
        tag: Tag,
        id: &'static str,
        summary: &'static str,
        description: &'static str,
    ) -> Self {
        let bare = Self::open(tag, id, summary, description);
        let keyed = Self { shown: Shown::Key, ..bare }.refuses([401, 403, 404, 429, 500, 503]);
        let tenant = json!({ "$ref": "#/components/parameters/Tenant" });
        Self { parameters: vec![tenant], ..keyed }
    }

    /// One that needs the token of a hub.
    pub(super) fn of_hubs(
        tag: Tag,
        id: &'static str,
        summary: &'static str,
        description: &'static str,
    ) -> Self {
        let bare = Self::open(tag, id, summary, description);
        Self { shown: Shown::HubToken, ..bare }.refuses([429, 503])
    }

    /// One that needs no key.
    pub(super) fn open(
        tag: Tag,
        id: &'static str,
        summary: &'static str,
        description: &'static str,
    ) -> Self {
        let (parameters, answers) = (Vec::new(), BTreeMap::new());
        let shown = Shown::Nothing;
        Self { tag, id, summary, description, shown, parameters, body: None, answers }
    }

    pub(super) fn path(self, name: &str, schema: &str, description: &str) -> Self {
        let parameter = json!({
            "name": name,
            "in": "path",
            "required": true,
            "description": description,
            "schema": reference(schema),
        });
        self.parameter(parameter).refuses([404])
    }

    pub(super) fn query(self, name: &str, schema: Value, description: &str) -> Self {
        let mut parameter = json!({ "name": name, "in": "query", "description": description });
        parameter["schema"] = schema;
        self.parameter(parameter).refuses([422])
    }

    pub(super) fn header(self, name: &str, schema: Value, description: &str) -> Self {
        let mut parameter = json!({ "name": name, "in": "header", "description": description });
        parameter["schema"] = schema;
        self.parameter(parameter).refuses([422])
    }

    /// Which part of a list is wanted.
    pub(super) fn page(self) -> Self {
        let limit = json!({ "$ref": "#/components/parameters/Limit" });
        let cursor = json!({ "$ref": "#/components/parameters/Cursor" });
        self.parameter(limit).parameter(cursor).refuses([422])
    }

    /// A body in JSON of a named schema.
    pub(super) fn takes(self, schema: &str, example: &Value) -> Self {
        let content = json!({ JSON: { "schema": reference(schema), "example": example } });
        self.takes_any(json!({ "required": true, "content": content }))
    }

    /// The same, where no body at all will do as well.
    pub(super) fn may_take(self, schema: &str, example: &Value) -> Self {
        let content = json!({ JSON: { "schema": reference(schema), "example": example } });
        self.takes_any(json!({ "required": false, "content": content }))
    }

    /// No settings: an empty body, or `{}`.
    pub(super) fn takes_nothing(self) -> Self {
        self.may_take("Nothing", &json!({}))
    }

    /// A body, said as the standard says it.
    pub(super) fn takes_any(self, body: Value) -> Self {
        Self { body: Some(body), ..self }.refuses([400, 408, 413, 422])
    }

    /// A JSON answer of a named schema.
    pub(super) fn gives(
        self,
        status: u16,
        description: &str,
        schema: &str,
        example: &Value,
    ) -> Self {
        let content = json!({ JSON: { "schema": reference(schema), "example": example } });
        self.answers(status, json!({ "description": description, "content": content }))
    }

    /// An answer, said as the standard says it.
    pub(super) fn answers(mut self, status: u16, response: Value) -> Self {
        self.answers.insert(status, response);
        self
    }

    /// Where an answer leads: a field of it is a parameter of another operation.
    pub(super) fn leads(mut self, status: u16, field: &str, to: &str, parameter: &str) -> Self {
        let value = format!("$response.body#/{field}");
        let link = json!({ "operationId": to, "parameters": { parameter: value } });
        if let Some(answer) = self.answers.get_mut(&status) {
            answer["links"][to] = link;
        }
        self
    }

    /// A refusal for a reason of this operation's own.
    pub(super) fn refuses_when(self, status: u16, when: &str) -> Self {
        let content = json!({ PROBLEM: { "schema": reference("Problem") } });
        self.answers(status, json!({ "description": when, "content": content }))
    }

    /// Refusals that mean what they always mean.
    pub(super) fn refuses<const N: usize>(mut self, statuses: [u16; N]) -> Self {
        for status in statuses {
            let name = REFUSALS.iter().find(|refusal| refusal.status == status);
            let name = name.expect("a refusal that is in the table").name;
            let shared = json!({ "$ref": format!("#/components/responses/{name}") });
            self.answers.entry(status).or_insert(shared);
        }
        self
    }

    fn parameter(mut self, parameter: Value) -> Self {
        self.parameters.push(parameter);
        self
    }

    pub(super) fn describe(self, path: &str) -> Value {
        let Self { tag, id, summary, description, shown, parameters, body, answers } = self;
        assert!(answers.keys().any(|status| *status < 400), "{path} never says yes");
        let responses: Map<String, Value> =
            answers.into_iter().map(|(status, answer)| (status.to_string(), answer)).collect();
        let security = match shown {
            Shown::Nothing => json!([]),
            Shown::Key => json!([{ "key": [] }]),
            Shown::HubToken => json!([{ "hub": [] }]),
        };
        let mut operation = json!({
            "operationId": id,
            "tags": [tag.texts().0],
            "summary": summary,
            "description": description,
            "security": security,
            "responses": responses,
        });
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        if let Some(body) = body {
            operation["requestBody"] = body;
        }
        operation
    }
}

/// How the API says no, whatever was asked.
struct Refusal {
    status: u16,
    name: &'static str,
    description: &'static str,
    header: Option<(&'static str, &'static str)>,
}

const RETRY_AFTER: (&str, &str) = ("Retry-After", "Seconds to wait before coming back.");

const fn refusal(status: u16, name: &'static str, description: &'static str) -> Refusal {
    Refusal { status, name, description, header: None }
}

const REFUSALS: [Refusal; 11] = [
    refusal(400, "Broken", "The body broke off before it was whole. Nothing was stored."),
    Refusal {
        status: 401,
        name: "Unauthorized",
        description: "There is no key, or it is not known, has expired or was revoked.",
        header: Some(("WWW-Authenticate", "`Bearer`")),
    },
    refusal(403, "Forbidden", "This key may not do that: it is of another role or tenant."),
    refusal(404, "NotFound", "There is no such thing, or it is another tenant's."),
    refusal(408, "TooSlow", "The body took too long to arrive. Nothing was stored."),
    refusal(413, "TooLarge", "The body is larger than is taken here. Nothing was stored."),
    refusal(422, "Invalid", "A field or parameter cannot be used; `errors` names it."),
    Refusal {
        status: 429,
        name: "TooMany",
        description: "Too many requests by this key or from this address.",
        header: Some(RETRY_AFTER),
    },
    refusal(500, "Internal", "A fault of the gateway's own; its log has more."),
    Refusal {
        status: 503,
        name: "Unavailable",
        description: "The store cannot take or find this at the moment.",
        header: Some(RETRY_AFTER),
    },
    refusal(508, "Loop", "The event has come from this gateway, or through too many."),
];

pub(super) fn refusals() -> Map<String, Value> {
    let describe = |refusal: &Refusal| {
        let mut response = json!({
            "description": refusal.description,
            "content": { PROBLEM: { "schema": reference("Problem") } },
        });
        if let Some((name, description)) = refusal.header {
            let header = json!({ "description": description, "schema": { "type": "string" } });
            response["headers"] = json!({ name: header });
        }
        (refusal.name.to_owned(), response)
    };
    REFUSALS.iter().map(describe).collect()
}

pub(super) fn parameters() -> Value {
    json!({
        "Tenant": {
            "name": "Postrider-Tenant",
            "in": "header",
            "description": "The tenant in which an admin key acts; `default` if not said. The key \
                of a tenant can name only its own.",
            "schema": reference("TenantName"),
        },
        "Limit": {
            "name": "limit",
            "in": "query",
            "description": "How many entries to answer with at most.",
            "schema": { "type": "integer", "minimum": 1, "maximum": 250, "default": 50 },
        },
        "Cursor": {
            "name": "cursor",
            "in": "query",
            "description": "The `next_cursor` of the page before.",
            "schema": { "type": "string", "minLength": 1 },
        },
    })
}
