//! Taking requests apart, strictly: ids in paths, query strings, bodies. What cannot be used is
//! refused with the name of the field.

use std::fmt::{self, Display, Write as _};
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use bytes::Bytes;
use http::HeaderMap;
use http::header::EXPECT;
use http::request::Parts;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::App;
use crate::cursor::Cursor;
use crate::problem::Problem;

/// The largest body of anything that is not an event.
const SETTINGS_LIMIT_BYTES: usize = 256 << 10;
/// A body that takes longer than this to arrive is given up.
const BODY_DEADLINE: Duration = Duration::from_secs(30);
/// How much of a refused body is read and thrown away, so that the client gets to see the answer.
const MAX_DISCARDED_BYTES: usize = 32 << 20;
const DISCARD_DEADLINE: Duration = Duration::from_secs(5);

const DEFAULT_PAGE: usize = 50;
const MAX_PAGE: usize = 250;
/// No route knows more parameters than this.
const MAX_PARAMETERS: usize = 32;

/// The id in a path.
#[derive(Debug)]
pub(crate) struct Id<T>(pub(crate) T);

impl<T> FromRequestParts<Arc<App>> for Id<T>
where
    T: FromStr<Err: Display>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, app)
            .await
            .map_err(|rejection| Problem::not_an_id(rejection.body_text()))?;
        text.parse().map(Self).map_err(|error: T::Err| Problem::not_an_id(error.to_string()))
    }
}

/// A body in JSON.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Arc<App>) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        parse(&read_body(&parts.headers, body, SETTINGS_LIMIT_BYTES).await?).map(Self)
    }
}

/// A body in JSON, or none.
#[derive(Debug)]
pub(crate) struct OptionalJson<T>(pub(crate) Option<T>);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Arc<App>) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let body = read_body(&parts.headers, body, SETTINGS_LIMIT_BYTES).await?;
        if body.is_empty() { Ok(Self(None)) } else { parse(&body).map(|body| Self(Some(body))) }
    }
}

/// The body of something that takes no settings: nothing, or `{}`.
pub(crate) type NoBody = OptionalJson<Nothing>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Reads a whole body of at most `limit` bytes.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    mut body: Body,
    limit: usize,
) -> Result<Bytes, Problem> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced <= limit {
        let whole = Limited::new(&mut body, limit).collect();
        match tokio::time::timeout(BODY_DEADLINE, whole).await {
            Ok(Ok(whole)) => return Ok(whole.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {}
            Ok(Err(_)) => return Err(Problem::broken_body()),
            Err(_) => return Err(Problem::too_slow()),
        }
    }
    // A client that asked first has not sent anything yet, and must not be told to go on.
    if !headers.contains_key(EXPECT) {
        let discarding = discard(body);
        // Whatever comes of it, the answer is the same.
        let _ = tokio::time::timeout(DISCARD_DEADLINE, discarding).await;
    }
    Err(Problem::too_large(limit))
}

async fn discard(mut body: Body) {
    let mut discarded = 0;
    while discarded < MAX_DISCARDED_BYTES {
        match body.frame().await {
            Some(Ok(frame)) => discarded += frame.data_ref().map_or(0, Bytes::len),
            Some(Err(_)) | None => return,
        }
    }
}

/// Reads a JSON object; only if that fails, once more to find out where.
pub(crate) fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, Problem> {
    match serde_json::from_slice(json) {
        Ok(Object(value)) => Ok(value),
        Err(_) => Err(explain::<Object<T>>(json)),
    }
}

/// Something that has named fields. Without this, a list of their values in order would do as well.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

#[cold]
fn explain<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Problem {
    let mut reader = serde_json::Deserializer::from_slice(json);
    match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Err(error) => {
            let message = error.inner().to_string();
            Problem::invalid(field_name(error.path(), &message), message)
        }
        Ok(_) => match reader.end() {
            Err(error) => Problem::invalid(BODY, error.to_string()),
            Ok(()) => Problem::invalid(BODY, "is not valid JSON"),
        },
    }
}

/// What stands for a field where the whole body is meant.
const BODY: &str = "body";

