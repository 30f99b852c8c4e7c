//! `postrider export`: every event once, its bytes unchanged, and on from where it stopped.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Command;

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
    let all = lines(&fs::read_to_string(&file).expect("written"));
    let numbers: Vec<Option<u64>> =
        all.iter().map(|event| event["payload"]["number"].as_u64()).collect();
    let expected: Vec<Option<u64>> = (0..EVENTS).rev().map(Some).collect();
    assert_eq!(numbers, expected, "each once, newest first");
    assert!(all[0].get("headers").is_some() && all[0]["deliveries"].is_number(), "{}", all[0]);

    let there = launch(&gateway, &["export", "--to", to]).run().await.expect_code(2);
    assert!(there.stderr.contains(to), "{}", there.stderr);
    // The first part, as if it had been stopped there, and the rest.
    let part = data.path().join("part.ndjson");
    let text_of_all = fs::read_to_string(&file).expect("written");
    let first: String = text_of_all.split_inclusive('\n').take(75).collect();
    fs::write(&part, &first).expect("written");
    let last = text(&all[74], "id");
    let rest = ["export", "--to", part.to_str().expect("text"), "--after", &last];
    launch(&gateway, &rest).run().await.expect_code(0);
    assert_eq!(fs::read_to_string(&part).expect("written"), text_of_all);

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

/// Sends an interrupt, as Ctrl-C does.
fn interrupt(process: u32) {
    let command = format!("kill -INT {process}");
    let sent = Command::new("sh").args(["-c", &command]).status().expect("sh runs");
    assert!(sent.success());
}

/// The event that it is said to go on behind.
#[track_caller]
fn hint(said: &str) -> &str {
    let hint = said.lines().find_map(|line| line.strip_prefix("go on with --after "));
    hint.unwrap_or_else(|| panic!("no hint in {said}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_leaves_whole_lines_and_says_how_to_go_on() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    // More than a pipe holds, so that it cannot have come to its end while nobody reads.
    let filling = "x".repeat(4_096);
    let events: Vec<Value> = (0..EVENTS)
        .map(|number| json!({ "type": "load.tick", "payload": [number, filling] }))
        .collect();
    let batch = json!({ "events": events }).to_string();
    let answer = gateway.call(http::Method::POST, "/v1/events/batch", batch).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
    let whole = launch(&gateway, &["export"]).run().await.expect_code(0).stdout;

    let mut export = command(&gateway, &["export"]).spawn().expect("it starts");
    let mut out = BufReader::new(export.stdout.take().expect("piped"));
    let mut err = export.stderr.take().expect("piped");
    let mut written = String::new();
    out.read_line(&mut written).expect("text");
    interrupt(export.id());
    let ended = tokio::task::spawn_blocking(move || {
        out.read_to_string(&mut written).expect("text");
        let mut said = String::new();
        err.read_to_string(&mut said).expect("text");
        (export.wait().expect("it can be waited for"), written, said)
    });
    let (status, written, said) = within("its end", ended).await.expect("no panic");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("postrider: stopped"), "{said}");
    let lines = lines(&written);
    assert!(
        written.ends_with('\n') && lines.len() < whole.lines().count(),
        "{} lines",
        lines.len()
    );
    assert_eq!(hint(&said), text(&lines[lines.len() - 1], "id"));
    assert!(said.contains(&format!("{} events", lines.len())), "{said}");
    let rest = ["export", "--after", hint(&said)];
    let rest = launch(&gateway, &rest).run().await.expect_code(0).stdout;
    assert_eq!(written + &rest, whole);
    gateway.stop().await;
}

#[tokio::test]
async fn what_did_not_get_to_the_disk_is_not_said_to_be_there() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    filled(&gateway).await;
    let full = || File::options().write(true).open("/dev/full").expect("there is one");
    let newest = text(&gateway.get("/v1/events?limit=1").await["data"][0], "id");
    for after in [None, Some(newest.as_str())] {
        let after_it: Vec<&str> = after.into_iter().flat_map(|after| ["--after", after]).collect();
        let arguments = [&["export"][..], &after_it].concat();
        let run = command(&gateway, &arguments).stdout(full()).output().expect("it runs");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{said}");
        assert!(said.contains("No space left"), "{said}");
        assert!(said.lines().any(|line| line == "0 events"), "{said}");
        // Where it began, if that was said: nothing was written behind it.
        let hints: Vec<&str> =
            said.lines().filter_map(|line| line.strip_prefix("go on with --after ")).collect();
        assert_eq!(hints, after.into_iter().collect::<Vec<_>>(), "{said}");
    }

    let part = data.path().join("part.ndjson");
    let to = part.to_str().expect("text");
    fs::write(&part, "{\"id\":1}\n{\"id\":").expect("written");
    let cut = ["export", "--to", to, "--after", &newest];
    let refused = launch(&gateway, &cut).run().await.expect_code(2);
    assert!(refused.stderr.contains("in the middle of a line"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&part).expect("there"), "{\"id\":1}\n{\"id\":");
    gateway.stop().await;
}
