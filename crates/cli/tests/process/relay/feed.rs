//! Producers that keep every lane of the relay supplied, wherever the gateway is, and remember every
//! event that was acknowledged.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Method, StatusCode};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::Connection;
use crate::gateway::{Gateway, KEY, payload, text};
use crate::within;

/// Events in one request.
const BATCH: usize = 25;
/// How far a lane's producer runs ahead of what has arrived: so far that the relay is never out of
/// work, and no further, so that events still come in when the last gateway is killed.
const AHEAD: usize = 150;

/// An event that the gateway has said yes to.
#[derive(Debug, Clone)]
pub(super) struct Ack {
    pub(super) event: String,
    pub(super) number: u64,
}

/// The type of the events of a lane.
pub(super) fn kind(lane: usize) -> String {
    format!("relay.{lane}")
}

/// How many attempts have arrived in each lane.
#[derive(Debug)]
pub(super) struct Tally {
    lanes: watch::Sender<Vec<usize>>,
}

impl Tally {
    pub(super) fn of(lanes: usize) -> Arc<Self> {
        Arc::new(Self { lanes: watch::Sender::new(vec![0; lanes]) })
    }

    pub(super) fn add(&self, lane: usize) {
        self.lanes.send_modify(|lanes| lanes[lane] += 1);
    }
}

#[derive(Debug)]
pub(super) struct Feed {
    shared: Arc<Shared>,
    producers: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    gateway: watch::Sender<Option<SocketAddr>>,
    acks: watch::Sender<Vec<Ack>>,
    tally: Arc<Tally>,
    lanes: usize,
}

impl Feed {
    /// One producer for each lane, which ends when so many of its events are acknowledged.
    pub(super) fn start(quotas: &[usize], tally: Arc<Tally>) -> Self {
        let shared = Arc::new(Shared {
            gateway: watch::Sender::new(None),
            acks: watch::Sender::new(Vec::new()),
            tally,
            lanes: quotas.len(),
        });
        let mut producers = JoinSet::new();
        for (lane, quota) in quotas.iter().enumerate() {
            producers.spawn(produce(lane, *quota, Arc::clone(&shared)));
        }
        Self { shared, producers }
    }

    /// Sends them to a gateway that has just started.
    pub(super) fn turn_to(&self, gateway: &Gateway) {
        self.shared.gateway.send_replace(Some(gateway.address));
    }

    pub(super) async fn next_ack(&self) {
        let mut acks = self.shared.acks.subscribe();
        let before = acks.borrow().len();
        let more = within("an acknowledgement", acks.wait_for(|acks| acks.len() > before));
        drop(more.await.expect("the sender is ours"));
    }

    /// Waits until every lane has had all of its events acknowledged.
    pub(super) async fn finish(mut self) -> Vec<Ack> {
        while let Some(ended) = within("the end of a producer", self.producers.join_next()).await {
            ended.expect("a producer panicked");
        }
        self.shared.acks.borrow().clone()
    }
}

async fn produce(lane: usize, quota: usize, shared: Arc<Shared>) {
    let mut gateway = shared.gateway.subscribe();
    let mut tally = shared.tally.lanes.subscribe();
    // No number is used twice, and a lane's numbers grow.
    let mut numbers = (lane as u64..).step_by(shared.lanes);
    let mut acknowledged = 0;
    while acknowledged < quota {
        let somewhere = gateway.wait_for(Option::is_some).await;
        let address = somewhere.expect("the sender is shared").expect("it was waited for");
        if let Ok(mut connection) = Connection::open(address, KEY).await {
            while acknowledged < quota {
                let needed = tally.wait_for(|lanes| acknowledged < lanes[lane] + AHEAD).await;
                drop(needed.expect("the sender is shared"));
                let size = BATCH.min(quota - acknowledged);
                let batch: Vec<u64> = numbers.by_ref().take(size).collect();
                let Some(acks) = send(lane, &batch, &mut connection).await else { break };
                acknowledged += acks.len();
                shared.acks.send_modify(|all| all.extend(acks));
            }
        }
        if acknowledged < quota {
            // It is gone, or going. Its successor will be somewhere else.
            let moved = gateway.wait_for(|place| *place != Some(address)).await;
            drop(moved.expect("the sender is shared"));
        }
    }
}

/// Sends a batch. None if there was no answer: it is stored as a whole, or not at all.
async fn send(lane: usize, numbers: &[u64], connection: &mut Connection) -> Option<Vec<Ack>> {
    let kind = kind(lane);
    let events: Vec<String> = numbers
        .iter()
        .map(|number| format!(r#"{{"type":"{kind}","payload":{}}}"#, payload(*number)))
        .collect();
    let body = format!(r#"{{"events":[{}]}}"#, events.join(","));
    let answer = connection.call(Method::POST, "/v1/events/batch", body).await.ok()?;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
    let results = answer.body["results"].as_array().expect("a list");
    assert_eq!(results.len(), numbers.len(), "{}", answer.body);
    let acks = numbers.iter().zip(results);
    Some(acks.map(|(number, result)| Ack { event: text(result, "id"), number: *number }).collect())
}
