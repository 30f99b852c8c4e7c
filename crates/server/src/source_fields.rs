//! What a user can say of a source, when making one and when changing one, and its bounds. How
//! requests are verified is judged by `postrider_core::verification`.

use http::HeaderName;
use postrider_core::source::{KeepHeaders, OnInvalid, Place, Source, Spec, TypeFrom};
use postrider_core::verification::{self, Scheme, Verifier};
use serde::de::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::extract::{self, Object};
use crate::pointer;
use crate::problem::Problem;
use crate::received::{FALLBACK_TYPE, MAX_KEPT_HEADERS, RESERVED_TYPES, is_never_kept};

const MAX_NAME_CHARS: usize = 200;
const VERIFY: &str = "verify";

/// The fields of a request.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Fields {
    #[serde(deserialize_with = "said")]
    name: Option<String>,
    /// Taken apart here, since the errors of a deserializer would repeat a secret in a wrong place.
    #[serde(deserialize_with = "said")]
    verify: Option<Value>,
    #[serde(deserialize_with = "said")]
    on_invalid: Option<OrNull<OnInvalid>>,
    #[serde(deserialize_with = "said")]
    type_from: Option<OrNull<TypeFrom>>,
    #[serde(deserialize_with = "said")]
    dedup_from: Option<OrNull<Place>>,
    #[serde(deserialize_with = "said")]
    keep_headers: Option<OrNull<Keep>>,
}

/// A source that can be stored and used.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) spec: Spec,
    /// Newest first.
    pub(crate) signing: Vec<String>,
    pub(crate) verifier: Verifier,
}

impl Fields {
    /// A new source: what is not said is as usual for its scheme.
    pub(crate) fn into_draft(mut self) -> Result<Draft, Problem> {
        let Some(name) = self.name.take() else {
            return Err(Problem::invalid("name", "is missing: say what posts here"));
        };
        let Some(verify) = self.verify.take() else {
            let message = "is missing: say how requests are verified, with {\"scheme\":\"none\"} \
                           if they are not";
            return Err(Problem::invalid(VERIFY, message));
        };
        let (scheme, signing) = read_verify(verify, None)?;
        let (type_from, dedup_from) = usual_places(&scheme);
        let spec = Spec {
            name: check_name(name)?,
            verify: scheme,
            on_invalid: OnInvalid::default(),
            type_from,
            dedup_from,
            keep_headers: KeepHeaders::default(),
        };
        self.finish(spec, signing)
    }

    /// A changed source: what is not said stays, and `null` is back to the usual. Only `dedup_from`
    /// has a `null` of its own: every webhook is an event.
    pub(crate) fn merge_into(mut self, source: &Source) -> Result<Draft, Problem> {
        let mut spec = source.spec.clone();
        let mut signing = source.secrets.signing.clone();
        if let Some(name) = self.name.take() {
            spec.name = check_name(name)?;
        }
        if let Some(verify) = self.verify.take() {
            let before = usual_places(&spec.verify);
            (spec.verify, signing) = read_verify(verify, Some(source))?;
            let after = usual_places(&spec.verify);
            // What was left to the old scheme is left to the new one.
            if spec.type_from == before.0 {
                spec.type_from = after.0;
            }
            if spec.dedup_from == before.1 {
                spec.dedup_from = after.1;
            }
        }
        self.finish(spec, signing)
    }

    fn finish(self, mut spec: Spec, signing: Vec<String>) -> Result<Draft, Problem> {
        if let Some(OrNull(on_invalid)) = self.on_invalid {
            spec.on_invalid = on_invalid.unwrap_or_default();
        }
        if let Some(OrNull(from)) = self.type_from {
            spec.type_from = from.unwrap_or_else(|| usual_places(&spec.verify).0);
        }
        if let Some(OrNull(from)) = self.dedup_from {
            spec.dedup_from = from;
        }
        if let Some(OrNull(keep)) = self.keep_headers {
            spec.keep_headers = keep.map_or_else(KeepHeaders::default, Keep::into);
        }
        check_places(&mut spec)?;
        let verifier = Verifier::new(&spec.verify, &signing).map_err(in_verify)?;
        Ok(Draft { spec, signing, verifier })
    }
}

