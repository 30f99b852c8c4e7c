//! A hub: it dials a node, whichever, takes letters, forwards them and answers; when its connection is
//! lost it dials again, perhaps another node.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::{HeaderMap, HeaderName, HeaderValue};
use postrider_core::hub::{Answer, Deliver, GREETING, Hello, Met, SILENCE};
use postrider_engine::Link;
use tokio::time::{Instant, sleep, timeout};

use super::World;
use crate::gate::Life;
use crate::history::{Arrival, FaultKind};
use crate::node::Node;

/// The most that a hub takes at once.
const MOST: u64 = 4;
/// How soon it dials again.
const REDIAL_MS: u64 = 5_000;

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Holds,
    Lost,
}

pub(super) async fn relay(world: Arc<World>, index: usize) {
    let chance = world.chance.apart();
    let capacity = u32::try_from(chance.between(1, MOST)).unwrap_or(1);
    let hello = Hello { agent: "simulated".to_owned(), capacity };
    loop {
        sleep(Duration::from_millis(chance.between(100, REDIAL_MS))).await;
        let (Some(node), Some(hub)) = (world.any_node(), world.hub(index)) else { continue };
        if world.ground.internet.is_apart(node.index) {
            continue;
        }
        let greeted = timeout(GREETING, async {
            node.gate.pass().await;
            node.engine.connect_hub(hub, &hello).await
        });
        let Ok(Ok(mut link)) = greeted.await else { continue };
        while take(&world, &node, index, &mut link).await == Line::Holds {}
    }
}

/// Takes the next letter and forwards it.
async fn take(world: &World, node: &Node, index: usize, link: &mut Link) -> Line {
    let next = match select(pin!(link.next()), pin!(node.gate.stops())).await {
        Either::Left((next, _)) => next,
        Either::Right(_) => return wait(node).await,
    };
    match next {
        Ok(letter) => forward(world, node, index, link, letter).await,
        Err(_ending) => Line::Lost,
    }
}

/// A gateway that says nothing is waited for, for as long as the protocol says.
async fn wait(node: &Node) -> Line {
    sleep(SILENCE).await;
    if node.gate.life() == Life::Runs { Line::Holds } else { Line::Lost }
}

async fn forward(world: &World, node: &Node, index: usize, link: &Link, letter: Deliver) -> Line {
    let (internet, chronicle) = (&world.ground.internet, &world.ground.chronicle);
    internet.travel().await;
    if is_lost(world, node) {
        return Line::Lost;
    }
    let (seq, deadline, started) = (letter.seq, letter.timeout, Instant::now());
    let arrived = chronicle.arrived(arrival(world, node, index, letter));
    let met = match timeout(deadline, internet.behave(index)).await {
        Ok((status, retry_after)) => {
            chronicle.answered(arrived, status);
            let value = |value: HeaderValue| Bytes::copy_from_slice(value.as_bytes());
            let headers = retry_after.map(|hint| ("retry-after".to_owned(), value(hint)));
            let headers = headers.into_iter().collect();
            Met::Status { status, headers, body: Bytes::new(), truncated: false }
        }
        Err(_) => Met::Timeout { error: "nobody answered the hub".to_owned() },
    };
    internet.travel().await;
    if is_lost(world, node) {
        return Line::Lost;
    }
    if !node.gate.lets_pass().await {
        return wait(node).await;
    }
    match link.answer(Answer { seq, duration: started.elapsed(), met }) {
        Ok(()) => Line::Holds,
        Err(_out_of_turn) => Line::Lost,
    }
}

/// Whether the connection breaks here.
fn is_lost(world: &World, node: &Node) -> bool {
    let internet = &world.ground.internet;
    let lost = internet.is_apart(node.index) || internet.loses();
    if lost {
        world.ground.chronicle.fault(node.index, FaultKind::LostLine);
    }
    lost
}

fn arrival(world: &World, node: &Node, index: usize, letter: Deliver) -> Arrival {
    let headers: HeaderMap = letter
        .headers
        .iter()
        .filter_map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            Some((name, HeaderValue::from_bytes(value).ok()?))
        })
        .collect();
    let webhook_id = headers.get("webhook-id").and_then(|id| id.to_str().ok());
    Arrival {
        at: world.ground.time.now(),
        node: node.index,
        endpoint: index,
        delivery: letter.delivery,
        webhook_id: webhook_id.unwrap_or_default().to_owned(),
        attempt: letter.attempt,
        headers,
        body: letter.body,
        status: None,
        copied: false,
    }
}