/// The field an error is about: where it was found, and for a field that is missing or too many,
/// that field.
fn field_name(path: &serde_path_to_error::Path, message: &str) -> String {
    use serde_path_to_error::Segment;

    let mut name = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                // Writing to a String cannot fail.
                let _ = write!(name, "[{index}]");
            }
            Segment::Map { key } | Segment::Enum { variant: key } if !key.starts_with('$') => {
                join(&mut name, key);
            }
            Segment::Map { .. } | Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    if let Some(missing) = quoted(message, "missing field `") {
        join(&mut name, missing);
    }
    for prefix in ["unknown field `", "duplicate field `"] {
        if let Some(culprit) = quoted(message, prefix)
            && name != culprit
            && !name.ends_with(&format!(".{culprit}"))
        {
            join(&mut name, culprit);
        }
    }
    if name.is_empty() { BODY.to_owned() } else { name }
}

fn join(name: &mut String, key: &str) {
    if !name.is_empty() {
        name.push('.');
    }
    name.push_str(key);
}

fn quoted<'a>(message: &'a str, prefix: &str) -> Option<&'a str> {
    message.strip_prefix(prefix)?.split('`').next()
}

/// The parameters of a query string. Each is taken once; what is left over is refused.
#[derive(Debug)]
pub(crate) struct Query {
    parameters: Vec<(String, String)>,
}

impl FromRequestParts<Arc<App>> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        Self::parse(parts.uri.query().unwrap_or_default())
    }
}

impl Query {
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let mut parameters: Vec<(String, String)> = Vec::new();
        for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
            if parameters.len() == MAX_PARAMETERS {
                return Err(Problem::invalid(name, "is one parameter too many"));
            }
            if parameters.iter().any(|(known, _)| *known == name) {
                return Err(Problem::invalid(name, "is given more than once"));
            }
            // What was not UTF-8 has been replaced by this character.
            if value.contains(char::REPLACEMENT_CHARACTER) {
                return Err(Problem::invalid(name, "is not valid UTF-8"));
            }
            parameters.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self { parameters })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        let index = self.parameters.iter().position(|(known, _)| known == name)?;
        Some(self.parameters.swap_remove(index).1)
    }

    /// An id, a time, a number.
    pub(crate) fn value<T: FromStr<Err: Display>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        self.text(name)
            .map(|text| text.parse())
            .transpose()
            .map_err(|error: T::Err| Problem::invalid(name, error.to_string()))
    }

    /// One of the words of an enum.
    pub(crate) fn word<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, Problem> {
        self.text(name).map(|text| word(name, &text)).transpose()
    }

    /// Some of the words of an enum, with commas between them.
    pub(crate) fn words<T: DeserializeOwned>(&mut self, name: &str) -> Result<Vec<T>, Problem> {
        match self.text(name) {
            None => Ok(Vec::new()),
            Some(text) => text.split(',').map(|text| word(name, text)).collect(),
        }
    }

    /// Which part of a list is wanted.
    pub(crate) fn page<C: Cursor>(&mut self) -> Result<Page<C>, Problem> {
        let limit = match self.text("limit") {
            None => DEFAULT_PAGE,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=MAX_PAGE).contains(limit))
                .ok_or_else(|| Problem::invalid("limit", format!("must be 1 to {MAX_PAGE}")))?,
        };
        let after = self.text("cursor").map(|text| C::parse(&text)).transpose()?;
        Ok(Page { limit, after })
    }

    /// Everything has been taken, or something was not known.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        match self.parameters.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(Problem::invalid(name, "is not a parameter of this path")),
        }
    }
}

/// Which part of a list is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page<C> {
    pub(crate) limit: usize,
    pub(crate) after: Option<C>,
}

