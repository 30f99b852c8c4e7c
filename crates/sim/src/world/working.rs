//! Workers of a pull endpoint: they lease, take their time, and say what became of it, or forget to.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use postrider_core::Class;
use postrider_engine::{LeaseWish, Nack};
use tokio::time::{sleep, timeout};

use super::{TENANT, World};
use crate::history::Arrival;

const LEASE: Duration = Duration::from_mins(1);
const WAIT: Duration = Duration::from_secs(20);
/// Between two looks while there is nothing, where days pass and where minutes do.
const NAP: Duration = Duration::from_mins(20);
const BRIEF_NAP: Duration = Duration::from_secs(10);

pub(super) async fn work(world: Arc<World>, index: usize) {
    let chance = world.chance.apart();
    let nap = if world.scenario.is_brief() { BRIEF_NAP } else { NAP };
    loop {
        let endpoint = world.endpoints.lock().get(index).copied();
        let (Some(node), Some(endpoint)) = (world.any_node(), endpoint) else {
            sleep(nap).await;
            continue;
        };
        let wish =
            LeaseWish { endpoint, max: 5, wait: WAIT, lease: LEASE, event_types: Vec::new() };
        let leases = timeout(WAIT * 2, node.engine.lease(TENANT, wish)).await;
        let leases = leases.ok().and_then(Result::ok).unwrap_or_default();
        if leases.is_empty() {
            sleep(nap).await;
            continue;
        }
        for lease in leases {
            let arrived = world.ground.chronicle.arrived(Arrival {
                at: world.ground.time.now(),
                node: node.index,
                endpoint: index,
                delivery: lease.delivery,
                webhook_id: lease.event.id.to_string(),
                attempt: lease.attempt,
                headers: HeaderMap::new(),
                body: lease.event.body.clone(),
                status: None,
                copied: false,
            });
            sleep(Duration::from_millis(chance.between(1, 5_000))).await;
            let tokens = vec![lease.token];
            match chance.below(if world.is_well() { 1 } else { 6 }) {
                // It dies, and the lease runs out.
                1 => {}
                2 => {
                    let nack = Nack {
                        class: Class::Retryable,
                        error: "not today".to_owned(),
                        retry_after: None,
                    };
                    drop(timeout(WAIT, node.engine.nack(TENANT, tokens, nack)).await);
                }
                _ => {
                    let acked = timeout(WAIT, node.engine.ack(TENANT, tokens, None)).await;
                    if acked.is_ok_and(|acked| acked.is_ok_and(|acked| acked == [true])) {
                        world.ground.chronicle.answered(arrived, 200);
                    }
                }
            }
        }
    }
}
