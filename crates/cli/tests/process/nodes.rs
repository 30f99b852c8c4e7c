//! `postrider nodes`, and what `postrider serve` says of the node that it is.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::cluster::{Cluster, Disk};
use crate::gateway::{Gateway, KEY, Launch};

fn nodes(gateway: SocketAddr) -> Launch {
    Launch::with(["nodes", "--gateway", &format!("http://{gateway}")])
        .variable("POSTRIDER_KEY", KEY)
}

fn node(data: &Path, database: &str, name: &str) -> Launch {
    Launch::serve(data)
        .and(["--node-name", name, "--lease", "2s", "--lanes", "8"])
        .variable("POSTRIDER_STORE", database)
        .variable("POSTRIDER_SECRET_KEY", "ab".repeat(32))
}

/// Asks until the answer is the `wanted` one.
async fn until_shown(gateway: &Gateway, wanted: &[&str]) -> String {
    let mut last = String::new();
    let shown = async {
        loop {
            last = nodes(gateway.address).run().await.stdout;
            if wanted.iter().all(|part| last.contains(part)) {
                return;
            }
        }
    };
    let in_time = tokio::time::timeout(crate::PATIENCE, shown).await;
    assert!(in_time.is_ok(), "{wanted:?} did not come, but\n{last}");
    last
}

