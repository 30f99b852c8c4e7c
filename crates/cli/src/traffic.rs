//! What the commands about events and deliveries share: how a gateway is asked, lists in pages, times
//! as people write them, and why a delivery is where it is.

pub(crate) mod filter;
pub(crate) mod job;
pub(crate) mod one;
pub(crate) mod payload;
pub(crate) mod why;

use std::io::{self, Write as _};
use std::str::FromStr;
use std::time::Duration;

use postrider_client::{Gateway, Method};
use postrider_core::{Timestamp, span};
use postrider_engine::ports::{Clock as _, SystemClock};
use serde_json::Value;
use url::form_urlencoded::Serializer;

use crate::Failure;
use crate::resource::{self, ListArgs, ask};

pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

pub(crate) async fn get(gateway: &Gateway, path: &str) -> Result<Value, Failure> {
    ask(gateway, Method::GET, path, None).await
}

pub(crate) async fn post(
    gateway: &Gateway,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, Failure> {
    ask(gateway, Method::POST, path, body).await
}

/// A path with its query string.
pub(crate) fn path(base: &str, parameters: &[(&str, String)]) -> String {
    if parameters.is_empty() {
        return base.to_owned();
    }
    let mut query = Serializer::new(String::new());
    query.extend_pairs(parameters);
    format!("{base}?{}", query.finish())
}

/// As much of a list as is wanted.
pub(crate) async fn list(
    gateway: &Gateway,
    base: &str,
    parameters: &[(&str, String)],
    args: ListArgs,
) -> Result<Value, Failure> {
    let parameters: Vec<(&str, &str)> =
        parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
    resource::list(gateway, base, &parameters, args).await
}

/// One page of a list.
pub(crate) fn page_path(
    base: &str,
    parameters: &[(&str, String)],
    limit: usize,
    cursor: Option<String>,
) -> String {
    let mut all = parameters.to_vec();
    all.push(("limit", limit.to_string()));
    all.extend(cursor.map(|cursor| ("cursor", cursor)));
    path(base, &all)
}

/// The entries of a list.
pub(crate) fn entries(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["data"].as_array().into_iter().flatten()
}

/// A line for whoever watches, beside the answer itself.
pub(crate) fn note(line: &str) {
    // What is done goes on whether or not anybody sees it.
    let _unseen = writeln!(io::stderr(), "{line}");
}

/// A point in time as people write it: itself, or how far it is from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    At(Timestamp),
    Span(Duration),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(at) = text.parse() {
            return Ok(Self::At(at));
        }
        span::parse(text).map(Self::Span).map_err(|_| {
            "expected a time such as 2026-01-31T12:00:00Z, or a span such as 90s, 2h or 7d".into()
        })
    }
}

impl Moment {
    pub(crate) fn ago(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Span(span) => now.minus(span),
        }
    }

    pub(crate) fn ahead(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Span(span) => now.plus(span),
        }
    }
}

/// Whether an error is that nobody reads any more.
pub(crate) fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_itself_or_a_span_from_now() {
        let now: Timestamp = "2026-01-31T12:00:00Z".parse().expect("a time");
        for (text, ago, ahead) in [
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z"),
            ("90s", "2026-01-31T11:58:30.000Z", "2026-01-31T12:01:30.000Z"),
            ("1d", "2026-01-30T12:00:00.000Z", "2026-02-01T12:00:00.000Z"),
        ] {
            let moment: Moment = text.parse().expect(text);
            assert_eq!(moment.ago(now).to_string(), ago);
            assert_eq!(moment.ahead(now).to_string(), ahead);
        }
        for text in ["", "yesterday", "-1h", "2026-01-31"] {
            let error = text.parse::<Moment>().expect_err(text);
            assert!(error.contains("2h"), "{error}");
        }
    }

    #[test]
    fn what_stands_in_a_query_cannot_leave_it() {
        let parameters = [("type", "a&b=c #?".to_owned()), ("since", "x+y".to_owned())];
        assert_eq!(path("/v1/events", &parameters), "/v1/events?type=a%26b%3Dc+%23%3F&since=x%2By");
        assert_eq!(path("/v1/events", &[]), "/v1/events");
        assert_eq!(
            page_path("/v1/events", &[], 7, Some("a=".to_owned())),
            "/v1/events?limit=7&cursor=a%3D"
        );
    }
}
