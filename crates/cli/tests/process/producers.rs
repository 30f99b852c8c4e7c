//! Producers that send without pause over kept-alive connections, wherever the gateway is, and
//! remember every event that was acknowledged.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::Connection;
use crate::gateway::{Gateway, KEY, text};
use crate::within;

/// An event that the gateway has said yes to.
#[derive(Debug, Clone)]
pub(crate) struct Ack {
    pub(crate) producer: usize,
    pub(crate) event: String,
    pub(crate) number: u64,
    /// Which gateway in a row said so, from 1.
    pub(crate) life: u32,
    /// Ticks of one clock for all producers: one event was surely accepted before another if its
    /// answer was there before the other was sent.
    pub(crate) sent: u64,
    pub(crate) answered: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    At { life: u32, address: SocketAddr },
    Stop,
}

#[derive(Debug)]
pub(crate) struct Producers {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    life: u32,
}

#[derive(Debug)]
struct Shared {
    place: watch::Sender<Place>,
    acks: watch::Sender<Vec<Ack>>,
    numbers: AtomicU64,
    ticks: AtomicU64,
}

impl Producers {
    pub(crate) fn start(count: usize) -> Self {
        let shared = Arc::new(Shared {
            place: watch::Sender::new(Place::Nowhere),
            acks: watch::Sender::new(Vec::new()),
            numbers: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        for producer in 0..count {
            tasks.spawn(produce(producer, Arc::clone(&shared)));
        }
        Self { shared, tasks, life: 0 }
    }

    /// Sends them to a gateway that has just started.
    pub(crate) fn turn_to(&mut self, gateway: &Gateway) {
        self.life += 1;
        self.shared.place.send_replace(Place::At { life: self.life, address: gateway.address });
    }

    /// Waits until what was acknowledged is enough.
    pub(crate) async fn until(&self, what: &str, enough: impl Fn(&[Ack]) -> bool) {
        let mut acks = self.shared.acks.subscribe();
        let waited = within(what, acks.wait_for(|acks| enough(acks))).await;
        drop(waited.expect("the sender is ours"));
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.shared.acks.borrow().len()
    }

    /// Waits until every producer has got through to the gateway of now, then stops them all.
    pub(crate) async fn finish(mut self) -> Vec<Ack> {
        let (count, life) = (self.tasks.len(), self.life);
        self.until("an acknowledgement to every producer", |acks| {
            (0..count)
                .all(|producer| acks.iter().any(|ack| ack.producer == producer && ack.life == life))
        })
        .await;
        self.shared.place.send_replace(Place::Stop);
        while let Some(ended) = within("the end of a producer", self.tasks.join_next()).await {
            ended.expect("a producer panicked");
        }
        self.shared.acks.borrow().clone()
    }
}

async fn produce(producer: usize, shared: Arc<Shared>) {
    let mut place = shared.place.subscribe();
    loop {
        let somewhere = place.wait_for(|place| *place != Place::Nowhere).await;
        let current = *somewhere.expect("the sender is shared");
        let Place::At { life, address } = current else { return };
        if let Ok(mut connection) = Connection::open(address, KEY).await {
            while *place.borrow() == current
                && let Some(ack) = send(producer, life, &shared, &mut connection).await
            {
                shared.acks.send_modify(|acks| acks.push(ack));
            }
        }
        // It is gone, or going. Its successor will be somewhere else.
        let moved = place.wait_for(|place| *place != current).await;
        drop(moved.expect("the sender is shared"));
    }
}

/// Sends one event under a number that is never used again. None if there was no yes.
async fn send(
    producer: usize,
    life: u32,
    shared: &Shared,
    connection: &mut Connection,
) -> Option<Ack> {
    let number = shared.numbers.fetch_add(1, Ordering::SeqCst);
    let sent = shared.ticks.fetch_add(1, Ordering::SeqCst);
    let answer = connection.send_event(number).await.ok()?;
    let answered = shared.ticks.fetch_add(1, Ordering::SeqCst);
    match answer.status {
        StatusCode::ACCEPTED => {
            let event = text(&answer.body, "id");
            Some(Ack { producer, event, number, life, sent, answered })
        }
        StatusCode::SERVICE_UNAVAILABLE => None,
        other => panic!("event {number} was answered with {other}: {}", answer.body),
    }
}
