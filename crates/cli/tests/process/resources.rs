//! `postrider endpoints`, `sources`, `hubs`, `keys` and `tenants`: a round through each, for people and
//! for programs, and what they refuse.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use crate::gateway::{Finished, Gateway, KEY, Launch, text};
use crate::sink::Sink;

/// Runs a command against a gateway.
#[derive(Debug, Clone, Copy)]
struct Operator<'a> {
    gateway: SocketAddr,
    key: &'a str,
}

impl Operator<'_> {
    fn of(gateway: &Gateway) -> Operator<'static> {
        Operator { gateway: gateway.address, key: KEY }
    }

    async fn run(self, arguments: &[&str]) -> Finished {
        Launch::with(arguments)
            .variable("POSTRIDER_GATEWAY", format!("http://{}", self.gateway))
            .variable("POSTRIDER_KEY", self.key)
            .run()
            .await
    }

    /// What people see.
    async fn shown(self, arguments: &[&str]) -> String {
        self.run(arguments).await.expect_code(0).stdout
    }

    /// What programs see.
    async fn json(self, arguments: &[&str]) -> Value {
        let shown = self.run(&[arguments, &["--json"]].concat()).await.expect_code(0);
        serde_json::from_str(&shown.stdout).expect("JSON")
    }

    /// Why not: one line, with nothing on standard output.
    async fn refused(self, arguments: &[&str], code: i32) -> String {
        let refused = self.run(arguments).await.expect_code(code);
        assert_eq!(refused.stdout, "", "{arguments:?}");
        assert!(refused.stderr.starts_with("postrider: "), "{}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
        refused.stderr
    }
}

/// The value beside a name on a page about one thing.
#[track_caller]
fn value(page: &str, name: &str) -> String {
    let mut lines = page.lines().filter_map(|line| line.strip_prefix(name));
    let found = lines.find(|rest| rest.starts_with("  "));
    found.unwrap_or_else(|| panic!("no {name} in\n{page}")).trim().to_owned()
}

async fn started(data: &Path) -> (Gateway, Operator<'static>) {
    let gateway = Launch::serve(data).start().await;
    let operator = Operator::of(&gateway);
    (gateway, operator)
}

#[tokio::test]
async fn an_endpoint_is_made_changed_tried_and_deleted_by_its_name() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (_gateway, operator) = started(directory.path()).await;
    let sink = Sink::accepting().await;
    let url = sink.url();
    assert!(operator.shown(&["endpoints", "list"]).await.contains("endpoints create"));

    let page = operator
        .shown(&[
            "endpoints",
            "create",
            "--name",
            "billing",
            "--url",
            &url,
            "--type",
            "order.*",
            "--type",
            "invoice.paid",
            "--policy",
            "router",
            "--ordering",
            "fifo",
            "--rate",
            "50",
            "--burst",
            "5",
            "--header",
            "x-team: billing",
            "--timeout",
            "5s",
            "--metadata",
            "owner=me",
        ])
        .await;
    let id = value(&page, "id");
    assert!(id.starts_with("ep_"), "{page}");
    assert!(value(&page, "secret").starts_with("whsec_"), "{page}");
    for (name, expected) in [
        ("name", "billing"),
        ("state", "active"),
        ("to", url.as_str()),
        ("types", "order.*, invoice.paid"),
        ("policy", "router"),
        ("ordering", "fifo"),
        ("timeout", "5s"),
        ("headers", "x-team: billing"),
    ] {
        assert_eq!(value(&page, name), expected, "{page}");
    }

    let table = operator.shown(&["endpoints", "list"]).await;
    let row = table.lines().find(|line| line.starts_with(&id)).expect("a row");
    assert!(
        ["billing", "active", "order.*", "router"].iter().all(|word| row.contains(word)),
        "{row}"
    );
    assert!(!table.contains("whsec_"), "{table}");
    for which in [id.as_str(), "billing"] {
        let shown = operator.json(&["endpoints", "show", which]).await;
        assert_eq!(shown["id"], id.as_str());
        assert_eq!(shown["rate_limit"], json!({ "per_second": 50.0, "burst": 5 }));
        assert!(shown.get("secret").is_none(), "{shown}");
        assert_eq!(value(&operator.shown(&["endpoints", "show", which]).await, "id"), id);
    }

    let changed = ["endpoints", "update", "billing", "--clear", "rate-limit", "--timeout", "7s"];
    let changed = operator.json(&changed).await;
    assert_eq!((&changed["rate_limit"], &changed["timeout"]), (&Value::Null, &json!("7s")));
    assert_eq!(changed["ordering"], "fifo", "what is not said stays");

    for (action, state) in [("pause", "paused"), ("resume", "active"), ("enable", "active")] {
        let said = operator.shown(&["endpoints", action, "billing"]).await;
        assert_eq!(said, format!("billing ({id}) is {state}"));
    }
    let tried = operator.shown(&["endpoints", "test", "billing"]).await;
    assert_eq!(value(&tried, "outcome"), "delivered");

    let secret = operator.shown(&["endpoints", "secret", "billing"]).await;
    assert!(secret.starts_with("whsec_") && secret.lines().count() == 1, "{secret}");
    let rotated =
        operator.shown(&["endpoints", "rotate-secret", "billing", "--overlap", "1h"]).await;
    assert_ne!(value(&rotated, "secret"), secret.trim());
    assert!(value(&rotated, "also signs").starts_with(secret.trim()), "{rotated}");

    let stats = operator.shown(&["endpoints", "stats", "billing"]).await;
    assert_eq!((value(&stats, "pending"), value(&stats, "state")), ("0".into(), "active".into()));

    let why = operator.refused(&["endpoints", "delete", "billing"], 2).await;
    assert!(why.contains("--yes") && why.contains(&id), "{why}");
    let deleted = operator.shown(&["endpoints", "delete", "billing", "--yes"]).await;
    assert_eq!(deleted, format!("Deleted billing ({id})"));
    let why = operator.refused(&["endpoints", "show", "billing"], 2).await;
    assert!(why.contains("no endpoint is called `billing`"), "{why}");
    let why = operator.refused(&["endpoints", "show", &id], 2).await;
    assert!(why.contains("404") && why.contains("postrider endpoints list"), "{why}");
}

