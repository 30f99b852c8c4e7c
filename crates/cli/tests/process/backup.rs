//! `postrider backup`: a copy that is taken under load is a gateway of its own, with everything that was
//! acknowledged before it began.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use http::Method;
use serde_json::{Value, json};

use crate::gateway::{Launch, payload, text};
use crate::producers::Producers;
use crate::sink::Sink;

/// Before the backup begins, and while it is looked at again afterwards.
const BEFORE: usize = 400;

fn backup(data: &Path, to: &Path) -> Launch {
    Launch::with(["backup"])
        .and(["--data".as_ref(), data.as_os_str()])
        .and(["--to".as_ref(), to.as_os_str()])
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_has_everything_that_was_acknowledged_before_it() {
    let [directory, elsewhere] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let (data, copy) = (directory.path(), elsewhere.path().join("copy.db"));
    let sink = Sink::accepting().await;
    let gateway = Launch::serve(data).start().await;
    let endpoint = gateway.create_endpoint(json!({ "url": sink.url() })).await;
    let secret = gateway.get(&format!("/v1/endpoints/{endpoint}/secret")).await;
    let mut producers = Producers::start(4);
    producers.turn_to(&gateway);
    producers.until("enough events", |acks| acks.len() >= BEFORE).await;
    let before = producers.acknowledged();
    let done = backup(data, &copy).and(["--with-key"]).run().await.expect_code(0);
    for part in ["the copy is sound", "postrider serve --store", "keep it apart"] {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
    let during = producers.acknowledged();
    producers.until("the gateway goes on", |acks| acks.len() > during).await;
    let acks = producers.finish().await;
    gateway.stop().await;
    let key = elsewhere.path().join("copy.db.key");
    assert_eq!((mode(&copy), mode(&key)), (0o600, 0o600));
    let left: Vec<_> = fs::read_dir(elsewhere.path()).expect("listed").collect();
    assert_eq!(left.len(), 2, "{left:?}");

    let restored = Launch::serving()
        .and(["--store", &format!("sqlite:{}", copy.display())])
        .and(["--secret-key-file".as_ref(), key.as_os_str()])
        .start()
        .await;
    assert_eq!(restored.get(&format!("/v1/endpoints/{endpoint}/secret")).await, secret);
    let mut connection = restored.connect().await;
    for ack in &acks[..before] {
        let path = format!("/v1/events/{}/payload", ack.event);
        let answer = connection.call(Method::GET, &path, String::new()).await.expect("an answer");
        let sent: Value = serde_json::from_str(&payload(ack.number)).expect("JSON");
        assert_eq!(answer.body, sent, "{}", ack.event);
        let path = format!("/v1/events/{}/deliveries", ack.event);
        let answer = connection.call(Method::GET, &path, String::new()).await.expect("an answer");
        assert_eq!(answer.body["data"].as_array().map(Vec::len), Some(1), "{}", answer.body);
    }
    // What has come later is whole or absent, and what is there can be gone on with.
    for ack in &acks[before..] {
        let path = format!("/v1/events/{}", ack.event);
        let answer = connection.call(Method::GET, &path, String::new()).await.expect("an answer");
        assert!([200, 404].contains(&answer.status.as_u16()), "{}", answer.body);
    }
    let sent = restored.send(u64::MAX >> 1).await;
    sink.until("a delivery of the restored gateway", |seen| seen.delivered.contains(&sent)).await;
}

#[tokio::test]
async fn a_gateway_that_is_stopped_can_be_backed_up_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, copy) = (directory.path(), directory.path().join("copy.db"));
    let gateway = Launch::serve(data).start().await;
    let event = gateway.send(1).await;
    gateway.stop().await;
    let done = backup(data, &copy).run().await.expect_code(0);
    assert!(done.stdout.contains("the copy is sound"), "{}", done.stdout);

    let kept = backup(data, &copy).run().await.expect_code(2);
    assert!(kept.stderr.contains("--force"), "{}", kept.stderr);
    backup(data, &copy).and(["--force"]).run().await.expect_code(0);
    let from = format!("sqlite:{}", copy.display());
    let restored = Launch::serving().and(["--store", &from]).start().await;
    let shown = restored.get(&format!("/v1/events/{event}")).await;
    assert_eq!(text(&shown, "id"), event);
    let busy = backup(data, &copy).and(["--force"]).run().await.expect_code(2);
    assert!(busy.stderr.contains("in use"), "{}", busy.stderr);
}

#[tokio::test]
async fn what_cannot_be_backed_up_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let copy = directory.path().join("copy.db");
    let nothing = backup(directory.path(), &copy).run().await.expect_code(2);
    assert!(nothing.stderr.contains("there is no database"), "{}", nothing.stderr);
    let server =
        backup(directory.path(), &copy).variable("POSTRIDER_STORE", "postgres://me:hunter2@db/x");
    let server = server.run().await.expect_code(2);
    assert!(server.stderr.contains("pg_dump") && !server.stderr.contains("hunter2"));
    fs::write(directory.path().join("postrider.db"), "dear diary").expect("written");
    let diary = backup(directory.path(), &copy).run().await.expect_code(2);
    assert!(diary.stderr.contains("not a database"), "{}", diary.stderr);
    let no_key = backup(directory.path(), &copy).and(["--with-key"]).run().await.expect_code(2);
    assert!(no_key.stderr.contains("postrider.key"), "{}", no_key.stderr);
    assert!(!copy.exists());
    Launch::with(["backup"]).run().await.expect_code(2);
}
