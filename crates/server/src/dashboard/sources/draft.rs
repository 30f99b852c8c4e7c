//! The form of a source: what stands in its fields, and the request that it comes to. Fields are named
//! as the API names them, so that what it says of one finds its place.

use postrider_core::source::{OnInvalid, Place, TypeFrom};
use serde_json::{Map, Value, json};

use super::{Keep, Source};
use crate::dashboard::fields::Form;

/// The names of the schemes, and what people call them.
pub(super) const SCHEMES: [(&str, &str); 12] = [
    ("standard", "Standard Webhooks"),
    ("github", "GitHub"),
    ("stripe", "Stripe"),
    ("slack", "Slack"),
    ("shopify", "Shopify"),
    ("twilio", "Twilio"),
    ("linear", "Linear"),
    ("paddle", "Paddle"),
    ("telegram", "Telegram"),
    ("hmac", "HMAC, described by you"),
    ("token", "Token, sent along"),
    ("none", "None: everything is believed"),
];

/// Those whose signatures say when they were made.
const TIMED: [&str; 5] = ["standard", "stripe", "slack", "linear", "paddle"];

/// What the fields hold, as text. Secrets are not in it: they are written into no page.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) scheme: String,
    pub(super) tolerance: String,
    pub(super) header: String,
    pub(super) prefix: String,
    pub(super) algorithm: String,
    pub(super) encoding: String,
    pub(super) signed: String,
    pub(super) stamp_header: String,
    pub(super) stamp_format: String,
    pub(super) stamp_tolerance: String,
    /// `header`, `query`, `bearer` or `basic`.
    pub(super) place: String,
    pub(super) query: String,
    pub(super) on_invalid: String,
    pub(super) type_from: String,
    pub(super) type_value: String,
    pub(super) dedup_from: String,
    pub(super) dedup_value: String,
    pub(super) keep_headers: String,
}

impl Draft {
    /// A form that nobody has filled in.
    pub(super) fn blank() -> Self {
        let usual = || "usual".to_owned();
        Self {
            scheme: "standard".to_owned(),
            place: "header".to_owned(),
            on_invalid: "reject".to_owned(),
            type_from: usual(),
            dedup_from: usual(),
            ..Self::default()
        }
    }

