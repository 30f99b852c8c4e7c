//! A whole store moves from a file to a database: everything, once, however often it is interrupted,
//! and nothing else is touched.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use postrider_core::DeliveryId;
use postrider_core::delivery::State;
use postrider_store::audit::{Actor, Audit, AuditQuery};
use postrider_store::copy::{self, Error, Found, Phase, Progress};
use postrider_store::journal::{Appended, Urgency};
use postrider_store::ledger::{DeliveryQuery, EventQuery, Ledger as _};
use postrider_store::postgres::{OpenError, Target};
use postrider_store::record::{DeliveryRecord, Settled};
use postrider_store::registry::Registry as _;
use postrider_store::sessions::Sessions as _;
use postrider_store::sqlite::{self, Origin};
use tempfile::TempDir;

use super::*;

mod answers;
mod filled;

use answers::assert_same;
use filled::{A, Hand, L, TENANTS, Turn, fill, open};

/// Later than anything that happened in the filled store, and when much of it is due.
const LATER: Timestamp = Timestamp::from_millis(1_767_225_600_000 + 10 * 86_400_000);

/// Chunks so small that every table of some size takes several.
const SMALL: copy::Options = copy::Options { chunk_rows: 7, chunk_bytes: 4 << 10 };

/// A filled store in a folder of its own.
struct File {
    _folder: TempDir,
    path: PathBuf,
}

