//! Under a service manager: sockets that are passed in, readiness, signs of life, health checks.

use std::net::TcpListener;

use http::StatusCode;
use tokio::net::UnixDatagram;

use crate::client::Connection;
use crate::gateway::{KEY, Launch};
use crate::within;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_on_a_socket_that_is_passed_in_refuses_nobody() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("an address");
    let launch = Launch::serve(directory.path()).passing(socket.into());
    let gateway = launch.start().await;
    assert_eq!(gateway.address, address, "it listens elsewhere");
    gateway.send(1).await;
    gateway.stop().await;

    // Nobody is there to answer, and nobody is turned away.
    let mut waiting = Connection::open(address, KEY).await.expect("a connection");
    let sending = tokio::spawn(async move { waiting.send_event(2).await });
    let gateway = launch.start().await;
    let answer = within("an answer", sending).await.expect("not cancelled").expect("an answer");
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_takes_no_connections_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let launch = Launch::serve(directory.path()).passing(socket.into());
    let finished = launch.run().await.expect_code(2);
    assert!(finished.stderr.contains("no TCP listener"), "{}", finished.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_manager_hears_of_readiness_of_life_and_of_the_stop() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = directory.path().join("notify");
    let manager = UnixDatagram::bind(&place).expect("a socket");
    let heard = async |word: &str| {
        let mut message = [0; 1024];
        loop {
            let length = manager.recv(&mut message).await.expect("a message");
            let text = String::from_utf8_lossy(&message[..length]);
            if text.lines().any(|line| line == word) {
                return;
            }
        }
    };
    let launch = Launch::serve(directory.path())
        .variable("NOTIFY_SOCKET", &place)
        .variable("WATCHDOG_USEC", "100000");
    let gateway = launch.start().await;
    within("readiness", heard("READY=1")).await;
    for _ in 0..3 {
        within("a sign of life", heard("WATCHDOG=1")).await;
    }
    gateway.process.signal("TERM");
    within("word of the stop", heard("STOPPING=1")).await;
    gateway.process.finished().await.expect_code(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_health_check_needs_nothing_but_the_binary() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let gateway = Launch::serve(directory.path()).start().await;
    let url = format!("http://{}", gateway.address);
    let ask = Launch::with(["health", "--gateway", url.as_str()]);
    let finished = ask.run().await.expect_code(0);
    assert_eq!(finished.stdout.trim(), "ready");
    gateway.stop().await;
    let finished = ask.run().await.expect_code(1);
    assert!(finished.stderr.contains("does not answer"), "{}", finished.stderr);
    Launch::with(["health", "--gateway", "gateway"]).run().await.expect_code(2);
}
