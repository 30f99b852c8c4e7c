//! A full disk, a locked database, damage, too much at once: nothing is acknowledged that is not
//! stored, and the store goes on by itself.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use postrider_core::DeliveryId;
use postrider_core::delivery::{Next, State};
use postrider_store::Error;
use postrider_store::journal::{Appended, Cutoffs, Journal, Urgency};
use postrider_store::ledger::Ledger;
use postrider_store::record::{Attempt, Response, Settle};
use rusqlite::Connection;

use super::*;

async fn count(store: &Sqlite) -> u64 {
    store.event_count(TenantId::DEFAULT).await.expect("counted")
}

/// An event that no endpoint wanted.
fn unwanted(number: i64, body: &Bytes) -> NewEvent {
    NewEvent { deliveries: Vec::new(), ..event(number, body) }
}

/// Appends until the store refuses; returns the number of the first event it did not take.
async fn fill(store: &Sqlite, body: &Bytes) -> i64 {
    for number in 0..10_000 {
        match store.append(vec![unwanted(number, body)]).await {
            Ok(_) => {}
            Err(Error::Unavailable(_)) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it never fills up")
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers_when_there_is_space() {
    let directory = Directory::new();
    let store = directory.store(Options { max_pages: Some(60), ..Options::default() });
    let body = Bytes::from(vec![b'x'; 4_000]);
    let refused = fill(&store, &body).await;
    assert!(refused > 10);
    assert_eq!(count(&store).await, refused.unsigned_abs(), "what was acknowledged is there");
    let absent = event(refused, &body).event.id;
    assert_eq!(store.event(TenantId::DEFAULT, absent).await.expect("readable"), None);
    let again = store.append(vec![unwanted(refused, &body)]).await;
    assert!(matches!(again, Err(Error::Unavailable(_))), "{again:?}");

    // Retention makes room in the same open database.
    let later = NOW.plus(Duration::from_hours(24));
    let cutoffs = Cutoffs { delivered: later, failed: later, dead: later, events: later };
    let step = store.sweep_retention(cutoffs, EventId::from_i64(0), 10).await.expect("swept");
    assert_eq!(step.events_removed, 10);
    store.append(vec![unwanted(refused, &body)]).await.expect("there is room again");
    let stored = count(&store).await;
    assert_eq!(stored, refused.unsigned_abs() - 10 + 1);
    store.close().await;

    let store = directory.store(Options::default());
    assert_eq!(count(&store).await, stored);
    store.append(vec![event(20_000, &body)]).await.expect("with more disk it goes on");
}

/// A writer that outlasts any lock of these tests.
fn patient() -> Options {
    Options { busy_timeout: Duration::from_mins(10), ..Options::default() }
}

/// Another program that holds the database's write lock.
fn lock(directory: &Directory) -> Connection {
    let other = Connection::open(directory.path()).expect("opened");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    other
}

#[tokio::test]
async fn a_locked_database_refuses_and_recovers_when_it_is_free() {
    let directory = Directory::new();
    let options = Options { busy_timeout: Duration::from_millis(20), ..Options::default() };
    let store = directory.store(options);
    store.append(vec![event(1, &Bytes::new())]).await.expect("stored");
    let other = lock(&directory);
    for number in 2..5 {
        let refused = store.append(vec![event(number, &Bytes::new())]).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    }
    assert_eq!(count(&store).await, 1, "readers go on");
    drop(other);
    store.append(vec![event(2, &Bytes::new())]).await.expect("stored");
    assert_eq!(count(&store).await, 2);
}

#[tokio::test]
async fn a_bad_command_does_not_harm_those_it_shares_a_commit_with() {
    let directory = Directory::new();
    let store = directory.store(patient());
    let append = |number| store.append(vec![event(number, &Bytes::new())]);
    append(1).await.expect("stored");
    // While the writer is held up, the commands gather into one transaction.
    let other = lock(&directory);
    let (first, bad, second, ()) =
        tokio::join!(append(2), append(1), append(3), async { drop(other) });
    assert!(matches!(first.as_deref(), Ok([Appended::New { .. }])), "{first:?}");
    assert!(matches!(bad, Err(Error::Exists(_))), "{bad:?}");
    assert!(matches!(second.as_deref(), Ok([Appended::New { .. }])), "{second:?}");
    assert_eq!(count(&store).await, 3);
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Vec<Appended>, Error>> + Send + 'a>>;

/// Asks for appends without waiting for any, until the store will take no more.
fn flood<'a>(store: &'a Sqlite, body: &Bytes) -> Vec<Answer<'a>> {
    let mut waiting = Vec::new();
    for number in 0..20_000 {
        let mut answer: Answer<'a> = store.append(vec![event(number, body)]);
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => waiting.push(answer),
            Poll::Ready(Err(Error::Overloaded)) => return waiting,
            Poll::Ready(other) => panic!("{other:?}"),
        }
    }
    panic!("the queue has no bound")
}

#[tokio::test]
async fn what_waits_is_bounded_by_number_and_by_size() {
    for (body, fewest, most) in [(Bytes::new(), 8_000, 10_000), (vec![0; 1 << 20].into(), 100, 200)]
    {
        let directory = Directory::new();
        let store = directory.store(patient());
        let other = lock(&directory);
        let waiting = flood(&store, &body);
        let taken = waiting.len();
        assert!((fewest..most).contains(&taken), "{taken} wait");
        drop(other);
        for answer in waiting {
            answer.await.expect("what was taken on is done");
        }
        assert_eq!(count(&store).await, taken as u64);
        store.append(vec![event(30_000, &body)]).await.expect("there is room again");
    }
}

pub(super) fn success(id: DeliveryId) -> Settle {
    Settle {
        id,
        endpoint: ENDPOINT,
        fence: 0,
        in_line: false,
        from: State::Pending,
        next: Next {
            state: State::Delivered,
            attempts: 1,
            deferrals: 0,
            born: NOW,
            due: None,
            reason: None,
            class: None,
            counted: true,
            hold_endpoint_until: None,
            disable_endpoint: false,
        },
        at: NOW,
        attempt: Some(Attempt {
            number: 1,
            counted: true,
            started_at: NOW,
            duration: Duration::ZERO,
            status: Some(200),
            class: None,
            error: None,
            response: Some(Response { body: Bytes::from_static(b"ok"), ..Response::default() }),
        }),
        lease: None,
        result: None,
        tenure: None,
    }
}

#[tokio::test]
async fn damaged_rows_are_said_to_be_damaged() {
    let directory = Directory::new();
    let store = directory.store(Options::default());
    let id = event(1, &Bytes::new()).delivery_id(0);
    store.append(vec![event(1, &Bytes::new()), event(2, &Bytes::new())]).await.expect("stored");
    store.settle(vec![success(id)], Urgency::Now).await.expect("settled");
    assert_eq!(store.attempts(id).await.expect("readable").len(), 1);

    let other = Connection::open(directory.path()).expect("opened");
    let by_hand = |sql: &str| other.execute(sql, (id.as_i64(),)).expect("changed");
    by_hand("UPDATE deliveries SET response = X'01ff' WHERE id = ?1");
    let attempts = store.attempts(id).await;
    assert!(matches!(attempts, Err(Error::Damaged(_))), "{attempts:?}");
    by_hand("UPDATE deliveries SET state = 77 WHERE id = ?1");
    let record = store.delivery(TenantId::DEFAULT, id).await;
    assert!(matches!(record, Err(Error::Damaged(_))), "{record:?}");
    by_hand("DELETE FROM events WHERE id > ?1");
    let second = event(2, &Bytes::new()).delivery_id(0);
    let waiting = store.waiting(second).await;
    assert!(matches!(waiting, Err(Error::Damaged(_))), "{waiting:?}");
    store.append(vec![event(3, &Bytes::new())]).await.expect("the rest goes on");
}
