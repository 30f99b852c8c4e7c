//! Versions of the schema: what is applied when, and which programs may use what.

use postrider_store::postgres::{self, Migrated, OpenError, Pending};
use postrider_store::registry::Registry as _;

use super::*;

const FIRST: &str = include_str!("../../src/postgres/migrations/0001_start.sql");
const SECOND: &str = include_str!("../../src/postgres/migrations/0002_nodes.sql");

/// The lock of a process of the first version, which shared its database with nobody.
const LOCK: &str = "SELECT pg_advisory_lock(x'506f73744f776e73'::bigint)";

/// A database as the first version left it.
fn first_version() -> Database {
    let database = Database::bare();
    database.sql(&format!(
        "CREATE SCHEMA postrider; SET search_path = postrider; \
         CREATE TABLE migrations (version integer PRIMARY KEY, name text NOT NULL, \
             applied_at timestamptz NOT NULL DEFAULT now()); \
         {FIRST}; INSERT INTO migrations (version, name) VALUES (1, 'start')"
    ));
    database
}

/// A database as the second version left it.
pub(super) fn second_version() -> Database {
    let database = first_version();
    database.sql(&format!(
        "SET search_path = postrider; ALTER TABLE migrations ADD COLUMN oldest integer; \
         {SECOND}; INSERT INTO migrations (version, name, oldest) VALUES (2, 'nodes', 2)"
    ));
    database
}

fn hasty() -> Options {
    Options { lock_patience: Duration::ZERO, ..few() }
}

async fn pending(database: &Database) -> Pending {
    postgres::pending(&database.url, hasty()).await.expect("an answer")
}

fn applied(database: &Database) -> String {
    database.sql(
        "SELECT string_agg(version || '/' || coalesce(oldest::text, '-'), ' ' \
         ORDER BY version) FROM postrider.migrations",
    )
}

#[tokio::test]
async fn what_is_to_be_applied_is_told_and_then_applied() {
    let (bare, first, whole) = (Database::bare(), first_version(), Database::new());
    let second = second_version();
    let cases = [
        (&bare, 0, vec!["start", "nodes", "dashboard", "production"], false),
        (&first, 1, vec!["nodes", "dashboard", "production"], true),
        (&second, 2, vec!["dashboard", "production"], false),
        (&whole, 4, vec![], false),
    ];
    for (database, version, names, needs_stop) in cases {
        let expected = Pending { version, wanted: 4, names: names.clone(), needs_stop };
        assert_eq!(pending(database).await, expected);
        assert_eq!(pending(database).await, expected, "asking changes nothing");
        let migrated = postgres::migrate(&database.url, hasty()).await.expect("applied");
        assert_eq!(migrated, Migrated { from: version, to: 4, applied: names });
        assert!(pending(database).await.names.is_empty());
        database.store(few()).await.close().await;
    }
    assert_eq!(applied(&bare), "1/1 2/2 3/2 4/2");
    assert_eq!(applied(&first), "1/- 2/2 3/2 4/2");
    assert_eq!(applied(&second), "1/- 2/2 3/2 4/2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_adds_is_applied_while_nodes_run() {
    let database = Database::new();
    let running = database.store(few()).await;
    // The running one needs none of what is missing as long as nobody asks for it.
    database.sql(
        "SET search_path = postrider; DROP TABLE sessions, measures, declarations; \
         ALTER TABLE events DROP COLUMN trace; DROP FUNCTION add_counts; \
         DELETE FROM migrations WHERE version > 2",
    );
    running.tenants().await.expect("it goes on");
    let migrated = postgres::migrate(&database.url, hasty()).await.expect("nobody is waited for");
    assert_eq!(migrated, Migrated { from: 2, to: 4, applied: vec!["dashboard", "production"] });
    running.append(vec![event(2, &Bytes::new())]).await.expect("it goes on");
    let newer = database.store(hasty()).await;
    newer.append(vec![event(3, &Bytes::new())]).await.expect("beside the other");
    newer.close().await;
    running.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_migrate_at_once_each_waits_for_the_others() {
    let database = first_version();
    let migrate = || postgres::migrate(&database.url, few());
    let open = || Postgres::connect(&database.url, few(), keyring());
    let (one, two, three, four) = tokio::join!(migrate(), migrate(), open(), open());
    let count = [one, two].map(|migrated| migrated.expect("applied").applied.len());
    assert!([[0, 0], [0, 3], [3, 0]].contains(&count), "{count:?}");
    for store in [three, four] {
        store.expect("it opens").close().await;
    }
    assert_eq!(applied(&database), "1/- 2/2 3/2 4/2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_running_nodes_cannot_bear_waits_for_them() {
    let database = first_version();
    let name = database.name().to_owned();
    // It ends when it is told to.
    let sql = format!("{LOCK}; SELECT pg_sleep(60)");
    let old = tokio::task::spawn_blocking(move || {
        std::panic::catch_unwind(|| Cluster::shared().sql(&name, &sql)).is_err()
    });
    let sleeping = "FROM pg_stat_activity WHERE datname = current_database() \
         AND wait_event = 'PgSleep'";
    while database.sql(&format!("SELECT count(*) {sleeping}")) == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = postgres::migrate(&database.url, hasty()).await.expect_err("in use");
    assert!(matches!(refused, OpenError::InUse(_)), "{refused}");
    let refused = Postgres::connect(&database.url, hasty(), keyring()).await.expect_err("in use");
    assert!(matches!(refused, OpenError::InUse(_)), "{refused}");
    assert_eq!(applied(&database), "1/-");
    database.sql(&format!("SELECT pg_terminate_backend(pid) {sleeping}"));
    assert!(old.await.expect("ended"), "it was killed");
    database.store(few()).await.close().await;
    assert_eq!(applied(&database), "1/- 2/2 3/2 4/2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_schema_is_used_if_it_says_so_and_refused_otherwise() {
    // Which version added it, which one a program has to know, and whether this one may go on.
    let cases =
        [("999", "2", true), ("999", "999", false), ("5", "5", false), ("5", "null", false)];
    for (version, oldest, usable) in cases {
        let database = Database::new();
        let running = database.store(few()).await;
        database.sql(&format!(
            "INSERT INTO postrider.migrations (version, name, oldest) \
             VALUES ({version}, 'later', {oldest})"
        ));
        let opened = Postgres::connect(&database.url, hasty(), keyring()).await;
        match &opened {
            Ok(store) => {
                assert!(usable, "{version} {oldest}");
                store.append(vec![event(1, &Bytes::new())]).await.expect("it can be used");
                let version: i32 = version.parse().expect("a number");
                let pending = pending(&database).await;
                assert_eq!((pending.version, pending.wanted), (version, version));
                store.close().await;
            }
            Err(refused) => {
                assert!(matches!(refused, OpenError::Refused(_)) && !usable, "{refused}");
                let said = refused.to_string();
                assert!(said.contains("newer postrider") && said.contains(version), "{said}");
                let refused = postgres::migrate(&database.url, hasty()).await;
                assert!(matches!(refused, Err(OpenError::Refused(_))), "{refused:?}");
            }
        }
        let left = database.sql("SELECT max(version) FROM postrider.migrations");
        assert_eq!(left, version, "left as it is");
        running.close().await;
    }
}