#[tokio::test]
async fn a_gateway_on_a_file_says_that_it_is_the_only_one() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).and(["--node-name", "a"]).start().await;
    let greeting = gateway.process.stdout.text();
    assert!(!greeting.contains("  node "), "{greeting}");
    let shown = nodes(gateway.address).run().await.expect_code(0);
    assert!(shown.stdout.contains("One node at a time"), "{}", shown.stdout);
    let shown = nodes(gateway.address).and(["--json"]).run().await.expect_code(0);
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!(shown, json!({ "me": null, "lanes": 0, "nodes": [] }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_share_a_database_see_each_other_come_and_go() {
    let [one, other] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let cluster = Cluster::start(Disk::Trusted, "");
    let database = cluster.database();
    let first = node(one.path(), &database, "one").start().await;
    let greeting = first.process.stdout.text();
    assert!(greeting.contains("one, alone so far"), "{greeting}");
    until_shown(&first, &["1 live; 8 of 8 lanes carried; one answered"]).await;

    let second = node(other.path(), &database, "other").start().await;
    let greeting = second.process.stdout.text();
    assert!(greeting.contains("other, one of 2 that share the store"), "{greeting}");
    let both = "2 live; 8 of 8 lanes carried;";
    let shown = until_shown(&first, &[both, "one *", "one answered", " 4: "]).await;
    assert_eq!(shown.matches(" 4: ").count(), 2, "{shown}");
    assert!(shown.contains(&second.address.to_string()), "{shown}");
    assert!(shown.contains(env!("CARGO_PKG_VERSION")), "{shown}");
    until_shown(&second, &[both, "other *", "other answered"]).await;

    let watched = nodes(second.address).and(["--watch", "--json"]).spawn();
    let line = watched.stdout.line(|line| line.contains(r#""lanes":8"#)).await;
    let line: Value = serde_json::from_str(&line.expect("it looks")).expect("a line is JSON");
    let lanes = |node: &Value| node["lanes"].as_array().map_or(0, Vec::len);
    let held: usize = line["nodes"].as_array().into_iter().flatten().map(lanes).sum();
    assert_eq!(held, 8, "{line}");

    first.stop().await;
    let shown = until_shown(&second, &["1 live, 1 gone; 8 of 8 lanes carried;", " 8: 0–7"]).await;
    let gone = shown.lines().find(|line| line.starts_with("one")).expect("it was there");
    assert!(gone.contains("gone"), "{shown}");
    watched.signal("INT");
    watched.finished().await.expect_code(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stopping_node_carries_goes_to_others_before_its_last_connection_ends() {
    let [one, other] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let cluster = Cluster::start(Disk::Trusted, "");
    let database = cluster.database();
    let first = node(one.path(), &database, "one").and(["--drain", "60s"]).start().await;
    let second = node(other.path(), &database, "other").start().await;
    until_shown(&second, &["2 live; 8 of 8 lanes carried;", " 4: "]).await;

    // A producer that is slow with the end of its event, and the stop waits for that.
    let event = br#"{"type":"slow.event","payload":1}"#;
    let mut producer = BufReader::new(TcpStream::connect(first.address).await.expect("it listens"));
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        event.len()
    );
    producer.write_all(head.as_bytes()).await.expect("sent");
    assert!(next_head(&mut producer).await.starts_with("HTTP/1.1 100 "));
    first.process.signal("TERM");
    until_shown(&second, &["8 of 8 lanes carried;", " 8: 0–7"]).await;
    producer.write_all(event).await.expect("it still takes the rest");
    let answer = next_head(&mut producer).await;
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    first.process.finished().await.expect_code(0);
}

/// The head of the next answer on a connection.
async fn next_head(connection: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    let read = async {
        while !head.ends_with("\r\n\r\n") {
            let read = connection.read_line(&mut head).await.expect("text");
            assert!(read > 0, "it ended after {head:?}");
        }
    };
    crate::within("an answer", read).await;
    head
}

#[tokio::test]
async fn a_lane_that_nobody_carries_is_a_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let time = "2026-01-31T12:00:00.000Z";
    let node = json!({
        "id": "node_1", "name": "a", "version": "1.2.3", "address": "10.0.0.5:7070", "live": true,
        "joined_at": time, "seen_at": time, "until": time, "lanes": [0, 1, 3], "hubs": [],
        "in_flight": 0, "lag_seconds": 0.0,
    });
    let answer = json!({ "me": "node_1", "lanes": 5, "nodes": [node] }).to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let mut stream = stream.expect("a connection");
            // The question is one packet, and what is in it does not matter.
            let _asked = stream.read(&mut [0; 4_096]).expect("a question");
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length";
            write!(stream, "{head}: {}\r\n\r\n{answer}", answer.len()).expect("answered");
        }
    });
    let shown = nodes(address).run().await.expect_code(1);
    assert!(shown.stdout.contains("3 of 5 lanes carried, nobody has 2, 4"), "{}", shown.stdout);
    nodes(address).and(["--json"]).run().await.expect_code(1);
}

#[tokio::test]
async fn whoever_cannot_be_answered_is_told_why() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    let address = gateway.address;
    let refused = nodes(address).without("POSTRIDER_KEY").run().await.expect_code(2);
    assert!(refused.stderr.contains("POSTRIDER_KEY"), "{}", refused.stderr);
    for watch in [&[][..], &["--watch"]] {
        let refused = nodes(address).variable("POSTRIDER_KEY", "pr_not_this_one").and(watch);
        let refused = refused.run().await.expect_code(2);
        assert!(refused.stderr.contains("401"), "{}", refused.stderr);
    }
    gateway.stop().await;
    let refused = nodes(address).run().await.expect_code(1);
    assert!(refused.stderr.contains("does not answer"), "{}", refused.stderr);
    // Whoever watches waits for it to come back.
    let watching = nodes(address).and(["--watch"]).spawn();
    let said = watching.stderr.line(|line| line.contains("does not answer")).await;
    assert!(said.is_some());
    watching.signal("TERM");
    watching.finished().await.expect_code(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_that_the_first_node_makes_is_one_that_others_need() {
    let [one, other] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let cluster = Cluster::start(Disk::Trusted, "");
    let database = cluster.database();
    let node = |data: &Path| Launch::serve(data).variable("POSTRIDER_STORE", &database);
    let first = node(one.path()).start().await;
    let file = one.path().canonicalize().expect("there").join("postrider.key");
    let greeting = first.process.stdout.text();
    assert!(greeting.contains(&file.display().to_string()), "{greeting}");
    assert!(greeting.contains("every other node needs a copy"), "{greeting}");
    let url = "https://example.com/hook";
    first.create_endpoint(json!({ "url": url })).await;

    let refused = node(other.path()).run().await.expect_code(2);
    for part in ["every node needs the same key", "Copy the key file", "--secret-key-file"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    let copy = other.path().join("postrider.key");
    assert!(!copy.exists());
    std::fs::copy(&file, &copy).expect("copied");
    let second = node(other.path()).start().await;
    let greeting = second.process.stdout.text();
    assert!(!greeting.contains("secret key"), "{greeting}");
    let endpoints = second.get("/v1/endpoints").await;
    assert_eq!(endpoints["data"][0]["url"], url, "{endpoints}");

    // Nodes that know the old key only could not read what is sealed with a new one.
    let old = std::fs::read_to_string(&file).expect("readable");
    std::fs::write(&file, format!("{}\n{old}", "cd".repeat(32))).expect("written");
    let rekey = Launch::with(["rekey", "--data"]).and([one.path()]);
    let rekey = rekey.variable("POSTRIDER_STORE", &database);
    let refused = rekey.run().await.expect_code(1);
    assert!(refused.stderr.contains("in use by another postrider"), "{}", refused.stderr);
    first.stop().await;
    second.stop().await;
    let done = rekey.run().await.expect_code(0);
    assert!(done.stdout.contains("1 endpoint"), "{}", done.stdout);
}
