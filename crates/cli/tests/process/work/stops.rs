//! How a worker stops, by a signal or two.

use serde_json::json;

use super::{Shop, ended, line_about};

/// Says that it has begun, and ends when it may.
const PATIENT: &str = r#"echo $$ > "$0/begun.$POSTRIDER_DELIVERY_ID"
    while [ ! -e "$0/go" ]; do sleep 0.05; done"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_running_is_finished_before_it_exits() {
    for signal in ["TERM", "INT"] {
        let shop = Shop::strict().await;
        let worker = shop.script(&["--concurrency", "2", "--drain", "1m"], PATIENT);
        let mut ids = Vec::new();
        for number in 0..3 {
            ids.push(shop.send_payload(json!(number)).await);
        }
        for id in &ids[..2] {
            shop.appears(&format!("begun.{id}")).await;
        }
        worker.signal(signal);
        let stopping = worker.stderr.line(|line| line.starts_with("stopping")).await;
        assert!(stopping.is_some_and(|line| line.contains("waiting for 2")));
        std::fs::write(shop.path().join("go"), "").expect("written");
        let finished = worker.finished().await.expect_code(0);
        let last = finished.stderr.lines().last().unwrap_or_default();
        assert_eq!(last, "stopped: 2 done, 0 failed, 0 given back, 0 lapsed");
        for (id, state, attempts) in
            [(&ids[0], "delivered", 1), (&ids[1], "delivered", 1), (&ids[2], "pending", 0)]
        {
            let delivery = shop.delivery(id).await;
            assert_eq!(delivery["state"], state, "{delivery}");
            assert_eq!(delivery["attempts"], attempts, "{delivery}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_or_the_end_of_the_drain_kills_and_gives_back() {
    for (drain, second) in [("1m", Some("TERM")), ("1m", Some("INT")), ("100ms", None)] {
        let shop = Shop::strict().await;
        let worker = shop.script(&["--drain", drain], PATIENT);
        let id = shop.send_payload(json!(1)).await;
        let program = shop.appears(&format!("begun.{id}")).await;
        worker.signal("TERM");
        if let Some(second) = second {
            let stopping = worker.stderr.line(|line| line.starts_with("stopping")).await;
            assert!(stopping.is_some());
            worker.signal(second);
        }
        let finished = worker.finished().await.expect_code(0);
        assert!(finished.stderr.contains("1 given back"), "{}", finished.stderr);
        ended(&program).await;
        let delivery = shop.delivery(&id).await;
        // The endpoint gives up at the first attempt that counts: this was none.
        assert_eq!(delivery["state"], "pending", "{delivery}");
        assert_eq!(delivery["attempts"], 0, "{delivery}");

        std::fs::write(shop.path().join("go"), "").expect("written");
        let worker = shop.script(&[], PATIENT);
        let line = line_about(&worker, &id).await;
        assert!(line.ends_with(": done"), "{line}");
    }
}
