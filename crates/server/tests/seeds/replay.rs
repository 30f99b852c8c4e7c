//! Replaying dead letters: counted first, then one by one at the pace that was asked for, in the
//! order of their events, across a restart.

use serde_json::{Value, json};

use crate::harness::gateway::{Gateway, Sent};
use crate::harness::sink::Sink;
use crate::seconds;

const DEAD: usize = 6;

struct Graveyard {
    gateway: Gateway,
    sink: Sink,
    bystander: Sink,
    endpoint: String,
    dead: Vec<Sent>,
    /// A dead letter of another endpoint.
    stranger: Sent,
}

async fn fill() -> Graveyard {
    let gateway = Gateway::start().await;
    let sink = Sink::answering(500).await;
    let policy = json!({"preset": "router", "max_attempts": 1});
    let fields = json!({"policy": policy, "event_types": ["order.*"]});
    let endpoint = gateway.endpoint(&sink.url(), fields).await;
    let others = Sink::answering(500).await;
    let fields = json!({"policy": policy, "event_types": ["other"]});
    gateway.endpoint(&others.url(), fields).await;
    let bystander = gateway.bystander().await;
    let mut dead = Vec::new();
    for number in 0..DEAD {
        let sent = gateway.send(&format!("{number}")).await;
        gateway.until_state(sent.only(), "dead").await;
        dead.push(sent);
        gateway.advance(seconds(60));
    }
    let stranger = gateway.send_with("stranger", json!({"type": "other"})).await;
    gateway.until_state(stranger.only(), "dead").await;
    sink.answer(200);
    Graveyard { gateway, sink, bystander, endpoint, dead, stranger }
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| format!("\"{number}\"")).collect()
}

#[tokio::test]
async fn a_dry_run_counts_and_changes_nothing() {
    let Graveyard { gateway, sink, bystander, endpoint, dead, .. } = fill().await;
    let ask = async |filter: Value| {
        let body = json!({"filter": filter, "dry_run": true});
        gateway.client.post("/v1/dead-letters/replay", &body).await.expect(200)["matched"].clone()
    };
    assert_eq!(ask(json!({})).await, DEAD + 1);
    assert_eq!(ask(json!({"endpoint": endpoint})).await, DEAD);
    assert_eq!(ask(json!({"endpoint": endpoint, "reason": "expired"})).await, 0);
    assert_eq!(ask(json!({"event": dead[2].event})).await, 1);
    gateway.quiet(&bystander).await;
    assert_eq!(sink.count(), DEAD);
}

#[tokio::test]
async fn a_job_replays_at_its_pace_in_the_order_of_events_and_survives_a_restart() {
    let Graveyard { gateway, sink, bystander, endpoint, dead, stranger } = fill().await;
    let body = json!({"filter": {"endpoint": endpoint}, "rate_per_second": 0.1});
    let job = gateway.client.post("/v1/dead-letters/replay", &body).await.expect(202);
    let job = format!("/v1/jobs/{}", job["job"].as_str().expect("an id"));
    sink.nth(DEAD + 1).await;
    gateway.quiet(&bystander).await;
    assert_eq!(sink.count(), DEAD + 1, "one at once, the next in ten seconds");
    gateway.advance(seconds(9));
    gateway.quiet(&bystander).await;
    assert_eq!(sink.count(), DEAD + 1);
    for done in 2..=3 {
        gateway.advance(seconds(10));
        sink.nth(DEAD + done).await;
    }
    gateway.until_state(dead[2].only(), "delivered").await;
    // How far it has come is on disk.
    let running = gateway.poll(&job, |answer| answer.json()["replayed"] == 3).await.json();
    assert_eq!(running["state"], "running");
    assert_eq!(running["matched"], DEAD);

    let stopped = gateway.stop().await;
    let now = stopped.at;
    let gateway = stopped.start_at(now).await;
    for done in 4..=DEAD {
        sink.nth(DEAD + done).await;
        gateway.advance(seconds(10));
    }
    let finished = gateway.poll(&job, |answer| answer.json()["state"] == "finished").await.json();
    assert_eq!(finished["matched"], DEAD);
    assert_eq!(finished["replayed"], DEAD);
    for sent in &dead {
        let delivered = gateway.until_state(sent.only(), "delivered").await;
        assert_eq!(delivered["attempt_log"].as_array().map(Vec::len), Some(2));
    }
    assert_eq!(sink.bodies()[DEAD..], numbers(0..DEAD), "in order, each once");
    assert_eq!(gateway.delivery(stranger.only()).await["state"], "dead");
}
