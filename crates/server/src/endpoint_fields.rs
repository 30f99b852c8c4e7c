//! What a user can say of an endpoint, when making one and when changing one, and its bounds. The
//! engine judges the address, the policy and the secret.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use postrider_core::endpoint::{Destination, Format, Ordering, RateLimit, Spec, Tls};
use postrider_core::pattern::Pattern;
use postrider_core::signing::Scheme;
use postrider_core::{HubId, SourceId, policy, span};
use serde::de::{self, Deserialize, Deserializer};

use crate::extract::Object;
use crate::framing::OF_THE_CONNECTION;
use crate::new_event::MAX_METADATA_BYTES;
use crate::problem::Problem;

const MAX_NAME_CHARS: usize = 200;
const MAX_EVENT_TYPES: usize = 100;
const MAX_SOURCES: usize = 100;
const MAX_HEADERS: usize = 50;
const MAX_HEADER_VALUE_BYTES: usize = 4 << 10;
const MAX_CHAT_ID_CHARS: usize = 64;
const MAX_IN_FLIGHT: u32 = 1_000;
const MAX_PER_SECOND: f64 = 100_000.0;
const MAX_BURST: u32 = 100_000;
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
const MAX_TIMEOUT: Duration = Duration::from_mins(1);

/// Headers that the gateway writes, beside those that decide how a request is framed.
const RESERVED_HEADERS: [&str; 3] = ["accept-encoding", "content-encoding", "content-type"];
const RESERVED_PREFIXES: [&str; 4] = ["proxy-", "webhook-", "postrider-", "user-agent"];

/// The fields of a request.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Fields {
    name: Said<String>,
    url: Said<String>,
    command: Said<Vec<String>>,
    hub: Said<HubId>,
    pull: Said<bool>,
    event_types: Said<Vec<Pattern>>,
    sources: Said<Vec<SourceId>>,
    filter: Said<String>,
    policy: Said<policy::Spec>,
    ordering: Said<Ordering>,
    rate_limit: Said<Object<RateLimit>>,
    max_in_flight: Said<u32>,
    timeout: Said<Span>,
    headers: Said<Headers>,
    signing: Said<Object<Scheme>>,
    format: Said<Format>,
    metadata: Said<serde_json::Map<String, serde_json::Value>>,
    pub(crate) secret: Option<String>,
    tls: Said<Object<Tls>>,
}

impl Fields {
    /// A new endpoint: what is not said is as usual.
    pub(crate) fn into_spec(mut self) -> Result<Spec, Problem> {
        let preset = match &self.policy {
            Said::Value(policy) => policy.preset,
            Said::Nothing | Said::Null => None,
        };
        let destination = self.destination(None)?;
        self.merge_into(Spec {
            name: None,
            destination,
            event_types: vec![Pattern::Any],
            sources: Vec::new(),
            filter: None,
            policy: policy::Spec::default(),
            ordering: Ordering::default_for(preset),
            rate_limit: None,
            max_in_flight: None,
            timeout: None,
            headers: BTreeMap::new(),
            signing: Scheme::default(),
            format: None,
            metadata: serde_json::Map::new(),
        })
    }

