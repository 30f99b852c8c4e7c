//! What the real binary shows at `/metrics`, and that nothing in `ops/` or in the documentation speaks of
//! anything else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use http::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::gateway::{Gateway, Launch};
use crate::sink::{Reply, Sink};
use crate::within;

/// What Prometheus makes itself.
const PROMETHEUS_OWN: &[&str] = &["up", "ALERTS"];
/// What Prometheus adds to every series.
const ADDED_LABELS: &[&str] = &["job", "instance"];

/// What is exposed: the type of each name, and every series.
struct Exposed {
    types: BTreeMap<String, String>,
    series: BTreeSet<String>,
}

impl Exposed {
    async fn by(gateway: &Gateway) -> Self {
        let page = scrape(gateway).await;
        let typed = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let kinds = typed.filter_map(|line| line.split_once(' '));
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        let series = samples.filter_map(|line| line.rsplit_once(' '));
        Self {
            types: kinds.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect(),
            series: series.map(|(series, _)| series.to_owned()).collect(),
        }
    }

    fn has_name(&self, name: &str) -> bool {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().any(|suffix| {
            let base = name.strip_suffix(suffix);
            base.is_some_and(|base| self.types.get(base).is_some_and(|kind| kind == "histogram"))
        });
        let plain = self.types.get(name).is_some_and(|kind| kind != "histogram");
        plain || of_histogram
    }

    /// Whether some series of this name has this label.
    fn has_label(&self, name: &str, label: &str, value: &str) -> bool {
        let wanted = format!("{label}=\"{value}\"");
        let named = |series: &&String| series.split('{').next() == Some(name);
        self.series.iter().filter(named).any(|series| series.contains(&wanted))
    }
}

async fn scrape(gateway: &Gateway) -> String {
    let page = async {
        let mut stream = TcpStream::connect(gateway.address).await.expect("it listens");
        let request = "GET /metrics HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    };
    let answer = within("the metrics", page).await;
    let (head, page) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    page.to_owned()
}

async fn busy() -> (Gateway, tempfile::TempDir) {
    let data = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(data.path()).start().await;
    let sink = Sink::start(|arrival| match arrival.number % 2 {
        0 => Reply::Now(StatusCode::OK),
        _ => Reply::Now(StatusCode::INTERNAL_SERVER_ERROR),
    })
    .await;
    gateway.create_endpoint(json!({ "url": sink.url() })).await;
    for number in 0..10 {
        gateway.send(number).await;
    }
    sink.until("all attempts", |seen| seen.arrivals.len() == 10).await;
    (gateway, data)
}

#[tokio::test]
async fn rules_and_dashboard_speak_only_of_what_is_exposed() {
    let (gateway, _data) = busy().await;
    let exposed = Exposed::by(&gateway).await;
    let mut looked_at = 0;
    for file in ops_files() {
        let text = fs::read_to_string(&file).expect("readable").replace("\\\"", "\"");
        let file = file.display();
        for mention in mentions(&text) {
            let Mention { name, matchers } = &mention;
            assert!(exposed.has_name(name), "{file} speaks of {name}, which is not exposed");
            for (label, value) in matchers {
                let known = exposed.has_label(name, label, value);
                assert!(known, "{file}: no {name} has {label}=\"{value}\"");
            }
            looked_at += 1;
        }
        for name in PROMETHEUS_OWN {
            assert!(!exposed.types.contains_key(*name), "{name} is Prometheus's own");
        }
    }
    assert!(looked_at > 50, "only {looked_at} mentions were found");
}

#[tokio::test]
async fn every_metric_is_documented_with_its_type_and_none_other() {
    let (gateway, _data) = busy().await;
    let exposed = Exposed::by(&gateway).await;
    let page = fs::read_to_string(root().join("docs/metrics.md")).expect("docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let documented: BTreeMap<String, String> = rows
        .filter_map(|row| {
            let (name, rest) = row.split_once("` | ")?;
            Some((name.to_owned(), rest.split_once(" |")?.0.to_owned()))
        })
        .collect();
    assert_eq!(documented, exposed.types);
}

/// A metric as it is spoken of in an expression.
struct Mention {
    name: String,
    /// Labels and what they are to be; those of Prometheus and variables are left out.
    matchers: Vec<(String, String)>,
}

fn mentions(text: &str) -> Vec<Mention> {
    let mut found = Vec::new();
    for prefix in ["postrider_", "process_"] {
        for (start, _) in text.match_indices(prefix) {
            let before = text[..start].chars().next_back();
            if before.is_some_and(|one| one.is_ascii_alphanumeric() || one == '_') {
                continue;
            }
            let rest = &text[start..];
            let in_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
            let end = rest.find(|one| !in_name(one)).unwrap_or(rest.len());
            let (name, rest) = rest.split_at(end);
            let inside = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let matchers = inside.map(|(inside, _)| matchers(inside)).unwrap_or_default();
            found.push(Mention { name: name.to_owned(), matchers });
        }
    }
    found
}

fn matchers(inside: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for matcher in inside.split("\",").map(|one| one.trim().trim_end_matches('"')) {
        let (label, values) = matcher.split_once('"').unwrap_or_else(|| panic!("{inside}"));
        let label = label.trim_end_matches(['=', '!', '~']);
        if ADDED_LABELS.contains(&label) || values.contains('$') {
            continue;
        }
        found.extend(values.split('|').map(|value| (label.to_owned(), value.to_owned())));
    }
    found
}

#[test]
fn mentions_are_found_with_what_they_ask_for() {
    let text =
        r#"sum(rate(postrider_a_total{job="x", state=~"dead|failed",le!="$y"}[5m])) / process_b"#;
    let found = mentions(text);
    let names: Vec<&str> = found.iter().map(|mention| mention.name.as_str()).collect();
    assert_eq!(names, ["postrider_a_total", "process_b"]);
    let expected = [("state", "dead"), ("state", "failed")];
    let expected = expected.map(|(label, value)| (label.to_owned(), value.to_owned()));
    assert_eq!(found[0].matchers, expected);
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn ops_files() -> Vec<PathBuf> {
    let files: Vec<PathBuf> = ["ops/prometheus", "ops/grafana"]
        .iter()
        .flat_map(|folder| fs::read_dir(root().join(folder)).expect("the folder is there"))
        .map(|entry| entry.expect("readable").path())
        .collect();
    assert!(files.len() >= 4, "{files:?}");
    files
}
