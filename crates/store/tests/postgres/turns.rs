//! Nodes that give out ids at the same time do not agree on their order: in a line whoever was stored
//! first goes first.

use postrider_core::DeliveryId;
use postrider_core::delivery::{Next, State};
use postrider_store::journal::{Appended, Urgency};
use postrider_store::ledger::Ledger as _;
use postrider_store::record::{DeliveryRecord, Settle, Settled};

use super::*;
use crate::trouble::success;

const LINE: &str = "a line";

/// The `number`-th event, with a delivery in the line and one outside.
fn in_line(number: i64) -> NewEvent {
    let mut new = event(number * 10, &Bytes::new());
    let line = Some(LINE.to_owned());
    new.deliveries.insert(0, NewDelivery { endpoint: ENDPOINT, line });
    new
}

fn delivery(number: i64) -> DeliveryId {
    in_line(number).delivery_id(0)
}

/// Stores the events in one call; tells which of them stand behind another.
async fn append(store: &Postgres, numbers: &[i64]) -> Vec<bool> {
    let events = numbers.iter().map(|number| in_line(*number)).collect();
    let appended = store.append(events).await.expect("stored");
    let behind = |appended: &Appended| match appended {
        Appended::New { parked } => parked == &[0],
        Appended::Duplicate { .. } | Appended::Conflict { .. } => panic!("{appended:?}"),
    };
    appended.iter().map(behind).collect()
}

async fn record(store: &Postgres, id: DeliveryId) -> DeliveryRecord {
    store.delivery(TenantId::DEFAULT, id).await.expect("readable").expect("present")
}

/// Ends the head of the line; returns the next one.
async fn end(store: &Postgres, id: DeliveryId) -> Option<DeliveryId> {
    let record = record(store, id).await;
    assert!(!record.parked, "{id} is no head");
    let mut settle = success(id);
    (settle.in_line, settle.fence, settle.from) = (true, record.fence, record.state);
    let number = record.tries + 1;
    settle.attempt.iter_mut().for_each(|attempt| attempt.number = number);
    match &store.settle(vec![settle], Urgency::Now).await.expect("settled")[..] {
        [Settled::Applied { promoted }] => promoted.as_ref().map(|waiting| waiting.id),
        other => panic!("{other:?}"),
    }
}

async fn reset(store: &Postgres, id: DeliveryId) {
    let record = record(store, id).await;
    let settled = success(id);
    let settle = Settle {
        fence: record.fence,
        in_line: true,
        from: record.state,
        next: Next { state: State::Pending, attempts: 0, due: Some(NOW), ..settled.next },
        attempt: None,
        ..settled
    };
    let settled = store.settle(vec![settle], Urgency::Now).await.expect("settled");
    assert!(matches!(settled[..], [Settled::Applied { .. }]), "{settled:?}");
}

/// Ends one after the other, from `head` on; returns them in that order.
async fn run_down(store: &Postgres, head: DeliveryId) -> Vec<DeliveryId> {
    let (mut order, mut next) = (Vec::new(), Some(head));
    while let Some(head) = next {
        order.push(head);
        next = end(store, head).await;
    }
    order
}

#[tokio::test]
async fn whoever_is_stored_first_in_a_line_goes_first() {
    let database = Database::new();
    let store = database.store(few()).await;
    assert_eq!(append(&store, &[50]).await, [false]);
    assert_eq!(append(&store, &[20]).await, [true], "its id is lower, but it came later");
    assert_eq!(append(&store, &[60, 30, 40, 35]).await, [true; 4], "so it is within one call");
    assert_eq!(append(&store, &[45]).await, [true]);
    assert_eq!(append(&store, &[70]).await, [true]);
    let ahead = store.ahead_of(delivery(20)).await.expect("readable");
    assert_eq!(ahead.map(|record| record.id), Some(delivery(50)));
    let turns = "SELECT count(*) FROM postrider.unfinished WHERE (line IS NULL) <> (turn IS NULL)";
    assert_eq!(database.sql(turns), "0");
    let expected = [50, 20, 60, 30, 40, 35, 45, 70].map(delivery);
    assert_eq!(run_down(&store, delivery(50)).await, expected);
    assert_eq!(append(&store, &[10]).await, [false], "the line was empty");
    store.close().await;
}

