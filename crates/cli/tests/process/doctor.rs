//! `postrider doctor`: says what is wrong, and changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use crate::cluster::{Cluster, Disk};
use crate::gateway::{Finished, KEY, Launch};
use crate::name_server::{NXDOMAIN, NameServer};
use crate::sink::Sink;

fn doctor(data: &Path) -> Launch {
    Launch::with(["doctor", "--json", "--data"]).and([data])
}

fn asking(data: &Path, address: SocketAddr) -> Launch {
    doctor(data)
        .variable("POSTRIDER_GATEWAY", format!("http://{address}"))
        .variable("POSTRIDER_KEY", KEY)
        .variable("POSTRIDER_ALLOW_DESTINATION", "127.0.0.0/8")
}

/// The status of the checks with this name, and what they say.
fn told(done: &Finished, name: &str) -> Vec<(String, String)> {
    let answer: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let checks = answer["checks"].as_array().expect("a list");
    let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
    for check in checks {
        let advised = check["advice"].is_string();
        assert_eq!(
            advised,
            check["status"] != "ok",
            "what to do, unless there is nothing: {check}"
        );
    }
    let named = checks.iter().filter(|check| check["name"] == name);
    named.map(|check| (text(check, "status"), text(check, "message"))).collect()
}

/// What to do about the first of the checks with this name.
fn advice(done: &Finished, name: &str) -> String {
    let answer: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let mut checks = answer["checks"].as_array().expect("a list").iter();
    let found = checks.find(|check| check["name"] == name).expect("it was looked at");
    found["advice"].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn expect(done: &Finished, name: &str, status: &str, word: &str) {
    let told = told(done, name);
    let found = told.iter().any(|(found, says)| found == status && says.contains(word));
    assert!(found, "{name} is not {status} ({word}): {told:?}");
}

fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).expect("listed");
    let read = |path: PathBuf| (path.clone(), fs::read(path).expect("readable"));
    entries.map(|entry| read(entry.expect("an entry").path())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_gateway_is_found_healthy() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path();
    let sink = Sink::accepting().await;
    let gateway = Launch::serve(data).start().await;
    gateway.create_endpoint(json!({ "name": "billing", "url": sink.url() })).await;
    gateway.create_endpoint(json!({ "name": "workers", "pull": true })).await;
    let done = asking(data, gateway.address).run().await.expect_code(0);
    for (name, word) in [
        ("store", "private"),
        ("schema", "this program's"),
        ("integrity", "sound"),
        ("secret key", "every secret"),
        ("clock", "UTC"),
        ("gateway", "alive"),
        ("gateway clock", "agrees"),
        ("ready", "store"),
        ("version", env!("CARGO_PKG_VERSION")),
        ("api key", "takes it"),
        ("backlog", "0 deliveries"),
        ("endpoints", "none of 2"),
        ("breakers", "none"),
        ("destination", "billing"),
    ] {
        expect(&done, name, "ok", word);
    }
    assert_eq!(told(&done, "destination").len(), 1);
    assert!(sink.arrivals().is_empty(), "nothing is sent");
    assert!(!done.stdout.contains(KEY));
    let people = Launch::with(["doctor", "--data"]).and([data]).run().await.expect_code(0);
    assert!(people.stdout.contains("POSTRIDER_KEY"), "what was not looked at: {}", people.stdout);
    assert!(people.stdout.contains(" 0 failed"), "{}", people.stdout);
}

#[tokio::test]
async fn a_store_at_rest_is_looked_at_and_not_touched() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path();
    let gateway = Launch::serve(data).start().await;
    gateway.create_endpoint(json!({ "url": "https://example.com/hook" })).await;
    gateway.send(1).await;
    gateway.stop().await;
    let before = contents(data);
    let done = doctor(data).run().await.expect_code(0);
    expect(&done, "integrity", "ok", "sound");
    expect(&done, "gateway", "warn", "not looked at");
    assert_eq!(contents(data), before);

    fs::rename(data.join("postrider.key"), data.join("lost.key")).expect("renamed");
    let done = doctor(data).run().await.expect_code(1);
    expect(&done, "secret key", "fail", "missing");
    assert!(!data.join("postrider.key").exists(), "none is made");
    let other = doctor(data).variable("POSTRIDER_SECRET_KEY", "cd".repeat(32));
    expect(&other.run().await.expect_code(1), "secret key", "fail", "not the right one");

    let set = fs::Permissions::from_mode;
    fs::set_permissions(data.join("postrider.db"), set(0o644)).expect("its mode");
    expect(&doctor(data).run().await.expect_code(1), "store", "warn", "0644");
    let damaged = data.join("postrider.db");
    let mut bytes = fs::read(&damaged).expect("readable");
    for start in (16_384..bytes.len()).step_by(8_192) {
        bytes[start..start + 8].fill(0xff);
    }
    fs::write(&damaged, bytes).expect("written");
    expect(&doctor(data).run().await.expect_code(1), "integrity", "fail", "damaged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_destinations_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let nobody = silent.local_addr().expect("bound");
    drop(silent);
    let sink = Sink::accepting().await;
    let gateway = Launch::serve(data).start().await;
    gateway.create_endpoint(json!({ "name": "gone", "url": format!("http://{nobody}/") })).await;
    let plain = sink.url().replace("http://", "https://");
    gateway.create_endpoint(json!({ "name": "plain", "url": plain })).await;
    let done = asking(data, gateway.address).run().await.expect_code(1);
    expect(&done, "destination", "fail", "gone");
    expect(&done, "destination", "fail", "(TLS)");
    let told_less = asking(data, gateway.address).without("POSTRIDER_ALLOW_DESTINATION");
    let done = told_less.run().await.expect_code(0);
    expect(&done, "destination", "warn", "not the flags given here");

    // The gateway itself judges by other rules after another start.
    gateway.stop().await;
    let strict = Launch::with(["serve", "--listen", "127.0.0.1:0"]).with_data(data);
    let gateway = strict.variable("POSTRIDER_ADMIN_KEY", KEY).start().await;
    let done = asking(data, gateway.address).run().await.expect_code(1);
    expect(&done, "destination", "fail", "the gateway's guard refuses it");
}

