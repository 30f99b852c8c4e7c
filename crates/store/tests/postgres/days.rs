//! History by the day: large days are dropped whole, and nothing that is still wanted goes with them.

use postrider_core::DeliveryId;
use postrider_core::delivery::{Next, Reason, State};
use postrider_core::outcome::Class;
use postrider_store::journal::{Appended, Cutoffs, Urgency};
use postrider_store::ledger::Ledger as _;
use postrider_store::record::{Attempt, DeliveryRecord, Settle, Settled};

use super::*;

const DAY: Duration = Duration::from_hours(24);

/// The parts of the first day of these tests.
const PARTS: &str = "SELECT count(*) FROM pg_tables WHERE schemaname = 'postrider' \
     AND tablename IN ('events_20260101', 'finished_20260101', 'attempts_20260101')";

async fn end(store: &Postgres, record: &DeliveryRecord, state: State, at: Timestamp) {
    let failed = state != State::Delivered;
    let settle = Settle {
        id: record.id,
        endpoint: record.endpoint,
        fence: record.fence,
        in_line: false,
        from: record.state,
        next: Next {
            state,
            attempts: 1,
            deferrals: 0,
            born: record.born,
            due: None,
            reason: (state == State::Dead).then_some(Reason::Exhausted),
            class: failed.then_some(Class::Retryable),
            counted: true,
            hold_endpoint_until: None,
            disable_endpoint: false,
        },
        at,
        attempt: Some(Attempt {
            number: 1,
            counted: true,
            started_at: at,
            duration: Duration::ZERO,
            status: Some(if failed { 500 } else { 200 }),
            class: failed.then_some(Class::Retryable),
            error: failed.then(|| "no".to_owned()),
            response: None,
        }),
        lease: None,
        result: None,
        tenure: None,
    };
    let settled = store.settle(vec![settle], Urgency::Now).await.expect("settled");
    assert!(matches!(settled[..], [Settled::Applied { .. }]));
}

async fn sweep(store: &Postgres, now: Timestamp) -> (u64, u64) {
    let (week, fortnight) = (now.minus(7 * DAY), now.minus(14 * DAY));
    let cutoffs = Cutoffs { delivered: week, failed: week, dead: fortnight, events: week };
    let (mut after, mut removed) = (EventId::from_i64(0), (0, 0));
    loop {
        let step = store.sweep_retention(cutoffs, after, 100).await.expect("swept");
        removed = (removed.0 + step.deliveries_removed, removed.1 + step.events_removed);
        match step.next {
            Some(next) => after = next,
            None => return removed,
        }
    }
}

async fn record(store: &Postgres, id: DeliveryId) -> Option<DeliveryRecord> {
    store.delivery(TenantId::DEFAULT, id).await.expect("readable")
}