    /// Where deliveries go from now on: to one place, and always to some place.
    fn destination(&mut self, current: Option<Destination>) -> Result<Destination, Problem> {
        let pull = match std::mem::take(&mut self.pull) {
            Said::Value(true) => Said::Value(Destination::Pull),
            Said::Value(false) | Said::Null | Said::Nothing => Said::Nothing,
        };
        let said = [
            ("url", std::mem::take(&mut self.url).map(Destination::Url)),
            ("command", std::mem::take(&mut self.command).map(Destination::Command)),
            ("hub", std::mem::take(&mut self.hub).map(Destination::Hub)),
            ("pull", pull),
        ];
        let is_null = |field: &str| {
            said.iter().any(|(name, said)| *name == field && matches!(said, Said::Null))
        };
        let mut places = said.iter().filter_map(|(name, said)| match said {
            Said::Value(place) => Some((name, place)),
            Said::Nothing | Said::Null => None,
        });
        match (places.next(), places.next(), current) {
            (Some((first, _)), Some((second, _)), _) => {
                let message = format!("cannot be given beside {first}: deliveries go to one place");
                Err(Problem::invalid(*second, message))
            }
            (Some((_, place)), None, _) => Ok(place.clone()),
            (None, _, Some(current)) if is_null(field_of(&current)) => {
                let message = "cannot be taken away: say where the deliveries go instead";
                Err(Problem::invalid(field_of(&current), message))
            }
            (None, _, Some(current)) => Ok(current),
            (None, _, None) => {
                let message =
                    "is missing: say where the deliveries go, by url, command, hub or pull";
                Err(Problem::invalid("url", message))
            }
        }
    }

    /// What of TLS holds from now on. Said at all, it is said whole: a key and its certificate change
    /// together.
    pub(crate) fn tls(&mut self, current: Option<Tls>) -> Option<Tls> {
        match std::mem::take(&mut self.tls) {
            Said::Nothing => current,
            Said::Null => None,
            Said::Value(Object(tls)) => Some(tls),
        }
    }

    /// A changed endpoint: what is not said stays, `null` is back to the usual.
    pub(crate) fn merge_into(mut self, mut spec: Spec) -> Result<Spec, Problem> {
        spec.destination = self.destination(Some(spec.destination))?;
        self.name.change(&mut spec.name, |name| name.map(check_name).transpose())?;
        self.event_types.change(&mut spec.event_types, |types| {
            check_event_types(types.unwrap_or_else(|| vec![Pattern::Any]))
        })?;
        self.sources.change(&mut spec.sources, |said| check_sources(said.unwrap_or_default()))?;
        // The engine reads the expression.
        self.filter.change(&mut spec.filter, Ok)?;
        self.policy.change(&mut spec.policy, |policy| Ok(policy.unwrap_or_default()))?;
        let usual_ordering = Ordering::default_for(spec.policy.preset);
        self.ordering.change(&mut spec.ordering, |said| Ok(said.unwrap_or(usual_ordering)))?;
        self.rate_limit.change(&mut spec.rate_limit, |limit| {
            limit.map(|Object(limit)| check_rate_limit(limit)).transpose()
        })?;
        self.max_in_flight
            .change(&mut spec.max_in_flight, |max| max.map(check_in_flight).transpose())?;
        self.timeout.change(&mut spec.timeout, |timeout| {
            timeout.map(|Span(timeout)| check_timeout(timeout)).transpose()
        })?;
        self.headers
            .change(&mut spec.headers, |headers| check_headers(headers.unwrap_or_default()))?;
        self.signing.change(&mut spec.signing, |scheme| {
            Ok(scheme.map_or_else(Scheme::default, |Object(scheme)| scheme))
        })?;
        self.format.change(&mut spec.format, |format| format.map(check_format).transpose())?;
        self.metadata
            .change(&mut spec.metadata, |metadata| check_metadata(metadata.unwrap_or_default()))?;
        check_signature_header(&spec)?;
        Ok(spec)
    }
}

/// What a destination is said by.
const fn field_of(destination: &Destination) -> &'static str {
    match destination {
        Destination::Url(_) => "url",
        Destination::Command(_) => "command",
        Destination::Hub(_) => "hub",
        Destination::Pull => "pull",
        Destination::Handler(_) => "handler",
    }
}

fn check_name(name: String) -> Result<String, Problem> {
    if name.chars().count() <= MAX_NAME_CHARS && !name.chars().any(char::is_control) {
        Ok(name)
    } else {
        let message = format!("must have at most {MAX_NAME_CHARS} characters, none for control");
        Err(Problem::invalid("name", message))
    }
}

