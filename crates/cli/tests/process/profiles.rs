//! Profiles, completions and manual pages: what the command line keeps and prints for itself.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::gateway::{KEY, Launch};

const OTHER_KEY: &str = "pr_zyxwvutsrqponmlkjihgfedcba9876543210";

/// A user with a home of their own.
struct User {
    home: tempfile::TempDir,
}

impl User {
    fn new() -> Self {
        Self { home: tempfile::tempdir().expect("a temporary directory") }
    }

    fn does(&self, arguments: &[&str]) -> Launch {
        Launch::with(arguments).variable("HOME", self.home.path())
    }

    async fn shown(&self, arguments: &[&str]) -> String {
        self.does(arguments).run().await.expect_code(0).stdout
    }

    async fn refused(&self, arguments: &[&str]) -> String {
        self.does(arguments).run().await.expect_code(2).stderr
    }

    fn file(&self) -> PathBuf {
        self.home.path().join(".config/postrider/profiles.toml")
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("it is there").permissions().mode() & 0o777
}

#[tokio::test]
async fn keys_are_kept_where_only_their_owner_reads_and_shown_by_their_beginning() {
    let user = User::new();
    assert!(user.shown(&["profile", "list"]).await.contains("profile add"));
    let add = ["profile", "add", "prod", "--gateway", "https://hooks.example.com/", "--key", KEY];
    assert!(!user.shown(&add).await.contains(KEY));
    let file = user.file();
    let directory = file.parent().expect("a directory");
    assert_eq!((mode(&file), mode(directory)), (0o600, 0o700));

    let add = ["profile", "add", "test", "--gateway", "http://127.0.0.1:9", "--tenant", "acme"];
    let kept = user.does(&add).variable("POSTRIDER_KEY", OTHER_KEY).run().await.expect_code(0);
    assert!(!kept.stdout.contains("default"), "{}", kept.stdout);
    assert_eq!(mode(&file), 0o600);

    let listed = user.shown(&["profile", "list"]).await;
    assert!(listed.contains("prod *") && listed.contains("acme"), "{listed}");
    assert!(listed.contains("pr_012…") && listed.contains("pr_zyx…"), "{listed}");
    let json: Value =
        serde_json::from_str(&user.shown(&["profile", "list", "--json"]).await).expect("JSON");
    let prod = json!({
        "name": "prod", "gateway": "https://hooks.example.com", "key": "pr_012…", "tenant": null,
        "default": true,
    });
    assert_eq!(json["data"][0], prod);
    assert!(user.shown(&["profile", "use", "test"]).await.contains("test"));
    let shown = user.shown(&["profile", "show"]).await;
    assert!(shown.contains("test") && shown.contains("acme"), "{shown}");
    for shown in [listed, shown, json.to_string()] {
        assert!(!shown.contains(&KEY[..8]) && !shown.contains(&OTHER_KEY[..8]), "{shown}");
    }

    assert!(user.refused(&["profile", "remove", "test"]).await.contains("--yes"));
    user.shown(&["profile", "remove", "test", "--yes"]).await;
    assert!(user.refused(&["profile", "show", "test"]).await.contains("prod"));
    assert!(user.refused(&["profile", "show"]).await.contains("default"));
    assert!(!std::fs::read_to_string(&file).expect("text").contains(OTHER_KEY));
}

#[tokio::test]
async fn a_key_is_read_from_standard_input() {
    let user = User::new();
    let mut add = Command::new(env!("CARGO_BIN_EXE_postrider"))
        .args(["profile", "add", "prod", "--gateway", "https://hooks.example.com", "--key", "-"])
        .env_clear()
        .env("XDG_CONFIG_HOME", user.home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary starts");
    writeln!(add.stdin.take().expect("piped"), "{KEY}").expect("it reads");
    assert!(add.wait().expect("it ends").success());
    let file = user.home.path().join("postrider/profiles.toml");
    assert!(std::fs::read_to_string(file).expect("text").contains(&format!("{KEY:?}")));
}

#[tokio::test]
async fn a_file_that_others_can_read_is_refused() {
    let user = User::new();
    let add = ["profile", "add", "prod", "--gateway", "http://127.0.0.1:1", "--key", KEY];
    user.shown(&add).await;
    std::fs::set_permissions(user.file(), Permissions::from_mode(0o644)).expect("changed");
    for arguments in [
        &["profile", "list"][..],
        &["profile", "use", "prod"],
        &["endpoints", "list"],
        &["endpoints", "list", "--profile", "prod"],
    ] {
        let why = user.refused(arguments).await;
        assert!(why.contains("chmod 600") && why.contains("0644"), "{arguments:?}: {why}");
        assert!(!why.contains(KEY), "{why}");
    }
    assert_eq!(mode(&user.file()), 0o644, "it is left for its owner to look at");
    // Whoever says everything needs no profile.
    let said = ["endpoints", "list", "--gateway", "http://127.0.0.1:1", "--key", KEY];
    user.does(&said).run().await.expect_code(1);
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused() {
    let user = User::new();
    for (arguments, word) in [
        (&["profile", "add", "a b", "--gateway", "http://a"][..], "letters"),
        (&["profile", "add", "a", "--gateway", "nowhere"], "URL"),
        (&["profile", "add", "a", "--gateway", "http://a", "--key", "pr hunter2"], "the key"),
        (&["profile", "use", "a"], "profile add a"),
        (&["profile", "remove", "a", "--yes"], "no profile"),
        (&["endpoints", "list"], "profile add"),
    ] {
        let why = user.refused(arguments).await;
        assert!(why.contains(word) && !why.contains("hunter2"), "{arguments:?}: {why}");
        assert!(!user.file().exists(), "{arguments:?} left something behind");
    }
    user.shown(&["profile", "add", "a", "--gateway", "http://a"]).await;
    let again = ["profile", "add", "a", "--gateway", "http://b"];
    assert!(user.refused(&again).await.contains("--replace"));
    user.shown(&["profile", "add", "a", "--gateway", "http://b", "--replace"]).await;
    assert!(user.shown(&["profile", "show", "a"]).await.contains("http://b"));
    let homeless = Launch::with(["profile", "list"]).run().await.expect_code(2);
    assert!(homeless.stderr.contains("HOME"), "{}", homeless.stderr);
}

#[tokio::test]
async fn flags_win_over_variables_and_those_over_the_profile() {
    let [one, other] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let first = Launch::serve(one.path()).start().await;
    let launch = Launch::serve(other.path()).variable("POSTRIDER_ADMIN_KEY", OTHER_KEY);
    let second = launch.start().await;
    let [here, there] = [&first, &second].map(|gateway| format!("http://{}", gateway.address));
    let user = User::new();
    user.shown(&["profile", "add", "here", "--gateway", &here, "--key", KEY]).await;
    user.shown(&["profile", "add", "there", "--gateway", &there, "--key", OTHER_KEY]).await;
    user.shown(&["hubs", "create", "first-hub"]).await;
    user.shown(&["hubs", "create", "second-hub", "--profile", "there"]).await;

    let list = ["hubs", "list"];
    let expect = async |launch: Launch, hub: &str| {
        let shown = launch.run().await.expect_code(0).stdout;
        assert!(shown.contains(hub), "{hub} is missing in\n{shown}");
    };
    expect(user.does(&list), "first-hub").await;
    expect(user.does(&list).variable("POSTRIDER_PROFILE", "there"), "second-hub").await;
    let flag = user.does(&list).and(["--profile", "here"]);
    expect(flag.variable("POSTRIDER_PROFILE", "there"), "first-hub").await;
    let variables =
        user.does(&list).variable("POSTRIDER_GATEWAY", &there).variable("POSTRIDER_KEY", OTHER_KEY);
    expect(variables.clone(), "second-hub").await;
    expect(variables.and(["--gateway", &here, "--key", KEY]), "first-hub").await;

    // The key of the usual gateway is for no other.
    let elsewhere = user.does(&list).and(["--gateway", &there]).run().await.expect_code(2);
    assert!(elsewhere.stderr.contains("a key is needed"), "{}", elsewhere.stderr);
    let wrong = user.does(&list).and(["--key", OTHER_KEY]).run().await.expect_code(2);
    assert!(wrong.stderr.contains("401"), "{}", wrong.stderr);
}

#[tokio::test]
async fn shells_are_taught_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Launch::with(["completions", shell]).run().await.expect_code(0).stdout;
        for word in ["endpoints", "rotate-secret", "completions", "profile", "gateway"] {
            assert!(script.contains(word), "{shell}: {word} is missing");
        }
        if shell == "bash" {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let file = directory.path().join("postrider.bash");
            std::fs::write(&file, script).expect("a file");
            let read = Command::new("bash").arg("-n").arg(&file).output().expect("bash runs");
            let errors = String::from_utf8_lossy(&read.stderr);
            assert!(read.status.success() && errors.is_empty(), "{errors}");
        }
    }
    Launch::with(["completions", "tcsh"]).run().await.expect_code(2);
}

#[tokio::test]
async fn there_is_a_manual_page_for_every_command() {
    let page = Launch::with(["man"]).run().await.expect_code(0).stdout;
    assert!(page.contains(".TH postrider 1") && page.contains("endpoints"), "{page}");
    let page = Launch::with(["man", "endpoints", "create"]).run().await.expect_code(0).stdout;
    assert!(page.contains(".TH postrider-endpoints-create 1"), "{page}");
    assert!(page.contains("EXTRA"), "{page}");
    let refused = Launch::with(["man", "endpoints", "fly"]).run().await.expect_code(2).stderr;
    assert!(refused.contains("postrider endpoints"), "{refused}");

    let directory = tempfile::tempdir().expect("a temporary directory");
    let to = directory.path().join("man1");
    let written = Launch::with(["man", "--to"]).and([&to]).run().await.expect_code(0).stdout;
    let pages: Vec<String> = std::fs::read_dir(&to)
        .expect("a directory")
        .map(|page| page.expect("a page").file_name().into_string().expect("text"))
        .collect();
    assert!(written.contains(&format!("{} pages", pages.len())), "{written}");
    for page in ["postrider.1", "postrider-serve.1", "postrider-endpoints-rotate-secret.1"] {
        assert!(pages.iter().any(|name| name == page), "{page} is missing in {pages:?}");
    }
    let hidden = |name: &String| name == "postrider-reference.1" || name.contains("-help");
    assert!(!pages.iter().any(hidden), "{pages:?}");
}
