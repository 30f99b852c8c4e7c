//! What can be said of an endpoint by flags.

use anyhow::anyhow;
use clap::ValueEnum;
use postrider_client::Gateway;
use serde_json::Value;

use super::object;
use crate::Failure;
use crate::resource::body::{Body, pair};
use crate::resource::{HUB, SOURCE};

#[derive(Debug, clap::Args)]
pub(super) struct Fields {
    /// What to call it
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,

    /// Deliveries go to this URL
    #[arg(long, value_name = "URL", group = "destination")]
    url: Option<String>,

    /// Deliveries go to a hub, by its id or its name
    #[arg(long, value_name = "ID|NAME", group = "destination")]
    hub: Option<String>,

    /// Workers fetch the deliveries (`postrider work`)
    #[arg(long, group = "destination")]
    pull: bool,

    /// The gateway runs a program for each delivery; may be repeated: the program, then its arguments
    #[arg(long, value_name = "WORD", group = "destination", allow_hyphen_values = true)]
    command: Vec<String>,

    /// Only events of this type, like `order.created`, `order.*` or `*`; may be repeated
    #[arg(long = "type", value_name = "PATTERN")]
    types: Vec<String>,

    /// Only events that came in by this source, by its id or its name; may be repeated
    #[arg(long = "source", value_name = "ID|NAME")]
    sources: Vec<String>,

    /// Only events for which this expression is true
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,

    /// When to try again and when to give up: a preset (`postrider policy list`), or JSON such as
    /// `{"preset":"router","max_attempts":12}`
    #[arg(long, value_name = "PRESET|JSON")]
    policy: Option<String>,

    /// Whether a delivery waits for the one before it
    #[arg(long, value_name = "ORDER")]
    ordering: Option<Ordering>,

    /// The most deliveries a second
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,

    /// How many may go at once after a quiet time, where there is a --rate
    #[arg(long, value_name = "N", requires = "rate")]
    burst: Option<u32>,

    /// The most deliveries under way at once
    #[arg(long, value_name = "N")]
    max_in_flight: Option<u32>,

    /// How long an attempt may take, like `15s`
    #[arg(long, value_name = "SPAN")]
    timeout: Option<String>,

    /// A header to send along; may be repeated. All headers are replaced
    #[arg(long = "header", value_name = "NAME:VALUE", value_parser = |text: &str| pair(text, ':'))]
    headers: Vec<(String, String)>,

    /// How deliveries are signed
    #[arg(long, value_name = "SCHEME")]
    signing: Option<Signing>,

    /// The header of the signature, for `--signing sha256-hex`
    #[arg(long, value_name = "NAME", requires = "signing")]
    signature_header: Option<String>,

    /// Something to remember; may be repeated. All metadata is replaced
    #[arg(long, value_name = "NAME=VALUE", value_parser = |text: &str| pair(text, '='))]
    metadata: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Ordering {
    /// Each goes when it can
    None,
    /// One after the other, in the order of their events
    Fifo,
    /// One after the other for each ordering key
    #[value(alias = "fifo_by_key")]
    FifoByKey,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Signing {
    /// As the Standard Webhooks say, with a shared secret
    Standard,
    /// As the Standard Webhooks say, with a key pair
    Ed25519,
    /// `sha256=…` in a header
    #[value(alias = "sha256_hex")]
    Sha256Hex,
    /// Not at all
    None,
}

impl Ordering {
    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fifo => "fifo",
            Self::FifoByKey => "fifo_by_key",
        }
    }
}

impl Signing {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Ed25519 => "ed25519",
            Self::Sha256Hex => "sha256_hex",
            Self::None => "none",
        }
    }
}