/// Where the type and the dedup key of a provider's webhooks stand.
///
/// | scheme | type | dedup key |
/// | --- | --- | --- |
/// | `standard` | `/type` | header `webhook-id` |
/// | `stripe` | `/type` | `/id` |
/// | `github` | header `x-github-event` | header `x-github-delivery` |
/// | `slack` | `/event/type` | `/event_id` |
/// | `shopify` | header `x-shopify-topic` | header `x-shopify-webhook-id` |
/// | `linear` | header `linear-event` | header `linear-delivery` |
/// | `paddle` | `/event_type` | `/event_id` |
/// | `telegram` | `webhook.received` | `/update_id` |
/// | `twilio`, `hmac`, `token`, `none` | `webhook.received` | none |
fn usual_places(scheme: &Scheme) -> (TypeFrom, Option<Place>) {
    let header = |name: &str| TypeFrom::Header(name.to_owned());
    let pointer = |text: &str| TypeFrom::JsonPointer(text.to_owned());
    let key_header = |name: &str| Some(Place::Header(name.to_owned()));
    let key_pointer = |text: &str| Some(Place::JsonPointer(text.to_owned()));
    let fixed = TypeFrom::Fixed(FALLBACK_TYPE.to_owned());
    match scheme {
        Scheme::Standard { .. } => (pointer("/type"), key_header("webhook-id")),
        Scheme::Stripe { .. } => (pointer("/type"), key_pointer("/id")),
        Scheme::Github => (header("x-github-event"), key_header("x-github-delivery")),
        Scheme::Slack { .. } => (pointer("/event/type"), key_pointer("/event_id")),
        Scheme::Shopify => (header("x-shopify-topic"), key_header("x-shopify-webhook-id")),
        Scheme::Linear { .. } => (header("linear-event"), key_header("linear-delivery")),
        Scheme::Paddle { .. } => (pointer("/event_type"), key_pointer("/event_id")),
        Scheme::Telegram => (fixed, key_pointer("/update_id")),
        Scheme::None | Scheme::Twilio | Scheme::Hmac(_) | Scheme::Token(_) => (fixed, None),
    }
}

/// The scheme and the live secrets. With a `scheme` it says all there is to say, save that the
/// secrets stay if it is the one the source has; without, it changes what it names.
fn read_verify(said: Value, source: Option<&Source>) -> Result<(Scheme, Vec<String>), Problem> {
    #[derive(serde::Deserialize)]
    struct Verify {
        verify: Object<verification::Spec>,
    }

    let Value::Object(mut said) = said else {
        return Err(Problem::invalid(VERIFY, "must be an object with a scheme"));
    };
    let secrets = take_secrets(&mut said)?;
    let mut options = match source {
        Some(source) if !said.contains_key("scheme") => options_of(&source.spec.verify)?,
        Some(_) | None => Map::new(),
    };
    for (name, value) in said {
        if value.is_null() {
            options.remove(&name);
        } else {
            options.insert(name, value);
        }
    }
    let text = Value::from(Map::from_iter([(VERIFY.to_owned(), options.into())])).to_string();
    let Verify { verify: Object(spec) } = extract::parse(text.as_bytes())?;
    let (scheme, _) = spec.build().map_err(in_verify)?;
    let kept = source.filter(|source| source.spec.verify.as_str() == scheme.as_str());
    let kept = || kept.map_or_else(Vec::new, |source| source.secrets.signing.clone());
    Ok((scheme, secrets.unwrap_or_else(kept)))
}

fn options_of(scheme: &Scheme) -> Result<Map<String, Value>, Problem> {
    match serde_json::to_value(scheme) {
        Ok(Value::Object(options)) => Ok(options),
        Ok(_) | Err(_) => Err(Problem::internal()),
    }
}

fn take_secrets(said: &mut Map<String, Value>) -> Result<Option<Vec<String>>, Problem> {
    let refuse = |field: &str, message: &str| Err(Problem::invalid(field, message));
    match (said.remove("secret"), said.remove("secrets")) {
        (None, None) => Ok(None),
        (Some(Value::String(secret)), None) => Ok(Some(vec![secret])),
        (Some(_), None) => refuse("verify.secret", "must be a text"),
        (None, Some(Value::Array(secrets))) => secrets
            .into_iter()
            .enumerate()
            .map(|(index, secret)| match secret {
                Value::String(secret) => Ok(secret),
                _ => Err(Problem::invalid(format!("verify.secrets[{index}]"), "must be a text")),
            })
            .collect::<Result<_, _>>()
            .map(Some),
        (None, Some(_)) => refuse("verify.secrets", "must be a list of texts, the newest first"),
        (Some(_), Some(_)) => refuse("verify.secret", "and secrets exclude each other; use one"),
    }
}

fn in_verify(invalid: verification::Invalid) -> Problem {
    Problem::invalid(format!("{VERIFY}.{}", invalid.field), invalid.message)
}

