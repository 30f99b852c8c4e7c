//! Receivers that hang up.

use std::collections::{BTreeMap, BTreeSet};

use crate::gateway::{Gateway, HUNDRED, Visit};
use crate::peer::{Exchange, Peer};
use crate::script::{OK, Then, header, reply};
use crate::story::{Expected, check};

/// R33
pub(crate) async fn resets(gateway: &Gateway) {
    let peer = Peer::start(async |mut exchange: Exchange| {
        exchange.read_request().await;
        exchange.stream.set_zero_linger().expect("an open socket");
    })
    .await;
    let stories = gateway.hundred(Visit::to(peer.url()).tries(2)).await;
    for story in &stories {
        story.assert_dead();
        assert_eq!(story.attempts.len(), 2);
        assert!(story.error().contains("connection reset by"), "{story:?}");
    }
    let requests = peer.requests();
    assert_eq!(requests.len(), 2 * HUNDRED);
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let deliveries = header(&requests, "postrider-delivery-id");
    for (delivery, id) in deliveries.into_iter().zip(header(&requests, "webhook-id")) {
        ids.entry(delivery).or_default().insert(id);
    }
    assert_eq!(ids.len(), HUNDRED);
    assert!(ids.values().all(|ids| ids.len() == 1), "the same at each attempt: {ids:?}");
}

/// R35
pub(crate) async fn closes_between(gateway: &Gateway) {
    // It closes as soon as it has answered. A request that meets the close on its way is tried
    // again, as an attempt of its own; one that has not left goes over another connection.
    let peer = reply(OK, Then::Close).await;
    for story in gateway.hundred(Visit::to(peer.url()).at_once(4).tries(9)).await {
        story.assert_delivered();
    }
    assert_each_arrived_once(&peer);

    // It closes when it has read the second request: that one may have been acted upon.
    let peer = Peer::start(async |mut exchange: Exchange| {
        exchange.read_request().await;
        exchange.write(OK).await;
        exchange.read_request().await;
    })
    .await;
    let stories = gateway.one_by_one(Visit::to(peer.url()), async || {}).await;
    let delivered = Expected::Delivered { status: 200, body: b"ok", truncated: false };
    let failed = Expected::NoAnswer { error: "closed the connection before it answered" };
    for pair in stories.chunks(2) {
        check(&pair[..1], &delivered);
        check(&pair[1..], &failed);
    }
    assert_eq!(peer.connections(), HUNDRED / 2);
    assert_each_arrived_once(&peer);
}

fn assert_each_arrived_once(peer: &Peer) {
    let arrived = header(&peer.requests(), "postrider-delivery-id");
    assert_eq!(arrived.len(), HUNDRED);
    let different: BTreeSet<String> = arrived.into_iter().collect();
    assert_eq!(different.len(), HUNDRED);
}
