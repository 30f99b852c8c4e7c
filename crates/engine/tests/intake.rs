//! Producers that ask at the same moment are stored together, and hear each of their own.

#[allow(dead_code, reason = "shared with other tests")]
mod rig;

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use postrider_core::TenantId;
use postrider_engine::{Accepted, Engine, Submission};
use rig::sink::Sink;
use rig::{listen, start, submission};

fn event(kind: &str, body: &str) -> Submission {
    submission(kind, Bytes::copy_from_slice(body.as_bytes()))
}

fn is_new(accepted: &Accepted) -> bool {
    matches!(accepted, Accepted::New { .. })
}

fn commits(engine: &Engine) -> u64 {
    engine.store().vitals().append.sizes.read().counts.iter().sum()
}

#[tokio::test]
async fn they_share_a_commit_and_each_hears_of_its_own() {
    let (engine, _data) = start(64).await;
    let sink = Sink::answering(200).await;
    listen(&engine, &sink, "order").await;
    let before = commits(&engine);
    // Of the first three the second has an event that nobody listens to, and the third has two.
    let asked = (0..40).map(|number| {
        let of = |kind: &str| event(kind, &number.to_string());
        let events = match number % 3 {
            0 => vec![of("order")],
            1 => vec![of("other")],
            _ => vec![of("order"), of("order")],
        };
        engine.accept(TenantId::DEFAULT, events)
    });
    let answers = join_all(asked).await;

    assert_eq!(commits(&engine) - before, 1, "one commit for all of them");
    let mut ids = BTreeSet::new();
    let mut carried = 0;
    for (number, answer) in answers.into_iter().enumerate() {
        let answer = answer.expect("accepted");
        assert_eq!(answer.len(), if number % 3 == 2 { 2 } else { 1 });
        for one in answer {
            let Accepted::New { id, deliveries, .. } = one else { panic!("it was new: {one:?}") };
            assert_eq!(deliveries, u32::from(number % 3 != 1), "of the event of {number}");
            assert!(ids.insert(id), "{id} twice");
            carried += usize::from(deliveries > 0);
        }
    }
    sink.nth(carried).await;
}

#[tokio::test]
async fn one_key_sent_by_many_at_once_is_one_event() {
    let (engine, _data) = start(64).await;
    let asked = (0..10).map(|_| {
        let idempotency_key = Some("the same".to_owned());
        let event = Submission { idempotency_key, ..event("order", "1") };
        engine.accept(TenantId::DEFAULT, vec![event])
    });
    let answers: Vec<Accepted> =
        join_all(asked).await.into_iter().flat_map(|answer| answer.expect("accepted")).collect();

    assert_eq!(answers.iter().filter(|one| is_new(one)).count(), 1);
    let ids: BTreeSet<_> = answers
        .iter()
        .map(|one| match one {
            Accepted::New { id, .. } | Accepted::Duplicate { id, .. } => *id,
            Accepted::Conflict { id } => panic!("{id} has the same content"),
        })
        .collect();
    assert_eq!(ids.len(), 1);
}

#[tokio::test]
async fn what_a_producer_that_went_away_has_left_is_stored_and_carried() {
    let (engine, _data) = start(64).await;
    let sink = Sink::answering(200).await;
    listen(&engine, &sink, "order").await;
    let asked = engine.accept(TenantId::DEFAULT, vec![event("order", "left")]);
    assert!(asked.now_or_never().is_none(), "answered before it was stored");
    assert_eq!(sink.nth(1).await.body_text(), "left");
}