pub(crate) fn check_event_types(types: Vec<Pattern>) -> Result<Vec<Pattern>, Problem> {
    if (1..=MAX_EVENT_TYPES).contains(&types.len()) {
        Ok(types)
    } else {
        let message = format!("must have 1 to {MAX_EVENT_TYPES} entries; \"*\" is every type");
        Err(Problem::invalid("event_types", message))
    }
}

fn check_sources(mut sources: Vec<SourceId>) -> Result<Vec<SourceId>, Problem> {
    sources.sort_unstable();
    sources.dedup();
    if sources.len() <= MAX_SOURCES {
        Ok(sources)
    } else {
        Err(Problem::invalid("sources", format!("must have at most {MAX_SOURCES} entries")))
    }
}

fn check_rate_limit(limit: RateLimit) -> Result<RateLimit, Problem> {
    if !(limit.per_second > 0.0 && limit.per_second <= MAX_PER_SECOND) {
        let message = format!("must be above 0 and at most {MAX_PER_SECOND}");
        return Err(Problem::invalid("rate_limit.per_second", message));
    }
    if !(1..=MAX_BURST).contains(&limit.burst) {
        let message = format!("must be 1 to {MAX_BURST}");
        return Err(Problem::invalid("rate_limit.burst", message));
    }
    Ok(limit)
}

fn check_in_flight(max: u32) -> Result<u32, Problem> {
    if (1..=MAX_IN_FLIGHT).contains(&max) {
        Ok(max)
    } else {
        Err(Problem::invalid("max_in_flight", format!("must be 1 to {MAX_IN_FLIGHT}")))
    }
}

fn check_timeout(timeout: Duration) -> Result<Duration, Problem> {
    if (MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout) {
        Ok(timeout)
    } else {
        let (min, max) = (span::format(MIN_TIMEOUT), span::format(MAX_TIMEOUT));
        Err(Problem::invalid("timeout", format!("must be between {min} and {max}")))
    }
}

fn check_headers(Headers(headers): Headers) -> Result<BTreeMap<String, String>, Problem> {
    if headers.len() > MAX_HEADERS {
        let message = format!("must have at most {MAX_HEADERS} entries");
        return Err(Problem::invalid("headers", message));
    }
    for (name, value) in &headers {
        let refuse = |message: &str| Err(Problem::invalid(format!("headers.{name}"), message));
        let Ok(parsed) = HeaderName::from_bytes(name.as_bytes()) else {
            return refuse("is not a header name");
        };
        if OF_THE_CONNECTION.contains(&parsed.as_str())
            || RESERVED_HEADERS.contains(&parsed.as_str())
            || RESERVED_PREFIXES.iter().any(|prefix| parsed.as_str().starts_with(prefix))
        {
            return refuse("is sent by the gateway itself");
        }
        if value.len() > MAX_HEADER_VALUE_BYTES {
            return refuse("has a value of more than 4 KiB");
        }
        if HeaderValue::from_str(value).is_err() {
            return refuse("has a value with characters that no header can have");
        }
    }
    Ok(headers)
}

fn check_format(format: Format) -> Result<Format, Problem> {
    match &format {
        Format::Telegram { chat_id }
            if !(1..=MAX_CHAT_ID_CHARS).contains(&chat_id.chars().count())
                || chat_id.chars().any(|char| char.is_control() || char.is_whitespace()) =>
        {
            let message = format!("must be 1 to {MAX_CHAT_ID_CHARS} visible characters");
            Err(Problem::invalid("format.telegram.chat_id", message))
        }
        Format::Slack | Format::Telegram { .. } => Ok(format),
    }
}

fn check_signature_header(spec: &Spec) -> Result<(), Problem> {
    match &spec.signing {
        Scheme::Sha256Hex { header }
            if spec.headers.keys().any(|name| name.eq_ignore_ascii_case(header)) =>
        {
            Err(Problem::invalid(format!("headers.{header}"), "carries the signature"))
        }
        Scheme::Standard | Scheme::Ed25519 | Scheme::Sha256Hex { .. } | Scheme::None => Ok(()),
    }
}

