//! Lines that end with deliveries unanswered: nothing is lost, and nothing is counted that should
//! not be.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use postrider_core::State;
use postrider_core::hub::Met;
use postrider_engine::WaitReason;
use postrider_engine::notices::NoticeKind;

use crate::gateway::{Gateway, TENANT, delivery_of, event, seconds};
use crate::{Agent, ROOMY, behind, fifo, status};

/// How often a line has to end with a delivery unanswered before that is counted.
const LOSSES: u32 = 10;

#[tokio::test]
async fn what_was_unanswered_goes_again_on_the_next_line_as_if_it_had_never_gone() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    let sent = gateway.send_all(["n.1", "n.2", "n.3"].map(event)).await;
    let mut agent = gateway.connect(hub, ROOMY).await;
    let first = [agent.next().await, agent.next().await, agent.next().await];
    agent.done(&first[1]);
    gateway.delivered(1).await;
    drop(agent);
    for id in [sent[0], sent[2]] {
        let record = gateway.record(delivery_of(id)).await;
        assert_eq!((record.state, record.attempts, record.tries), (State::Pending, 0, 0));
    }
    gateway.clock.advance(seconds(600));
    let mut agent = gateway.connect(hub, ROOMY).await;
    let again = [agent.next().await, agent.next().await];
    for (again, first) in again.iter().zip([&first[0], &first[2]]) {
        assert_eq!((again.delivery, again.attempt), (first.delivery, 1));
        assert_eq!(again.body, first.body);
        let id = |deliver: &postrider_core::hub::Deliver| {
            deliver.headers.iter().find(|(name, _)| name == "webhook-id").cloned()
        };
        assert_eq!(id(again), id(first));
        agent.done(again);
    }
    gateway.delivered(2).await;
    for id in sent {
        let attempts = gateway.attempts(delivery_of(id)).await;
        assert_eq!((attempts.len(), attempts[0].number), (1, 1));
    }
}

#[tokio::test]
async fn what_was_unanswered_waits_for_the_hub_meanwhile() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    let delivery = delivery_of(gateway.send("n.1").await);
    let mut agent = gateway.connect(hub, ROOMY).await;
    agent.next().await;
    assert_eq!(gateway.waits_on(delivery).await, None);
    drop(agent);
    gateway.all_back(hub).await;
    assert_eq!(gateway.waits_on(delivery).await, Some(WaitReason::HubOffline));
    let endpoint = gateway.record(delivery).await.endpoint;
    assert!(!gateway.engine.is_in_flight(endpoint, delivery).await);
}

#[tokio::test]
async fn what_was_sent_but_never_read_goes_again_as_well() {
    let gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    gateway.send_all(["n.1", "n.2"].map(event)).await;
    for _ in 0..3 {
        drop(gateway.connect(hub, ROOMY).await);
    }
    let mut agent = gateway.connect(hub, ROOMY).await;
    let came = [agent.next().await.kind, agent.next().await.kind];
    assert_eq!(came, ["n.1", "n.2"]);
}

#[tokio::test]
async fn an_ordered_endpoint_stays_in_order_however_often_its_line_ends() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(fifo(hub)).await;
    let kinds: Vec<String> = (10..30).map(|number| format!("n.{number}")).collect();
    gateway.send_all(kinds.iter().map(|kind| event(kind))).await;
    let mut random = fastrand::Rng::with_seed(11);
    let mut agent = gateway.connect(hub, ROOMY).await;
    for kind in &kinds {
        loop {
            let deliver = agent.next().await;
            assert_eq!((&deliver.kind, deliver.attempt), (kind, 1));
            if random.u8(0..3) == 0 {
                drop(agent);
                agent = gateway.connect(hub, ROOMY).await;
                continue;
            }
            agent.done(&deliver);
            break;
        }
    }
    gateway.delivered(kinds.len()).await;
}