#[tokio::test]
async fn a_line_is_as_it_was_stored_whatever_its_head_waits_for() {
    let database = Database::new();
    let store = database.store(few()).await;
    // The head alone has the last turn: ready, leased, waiting for its time.
    for (round, place) in [1, 4, 2].into_iter().enumerate() {
        let first = 100 * i64::try_from(round + 1).expect("small");
        assert_eq!(append(&store, &[first + 50]).await, [false]);
        database.sql(&format!(
            "UPDATE postrider.unfinished SET place = {place} WHERE line IS NOT NULL"
        ));
        assert_eq!(append(&store, &[first + 20]).await, [true], "{place}");
        assert_eq!(append(&store, &[first + 10, first + 30]).await, [true; 2]);
        let expected = [50, 20, 10, 30].map(|number| delivery(first + number));
        assert_eq!(run_down(&store, delivery(first + 50)).await, expected, "{place}");
    }
    store.close().await;
}

#[tokio::test]
async fn what_comes_back_into_a_line_goes_by_its_event() {
    let database = Database::new();
    let store = database.store(few()).await;
    append(&store, &[50]).await;
    append(&store, &[20]).await;
    append(&store, &[60]).await;
    append(&store, &[55]).await;
    assert_eq!(end(&store, delivery(50)).await, Some(delivery(20)));
    assert_eq!(end(&store, delivery(20)).await, Some(delivery(60)));
    reset(&store, delivery(50)).await;
    reset(&store, delivery(20)).await;
    let replay = DeliveryId::from_i64(delivery(90).as_i64());
    let again = vec![NewDelivery { endpoint: ENDPOINT, line: Some(LINE.to_owned()) }];
    let of = in_line(20).event.id;
    let made = store.append_deliveries(of, replay, again, NOW, None).await.expect("stored");
    assert!(made.is_empty(), "it may not be tried yet");
    assert_eq!(append(&store, &[5]).await, [true]);
    let expected = [delivery(60), delivery(20), replay, delivery(50), delivery(55), delivery(5)];
    assert_eq!(run_down(&store, delivery(60)).await, expected);
    store.close().await;
}

/// What the server reads to find the end of a line does not grow with it.
#[tokio::test]
async fn the_end_of_a_long_line_is_found_at_once() {
    let database = Database::new();
    let store = database.store(Options { writers: 1, ..few() }).await;
    append(&store, &[50]).await;
    // Whatever is planned is planned by now. Others of the endpoint are ready, late and leased.
    database.sql(
        "SET search_path = postrider; INSERT INTO unfinished (id, tenant_id, event_id, \
         endpoint_id, born, at, attempts, deferrals, tries, fence, state, place, replay, line, turn) \
         SELECT n, 1, n, 7, 0, 0, 0, 0, 0, 0, 0, CASE n % 5 WHEN 0 THEN 1 WHEN 1 THEN 2 \
             WHEN 2 THEN 4 ELSE 3 END, false, CASE WHEN n % 5 > 2 THEN 'a line' ELSE n::text END, n \
             FROM generate_series(1, 50000) n",
    );
    // How often the index of lines was looked into, and how much was read of all of them.
    let used = || -> (i64, i64) {
        let used = database.sql(
            "SELECT sum(idx_scan) FILTER (WHERE indexrelname = 'unfinished_line') || ' ' || \
             sum(idx_tup_read) FROM pg_stat_all_indexes WHERE relname = 'unfinished'",
        );
        let (scans, read) = used.split_once(' ').expect("two numbers");
        (scans.parse().expect("a number"), read.parse().expect("a number"))
    };
    let before = used();
    for number in 60..80 {
        append(&store, &[number]).await;
    }
    store.close().await;
    // A connection that has ended tells what it did a moment later.
    for _ in 0..500 {
        if used().0 >= before.0 + 20 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let after = used();
    assert!(after.0 >= before.0 + 20, "the index of lines is not used");
    assert!(after.1 < before.1 + 1_000, "{} entries were read", after.1 - before.1);
}
