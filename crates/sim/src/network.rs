//! The network between a node and the endpoints, and the endpoints: each behaves in its own way until
//! the world heals.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use postrider_core::DeliveryId;
use postrider_engine::http_client::{Answer, Failure, FailureKind, Post};
use postrider_engine::ports::Network;
use tokio::time::{sleep, timeout};

use crate::chance::Chance;
use crate::gate::Gate;
use crate::history::{Arrival, Chronicle, FaultKind};

/// How an endpoint behaves while the world is not well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Healthy,
    /// It takes its time, now and then beyond every deadline.
    Slow,
    /// Up for so long, then down for so long.
    Flapping {
        period: Duration,
    },
    /// Every third request is told to wait.
    RateLimiting {
        seconds: u32,
    },
    /// It takes the request and never answers.
    Hanging,
    /// It fails, and says nonsense about when to come again.
    Lying,
    /// It wants none of it.
    Refusing,
    /// It fails for so long from the beginning.
    Outage {
        until: Duration,
    },
}

/// What all nodes and endpoints share.
#[derive(Debug, Clone)]
pub(crate) struct Internet {
    pub(crate) chance: Chance,
    pub(crate) chronicle: Chronicle,
    pub(crate) manners: Arc<Vec<Manner>>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    healed: bool,
    /// Requests, and answers, that get lost: once in so many; 0 is never.
    loss: u64,
    /// Nodes that reach nobody.
    apart: BTreeSet<usize>,
}

impl Internet {
    pub(crate) fn new(
        chance: Chance,
        chronicle: Chronicle,
        manners: Vec<Manner>,
        loss: u64,
    ) -> Self {
        let state = State { loss, ..State::default() };
        Self { chance, chronicle, manners: Arc::new(manners), state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn heal(&self) {
        *self.state.lock() = State { healed: true, ..State::default() };
    }

    pub(crate) fn part(&self, node: usize, apart: bool) {
        let mut state = self.state.lock();
        if apart {
            state.apart.insert(node);
        } else {
            state.apart.remove(&node);
        }
    }

    fn is_lost(&self) -> bool {
        let loss = self.state.lock().loss;
        loss > 0 && self.chance.once_in(loss)
    }

    fn manner(&self, endpoint: usize) -> Manner {
        if self.state.lock().healed {
            return Manner::Healthy;
        }
        self.manners.get(endpoint).copied().unwrap_or(Manner::Healthy)
    }
}

/// One node's way to the endpoints.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    pub(crate) internet: Internet,
    pub(crate) node: usize,
    pub(crate) gate: Arc<Gate>,
}

impl Network for Wire {
    fn post(&self, post: Post) -> BoxFuture<'static, Result<Answer, Failure>> {
        let wire = self.clone();
        Box::pin(async move {
            wire.gate.pass().await;
            let deadline = post.deadline;
            let answer = timeout(deadline, wire.exchange(post)).await;
            // What comes back to a node that has died comes back to nobody.
            wire.gate.pass().await;
            answer.unwrap_or_else(|_| {
                let message = format!("no answer within {deadline:?}");
                Err(Failure { kind: FailureKind::Timeout, message })
            })
        })
    }
}

impl Wire {
    async fn exchange(&self, post: Post) -> Result<Answer, Failure> {
        let Internet { chance, chronicle, .. } = &self.internet;
        let failed = |kind, message: &str| Err(Failure { kind, message: message.to_owned() });
        sleep(Duration::from_millis(chance.between(1, 20))).await;
        if self.internet.state.lock().apart.contains(&self.node) {
            return failed(FailureKind::Connect, "no way there");
        }
        if self.internet.is_lost() {
            chronicle.fault(self.node, FaultKind::LostRequest);
            return failed(FailureKind::Closed, "the connection was reset");
        }
        let endpoint = post.destination.target().path().trim_matches('/').parse();
        let endpoint: usize = endpoint.unwrap_or(usize::MAX);
        let arrived = chronicle.arrived(self.arrival(endpoint, &post));
        let (status, retry_after) = self.behave(endpoint).await;
        chronicle.answered(arrived, status);
        if self.internet.is_lost() || self.internet.state.lock().apart.contains(&self.node) {
            chronicle.fault(self.node, FaultKind::LostAnswer);
            return failed(FailureKind::Closed, "the connection was reset");
        }
        sleep(Duration::from_millis(chance.between(1, 20))).await;
        Ok(Answer {
            status,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            truncated: false,
            retry_after,
        })
    }

    async fn behave(&self, endpoint: usize) -> (u16, Option<HeaderValue>) {
        let Internet { chance, chronicle, .. } = &self.internet;
        let since = chronicle.now().since(crate::clock::BEGINNING);
        match self.internet.manner(endpoint) {
            Manner::Healthy => (204, None),
            Manner::Slow => {
                sleep(Duration::from_millis(chance.between(100, 40_000))).await;
                (200, None)
            }
            Manner::Flapping { period } => {
                let turn = since.as_millis() / period.as_millis().max(1);
                if turn.is_multiple_of(2) { (200, None) } else { (503, None) }
            }
            Manner::RateLimiting { seconds } => {
                if chance.once_in(3) {
                    (429, HeaderValue::from_str(&seconds.to_string()).ok())
                } else {
                    (200, None)
                }
            }
            Manner::Hanging => std::future::pending().await,
            Manner::Lying => {
                let lies = ["inf", "-1", "1e300", "NaN", "99999999999999999999", "soon", "0"];
                let lie = chance.choose(&lies).copied().unwrap_or("0");
                let status = if chance.once_in(2) { 503 } else { 429 };
                (status, Some(HeaderValue::from_static(lie)))
            }
            Manner::Refusing => (410, None),
            Manner::Outage { until } => {
                if since < until {
                    (500, None)
                } else {
                    (200, None)
                }
            }
        }
    }

    fn arrival(&self, endpoint: usize, post: &Post) -> Arrival {
        let text = |name: &str| {
            post.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
        };
        Arrival {
            at: self.internet.chronicle.now(),
            node: self.node,
            endpoint,
            delivery: text("postrider-delivery-id").parse().unwrap_or(DeliveryId::from_i64(0)),
            webhook_id: text("webhook-id").to_owned(),
            attempt: text("postrider-attempt").parse().unwrap_or(0),
            headers: post.headers.clone(),
            body: post.body.clone(),
            status: None,
        }
    }
}
