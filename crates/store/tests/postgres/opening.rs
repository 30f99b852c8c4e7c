//! Who may open a database, and which one.

use postrider_store::journal::Journal as _;
use postrider_store::ledger::Ledger as _;
use postrider_store::postgres::OpenError;

use super::*;

fn hasty() -> Options {
    Options { lock_patience: Duration::ZERO, ..few() }
}

async fn refusal(url: &str) -> OpenError {
    Postgres::connect(url, hasty(), keyring()).await.expect_err("it does not open")
}

#[tokio::test]
async fn several_processes_share_a_database() {
    let database = Database::new();
    let [one, two] = [database.store(few()).await, database.store(hasty()).await];
    one.append(vec![event(1, &Bytes::new())]).await.expect("stored");
    two.append(vec![event(2, &Bytes::new())]).await.expect("stored");
    assert_eq!(one.event_count(TenantId::DEFAULT).await.expect("counted"), 2);
    one.close().await;
    two.append(vec![event(3, &Bytes::new())]).await.expect("the other goes on");
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_can_begin_with_an_empty_database_at_the_same_time() {
    let database = Database::bare();
    let open = || database.store(few());
    let (one, two, three) = tokio::join!(open(), open(), open());
    for (number, store) in (0..).zip([one, two, three]) {
        store.append(vec![event(number, &Bytes::new())]).await.expect("stored");
        store.close().await;
    }
}

#[tokio::test]
async fn whoever_wants_a_database_alone_gets_it_while_nobody_has_it() {
    let database = Database::new();
    let alone = || Postgres::connect_alone(&database.url, hasty(), keyring());
    let in_use = |error: OpenError| assert!(matches!(error, OpenError::InUse(_)), "{error}");
    let [one, two] = [database.store(few()).await, database.store(few()).await];
    in_use(alone().await.expect_err("two have it"));
    one.close().await;
    in_use(alone().await.expect_err("one has it"));
    two.append(vec![event(1, &Bytes::new())]).await.expect("it goes on");
    two.close().await;

    let only = alone().await.expect("free at once");
    in_use(refusal(&database.url).await);
    in_use(alone().await.expect_err("another has it"));
    only.append(vec![event(2, &Bytes::new())]).await.expect("stored");
    only.close().await;
    database.store(hasty()).await.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_no_longer_known_to_be_alone_writes_nothing() {
    let database = Database::new();
    let only = Postgres::connect_alone(&database.url, hasty(), keyring()).await.expect("it opens");
    only.append(vec![event(0, &Bytes::new())]).await.expect("stored");
    database.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' \
         AND mode = 'ExclusiveLock' AND objsubid = 1 AND \
         database = (SELECT oid FROM pg_database WHERE datname = current_database())",
    );
    let mut number = 1;
    // It is told as soon as the connection has ended.
    while let Ok(appended) = only.append(vec![event(number, &Bytes::new())]).await {
        assert_eq!(appended.len(), 1);
        number += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let other = database.store(hasty()).await;
    other.close().await;
    let refused = only.append(vec![event(number, &Bytes::new())]).await.expect_err("for ever");
    assert!(refused.to_string().contains("begin again"), "{refused}");
    only.close().await;
}

#[tokio::test]
async fn what_is_in_the_way_is_named() {
    let cluster = Cluster::shared();
    let cases = [
        (cluster.url("no_such_database"), "no_such_database"),
        (cluster.url("postgres").replace("user=postrider", "user=nobody"), "nobody"),
        ("postgres:///x?host=/no/such/folder&user=u".to_owned(), "connecting"),
    ];
    for (url, named) in cases {
        let refused = refusal(&url).await;
        assert!(refused.to_string().contains(named), "{refused}");
    }
    cluster.sql("postgres", "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    let refused = refusal(&cluster.url("latin")).await;
    assert!(matches!(&refused, OpenError::Refused(said) if said.contains("LATIN1")), "{refused}");
}

#[tokio::test]
async fn tables_of_another_program_are_left_alone() {
    let database = Database::bare();
    database.sql("CREATE TABLE events (mine int); CREATE TABLE tenants (mine int)");
    database.store(few()).await.close().await;
    assert_eq!(database.sql("SELECT count(*) FROM public.events"), "0");
    assert_eq!(database.sql("SELECT count(*) FROM postrider.tenants"), "1");
}
