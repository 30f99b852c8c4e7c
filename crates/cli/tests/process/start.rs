//! A start that works: what it prints, what it makes, and where its settings come from.

use std::path::Path;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::Connection;
use crate::gateway::{Gateway, KEY, Launch};
use crate::sink::Sink;

#[tokio::test]
async fn the_first_start_prints_the_address_the_data_the_key_and_what_to_do_next() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().join("not/there/yet");
    let launch = Launch::serve(&data).without("POSTRIDER_ADMIN_KEY");
    let gateway = launch.start().await;
    let greeting = gateway.process.stdout.text();
    let database = data.join("postrider.db");
    assert!(greeting.contains(&format!("http://{}", gateway.address)), "{greeting}");
    assert!(greeting.contains(&database.display().to_string()), "{greeting}");
    let key = printed_key(&greeting).expect("a key is printed");
    assert_eq!(status_with(&gateway, &key).await, StatusCode::OK);
    let other = format!("{key}x");
    assert_eq!(status_with(&gateway, &other).await, StatusCode::UNAUTHORIZED);
    only_its_owner_can_read(&data, &database);
    run_suggested_command(&greeting, &gateway, &key).await;
    let stopped = gateway.stop().await;
    assert!(!stopped.stderr.contains(&key), "the key is in the log");

    let gateway = launch.start().await;
    let greeting = gateway.process.stdout.text();
    assert_eq!(printed_key(&greeting), None, "{greeting}");
    assert!(!greeting.contains(&key), "{greeting}");
    assert!(greeting.contains("/v1/events"), "{greeting}");
    assert_eq!(status_with(&gateway, &key).await, StatusCode::OK);
}

#[tokio::test]
async fn a_start_that_came_to_nothing_does_not_use_up_the_key() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let launch = Launch::with(["serve", "--listen", &address, "--data"]).and([directory.path()]);
    let refused = launch.run().await.expect_code(1);
    assert_eq!(printed_key(&refused.stdout), None, "{}", refused.stdout);
    drop(taken);

    let gateway = launch.start().await;
    let greeting = gateway.process.stdout.text();
    let key = printed_key(&greeting).expect("the first start that works prints a key");
    assert_eq!(status_with(&gateway, &key).await, StatusCode::OK);
}

#[tokio::test]
async fn a_key_from_the_environment_is_used_and_never_printed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launch = Launch::serve(directory.path()).and(["--log", "trace"]);
    let sink = Sink::accepting().await;
    let gateway = launch.start().await;
    let spec = json!({ "url": sink.url() }).to_string();
    let made = gateway.call(Method::POST, "/v1/endpoints", spec).await;
    let secret = crate::gateway::text(&made.body, "secret");
    let event = gateway.send(1).await;
    sink.until("the delivery", |seen| seen.delivered.contains(&event)).await;
    let stopped = gateway.stop().await;
    assert!(!stopped.stdout.contains(KEY), "{}", stopped.stdout);
    assert!(!stopped.stderr.is_empty(), "nothing was logged");
    assert!(!stopped.stderr.contains(KEY), "the key is in the log");
    assert!(!stopped.stderr.contains(&secret), "an endpoint's secret is in the log");

    let gateway = launch.without("POSTRIDER_ADMIN_KEY").start().await;
    assert_eq!(printed_key(&gateway.process.stdout.text()), None);
    assert_eq!(status_with(&gateway, KEY).await, StatusCode::OK);
}

#[tokio::test]
async fn a_further_key_lets_in_who_has_lost_the_first() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launch = Launch::serve(directory.path());
    let gateway = launch.clone().without("POSTRIDER_ADMIN_KEY").start().await;
    let lost = printed_key(&gateway.process.stdout.text()).expect("a key is printed");
    gateway.stop().await;
    let gateway = launch.start().await;
    assert_eq!(status_with(&gateway, KEY).await, StatusCode::OK);
    assert_eq!(status_with(&gateway, &lost).await, StatusCode::OK);
}

