//! `postrider demo`: it shows itself, and leaves nothing behind.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{COOKIE, HOST, LOCATION, SET_COOKIE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::client::Connection;
use crate::gateway::{Launch, Process};
use crate::within;

/// How often it is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(50);

/// On a free port, with its temporary folder in `folder`.
fn launch(folder: &Path, seconds: &str) -> Launch {
    Launch::with(["demo", "--listen", "127.0.0.1:0", "--seconds", seconds])
        .variable("TMPDIR", folder)
}

/// What it prints: where it is, the path of the page that signs in, and the admin key.
async fn greeted(demo: &Process) -> (SocketAddr, String, String) {
    let link = demo.stdout.line(|line| line.contains("?once=")).await;
    let link = link.unwrap_or_else(|| panic!("it did not start: {}", demo.stderr.text()));
    let (address, path) =
        link.trim().strip_prefix("http://").and_then(|link| link.split_once('/')).expect("a URL");
    let key = demo.stdout.line(|line| line.contains("admin key")).await.expect("a key");
    let key = key.split_whitespace().last().expect("a key").to_owned();
    (address.parse().expect("an address"), format!("/{path}"), key)
}

/// A page as a browser asks for it.
async fn page(address: SocketAddr, path: &str, cookies: &str) -> Response<String> {
    within("a page", async {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
        // How it ends is seen by whoever sends on it.
        tokio::spawn(async move { drop(connection.await) });
        let request = Request::get(path).header(HOST, address.to_string()).header(COOKIE, cookies);
        let request = request.body(Full::<Bytes>::default()).expect("a valid request");
        let (parts, body) = sender.send_request(request).await.expect("an answer").into_parts();
        let body = body.collect().await.expect("a whole answer").to_bytes();
        Response::from_parts(parts, String::from_utf8_lossy(&body).into_owned())
    })
    .await
}

#[tokio::test]
async fn it_is_signed_in_to_shows_trouble_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let demo = launch(folder.path(), "10").spawn();
    let (address, link, key) = greeted(&demo).await;

    let entered = page(address, &link, "").await;
    assert_eq!(entered.status(), StatusCode::SEE_OTHER, "{}", entered.body());
    let cookie = entered.headers()[SET_COOKIE].to_str().expect("text");
    let cookie = cookie.split(';').next().expect("a cookie").to_owned();
    let next = entered.headers()[LOCATION].to_str().expect("text").to_owned();
    assert_eq!(next, "/");
    let overview = page(address, &next, &cookie).await;
    assert_eq!(overview.status(), StatusCode::OK);
    assert!(overview.body().contains("<h1"), "{}", overview.body());
    let again = page(address, &link, "").await;
    assert!(again.headers().get(SET_COOKIE).is_none(), "the link is good once");

    let mut api = Connection::open(address, &key).await.expect("it listens");
    let endpoints = api.call(Method::GET, "/v1/endpoints", String::new()).await.expect("answered");
    assert_eq!(endpoints.body["data"].as_array().map(Vec::len), Some(7), "{}", endpoints.body);
    within("a delivery that is tried again and one that is dead", async {
        loop {
            let stats = api.call(Method::GET, "/v1/stats", String::new()).await.expect("answered");
            let counts = &stats.body["deliveries"];
            let some = |state: &str| counts[state].as_u64().is_some_and(|count| count > 0);
            if ["retrying", "dead", "failed", "delivered"].into_iter().all(some) {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
    })
    .await;
    let settings = page(address, "/settings", &cookie).await;
    let inside: Vec<_> = std::fs::read_dir(folder.path()).expect("readable").collect();
    assert_eq!(inside.len(), 1, "the store is in a folder of its own");
    let path = inside[0].as_ref().expect("an entry").path();
    assert!(settings.body().contains(&path.display().to_string()), "{}", settings.body());

    let ended = demo.finished().await.expect_code(0);
    assert!(ended.stdout.contains("nothing of it is left"), "{}", ended.stdout);
    assert_eq!(ended.stderr, "", "nothing went wrong");
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "it is gone");
}

#[tokio::test]
async fn a_signal_ends_it_as_well() {
    let folder = tempfile::tempdir().expect("a folder");
    for signal in ["INT", "TERM"] {
        let demo = launch(folder.path(), "600").spawn();
        greeted(&demo).await;
        demo.signal(signal);
        demo.finished().await.expect_code(0);
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "it is gone");
    }
}

#[tokio::test]
async fn what_cannot_work_is_said_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    for (arguments, code, says) in [
        (&["demo", "--seconds", "0"][..], 2, "--seconds"),
        (&["demo", "--rate", "1000"], 2, "--rate"),
        (&["demo", "--log", "=="], 2, "--log"),
        (&["demo", "--listen", "192.0.2.1:1"], 1, "cannot listen on 192.0.2.1:1"),
    ] {
        let said = Launch::with(arguments).variable("TMPDIR", folder.path()).run().await;
        let said = said.expect_code(code).stderr;
        assert!(said.contains(says), "{said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
}
