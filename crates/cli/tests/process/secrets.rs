//! Secrets at rest: sealed with a key beside the database, or one that is given, and re-keyed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use crate::gateway::Launch;
use crate::sink::Sink;

const SECRET: &str = "whsec_dGhpcyBzdGFuZHMgbm93aGVyZSBpbiBhIGZpbGU=";

/// A gateway with one endpoint whose secret is [`SECRET`], stopped.
async fn with_an_endpoint(data: &Path) {
    let sink = Sink::accepting().await;
    let gateway = Launch::serve(data).start().await;
    gateway.create_endpoint(json!({ "url": sink.url(), "secret": SECRET })).await;
    gateway.stop().await;
}

fn anywhere(data: &Path, text: &str) -> bool {
    fs::read_dir(data).expect("listed").any(|entry| {
        let bytes = fs::read(entry.expect("an entry").path()).expect("readable");
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

#[tokio::test]
async fn a_secret_stands_nowhere_in_the_data() {
    let data = tempfile::tempdir().expect("a temporary directory");
    with_an_endpoint(data.path()).await;
    assert!(!anywhere(data.path(), SECRET));
    assert!(!anywhere(data.path(), &SECRET["whsec_".len()..]));
    let key = fs::metadata(data.path().join("postrider.key")).expect("a key was made");
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn without_its_key_it_does_not_start_and_makes_no_other() {
    let data = tempfile::tempdir().expect("a temporary directory");
    with_an_endpoint(data.path()).await;
    let key = data.path().join("postrider.key");
    fs::rename(&key, data.path().join("elsewhere")).expect("moved");
    let refused = Launch::serve(data.path()).run().await.expect_code(2);
    assert!(refused.stderr.contains("postrider.key"), "{}", refused.stderr);
    assert!(!key.exists());
    let other = Launch::serve(data.path())
        .variable("POSTRIDER_SECRET_KEY", "00".repeat(32))
        .run()
        .await
        .expect_code(2);
    assert!(other.stderr.contains("sealed with the key"), "{}", other.stderr);
}

#[tokio::test]
async fn a_new_key_takes_over() {
    let data = tempfile::tempdir().expect("a temporary directory");
    with_an_endpoint(data.path()).await;
    let file = data.path().join("postrider.key");
    let old = fs::read_to_string(&file).expect("readable");
    let new = "11".repeat(32);
    fs::write(&file, format!("{new}\n{old}")).expect("written");
    let rekey = Launch::with(["rekey", "--data"]).and([data.path()]);
    let done = rekey.run().await.expect_code(0);
    assert!(done.stdout.contains("1 endpoint"), "{}", done.stdout);
    fs::write(&file, &new).expect("written");
    let gateway = Launch::serve(data.path()).start().await;
    let endpoints = gateway.get("/v1/endpoints").await;
    let id = endpoints["data"][0]["id"].as_str().expect("the endpoint").to_owned();
    let secret = gateway.get(&format!("/v1/endpoints/{id}/secret")).await;
    assert_eq!(secret["secret"], SECRET);
}

#[tokio::test]
async fn a_key_file_that_others_can_read_is_refused() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let file = data.path().join("shared.key");
    fs::write(&file, "22".repeat(32)).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("set");
    let launch = Launch::serve(data.path()).variable("POSTRIDER_SECRET_KEY_FILE", &file);
    let refused = launch.run().await.expect_code(2);
    assert!(refused.stderr.contains("chmod 600"), "{}", refused.stderr);
}