#[tokio::test]
async fn a_test_that_is_not_delivered_ends_with_one() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (_gateway, operator) = started(directory.path()).await;
    // Nothing listens there.
    operator
        .shown(&["endpoints", "create", "--name", "gone", "--url", "http://127.0.0.1:1/"])
        .await;
    let tried = operator.run(&["endpoints", "test", "gone"]).await.expect_code(1);
    assert_eq!(value(&tried.stdout, "outcome"), "retryable");
    assert!(!value(&tried.stdout, "error").is_empty(), "{}", tried.stdout);
}

#[tokio::test]
async fn what_has_no_flag_comes_from_a_file_and_flags_win() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (_gateway, operator) = started(directory.path()).await;
    let file = directory.path().join("endpoint.json");
    let fields = json!({
        "name": "old", "url": "https://example.com/", "format": "slack", "event_types": ["a"],
    });
    std::fs::write(&file, fields.to_string()).expect("a file");
    let file = file.to_str().expect("text");
    let made = operator.json(&["endpoints", "create", "--from", file, "--name", "new"]).await;
    assert_eq!((&made["name"], &made["format"]), (&json!("new"), &json!("slack")));
    assert_eq!(made["event_types"], json!(["a"]));
    let missing = directory.path().join("missing.json");
    let missing = missing.to_str().expect("text");
    let why = operator.refused(&["endpoints", "create", "--from", missing], 2).await;
    assert!(why.contains(missing), "{why}");
}

#[tokio::test]
async fn a_name_that_two_have_is_refused_with_their_ids() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (_gateway, operator) = started(directory.path()).await;
    let make = ["endpoints", "create", "--name", "twin", "--pull"];
    let [one, other] = [operator.json(&make).await, operator.json(&make).await];
    let why = operator.refused(&["endpoints", "pause", "twin"], 2).await;
    for endpoint in [one, other] {
        assert!(why.contains(&text(&endpoint, "id")), "{why}");
    }
}

#[tokio::test]
async fn lists_turn_their_own_pages() {
    // More than a page of the API has.
    const MADE: usize = 260;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (gateway, operator) = started(directory.path()).await;
    for number in 0..MADE {
        gateway.create_endpoint(json!({ "name": format!("n{number}"), "pull": true })).await;
    }
    for (arguments, rows, whole) in [
        (&["endpoints", "list"][..], 50, false),
        (&["endpoints", "list", "--limit", "3"], 3, false),
        (&["endpoints", "list", "--limit", "255"], 255, false),
        (&["endpoints", "list", "--all"], MADE, true),
    ] {
        let answer = operator.json(arguments).await;
        assert_eq!(answer["data"].as_array().map(Vec::len), Some(rows), "{arguments:?}");
        assert_eq!(answer["next_cursor"].is_null(), whole, "{arguments:?}");
        let table = operator.shown(arguments).await;
        assert_eq!(table.lines().filter(|line| line.starts_with("ep_")).count(), rows);
        assert_eq!(table.contains("--all"), !whole, "{arguments:?}");
    }
    // One on the last page is found by its name.
    let oldest = operator.json(&["endpoints", "show", "n0"]).await;
    assert_eq!(oldest["name"], "n0");
    operator.run(&["endpoints", "list", "--limit", "0"]).await.expect_code(2);
}