impl Fields {
    /// Says what was said. Hubs and sources are looked up by their names.
    pub(super) async fn put_into(&self, body: &mut Body, gateway: &Gateway) -> Result<(), Failure> {
        body.set("name", self.name.as_deref());
        body.set("url", self.url.as_deref());
        if let Some(hub) = &self.hub {
            body.set("hub", Some(HUB.id_of(gateway, hub).await?));
        }
        body.set("pull", self.pull.then_some(true));
        body.set_list("command", &self.command);
        body.set_list("event_types", &self.types);
        let mut sources = Vec::new();
        for source in &self.sources {
            sources.push(SOURCE.id_of(gateway, source).await?);
        }
        body.set_list("sources", &sources);
        body.set("filter", self.filter.as_deref());
        body.set("policy", self.policy.as_deref().map(policy).transpose()?);
        body.set("ordering", self.ordering.map(Ordering::as_str));
        body.set_in("rate_limit", "per_second", self.rate);
        body.set_in("rate_limit", "burst", self.burst);
        body.set("max_in_flight", self.max_in_flight);
        body.set("timeout", self.timeout.as_deref());
        body.set("headers", Some(object(&self.headers)).filter(|_| !self.headers.is_empty()));
        if let Some(signing) = self.signing {
            let mut scheme = Body::default();
            scheme.set("scheme", Some(signing.as_str()));
            scheme.set("header", self.signature_header.as_deref());
            body.set("signing", Some(scheme.into_value()));
        }
        body.set("metadata", Some(object(&self.metadata)).filter(|_| !self.metadata.is_empty()));
        Ok(())
    }
}

/// The name of a preset, or a policy that is spelled out.
fn policy(text: &str) -> Result<Value, Failure> {
    if text.trim_start().starts_with('{') {
        serde_json::from_str(text)
            .map_err(|error| Failure::usage(anyhow!("--policy: this is no JSON: {error}")))
    } else {
        Ok(text.into())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    struct Sample {
        #[command(flatten)]
        fields: Fields,
    }

    async fn said(flags: &[&str]) -> Value {
        let arguments = ["sample"].iter().chain(flags);
        let sample = Sample::try_parse_from(arguments).expect("valid");
        // Nothing listens there: what is said by an id needs nobody.
        let gateway = Gateway::new("http://127.0.0.1:1", "pr_key").expect("valid");
        let mut body = Body::default();
        sample.fields.put_into(&mut body, &gateway).await.expect("nothing to look up");
        body.into_value()
    }

    #[tokio::test]
    async fn flags_become_fields_of_the_api() {
        for (flags, body) in [
            (&[][..], json!({})),
            (&["--url", "https://a", "--name", "b"], json!({ "url": "https://a", "name": "b" })),
            (&["--pull"], json!({ "pull": true })),
            (
                &["--command", "sh", "--command", "-c", "--command", "true"],
                json!({ "command": ["sh", "-c", "true"] }),
            ),
            (&["--type", "a.*", "--type", "b"], json!({ "event_types": ["a.*", "b"] })),
            (&["--policy", "edge"], json!({ "policy": "edge" })),
            (
                &["--policy", r#"{"preset":"router","max_attempts":3}"#],
                json!({ "policy": { "preset": "router", "max_attempts": 3 } }),
            ),
            (&["--ordering", "fifo-by-key"], json!({ "ordering": "fifo_by_key" })),
            (&["--ordering", "fifo_by_key"], json!({ "ordering": "fifo_by_key" })),
            (
                &["--rate", "5", "--burst", "10"],
                json!({ "rate_limit": { "per_second": 5.0, "burst": 10 } }),
            ),
            (
                &["--header", "x-a: b:c", "--metadata", "team=billing"],
                json!({ "headers": { "x-a": "b:c" }, "metadata": { "team": "billing" } }),
            ),
            (
                &["--signing", "sha256-hex", "--signature-header", "x-sig"],
                json!({ "signing": { "scheme": "sha256_hex", "header": "x-sig" } }),
            ),
            (
                &["--max-in-flight", "4", "--timeout", "5s"],
                json!({ "max_in_flight": 4, "timeout": "5s" }),
            ),
        ] {
            assert_eq!(said(flags).await, body, "{flags:?}");
        }
    }

    #[test]
    fn deliveries_go_to_one_place() {
        for flags in [
            &["--url", "https://a", "--pull"][..],
            &["--hub", "a", "--command", "b"],
            &["--burst", "3"],
            &["--header", "nothing"],
        ] {
            let arguments = ["sample"].iter().chain(flags);
            assert!(Sample::try_parse_from(arguments).is_err(), "{flags:?}");
        }
    }
}