#[tokio::test]
async fn a_delivery_that_every_line_ends_with_is_a_failure_in_the_end() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    let delivery = delivery_of(gateway.send("n.1").await);
    for attempt in [1, 2] {
        for loss in 1..=LOSSES {
            assert_eq!(gateway.record(delivery).await.attempts, attempt - 1, "{loss}");
            let mut agent = gateway.connect(hub, ROOMY).await;
            assert_eq!(agent.next().await.attempt, attempt, "{loss}");
        }
        gateway.notice(NoticeKind::RetryScheduled).await;
        let record = gateway.record(delivery).await;
        assert_eq!((record.state, record.attempts), (State::Retrying, attempt));
        let error = record.last_error.expect("a reason");
        assert!(error.contains("connection ended"), "{error}");
        gateway.clock.advance(seconds(10));
    }
}

#[tokio::test]
async fn an_answer_in_between_makes_the_next_loss_the_first_again() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    let delivery = delivery_of(gateway.send("n.1").await);
    for attempt in [1, 2] {
        for _ in 1..LOSSES {
            gateway.connect(hub, ROOMY).await.next().await;
        }
        let mut agent = gateway.connect(hub, ROOMY).await;
        let deliver = agent.next().await;
        assert_eq!(deliver.attempt, attempt);
        agent.answer(deliver.seq, Met::Network { error: "refused".into() }).expect("asked");
        gateway.notice(NoticeKind::RetryScheduled).await;
        assert_eq!(gateway.record(delivery).await.last_error.as_deref(), Some("refused"));
        gateway.clock.advance(seconds(10));
    }
}

#[tokio::test]
async fn a_new_connection_takes_over_and_late_answers_to_the_old_one_change_nothing() {
    let mut gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    let delivery = delivery_of(gateway.send("n.1").await);
    let mut old = gateway.connect(hub, ROOMY).await;
    let first = old.next().await;
    let mut new = gateway.connect(hub, ROOMY).await;
    assert_eq!(old.ending().await, postrider_engine::Ending::TakenOver);
    let second = new.next().await;
    assert_eq!((second.delivery, second.attempt, second.seq), (delivery, 1, 1));
    old.answer(first.seq, status(410)).expect("it is simply too late");
    drop(old);
    let view = gateway.engine.hub(TENANT, hub).await.expect("known");
    assert!(view.connection.is_some(), "the new one stays");
    assert_eq!(view.in_flight, 1);
    new.done(&second);
    gateway.delivered(1).await;
    assert_eq!(gateway.attempts(delivery).await.len(), 1);
    gateway.send("n.2").await;
    assert_eq!(new.next().await.kind, "n.2");
}

/// A line that ends while the next one begins must leave the hub connected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_comes_and_goes_at_the_same_time_is_there_in_the_end() {
    const ROUNDS: usize = 5_000;
    let gateway = Gateway::start().await;
    let hub = gateway.hub().await;
    gateway.endpoint(behind(hub)).await;
    let (leave, leaving) = std::sync::mpsc::channel::<Agent>();
    // How many lines are about to be dropped, and how many may be.
    let (ready, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let dropper = std::thread::spawn({
        let (ready, go) = (Arc::clone(&ready), Arc::clone(&go));
        move || {
            for (round, agent) in (1..).zip(leaving) {
                ready.store(round, SeqCst);
                while go.load(SeqCst) < round {
                    std::thread::yield_now();
                }
                drop(agent);
            }
        }
    });
    let mut agent = gateway.connect(hub, ROOMY).await;
    for round in 1..=ROUNDS {
        leave.send(agent).expect("somebody drops it");
        while ready.load(SeqCst) < round {
            std::thread::yield_now();
        }
        go.store(round, SeqCst);
        agent = gateway.connect(hub, if round % 2 == 0 { 1 } else { ROOMY }).await;
    }
    drop(leave);
    dropper.join().expect("no panic");
    gateway.send("n.1").await;
    let deliver = agent.next().await;
    agent.done(&deliver);
    let view = gateway.engine.hub(TENANT, hub).await.expect("known");
    assert!(view.connection.is_some());
}
