//! The collector that traces are sent to: where it is, and one request to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use postrider_engine::destination::{Allowance, Destination, Guard, Rules};
use postrider_engine::http_client::{Client, ClientOptions, Post};
use url::Url;

/// Where OTLP over HTTP takes traces, below what it calls its endpoint.
const PATH: &str = "/v1/traces";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of a collector's own words is kept.
const WHY_CHARS: usize = 200;
/// The operator has said where it is, so nothing is forbidden.
const ANYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// Shown as its URL.
#[derive(Debug)]
pub(super) struct Collector {
    client: Client,
    destination: Arc<Destination>,
    headers: HeaderMap,
}

/// What a collector made of a request.
#[derive(Debug)]
pub(super) enum Taken {
    /// It took it, but for so many spans, and said why.
    But(u64, String),
    All,
}

/// Why a collector did not take it.
#[derive(Debug)]
pub(super) enum Refused {
    /// It may take the same later.
    Later(String),
    /// It never will.
    Never(String),
}

impl Collector {
    pub(super) fn new<'a>(
        url: &str,
        headers: impl Iterator<Item = &'a str>,
    ) -> Result<Self, anyhow::Error> {
        let mut rules = Rules::default();
        for network in ANYWHERE {
            rules.allow(network.parse::<Allowance>()?);
        }
        let guard = Arc::new(Guard::with_rules(rules));
        let usable = || "--otlp-endpoint: expected a URL such as http://localhost:4318".to_owned();
        let destination = guard.check_url(&with_path(url)).with_context(usable)?;
        let client = Client::new(ClientOptions {
            guard,
            extra_roots: Vec::new(),
            revoked: Vec::new(),
            egress_proxy: None,
        })?;
        let mut all = HeaderMap::new();
        all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let agent = concat!("Postrider/", env!("CARGO_PKG_VERSION"));
        all.insert(USER_AGENT, HeaderValue::from_static(agent));
        for header in headers {
            let (name, value) = read_header(header)?;
            all.insert(name, value);
        }
        Ok(Self { client, destination: Arc::new(destination), headers: all })
    }

    pub(super) async fn send(&self, body: Bytes) -> Result<Taken, Refused> {
        let post = Post {
            destination: Arc::clone(&self.destination),
            headers: self.headers.clone(),
            body,
            deadline: REQUEST_TIMEOUT,
            tls: None,
        };
        let answer =
            self.client.post(post).await.map_err(|failure| Refused::Later(failure.message))?;
        match answer.status {
            200..300 => Ok(read_answer(&answer.body)),
            // The ones that the protocol says to come back after.
            status @ (429 | 502 | 503 | 504) => Err(Refused::Later(format!("HTTP {status}"))),
            status => Err(Refused::Never(format!("HTTP {status}"))),
        }
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.destination.url().fmt(f)
    }
}

/// The whole URL may be given as well.
fn with_path(url: &str) -> String {
    match Url::parse(url) {
        Ok(mut parsed) if !parsed.path().trim_end_matches('/').ends_with(PATH) => {
            let path = format!("{}{PATH}", parsed.path().trim_end_matches('/'));
            parsed.set_path(&path);
            parsed.into()
        }
        // What is no URL is refused by whoever reads it next.
        Ok(_) | Err(_) => url.to_owned(),
    }
}

/// Says the name of one that cannot be used, and never its value.
fn read_header(text: &str) -> Result<(HeaderName, HeaderValue), anyhow::Error> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| anyhow!("--otlp-header: expected NAME=VALUE"))?;
    let bad = |what: &str| anyhow!("--otlp-header: the {what} of `{name}` cannot be sent");
    let read = name.trim().parse().map_err(|_| bad("name"))?;
    let mut value = HeaderValue::from_str(value.trim_matches(' ')).map_err(|_| bad("value"))?;
    value.set_sensitive(true);
    Ok((read, value))
}

/// A collector may leave some out and say so in an answer that is otherwise a good one.
fn read_answer(body: &[u8]) -> Taken {
    let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let partial = &answer["partialSuccess"];
    let rejected = &partial["rejectedSpans"];
    let count = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or(0);
    if count == 0 {
        return Taken::All;
    }
    let why = partial["errorMessage"].as_str().unwrap_or("it did not say why");
    Taken::But(count, why.chars().filter(|char| !char.is_control()).take(WHY_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_collector_leaves_out_is_read_from_its_answer() {
        for (body, expected) in [
            ("", None),
            ("{}", None),
            ("not JSON", None),
            (r#"{"partialSuccess":{}}"#, None),
            (r#"{"partialSuccess":{"rejectedSpans":"0","errorMessage":"a hint"}}"#, None),
            (
                r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too\nold"}}"#,
                Some("tooold"),
            ),
            (r#"{"partialSuccess":{"rejectedSpans":3}}"#, Some("it did not say why")),
        ] {
            match (read_answer(body.as_bytes()), expected) {
                (Taken::All, None) => {}
                (Taken::But(3, why), Some(said)) => assert_eq!(why, said, "{body}"),
                (other, _) => panic!("{body}: {other:?}"),
            }
        }
    }
}
