//! `postrider bench`: load on a running gateway, figures, and nothing left behind.

use serde_json::Value;

use crate::gateway::{Gateway, KEY, Launch};

fn bench(gateway: &Gateway) -> Launch {
    Launch::with(["bench", "--gateway", &format!("http://{}", gateway.address)])
        .variable("POSTRIDER_KEY", KEY)
}

async fn assert_nothing_is_left(gateway: &Gateway) {
    let endpoints = gateway.get("/v1/endpoints").await;
    assert_eq!(endpoints["data"].as_array().map(Vec::len), Some(0), "{endpoints}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_arrives_and_is_measured() {
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Launch::serve(directory.path()).start().await;
    let paced = ["--rate", "100", "--seconds", "2", "--receive", "127.0.0.1:0", "--json"];
    let done = bench(&gateway).and(paced).run().await.expect_code(0);
    let told: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let accepted = told["accepted"].as_u64().expect("a number");
    assert!((1..=200).contains(&accepted), "{told}");
    assert_eq!(told["delivered"]["arrived"], accepted, "{told}");
    assert_eq!(told["deliveries"], accepted, "{told}");
    for latency in ["/accept_latency_ms/p50", "/accept_latency_ms/p99", "/delivered/latency_ms/p95"]
    {
        assert!(told.pointer(latency).is_some_and(Value::is_number), "{latency}: {told}");
    }
    assert_nothing_is_left(&gateway).await;

    let all = ["--max", "--seconds", "1", "--connections", "4", "--size", "2000"];
    let done = bench(&gateway).and(all).run().await.expect_code(0);
    for part in ["accepted ", "p50 ", "share a machine"] {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
    assert!(!done.stdout.contains("delivered"), "{}", done.stdout);
    let events = gateway.get("/v1/stats").await["events"].as_u64().expect("a number");
    assert!(events > accepted, "{events}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_ends_it_early_is_told_what_was_measured() {
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Launch::serve(directory.path()).start().await;
    for signal in ["INT", "TERM"] {
        let long = ["--max", "--connections", "2", "--seconds", "600", "--receive", "127.0.0.1:0"];
        let running = bench(&gateway).and(long).spawn();
        let under_way =
            |line: &str| line.starts_with("sending:") && !line.starts_with("sending: 0 ");
        assert!(running.stderr.line(under_way).await.is_some(), "{}", running.stderr.text());
        running.signal(signal);
        let done = running.finished().await.expect_code(0);
        for part in ["Ended early", "accepted ", "delivered "] {
            assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
        }
        assert_nothing_is_left(&gateway).await;
    }
}

#[tokio::test]
async fn what_the_gateway_refuses_is_told_with_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let strict = Launch::with(["serve", "--listen", "127.0.0.1:0"]).with_data(directory.path());
    let gateway = strict.variable("POSTRIDER_ADMIN_KEY", KEY).start().await;
    let receiving = bench(&gateway).and(["--max", "--receive", "127.0.0.1:0"]);
    let refused = receiving.run().await.expect_code(2);
    assert!(refused.stderr.contains("--allow-destination"), "{}", refused.stderr);
    assert_nothing_is_left(&gateway).await;
    let stranger = bench(&gateway).and(["--max"]).variable("POSTRIDER_KEY", "pr_not_this_one");
    let refused = stranger.run().await.expect_code(2);
    assert!(refused.stderr.contains("401"), "{}", refused.stderr);
    bench(&gateway).run().await.expect_code(2);
    bench(&gateway).and(["--max", "--rate", "5"]).run().await.expect_code(2);
    let address = gateway.address;
    gateway.stop().await;
    let gone = format!("http://{address}");
    let away = Launch::with(["bench", "--gateway", &gone, "--rate", "5", "--seconds", "1"]);
    let away = away.variable("POSTRIDER_KEY", KEY).run().await.expect_code(1);
    assert!(away.stdout.contains("no answer"), "{}", away.stdout);
}
