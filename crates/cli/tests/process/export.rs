//! `postrider export`: every event once, its bytes unchanged, and on from where it stopped.

use std::io::{BufRead as _, BufReader};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};

use crate::gateway::{Gateway, Launch, text};
use crate::sink::{Reply, Sink};
use crate::traffic::{command, launch};
use crate::within;

/// More than a page.
const EVENTS: u64 = 130;

async fn filled(gateway: &Gateway) {
    let events: Vec<Value> = (0..EVENTS)
        .map(|number| json!({ "type": "load.tick", "payload": { "number": number } }))
        .collect();
    let batch = json!({ "events": events }).to_string();
    let answer = gateway.call(http::Method::POST, "/v1/events/batch", batch).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

#[tokio::test]
async fn every_event_is_written_once_and_it_goes_on_where_it_stopped() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    filled(&gateway).await;
    let file = data.path().join("all.ndjson");
    let to = file.to_str().expect("text");
    let whole = launch(&gateway, &["export", "--to", to]).run().await.expect_code(0);
    assert!(whole.stderr.contains(&format!("{EVENTS} events")), "{}", whole.stderr);
    assert_eq!(whole.stdout, "");
    let all = lines(&std::fs::read_to_string(&file).expect("written"));
    let numbers: Vec<Option<u64>> =
        all.iter().map(|event| event["payload"]["number"].as_u64()).collect();
    let expected: Vec<Option<u64>> = (0..EVENTS).rev().map(Some).collect();
    assert_eq!(numbers, expected, "each once, newest first");
    assert!(all[0].get("headers").is_some() && all[0]["deliveries"].is_number(), "{}", all[0]);

    let there = launch(&gateway, &["export", "--to", to]).run().await.expect_code(2);
    assert!(there.stderr.contains(to), "{}", there.stderr);
    // The first part, as if it had been stopped there, and the rest.
    let part = data.path().join("part.ndjson");
    let text_of_all = std::fs::read_to_string(&file).expect("written");
    let first: String = text_of_all.split_inclusive('\n').take(75).collect();
    std::fs::write(&part, &first).expect("written");
    let last = text(&all[74], "id");
    let rest = ["export", "--to", part.to_str().expect("text"), "--after", &last];
    launch(&gateway, &rest).run().await.expect_code(0);
    assert_eq!(std::fs::read_to_string(&part).expect("written"), text_of_all);

    let none = launch(&gateway, &["export", "--type", "no.such"]).run().await.expect_code(0);
    assert_eq!(none.stdout, "");
    gateway.stop().await;
}

#[tokio::test]
async fn payloads_are_unchanged_and_deliveries_come_with_their_attempts() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    let sink = Sink::start(|_| Reply::Now(StatusCode::NOT_FOUND)).await;
    gateway.create_endpoint(json!({ "url": sink.url(), "policy": "edge" })).await;
    let pretty = "{\n  \"number\": 1.0\n}";
    let odd = r#"{"b":1.0,"a":  "\u0041"}"#;
    for (data, content_type) in
        [(odd, "application/json"), (pretty, "application/json"), ("<xml/>", "text/xml")]
    {
        let send = ["events", "send", "--type", "a.b", "--data", data, "--content-type"];
        launch(&gateway, &send).and([content_type, "--wait"]).run().await.expect_code(3);
    }
    let exported = launch(&gateway, &["export", "--deliveries"]).run().await.expect_code(0);
    assert!(exported.stdout.ends_with(&format!("\"payload\":{odd}}}")), "{}", exported.stdout);
    let all = lines(&exported.stdout);
    let decoded = |event: &Value| STANDARD.decode(text(event, "payload_base64")).expect("base64");
    assert_eq!(decoded(&all[0]), b"<xml/>");
    assert_eq!(decoded(&all[1]), pretty.as_bytes());
    for event in &all {
        let delivery = &event["deliveries"][0];
        assert_eq!(delivery["state"], "failed", "{event}");
        assert_eq!(delivery["attempt_log"][0]["status_code"], 404, "{event}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn it_ends_with_whoever_reads_it() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    filled(&gateway).await;
    let mut export = command(&gateway, &["export"]).spawn().expect("it starts");
    let mut first = String::new();
    BufReader::new(export.stdout.take().expect("piped")).read_line(&mut first).expect("text");
    assert_eq!(lines(&first).len(), 1);
    let status = tokio::task::spawn_blocking(move || export.wait());
    let status = within("its end", status).await.expect("no panic").expect("it can be waited for");
    assert_eq!(status.code(), Some(0));
    gateway.stop().await;
}