#[tokio::test]
async fn every_setting_can_come_from_the_environment() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let database = directory.path().join("elsewhere.db");
    let gateway = Launch::with(["serve"])
        .variable("POSTRIDER_LISTEN", "127.0.0.1:0")
        .variable("POSTRIDER_STORE", format!("sqlite:{}", database.display()))
        .variable("POSTRIDER_ALLOW_DESTINATION", "10.0.0.0/8,127.0.0.0/8")
        .variable("POSTRIDER_LOG_FORMAT", "json")
        .variable("POSTRIDER_MAX_EVENT_BYTES", "1000")
        .variable("POSTRIDER_DRAIN", "5s")
        .variable("POSTRIDER_ADMIN_KEY", KEY)
        .start()
        .await;
    assert_ne!(gateway.address.port(), 7070);
    assert!(database.exists());

    let sink = Sink::accepting().await;
    gateway.create_endpoint(json!({ "url": sink.url() })).await;
    let event = gateway.send(1).await;
    sink.until("the delivery", |seen| seen.delivered.contains(&event)).await;

    let large = json!({ "type": "large", "payload": "x".repeat(1000) }).to_string();
    let answer = gateway.call(Method::POST, "/v1/events", large).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);

    let stopped = gateway.stop().await;
    assert!(!stopped.stderr.is_empty(), "nothing was logged");
    for line in stopped.stderr.lines() {
        let line: Value = serde_json::from_str(line).expect("a line of the log is JSON");
        assert!(line["message"].is_string() && line["level"].is_string(), "{line}");
    }
}

#[tokio::test]
async fn a_flag_goes_before_its_variable() {
    let [flag, variable] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let gateway =
        Launch::serve(flag.path()).variable("POSTRIDER_DATA", variable.path()).start().await;
    assert!(flag.path().join("postrider.db").exists());
    assert!(!variable.path().join("postrider.db").exists());
    gateway.stop().await;
}

#[tokio::test]
async fn without_settings_it_keeps_its_data_here_and_sends_to_no_private_address() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::with(["serve", "--listen", "127.0.0.1:0"])
        .variable("POSTRIDER_ADMIN_KEY", KEY)
        .in_directory(directory.path())
        .start()
        .await;
    assert!(directory.path().join("postrider-data/postrider.db").exists());
    let sink = Sink::accepting().await;
    let spec = json!({ "url": sink.url() }).to_string();
    let answer = gateway.call(Method::POST, "/v1/endpoints", spec).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.body);
    assert_eq!(answer.body["errors"][0]["field"], "url", "{}", answer.body);
}

#[tokio::test]
async fn once_it_has_greeted_it_is_ready() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    for path in ["/readyz", "/healthz"] {
        let mut stranger = Connection::open(gateway.address, "").await.expect("it listens");
        let answer = stranger.call(Method::GET, path, String::new()).await.expect("an answer");
        assert_eq!(answer.status, StatusCode::OK, "{path}");
    }
}

/// What stands after `admin key` in the greeting.
fn printed_key(greeting: &str) -> Option<String> {
    let line = greeting.lines().find(|line| line.contains("admin key"))?;
    let key = line.split_whitespace().next_back()?;
    assert!(key.starts_with("pr_") && key.len() >= 35, "{line}");
    Some(key.to_owned())
}

async fn status_with(gateway: &Gateway, key: &str) -> StatusCode {
    let mut connection = Connection::open(gateway.address, key).await.expect("it listens");
    let answer = connection.call(Method::GET, "/v1/stats", String::new()).await;
    answer.expect("an answer").status
}

/// Sends the event that the greeting suggests, as it is written there.
async fn run_suggested_command(greeting: &str, gateway: &Gateway, key: &str) {
    assert!(greeting.contains(&format!("Authorization: Bearer {key}")), "{greeting}");
    let body = greeting.split("-d '").nth(1).and_then(|rest| rest.split('\'').next());
    let url = greeting.split("' http://").nth(1).and_then(|rest| rest.split_whitespace().next());
    let path = url.and_then(|url| url.strip_prefix(&gateway.address.to_string()));
    let mut connection = Connection::open(gateway.address, key).await.expect("it listens");
    let (path, body) = (path.expect("a path"), body.expect("a body"));
    let answer = connection.call(Method::POST, path, body.to_owned()).await.expect("an answer");
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
}

fn only_its_owner_can_read(directory: &Path, database: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    for (path, mode) in [(directory, 0o700), (database, 0o600)] {
        let found = path.metadata().expect("it is there").permissions().mode();
        assert_eq!(found & 0o777, mode, "{}", path.display());
    }
}
