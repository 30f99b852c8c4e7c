//! Workers that lease deliveries: what they are given and when, what their word makes of it, and
//! what becomes of it when they say nothing. Time is virtual.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "../rig/gateway.rs"]
mod gateway;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../rig/mod.rs"]
mod rig;

mod answers;
mod crowd;
mod handing_out;
mod operators;
mod ordered;
mod restarts;
mod running_out;
mod waking;

use std::time::Duration;

use postrider_core::endpoint::{Destination, Spec};
use postrider_core::pattern::Pattern;
use postrider_core::{Class, EndpointId, Timestamp};
use postrider_engine::ports::Clock as _;
use postrider_engine::{Error, Lease, LeaseWish, Nack};
use tokio::task::JoinHandle;

use gateway::{Gateway, TENANT, spec};
use rig::PATIENCE;

/// How long a worker may keep what it was given, unless a test says otherwise.
const LEASE: Duration = Duration::from_secs(40);
/// How long a worker waits that does. Nobody else sleeps for this long, so that it is seen to sleep.
const WAIT: Duration = Duration::from_secs(3_541);

/// An endpoint that workers pull from: five attempts, ten seconds apart.
fn pull() -> Spec {
    spec(Destination::Pull)
}

/// What a worker asks for that takes what is there.
fn wish(endpoint: EndpointId, max: usize) -> LeaseWish {
    LeaseWish { endpoint, max, wait: Duration::ZERO, lease: LEASE, event_types: Vec::new() }
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::parse(text).expect("a pattern")).collect()
}

fn nack(class: Class) -> Nack {
    Nack { class, error: "it did not work".into(), retry_after: None }
}

/// The types of the events, in the order of the leases.
fn kinds(leases: &[Lease]) -> Vec<&str> {
    leases.iter().map(|lease| lease.event.kind.as_str()).collect()
}

impl Gateway {
    async fn lease(&self, endpoint: EndpointId, max: usize) -> Vec<Lease> {
        self.lease_as(wish(endpoint, max)).await
    }

    async fn lease_as(&self, wish: LeaseWish) -> Vec<Lease> {
        let leases = self.engine.lease(TENANT, wish);
        let leases = tokio::time::timeout(PATIENCE, leases).await.expect("in time");
        leases.expect("the endpoint is there")
    }

    /// Leases what has to be one delivery.
    async fn lease_one(&self, endpoint: EndpointId) -> Lease {
        let mut leases = self.lease(endpoint, 10).await;
        assert_eq!(leases.len(), 1, "{:?}", kinds(&leases));
        leases.remove(0)
    }

    async fn ack(&self, lease: &Lease) -> bool {
        self.engine.ack(TENANT, vec![lease.token], None).await.expect("settled")[0]
    }

    async fn nack(&self, lease: &Lease, nack: Nack) -> bool {
        self.engine.nack(TENANT, vec![lease.token], nack).await.expect("settled")[0]
    }

    async fn extend(&self, lease: &Lease, by: Duration) -> Option<Timestamp> {
        self.engine.extend(TENANT, vec![lease.token], by).await.expect("settled")[0]
    }

    /// A worker that has found nothing and waits for [`WAIT`].
    async fn worker(&self, endpoint: EndpointId) -> Worker {
        self.worker_wishing(wish(endpoint, 10)).await
    }

    async fn worker_wishing(&self, wish: LeaseWish) -> Worker {
        self.worker_until(wish, self.clock.now().plus(WAIT)).await
    }

    /// A worker that has found nothing and will look again at a certain time.
    async fn worker_until(&self, wish: LeaseWish, until: Timestamp) -> Worker {
        let before = self.clock.sleeps(until);
        let (engine, wish) = (self.engine.clone(), LeaseWish { wait: WAIT, ..wish });
        let worker = Worker(tokio::spawn(async move { engine.lease(TENANT, wish).await }));
        self.clock.asleep(until, before).await;
        worker
    }
}

/// A worker on its own.
struct Worker(JoinHandle<Result<Vec<Lease>, Error>>);

impl Worker {
    /// What it is told in the end.
    async fn hears(self) -> Result<Vec<Lease>, Error> {
        let told = tokio::time::timeout(PATIENCE, self.0).await;
        told.expect("the worker is woken").expect("no panic")
    }

    async fn gets(self) -> Vec<Lease> {
        self.hears().await.expect("the endpoint is there")
    }

    /// Waits for it to get one delivery, and no more.
    async fn gets_one(self) -> Lease {
        let mut leases = self.gets().await;
        assert_eq!(leases.len(), 1, "{:?}", kinds(&leases));
        leases.remove(0)
    }
}
