//! `postrider events`, `deliveries`, `dead` and `jobs`: traffic from the command line.

mod batch;
mod letters;

use std::io::Write as _;
use std::process::{Command, Stdio};

use http::StatusCode;
use serde_json::{Value, json};

use crate::gateway::{Finished, Gateway, KEY, Launch, text};
use crate::sink::{Reply, Sink};

/// `postrider` with these arguments, for this gateway.
pub(crate) fn launch(gateway: &Gateway, arguments: &[&str]) -> Launch {
    Launch::with(arguments)
        .variable("POSTRIDER_GATEWAY", format!("http://{}", gateway.address))
        .variable("POSTRIDER_KEY", KEY)
}

/// The same for whoever wants the streams of the process for itself.
pub(crate) fn command(gateway: &Gateway, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command
        .args(arguments)
        .env_clear()
        .env("POSTRIDER_GATEWAY", format!("http://{}", gateway.address))
        .env("POSTRIDER_KEY", KEY)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[track_caller]
pub(crate) fn json_of(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", finished.stdout, finished.stderr))
}

/// Takes odd numbers, and refuses even ones for good where the policy is `edge`.
async fn choosy() -> Sink {
    Sink::start(|arrival| {
        let refused = arrival.number.is_multiple_of(2);
        Reply::Now(if refused { StatusCode::NOT_FOUND } else { StatusCode::OK })
    })
    .await
}

#[tokio::test]
async fn an_event_is_sent_followed_shown_and_sent_again() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    let sink = choosy().await;
    // Unordered, so that what is to go in an hour is in nobody's way.
    let endpoint =
        json!({ "name": "billing", "url": sink.url(), "policy": "edge", "ordering": "none" });
    gateway.create_endpoint(endpoint).await;
    let payload = r#"{"number": 1,  "text": "\u0041"}"#;
    let send = |payload: &str| {
        launch(&gateway, &["events", "send", "--type", "order.created", "--data", payload])
    };

    let key = ["--idempotency-key", "order-1", "--metadata", "a=b=c", "--wait", "--json"];
    let receipt = json_of(&send(payload).and(key).run().await.expect_code(0));
    assert_eq!(receipt["deliveries"][0]["state"], "delivered", "{receipt}");
    let event = text(&receipt["event"], "id");
    assert_eq!(sink.arrivals()[0].body, payload, "the text is as it was written");
    let again = send(payload).and(key).run().await.expect_code(0);
    assert_eq!(json_of(&again)["event"]["duplicate"], true);
    let other = send("{}").and(key).run().await.expect_code(2);
    assert!(other.stderr.contains("409"), "{}", other.stderr);

    let refused = send(r#"{"number":2}"#).and(["--wait", "20s"]).run().await.expect_code(3);
    assert!(refused.stdout.contains("failed") && refused.stdout.contains("404"), "{refused:?}");
    let late = send(r#"{"number":3}"#).and(["--deliver-at", "1h", "--wait=100ms"]);
    let late = late.run().await.expect_code(3);
    assert!(late.stderr.contains("not all had ended"), "{}", late.stderr);
    let nothing = send("{").run().await.expect_code(2);
    assert!(nothing.stderr.contains("--content-type"), "{}", nothing.stderr);

    let shown = launch(&gateway, &["events", "show", &event]).run().await.expect_code(0);
    for part in [event.as_str(), "order.created", "order-1", "b=c", "completed", "delivered"] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let shown = launch(&gateway, &["events", "show", &event, "--payload"]).run().await;
    assert_eq!(shown.expect_code(0).stdout, payload);
    let listed = launch(&gateway, &["events", "list", "--type", "order.created", "--since", "1h"]);
    let listed = listed.run().await.expect_code(0);
    assert_eq!(listed.stdout.matches("evt_").count(), 3, "{}", listed.stdout);
    let listed = launch(&gateway, &["events", "list", "--until", "1h", "--json"]).run().await;
    assert_eq!(json_of(&listed.expect_code(0))["data"], json!([]));

    let replayed =
        launch(&gateway, &["events", "replay", &event, "--endpoint", "billing"]).run().await;
    assert!(replayed.expect_code(0).stdout.contains("1 new delivery"));
    sink.until("the event again", |seen| {
        seen.arrivals.iter().filter(|arrival| arrival.event == event).count() == 2
    })
    .await;
    let unknown = launch(&gateway, &["events", "replay", &event, "--endpoint", "none"]).run().await;
    assert!(unknown.expect_code(2).stderr.contains("none"));
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_no_json_is_sent_as_it_is() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    let bytes = b"\x00\xff\r\n<pdf>";
    let file = data.path().join("invoice.pdf");
    std::fs::write(&file, bytes).expect("written");
    let at = format!("@{}", file.display());
    let arguments =
        ["events", "send", "--type", "invoice.pdf", "--content-type", "application/pdf", "--json"];
    let from_file = launch(&gateway, &arguments).and(["--data", &at]).run().await.expect_code(0);
    let mut piped = command(&gateway, &arguments);
    let mut piped = piped.args(["--data", "-"]).spawn().expect("it starts");
    piped.stdin.take().expect("piped").write_all(bytes).expect("it reads");
    let piped = piped.wait_with_output().expect("it ends");
    let piped: Value = serde_json::from_slice(&piped.stdout).expect("a receipt");
    for receipt in [json_of(&from_file), piped] {
        let shown = command(&gateway, &["events", "show", "--payload", &text(&receipt, "id")]);
        let shown = { shown }.output().expect("it ends");
        assert_eq!(shown.stdout, bytes);
        let event = gateway.get(&format!("/v1/events/{}", text(&receipt, "id"))).await;
        assert_eq!(event["content_type"], "application/pdf");
    }
    let refused = launch(&gateway, &arguments).and(["--metadata", "a=b"]).run().await;
    assert!(refused.expect_code(2).stderr.contains("--metadata"));
    gateway.stop().await;
}

#[tokio::test]
async fn what_cannot_work_is_said_at_once() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    for (arguments, code, says) in [
        (&["events", "send"][..], 2, "--type"),
        (&["events", "send", "--type", "a b"], 2, "type"),
        (&["events", "send", "--type", "a.b", "--data", "@/none/such"], 2, "/none/such"),
        (&["events", "send", "--type", "a.b", "--batch", "x"], 2, "--batch"),
        (&["events", "send", "--batch", "/none/such"], 2, "/none/such"),
        (&["events", "show", "evt_x"], 2, "evt_0000000000000"),
        (&["events", "show", "evt_0000000000001"], 2, "404"),
        (&["events", "list", "--since", "yesterday"], 2, "2h"),
        (&["deliveries", "show", "dlv_0000000000001"], 2, "404"),
        (&["deliveries", "list", "--state", "gone"], 2, "retrying"),
        (&["deliveries", "list", "--endpoint", "none"], 2, "none"),
        (&["dead", "replay"], 2, "--all"),
        (&["dead", "purge"], 2, "--all"),
        (&["dead", "replay", "--all", "dlv_0000000000001"], 2, "--all"),
        (&["jobs", "show", "job_0000000000001"], 2, "404"),
        (&["jobs", "show", "job_0000000000001", "--follow"], 2, "404"),
    ] {
        let said = launch(&gateway, arguments).run().await.expect_code(code).stderr;
        assert!(said.contains(says), "{arguments:?}: {said}");
        assert!(!said.contains(KEY), "{said}");
    }
    gateway.stop().await;
}
