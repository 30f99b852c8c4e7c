//! `postrider migrate`: what is to be done to a store is told, or done, and told.

use crate::cluster::Cluster;
use crate::gateway::Launch;

const START: &str = include_str!("../../../store/src/postgres/migrations/0001_start.sql");

fn migrate(store: &str) -> Launch {
    Launch::with(["migrate"]).variable("POSTRIDER_STORE", store)
}

fn check(store: &str) -> Launch {
    migrate(store).and(["--check"])
}

#[tokio::test]
async fn a_new_file_gets_its_schema_and_a_check_changes_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("postrider.db");
    let store = format!("sqlite:{}", path.display());
    for launch in [migrate(&store), check(&store)] {
        let refused = launch.run().await.expect_code(2);
        assert!(refused.stderr.contains("there is no database at"), "{}", refused.stderr);
    }
    std::fs::write(&path, "").expect("an empty file");
    let found = check(&store).run().await.expect_code(3);
    assert!(found.stdout.contains("version 0"), "{}", found.stdout);
    assert!(found.stdout.contains("to apply 1\n"), "{}", found.stdout);
    assert_eq!(std::fs::read(&path).expect("there"), b"", "it was only to be looked at");

    let applied = migrate(&store).run().await.expect_code(0);
    assert!(applied.stdout.contains("from version 0 to"), "{}", applied.stdout);
    assert!(applied.stdout.contains("applied 1\n"), "{}", applied.stdout);
    let before = std::fs::read(&path).expect("there");
    for launch in [check(&store), migrate(&store)] {
        let done = launch.run().await.expect_code(0);
        assert!(done.stdout.contains("is up to date"), "{}", done.stdout);
    }
    assert!(std::fs::read(&path).expect("there") == before, "the file was changed");

    let gateway = Launch::serve(directory.path()).start().await;
    gateway.send(1).await;
    let refused = migrate(&store).run().await.expect_code(2);
    assert!(refused.stderr.contains("in use by another postrider"), "{}", refused.stderr);
    let looked = check(&store).run().await.expect_code(0);
    assert!(looked.stdout.contains("is up to date"), "{}", looked.stdout);
    gateway.send(2).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_file_that_is_no_store_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("diary");
    let text = "Dear diary, ".repeat(40);
    std::fs::write(&path, &text).expect("a file");
    let store = format!("sqlite:{}", path.display());
    for launch in [migrate(&store), check(&store)] {
        let refused = launch.run().await.expect_code(2);
        assert!(refused.stderr.contains("is not a database"), "{}", refused.stderr);
    }
    assert_eq!(std::fs::read_to_string(&path).expect("there"), text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_brought_up_to_date_from_the_version_it_has() {
    let cluster = Cluster::shared();
    let empty = cluster.database();
    let older = cluster.database();
    let name = |url: &str| {
        let name = url.trim_start_matches("postgres:///").split('?').next();
        name.expect("a name").to_owned()
    };
    cluster.sql(
        &name(&older),
        &format!(
            "CREATE SCHEMA postrider; SET search_path = postrider; CREATE TABLE migrations (version \
             integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());\
             {START}; INSERT INTO migrations (version, name) VALUES (1, 'start')"
        ),
    );
    for (store, from, pending) in
        [(&empty, 0, &["1 start", "2 nodes"][..]), (&older, 1, &["2 nodes"])]
    {
        let found = check(store).run().await.expect_code(3);
        assert!(found.stdout.contains(&format!("version {from}")), "{}", found.stdout);
        for migration in pending {
            assert!(found.stdout.contains(migration), "{}", found.stdout);
        }
        let again = check(store).run().await.expect_code(3);
        assert_eq!(again.stdout, found.stdout, "a check changed something");

        let applied = migrate(store).run().await.expect_code(0);
        let way = format!("from version {from} to");
        assert!(applied.stdout.contains(&way), "{}", applied.stdout);
        assert_eq!(applied.stdout.contains("1 start"), from == 0, "{}", applied.stdout);
        assert!(applied.stdout.contains("2 nodes"), "{}", applied.stdout);
        for launch in [check(store), migrate(store)] {
            let done = launch.run().await.expect_code(0);
            assert!(done.stdout.contains("is up to date"), "{}", done.stdout);
        }
    }

    // Also while a node is at work on it.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).variable("POSTRIDER_STORE", &older).start().await;
    migrate(&older).run().await.expect_code(0);
    gateway.send(1).await;
    gateway.stop().await;

    cluster.sql(&name(&empty), "INSERT INTO postrider.migrations VALUES (999, 'later')");
    for launch in [check(&empty), migrate(&empty)] {
        let refused = launch.run().await.expect_code(2);
        assert!(refused.stderr.contains("newer postrider"), "{}", refused.stderr);
        assert!(refused.stderr.contains("999"), "{}", refused.stderr);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_its_password() {
    let store = "postgres://me:hunter2@127.0.0.1:1/hooks";
    for launch in [migrate(store), check(store)] {
        let refused = launch.run().await.expect_code(1);
        assert!(refused.stderr.contains("postgres://me@127.0.0.1:1/hooks"), "{}", refused.stderr);
        assert!(!refused.stderr.contains("hunter2"), "{}", refused.stderr);
    }
    let refused = migrate("mysql:x").run().await.expect_code(2);
    assert!(refused.stderr.contains("--store"), "{}", refused.stderr);
}