#[tokio::test]
async fn a_source_shows_where_to_post_and_verifies_as_it_was_told() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (gateway, operator) = started(directory.path()).await;
    let page = operator
        .shown(&[
            "sources",
            "create",
            "--name",
            "github",
            "--scheme",
            "github",
            "--secret",
            "hunter2",
            "--on-invalid",
            "mark",
        ])
        .await;
    let id = value(&page, "id");
    let url = value(&page, "url");
    assert!(url.starts_with(&format!("http://{}/in/", gateway.address)), "{page}");
    assert_eq!(value(&page, "type from"), "header x-github-event");
    assert!(!page.contains("hunter2"), "{page}");

    let table = operator.shown(&["sources", "list"]).await;
    let row = table.lines().find(|line| line.starts_with(&id)).expect("a row");
    assert!(row.contains("github") && row.contains("mark"), "{row}");
    assert!(!table.contains("/in/"), "{table}");

    let changed = operator
        .json(&["sources", "update", "github", "--type-from", "fixed:push", "--dedup-from", "none"])
        .await;
    assert_eq!(changed["type_from"], json!({ "fixed": "push" }));
    assert_eq!((&changed["dedup_from"], &changed["on_invalid"]), (&Value::Null, &json!("mark")));

    let why = operator.refused(&["sources", "rotate-token", "github"], 2).await;
    assert!(why.contains("--yes"), "{why}");
    let rotated = operator.shown(&["sources", "rotate-token", "github", "--yes"]).await;
    assert_ne!(value(&rotated, "url"), url);
    assert_eq!(
        value(&operator.shown(&["sources", "show", &id]).await, "url"),
        value(&rotated, "url")
    );

    // An endpoint can name it, and a source without a scheme verifies nothing.
    let source = operator.json(&["sources", "create", "--name", "plain"]).await;
    assert_eq!(source["verify"]["scheme"], "none");
    let endpoint = ["endpoints", "create", "--pull", "--source", "plain", "--source", &id];
    let mut taken = operator.json(&endpoint).await["sources"].clone();
    let taken = taken.as_array_mut().expect("a list");
    assert!(taken.contains(&source["id"]) && taken.contains(&json!(id)), "{taken:?}");

    operator.shown(&["sources", "delete", "github", "--yes"]).await;
    operator.refused(&["sources", "show", &id], 2).await;
}

#[tokio::test]
async fn a_hub_has_its_token_shown_once_and_takes_endpoints_by_its_name() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (_gateway, operator) = started(directory.path()).await;
    let page = operator.shown(&["hubs", "create", "home"]).await;
    let (id, token) = (value(&page, "id"), value(&page, "token"));
    assert!(!token.is_empty() && page.contains("this once"), "{page}");
    for shown in [
        operator.shown(&["hubs", "list"]).await,
        operator.shown(&["hubs", "show", "home"]).await,
        operator.json(&["hubs", "show", &id]).await.to_string(),
    ] {
        assert!(shown.contains("home") && !shown.contains(&token), "{shown}");
    }
    assert_eq!(value(&operator.shown(&["hubs", "show", "home"]).await, "state"), "offline");
    let rotated = operator.shown(&["hubs", "rotate-token", "home"]).await;
    assert_ne!(value(&rotated, "token"), token);
    let own = "prh_0123456789abcdefghijklmnopqrstuvwxyz";
    let rotated = operator.shown(&["hubs", "rotate-token", &id, "--token", own]).await;
    assert_eq!(value(&rotated, "token"), own);
    let endpoint = operator.json(&["endpoints", "create", "--hub", "home"]).await;
    assert_eq!(endpoint["hub"], id.as_str());
    operator.refused(&["hubs", "delete", "home"], 2).await;
    operator.shown(&["hubs", "delete", &id, "--yes"]).await;
    assert!(operator.shown(&["hubs", "list"]).await.contains("hubs create"));
}