fn word<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, Problem> {
    T::deserialize(StrDeserializer::<serde::de::value::Error>::new(text))
        .map_err(|error| Problem::invalid(name, error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use postrider_core::endpoint::{Ordering, RateLimit};
    use postrider_core::{EventId, State, policy};
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only parsed")]
    struct Sample<'a> {
        name: String,
        #[serde(borrow)]
        payload: &'a RawValue,
        ordering: Option<Ordering>,
        rate_limit: Option<Object<RateLimit>>,
        policy: Option<policy::Spec>,
        headers: Option<BTreeMap<String, String>>,
        list: Option<Vec<u8>>,
    }

    #[test]
    fn a_bad_body_is_refused_by_the_name_of_the_field() {
        let deep = format!(r#"{{"name":"a","payload":1,"policy":{}"#, "[".repeat(100_000));
        let cases: &[(&[u8], &str)] = &[
            (b"", "body"),
            (b"nonsense", "body"),
            (b"[]", "body"),
            (b"[\"a\",1]", "body"),
            (b"{\"name\":\"a\",\"payload\":1,\"rate_limit\":[1,2]}", "rate_limit"),
            (b"{\"name\":\"a\",\"payload\":1} trailing", "body"),
            (b"{\"payload\":1}", "name"),
            (b"{\"name\":\"a\"}", "payload"),
            (b"{\"name\":7,\"payload\":1}", "name"),
            (b"{\"name\":\"\xff\",\"payload\":1}", "name"),
            (b"{\"name\":\"a\",\"payload\":\"\xff\"}", "payload"),
            (b"{\"name\":\"a\",\"payload\":{1}}", "payload"),
            (b"{\"name\":\"a\",\"payload\":1,\"colour\":2}", "colour"),
            (b"{\"name\":\"a\",\"name\":\"b\",\"payload\":1}", "name"),
            (b"{\"name\":\"a\",\"payload\":1,\"payload\":1}", "payload"),
            (b"{\"name\":\"a\",\"payload\":1,\"ordering\":\"sideways\"}", "ordering"),
            (b"{\"name\":\"a\",\"payload\":1,\"rate_limit\":{}}", "rate_limit.per_second"),
            (b"{\"name\":\"a\",\"payload\":1,\"rate_limit\":{\"speed\":1}}", "rate_limit.speed"),
            (b"{\"name\":\"a\",\"payload\":1,\"policy\":\"never\"}", "policy"),
            (b"{\"name\":\"a\",\"payload\":1,\"policy\":{\"foo\":1}}", "policy.foo"),
            (
                b"{\"name\":\"a\",\"payload\":1,\"policy\":{\"schedule\":{\"list\":[\"5s\",5]}}}",
                "policy.schedule.list[1]",
            ),
            (b"{\"name\":\"a\",\"payload\":1,\"headers\":{\"x-a\":1}}", "headers.x-a"),
            (b"{\"name\":\"a\",\"payload\":1,\"list\":[1,2,300]}", "list[2]"),
            (deep.as_bytes(), "policy"),
        ];
        for (json, field) in cases {
            let problem = parse::<Sample<'_>>(json).expect_err("refused");
            assert_eq!(problem.fields(), [*field], "{} {problem:?}", String::from_utf8_lossy(json));
        }
    }

    #[test]
    fn a_payload_is_kept_to_the_byte() {
        let json = br#"{"payload": {"b" : 1.0e2,"a":[ ]} ,"name":"x"}"#;
        let sample: Sample<'_> = parse(json).expect("valid");
        assert_eq!(sample.payload.get(), r#"{"b" : 1.0e2,"a":[ ]}"#);
    }

    #[test]
    fn a_query_is_taken_apart_by_name() {
        let mut query = Query::parse("state=dead,failed&type=a%20b&limit=7").expect("valid");
        assert_eq!(query.words::<State>("state"), Ok(vec![State::Dead, State::Failed]));
        assert_eq!(query.text("type").as_deref(), Some("a b"));
        assert_eq!(query.text("type"), None);
        let page = query.page::<EventId>().expect("valid");
        assert_eq!((page.limit, page.after), (7, None));
        assert_eq!(query.finish(), Ok(()));
    }

    #[test]
    fn a_bad_parameter_is_refused_by_its_name() {
        let refused = |text: &str| -> Problem {
            let take = |text: &str| -> Result<(), Problem> {
                let mut query = Query::parse(text)?;
                query.words::<State>("state")?;
                query.value::<EventId>("event")?;
                query.page::<EventId>()?;
                query.finish()
            };
            take(text).expect_err(text)
        };
        for (text, field) in [
            ("state=lost", "state"),
            ("state=", "state"),
            ("state=dead,", "state"),
            ("state=dead&state=dead", "state"),
            ("event=dlv_0000000000000", "event"),
            ("event=%FF", "event"),
            ("limit=0", "limit"),
            ("limit=251", "limit"),
            ("limit=-1", "limit"),
            ("limit=1e2", "limit"),
            ("cursor=x", "cursor"),
            ("colour=red", "colour"),
            ("colour", "colour"),
        ] {
            assert_eq!(refused(text).fields(), [field], "{text}");
        }
        let many: Vec<String> = (0..40).map(|index| format!("p{index}=1")).collect();
        assert_eq!(refused(&many.join("&")).fields(), ["p32"]);
    }
}
