//! What a lease costs the file.

use postrider_core::delivery::{Next, State};
use postrider_store::Ledger as _;
use postrider_store::journal::{Journal, Urgency};
use postrider_store::record::{LeaseIs, Settle, Settled};
use rusqlite::Connection;

use super::trouble::success;
use super::*;

#[tokio::test]
async fn an_answer_to_the_first_lease_needs_no_row_of_its_own() {
    let directory = Directory::new();
    let store = directory.store(Options::default());
    let new = event(1, &Bytes::from_static(b"{}"));
    let ack = success(new.delivery_id(0));
    store.append(vec![new]).await.expect("stored");
    let until = NOW.plus(std::time::Duration::from_secs(30));
    let held = Next { state: State::InFlight, attempts: 0, due: Some(until), ..ack.next };
    let lease = Settle { next: held, attempt: None, ..ack.clone() };
    let ack = Settle {
        fence: 1,
        from: State::InFlight,
        lease: Some(LeaseIs::Live),
        result: Some("passed".to_owned()),
        ..ack
    };
    for settle in [lease, ack.clone()] {
        let settled = store.settle(vec![settle], Urgency::Now).await.expect("answered");
        assert!(matches!(settled[..], [Settled::Applied { .. }]), "{settled:?}");
    }
    let attempts = store.attempts(ack.id).await.expect("readable");
    assert_eq!(Some(&attempts[..]), ack.attempt.as_ref().map(std::slice::from_ref));
    store.close().await;

    let plain = Connection::open(directory.path()).expect("opened");
    let count = |sql: &str| -> i64 { plain.query_row(sql, (), |row| row.get(0)).expect(sql) };
    assert_eq!(count("SELECT count(*) FROM attempts"), 0);
    assert_eq!(count("SELECT count(*) FROM deliveries WHERE result = 'passed'"), 1);
}