#[tokio::test]
async fn a_gateway_that_is_away_or_refuses_is_a_failure() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path();
    let gateway = Launch::serve(data).start().await;
    let address = gateway.address;
    let done = asking(data, address).variable("POSTRIDER_KEY", "pr_not_this_one").run().await;
    expect(&done.expect_code(1), "api key", "fail", "401");
    let names = NameServer::start(|_| NXDOMAIN).await;
    let server = asking(data, address).and(["--dns-server", &names.address.to_string()]);
    expect(&server.run().await.expect_code(0), "dns", "ok", &names.address.to_string());
    assert!(names.questions() > 0);
    let closed =
        TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let server = asking(data, address).and(["--dns-server", &closed.to_string()]);
    expect(&server.run().await.expect_code(1), "dns", "fail", &closed.to_string());
    gateway.stop().await;
    let done = asking(data, address).run().await.expect_code(1);
    expect(&done, "gateway", "fail", "does not answer");
    let missing = doctor(&data.join("elsewhere")).run().await.expect_code(1);
    expect(&missing, "store", "fail", "there is no database");
    let nowhere = Launch::with(["doctor", "--json"]).in_directory(data).run().await.expect_code(0);
    expect(&nowhere, "store", "warn", "there is no database");
    let wrong = doctor(data).and(["--store", "mysql://here"]).run().await.expect_code(2);
    assert!(wrong.stderr.contains("--store"), "{}", wrong.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_asked_for_its_schema_and_its_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path();
    let cluster = Cluster::start(Disk::Trusted, "");
    let database = cluster.database();
    let gateway = Launch::serve(data).variable("POSTRIDER_STORE", &database).start().await;
    let asking = asking(data, gateway.address);
    let done = asking.clone().variable("POSTRIDER_STORE", &database).run().await.expect_code(0);
    for (name, word) in [
        ("store", "answers"),
        ("schema", "this program's"),
        ("database clock", "agrees"),
        ("secret key", "the one of this database"),
        ("nodes", "every lane"),
    ] {
        expect(&done, name, "ok", word);
    }
    // Without a key there is nothing that a node could start with.
    let keyless = doctor(&data.join("elsewhere"));
    let done = keyless.variable("POSTRIDER_STORE", &database).run().await.expect_code(0);
    expect(&done, "secret key", "warn", "postrider.key is missing");
    assert!(advice(&done, "secret key").contains("key file of another node"), "{}", done.stdout);
    let other = asking.clone().variable("POSTRIDER_STORE", &database);
    let other = other.variable("POSTRIDER_SECRET_KEY", "cd".repeat(32)).run().await.expect_code(1);
    expect(&other, "secret key", "fail", "not the right one");
    let nowhere = "postgres://me:hunter2@127.0.0.1:1/hooks";
    let done = asking.variable("POSTRIDER_STORE", nowhere).run().await.expect_code(1);
    expect(&done, "store", "fail", "cannot be reached");
    assert!(!done.stdout.contains("hunter2"), "{}", done.stdout);
}

/// Whoever listens behind a certificate that nobody vouches for.
async fn unvouched() -> SocketAddr {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]);
    let made = made.expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config =
        ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a server");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Whoever dials hangs up.
            drop(acceptor.accept(stream).await);
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_nobody_vouches_for_is_named_as_what_is_wrong() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path();
    let address = unvouched().await;
    let gateway = Launch::serve(data).start().await;
    let url = format!("https://{address}/hook?token=hunter2");
    gateway.create_endpoint(json!({ "name": "billing", "url": url })).await;
    let done = asking(data, gateway.address).run().await.expect_code(1);
    expect(&done, "destination", "fail", "(TLS)");
    expect(&done, "destination", "fail", "certificate");
    assert!(advice(&done, "destination").contains("certificate"), "{}", done.stdout);
    assert!(!done.stdout.contains("hunter2"), "{}", done.stdout);

    // The same in front of the gateway itself.
    let place = format!("https://{address}");
    let done = asking(data, address).variable("POSTRIDER_GATEWAY", place).run().await;
    let done = done.expect_code(1);
    expect(&done, "gateway", "fail", "certificate");
    assert!(advice(&done, "gateway").contains("certificate"), "{}", done.stdout);
    gateway.stop().await;
}
