//! Producers that ask at the same moment are stored together, and hear each of their own.

#[allow(dead_code, reason = "shared with other tests")]
mod rig;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use postrider_core::TenantId;
use postrider_engine::ports::{SystemClock, SystemEntropy};
use postrider_engine::{Accepted, Engine, Options, Submission};
use postrider_store::Journal;
use postrider_store::sqlite::{self, Sqlite};
use rig::sink::Sink;
use rig::{keyring, listen, start, submission};
use rusqlite::Connection;
use tempfile::TempDir;

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

#[tokio::test]
async fn an_event_that_cannot_be_stored_takes_nobody_along() {
    let data = TempDir::new().expect("a folder");
    let path = data.path().join("postrider.db");
    let open = || Sqlite::open(&path, sqlite::Options::default(), keyring()).expect("a database");
    let store = open();
    store.close().await;
    drop(store);
    let by_hand = Connection::open(&path).expect("a database");
    by_hand
        .execute_batch(
            "CREATE UNIQUE INDEX poison ON events (content_type) WHERE content_type = 'poison'",
        )
        .expect("an index");
    drop(by_hand);
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    let engine = Engine::start(Options::default(), Arc::new(open()), clock, entropy)
        .await
        .expect("the engine starts");

    // The index lets one of them in, and nobody has a key by which another could be its duplicate.
    let asked = (0..9).map(|number| {
        let mut event = event("order", &number.to_string());
        if number % 4 == 0 {
            event.content_type = "poison".into();
        }
        engine.accept(TenantId::DEFAULT, vec![event])
    });
    let answers = join_all(asked).await;
    let stored: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(stored, [true, true, true, true, false, true, true, true, false]);
}
