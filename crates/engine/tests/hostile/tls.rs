//! Receivers that speak TLS badly, or as somebody they are not.
//!
//! A revoked certificate is refused by a list that the operator gives; nobody is asked for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::CertificateDer;
use tokio::io::AsyncWriteExt as _;

use crate::certificate::{Authority, Leaf, Validity};
use crate::gateway::{Gateway, HUNDRED, Visit};
use crate::peer::{Exchange, Peer};
use crate::script::{OK, ended};
use crate::story::{Expected, check};

const TLS_1_0: [u8; 2] = [3, 1];
const TLS_1_1: [u8; 2] = [3, 2];
const TLS_1_2: [u8; 2] = [3, 3];
const RSA_WITH_RC4: [u8; 2] = [0, 5];
const RSA_WITH_AES: [u8; 2] = [0, 0x2f];

const FAILED: Expected<'_> = Expected::NoAnswer { error: "TLS handshake with 127.0.0.1 at " };

/// R36
pub(crate) async fn unacceptable(gateway: &Gateway) {
    old_fashioned(gateway).await;
    not_who_they_should_be(gateway).await;
}

async fn old_fashioned(gateway: &Gateway) {
    for first_words in [
        server_hello(TLS_1_0, RSA_WITH_AES),
        server_hello(TLS_1_1, RSA_WITH_AES),
        server_hello(TLS_1_2, RSA_WITH_RC4),
        // What a receiver that speaks nothing newer than TLS 1.1 says to a client that does not.
        vec![21, 3, 2, 0, 2, 2, 70],
        OK.as_bytes().to_vec(),
    ] {
        let peer = Peer::start(async move |mut exchange: Exchange| {
            if exchange.stream.write_all(&first_words).await.is_ok() {
                exchange.until_closed().await;
            }
        })
        .await;
        check(&gateway.hundred(Visit::to(secured(&peer))).await, &FAILED);
        assert_eq!(peer.connections(), HUNDRED);
    }
}

async fn not_who_they_should_be(gateway: &Gateway) {
    let stranger = Authority::new();
    let mut endless = gateway.authority.issue("127.0.0.1", Validity::Current);
    endless.chain.extend((0..16).map(|_| CertificateDer::from(vec![0x30; 1 << 16])));
    for leaf in [
        &gateway.authority.issue("127.0.0.1", Validity::Expired),
        &gateway.authority.issue("127.0.0.2", Validity::Current),
        &stranger.issue("127.0.0.1", Validity::Current),
        &Leaf::self_signed("127.0.0.1"),
        &endless,
        &gateway.revoked,
    ] {
        let acceptor = leaf.acceptor(&[b"h2", b"http/1.1"]);
        let trusted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&trusted);
        let peer = Peer::start(async move |exchange: Exchange| {
            if acceptor.accept(exchange.stream).await.is_ok() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        })
        .await;
        check(&gateway.hundred(Visit::to(secured(&peer))).await, &FAILED);
        ended(&peer, HUNDRED).await;
        assert_eq!((peer.connections(), trusted.load(Ordering::SeqCst)), (HUNDRED, 0));
    }
}

fn secured(peer: &Peer) -> String {
    format!("https://{}/hook", peer.address)
}

/// The answer to any client: this version, this suite, no extensions.
fn server_hello(version: [u8; 2], suite: [u8; 2]) -> Vec<u8> {
    let mut hello = Vec::new();
    hello.extend(version);
    hello.extend([0x5a; 32]);
    // No session, the suite, no compression.
    hello.push(0);
    hello.extend(suite);
    hello.push(0);
    let length = u8::try_from(hello.len()).expect("short");
    let mut record = vec![22];
    record.extend(version);
    record.extend([0, length + 4, 2, 0, 0, length]);
    record.extend(hello);
    record
}