fn check_metadata(
    metadata: serde_json::Map<String, serde_json::Value>,
) -> Result<serde_json::Map<String, serde_json::Value>, Problem> {
    let size = serde_json::to_string(&metadata).map_or(usize::MAX, |text| text.len());
    if size <= MAX_METADATA_BYTES {
        Ok(metadata)
    } else {
        let message = format!("must have at most {MAX_METADATA_BYTES} bytes");
        Err(Problem::invalid("metadata", message))
    }
}

/// A field that can be left out, or taken back with `null`.
#[derive(Debug, Clone, Default)]
enum Said<T> {
    #[default]
    Nothing,
    Null,
    Value(T),
}

impl<T> Said<T> {
    fn map<U>(self, read: impl FnOnce(T) -> U) -> Said<U> {
        match self {
            Self::Nothing => Said::Nothing,
            Self::Null => Said::Null,
            Self::Value(value) => Said::Value(read(value)),
        }
    }

    /// Puts into `place` what `read` makes of a value or of a `null`.
    fn change<U>(
        self,
        place: &mut U,
        read: impl FnOnce(Option<T>) -> Result<U, Problem>,
    ) -> Result<(), Problem> {
        match self {
            Self::Nothing => {}
            Self::Null => *place = read(None)?,
            Self::Value(value) => *place = read(Some(value))?,
        }
        Ok(())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Said<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let said = Option::deserialize(deserializer)?;
        Ok(said.map_or(Self::Null, Self::Value))
    }
}

/// A duration written as text.
#[derive(Debug, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct Span(#[serde(with = "span::serde_span")] pub(crate) Duration);