fn keyed(number: i64) -> NewEvent {
    let mut new = event(number, &Bytes::from_static(b"{}"));
    Arc::make_mut(&mut new.event).idempotency_key = Some(format!("k{number}"));
    new
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_day_is_dropped_and_what_is_wanted_of_it_is_kept() {
    let database = Database::new();
    let store = database.store(Options { drop_from_bytes: 0, ..few() }).await;
    let all: Vec<NewEvent> = (0..20).map(keyed).collect();
    store.append(all.clone()).await.expect("stored");
    let id = |number: usize| all[number].delivery_id(0);
    for number in 0..20 {
        let record = record(&store, id(number)).await.expect("there");
        match number {
            0 => {}
            1 => end(&store, &record, State::Dead, NOW).await,
            _ => end(&store, &record, State::Delivered, NOW).await,
        }
    }
    // Something of the day is made again later, and so keeps its event.
    let replay = DeliveryId::from_i64(DeliveryId::floor(NOW.plus(3 * DAY)).as_i64());
    let again = vec![NewDelivery { endpoint: ENDPOINT, line: None }];
    let made = store.append_deliveries(all[2].event.id, replay, again, NOW.plus(3 * DAY), None);
    assert_eq!(made.await.expect("stored").len(), 1);

    // Before a whole day has passed its time nothing of it goes, however late the hour.
    assert_eq!(sweep(&store, NOW.plus(8 * DAY).minus(DAY / 24)).await, (0, 0));
    assert_eq!(database.sql(PARTS), "3");
    assert_eq!(sweep(&store, NOW.plus(8 * DAY)).await, (18, 17));
    assert_eq!(database.sql(PARTS), "0");

    assert_eq!(record(&store, id(0)).await.expect("it waits").state, State::Pending);
    assert_eq!(record(&store, id(1)).await.expect("it is dead").state, State::Dead);
    assert_eq!(store.attempts(id(1)).await.expect("readable").len(), 1);
    for (number, new) in all.iter().enumerate() {
        let kept = store.event(TenantId::DEFAULT, new.event.id).await.expect("readable");
        assert_eq!(kept.as_ref(), (number < 3).then_some(&*new.event), "{number}");
        assert_eq!(record(&store, id(number)).await.is_some(), number < 2, "{number}");
    }
    assert_eq!(store.event_count(TenantId::DEFAULT).await.expect("counted"), 3);
    let counts = store.counts(TenantId::DEFAULT).await.expect("counted");
    let counts: Vec<_> = counts.iter().map(|count| (count.state, count.deliveries)).collect();
    assert_eq!(counts, [(State::Pending, 2), (State::Dead, 1)]);

    // Keys went with their events, and those of what was kept are still taken.
    let mut later = [keyed(1), keyed(9)];
    for (number, new) in (1_000..).zip(&mut later) {
        Arc::make_mut(&mut new.event).id = event(number, &Bytes::new()).event.id;
    }
    let appended = store.append(later.to_vec()).await.expect("answered");
    assert!(matches!(appended[..], [Appended::Duplicate { .. }, Appended::New { .. }]));

    // What was kept goes on: it can be delivered, and goes when its own time comes.
    let waits = record(&store, id(0)).await.expect("it waits");
    end(&store, &waits, State::Delivered, NOW.plus(8 * DAY)).await;
    assert_eq!(sweep(&store, NOW.plus(16 * DAY)).await, (2, 2));
    store.close().await;
}

#[tokio::test]
async fn the_coming_days_have_parts_of_their_own() {
    let database = Database::bare();
    database.store(few()).await.close().await;
    let tomorrow = database.sql(
        "SELECT count(*) FROM pg_tables WHERE schemaname = 'postrider' AND tablename = \
         'finished_' || to_char((now() + interval '1 day') AT TIME ZONE 'UTC', 'YYYYMMDD')",
    );
    assert_eq!(tomorrow, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_passes_through_leaves_no_space_behind() {
    const BACKLOG: i64 = 2_000;
    const ROUNDS: i64 = 15;
    let database = Database::new();
    let store = database.store(few()).await;
    let append = async |round: i64| {
        let numbers = round * BACKLOG..(round + 1) * BACKLOG;
        let events: Vec<_> = numbers.map(|number| event(number, &Bytes::new())).collect();
        store.append(events.clone()).await.expect("stored");
        events
    };
    let size = "SELECT pg_total_relation_size('postrider.unfinished')";
    let mut waiting = append(0).await;
    let first: u64 = database.sql(size).parse().expect("a size");
    for round in 1..ROUNDS {
        let next = append(round).await;
        let settles = waiting.iter().map(|new| trouble::success(new.delivery_id(0))).collect();
        store.settle(settles, Urgency::Now).await.expect("settled");
        waiting = next;
    }
    store.close().await;
    let last: u64 = database.sql(size).parse().expect("a size");
    // Two backlogs wait at the same time for a moment, and a vacuum comes after four of them.
    assert!(last < 8 * first, "from {first} to {last} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_that_were_made_for_an_empty_table_do_for_a_full_one() {
    const MANY: i64 = 50_000;
    let database = Database::new();
    database.sql("VACUUM ANALYZE");
    let store = database.store(Options { writers: 1, ..few() }).await;
    let ask = async |number: i64| {
        let new = event(number, &Bytes::new());
        let id = new.delivery_id(0);
        store.append(vec![new]).await.expect("stored");
        assert!(store.waiting(id).await.expect("readable").is_some());
        assert!(store.leased(vec![id]).await.expect("readable").is_empty());
        assert!(record(&store, id).await.is_some());
        assert_eq!(store.next_due(ENDPOINT).await.expect("known"), None);
        store.settle(vec![trouble::success(id)], Urgency::Now).await.expect("settled");
    };
    // The tables are as empty as they can be.
    let nothing = vec![trouble::success(DeliveryId::from_i64(5))];
    store.settle(nothing, Urgency::Now).await.expect("answered");
    ask(0).await;
    let first = EventId::floor(NOW).as_i64() + 2;
    database.sql(&format!(
        "SET search_path = postrider; \
         INSERT INTO events (id, tenant_id, received_at, deliveries, kind, content_type, body) \
             SELECT {first} + 2 * n, 1, 0, 1, 'a', 'b', '' FROM generate_series(1, {MANY}) n; \
         INSERT INTO unfinished (id, tenant_id, event_id, endpoint_id, born, at, attempts, \
             deferrals, tries, fence, state, place, replay) \
             SELECT {first} + 1 + 2 * n, 1, {first} + 2 * n, 99, 0, 0, 0, 0, 0, 0, 0, 1, false \
             FROM generate_series(1, {MANY}) n"
    ));
    let read = "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_user_tables \
         WHERE relname ~ '^(unfinished|events|finished)'";
    database.sql("SELECT pg_stat_reset()");
    for number in 1..20 {
        ask(10 * MANY + number).await;
    }
    // The connections tell what they read when they end.
    store.close().await;
    let read: i64 = database.sql(read).parse().expect("a number");
    assert!(read < MANY / 10, "{read} rows were read");
}
