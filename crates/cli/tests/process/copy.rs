//! `postrider copy`: a gateway moves from its file to a server, and goes on there as if it had always
//! been there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Disk};
use crate::gateway::{Gateway, Launch, payload, text};
use crate::sink::{Reply, Sink};
use crate::within;

const EVENTS: u64 = 400;

fn copy(data: &Path, to: &str) -> Launch {
    let from = format!("sqlite:{}", data.join("postrider.db").display());
    Launch::with(["copy", "--from", &from]).variable("POSTRIDER_COPY_TO", to)
}

/// The name in a URL of the cluster's.
fn name(url: &str) -> &str {
    let (_, rest) = url.split_once(":///").expect("a URL");
    rest.split('?').next().expect("a name")
}

/// Takes everything, once it is well.
async fn patient(well: &Arc<AtomicBool>) -> Sink {
    let well = Arc::clone(well);
    Sink::start(move |_| {
        let well = well.load(Ordering::SeqCst);
        Reply::Now(if well { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR })
    })
    .await
}

/// What the API says of everything that was set up.
async fn everything(gateway: &Gateway) -> Vec<Value> {
    let mut said = Vec::new();
    for path in ["/v1/endpoints", "/v1/sources", "/v1/tenants"] {
        said.push(gateway.get(path).await);
    }
    let hubs = gateway.get("/v1/hubs").await;
    said.push(
        hubs["data"].as_array().expect("a list").iter().map(|hub| hub["id"].clone()).collect(),
    );
    said.push(gateway.get("/v1/stats").await["events"].clone());
    said
}