/// Names and values. A name given twice, in whatever case, is refused.
#[derive(Debug, Default)]
struct Headers(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of header names and values")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut headers = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    let twice =
                        headers.keys().any(|known: &String| known.eq_ignore_ascii_case(&name));
                    if twice {
                        return Err(de::Error::custom(format!("{name} is given twice")));
                    }
                    if headers.len() > MAX_HEADERS {
                        return Err(de::Error::custom(format!("more than {MAX_HEADERS} headers")));
                    }
                    headers.insert(name, value);
                }
                Ok(Headers(headers))
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::parse;

    fn create(json: &str) -> Result<Spec, Problem> {
        parse::<Fields>(json.as_bytes())?.into_spec()
    }

    fn change(spec: Spec, json: &str) -> Result<Spec, Problem> {
        parse::<Fields>(json.as_bytes())?.merge_into(spec)
    }

    #[test]
    fn what_is_not_said_is_as_usual() {
        let spec = create(r#"{"url":"https://example.com/hook"}"#).expect("valid");
        assert_eq!(spec.event_types, [Pattern::Any]);
        assert_eq!(spec.ordering, Ordering::None);
        let edge = create(r#"{"url":"https://example.com/hook","policy":"edge"}"#).expect("valid");
        assert_eq!(edge.ordering, Ordering::Fifo);
    }

    #[test]
    fn a_change_replaces_what_is_said_and_null_takes_it_away() {
        let spec = create(
            r#"{"url":"https://example.com/a","name":"one","timeout":"5s","max_in_flight":3,
                "headers":{"x-a":"1"},"rate_limit":{"per_second":2.5},"event_types":["order.*"]}"#,
        )
        .expect("valid");
        let spec =
            change(spec, r#"{"name":null,"timeout":"6s","rate_limit":null}"#).expect("valid");
        assert_eq!(spec.name, None);
        assert_eq!(spec.timeout, Some(Duration::from_secs(6)));
        assert_eq!(spec.rate_limit, None);
        assert_eq!(spec.max_in_flight, Some(3));
        assert_eq!(spec.headers.len(), 1);
        let spec = change(
            spec,
            r#"{"url":"https://example.com/b","event_types":null,"headers":null,"max_in_flight":null}"#,
        )
        .expect("valid");
        assert_eq!(spec.destination, Destination::Url("https://example.com/b".into()));
        assert_eq!(spec.event_types, [Pattern::Any]);
        assert!(spec.headers.is_empty());
        let problem = change(spec, r#"{"url":null}"#).expect_err("an endpoint goes somewhere");
        assert_eq!(problem.fields(), ["url"]);
    }

    #[test]
    fn deliveries_go_to_one_place() {
        let hub = HubId::from_i64(7);
        let places = [
            (r#""url":"https://example.com""#, Destination::Url("https://example.com".into())),
            (r#""command":["/bin/true"]"#, Destination::Command(vec!["/bin/true".into()])),
            (r#""hub":"hub_0000000000007""#, Destination::Hub(hub)),
            (r#""pull":true"#, Destination::Pull),
        ];
        for (index, (text, destination)) in places.iter().enumerate() {
            let spec = create(&format!("{{{text}}}")).expect(text);
            assert_eq!(spec.destination, *destination);
            // Nothing is said by a null beside it.
            let nulls = ["url", "command", "hub", "pull"];
            let nulls = nulls.iter().filter(|name| !text.contains(*name));
            let nulls: Vec<String> = nulls.map(|name| format!(r#""{name}":null"#)).collect();
            let json = format!("{{{text},{}}}", nulls.join(","));
            assert_eq!(create(&json).expect(&json).destination, *destination);
            for (other, to) in &places[index + 1..] {
                let problem = create(&format!("{{{text},{other}}}")).expect_err(other);
                assert_eq!(problem.fields(), [field_of(to)], "{text} {other}");
                // One can become the other, and back.
                let there = change(spec.clone(), &format!("{{{other}}}")).expect(other);
                assert_eq!(there.destination, *to);
                let back = change(there, &format!("{{{text}}}")).expect(text);
                assert_eq!(back.destination, *destination);
            }
        }
    }

    #[test]
    fn deliveries_always_go_somewhere() {
        for json in ["{}", r#"{"pull":false}"#, r#"{"pull":null}"#, r#"{"url":null,"hub":null}"#] {
            assert_eq!(create(json).expect_err(json).fields(), ["url"]);
        }
        let cases = [
            (r#"{"url":"https://example.com"}"#, r#"{"url":null}"#, Some("url")),
            (r#"{"url":"https://example.com"}"#, r#"{"url":null,"command":null}"#, Some("url")),
            (r#"{"command":["/bin/true"]}"#, r#"{"command":null}"#, Some("command")),
            (r#"{"hub":"hub_0000000000007"}"#, r#"{"hub":null,"pull":false}"#, Some("hub")),
            (r#"{"url":"https://example.com"}"#, r#"{"command":null,"hub":null}"#, None),
            (r#"{"pull":true}"#, r#"{"pull":false}"#, None),
            (r#"{"pull":true}"#, r#"{"pull":null,"url":null}"#, None),
        ];
        for (before, said, refused) in cases {
            let before = create(before).expect(before);
            match (change(before.clone(), said), refused) {
                (Ok(after), None) => assert_eq!(after, before, "{said}"),
                (Err(problem), Some(field)) => assert_eq!(problem.fields(), [field], "{said}"),
                (changed, _) => panic!("{said}: {changed:?}"),
            }
        }
    }

    #[test]
    fn every_field_is_bounded() {
        let many_types = vec!["\"a\""; 101].join(",");
        let many_headers: Vec<String> = (0..51).map(|n| format!("\"x-{n}\":\"\"")).collect();
        let long = "v".repeat(20_000);
        let cases: &[(&str, &str)] = &[
            (r#""name":7"#, "name"),
            (&format!(r#""name":"{long}""#), "name"),
            (r#""name":"\u0007""#, "name"),
            (r#""event_types":[]"#, "event_types"),
            (r#""event_types":["a","b c"]"#, "event_types[1]"),
            (&format!(r#""event_types":[{many_types}]"#), "event_types"),
            (r#""policy":"weekly""#, "policy"),
            (r#""policy":{"max_attempts":-1}"#, "policy.max_attempts"),
            (r#""ordering":"lifo""#, "ordering"),
            (r#""rate_limit":{"per_second":0}"#, "rate_limit.per_second"),
            (r#""rate_limit":{"per_second":1e9}"#, "rate_limit.per_second"),
            (r#""rate_limit":{"per_second":1,"burst":0}"#, "rate_limit.burst"),
            (r#""max_in_flight":0"#, "max_in_flight"),
            (r#""max_in_flight":1001"#, "max_in_flight"),
            (r#""max_in_flight":1.5"#, "max_in_flight"),
            (r#""format":"teams""#, "format"),
            (r#""format":{"telegram":{}}"#, "format.telegram.chat_id"),
            (r#""format":{"telegram":{"chat_id":""}}"#, "format.telegram.chat_id"),
            (r#""format":{"telegram":{"chat_id":"1 2"}}"#, "format.telegram.chat_id"),
            (
                &format!(r#""format":{{"telegram":{{"chat_id":"{long}"}}}}"#),
                "format.telegram.chat_id",
            ),
            (r#""timeout":"99ms""#, "timeout"),
            (r#""timeout":"61s""#, "timeout"),
            (r#""timeout":"-5s""#, "timeout"),
            (r#""timeout":5"#, "timeout"),
            (r#""headers":["x"]"#, "headers"),
            (r#""headers":{"x y":"1"}"#, "headers.x y"),
            (r#""headers":{"x-a":"line\nbreak"}"#, "headers.x-a"),
            (&format!(r#""headers":{{"x-a":"{long}"}}"#), "headers.x-a"),
            (&format!(r#""headers":{{{}}}"#, many_headers.join(",")), "headers"),
            (r#""headers":{"x-a":"1","X-A":"2"}"#, "headers"),
            (r#""headers":{"Host":"a"}"#, "headers.Host"),
            (r#""headers":{"webhook-id":"a"}"#, "headers.webhook-id"),
            (r#""headers":{"User-Agent":"a"}"#, "headers.User-Agent"),
            (r#""signing":{"scheme":"rot13"}"#, "signing.scheme"),
            (r#""signing":{"scheme":"standard","header":"x"}"#, "signing"),
            (
                r#""signing":{"scheme":"sha256_hex","header":"x-a"},"headers":{"X-A":"1"}"#,
                "headers.x-a",
            ),
            (r#""rate_limit":[1,2]"#, "rate_limit"),
            (r#""signing":["none"]"#, "signing"),
            (r#""metadata":[]"#, "metadata"),
            (&format!(r#""metadata":{{"m":"{long}"}}"#), "metadata"),
            (r#""hub":"hub_1""#, "hub"),
            (r#""hub":"ep_0000000000000""#, "hub"),
            (r#""hub":7"#, "hub"),
            (r#""pull":"yes""#, "pull"),
            (r#""pull":1"#, "pull"),
            (r#""command":"ls""#, "command"),
            (r#""handler":"mail""#, "handler"),
            (r#""filter":7"#, "filter"),
            (r#""sources":["ep_0000000000000"]"#, "sources[0]"),
            (r#""tls":"-----BEGIN""#, "tls"),
            (r#""tls":{"key":"x"}"#, "tls.key"),
            (r#""colour":1"#, "colour"),
        ];
        for (field_text, field) in cases {
            let json = format!(r#"{{"url":"https://example.com/",{field_text}}}"#);
            let problem = create(&json).expect_err(field_text);
            assert_eq!(problem.fields(), [*field], "{problem:?}");
        }
        assert_eq!(create("{}").expect_err("no url").fields(), ["url"]);
    }
}
