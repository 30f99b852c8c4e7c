//! What was typed into the endpoint form, and what it says to the API.

use postrider_core::pattern::Pattern;
use serde_json::{Map, Value, json};

use super::shown::Endpoint;
use crate::dashboard::api::FieldError;
use crate::dashboard::fields::Form;
use crate::dashboard::policy_editor::{self, Control, number, wrong};

/// The API takes fewer; a form with more is refused by it, not cut.
const MAX_LINES: usize = 200;

/// The form's own controls, and the fields of the API's body that each of them says.
const CONTROLS: [Control; 23] = [
    ("name", &["name"]),
    ("url", &["url"]),
    ("hub", &["hub"]),
    ("command", &["command"]),
    ("place", &["pull", "handler"]),
    ("event_types", &["event_types"]),
    ("sources", &["sources"]),
    ("filter", &["filter"]),
    ("ordering", &["ordering"]),
    ("per_second", &["rate_limit", "rate_limit.per_second"]),
    ("burst", &["rate_limit.burst"]),
    ("max_in_flight", &["max_in_flight"]),
    ("timeout", &["timeout"]),
    ("headers", &["headers"]),
    ("signing", &["signing"]),
    ("signing_header", &["signing.header"]),
    ("secret", &["secret"]),
    ("format", &["format"]),
    ("chat_id", &["format.telegram", "format.telegram.chat_id"]),
    ("client_cert", &["tls", "tls.client_cert"]),
    ("client_key", &["tls.client_key"]),
    ("ca", &["tls.ca"]),
    ("metadata", &["metadata"]),
];

/// All controls, those of the policy among them.
pub(super) fn controls() -> Vec<Control> {
    CONTROLS.into_iter().chain(policy_editor::CONTROLS).collect()
}

/// What a form is sent for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    New,
    Change,
}

/// As it was typed, right or wrong. Without `Debug`: it can have secrets in it.
#[derive(Clone, Default)]
pub(super) struct Typed {
    pub(super) name: String,
    /// `url`, `hub`, `pull`, `command`, or `handler`, which cannot be chosen.
    pub(super) place: String,
    pub(super) url: String,
    pub(super) hub: String,
    pub(super) command: String,
    pub(super) event_types: String,
    pub(super) sources: Vec<String>,
    pub(super) filter: String,
    pub(super) policy: policy_editor::Typed,
    pub(super) ordering: String,
    pub(super) per_second: String,
    pub(super) burst: String,
    pub(super) max_in_flight: String,
    pub(super) timeout: String,
    pub(super) headers: String,
    pub(super) signing: String,
    pub(super) signing_header: String,
    pub(super) secret: String,
    pub(super) format: String,
    pub(super) chat_id: String,
    /// `keep`, `none` or `set`.
    pub(super) tls: String,
    pub(super) client_cert: String,
    pub(super) client_key: String,
    pub(super) ca: String,
    pub(super) metadata: String,
}

impl Typed {
    /// The form as it is before anything is typed.
    pub(super) fn new() -> Self {
        Self {
            place: "url".into(),
            event_types: "*".into(),
            signing: "standard".into(),
            tls: "none".into(),
            ..Self::default()
        }
    }

    pub(super) fn read(form: &Form) -> Self {
        let text = |name: &str| form.text(name).unwrap_or_default().to_owned();
        Self {
            name: text("name"),
            place: text("place"),
            url: text("url"),
            hub: text("hub"),
            command: text("command"),
            event_types: text("event_types"),
            sources: form.all("sources").take(MAX_LINES).map(str::to_owned).collect(),
            filter: text("filter"),
            policy: policy_editor::Typed::read(|name| form.all(name).collect()),
            ordering: text("ordering"),
            per_second: text("per_second"),
            burst: text("burst"),
            max_in_flight: text("max_in_flight"),
            timeout: text("timeout"),
            headers: text("headers"),
            signing: text("signing"),
            signing_header: text("signing_header"),
            secret: text("secret"),
            format: text("format"),
            chat_id: text("chat_id"),
            tls: text("tls"),
            client_cert: text("client_cert"),
            client_key: text("client_key"),
            ca: text("ca"),
            metadata: text("metadata"),
        }
    }

