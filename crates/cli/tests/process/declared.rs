//! Configuration as code, with the real binary: a file is applied at the start, on SIGHUP and when it
//! changes; one that cannot be used changes nothing; and no secret is ever written.

use std::fs;
use std::path::{Path, PathBuf};

use http::{HeaderMap, Method};
use postrider_core::Timestamp;
use postrider_core::verification::{Inbound, Scheme, Verifier};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::cluster::Cluster;
use crate::gateway::{Gateway, Launch, text};
use crate::sink::Sink;
use crate::within;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_bm9ib2R5IG11c3QgZmluZCB0aGlzIG5vdw==";

/// A folder with a configuration file in it, and a place for data.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new(file: &str) -> Self {
        let place = Self { folder: tempfile::tempdir().expect("a temporary directory") };
        place.write(file);
        place
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("postrider.toml")
    }

    /// In one piece, as an editor or a deployment does it.
    fn write(&self, file: &str) {
        let beside = self.folder.path().join("new.toml");
        fs::write(&beside, file).expect("written");
        fs::rename(&beside, self.file()).expect("put in place");
    }

    fn launch(&self) -> Launch {
        Launch::serve(&self.folder.path().join("data"))
            .in_directory(self.folder.path())
            .variable("BILLING_SECRET", SECRET)
            .variable("OTHER_SECRET", OTHER)
    }
}

/// An endpoint named `billing` that goes to `url`.
fn billing(url: &str) -> String {
    format!("[endpoints.billing]\nurl = \"{url}\"\nsecret = \"env:BILLING_SECRET\"\n")
}

async fn endpoints(gateway: &Gateway) -> Vec<Value> {
    let list = gateway.get("/v1/endpoints").await;
    list["data"].as_array().expect("a list").clone()
}

/// Waits for a line of the log.
async fn logged(gateway: &Gateway, part: &str) -> String {
    let line = gateway.process.stderr.line(|line| line.contains(part)).await;
    line.unwrap_or_else(|| panic!("no {part:?} in\n{}", gateway.process.stderr.text()))
}

fn assert_no_secrets(gateway: &Gateway, path: &Path) {
    let mut written = gateway.process.stdout.text() + &gateway.process.stderr.text();
    written += &fs::read_to_string(path).expect("the file");
    for secret in [SECRET, OTHER] {
        assert!(!written.contains(secret), "a secret stands in\n{written}");
    }
}

