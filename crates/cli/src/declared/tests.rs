//! Files against a gateway in this process: what is planned, what comes of it, and that the same file
//! again comes to nothing.

use std::cell::RefCell;
use std::collections::HashMap;

use http::Method;
use postrider_engine::Options;
use serde_json::{Value, json};

use super::rehearsal::Stage;
use super::*;
use crate::config;

const SECRETS: [(&str, &str); 6] = [
    ("BILLING", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("OTHER", "whsec_bm9ib2R5IG11c3QgZmluZCB0aGlzIG5vdw=="),
    ("GITHUB", "hunter2-of-github"),
    ("GITHUB_NEW", "hunter3-of-github"),
    ("TOKEN", "prh_0123456789abcdef0123456789abcdef"),
    ("BEARER", "Bearer hunter4"),
];

/// A gateway to which files are applied.
struct Live {
    stage: Stage,
    options: Options,
}

fn declared(text: &str) -> Declared {
    let secrets = HashMap::from(SECRETS);
    let variable = |name: &str| secrets.get(name).map(|secret| (*secret).to_owned());
    let none = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
    config::parse(text, variable, none).expect("a file that can be read").declared
}

impl Live {
    async fn new() -> Self {
        let options = Options {
            allowed: vec!["127.0.0.0/8".parse().expect("a network")],
            ..Options::default()
        };
        let stage = Stage::open(options.clone()).await.expect("it opens");
        Self { stage, options }
    }

    async fn try_apply(&self, text: &str) -> Result<(Vec<String>, Vec<NewToken>), Vec<Fault>> {
        let declared = declared(text);
        let rehearsal = rehearsed(&declared, self.options.clone()).await.expect("rehearsed")?;
        let told = RefCell::new(Vec::new());
        let announce = |plan: &Plan| {
            assert_eq!(plan.to_string().is_empty(), plan.lines().next().is_none());
            told.borrow_mut().extend(plan.lines());
        };
        match apply(&self.stage.api, &declared, &rehearsal, announce).await {
            Ok(tokens) => Ok((told.into_inner(), tokens)),
            Err(Trouble::Faults(faults)) => Err(faults),
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Applies a file, and once more; returns the plan of the first time.
    async fn apply(&self, text: &str) -> Vec<String> {
        let (told, _) = self.try_apply(text).await.expect("nothing wrong");
        let (again, tokens) = self.try_apply(text).await.expect("nothing wrong");
        let again: Vec<&String> = again.iter().filter(|line| !line.starts_with("  ")).collect();
        assert!(again.is_empty() && tokens.is_empty(), "the second time: {again:?}");
        for (name, secret) in SECRETS {
            assert!(!told.iter().any(|line| line.contains(secret)), "{name} is in {told:?}");
        }
        told
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        let body = (!body.is_null()).then_some(&body);
        self.stage.api.request(None, method, path, body).await.expect("done")
    }

    async fn only(&self, path: &str) -> Value {
        let list = self.ask(Method::GET, path, Value::Null).await;
        let [one] = list["data"].as_array().expect("a list").as_slice() else {
            panic!("not one: {list}");
        };
        one.clone()
    }
}

const FIRST: &str = r#"
[hubs.home]
[sources.github]
verify = { scheme = "github", secret = "env:GITHUB" }
[endpoints.billing]
url = "https://billing.example.com/hooks"
event_types = ["order.*"]
policy = "patient"
secret = "env:BILLING"
sources = ["github"]
headers = { authorization = "env:BEARER" }
[endpoints.house]
hub = "home"
[policies.patient]
preset = "router"
max_attempts = 12
[tenants.acme.endpoints.crm]
url = "https://crm.example.com"
"#;

#[tokio::test]
async fn what_is_declared_is_made_once() {
    let live = Live::new().await;
    let (told, tokens) = live.try_apply(FIRST).await.expect("nothing wrong");
    let expected = [
        "+ tenant acme",
        "+ hub home",
        "+ source github",
        "+ endpoint billing",
        "+ endpoint house",
        "+ endpoint crm of acme",
    ];
    assert_eq!(told, expected);
    let [token] = tokens.as_slice() else { panic!("{tokens:?}") };
    assert_eq!(token.hub, "hub home");
    assert!(token.token.starts_with("prh_"), "it can be shown");
    assert_eq!(live.apply(FIRST).await, [""; 0]);

    let endpoints = live.ask(Method::GET, "/v1/endpoints", Value::Null).await;
    let (house, billing) = (&endpoints["data"][0], &endpoints["data"][1]);
    let (hub, source) = (live.only("/v1/hubs").await, live.only("/v1/sources").await);
    assert_eq!(house["hub"], hub["id"]);
    assert_eq!(billing["sources"], json!([source["id"]]));
    assert_eq!(billing["policy"]["max_attempts"], 12);
    assert_eq!(billing["headers"]["authorization"], "Bearer hunter4");
    let id = billing["id"].as_str().expect("an id");
    let secret = live.ask(Method::GET, &format!("/v1/endpoints/{id}/secret"), Value::Null).await;
    assert_eq!(secret["secret"], SECRETS[0].1);
    let audit = live.ask(Method::GET, "/v1/audit", Value::Null).await;
    assert!(audit["data"].as_array().expect("rows").iter().all(|row| row["actor"] == "file"));
}

#[tokio::test]
async fn what_differs_is_changed_and_nothing_else() {
    let live = Live::new().await;
    live.try_apply(FIRST).await.expect("nothing wrong");
    // What is replaced in the file, and what is planned.
    let changes: [(&str, &str, &[&str]); 10] = [
        (
            "https://billing.example.com/hooks",
            "https://b.example.com",
            &[
                r#"~ endpoint billing: url "https://billing.example.com/hooks" → "https://b.example.com""#,
            ],
        ),
        (r#"["order.*"]"#, r#"["*"]"#, &[r#"~ endpoint billing: event_types ["order.*"] → ["*"]"#]),
        (r#"event_types = ["*"]"#, "", &[]),
        ("env:BILLING", "env:OTHER", &["~ endpoint billing: secret changed"]),
        ("env:GITHUB", "env:GITHUB_NEW", &["~ source github: secret changed"]),
        ("env:BEARER", "env:GITHUB", &["~ endpoint billing: headers.authorization changed"]),
        ("sources = [\"github\"]", "", &[r#"~ endpoint billing: sources ["github"] → []"#]),
        ("[hubs.home]", "[hubs.home]\ntoken = \"env:TOKEN\"", &["~ hub home: token changed"]),
        (
            "hub = \"home\"",
            "pull = true",
            &[r#"~ endpoint house: hub "home" → none, pull none → true"#],
        ),
        ("token = \"env:TOKEN\"", "", &[]),
    ];
    let mut file = FIRST.to_owned();
    for (before, after, expected) in changes {
        assert!(file.contains(before), "{before}");
        file = file.replacen(before, after, 1);
        assert_eq!(live.apply(&file).await, expected, "{before} → {after}");
    }
}

#[tokio::test]
async fn a_policy_that_changes_takes_its_order_along() {
    let live = Live::new().await;
    let file = |policy: &str| {
        format!("[endpoints.a]\nurl = \"https://a.example.com\"\npolicy = \"{policy}\"")
    };
    assert_eq!(live.apply(&file("router")).await, ["+ endpoint a"]);
    let told = live.apply(&file("edge")).await;
    assert_eq!(told, [r#"~ endpoint a: ordering "none" → "fifo", policy "router" → "edge""#]);
}

#[tokio::test]
async fn what_a_source_leaves_to_its_scheme_follows_it() {
    let live = Live::new().await;
    let file = |verify: &str, rest: &str| format!("[sources.a]\nverify = {verify}\n{rest}");
    let github = r#"{ scheme = "github", secret = "env:GITHUB" }"#;
    assert_eq!(live.apply(&file(github, "")).await, ["+ source a"]);
    let told = live.apply(&file(github, "dedup_from = { header = \"x-own\" }")).await;
    let differs = r#"dedup_from {"header":"x-github-delivery"} → {"header":"x-own"}"#;
    assert_eq!(told, [format!("~ source a: {differs}")]);
    // Left out again, it is what is usual, and not nothing.
    let told = live.apply(&file(github, "")).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        live.only("/v1/sources").await["dedup_from"],
        json!({ "header": "x-github-delivery" })
    );
    let told = live.apply(&file(r#"{ scheme = "none" }"#, "")).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(live.only("/v1/sources").await["verify"]["secrets"], 0);
}

#[tokio::test]
async fn what_somebody_changed_by_hand_is_changed_back() {
    let live = Live::new().await;
    let file = "[endpoints.a]\nurl = \"https://a.example.com\"\nsecret = \"env:BILLING\"";
    live.apply(file).await;
    let id = live.only("/v1/endpoints").await["id"].as_str().expect("an id").to_owned();
    let one = format!("/v1/endpoints/{id}");
    live.ask(Method::PATCH, &one, json!({ "timeout": "3s", "name": "b" })).await;
    live.ask(Method::POST, &format!("{one}/rotate-secret"), json!({})).await;
    let told = live.apply(file).await;
    let differs = r#"name "b" → "a", timeout "3s" → none, secret changed"#;
    assert_eq!(told, [format!("~ endpoint a: {differs}")]);
    // What an operator does to it is not of the file's business.
    live.ask(Method::POST, &format!("{one}/pause"), json!({})).await;
    assert_eq!(live.apply(file).await, [""; 0]);
    assert_eq!(live.only("/v1/endpoints").await["state"], "paused");
    live.ask(Method::DELETE, &one, Value::Null).await;
    assert_eq!(live.apply(file).await, ["+ endpoint a"]);
}

#[tokio::test]
async fn what_is_not_declared_any_more_is_kept_unless_pruned() {
    let live = Live::new().await;
    live.try_apply(FIRST).await.expect("nothing wrong");
    live.ask(Method::POST, "/v1/endpoints", json!({ "name": "own", "pull": true })).await;
    let kept = live.apply("").await;
    assert_eq!(kept.len(), 5, "{kept:?}");
    for line in &kept {
        assert!(line.starts_with("  ") && line.contains("kept"), "{line}");
    }
    assert_eq!(live.apply(FIRST).await, [""; 0], "they are the same ones");
    let pruned = live.apply("prune = true\n[sources.github]\nverify = { scheme = \"none\" }").await;
    let (deleted, rest): (Vec<&String>, Vec<&String>) =
        pruned.iter().partition(|line| line.starts_with('-'));
    assert_eq!(
        deleted,
        ["- endpoint billing", "- endpoint house", "- endpoint crm of acme", "- hub home"]
    );
    assert_eq!(rest.len(), 1, "the source has changed: {rest:?}");
    assert_eq!(live.only("/v1/endpoints").await["name"], "own", "it was made by hand");
}

#[tokio::test]
async fn what_was_made_by_hand_is_taken_over() {
    let live = Live::new().await;
    let hub = live.ask(Method::POST, "/v1/hubs", json!({ "name": "home" })).await;
    let spec = json!({ "name": "house", "hub": hub["id"], "timeout": "3s" });
    let made = live.ask(Method::POST, "/v1/endpoints", spec).await;
    let file = "[hubs.home]\n[endpoints.house]\nhub = \"home\"";
    let told = live.apply(file).await;
    let taken = "taken over, was made by hand";
    assert_eq!(
        told,
        [
            format!("~ hub home: {taken}"),
            format!(r#"~ endpoint house: {taken}, timeout "3s" → none"#)
        ]
    );
    assert_eq!(live.only("/v1/endpoints").await["id"], made["id"]);
}

#[tokio::test]
async fn two_of_one_name_are_refused_and_nothing_is_changed() {
    let live = Live::new().await;
    for _ in 0..2 {
        live.ask(Method::POST, "/v1/endpoints", json!({ "name": "a", "pull": true })).await;
    }
    let file = "\n[hubs.home]\n[endpoints.a]\npull = true";
    let faults = live.try_apply(file).await.expect_err("which one is meant?");
    let [Fault { line: 3, key, message }] = faults.as_slice() else { panic!("{faults:?}") };
    assert_eq!(key, "endpoints.a");
    assert!(message.contains("there are 2 endpoints of this name"), "{message}");
    assert_eq!(live.ask(Method::GET, "/v1/hubs", Value::Null).await["data"], json!([]));
}

/// A file, and the lines, keys and words of what is wrong with it.
type Case = (&'static str, &'static [(usize, &'static str, &'static str)]);

#[tokio::test]
async fn what_the_api_would_refuse_is_found_with_its_line() {
    let live = Live::new().await;
    let cases: [Case; 6] = [
        (
            "[endpoints.a]\nurl = \"http://10.0.0.1/\"\n[endpoints.\"b c\"]\npull = true\n\
             timeout = \"2h\"",
            &[(2, "endpoints.a.url", ""), (5, "endpoints.\"b c\".timeout", "must be between")],
        ),
        (
            "[endpoints.a]\npull = true\nhub = \"home\"",
            &[(3, "endpoints.a.hub", "there is no hub `home` in this file")],
        ),
        (
            "[endpoints.a]\npull = true\nsources = [\n \"github\"]",
            &[(3, "endpoints.a.sources", "declare it by [sources.github]")],
        ),
        (
            "[sources.a]\nverify = { scheme = \"github\" }\n[endpoints.a]\npull = true\n\
             sources = [\"a\"]",
            &[(2, "sources.a.verify.secret", "")],
        ),
        ("[tenants.Acme.endpoints.a]\npull = true", &[(1, "tenants.Acme.name", "must have")]),
        (
            "[tenants.acme.endpoints.a]\ncommand = [\"/bin/true\"]",
            &[(2, "tenants.acme.endpoints.a.command", "")],
        ),
    ];
    for (file, expected) in cases {
        let faults = live.try_apply(file).await.expect_err(file);
        assert_eq!(faults.len(), expected.len(), "{file}\n{faults:?}");
        for (fault, (line, key, said)) in faults.iter().zip(expected) {
            assert_eq!((fault.line, fault.key.as_str()), (*line, *key), "{fault:?}");
            assert!(fault.message.contains(said), "{fault:?}");
        }
        let endpoints = live.ask(Method::GET, "/v1/endpoints", Value::Null).await;
        assert_eq!(endpoints["data"], json!([]), "{file}");
    }
}