    pub(super) fn of(source: &Source) -> Self {
        // What it is written as is what the form has fields for.
        let verify = serde_json::to_value(&source.verify.scheme).unwrap_or_default();
        let text = |pointer: &str| {
            verify.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let place = match (verify.get("authorization").and_then(Value::as_str), verify.get("query"))
        {
            (Some(authorization), _) => authorization,
            (None, Some(_)) => "query",
            (None, None) => "header",
        };
        let (type_from, type_value) = match &source.type_from {
            TypeFrom::Header(name) => ("header", name),
            TypeFrom::JsonPointer(pointer) => ("json_pointer", pointer),
            TypeFrom::Fixed(kind) => ("fixed", kind),
        };
        let (dedup_from, dedup_value) = match &source.dedup_from {
            None => ("none", ""),
            Some(Place::Header(name)) => ("header", name.as_str()),
            Some(Place::JsonPointer(pointer)) => ("json_pointer", pointer.as_str()),
        };
        Self {
            name: source.name.clone(),
            scheme: text("/scheme"),
            tolerance: text("/tolerance"),
            header: text("/header"),
            prefix: text("/prefix"),
            algorithm: text("/algorithm"),
            encoding: text("/encoding"),
            signed: text("/signed"),
            stamp_header: text("/timestamp/header"),
            stamp_format: text("/timestamp/format"),
            stamp_tolerance: text("/timestamp/tolerance"),
            place: place.to_owned(),
            query: text("/query"),
            on_invalid: match source.on_invalid {
                OnInvalid::Reject => "reject",
                OnInvalid::Mark => "mark",
            }
            .to_owned(),
            type_from: type_from.to_owned(),
            type_value: type_value.clone(),
            dedup_from: dedup_from.to_owned(),
            dedup_value: dedup_value.to_owned(),
            keep_headers: match &source.keep_headers {
                Keep::All(_) => String::new(),
                Keep::Named(names) => names.join("\n"),
            },
        }
    }

    pub(super) fn read(form: &Form) -> Self {
        let text = |name: &str| form.text(name).unwrap_or_default().to_owned();
        Self {
            name: text("name"),
            scheme: text("verify.scheme"),
            tolerance: text("verify.tolerance"),
            header: text("verify.header"),
            prefix: text("verify.prefix"),
            algorithm: text("verify.algorithm"),
            encoding: text("verify.encoding"),
            signed: text("verify.signed"),
            stamp_header: text("verify.timestamp.header"),
            stamp_format: text("verify.timestamp.format"),
            stamp_tolerance: text("verify.timestamp.tolerance"),
            place: text("place"),
            query: text("verify.query"),
            on_invalid: text("on_invalid"),
            type_from: text("type_from"),
            type_value: text("type_value"),
            dedup_from: text("dedup_from"),
            dedup_value: text("dedup_value"),
            keep_headers: text("keep_headers"),
        }
    }

    pub(super) fn is_timed(&self) -> bool {
        TIMED.contains(&self.scheme.as_str())
    }

    pub(super) fn has_secret(&self) -> bool {
        self.scheme != "none"
    }

    pub(super) fn is_hmac(&self) -> bool {
        self.scheme == "hmac"
    }

    pub(super) fn is_token(&self) -> bool {
        self.scheme == "token"
    }

    /// The request for a new source, or for the change of `before`, of which only what differs is
    /// said: what was left to its scheme stays so when it gets another one.
    pub(super) fn request(&self, form: &Form, before: Option<&Source>) -> Value {
        let mut request = Map::new();
        request.insert("name".into(), self.name.as_str().into());
        request.insert("verify".into(), self.verify(form));
        request.insert("on_invalid".into(), self.on_invalid.as_str().into());
        let names: Vec<&str> =
            self.keep_headers.split(['\n', ',']).map(str::trim).filter(|n| !n.is_empty()).collect();
        let keep = if names.is_empty() { Value::Null } else { json!(names) };
        request.insert("keep_headers".into(), keep);
        let was = before.map(Self::of);
        let differs =
            |of: fn(&Self) -> (&str, &str)| was.as_ref().is_none_or(|was| of(was) != of(self));
        if differs(|draft| (&draft.type_from, &draft.type_value)) {
            let from = place(&self.type_from, &self.type_value);
            request.insert("type_from".into(), from);
        }
        let is_left_to_the_scheme = before.is_none() && self.dedup_from == "usual";
        if differs(|draft| (&draft.dedup_from, &draft.dedup_value)) && !is_left_to_the_scheme {
            request.insert("dedup_from".into(), place(&self.dedup_from, &self.dedup_value));
        }
        request.into()
    }

    /// Only what is an option of the scheme: the page may have been filled in for another one.
    fn verify(&self, form: &Form) -> Value {
        let mut verify = Map::new();
        let mut say = |name: &str, value: &str| {
            if !value.is_empty() {
                verify.insert(name.to_owned(), value.into());
            }
        };
        say("scheme", &self.scheme);
        if self.is_timed() {
            say("tolerance", &self.tolerance);
        }
        if self.is_hmac() {
            say("header", &self.header);
            say("prefix", &self.prefix);
            say("algorithm", &self.algorithm);
            say("encoding", &self.encoding);
            say("signed", &self.signed);
        }
        if self.is_token() {
            match self.place.as_str() {
                "query" => say("query", &self.query),
                "bearer" | "basic" => say("authorization", &self.place),
                _ => {
                    say("header", &self.header);
                    say("prefix", &self.prefix);
                }
            }
        }
        if self.is_hmac() && !self.stamp_header.is_empty() {
            let mut stamp = Map::new();
            for (name, value) in [
                ("header", &self.stamp_header),
                ("format", &self.stamp_format),
                ("tolerance", &self.stamp_tolerance),
            ] {
                if !value.is_empty() {
                    stamp.insert(name.to_owned(), value.as_str().into());
                }
            }
            verify.insert("timestamp".into(), stamp.into());
        }
        if self.has_secret() {
            let secrets: Vec<&str> = ["verify.secret", "older_secret"]
                .into_iter()
                .filter_map(|n| form.text(n))
                .collect();
            match secrets.as_slice() {
                // Those that it has stay.
                [] => {}
                [one] => drop(verify.insert("secret".into(), (*one).into())),
                several => drop(verify.insert("secrets".into(), json!(several))),
            }
        }
        verify.into()
    }
}

/// Where something stands in a request; `null` where it is left to the scheme, or is not there.
fn place(kind: &str, value: &str) -> Value {
    match kind {
        "header" | "json_pointer" | "fixed" => json!({ kind: value }),
        _ => Value::Null,
    }
}
