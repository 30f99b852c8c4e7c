//! A start that cannot work: the exit code, a sentence, and nothing touched.

use std::path::Path;

use crate::gateway::{KEY, Launch};

const USER_VERSION_AT: usize = 60;

#[tokio::test]
async fn a_bad_setting_is_named() {
    let cases: [(&[&str], &str); 28] = [
        (&["--nonsense"], "--nonsense"),
        (&["--listen", "somewhere"], "--listen"),
        (&["--store", "mysql:x"], "--store"),
        (&["--store", "sqlite:"], "--store"),
        (&["--store", "postgres:x"], "--store"),
        (&["--allow-destination", "127.0.0.1/99"], "--allow-destination"),
        (&["--allow-destination", "two words"], "--allow-destination"),
        (&["--allow-port", "70000"], "--allow-port"),
        (&["--deny-port", "ssh"], "--deny-port"),
        (&["--dns-server", "9.9.9.9"], "--dns-server"),
        (&["--egress-proxy", "https://proxy:3128"], "--egress-proxy"),
        (&["--public-url", "example.com"], "--public-url"),
        (&["--allow-command", "page-somebody"], "--allow-command"),
        (&["--crl-file", "no-such-file.pem"], "--crl-file"),
        (&["--timeout", "soon"], "--timeout"),
        (&["--timeout", "0s"], "--timeout"),
        (&["--drain=-1s"], "--drain"),
        (&["--max-in-flight", "0"], "--max-in-flight"),
        (&["--max-event-bytes", "104857601"], "--max-event-bytes"),
        (&["--log-format", "xml"], "--log-format"),
        (&["--node-name", ""], "--node-name"),
        (&["--lease", "1s"], "--lease"),
        (&["--lanes", "4097"], "--lanes"),
        (&["--writers", "0"], "--writers"),
        // A file has one node, and no connections.
        (&["--lease", "10s"], "--lease"),
        (&["--lanes", "64"], "--lanes"),
        (&["--writers", "2"], "--writers"),
        (&["--readers", "2"], "--readers"),
    ];
    for (arguments, flag) in cases {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let launch = Launch::with(["serve"]).and(arguments).in_directory(directory.path());
        let refused = launch.run().await.expect_code(2);
        assert_eq!(refused.stdout, "", "{arguments:?}");
        assert!(refused.stderr.contains(flag), "{arguments:?}: {}", refused.stderr);
        let left = std::fs::read_dir(directory.path()).expect("a directory").count();
        assert_eq!(left, 0, "{arguments:?} left something behind");
    }
}

#[tokio::test]
async fn a_bad_variable_is_named() {
    let cases = [
        ("POSTRIDER_LISTEN", "somewhere", "--listen"),
        ("POSTRIDER_ALLOW_DESTINATION", "127.0.0.0/8,no where", "--allow-destination"),
        ("POSTRIDER_TIMEOUT", "15", "--timeout"),
        ("POSTRIDER_LEASE", "10", "--lease"),
        ("POSTRIDER_READERS", "2", "--readers"),
        ("MAX_ATTEMPTS", "0", "MAX_ATTEMPTS"),
        ("RETRY_MAX_DELAY", "-5", "RETRY_MAX_DELAY"),
    ];
    for (name, value, expected) in cases {
        let refused = Launch::with(["serve"]).variable(name, value).run().await.expect_code(2);
        assert!(refused.stderr.contains(expected), "{name}={value}: {}", refused.stderr);
    }
}

#[tokio::test]
async fn a_malformed_admin_key_is_refused_and_not_repeated() {
    for key in ["", "pr_short", "0123456789abcdefghijklmnopqrstuvwxyz0123", &format!("{KEY} ")] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let launch = Launch::serve(directory.path()).variable("POSTRIDER_ADMIN_KEY", key);
        let refused = launch.run().await.expect_code(2);
        assert!(refused.stderr.contains("admin key"), "{}", refused.stderr);
        assert!(refused.stderr.contains("pr_"), "{}", refused.stderr);
        assert!(key.is_empty() || !refused.stderr.contains(key), "{}", refused.stderr);
        assert_eq!(refused.stdout, "");
    }
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let launch = Launch::with(["serve", "--listen", &address, "--data"]).and([directory.path()]);
    let refused = launch.run().await.expect_code(1);
    assert_eq!(refused.stdout, "");
    assert!(refused.stderr.contains("cannot listen on"), "{}", refused.stderr);
    assert!(refused.stderr.contains(&address), "{}", refused.stderr);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let text = b"Dear diary, ".repeat(40);
    let short = b"x".to_vec();
    let almost = [b"SQLite format 3\0".as_slice(), &[0; 84]].concat();
    for content in [text, short, almost] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("postrider.db");
        std::fs::write(&path, &content).expect("a file");
        let refused = Launch::serve(directory.path()).run().await.expect_code(2);
        assert!(refused.stderr.contains("database"), "{}", refused.stderr);
        assert_refused_untouched(&refused.stderr, &path, &content);
    }
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launch = Launch::serve(directory.path());
    let gateway = launch.start().await;
    let event = gateway.send(1).await;
    gateway.stop().await;
    let path = directory.path().join("postrider.db");
    let ours = std::fs::read(&path).expect("a database");
    let mut newer = ours.clone();
    newer[USER_VERSION_AT..USER_VERSION_AT + 4].copy_from_slice(&9_999_u32.to_be_bytes());
    std::fs::write(&path, &newer).expect("it can be written");

    let refused = launch.run().await.expect_code(2);
    assert!(refused.stderr.contains("newer"), "{}", refused.stderr);
    assert!(refused.stderr.contains("9999"), "{}", refused.stderr);
    assert_refused_untouched(&refused.stderr, &path, &newer);

    std::fs::write(&path, &ours).expect("it can be written");
    let gateway = launch.start().await;
    assert_eq!(gateway.get(&format!("/v1/events/{event}")).await["id"], event.as_str());
}

#[tokio::test]
async fn a_second_process_on_the_same_data_is_refused_and_the_first_goes_on() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launch = Launch::serve(directory.path());
    let first = launch.start().await;
    let event = first.send(1).await;
    let refused = launch.run().await.expect_code(2);
    assert_eq!(refused.stdout, "");
    assert!(refused.stderr.contains("in use by another postrider"), "{}", refused.stderr);
    assert_eq!(first.get(&format!("/v1/events/{event}")).await["id"], event.as_str());
    first.send(2).await;
    // However the first one ends, its claim ends with it.
    first.process.kill();
    let second = launch.start().await;
    assert_eq!(second.get("/v1/stats").await["events"], 2);
}

#[tokio::test]
async fn data_that_is_out_of_reach_is_named() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "not a directory").expect("a file");
    for data in [file.clone(), file.join("below")] {
        let refused = Launch::serve(&data).run().await.expect_code(1);
        let named = refused.stderr.contains(&file.display().to_string());
        assert!(named && refused.stderr.starts_with("postrider: "), "{}", refused.stderr);
    }
}

/// One sentence that names the file, whose bytes are as they were.
#[track_caller]
fn assert_refused_untouched(stderr: &str, path: &Path, content: &[u8]) {
    assert!(stderr.starts_with("postrider: "), "{stderr}");
    assert!(stderr.contains(&path.display().to_string()), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(std::fs::read(path).expect("it is there") == content, "the file was changed");
    for suffix in ["-wal", "-shm", "-journal"] {
        let mut beside = path.as_os_str().to_owned();
        beside.push(suffix);
        assert!(!Path::new(&beside).exists(), "there is a {suffix} beside it");
    }
}