async fn post(gateway: &Gateway, path: &str, body: &Value) -> Value {
    let answer = gateway.call(Method::POST, path, body.to_string()).await;
    assert!(answer.status.is_success(), "{path}: {}", answer.body);
    answer.body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_moves_to_a_server_and_goes_on() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path();
    let well = Arc::new(AtomicBool::new(false));
    let (taking, waiting) = (Sink::accepting().await, patient(&well).await);

    let gateway = Launch::serve(data).start().await;
    let policy = json!({ "schedule": { "list": ["1s"] }, "max_attempts": 10_000 });
    gateway.create_endpoint(json!({ "url": taking.url() })).await;
    let later = json!({ "url": waiting.url(), "policy": policy, "ordering": "fifo" });
    let later = gateway.create_endpoint(later).await;
    let secret = gateway.get(&format!("/v1/endpoints/{later}/secret")).await;
    post(&gateway, "/v1/sources", &json!({ "name": "shop", "verify": { "scheme": "none" } })).await;
    post(&gateway, "/v1/hubs", &json!({ "name": "cellar" })).await;
    post(&gateway, "/v1/tenants", &json!({ "name": "second" })).await;
    let events: Vec<Value> = (1..=EVENTS)
        .map(|number| {
            let payload: Value = serde_json::from_str(&payload(number)).expect("JSON");
            json!({ "type": "load.tick", "payload": payload, "idempotency_key": number.to_string() })
        })
        .collect();
    let sent = post(&gateway, "/v1/events/batch", &json!({ "events": events })).await;
    let first = text(&sent["results"][0], "id");
    taking.until("all events", |seen| seen.delivered.len() as u64 == EVENTS).await;
    waiting.until("an attempt", |seen| !seen.arrivals.is_empty()).await;
    let before = everything(&gateway).await;
    gateway.stop().await;

    let cluster = Cluster::start(Disk::Trusted, "");
    let url = cluster.database();
    let shown = copy(data, &url).and(["--dry-run"]).run().await.expect_code(0).stdout;
    assert!(shown.contains("is empty") && shown.contains("Nothing was copied"), "{shown}");
    assert_eq!(cluster.sql(name(&url), "SELECT to_regnamespace('postrider')"), "");

    kill_half_way(&copy(data, &url), &cluster, &url).await;
    let shown = copy(data, &url).and(["--dry-run"]).run().await.expect_code(0).stdout;
    assert!(shown.contains("unfinished copy"), "{shown}");
    let on_server = Launch::serve(data).variable("POSTRIDER_STORE", &url);
    let refused = on_server.run().await.expect_code(2);
    assert!(refused.stderr.contains("unfinished copy"), "{}", refused.stderr);

    let copied = copy(data, &url).run().await.expect_code(0);
    assert!(copied.stderr.contains("Going on with the copy"), "{}", copied.stderr);
    for said in ["rows/s", "the same as in the file", "--secret-key-file", "delivered twice"] {
        assert!(copied.stdout.contains(said), "{said} is missing in\n{}", copied.stdout);
    }
    let again = copy(data, &url).run().await.expect_code(2);
    assert!(again.stderr.contains("copy was completed"), "{}", again.stderr);

    let attempted = waiting.arrivals().len();
    well.store(true, Ordering::SeqCst);
    let gateway = on_server.start().await;
    assert_eq!(everything(&gateway).await, before);
    assert_eq!(gateway.get(&format!("/v1/endpoints/{later}/secret")).await, secret);
    waiting.until("what waited", |seen| seen.delivered.len() as u64 == EVENTS).await;
    let numbers: Vec<u64> =
        waiting.arrivals()[attempted..].iter().map(|arrival| arrival.number).collect();
    assert_eq!(numbers, (1..=EVENTS).collect::<Vec<_>>(), "in order, each once");
    assert_eq!(taking.arrivals().len() as u64, EVENTS, "nothing is delivered again");

    let answer = gateway.call(Method::POST, "/v1/events", events[0].to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    assert_eq!((text(&answer.body, "id"), &answer.body["duplicate"]), (first, &json!(true)));
    gateway.stop().await;
}

/// Row by row, so that there is a half.
async fn kill_half_way(copy: &Launch, cluster: &Cluster, url: &str) {
    let process = copy.clone().and(["--chunk-rows", "1"]).spawn();
    let begun = "SELECT count(*) FROM pg_stat_user_tables \
         WHERE relname = 'unfinished' AND schemaname = 'postrider'";
    let half = format!("SELECT count(*) >= {} FROM postrider.events", EVENTS / 4);
    within("half of the copy", async {
        while cluster.sql(name(url), begun) != "1" || cluster.sql(name(url), &half) != "t" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    process.kill();
    let copied: u64 =
        cluster.sql(name(url), "SELECT count(*) FROM postrider.events").parse().expect("a number");
    assert!((EVENTS / 4..=EVENTS).contains(&copied), "{copied}");
    let copying = "SELECT count(*) FROM postrider.meta WHERE name = 'copying'";
    assert_eq!(cluster.sql(name(url), copying), "1");
}

/// Makes every chunk of events take its time.
const SLOW: &str = "CREATE FUNCTION postrider.slow() RETURNS trigger LANGUAGE plpgsql \
     AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$; \
     CREATE TRIGGER slow BEFORE INSERT ON postrider.events EXECUTE FUNCTION postrider.slow()";

#[tokio::test]
async fn a_stop_is_told_and_can_be_gone_on_from() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    for number in 0..30 {
        gateway.send(number).await;
    }
    gateway.stop().await;
    let cluster = Cluster::start(Disk::Trusted, "");
    let url = cluster.database();
    Launch::with(["migrate"]).variable("POSTRIDER_STORE", &url).run().await.expect_code(0);
    cluster.sql(name(&url), SLOW);
    let process = copy(directory.path(), &url).and(["--chunk-rows", "1"]).spawn();
    let told = process.stderr.line(|line| line.starts_with("copying events: ")).await;
    assert!(told.is_some(), "{}", process.stderr.text());
    process.signal("TERM");
    let stopped = process.finished().await.expect_code(1);
    assert!(stopped.stderr.contains("the same command goes on"), "{}", stopped.stderr);
    let copied = copy(directory.path(), &url).run().await.expect_code(0);
    assert!(copied.stderr.contains("Going on with the copy"), "{}", copied.stderr);
    assert_eq!(cluster.sql(name(&url), "SELECT count(*) FROM postrider.events"), "30");
}

#[tokio::test]
async fn what_cannot_be_copied_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cluster = Cluster::start(Disk::Trusted, "");
    let (data, url) = (directory.path(), cluster.database());
    let missing = copy(data, &url).run().await.expect_code(2);
    assert!(missing.stderr.contains("there is no database at"), "{}", missing.stderr);
    assert!(std::fs::read_dir(data).expect("listed").next().is_none(), "nothing was made");

    let gateway = Launch::serve(data).start().await;
    gateway.create_endpoint(json!({ "pull": true })).await;
    let used = copy(data, &url).run().await.expect_code(2);
    assert!(used.stderr.contains("in use by another postrider"), "{}", used.stderr);
    gateway.stop().await;

    let other = tempfile::tempdir().expect("a temporary directory");
    let node = Launch::serve(other.path()).variable("POSTRIDER_STORE", &url).start().await;
    let taken = copy(data, &url).run().await.expect_code(1);
    assert!(taken.stderr.contains("in use"), "{}", taken.stderr);
    node.stop().await;
    let held = copy(data, &url).run().await.expect_code(2);
    assert!(held.stderr.contains("holds a store already"), "{}", held.stderr);

    let key = data.join("postrider.key");
    std::fs::rename(&key, data.join("elsewhere")).expect("moved");
    let locked = copy(data, &cluster.database()).run().await.expect_code(2);
    assert!(locked.stderr.contains("postrider.key is missing"), "{}", locked.stderr);
    assert!(!key.exists(), "no other was made");
}

#[tokio::test]
async fn wrong_words_are_refused_and_a_password_is_not_repeated() {
    let secret = "postgres://me:hunter2@db/hooks";
    let cases: [(&[&str], &str); 6] = [
        (&["--to", secret], "--from"),
        (&["--from", "sqlite:a"], "--to"),
        (&["--from", secret, "--to", secret], "--from: expected sqlite:PATH"),
        (&["--from", "sqlite:", "--to", secret], "--from: expected sqlite:PATH"),
        (&["--from", "sqlite:a", "--to", "mysql://me:hunter2@db"], "--to: expected postgres://"),
        (&["--from", "sqlite:a", "--to", secret, "--chunk-rows", "0"], "--chunk-rows"),
    ];
    for (arguments, says) in cases {
        let refused = Launch::with(["copy"]).and(arguments).run().await.expect_code(2);
        assert!(refused.stderr.contains(says), "{arguments:?}: {}", refused.stderr);
        assert!(!refused.stderr.contains("hunter2"), "{}", refused.stderr);
    }
    let help = Launch::with(["copy", "--help"]).variable("POSTRIDER_COPY_TO", secret);
    let help = help.run().await.expect_code(0).stdout;
    assert!(!help.contains("hunter2"), "{help}");
    for word in
        ["--from", "--to", "--dry-run", "--secret-key-file", "Stop the gateway", "Exit codes"]
    {
        assert!(help.contains(word), "{word} is missing in\n{help}");
    }
}
