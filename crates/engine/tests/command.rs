//! Endpoints that run a program: what it is given, what its end means, and that nothing of it is
//! left.

#[allow(dead_code, reason = "other tests use the rest of it")]
mod rig;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use postrider_core::endpoint::{Destination, Spec};
use postrider_core::{Class, State, TenantId};
use postrider_engine::notices::{Notice, NoticeKind};
use postrider_engine::{Acting, Engine, Options, Private};
use postrider_store::record::{Attempt, DeliveryRecord};
use tempfile::TempDir;

fn program(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
    path
}

fn running(program: &Path, arguments: &[&str], timeout: Duration) -> Spec {
    let words = std::iter::once(program.to_str().expect("text")).chain(arguments.iter().copied());
    Spec {
        destination: Destination::Command(words.map(str::to_owned).collect()),
        timeout: Some(timeout),
        ..rig::spec(String::new(), "run.it")
    }
}

/// Delivers one event to an endpoint of this spec and returns what became of it.
async fn deliver(engine: &Engine, spec: Spec) -> (DeliveryRecord, Attempt) {
    let mut notices = engine.notices().subscribe();
    rig::create(engine, spec).await;
    let event = rig::send_bodies(engine, "run.it", vec![Bytes::from_static(b"the body")]).await[0];
    let settled = async {
        loop {
            let notice: std::sync::Arc<Notice> = notices.recv().await.expect("the engine goes on");
            match notice.kind {
                NoticeKind::Delivered
                | NoticeKind::RetryScheduled
                | NoticeKind::Failed
                | NoticeKind::Dead => break,
                NoticeKind::Cancelled
                | NoticeKind::EndpointDisabled
                | NoticeKind::BreakerOpened
                | NoticeKind::BreakerClosed
                | NoticeKind::SignatureFailed
                | NoticeKind::HubConnected
                | NoticeKind::HubDisconnected => {}
            }
        }
    };
    tokio::time::timeout(rig::PATIENCE, settled).await.expect("the attempt ends");
    let store = engine.store();
    let records = store.event_deliveries(TenantId::DEFAULT, event).await.expect("readable");
    let attempts = store.attempts(records[0].id).await.expect("readable");
    (records[0].clone(), attempts[0].clone())
}

async fn engine_allowing(programs: &[&Path]) -> (Engine, TempDir) {
    let allowed_commands = programs.iter().map(|program| program.to_path_buf()).collect();
    rig::start_with(Options { allowed_commands, ..Options::default() }).await
}

#[tokio::test]
async fn a_program_gets_the_body_the_facts_and_nothing_else() {
    let folder = TempDir::new().expect("a folder");
    let shows = program(&folder, "shows", "cat; echo; echo \"$1\"; env | sort");
    let (engine, _data) = engine_allowing(&[&shows]).await;
    let argument = "$(touch /tmp/never); *";
    let (record, attempt) =
        deliver(&engine, running(&shows, &[argument], Duration::from_secs(20))).await;
    assert_eq!(record.state, State::Delivered);
    let printed = attempt.response.expect("it printed something").body;
    let printed = String::from_utf8(printed.to_vec()).expect("text");
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some("the body"));
    assert_eq!(lines.next(), Some(argument), "no shell reads the arguments");
    let names: Vec<&str> = lines.filter_map(|line| line.split('=').next()).collect();
    let ours = |name: &&&str| name.starts_with("POSTRIDER_");
    assert_eq!(names.iter().filter(ours).count(), 8, "{printed}");
    let shells_own = ["OLDPWD", "PATH", "PWD", "SHLVL", "_"];
    let others: Vec<_> =
        names.iter().filter(|name| !ours(name) && !shells_own.contains(name)).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(printed.contains("POSTRIDER_EVENT_TYPE=run.it\n"), "{printed}");
    assert!(printed.contains(&format!("POSTRIDER_DELIVERY_ID={}\n", record.id)), "{printed}");
    assert!(printed.contains("POSTRIDER_ATTEMPT=1\n"), "{printed}");
}

#[tokio::test]
async fn the_exit_code_says_what_comes_next() {
    let folder = TempDir::new().expect("a folder");
    let ends = program(&folder, "ends", "echo \"no room for $1\" >&2; exit \"$1\"");
    for (code, state, class) in [
        ("0", State::Delivered, None),
        ("75", State::Retrying, Some(Class::Retryable)),
        ("69", State::Retrying, Some(Class::Retryable)),
        ("65", State::Failed, Some(Class::Final)),
        ("78", State::Failed, Some(Class::Final)),
        ("1", State::Retrying, Some(Class::Retryable)),
    ] {
        let (engine, _data) = engine_allowing(&[&ends]).await;
        let (record, attempt) =
            deliver(&engine, running(&ends, &[code], Duration::from_secs(20))).await;
        assert_eq!((record.state, record.class), (state, class), "{code}");
        assert_eq!(attempt.status, None);
        let expected = class.map(|_| format!("exit code {code}: no room for {code}"));
        assert_eq!(attempt.error, expected);
    }
}

#[tokio::test]
async fn at_the_deadline_everything_it_started_is_killed() {
    let folder = TempDir::new().expect("a folder");
    let pid = folder.path().join("pid");
    let text = format!("sleep 1000 & echo $! > {}; sleep 1000", pid.display());
    let lingers = program(&folder, "lingers", &text);
    let (engine, _data) = engine_allowing(&[&lingers]).await;
    let (record, attempt) = deliver(&engine, running(&lingers, &[], Duration::from_secs(1))).await;
    assert_eq!(record.state, State::Retrying);
    assert_eq!(attempt.error.as_deref(), Some("did not end within 1s and was killed"));
    let child = std::fs::read_to_string(&pid).expect("it had started one");
    let gone = || {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        // A dead process whose parent has not looked after it yet is no more than its name.
        status.map_or(true, |status| status.contains(") Z "))
    };
    let dies = async {
        while !gone() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(rig::PATIENCE, dies).await.expect("the child is killed too");
}

#[tokio::test]
async fn output_without_end_is_bounded_and_input_need_not_be_read() {
    let folder = TempDir::new().expect("a folder");
    let text = "exec <&-; head -c 10000000 /dev/zero; head -c 10000000 /dev/zero >&2; exit 3";
    let floods = program(&folder, "floods", text);
    let (engine, _data) = engine_allowing(&[&floods]).await;
    let (_, attempt) = deliver(&engine, running(&floods, &[], Duration::from_secs(20))).await;
    let response = attempt.response.expect("it printed something");
    assert_eq!(response.body.len(), 16 << 10);
    assert!(response.truncated);
    assert!(attempt.error.is_some_and(|error| error.len() < 1_000));
}

#[tokio::test]
async fn only_what_is_allowed_by_its_whole_path_is_run() {
    let folder = TempDir::new().expect("a folder");
    let allowed = program(&folder, "allowed", "exit 0");
    let other = program(&folder, "other", "exit 0");
    let (engine, _data) = engine_allowing(&[&allowed]).await;
    let around = folder.path().join("./x/../other");
    for program in [other.as_path(), Path::new("allowed"), Path::new("sh"), &around] {
        let spec = running(program, &[], Duration::from_secs(1));
        let acting = Acting::gateway(TenantId::DEFAULT);
        let refused = engine.create_endpoint(acting, spec, Private::default()).await;
        let error = refused.expect_err("refused").to_string();
        assert!(error.contains("--allow-command"), "{error}");
    }
}