#[tokio::test]
async fn keys_and_tenants_open_what_they_should_until_they_are_revoked() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (gateway, operator) = started(directory.path()).await;
    operator.shown(&["tenants", "create", "acme"]).await;
    let tenants = operator.json(&["tenants", "list"]).await;
    let names: Vec<&Value> =
        tenants["data"].as_array().expect("a list").iter().map(|row| &row["name"]).collect();
    assert!(names.contains(&&json!("acme")) && names.contains(&&json!("default")), "{names:?}");
    assert_eq!(value(&operator.shown(&["tenants", "show", "acme"]).await, "name"), "acme");
    let why = operator.refused(&["tenants", "create", "Acme Inc"], 2).await;
    assert!(why.contains("422") && why.contains("name"), "{why}");

    let made =
        operator.shown(&["keys", "create", "ci", "--tenant", "acme", "--expires", "90d"]).await;
    let key = value(&made, "key");
    assert_eq!((value(&made, "role"), value(&made, "tenant")), ("tenant".into(), "acme".into()));
    assert!(value(&made, "expires").contains("in 89 d"), "{made}");
    let of_acme = Operator { gateway: gateway.address, key: &key };
    of_acme.shown(&["endpoints", "create", "--name", "theirs", "--pull"]).await;
    assert!(!operator.shown(&["endpoints", "list"]).await.contains("theirs"));
    let there = operator.shown(&["endpoints", "list", "--tenant", "acme"]).await;
    assert!(there.contains("theirs"), "{there}");
    let why = of_acme.refused(&["tenants", "list"], 2).await;
    assert!(why.contains("403") && why.contains("admin key"), "{why}");

    let forever = operator.json(&["keys", "update", "ci", "--never-expires", "--name", "cd"]).await;
    assert_eq!((&forever["expires_at"], &forever["name"]), (&Value::Null, &json!("cd")));
    let listed = operator.shown(&["keys", "list"]).await;
    assert!(listed.contains("cd") && !listed.contains(&key), "{listed}");
    operator.refused(&["keys", "revoke", "cd"], 2).await;
    operator.shown(&["keys", "revoke", "cd", "--yes"]).await;
    assert_eq!(value(&operator.shown(&["keys", "show", "cd"]).await, "state"), "revoked");
    let why = of_acme.refused(&["endpoints", "list"], 2).await;
    assert!(why.contains("401") && why.contains("--key"), "{why}");
    assert!(!why.contains(&key), "{why}");
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_the_field_and_a_gateway_that_is_away_with_its_address() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (gateway, operator) = started(directory.path()).await;
    for (arguments, words) in [
        (&["endpoints", "create", "--url", "ftp://a"][..], &["422", "url"][..]),
        (&["endpoints", "create", "--pull", "--policy", "nope"], &["422", "policy"]),
        (&["endpoints", "create", "--pull", "--policy", "{oops"], &["--policy", "JSON"]),
        (&["endpoints", "create", "--pull", "--timeout", "5"], &["422", "timeout"]),
        (&["endpoints", "create", "--hub", "nowhere"], &["no hub is called", "hubs list"]),
        (&["endpoints", "create"], &["--url", "--from"]),
        (&["endpoints", "update", "x"], &["what to change"]),
        (&["endpoints", "rotate-secret", "x", "--overlap", "soon"], &["--overlap"]),
        (&["sources", "create", "--name", "a", "--scheme", "rot13"], &["422", "verify"]),
        (&["sources", "create"], &["422", "name"]),
        (&["hubs", "create", ""], &["422", "name"]),
        (&["keys", "revoke", "nobody", "--yes"], &["no key is called"]),
        (&["tenants", "show", "../keys"], &["404"]),
    ] {
        let why = operator.refused(arguments, 2).await;
        assert!(words.iter().all(|word| why.contains(word)), "{arguments:?}: {why}");
    }
    let address = gateway.address.to_string();
    gateway.stop().await;
    let why = operator.refused(&["endpoints", "list"], 1).await;
    assert!(why.contains(&address) && why.contains("--gateway"), "{why}");
}

#[tokio::test]
async fn names_from_outside_are_shown_and_not_obeyed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (gateway, operator) = started(directory.path()).await;
    // Controls are refused by the API; what turns text around is not.
    let hostile = "a\u{202e}b\u{2066}\u{200b}";
    gateway.create_endpoint(json!({ "name": hostile, "pull": true })).await;
    operator.shown(&["hubs", "create", hostile]).await;
    operator.shown(&["keys", "create", hostile]).await;
    operator.shown(&["sources", "create", "--name", hostile]).await;
    for command in ["endpoints", "hubs", "keys", "sources"] {
        for arguments in [&[command, "list"][..], &[command, "show", hostile]] {
            let shown = operator.shown(arguments).await;
            assert!(shown.contains("a\\u{202e}b\\u{2066}\\u{200b}"), "{arguments:?}: {shown}");
            let obeyed = |char: char| char.is_control() && char != '\n';
            assert!(
                !shown.contains(|char| obeyed(char) || hostile[1..].contains(char) && char != 'b')
            );
        }
        let verb = if command == "keys" { "revoke" } else { "delete" };
        let why = operator.refused(&[command, verb, hostile], 2).await;
        assert!(!why.contains('\u{202e}') && why.contains("\\u{202e}"), "{why}");
    }
    // A name that is looked for and not there comes from outside as well.
    let why = operator.refused(&["endpoints", "show", "\u{1b}[2Jx\u{202e}"], 2).await;
    assert!(!why.contains('\u{1b}') && !why.contains('\u{202e}'), "{why}");
}
