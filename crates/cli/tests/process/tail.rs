//! `postrider tail`: notices as they happen, through interruptions, until nobody reads any more.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::gateway::{KEY, Launch};
use crate::sink::Sink;
use crate::traffic::{command, launch};
use crate::within;

#[tokio::test]
async fn what_happens_is_shown_until_a_signal_comes() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    let sink = Sink::accepting().await;
    gateway.create_endpoint(json!({ "name": "billing", "url": sink.url() })).await;
    gateway.create_endpoint(json!({ "name": "other", "url": sink.url() })).await;
    let all = launch(&gateway, &["tail"]).spawn();
    let some =
        launch(&gateway, &["tail", "--json", "--kind", "delivery.*", "--endpoint", "billing"])
            .spawn();
    for tail in [&all, &some] {
        assert!(tail.stderr.line(|line| line.starts_with("following")).await.is_some());
    }
    let event = gateway.send(1).await;
    let line = some.stdout.line(|line| line.contains(&event)).await.expect("a notice");
    let notice: Value = serde_json::from_str(&line).expect("a line is JSON");
    assert_eq!(notice["kind"], "delivery.delivered", "{notice}");
    let line = all.stdout.line(|line| line.contains(&event)).await.expect("a notice");
    assert!(line.contains("delivery.delivered") && line.contains("attempt 1"), "{line}");
    assert!(!line.contains('\x1b'), "no colours where there is no terminal: {line:?}");

    // Behind the notice that is known there is only what came later.
    let other = gateway.send(2).await;
    let id = notice["id"].as_str().expect("an id");
    let later = launch(&gateway, &["tail", "--json", "--since-id", id]).spawn();
    assert!(later.stdout.line(|line| line.contains(&other)).await.is_some());
    for (tail, signal) in [(all, "INT"), (some, "TERM"), (later, "INT")] {
        tail.signal(signal);
        tail.finished().await.expect_code(0);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn it_ends_with_whoever_reads_it() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    let sink = Sink::accepting().await;
    gateway.create_endpoint(json!({ "url": sink.url() })).await;
    let mut tail = command(&gateway, &["tail", "--json"]).spawn().expect("it starts");
    let mut said = BufReader::new(tail.stderr.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("text");
    assert!(line.starts_with("following"), "{line}");
    drop(tail.stdout.take());
    gateway.send(1).await;
    let status = tokio::task::spawn_blocking(move || tail.wait());
    let status = within("its end", status).await.expect("no panic").expect("it can be waited for");
    assert_eq!(status.code(), Some(0));
    gateway.stop().await;
}

/// Takes a connection, tells what it was asked, and answers with the beginning of a stream.
fn answer(listener: &TcpListener, status: &str, frames: &str) -> (TcpStream, String) {
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).expect("readable"), 1, "a whole head");
        head.push(byte[0]);
    }
    let kind = "content-type: text/event-stream\r\nconnection: close";
    write!(stream, "HTTP/1.1 {status}\r\n{kind}\r\n\r\n{frames}").expect("answered");
    (stream, String::from_utf8(head).expect("ASCII").to_lowercase())
}

#[tokio::test]
async fn after_an_interruption_it_asks_for_what_it_has_missed() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (asked, heads) = mpsc::channel();
    std::thread::spawn(move || {
        let notice =
            |id: u64| format!("id: {id}\ndata: {{\"id\":\"{id}\",\"kind\":\"hub.connected\"}}\n\n");
        let first = format!(": following\n\n{}", notice(7));
        for (status, frames) in [
            ("200 OK", first.as_str()),
            ("503 Service Unavailable", ""),
            ("200 OK", &notice(8)),
            ("401 Unauthorized", "{\"detail\":\"revoked\"}"),
        ] {
            let (_closed, head) = answer(&listener, status, frames);
            asked.send(head).expect("the test waits");
        }
    });
    let tail = Launch::with(["tail", "--json", "--gateway", &format!("http://{address}")])
        .variable("POSTRIDER_KEY", KEY)
        .spawn();
    let ended = tail.finished().await.expect_code(2);
    let ids: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["id"].take())
        .collect();
    assert_eq!(ids, ["7", "8"], "{ended:?}");
    assert!(ended.stderr.contains("again") && ended.stderr.contains("401"), "{}", ended.stderr);
    let heads: Vec<String> = heads.iter().collect();
    assert!(!heads[0].contains("last-event-id"), "{}", heads[0]);
    for (head, id) in [(&heads[1], 7), (&heads[2], 7), (&heads[3], 8)] {
        assert!(head.contains(&format!("last-event-id: {id}\r\n")), "{head}");
        assert!(head.contains("get /v1/stream?topic=gateway%3awebhooks "), "{head}");
    }
}

#[tokio::test]
async fn a_kind_that_there_is_not_is_refused() {
    let refused = Launch::with(["tail", "--kind", "delivery.gone"]).variable("POSTRIDER_KEY", KEY);
    let refused = refused.run().await.expect_code(2);
    assert!(refused.stderr.contains("delivery.retry_scheduled"), "{}", refused.stderr);
}
