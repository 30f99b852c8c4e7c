//! `/in/{token}`: where third parties post. A request is verified on its bytes before anything reads
//! them, and answered after the commit.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, Request, State};
use axum::response::IntoResponse as _;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use postrider_core::source::OnInvalid;
use postrider_core::verification::{self, Handshake, Refusal, Scheme};
use postrider_engine::{Accepted, Submission};
use postrider_store::record::Headers;
use serde_json::json;

use crate::answer::{Answer, json};
use crate::inbound::Entry;
use crate::problem::Problem;
use crate::received::{self, MAX_KEPT_BYTES, MAX_KEPT_HEADERS, TooManyHeaders};
use crate::{App, extract, new_event};

/// The source whose token stands in the path. Nothing is said of one that is not known.
pub(crate) struct Addressed(Arc<Entry>);

impl FromRequestParts<Arc<App>> for Addressed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let token = Path::<String>::from_request_parts(parts, app).await;
        let entry = token.ok().and_then(|Path(token)| app.inbound.by_token(&token));
        entry.map(Self).ok_or_else(Problem::no_route)
    }
}

/// Some providers look whether a URL answers before they post to it. Nothing is stored.
pub(crate) async fn probe(_: Addressed) -> Answer {
    json(StatusCode::OK, &json!({ "detail": "this is a source: webhooks are posted here" }))
}

pub(crate) async fn receive(
    State(app): State<Arc<App>>,
    Addressed(entry): Addressed,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    let mut way = Headers::new();
    new_event::add_way(&parts.headers, app.engine.instance(), &mut way)?;
    let body = extract::read_body(&parts.headers, body, app.options.event_limit_bytes).await?;
    let verified = match verify(&app, &entry, &parts, &body)? {
        Verdict::Handshake(handshake) => return shake(handshake),
        Verdict::Believed => believed(&entry.source.spec.verify),
        Verdict::Refused(refusal) => {
            report(&app, &entry, &refusal);
            match entry.source.spec.on_invalid {
                OnInvalid::Reject => return Err(Problem::signature(&refusal)),
                OnInvalid::Mark => Some(false),
            }
        }
    };
    let mut submission = submit(&entry, &parts, &body, verified)?;
    submission.headers.append(&mut way);
    let accepted = app.engine.accept(entry.source.tenant, vec![submission]).await?;
    match accepted.into_iter().next().ok_or_else(Problem::internal)? {
        // A provider that is told of a duplicate in any other way would send it again.
        Accepted::New { id, .. } | Accepted::Duplicate { id, .. } | Accepted::Conflict { id } => {
            json(StatusCode::ACCEPTED, &json!({ "id": id }))
        }
    }
}

enum Verdict {
    Believed,
    Handshake(Handshake),
    Refused(Refusal),
}

fn verify(app: &App, entry: &Entry, parts: &Parts, body: &[u8]) -> Result<Verdict, Problem> {
    let verifier = entry.verifier()?;
    let headers: Vec<(&str, &[u8])> =
        parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let request = verification::Inbound {
        method: parts.method.as_str(),
        url: &called_url(app.options.public_url.as_deref(), parts),
        headers: &headers,
        body,
    };
    Ok(match verifier.verify(&request, app.engine.clock().now()) {
        Err(refusal) => Verdict::Refused(refusal),
        Ok(()) => verifier.handshake(&request).map_or(Verdict::Believed, Verdict::Handshake),
    })
}

/// None where there was nothing to verify.
fn believed(scheme: &Scheme) -> Option<bool> {
    (*scheme != Scheme::None).then_some(true)
}

/// The URL as the provider called it, which some of them sign. Behind a proxy only the operator
/// knows it.
fn called_url(public_url: Option<&str>, parts: &Parts) -> String {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    if let Some(base) = public_url {
        return format!("{}{path}", base.trim_end_matches('/'));
    }
    let host = match parts.headers.get(HOST) {
        Some(host) => String::from_utf8_lossy(host.as_bytes()),
        None => Cow::Borrowed(parts.uri.authority().map_or("", |authority| authority.as_str())),
    };
    format!("http://{host}{path}")
}

/// Counts it, and tells the operator, at most once a second for each source.
fn report(app: &App, entry: &Entry, refusal: &Refusal) {
    app.engine.metrics().signatures_rejected.one();
    if let Some(more) = entry.note_failure(app.engine.clock().now()) {
        let detail = match more {
            0 => refusal.to_string(),
            _ => format!("{refusal} ({more} more since the last notice)"),
        };
        tracing::info!(source = %entry.source.id, more, error = %refusal, "a webhook could not be verified");
        app.engine.signature_failed(entry.source.tenant, entry.source.id, detail);
    }
}

fn submit(
    entry: &Entry,
    parts: &Parts,
    body: &Bytes,
    verified: Option<bool>,
) -> Result<Submission, Problem> {
    let spec = &entry.source.spec;
    let headers = received::kept_headers(spec, &parts.headers).map_err(|_: TooManyHeaders| {
        Problem::headers_too_large(format!(
            "at most {MAX_KEPT_HEADERS} headers with {MAX_KEPT_BYTES} bytes are kept; name those \
             that are wanted in the source's keep_headers"
        ))
    })?;
    let dedup_from = match verified {
        // A forged webhook must not take the place of the genuine one.
        Some(false) => None,
        Some(true) | None => spec.dedup_from.as_ref(),
    };
    Ok(Submission {
        kind: received::event_type(&spec.type_from, &parts.headers, body),
        content_type: received::content_type(&parts.headers),
        // Copied, so that a small body does not keep the connection's read buffer alive.
        body: Bytes::copy_from_slice(body),
        idempotency_key: dedup_from
            .and_then(|from| received::dedup_key(from, &parts.headers, body)),
        ordering_key: None,
        deliver_at: None,
        metadata: None,
        source: Some(entry.source.id),
        verified,
        headers,
        trace: new_event::trace(&parts.headers),
    })
}

fn shake(handshake: Handshake) -> Answer {
    let status = StatusCode::from_u16(handshake.status).map_err(|_| Problem::internal())?;
    let content_type = HeaderValue::from_static(handshake.content_type);
    Ok((status, [(CONTENT_TYPE, content_type)], handshake.body).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_the_one_that_was_called() {
        let parts = |uri: &str, host: Option<&str>| {
            let mut request = http::Request::builder().uri(uri);
            if let Some(host) = host {
                request = request.header(HOST, host);
            }
            request.body(()).expect("a request").into_parts().0
        };
        for (public_url, uri, host, expected) in [
            (None, "/in/t?a=%20b", Some("a.test:7070"), "http://a.test:7070/in/t?a=%20b"),
            (None, "http://b.test/in/t", None, "http://b.test/in/t"),
            (Some("https://c.test"), "/in/t?a=1", Some("x"), "https://c.test/in/t?a=1"),
            (Some("https://c.test/hooks/"), "/in/t", Some("x"), "https://c.test/hooks/in/t"),
        ] {
            assert_eq!(called_url(public_url, &parts(uri, host)), expected);
        }
    }
}