/// One request, as it came, answered with 200.
async fn receive(listener: &TcpListener) -> (HeaderMap, Vec<u8>) {
    let (mut stream, _) = within("a webhook", listener.accept()).await.expect("a connection");
    let mut read = Vec::new();
    let (headers, body) = loop {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.expect("readable");
        assert!(count > 0, "it broke off");
        read.extend_from_slice(&piece[..count]);
        let whole = String::from_utf8_lossy(&read);
        let Some((head, body)) = whole.split_once("\r\n\r\n") else { continue };
        let headers: HeaderMap = head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
            .collect::<Vec<(http::HeaderName, http::HeaderValue)>>()
            .into_iter()
            .collect();
        let length: usize = headers["content-length"].to_str().expect("text").parse().expect("n");
        if body.len() == length {
            break (headers, body.as_bytes().to_vec());
        }
    };
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.expect("answered");
    (headers, body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_endpoint_gets_what_is_signed_with_the_declared_secret() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let place = Place::new(&billing(&url));
    let gateway = place.launch().start().await;
    assert!(gateway.process.stdout.text().contains("+ endpoint billing"));
    let event = gateway.send(1).await;
    let (headers, body) = receive(&listener).await;
    assert_eq!(headers["webhook-id"], event.as_str());
    let scheme = Scheme::Standard { tolerance: std::time::Duration::from_mins(5) };
    let verifier = Verifier::new(&scheme, &[SECRET.to_owned()]).expect("a secret");
    let signed: Vec<(&str, &[u8])> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let request = Inbound { method: "POST", url: &url, headers: &signed, body: &body };
    let at: i64 = headers["webhook-timestamp"].to_str().expect("text").parse().expect("a number");
    let outcome = verifier.verify(&request, Timestamp::from_millis(at * 1_000));
    outcome.expect("signed with the declared secret");
    assert_no_secrets(&gateway, &place.file());

    // Started again, nothing is made again.
    gateway.stop().await;
    let gateway = place.launch().start().await;
    assert!(!gateway.process.stdout.text().contains("endpoint billing"));
    assert_eq!(endpoints(&gateway).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_has_the_file_read_again() {
    let (first, second) = (Sink::accepting().await, Sink::accepting().await);
    let place = Place::new(&billing(&first.url()));
    let gateway = place.launch().start().await;
    let id = text(&endpoints(&gateway).await[0], "id");

    place.write(&billing(&second.url()).replace("BILLING", "OTHER"));
    gateway.process.signal("HUP");
    let line = logged(&gateway, "~ endpoint billing: url").await;
    assert!(line.contains(&second.url()) && line.contains("secret changed"), "{line}");
    // Once at the start, and once more.
    let done = |line: &str| line.contains("the gateway is as its file declares");
    assert!(gateway.process.stderr.lines_of(2, done).await);
    let event = gateway.send(1).await;
    second.until("a delivery", |seen| seen.delivered.contains(&event)).await;
    assert!(first.arrivals().is_empty());
    let endpoints = endpoints(&gateway).await;
    assert_eq!((endpoints.len(), text(&endpoints[0], "id")), (1, id.clone()));
    let secret = gateway.get(&format!("/v1/endpoints/{id}/secret")).await;
    assert_eq!(secret["secret"], OTHER);

    // A setting cannot be changed while it runs.
    let listening = "listen = \"127.0.0.1:1\"\n".to_owned();
    place.write(&(listening + &billing(&second.url()).replace("BILLING", "OTHER")));
    gateway.process.signal("HUP");
    logged(&gateway, "listen has changed, which needs a restart").await;
    logged(&gateway, "nothing to change").await;
    assert_no_secrets(&gateway, &place.file());
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_file_changes_nothing_and_says_which_line() {
    let sink = Sink::accepting().await;
    let good = billing(&sink.url());
    let place = Place::new(&good);
    let gateway = place.launch().start().await;
    let before = endpoints(&gateway).await;
    let cases = [
        (format!("{good}[endpoints.more]\nurl = 7\n"), "postrider.toml:5: endpoints.more.url"),
        (
            format!("{good}\n[endpoints.priv]\nurl = \"http://10.0.0.1/\"\n"),
            "postrider.toml:6: endpoints.priv.url",
        ),
        (
            format!("{good}[endpoints.x]\npull = true\nsecret = \"env:NOT_SET\"\n"),
            "postrider.toml:6: endpoints.x.secret",
        ),
        (format!("{good}[endpoints"), "postrider.toml:4"),
    ];
    for (file, said) in cases {
        place.write(&file);
        gateway.process.signal("HUP");
        let line = logged(&gateway, said).await;
        assert!(line.contains("ERROR"), "{line}");
    }
    assert_eq!(endpoints(&gateway).await, before);
    let event = gateway.send(1).await;
    sink.until("a delivery", |seen| seen.delivered.contains(&event)).await;
    place.write(&format!("{good}[endpoints.more]\npull = true\n"));
    gateway.process.signal("HUP");
    logged(&gateway, "+ endpoint more").await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watched_file_is_applied_when_it_or_a_secret_changes() {
    let sink = Sink::accepting().await;
    let file = |url: &str| {
        format!("watch = true\n[endpoints.a]\nurl = \"{url}\"\nsecret = \"file:secret\"\n")
    };
    let place = Place::new(&file(&sink.url()));
    let secret = place.folder.path().join("secret");
    fs::write(&secret, SECRET).expect("written");
    let gateway = place.launch().start().await;
    place.write(&file("http://127.0.0.1:9/other"));
    logged(&gateway, "~ endpoint a: url").await;
    fs::write(&secret, format!("{OTHER}\n")).expect("written");
    logged(&gateway, "~ endpoint a: secret changed").await;
    place.write("watch = true\nprune = true\n");
    logged(&gateway, "- endpoint a").await;
    within("it is gone", async {
        while !endpoints(&gateway).await.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_no_secrets(&gateway, &place.file());
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_made_by_hand_is_taken_over_and_what_is_left_out_is_pruned() {
    let place = Place::new("");
    let gateway = place.launch().start().await;
    let made = gateway.create_endpoint(json!({ "name": "mine", "pull": true })).await;
    let other = gateway.create_endpoint(json!({ "name": "other", "pull": true })).await;
    place.write("[hubs.home]\n[endpoints.mine]\nhub = \"home\"\n");
    gateway.process.signal("HUP");
    logged(&gateway, "~ endpoint mine: taken over, was made by hand").await;
    let token = gateway.process.stdout.line(|line| line.contains("prh_")).await.expect("shown");
    let token = token.split_whitespace().last().expect("a token").to_owned();
    assert!(!gateway.process.stderr.text().contains(&token), "it is not in the log");
    place.write("");
    gateway.process.signal("HUP");
    logged(&gateway, "endpoint mine: not declared any more, and kept").await;
    place.write("prune = true");
    gateway.process.signal("HUP");
    logged(&gateway, "- hub home").await;
    within("it is gone", async {
        while endpoints(&gateway).await.iter().any(|endpoint| text(endpoint, "id") == made) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let left: Vec<String> = endpoints(&gateway).await.iter().map(|one| text(one, "id")).collect();
    assert_eq!(left, [other]);
    let audit = gateway.get("/v1/audit?action=endpoint.delete").await;
    assert_eq!(audit["data"][0]["actor"], "file");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_half_way_is_told_and_the_next_time_finishes_it() {
    const TOKEN: &str = "prh_0123456789abcdefghijklmnopqrstuvwxyz";
    let place = Place::new("");
    let launch = place.launch().variable("HUB_TOKEN", TOKEN);
    let gateway = launch.start().await;
    // Nobody but this very gateway can know that the token is taken.
    let other = json!({ "name": "other", "token": TOKEN }).to_string();
    let other = gateway.call(Method::POST, "/v1/hubs", other).await;
    let other = text(&other.body, "id");
    let file = "[hubs.first]\n[hubs.second]\ntoken = \"env:HUB_TOKEN\"\n\
                [endpoints.last]\nhub = \"second\"\n";
    place.write(file);
    gateway.process.signal("HUP");
    let line = logged(&gateway, "was not applied to the end").await;
    for part in [
        "ERROR",
        "hub second: ",
        "a hub with this token exists already",
        "; done: hub first; not done: hub second, endpoint last. It goes on the next time",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    // What was made is of use, and its token was shown, which cannot be done again.
    let made = gateway.process.stdout.line(|line| line.contains("of hub first")).await;
    assert!(made.is_some(), "{}", gateway.process.stdout.text());
    let hubs = gateway.get("/v1/hubs").await;
    let first = hubs["data"].as_array().expect("a list").iter().find(|hub| hub["name"] == "first");
    let first = text(first.expect("it is there"), "id");
    assert!(endpoints(&gateway).await.is_empty());
    gateway.get("/readyz").await;

    // A start with the same file does not fail for it: what is there goes on being carried.
    gateway.stop().await;
    let gateway = launch.start().await;
    logged(&gateway, "; done: nothing; not done: hub second, endpoint last").await;
    let deleted = gateway.call(Method::DELETE, &format!("/v1/hubs/{other}"), String::new()).await;
    assert!(deleted.status.is_success(), "{}", deleted.body);
    gateway.process.signal("HUP");
    logged(&gateway, "the gateway is as its file declares").await;
    let hubs = gateway.get("/v1/hubs").await;
    let mut found: Vec<(String, String)> = hubs["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|hub| (text(hub, "name"), text(hub, "id")))
        .collect();
    found.sort();
    assert_eq!(found.len(), 2, "nothing was made twice: {found:?}");
    assert_eq!(found[0], ("first".to_owned(), first));
    assert_eq!(endpoints(&gateway).await[0]["hub"], found[1].1.as_str());
    let all = gateway.process.stdout.text() + &gateway.process.stderr.text();
    assert!(!all.contains(TOKEN), "{all}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_file_a_hangup_is_answered_and_ends_nothing() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(data.path()).in_directory(data.path()).start().await;
    gateway.process.signal("HUP");
    logged(&gateway, "there is no configuration file to read again").await;
    gateway.get("/readyz").await;
    gateway.stop().await;
    let watch = Launch::serve(data.path()).in_directory(data.path()).and(["--watch"]);
    let refused = watch.run().await.expect_code(2);
    assert!(refused.stderr.contains("no configuration file to watch"), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_at_once_with_one_file_make_everything_once() {
    let file = "[hubs.home]\n[sources.github]\nverify = { scheme = \"none\" }\n\
                [endpoints.a]\npull = true\n[endpoints.b]\nhub = \"home\"\n\
                [tenants.acme.endpoints.c]\npull = true\n";
    let place = Place::new(file);
    let database = Cluster::shared().database();
    let start = |name: &'static str| {
        let data = place.folder.path().join(name);
        Launch::serving()
            .with_data(&data)
            .in_directory(place.folder.path())
            .and(["--node-name", name, "--lease", "3s"])
            .variable("POSTRIDER_STORE", &database)
            .variable("POSTRIDER_SECRET_KEY", "ab".repeat(32))
    };
    let launches = ["a", "b", "c"].map(start);
    let nodes = futures_util::future::join_all(launches.iter().map(Launch::start)).await;
    let made: usize = nodes
        .iter()
        .map(|node| node.process.stdout.lines().iter().filter(|line| line.contains("+ ")).count())
        .sum();
    assert_eq!(made, 6, "each of them once, by whichever node");
    for path in ["/v1/hubs", "/v1/sources"] {
        let list = nodes[0].get(path).await;
        assert_eq!(list["data"].as_array().expect("a list").len(), 1, "{list}");
    }
    assert_eq!(endpoints(&nodes[1]).await.len(), 2);
    let created = nodes[2].call(Method::GET, "/v1/audit?action=endpoint.create", String::new());
    assert_eq!(created.await.body["data"].as_array().expect("rows").len(), 3);
    for node in nodes {
        node.stop().await;
    }
}
