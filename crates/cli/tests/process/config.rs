//! A file of settings: what goes before it, what is wrong with it, and what is shown of it.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gateway::{Finished, KEY, Launch};
use crate::sink::Sink;

const SECRET: &str = "hunter2hunter2hunter2hunter2hunter2hunter2";

/// The file, a setting, the environment; then the value, and where it comes from.
type Case = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
    &'static str,
);

fn folder(text: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(folder.path().join("postrider.toml"), text).expect("written");
    folder
}

async fn config(folder: &Path, arguments: &[&str], variables: &[(&'static str, &str)]) -> Finished {
    let launch = Launch::with(["config"]).and(arguments).in_directory(folder);
    let launch =
        variables.iter().fold(launch, |launch, (name, value)| launch.variable(name, value));
    launch.run().await
}

/// The value of a setting, and where it comes from.
async fn setting(folder: &Path, key: &str, variables: &[(&'static str, &str)]) -> (String, String) {
    let shown = config(folder, &["show", "--json"], variables).await.expect_code(0);
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let settings = shown["settings"].as_array().expect("a list");
    let found = settings.iter().find(|setting| setting["key"] == key).expect("it is listed");
    (found["value"].as_str().expect("a text").to_owned(), found["origin"].to_string())
}

#[tokio::test]
async fn a_variable_goes_before_the_file_and_the_file_before_the_default() {
    let file = r#"{"file":"postrider.toml","line":1}"#;
    let cases: [Case; 8] = [
        ("timeout = \"3s\"", "timeout", &[], "3s", file),
        (
            "timeout = \"3s\"",
            "timeout",
            &[("POSTRIDER_TIMEOUT", "4s")],
            "4s",
            r#"{"variable":"POSTRIDER_TIMEOUT"}"#,
        ),
        ("drain = \"3s\"", "timeout", &[], "15s", "\"default\""),
        ("allow_port = [81, 82]", "allow_port", &[], "81, 82", file),
        (
            "allow_port = [81, 82]",
            "allow_port",
            &[("POSTRIDER_ALLOW_PORT", "83")],
            "83",
            r#"{"variable":"POSTRIDER_ALLOW_PORT"}"#,
        ),
        ("inbox.max_attempts = 3", "inbox.max_attempts", &[], "3", file),
        (
            "inbox.max_attempts = 3",
            "inbox.max_attempts",
            &[("MAX_ATTEMPTS", "4")],
            "4",
            r#"{"variable":"MAX_ATTEMPTS"}"#,
        ),
        ("", "inbox.max_attempts", &[], "5", "\"default\""),
    ];
    for (text, key, variables, value, origin) in cases {
        let folder = folder(text);
        let found = setting(folder.path(), key, variables).await;
        assert_eq!(found, (value.to_owned(), origin.to_owned()), "{text} {variables:?}");
    }
}

#[tokio::test]
async fn the_file_is_the_one_that_is_named_or_the_one_that_is_here() {
    let here = folder("timeout = \"1s\"");
    let there = folder("timeout = \"2s\"");
    let named = there.path().join("postrider.toml");
    let named = named.to_str().expect("a path");
    let timeout = |shown: &Finished| {
        let line = shown.stdout.lines().find(|line| line.starts_with("timeout "));
        line.expect("it is listed").split_whitespace().nth(1).expect("a value").to_owned()
    };
    for (arguments, variables, expected) in [
        (&["show"][..], &[][..], "1s"),
        (&["show"], &[("POSTRIDER_CONFIG", named)], "2s"),
        (&["show", "--config", named], &[], "2s"),
        (&["--config", named, "show"], &[], "2s"),
        (&["show", "--config", "postrider.toml"], &[("POSTRIDER_CONFIG", named)], "1s"),
    ] {
        let shown = config(here.path(), arguments, variables).await.expect_code(0);
        assert_eq!(timeout(&shown), expected, "{arguments:?} {variables:?}");
    }
    let nowhere = config(here.path(), &["show", "--config", "none.toml"], &[]).await.expect_code(2);
    assert!(nowhere.stderr.contains("none.toml: cannot be read"), "{}", nowhere.stderr);
}

#[tokio::test]
async fn a_gateway_is_started_by_its_file_and_its_store_is_found_by_other_commands() {
    let folder = folder(
        "listen = \"127.0.0.1:0\"\ndata = \"elsewhere\"\nadmin_key = \"env:MY_KEY\"\n\
         allow_destination = [\"127.0.0.0/8\"]\nlog_format = \"json\"\n",
    );
    let launch = Launch::with(["serve"]).variable("MY_KEY", KEY).in_directory(folder.path());
    let gateway = launch.start().await;
    assert_ne!(gateway.address.port(), 7070);
    assert!(folder.path().join("elsewhere/postrider.db").exists());
    gateway.send(1).await;
    let stopped = gateway.stop().await;
    assert!(stopped.stderr.starts_with('{'), "{}", stopped.stderr);
    let migrated = Launch::with(["migrate", "--check"])
        .variable("MY_KEY", KEY)
        .in_directory(folder.path())
        .run()
        .await
        .expect_code(0);
    assert!(migrated.stdout.contains("elsewhere"), "{}", migrated.stdout);
    let other = Launch::with(["migrate", "--check", "--data", "nowhere"])
        .variable("MY_KEY", KEY)
        .in_directory(folder.path());
    assert!(!other.run().await.stdout.contains("elsewhere"));
}

#[tokio::test]
async fn a_broken_file_is_told_line_by_line_and_starts_nothing() {
    let folder = folder("listen = \"127.0.0.1:0\"\ndrain = 5\n\n[endpoints.a]\nuri = \"x\"\n");
    let told = [
        "postrider.toml:2: drain: must be a text in quotes, not a number",
        "postrider.toml:5: endpoints.a.uri: is not known here; did you mean url?",
    ];
    let checked = config(folder.path(), &["check"], &[]).await.expect_code(2);
    assert_eq!(checked.stderr.lines().collect::<Vec<_>>(), told);
    assert_eq!(checked.stdout, "");
    let serve = Launch::with(["serve"]).in_directory(folder.path());
    for launch in [serve, Launch::with(["migrate"]).in_directory(folder.path())] {
        let refused = launch.run().await.expect_code(2);
        assert_eq!(refused.stdout, "");
        for line in told {
            assert!(refused.stderr.contains(line), "{}", refused.stderr);
        }
    }
    let left = std::fs::read_dir(folder.path()).expect("a directory").count();
    assert_eq!(left, 1, "there is something beside the file");
    // What has nothing to do with it works.
    Launch::with(["config", "reference"]).in_directory(folder.path()).run().await.expect_code(0);
    Launch::with(["serve", "--help"]).in_directory(folder.path()).run().await.expect_code(0);
}

#[tokio::test]
async fn what_only_a_whole_start_refuses_is_told_with_its_line_as_well() {
    for (text, told) in [
        ("\nmax_in_flight = 0", "postrider.toml:2: max_in_flight: --max-in-flight must be"),
        ("timeout = \"0s\"", "postrider.toml:1: timeout: "),
        ("max_event_bytes = 0", "postrider.toml:1: max_event_bytes: "),
        ("lanes = 64", "postrider.toml:1: lanes: --lanes is about PostgreSQL"),
        ("store = \"mysql:x\"", "postrider.toml:1: store: --store: expected"),
        ("allow_command = [\"page\"]", "postrider.toml:1: allow_command: "),
    ] {
        let folder = folder(text);
        for arguments in [&["serve"][..], &["config", "check"], &["config", "show"]] {
            let launch = Launch::with(arguments).in_directory(folder.path());
            let refused = launch.run().await.expect_code(2);
            assert!(refused.stderr.contains(told), "{arguments:?}: {}", refused.stderr);
        }
        let left = std::fs::read_dir(folder.path()).expect("a directory").count();
        assert_eq!(left, 1, "{text} left something behind");
    }
}

#[tokio::test]
async fn a_sound_file_is_summed_up_and_shown_without_its_secrets() {
    let text = "\
admin_key = \"env:MY_KEY\"
store = \"env:MY_STORE\"
[sources.github]
verify = { scheme = \"github\", secret = \"file:secret\" }
[endpoints.billing]
url = \"https://billing.example.com/hooks\"
headers = { Authorization = \"env:MY_SECRET\", X-Plain = \"hunter2hunter2\" }
";
    let folder = folder(text);
    std::fs::write(folder.path().join("secret"), SECRET).expect("written");
    let key = format!("pr_{SECRET}");
    let store = format!("postgres://me:{SECRET}@db.example/hooks");
    let variables = [("MY_KEY", key.as_str()), ("MY_STORE", store.as_str()), ("MY_SECRET", SECRET)];
    let checked = config(folder.path(), &["check"], &variables).await.expect_code(0);
    assert_eq!(checked.stdout, "postrider.toml: 2 settings, 1 endpoint, 1 source: nothing wrong");
    for arguments in [&["show"][..], &["show", "--json"], &["check"]] {
        let shown = config(folder.path(), arguments, &variables).await.expect_code(0);
        let all = shown.stdout + &shown.stderr;
        assert!(!all.contains("hunter2"), "{arguments:?}: {all}");
        if arguments[0] == "show" {
            for word in ["env:MY_KEY", "env:MY_STORE", "billing", "github"] {
                assert!(all.contains(word), "{word}: {all}");
            }
        }
    }
    let help = Launch::with(["serve", "--help"]).in_directory(folder.path());
    let help = variables.iter().fold(help, |launch, (name, value)| launch.variable(name, value));
    assert!(!help.run().await.expect_code(0).stdout.contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_and_the_doctor_are_told_by_the_file_what_the_gateway_was() {
    let folder = folder(
        "listen = \"127.0.0.1:0\"\ndata = \"elsewhere\"\nsecret_key_file = \"my.key\"\n\
         allow_destination = [\"127.0.0.0/8\"]\n",
    );
    let path = folder.path();
    let key = path.join("my.key");
    std::fs::write(&key, "ab".repeat(32)).expect("written");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key, private).expect("its mode");
    let sink = Sink::accepting().await;
    let here = |arguments: &[&str]| Launch::with(arguments).in_directory(path);
    let gateway = here(&["serve"]).variable("POSTRIDER_ADMIN_KEY", KEY).start().await;
    gateway.create_endpoint(json!({ "name": "billing", "url": sink.url() })).await;

    let copied = here(&["backup", "--to", "copy.db", "--with-key"]).run().await.expect_code(0);
    assert!(copied.stdout.contains("elsewhere/postrider.db"), "{}", copied.stdout);
    let copy = std::fs::read_to_string(path.join("copy.db.key")).expect("the key of the file");
    assert_eq!(copy, "ab".repeat(32));

    let asked = here(&["doctor", "--json"])
        .variable("POSTRIDER_GATEWAY", format!("http://{}", gateway.address))
        .variable("POSTRIDER_KEY", KEY);
    let file = path.join("postrider.toml");
    let usual = std::fs::read_to_string(&file).expect("text");
    let port = sink.url().split([':', '/']).nth(4).expect("a port").to_owned();
    let cases = [
        (String::new(), "store", "ok", "elsewhere/postrider.db".to_owned()),
        (String::new(), "secret key", "ok", "every secret".to_owned()),
        (
            "max_in_flight = 1_000_000_000".to_owned(),
            "file limit",
            "",
            "1000000000 attempts".to_owned(),
        ),
        (String::new(), "destination", "ok", "reachable".to_owned()),
        (format!("deny_port = [{port}]"), "destination", "warn", "not the flags".to_owned()),
        (
            "egress_proxy = \"http://127.0.0.1:9\"".to_owned(),
            "destination",
            "ok",
            "through the proxy".to_owned(),
        ),
        ("dns_server = [\"127.0.0.1:9\"]".to_owned(), "dns", "fail", "127.0.0.1:9".to_owned()),
        ("store = \"sqlite:nowhere.db\"".to_owned(), "store", "fail", "nowhere.db".to_owned()),
    ];
    for (setting, name, status, word) in cases {
        std::fs::write(&file, format!("{usual}{setting}\n")).expect("written");
        let told = asked.run().await;
        let answer: Value = serde_json::from_str(&told.stdout).expect("JSON");
        let found = answer["checks"].as_array().expect("a list").iter().any(|check| {
            check["name"] == name
                && (status.is_empty() || check["status"] == status)
                && check["message"].as_str().is_some_and(|said| said.contains(&word))
        });
        assert!(found, "{setting}: {name} is not {status} ({word}): {answer:#}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn every_command_says_on_which_line_the_flag_was_set_that_it_complains_about() {
    let folder = folder("\nstore = \"mysql:there\"");
    for arguments in
        [&["doctor"][..], &["backup", "--to", "copy.db"], &["migrate"], &["rekey"], &["serve"]]
    {
        let refused =
            Launch::with(arguments).in_directory(folder.path()).run().await.expect_code(2);
        let said = refused.stderr;
        let told = "postrider: postrider.toml:2: store: --store: expected";
        assert!(said.starts_with(told), "{arguments:?}: {said}");
        // A flag is nobody's line.
        let by_flag = Launch::with(arguments).and(["--store", "mysql:x"]);
        let refused = by_flag.in_directory(folder.path()).run().await.expect_code(2);
        assert!(refused.stderr.starts_with("postrider: --store: "), "{}", refused.stderr);
    }
}