impl File {
    /// One of the content that was made once for all tests.
    fn filled() -> Self {
        static FILLED: LazyLock<Vec<u8>> =
            LazyLock::new(|| fs::read(File::filled_anew(1).path).expect("readable"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("postrider.db");
        fs::write(&path, &*FILLED).expect("written");
        Self { _folder: folder, path }
    }

    /// One that is called `name`.
    fn filled_anew(name: u8) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("postrider.db");
        let fill = {
            let path = path.clone();
            move || {
                let runtime = tokio::runtime::Runtime::new().expect("a runtime");
                runtime.block_on(fill(&path, name));
            }
        };
        // The tests have runtimes of their own, which must not wait for another.
        std::thread::spawn(fill).join().expect("filled");
        Self { _folder: folder, path }
    }

    fn origin(&self) -> Origin {
        self.try_origin().expect("it opens")
    }

    fn try_origin(&self) -> Result<Origin, postrider_store::Error> {
        Origin::open(&self.path, sqlite::Options::default(), |_| Ok(keyring()))
    }
}

async fn target(database: &Database) -> Target {
    Target::connect(&database.url, few()).await.expect("it connects")
}

/// Copies until `stop` says so; the error is why it ended early.
async fn copy_until(
    file: &File,
    database: &Database,
    mut stop: impl FnMut(&Progress) -> bool,
) -> Result<(), Error> {
    let progress = |now: Progress| {
        if stop(&now) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    copy::copy(file.origin(), target(database).await, SMALL, progress).await
}

async fn copy_all(file: &File, database: &Database) -> Result<(), Error> {
    copy_until(file, database, |_| false).await
}

/// Copies one chunk.
async fn copy_one_chunk(file: &File, database: &Database) {
    let interrupted = copy_until(file, database, |_| true).await;
    assert!(matches!(interrupted, Err(Error::Interrupted)), "{interrupted:?}");
}

/// Copies everything, but compares nothing.
async fn copy_rows(file: &File, database: &Database) {
    let interrupted =
        copy_until(file, database, |progress| progress.phase == Phase::Checking).await;
    assert!(matches!(interrupted, Err(Error::Interrupted)), "{interrupted:?}");
}

/// What somebody else sees of the database: every row but those of nodes.
fn content(database: &Database) -> String {
    let tables = [
        "tenants",
        "keys",
        "endpoints",
        "sources",
        "hubs",
        "jobs",
        "audit",
        "events",
        "unfinished",
        "finished",
        "attempts",
        "idempotency",
        "measures",
        "meta",
        "delivery_counts",
        "event_counts",
        "migrations",
    ];
    let each = tables.map(|table| {
        format!(
            "SELECT '{table}' || md5(coalesce(string_agg(t::text, '' ORDER BY t::text), '')) \
                 FROM postrider.{table} t"
        )
    });
    database.sql(&each.join(" UNION ALL "))
}

async fn assert_refused(database: &Database) {
    let refused = Postgres::connect(&database.url, few(), keyring()).await;
    let refused = refused.expect_err("an unfinished copy is used by nobody");
    assert!(matches!(refused, OpenError::Refused(_)), "{refused}");
    let said = refused.to_string();
    assert!(said.contains("unfinished copy") && said.contains("postrider copy"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_copied_answers_as_before() {
    let file = File::filled();
    // One without tables, one that has them, and one that has not all of them.
    for database in [Database::bare(), Database::new(), schema::second_version()] {
        let mut seen = Vec::new();
        let copied = copy_until(&file, &database, |progress| {
            seen.push(*progress);
            false
        });
        copied.await.expect("copied");
        let (origin, copy) = (open(&file.path), database.store(few()).await);
        assert_same(&origin, &copy, LATER).await;
        let session = [filled::SESSION; 32];
        assert!(origin.session(session).await.expect("read").is_some());
        assert_eq!(copy.session(session).await.expect("read"), None, "sessions stay behind");
        origin.close().await;
        copy.close().await;
        assert_told(&seen);
        let other = database.sql(
            "SELECT (SELECT count(*) FROM postrider.events_other) \
                 + (SELECT count(*) FROM postrider.finished_other) \
                 + (SELECT count(*) FROM postrider.attempts_other)",
        );
        assert_eq!(other, "0", "every day has a part of its own");
    }
}

/// What was told on the way grows to the whole, in both phases.
fn assert_told(seen: &[Progress]) {
    for phase in [Phase::Copying, Phase::Checking] {
        let told: Vec<&Progress> = seen.iter().filter(|progress| progress.phase == phase).collect();
        let last = told.last().expect("something");
        assert_eq!((last.all_rows, last.rows), (last.of_all, last.of), "{phase:?}");
        assert!(told.is_sorted_by_key(|progress| progress.all_rows), "{phase:?}");
        let of_table = |table| told.iter().filter(move |progress| progress.table == table);
        let sum: u64 = [
            "tenants",
            "keys",
            "endpoints",
            "sources",
            "hubs",
            "declarations",
            "jobs",
            "audit",
            "events",
            "idempotency",
            "unfinished",
            "finished",
            "attempts",
            "measures",
        ]
        .into_iter()
        .map(|table| of_table(table).map(|progress| progress.rows).max().unwrap_or(0))
        .sum();
        assert_eq!(sum, last.of_all, "{phase:?}");
    }
    let bytes = seen.iter().map(|progress| progress.bytes).max();
    assert!(bytes > Some(70_000), "{bytes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_copied_goes_on() {
    let file = File::filled();
    let database = Database::bare();
    copy_all(&file, &database).await.expect("copied");
    let store = database.store(few()).await;
    let mut hand = Hand::on(&store, LATER).await;

    // A key that was used is still taken, and the next is free.
    let first = keyed_event(&store).await;
    let again = hand.event(&[(A, None)], |event| {
        *event = Event { id: event.id, received_at: LATER, ..first.clone() };
    });
    let appended = store.append(vec![again]).await.expect("answered");
    assert!(
        matches!(appended[..], [Appended::Duplicate { id, .. }] if id == first.id),
        "{appended:?}"
    );

    // A line moves on in its order, to its end, and what joins it goes last.
    let joined = hand.send(&[(L, Some("a"))], |_| {}).await[0];
    let (mut head, mut went) = (head_of(&store, "a").await, Vec::new());
    while let Some(id) = head {
        went.push((hand.record(id).await.event, id));
        head = hand.turn(id, Turn::Succeed).await;
    }
    assert!(went.len() >= 4 && went.is_sorted(), "{went:?}");
    assert_eq!(went.last().map(|(_, id)| *id), Some(joined));

    // A lease that was out can be settled by its fence, once.
    let leased = some(&store, State::InFlight).await;
    let settle = hand.settle_of(leased, Turn::Succeed).await;
    for applies in [true, false] {
        let settled = store.settle(vec![settle.clone()], Urgency::Now).await.expect("answered");
        assert_eq!(matches!(settled[..], [Settled::Applied { .. }]), applies);
    }

    // Numbers go on after the highest.
    let newest = store.audit(newest_audit()).await.expect("read")[0].id;
    let audit = Audit {
        at: LATER,
        tenant: None,
        actor: Actor::Gateway,
        action: "tenant.create",
        subject: "third".to_owned(),
        detail: None,
    };
    let made = store.make_tenant("third".to_owned(), LATER, audit).await.expect("made");
    assert_eq!(made.id, TenantId(TENANTS[1].0 + 1));
    assert_eq!(store.audit(newest_audit()).await.expect("read")[0].id, newest + 1);
    store.close().await;
}

fn newest_audit() -> AuditQuery {
    AuditQuery { limit: 1, ..AuditQuery::default() }
}

/// The event of the first tenant that has a key of its producer's.
async fn keyed_event(store: &Postgres) -> Event {
    let query = EventQuery { limit: 1_000, ..EventQuery::default() };
    let listed = store.events(TENANTS[0], query).await.expect("read").rows;
    let mut keyed =
        listed.iter().filter(|event| event.idempotency_key.is_some() && event.source.is_none());
    let id = keyed.next().expect("one has a key").id;
    store.event(TENANTS[0], id).await.expect("read").expect("there")
}

async fn deliveries(store: &dyn Store) -> Vec<DeliveryRecord> {
    let query = DeliveryQuery { limit: 1_000, ..DeliveryQuery::default() };
    store.deliveries(TENANTS[0], query).await.expect("read").rows
}

/// The only one of a line that does not stand behind another.
async fn head_of(store: &dyn Store, line: &str) -> Option<DeliveryId> {
    let heads = |record: &&DeliveryRecord| {
        record.line.as_deref() == Some(line) && record.due.is_some() && !record.parked
    };
    deliveries(store).await.iter().find(heads).map(|record| record.id)
}

/// One that is in this state.
async fn some(store: &dyn Store, state: State) -> DeliveryId {
    let all = deliveries(store).await;
    all.iter().find(|record| record.state == state).expect("one of every state is there").id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_after_every_chunk_it_comes_to_the_same() {
    let file = File::filled();
    let database = Database::bare();
    let mut times = 0;
    loop {
        match copy_until(&file, &database, |progress| progress.phase == Phase::Copying).await {
            Ok(()) => break,
            Err(Error::Interrupted) => {}
            Err(other) => panic!("{other}"),
        }
        times += 1;
        let rows = database.sql(
            "SELECT (convert_from(value, 'UTF8')::json ->> 'rows')::int \
             FROM postrider.meta WHERE name = 'copying'",
        );
        assert!(rows.parse::<u64>().is_ok_and(|rows| rows > 0), "{rows}");
    }
    assert!(times > 20, "only {times} chunks");
    let (origin, copy) = (open(&file.path), database.store(few()).await);
    assert_same(&origin, &copy, LATER).await;
    copy.close().await;
    origin.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_leaves_whole_chunks_and_it_goes_on() {
    let file = File::filled();
    let database = Database::bare();
    let mut chunks = 0;
    let lost = copy_until(&file, &database, |_| {
        chunks += 1;
        if chunks == 9 {
            Cluster::shared().kill_connections(database.name());
        }
        false
    });
    let lost = lost.await.expect_err("the connection is gone");
    assert!(matches!(lost, Error::Target(postrider_store::Error::Unavailable(_))), "{lost}");
    let origin = file.origin();
    let found = copy::look(&origin, &target(&database).await).await.expect("it will do");
    assert!(matches!(found, Found::Part { rows } if rows > 0), "{found:?}");
    drop(origin);
    copy_all(&file, &database).await.expect("copied");
    let (origin, copy) = (open(&file.path), database.store(few()).await);
    assert_same(&origin, &copy, LATER).await;
    copy.close().await;
    origin.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_of_a_store_is_used_by_nobody() {
    let file = File::filled();
    let database = Database::bare();
    copy_one_chunk(&file, &database).await;
    assert_refused(&database).await;
    copy_rows(&file, &database).await;
    assert_refused(&database).await;
    copy_all(&file, &database).await.expect("copied");
    database.store(few()).await.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_has_changed_is_not_gone_on_with() {
    /// What is done to it between two copies, and the table that shows it.
    const CHANGES: &[(&str, &str)] = &[
        ("a delivery ends", "finished"),
        ("a lease is made longer", "unfinished"),
        ("an event comes in", "events"),
        ("a key is used", "keys"),
        ("something is measured", "measures"),
    ];
    for (change, table) in CHANGES {
        let (file, database) = (File::filled(), Database::new());
        copy_one_chunk(&file, &database).await;
        let before = content(&database);
        alter(&file, change).await;
        let refused = copy_all(&file, &database).await.expect_err(change);
        assert!(matches!(refused, Error::Refused(_)), "{change}: {refused}");
        assert!(refused.to_string().contains(table), "{change}: {refused}");
        assert_eq!(content(&database), before, "{change}");
    }
}

async fn alter(file: &File, change: &str) {
    let store = open(&file.path);
    let mut hand = Hand::on(&store, LATER).await;
    match change {
        "a delivery ends" => {
            hand.turn(some(&store, State::Pending).await, Turn::Succeed).await;
        }
        "a lease is made longer" => {
            hand.turn(some(&store, State::InFlight).await, Turn::Lease).await;
        }
        "an event comes in" => drop(hand.send(&[], |_| {}).await),
        "a key is used" => {
            let used = vec![(postrider_core::KeyId::from_i64(31), LATER)];
            store.touch_keys(used).await.expect("noted");
        }
        "something is measured" => hand.measure().await,
        other => panic!("{other}: how?"),
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_holds_anything_else_is_left_alone() {
    let file = File::filled();

    let used = Database::new();
    let store = used.store(few()).await;
    store.append(vec![event(1, &Bytes::new())]).await.expect("stored");
    store.close().await;

    let named = Database::new();
    let store = named.store(few()).await;
    store.instance([9; 16]).await.expect("named");
    store.close().await;

    let others = Database::new();
    copy_one_chunk(&File::filled_anew(2), &others).await;

    let complete = Database::new();
    copy_all(&file, &complete).await.expect("copied");

    let odd = Database::new();
    odd.sql("INSERT INTO postrider.meta VALUES ('copying', '{\"form\": 999}')");

    let cases = [
        (used, "holds a store already (events"),
        (named, "holds a store already (meta"),
        (others, "unfinished copy of another store"),
        (complete, "copy was completed"),
        (odd, "another version"),
    ];
    for (database, says) in cases {
        let before = content(&database);
        let refused = copy_all(&file, &database).await.expect_err(says);
        assert!(matches!(refused, Error::Refused(_)), "{refused}");
        assert!(refused.to_string().contains(says), "{refused}");
        let origin = file.origin();
        let looked = copy::look(&origin, &target(&database).await).await.expect_err(says);
        assert_eq!(looked.to_string(), refused.to_string());
        assert_eq!(content(&database), before, "{says}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_side_can_be_in_use() {
    let file = File::filled();
    let database = Database::new();
    let store = open(&file.path);
    let refused = file.try_origin().expect_err("a gateway has it");
    assert!(refused.to_string().contains("in use"), "{refused}");
    store.close().await;
    drop(store);

    let hasty = Options { lock_patience: Duration::ZERO, ..few() };
    let node = database.store(few()).await;
    let refused = Target::connect(&database.url, hasty).await.expect_err("a node has it");
    assert!(matches!(refused, OpenError::InUse(_)), "{refused}");
    node.close().await;

    // While it is copied, nobody else can have either.
    let (origin, target) = (file.origin(), target(&database).await);
    let refused = file.try_origin().expect_err("it is being read");
    assert!(refused.to_string().contains("in use"), "{refused}");
    let refused = Postgres::connect(&database.url, hasty, keyring()).await.expect_err("taken");
    assert!(matches!(refused, OpenError::InUse(_)), "{refused}");
    drop((origin, target));

    let missing = File { path: file.path.with_file_name("missing.db"), ..file };
    let refused = missing.try_origin().expect_err("there is none");
    assert!(refused.to_string().contains("there is no database"), "{refused}");
    assert!(!missing.path.exists(), "none was made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_not_as_it_was_is_found() {
    const TAMPERING: &[(&str, &str)] = &[
        (
            "UPDATE events SET body = body || '\\x00' WHERE id = (SELECT max(id) FROM events)",
            "events",
        ),
        ("UPDATE finished SET last_error = 'no' WHERE state = 3", "finished"),
        ("UPDATE unfinished SET turn = turn + 1 WHERE line = 'a' AND place = 3", "unfinished"),
        ("DELETE FROM attempts WHERE number = 2", "attempts"),
        ("UPDATE keys SET tenant_id = NULL", "keys"),
        ("INSERT INTO idempotency (scope, key, event_id) VALUES (-1, 'k', 5)", "idempotency"),
        ("UPDATE measures SET latency = latency || 1::bigint WHERE grain = 2", "measures"),
    ];
    let file = File::filled();
    let database = Database::new();
    copy_rows(&file, &database).await;
    for (tampering, table) in TAMPERING {
        let tampered = Database { url: Cluster::shared().copy_of(database.name()) };
        tampered.sql(&format!("SET search_path = postrider; {tampering}"));
        let found = copy_all(&file, &tampered).await.expect_err(tampering);
        let Error::Differs(differences) = &found else { panic!("{found}") };
        let tables: Vec<_> = differences.iter().map(|difference| difference.table).collect();
        assert_eq!(tables, [*table], "{found}");
        assert!(found.to_string().contains(&format!("`{table}`")), "{found}");
        assert_refused(&tampered).await;
    }
    copy_all(&file, &database).await.expect("the one that nobody touched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_its_column_cannot_hold_is_damage() {
    let file = File::filled();
    let conn = rusqlite::Connection::open(&file.path).expect("it opens");
    let sql = "UPDATE deliveries SET replay = 7 WHERE id = (SELECT max(id) FROM deliveries)";
    assert_eq!(conn.execute(sql, ()).expect("changed"), 1);
    drop(conn);
    let database = Database::new();
    let damaged = copy_all(&file, &database).await.expect_err("no such truth");
    assert!(matches!(damaged, Error::Target(postrider_store::Error::Damaged(_))), "{damaged}");
}

#[tokio::test]
async fn secrets_that_do_not_open_are_not_copied() {
    let file = File::filled();
    let other = Keyring::new(vec![SealingKey::from_bytes([8; 32])]).expect("one key");
    let refused = Origin::open(&file.path, sqlite::Options::default(), |sealed| {
        assert_eq!(sealed, sqlite::Sealed::Some);
        Ok::<_, postrider_store::Error>(other)
    });
    let refused = refused.expect_err("sealed with another key");
    let key = SealingKey::from_bytes([7; 32]).id();
    assert!(refused.to_string().contains(&key.to_string()), "{refused}");
    assert_eq!(file.origin().plan().keys, [key]);
}

/// A column that is added has to be copied, or left behind on purpose: `src/copy/table.rs`.
#[tokio::test]
async fn no_column_is_new() {
    const KNOWN: &str = "attempts.class attempts.counted attempts.delivery_id attempts.duration_ms \
        attempts.error attempts.number attempts.response attempts.started_at attempts.status \
        audit.action audit.at audit.detail audit.id audit.key_id audit.subject audit.tenant_id \
        declarations.applied declarations.kind declarations.name declarations.object_id \
        declarations.tenant_id \
        endpoints.breaker endpoints.created_at endpoints.failing_since endpoints.hold_until \
        endpoints.id endpoints.secrets endpoints.spec endpoints.state endpoints.tenant_id \
        endpoints.updated_at events.body events.content_type events.deliver_at events.deliveries \
        events.filter_errors events.headers events.id events.idempotency_key events.kind \
        events.metadata events.ordering_key events.received_at events.source_id events.tenant_id \
        events.trace events.verified finished.at finished.attempts finished.born finished.class \
        finished.deferrals finished.duration_ms finished.endpoint_id finished.event_id \
        finished.fence finished.id finished.last_attempt_at finished.last_error finished.line \
        finished.reason finished.replay finished.response finished.result finished.state \
        finished.status finished.tenant_id finished.tries hubs.created_at hubs.id hubs.name \
        hubs.sha256 hubs.tenant_id idempotency.event_id idempotency.key idempotency.scope \
        jobs.created_at jobs.filter jobs.id jobs.matched jobs.position_delivery \
        jobs.position_event jobs.rate_per_second jobs.replayed jobs.skipped jobs.state \
        jobs.tenant_id jobs.updated_at keys.created_at keys.expires_at keys.id keys.last_used_at \
        keys.name keys.revoked_at keys.sha256 keys.tenant_id measures.dead measures.delivered \
        measures.endpoint_id measures.failures measures.grain measures.latency measures.received \
        measures.start measures.tenant_id sources.created_at sources.id \
        sources.secrets sources.spec sources.tenant_id sources.updated_at tenants.created_at \
        tenants.id tenants.name unfinished.at unfinished.attempts unfinished.born \
        unfinished.class unfinished.deferrals unfinished.endpoint_id unfinished.event_id \
        unfinished.fence unfinished.id unfinished.last_attempt_at unfinished.last_error \
        unfinished.line unfinished.place unfinished.replay unfinished.result unfinished.state \
        unfinished.tenant_id unfinished.tries unfinished.turn";
    let found = Database::new().sql(
        "SELECT string_agg(table_name || '.' || column_name, ' ' ORDER BY 1) FROM ( \
             SELECT table_name, column_name FROM information_schema.columns \
             WHERE table_schema = 'postrider' AND table_name !~ '_(other|[0-9]{8})$' \
             AND table_name NOT IN ('migrations', 'meta', 'nodes', 'tenures', 'revision', \
                 'delivery_counts', 'event_counts', 'deliveries', 'sessions')) c",
    );
    let mut found: Vec<&str> = found.split_whitespace().collect();
    found.sort_unstable();
    assert_eq!(found, KNOWN.split_whitespace().collect::<Vec<_>>());
}