    /// An endpoint that there is, to be changed.
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        let place = match endpoint {
            Endpoint { command: Some(_), .. } => "command",
            Endpoint { hub: Some(_), .. } => "hub",
            Endpoint { handler: Some(_), .. } => "handler",
            Endpoint { pull: true, .. } => "pull",
            Endpoint { .. } => "url",
        };
        let headers = endpoint.headers.iter().map(|(name, value)| format!("{name}: {value}"));
        let rate = endpoint.rate_limit;
        let tls = endpoint.tls.as_ref();
        let telegram = endpoint.format.as_ref().map(|format| &format["telegram"]["chat_id"]);
        let chat_id = telegram.and_then(Value::as_str).unwrap_or_default();
        Self {
            name: endpoint.name.clone().unwrap_or_default(),
            place: place.into(),
            url: endpoint.url.clone().unwrap_or_default(),
            hub: endpoint.hub.map(|hub| hub.to_string()).unwrap_or_default(),
            command: endpoint.command.as_deref().unwrap_or_default().join("\n"),
            event_types: endpoint.event_types.join("\n"),
            sources: endpoint.sources.iter().map(ToString::to_string).collect(),
            filter: endpoint.filter.clone().unwrap_or_default(),
            policy: policy_editor::Typed::of(&endpoint.policy),
            ordering: endpoint.ordering.clone(),
            per_second: rate.map(|rate| rate.per_second.to_string()).unwrap_or_default(),
            burst: rate.map(|rate| rate.burst.to_string()).unwrap_or_default(),
            max_in_flight: endpoint.max_in_flight.map(|max| max.to_string()).unwrap_or_default(),
            timeout: endpoint.timeout.clone().unwrap_or_default(),
            headers: headers.collect::<Vec<_>>().join("\n"),
            signing: endpoint.signing.scheme.clone(),
            signing_header: endpoint.signing.header.clone().unwrap_or_default(),
            secret: String::new(),
            format: match &endpoint.format {
                None => String::new(),
                Some(Value::String(name)) => name.clone(),
                Some(_) => "telegram".into(),
            },
            chat_id: chat_id.to_owned(),
            tls: if tls.is_some() { "keep" } else { "none" }.into(),
            client_cert: tls.and_then(|tls| tls.client_cert.clone()).unwrap_or_default(),
            client_key: String::new(),
            ca: tls.and_then(|tls| tls.ca.clone()).unwrap_or_default(),
            metadata: if endpoint.metadata.is_empty() {
                String::new()
            } else {
                serde_json::to_string_pretty(&endpoint.metadata).unwrap_or_default()
            },
        }
    }

    /// What the form says to the API, which judges it. What is empty is left out of a new endpoint, and
    /// taken away from one that there is.
    pub(super) fn body(&self, purpose: Purpose) -> Result<Value, FieldError> {
        let mut body = Map::new();
        match self.place.as_str() {
            "hub" => body.insert("hub".into(), self.hub.as_str().into()),
            "pull" => body.insert("pull".into(), true.into()),
            "command" => body.insert("command".into(), lines(&self.command).collect()),
            // Where the functions of a program are called is not for a form to say.
            "handler" => None,
            _ if self.url.is_empty() => None,
            _ => body.insert("url".into(), self.url.as_str().into()),
        };
        let fields = [
            ("name", text(&self.name)),
            ("event_types", self.event_types()),
            ("sources", (!self.sources.is_empty()).then(|| json!(self.sources))),
            ("filter", text(&self.filter)),
            ("policy", Some(self.policy.policy()?)),
            ("ordering", text(&self.ordering)),
            ("rate_limit", self.rate_limit()?),
            ("max_in_flight", whole("max_in_flight", &self.max_in_flight)?),
            ("timeout", text(&self.timeout)),
            ("headers", self.headers()?),
            ("signing", self.signing()),
            ("format", self.format()),
            ("metadata", self.metadata()?),
        ];
        for (field, value) in fields {
            match (value, purpose) {
                (Some(value), _) => {
                    body.insert(field.into(), value);
                }
                (None, Purpose::Change) => {
                    body.insert(field.into(), Value::Null);
                }
                (None, Purpose::New) => {}
            }
        }
        match (self.tls.as_str(), purpose) {
            ("set", _) => {
                body.insert("tls".into(), self.certificates());
            }
            ("none", Purpose::Change) => {
                body.insert("tls".into(), Value::Null);
            }
            (_, Purpose::New | Purpose::Change) => {}
        }
        if purpose == Purpose::New && !self.secret.is_empty() {
            body.insert("secret".into(), self.secret.as_str().into());
        }
        Ok(body.into())
    }

    fn event_types(&self) -> Option<Value> {
        let patterns: Vec<&str> = self.pattern_texts().collect();
        (!patterns.is_empty()).then(|| json!(patterns))
    }

    /// One on each line, or with commas between them.
    fn pattern_texts(&self) -> impl Iterator<Item = &str> {
        let patterns = self.event_types.split([',', '\n', ' ']).map(str::trim);
        patterns.filter(|pattern| !pattern.is_empty()).take(MAX_LINES)
    }

    /// Those that can be read; every type where none is said.
    pub(super) fn patterns(&self) -> Vec<Pattern> {
        let mut texts = self.pattern_texts().peekable();
        if texts.peek().is_none() {
            return vec![Pattern::Any];
        }
        texts.filter_map(|text| Pattern::parse(text).ok()).collect()
    }

    fn rate_limit(&self) -> Result<Option<Value>, FieldError> {
        if self.per_second.is_empty() {
            return match self.burst.as_str() {
                "" => Ok(None),
                _ => Err(wrong("rate_limit.per_second", "is needed where a burst is given")),
            };
        }
        let mut limit = json!({ "per_second": number("rate_limit.per_second", &self.per_second)? });
        if let Some(burst) = whole("rate_limit.burst", &self.burst)? {
            limit["burst"] = burst;
        }
        Ok(Some(limit))
    }

    fn headers(&self) -> Result<Option<Value>, FieldError> {
        let mut headers = Map::new();
        for line in lines(&self.headers) {
            let Some((name, value)) = line.split_once(':') else {
                return Err(wrong("headers", "must be lines like X-Team: blue"));
            };
            let (name, value) = (name.trim(), value.trim());
            if headers.insert(name.to_owned(), value.into()).is_some() {
                return Err(wrong("headers", "has a name twice"));
            }
        }
        Ok((!headers.is_empty()).then(|| headers.into()))
    }

    fn signing(&self) -> Option<Value> {
        let scheme = text(&self.signing)?;
        let mut signing = json!({ "scheme": scheme });
        if !self.signing_header.is_empty() && self.signing == "sha256_hex" {
            signing["header"] = self.signing_header.as_str().into();
        }
        Some(signing)
    }

    fn format(&self) -> Option<Value> {
        match self.format.as_str() {
            "" => None,
            "telegram" => Some(json!({ "telegram": { "chat_id": self.chat_id } })),
            other => Some(other.into()),
        }
    }

    fn certificates(&self) -> Value {
        let parts = [
            ("client_cert", &self.client_cert),
            ("client_key", &self.client_key),
            ("ca", &self.ca),
        ];
        let said = parts.into_iter().filter(|(_, pem)| !pem.is_empty());
        said.map(|(name, pem)| (name.to_owned(), Value::from(pem.as_str()))).collect()
    }

    fn metadata(&self) -> Result<Option<Value>, FieldError> {
        if self.metadata.is_empty() {
            return Ok(None);
        }
        let object = serde_json::from_str::<Map<String, Value>>(&self.metadata);
        let object =
            object.map_err(|error| wrong("metadata", &format!("is no JSON object: {error}")))?;
        Ok(Some(object.into()))
    }

    pub(super) fn has_source(&self, id: &str) -> bool {
        self.sources.iter().any(|source| source == id)
    }
}

