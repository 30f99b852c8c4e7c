//! Who may open a database, and which one.

use postrider_store::journal::Journal as _;
use postrider_store::postgres::OpenError;

use super::*;

fn hasty() -> Options {
    Options { lock_patience: Duration::ZERO, ..few() }
}

async fn refusal(url: &str) -> OpenError {
    Postgres::connect(url, hasty(), keyring()).await.expect_err("it does not open")
}

#[tokio::test]
async fn a_second_process_is_refused_until_the_first_has_closed() {
    let database = Database::new();
    let store = database.store(few()).await;
    let refused = refusal(&database.url).await;
    assert!(matches!(refused, OpenError::InUse(_)), "{refused}");
    store.append(vec![event(1, &Bytes::new())]).await.expect("the first goes on");
    store.close().await;
    let store = Postgres::connect(&database.url, hasty(), keyring()).await.expect("free at once");
    store.close().await;
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let database = Database::new();
    database.store(few()).await.close().await;
    database.sql("INSERT INTO postrider.migrations (version, name) VALUES (999, 'later')");
    let refused = refusal(&database.url).await;
    assert!(matches!(refused, OpenError::Refused(_)), "{refused}");
    let said = refused.to_string();
    assert!(said.contains("newer postrider") && said.contains("999"), "{said}");
    let versions = database.sql("SELECT max(version) FROM postrider.migrations");
    assert_eq!(versions, "999");
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
