//! `postrider policy`, `--help` and `--version`: what it says of itself.

use crate::gateway::Launch;

#[tokio::test]
async fn a_policy_is_shown_attempt_by_attempt() {
    let shown = Launch::with(["policy", "show", "router"]).run().await.expect_code(0);
    assert_eq!(shown.stderr, "");
    let rows = [
        ["1", "0s", "0s", "0s"],
        ["2", "30s", "30s", "30s"],
        ["3", "2m", "2m30s", "2m30s"],
        ["4", "10m", "12m30s", "12m30s"],
        ["5", "1h", "1h12m30s", "1h12m30s"],
    ];
    for row in rows {
        assert!(has_row(&shown.stdout, &row), "{row:?} is missing in\n{}", shown.stdout);
    }
    assert!(shown.stdout.contains("5 attempts"), "{}", shown.stdout);
    assert!(shown.stdout.contains("exhausted"), "{}", shown.stdout);
}

#[tokio::test]
async fn every_preset_that_is_listed_can_be_shown() {
    let listed = Launch::with(["policy", "list"]).run().await.expect_code(0);
    let names: Vec<&str> =
        listed.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["standard", "inbox", "dispatch", "runs", "edge", "router"]);
    for name in names {
        let shown = Launch::with(["policy", "show", name]).run().await.expect_code(0);
        assert!(shown.stdout.starts_with(name), "{}", shown.stdout);
    }
}

#[tokio::test]
async fn an_unknown_policy_is_refused_with_the_names_of_those_there_are() {
    let refused = Launch::with(["policy", "show", "nope"]).run().await.expect_code(2);
    assert_eq!(refused.stdout, "");
    for name in ["nope", "standard", "inbox", "dispatch", "runs", "edge", "router"] {
        assert!(refused.stderr.contains(name), "{name} is missing in {}", refused.stderr);
    }
}

#[tokio::test]
async fn the_environment_changes_the_inbox_policy_and_no_other() {
    let show = |name| Launch::with(["policy", "show", name]);
    let usual = show("inbox").run().await.expect_code(0).stdout;
    for row in [["2", "10s"], ["3", "20s"], ["4", "40s"], ["5", "1m20s"]] {
        assert!(has_row(&usual, &row), "{row:?} is missing in\n{usual}");
    }
    assert!(!has_row(&usual, &["6"]), "{usual}");

    let changed = |launch: Launch| {
        launch
            .variable("RETRY_BASE_DELAY", "3s")
            .variable("RETRY_MAX_DELAY", "20s")
            .variable("MAX_ATTEMPTS", "6")
    };
    let inbox = changed(show("inbox")).run().await.expect_code(0).stdout;
    for row in [["2", "6s"], ["3", "12s"], ["4", "20s"], ["6", "20s"]] {
        assert!(has_row(&inbox, &row), "{row:?} is missing in\n{inbox}");
    }
    assert!(!has_row(&inbox, &["7"]), "{inbox}");
    let usual = show("router").run().await.expect_code(0).stdout;
    let router = changed(show("router")).run().await.expect_code(0).stdout;
    assert_eq!(router, usual);

    for name in ["RETRY_BASE_DELAY", "RETRY_MAX_DELAY", "MAX_ATTEMPTS"] {
        let refused = show("inbox").variable(name, "soon").run().await.expect_code(2);
        assert!(refused.stderr.contains(name), "{}", refused.stderr);
    }
}

#[tokio::test]
async fn help_and_version_say_what_matters() {
    let version = Launch::with(["--version"]).run().await.expect_code(0);
    assert_eq!(version.stdout, concat!("postrider ", env!("CARGO_PKG_VERSION")));

    let help = Launch::with(["--help"]).run().await.expect_code(0);
    for word in ["serve", "policy", "nodes", "migrate", "--version", "Exit codes"] {
        assert!(help.stdout.contains(word), "{word} is missing in\n{}", help.stdout);
    }
    let help = Launch::with(["serve", "--help"]).run().await.expect_code(0);
    let words = [
        "--listen",
        "--data",
        "--store",
        "--allow-destination",
        "--log-format",
        "--timeout",
        "--drain",
        "POSTRIDER_LISTEN",
        "POSTRIDER_ADMIN_KEY",
        "127.0.0.1:7070",
        "sqlite:PATH",
        "RETRY_BASE_DELAY",
        "MAX_ATTEMPTS",
        "SIGTERM",
        "admin key",
        "/v1/events",
        "PostgreSQL:",
        "--node-name",
        "--lease",
        "--lanes",
        "--writers",
        "connections in all",
        "postrider nodes",
    ];
    for word in words {
        assert!(help.stdout.contains(word), "{word} is missing in\n{}", help.stdout);
    }
}

#[tokio::test]
async fn the_help_of_a_command_says_what_its_exit_codes_mean() {
    for (command, words) in [
        ("nodes", ["--watch", "--json", "--gateway", "Exit codes", "carried by nobody"]),
        ("migrate", ["--check", "--store", "while nodes run", "Exit codes", "3 with --check"]),
    ] {
        let help = Launch::with([command, "--help"]).run().await.expect_code(0).stdout;
        // However it is broken into lines.
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for word in words {
            assert!(help.contains(word), "{word} is missing in\n{help}");
        }
    }
}

#[tokio::test]
async fn a_secret_in_the_environment_is_not_in_the_help() {
    let help = Launch::with(["serve", "--help"])
        .variable("POSTRIDER_ADMIN_KEY", crate::gateway::KEY)
        .run()
        .await
        .expect_code(0);
    assert!(!help.stdout.contains(crate::gateway::KEY), "{}", help.stdout);
}

#[tokio::test]
async fn without_a_command_it_explains_itself() {
    let finished = Launch::default().run().await.expect_code(2);
    assert!(finished.stderr.contains("Usage"), "{}", finished.stderr);
}

/// Whether a line begins with these columns.
fn has_row(text: &str, columns: &[&str]) -> bool {
    text.lines().any(|line| {
        let mut words = line.split_whitespace();
        columns.iter().all(|column| words.next() == Some(*column))
    })
}
