//! What most of the receivers do: read a request, write something, and go or stay.

use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;

use crate::peer::{Exchange, Peer};
use crate::rig::PATIENCE;

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// What a receiver does once it has written its reply.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Then {
    /// Reads the next request and replies again.
    Repeat,
    /// Closes the connection.
    Close,
    /// Says nothing more until the client has gone.
    Wait,
}

pub(crate) async fn reply(reply: impl Into<Bytes>, then: Then) -> Peer {
    let reply = reply.into();
    Peer::start(async move |mut exchange: Exchange| {
        // A client that goes away in the middle has its reasons, and they are what the test sees.
        while exchange.read_request().await && exchange.stream.write_all(&reply).await.is_ok() {
            match then {
                Then::Repeat => {}
                Then::Close => return,
                Then::Wait => return exchange.until_closed().await,
            }
        }
    })
    .await
}

/// Waits until the receiver is done with this many connections. One that stays until the client has
/// gone is done when the client has closed.
pub(crate) async fn ended(peer: &Peer, connections: usize) {
    let all = async {
        for _ in 0..connections {
            peer.exchange_ended().await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, all).await;
    assert!(waited.is_ok(), "some of {connections} connections are still open");
}

/// The values of a header in all requests, in the order of arrival.
pub(crate) fn header(requests: &[String], name: &str) -> Vec<String> {
    let line = format!("{name}: ");
    let values = requests.iter().flat_map(|request| {
        request.lines().filter_map(|text| text.strip_prefix(&line).map(str::to_owned))
    });
    values.collect()
}
