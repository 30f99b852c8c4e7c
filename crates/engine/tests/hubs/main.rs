//! Hubs: what goes down their lines and when, what their answers make of it, and that nothing is
//! lost or counted when a line ends. Time is virtual.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "../rig/gateway.rs"]
mod gateway;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../rig/mod.rs"]
mod rig;

mod answers;
mod capacity;
mod configured;
mod endings;
mod lost;
mod offline;
mod samples;

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use postrider_core::endpoint::{Destination, Ordering, Spec};
use postrider_core::hub::{Answer, Deliver, Hello, Met};
use postrider_core::{DeliveryId, HubId};
use postrider_engine::notices::NoticeKind;
use postrider_engine::{Ending, Link, OutOfTurn, WaitReason};

use gateway::{ACTING, Gateway, TENANT, spec};
use rig::PATIENCE;

/// More than any test has in flight.
const ROOMY: u32 = 100;
/// How often others are let run before it is said that nothing comes.
const TURNS: usize = 500;

/// An endpoint behind a hub: five attempts, ten seconds apart.
fn behind(hub: HubId) -> Spec {
    spec(Destination::Hub(hub))
}

fn fifo(hub: HubId) -> Spec {
    Spec { ordering: Ordering::Fifo, ..behind(hub) }
}

fn hello(capacity: u32) -> Hello {
    Hello { agent: "test/1.0".into(), capacity }
}

fn status(status: u16) -> Met {
    Met::Status { status, headers: Vec::new(), body: Bytes::new(), truncated: false }
}

impl Gateway {
    async fn hub(&self) -> HubId {
        self.engine.create_hub(ACTING, "the workshop".into()).await.expect("a hub").0.id
    }

    async fn connect(&self, hub: HubId, capacity: u32) -> Agent {
        Agent(self.engine.connect_hub(hub, &hello(capacity)).await.expect("a hub that is known"))
    }

    async fn waits_on(&self, delivery: DeliveryId) -> Option<WaitReason> {
        let record = self.record(delivery).await;
        let waits = self.engine.waiting_on(&record).await.expect("readable");
        waits.map(|waits| waits.reason)
    }

    async fn hub_in_flight(&self, hub: HubId) -> usize {
        self.engine.hub(TENANT, hub).await.expect("known").in_flight
    }

    /// Waits until nothing that a hub had is on its way back any more.
    async fn all_back(&self, hub: HubId) {
        let back = async {
            while self.hub_in_flight(hub).await > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, back).await.expect("all come back");
    }

    async fn delivered(&mut self, count: usize) {
        for _ in 0..count {
            self.notice(NoticeKind::Delivered).await;
        }
    }
}

/// The hub's end of a connection, as the gateway sees it.
struct Agent(Link);

impl Agent {
    async fn next(&mut self) -> Deliver {
        let next = tokio::time::timeout(PATIENCE, self.0.next()).await;
        next.expect("something comes").expect("the line is open")
    }

    async fn ending(&mut self) -> Ending {
        let ending = async {
            loop {
                if let Err(ending) = self.0.next().await {
                    return ending;
                }
            }
        };
        tokio::time::timeout(PATIENCE, ending).await.expect("it ends")
    }

    /// What comes before others have had [`TURNS`] turns.
    async fn soon(&mut self) -> Option<Deliver> {
        for _ in 0..TURNS {
            if let Some(next) = self.0.next().now_or_never() {
                return Some(next.expect("the line is open"));
            }
            tokio::task::yield_now().await;
        }
        None
    }

    /// Whether nothing comes, as far as one can tell.
    async fn is_quiet(&mut self) -> bool {
        self.soon().await.is_none()
    }

    fn answer(&self, seq: u64, met: Met) -> Result<(), OutOfTurn> {
        self.0.answer(Answer { seq, duration: Duration::from_millis(5), met })
    }

    fn done(&self, deliver: &Deliver) {
        self.answer(deliver.seq, status(200)).expect("it was asked");
    }
}