fn check_name(name: String) -> Result<String, Problem> {
    let bounded = name.chars().count() <= MAX_NAME_CHARS && !name.trim().is_empty();
    if bounded && !name.chars().any(char::is_control) {
        Ok(name)
    } else {
        let message = format!("must have 1 to {MAX_NAME_CHARS} characters, none for control");
        Err(Problem::invalid("name", message))
    }
}

/// Checks everything that names a place in a request; header names become lower case.
fn check_places(spec: &mut Spec) -> Result<(), Problem> {
    let scheme = &spec.verify;
    match &mut spec.type_from {
        TypeFrom::Header(name) => check_header(scheme, "type_from.header", name)?,
        TypeFrom::JsonPointer(text) => check_pointer("type_from.json_pointer", text)?,
        TypeFrom::Fixed(kind) => check_fixed(kind)?,
    }
    match &mut spec.dedup_from {
        Some(Place::Header(name)) => check_header(scheme, "dedup_from.header", name)?,
        Some(Place::JsonPointer(text)) => check_pointer("dedup_from.json_pointer", text)?,
        None => {}
    }
    match &mut spec.keep_headers {
        KeepHeaders::All => {}
        KeepHeaders::Named(names) if names.len() > MAX_KEPT_HEADERS => {
            let message = format!("must have at most {MAX_KEPT_HEADERS} entries");
            return Err(Problem::invalid("keep_headers", message));
        }
        KeepHeaders::Named(names) => {
            for (index, name) in names.iter_mut().enumerate() {
                check_header(scheme, &format!("keep_headers[{index}]"), name)?;
            }
            names.sort_unstable();
            names.dedup();
        }
    }
    Ok(())
}

fn check_header(scheme: &Scheme, field: &str, name: &mut String) -> Result<(), Problem> {
    let Ok(parsed) = HeaderName::from_bytes(name.as_bytes()) else {
        return Err(Problem::invalid(field, "is not a header name"));
    };
    if is_never_kept(scheme, parsed.as_str()) {
        let message = "is never kept: it belongs to the connection, to the gateway, or is a secret";
        return Err(Problem::invalid(field, message));
    }
    parsed.as_str().clone_into(name);
    Ok(())
}

fn check_pointer(field: &str, text: &str) -> Result<(), Problem> {
    pointer::check(text).map_err(|message| Problem::invalid(field, message))
}

fn check_fixed(kind: &str) -> Result<(), Problem> {
    const FIELD: &str = "type_from.fixed";
    if kind.starts_with(RESERVED_TYPES) {
        let message = format!("must not begin with {RESERVED_TYPES}: those are the gateway's own");
        return Err(Problem::invalid(FIELD, message));
    }
    postrider_core::pattern::check_type(kind)
        .map_err(|error| Problem::invalid(FIELD, error.to_string()))
}

/// A field that was there, whatever it says.
fn said<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// A value, or a `null` in its place.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct OrNull<T>(Option<T>);

/// `"all"`, or a list of names.
struct Keep(KeepHeaders);

impl From<Keep> for KeepHeaders {
    fn from(Keep(keep): Keep) -> Self {
        keep
    }
}