fn text(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| text.into())
}

fn whole(field: &str, text: &str) -> Result<Option<Value>, FieldError> {
    if text.is_empty() {
        return Ok(None);
    }
    let number: u32 = text.parse().map_err(|_| wrong(field, "must be a whole number"))?;
    Ok(Some(number.into()))
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).take(MAX_LINES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole_form() -> Typed {
        Typed {
            name: "orders".into(),
            url: "https://example.com/".into(),
            event_types: "order.*, refund.made\ninvoice.paid".into(),
            sources: vec!["src_0000000000001".into()],
            filter: "payload.total > 100".into(),
            ordering: "fifo_by_key".into(),
            per_second: "2.5".into(),
            burst: "4".into(),
            max_in_flight: "7".into(),
            timeout: "5s".into(),
            headers: "X-Team: blue\nX-Url: https://example.com:8080/".into(),
            metadata: r#"{"owner": "team"}"#.into(),
            ..Typed::new()
        }
    }

    #[test]
    fn every_field_is_said_to_the_api() {
        assert_eq!(
            whole_form().body(Purpose::New).expect("valid"),
            json!({
                "name": "orders", "url": "https://example.com/",
                "event_types": ["order.*", "refund.made", "invoice.paid"],
                "sources": ["src_0000000000001"], "filter": "payload.total > 100",
                "policy": "standard", "ordering": "fifo_by_key",
                "rate_limit": {"per_second": 2.5, "burst": 4}, "max_in_flight": 7,
                "timeout": "5s",
                "headers": {"X-Team": "blue", "X-Url": "https://example.com:8080/"},
                "signing": {"scheme": "standard"}, "metadata": {"owner": "team"},
            })
        );
    }

    #[test]
    fn what_is_empty_is_taken_away_by_a_change_and_left_out_of_a_new_one() {
        let typed = Typed { url: "https://example.com/".into(), ..Typed::new() };
        let new = typed.body(Purpose::New).expect("valid");
        assert_eq!(new.get("timeout"), None);
        assert_eq!(new.get("tls"), None);
        let change = typed.body(Purpose::Change).expect("valid");
        for field in ["name", "sources", "filter", "ordering", "rate_limit", "timeout", "headers"] {
            assert_eq!(change.get(field), Some(&Value::Null), "{field}");
        }
        assert_eq!(change["tls"], Value::Null);
        let kept = Typed { tls: "keep".into(), ..typed }.body(Purpose::Change).expect("valid");
        assert_eq!(kept.get("tls"), None);
    }

    #[test]
    fn a_form_that_is_not_touched_says_what_there_is() {
        let shown = json!({
            "name": "orders", "event_types": ["order.*", "refund.made"],
            "sources": ["src_0000000000001"], "filter": "payload.total > 100",
            "policy": {"preset": "router", "max_attempts": 3}, "ordering": "fifo",
            "rate_limit": {"per_second": 2.0, "burst": 4}, "max_in_flight": 7, "timeout": "5s",
            "headers": {"x-team": "blue"},
            "signing": {"scheme": "sha256_hex", "header": "X-Sign"},
            "format": {"telegram": {"chat_id": "7"}}, "metadata": {"owner": {"team": [1, 2]}},
        });
        for (field, place) in [
            ("url", json!("https://example.com/")),
            ("hub", json!("hub_0000000000007")),
            ("pull", json!(true)),
            ("command", json!(["/bin/true", "--quietly"])),
        ] {
            let mut expected = shown.clone();
            expected[field] = place;
            let mut whole = expected.clone();
            for (field, value) in [
                ("id", json!("ep_0000000000001")),
                ("state", json!("active")),
                ("created_at", json!("2026-01-01T00:00:00.000Z")),
                ("updated_at", json!("2026-01-01T00:00:00.000Z")),
                ("tls", json!({"client_cert": "a", "has_client_key": true, "ca": null})),
            ] {
                whole[field] = value;
            }
            let endpoint: Endpoint = serde_json::from_value(whole).expect("an endpoint");
            assert_eq!(Typed::of(&endpoint).body(Purpose::Change).expect("valid"), expected);
        }
    }

    #[test]
    fn a_secret_is_only_said_of_a_new_endpoint() {
        let typed = Typed { secret: "whsec_x".into(), ..whole_form() };
        assert_eq!(typed.body(Purpose::New).expect("valid")["secret"], "whsec_x");
        assert_eq!(typed.body(Purpose::Change).expect("valid").get("secret"), None);
    }

    #[test]
    fn the_place_that_was_chosen_is_the_one_that_is_said() {
        let all = Typed {
            hub: "hub_0000000000007".into(),
            command: "/bin/true\n--quietly\n".into(),
            ..whole_form()
        };
        for (place, field, value) in [
            ("url", "url", json!("https://example.com/")),
            ("hub", "hub", json!("hub_0000000000007")),
            ("pull", "pull", json!(true)),
            ("command", "command", json!(["/bin/true", "--quietly"])),
        ] {
            let typed = Typed { place: place.into(), ..all.clone() };
            let body = typed.body(Purpose::New).expect("valid");
            assert_eq!(body[field], value);
            let places = ["url", "hub", "pull", "command"];
            assert_eq!(places.iter().filter(|name| body.get(**name).is_some()).count(), 1);
        }
        let handler = Typed { place: "handler".into(), ..all };
        assert_eq!(handler.body(Purpose::Change).expect("valid").get("url"), None);
    }

    #[test]
    fn what_cannot_be_read_is_said_at_its_control() {
        type Change = fn(&mut Typed);

        let with = |change: Change| {
            let mut typed = whole_form();
            change(&mut typed);
            typed.body(Purpose::New).map_or_else(|error| error.field, |body| body.to_string())
        };
        let cases: [(Change, &str); 7] = [
            (|typed| typed.metadata = "owner".into(), "metadata"),
            (|typed| typed.metadata = "[1]".into(), "metadata"),
            (|typed| typed.headers = "X-Team blue".into(), "headers"),
            (|typed| typed.headers = "a: 1\na: 2".into(), "headers"),
            (|typed| typed.per_second = "many".into(), "rate_limit.per_second"),
            (|typed| typed.per_second = String::new(), "rate_limit.per_second"),
            (|typed| typed.max_in_flight = "-1".into(), "max_in_flight"),
        ];
        for (change, field) in cases {
            assert_eq!(with(change), field);
        }
    }
}
