//! `postrider tail`: what happens, as it happens.

mod line;

use std::collections::HashSet;
use std::io::{self, Write as _};

use anyhow::anyhow;
use postrider_client::Gateway;
use postrider_client::stream::{Happening, Notices};
use postrider_core::span;
use postrider_engine::notices::NoticeKind;
use serde_json::Value;

use crate::Failure;
use crate::connect::Connect;
use crate::output::{OutputArgs, Style};
use crate::resource::{ENDPOINT, block_on, refused};
use crate::signals::Signals;
use crate::traffic::{is_closed_pipe, note};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
One line a notice, with its time in UTC. With --json what the gateway says, one document a line; the \
`id` of the last one is what --since-id takes.

Kinds: delivery.delivered, delivery.retry_scheduled, delivery.failed, delivery.dead, \
delivery.cancelled, endpoint.disabled, endpoint.breaker_opened, endpoint.breaker_closed, \
source.signature_failed, hub.connected, hub.disconnected.

It comes back by itself when the gateway was away, and asks for what it has missed. Ctrl-C ends it, \
and so does the end of whoever reads its output: both with 0. Exit codes: 0, 1 failure, 2 wrong usage \
or configuration, which includes a key that the gateway does not know.

Examples:
  postrider tail --kind 'delivery.*' --endpoint billing
  postrider tail --kind delivery.dead --json | jq -r .last_error")]
pub(crate) struct Args {
    #[command(flatten)]
    connect: Connect,

    #[command(flatten)]
    output: OutputArgs,

    /// Only notices of this kind, such as `delivery.dead` or `delivery.*`; repeatable
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = parse_kind)]
    kind: Vec<String>,

    /// Only notices about this endpoint, by its id or its name; repeatable
    #[arg(long, value_name = "ENDPOINT", value_delimiter = ',')]
    endpoint: Vec<String>,

    /// Begin behind the notice with this id, if the gateway still remembers it [default: now]
    #[arg(long, value_name = "ID")]
    since_id: Option<u64>,
}

fn parse_kind(text: &str) -> Result<String, String> {
    if NoticeKind::ALL.iter().any(|kind| is_of(kind.as_str(), text)) {
        return Ok(text.to_owned());
    }
    let known = NoticeKind::ALL.map(NoticeKind::as_str).join(", ");
    Err(format!("expected one of {known}, or the beginning of some like `delivery.*`"))
}

/// Whether a kind is the one that is wanted, or one of them.
fn is_of(kind: &str, wanted: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(beginning) => kind.starts_with(beginning),
        None => kind == wanted,
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let gateway = args.connect.gateway()?;
    block_on(async {
        let mut signals = Signals::catch()?;
        tokio::select! {
            () = signals.next() => Ok(()),
            ended = follow(args, gateway) => ended,
        }
    })
}

async fn follow(args: &Args, gateway: Gateway) -> Result<(), Failure> {
    let mut wanted = Wanted { kinds: &args.kind, endpoints: HashSet::new() };
    for name in &args.endpoint {
        let id = ENDPOINT.id_of(&gateway, name).await?;
        wanted.endpoints.insert(id);
    }
    let style = Style::of_stdout();
    let url = gateway.url().to_owned();
    let mut notices = Notices::follow(gateway, args.since_id);
    let mut in_trouble = false;
    loop {
        match notices.next().await.map_err(refused)? {
            Happening::Following if std::mem::take(&mut in_trouble) => {
                note(&format!("following {url} again"));
            }
            Happening::Following => note(&format!("following {url}; Ctrl-C ends it")),
            Happening::Notice(notice) => {
                if !wanted.has(&notice) {
                    continue;
                }
                let line = if args.output.json() {
                    notice.to_string()
                } else {
                    line::render(&notice, style)
                };
                match print(&line) {
                    Err(error) if is_closed_pipe(&error) => return Ok(()),
                    printed => printed?,
                }
            }
            Happening::Dropped { lost } => {
                note(&format!("too slow for the gateway, which has left out {lost} notices"));
            }
            Happening::Trouble { error, retry_in } => {
                in_trouble = true;
                note(&format!("{:#}; trying again in {}", anyhow!(error), seconds(retry_in)));
            }
        }
    }
}

fn seconds(wait: std::time::Duration) -> String {
    span::format(std::time::Duration::from_secs(wait.as_secs().max(1)))
}

fn print(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

struct Wanted<'a> {
    /// None is all.
    kinds: &'a [String],
    endpoints: HashSet<String>,
}

impl Wanted<'_> {
    fn has(&self, notice: &Value) -> bool {
        let kind = notice["kind"].as_str().unwrap_or_default();
        let of_kind = self.kinds.is_empty() || self.kinds.iter().any(|wanted| is_of(kind, wanted));
        let endpoint = notice["endpoint_id"].as_str();
        of_kind
            && (self.endpoints.is_empty()
                || endpoint.is_some_and(|endpoint| self.endpoints.contains(endpoint)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn notices_are_told_apart_by_kind_and_endpoint() {
        let dead = json!({"kind": "delivery.dead", "endpoint_id": "ep_1"});
        let hub = json!({"kind": "hub.connected"});
        for (kinds, endpoints, has_dead, has_hub) in [
            (&[][..], &[][..], true, true),
            (&["delivery.*"], &[], true, false),
            (&["hub.connected", "delivery.delivered"], &[], false, true),
            (&[], &["ep_1"], true, false),
            (&["delivery.dead"], &["ep_2"], false, false),
            (&["*"], &[], true, true),
        ] {
            let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
            let endpoints = endpoints.iter().map(|id| (*id).to_owned()).collect();
            let wanted = Wanted { kinds: &kinds, endpoints };
            assert_eq!((wanted.has(&dead), wanted.has(&hub)), (has_dead, has_hub), "{kinds:?}");
        }
    }

    #[test]
    fn a_kind_that_there_is_not_is_refused() {
        for kind in ["delivery.dead", "delivery.*", "hub*", "*", "endpoint.breaker_opened"] {
            assert!(parse_kind(kind).is_ok(), "{kind}");
        }
        for kind in ["", "dead", "delivery.gone", "x*", "delivery"] {
            let error = parse_kind(kind).expect_err(kind);
            assert!(error.contains("delivery.dead"), "{error}");
        }
    }
}