impl<'de> Deserialize<'de> for Keep {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = KeepHeaders;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"all\" or a list of header names")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<KeepHeaders, E> {
                if text == "all" {
                    Ok(KeepHeaders::All)
                } else {
                    Err(E::invalid_value(serde::de::Unexpected::Str(text), &self))
                }
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<KeepHeaders, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element()? {
                    names.push(name);
                }
                Ok(KeepHeaders::Named(names))
            }
        }

        from.deserialize_any(Visitor).map(Keep)
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::source::Secrets;
    use postrider_core::{SourceId, TenantId, Timestamp};

    use super::*;

    fn create(json: &str) -> Result<Draft, Problem> {
        extract::parse::<Fields>(json.as_bytes())?.into_draft()
    }

    fn stored(draft: Draft) -> Source {
        Source {
            id: SourceId::from_i64(1),
            tenant: TenantId::DEFAULT,
            spec: draft.spec,
            secrets: Secrets { token: "t".into(), signing: draft.signing },
            created_at: Timestamp::MIN,
            updated_at: Timestamp::MIN,
        }
    }

    fn change(source: &Source, json: &str) -> Result<Source, Problem> {
        extract::parse::<Fields>(json.as_bytes())?.merge_into(source).map(stored)
    }

    #[test]
    fn each_scheme_knows_where_its_provider_writes() {
        for (scheme, type_from, dedup_from) in [
            ("standard", r#"{"json_pointer":"/type"}"#, r#"{"header":"webhook-id"}"#),
            ("github", r#"{"header":"x-github-event"}"#, r#"{"header":"x-github-delivery"}"#),
            ("stripe", r#"{"json_pointer":"/type"}"#, r#"{"json_pointer":"/id"}"#),
            ("slack", r#"{"json_pointer":"/event/type"}"#, r#"{"json_pointer":"/event_id"}"#),
            ("shopify", r#"{"header":"x-shopify-topic"}"#, r#"{"header":"x-shopify-webhook-id"}"#),
            ("linear", r#"{"header":"linear-event"}"#, r#"{"header":"linear-delivery"}"#),
            ("paddle", r#"{"json_pointer":"/event_type"}"#, r#"{"json_pointer":"/event_id"}"#),
            ("telegram", r#"{"fixed":"webhook.received"}"#, r#"{"json_pointer":"/update_id"}"#),
            ("twilio", r#"{"fixed":"webhook.received"}"#, "null"),
        ] {
            let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
            let secret = if scheme == "standard" { secret } else { "s-e-c-r-e-t" };
            let json =
                format!(r#"{{"name":"a","verify":{{"scheme":"{scheme}","secret":"{secret}"}}}}"#);
            let spec = create(&json).expect(scheme).spec;
            let text = |value: &Value| value.to_string();
            assert_eq!(text(&serde_json::json!(spec.type_from)), type_from, "{scheme}");
            assert_eq!(text(&serde_json::json!(spec.dedup_from)), dedup_from, "{scheme}");
            assert_eq!(spec.on_invalid, OnInvalid::Reject);
            assert_eq!(spec.keep_headers, KeepHeaders::All);
        }
    }

    #[test]
    fn a_change_replaces_what_is_said_and_keeps_the_rest() {
        let source = stored(
            create(
                r#"{"name":"one","on_invalid":"mark","keep_headers":["X-B","x-a","x-b"],
                "verify":{"scheme":"stripe","secret":"old","tolerance":"1m"}}"#,
            )
            .expect("valid"),
        );
        assert_eq!(source.spec.keep_headers, KeepHeaders::Named(vec!["x-a".into(), "x-b".into()]));
        let same = change(&source, "{}").expect("valid");
        assert_eq!(same, source);

        let rotating = change(&source, r#"{"verify":{"secrets":["new","old"]}}"#).expect("valid");
        assert_eq!(rotating.secrets.signing, ["new", "old"]);
        assert_eq!(rotating.spec, source.spec, "the tolerance stays");
        let wider = change(&rotating, r#"{"verify":{"tolerance":"2m"}}"#).expect("valid");
        assert_eq!(wider.secrets, rotating.secrets);
        assert_ne!(wider.spec.verify, source.spec.verify);
        let usual = change(&source, r#"{"verify":{"scheme":"stripe"}}"#).expect("valid");
        assert_eq!(usual.secrets, source.secrets);
        let also = change(&source, r#"{"verify":{"tolerance":null}}"#).expect("valid");
        assert_eq!(usual.spec.verify, also.spec.verify);

        let other = change(&source, r#"{"verify":{"scheme":"github","secret":"s"}}"#);
        let other = other.expect("valid");
        assert_eq!(other.spec.type_from, TypeFrom::Header("x-github-event".into()));
        assert_eq!(other.secrets.signing, ["s"]);
        let needs = change(&source, r#"{"verify":{"scheme":"github"}}"#).expect_err("no secret");
        assert_eq!(needs.fields(), ["verify.secret"], "a secret of Stripe's is none of GitHub's");
        let open = change(&source, r#"{"verify":{"scheme":"none"}}"#).expect("valid");
        assert!(open.secrets.signing.is_empty());

        let own = change(&source, r#"{"type_from":{"fixed":"x"},"dedup_from":null}"#);
        let own = own.expect("valid");
        assert_eq!(own.spec.dedup_from, None);
        let moved = change(&own, r#"{"verify":{"scheme":"github","secret":"s"}}"#).expect("valid");
        assert_eq!(moved.spec.type_from, TypeFrom::Fixed("x".into()));
        assert_eq!(moved.spec.dedup_from, None);
        let back = change(&own, r#"{"type_from":null,"on_invalid":null,"keep_headers":null}"#);
        let back = back.expect("valid").spec;
        assert_eq!(back.type_from, source.spec.type_from);
        assert_eq!((back.on_invalid, back.keep_headers), (OnInvalid::Reject, KeepHeaders::All));
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name_and_no_secret_is_repeated() {
        let long = "n".repeat(201);
        let many = vec!["\"x\""; 65].join(",");
        let verify = r#""verify":{"scheme":"none"}"#;
        let with = |rest: &str| format!(r#"{{"name":"a",{verify},{rest}}}"#);
        let verified = |verify: &str| format!(r#"{{"name":"a","verify":{verify}}}"#);
        let token = r#"{"scheme":"token","header":"X-Tok","secret":"s3cret"}"#;
        let cases: Vec<(String, &str)> = vec![
            ("{}".into(), "name"),
            (r#"{"name":"a"}"#.into(), "verify"),
            (format!("{{{verify}}}"), "name"),
            (format!(r#"{{"name":"",{verify}}}"#), "name"),
            (format!(r#"{{"name":" ",{verify}}}"#), "name"),
            (format!(r#"{{"name":null,{verify}}}"#), "name"),
            (format!(r#"{{"name":"{long}",{verify}}}"#), "name"),
            (format!(r#"{{"name":"a\u0007",{verify}}}"#), "name"),
            (verified(r#""s3cret""#), "verify"),
            (verified("null"), "verify"),
            (verified("{}"), "verify.scheme"),
            (verified(r#"{"scheme":"rot13"}"#), "verify.scheme"),
            (verified(r#"{"scheme":"github"}"#), "verify.secret"),
            (verified(r#"{"scheme":"github","secret":""}"#), "verify.secret"),
            (verified(r#"{"scheme":"github","secret":["s3cret"]}"#), "verify.secret"),
            (verified(r#"{"scheme":"github","secrets":"s3cret"}"#), "verify.secrets"),
            (verified(r#"{"scheme":"github","secrets":[]}"#), "verify.secret"),
            (verified(r#"{"scheme":"github","secrets":["s3cret",7]}"#), "verify.secrets[1]"),
            (verified(r#"{"scheme":"github","secrets":["s3cret",""]}"#), "verify.secrets[1]"),
            (verified(r#"{"scheme":"github","secret":"a","secrets":["b"]}"#), "verify.secret"),
            (verified(r#"{"scheme":"github","secret":"a","tolerance":"5m"}"#), "verify.tolerance"),
            (verified(r#"{"scheme":"stripe","secret":"a","tolerance":5}"#), "verify.tolerance"),
            (verified(r#"{"scheme":"github","secret":"a","colour":1}"#), "verify.colour"),
            (verified(r#"{"scheme":"none","secret":"s3cret"}"#), "verify.secret"),
            (verified(r#"{"scheme":"hmac","secret":"s3cret"}"#), "verify.header"),
            (with(r#""on_invalid":"ignore""#), "on_invalid"),
            (with(r#""type_from":"header""#), "type_from.header"),
            (with(r#""type_from":{"query":"a"}"#), "type_from"),
            (with(r#""type_from":{"header":"a b"}"#), "type_from.header"),
            (with(r#""type_from":{"header":"Cookie"}"#), "type_from.header"),
            (with(r#""type_from":{"fixed":"a b"}"#), "type_from.fixed"),
            (with(r#""type_from":{"fixed":"postrider.test"}"#), "type_from.fixed"),
            (with(r#""type_from":{"json_pointer":"type"}"#), "type_from.json_pointer"),
            (with(r#""dedup_from":{"json_pointer":"/a~"}"#), "dedup_from.json_pointer"),
            (with(r#""dedup_from":{"header":"authorization"}"#), "dedup_from.header"),
            (with(r#""dedup_from":{"fixed":"a"}"#), "dedup_from"),
            (with(r#""keep_headers":"none""#), "keep_headers"),
            (with(r#""keep_headers":["x-a","x b"]"#), "keep_headers[1]"),
            (with(r#""keep_headers":["x-a",1]"#), "keep_headers[1]"),
            (with(r#""keep_headers":["Postrider-Via"]"#), "keep_headers[0]"),
            (with(&format!(r#""keep_headers":[{many}]"#)), "keep_headers"),
            (
                format!(r#"{{"name":"a","verify":{token},"keep_headers":["x-tok"]}}"#),
                "keep_headers[0]",
            ),
            (with(r#""url":"/in/mine""#), "url"),
        ];
        for (json, field) in cases {
            let problem = create(&json).expect_err(&json);
            assert_eq!(problem.fields(), [field], "{json} {problem:?}");
            assert!(!format!("{problem:?}").contains("s3cret"), "{problem:?}");
        }
    }
}
