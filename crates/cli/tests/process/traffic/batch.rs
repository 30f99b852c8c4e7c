//! Files of events: sent a batch at a time, each line with an answer of its own.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::launch;
use crate::gateway::Launch;

#[tokio::test]
async fn the_lines_of_a_file_are_sent_but_those_that_are_refused() {
    let data = tempfile::tempdir().expect("a folder");
    let gateway = Launch::serve(data.path()).start().await;
    // More than one batch, with something wrong in each.
    let mut lines = String::new();
    for number in 1..=2_500 {
        let line = match number {
            7 => "{\"type\":".to_owned(),
            8 => String::new(),
            9 => json!({ "type": "a b", "payload": 1 }).to_string(),
            2_200 => json!({ "type": "load.tick" }).to_string(),
            _ => json!({ "type": "load.tick", "payload": { "number": number } }).to_string(),
        };
        writeln!(lines, "{line}").expect("memory");
    }
    let keyed = json!({ "type": "load.tick", "payload": 1, "idempotency_key": "k" }).to_string();
    write!(lines, "{keyed}\n{keyed}").expect("memory");
    let file = data.path().join("events.ndjson");
    std::fs::write(&file, lines).expect("written");

    let batch = ["events", "send", "--batch", file.to_str().expect("text")];
    let sent = launch(&gateway, &batch).run().await.expect_code(1);
    assert!(
        sent.stderr.contains("2,498 events sent (1 of them known already), 3 refused"),
        "{sent:?}"
    );
    for line in ["line 7: ", "line 9: ", "line 2200: "] {
        assert!(sent.stderr.contains(line), "{line}: {}", sent.stderr);
    }
    let stats = gateway.get("/v1/stats").await;
    assert_eq!(stats["events"], 2_497, "{stats}");

    let small = data.path().join("small.ndjson");
    std::fs::write(&small, format!("{keyed}\nnull\n")).expect("written");
    let batch = ["events", "send", "--json", "--batch", small.to_str().expect("text")];
    let sent = launch(&gateway, &batch).run().await.expect_code(1);
    let results: Vec<Value> = sent
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect();
    // What is refused here is known before the gateway is asked.
    assert_eq!(results.len(), 2, "{results:?}");
    let of = |line: u64| results.iter().find(|result| result["line"] == line).expect("an answer");
    assert_eq!(of(1)["duplicate"], true);
    assert!(of(2)["error"].is_string());
    gateway.stop().await;
}
