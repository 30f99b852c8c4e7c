//! The steps of the first run as commands, for whoever would rather type them.

use http::HeaderMap;
use http::header::HOST;
use serde_json::{Value, json};

use super::{SOURCE_NAME, Source, TEST_TYPE};
use crate::dashboard::cookies::Transport;
use crate::dashboard::session::Visitor;

/// What commands go to where nothing better is known.
const DEFAULT_BASE: &str = "http://127.0.0.1:7070";

/// Nothing that a stranger can choose is in them.
pub(super) struct Commands {
    pub(super) source: String,
    /// Once there is one to post to.
    pub(super) post: Option<String>,
    pub(super) endpoint: String,
    pub(super) event: String,
}

impl Commands {
    pub(super) fn new(visitor: &Visitor, headers: &HeaderMap, source: Option<&Source>) -> Self {
        let base = base(visitor, headers);
        // An admin key acts in the tenant that it names.
        let tenant = match visitor.tenant_name.as_str() {
            "default" => None,
            name => Some(name).filter(|_| visitor.is_admin()),
        };
        let api = |path: &str, body: &Value| {
            let tenant = tenant.map(|name| format!("  -H 'Postrider-Tenant: {name}' \\\n"));
            format!(
                "curl {base}{path} \\\n  -H \"Authorization: Bearer $POSTRIDER_KEY\" \\\n{}  \
                 -H 'Content-Type: application/json' \\\n  -d '{body}'",
                tenant.unwrap_or_default()
            )
        };
        Self {
            source: api("/v1/sources", &json!({"name": SOURCE_NAME, "verify": {"scheme": "none"}})),
            post: source.map(|source| {
                format!(
                    "curl {base}{} \\\n  -H 'Content-Type: application/json' \\\n  -d \
                     '{{\"hello\":\"world\"}}'",
                    source.url
                )
            }),
            endpoint: api("/v1/endpoints", &json!({"url": "https://example.com/webhooks"})),
            event: api("/v1/events", &json!({"type": TEST_TYPE, "payload": {"hello": "world"}})),
        }
    }
}

/// What this gateway is reached by: what its operator says, or else what the browser says, if that is a
/// host and nothing that a shell would read otherwise.
fn base(visitor: &Visitor, headers: &HeaderMap) -> String {
    let public = visitor.app.options.public_url.as_deref();
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    base_of(public, host, visitor.transport)
}

fn base_of(public_url: Option<&str>, host: Option<&str>, transport: Transport) -> String {
    if let Some(url) = public_url {
        return url.trim_end_matches('/').to_owned();
    }
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b':' | b'[' | b']');
    let host = host.filter(|host| !host.is_empty() && host.bytes().all(plain));
    match (host, transport) {
        (Some(host), Transport::Tls) => format!("https://{host}"),
        (Some(host), Transport::Plain) => format!("http://{host}"),
        (None, Transport::Tls | Transport::Plain) => DEFAULT_BASE.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_go_to_where_the_gateway_is_reached() {
        let (plain, tls) = (Transport::Plain, Transport::Tls);
        let table = [
            (Some("https://hooks.example.com/"), Some("x"), plain, "https://hooks.example.com"),
            (None, Some("gateway.test:7070"), plain, "http://gateway.test:7070"),
            (None, Some("[::1]:7070"), tls, "https://[::1]:7070"),
            (None, Some(""), plain, DEFAULT_BASE),
            (None, None, plain, DEFAULT_BASE),
            (None, Some("x; rm -rf"), plain, DEFAULT_BASE),
            (None, Some("$(id)"), tls, DEFAULT_BASE),
        ];
        for (public_url, host, transport, base) in table {
            assert_eq!(base_of(public_url, host, transport), base, "{host:?}");
        }
    }
}
