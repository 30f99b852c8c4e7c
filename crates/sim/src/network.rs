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
use crate::history::{Arrival, Chronicle, FaultKind, Hitch};

/// The longest that a message takes which takes its time: longer than a node waits for an answer.
pub(crate) const LATEST_MS: u64 = 12_000;
/// How long after a request its copy arrives at the latest.
const COPY_WITHIN_MS: u64 = 5_000;

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

/// How often a message goes astray; once in so many, and never for 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mishaps {
    pub(crate) loss: u64,
    pub(crate) delay: u64,
    pub(crate) duplication: u64,
}

/// What all nodes and endpoints share.
#[derive(Debug, Clone)]
pub(crate) struct Internet {
    chance: Chance,
    chronicle: Chronicle,
    manners: Arc<Vec<Manner>>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    healed: bool,
    mishaps: Mishaps,
    /// Nodes that reach nobody.
    apart: BTreeSet<usize>,
    /// Endpoints that fail whatever their manner is.
    down: BTreeSet<usize>,
}

impl Internet {
    pub(crate) fn new(
        chance: Chance,
        chronicle: Chronicle,
        manners: Vec<Manner>,
        mishaps: Mishaps,
    ) -> Self {
        let state = State { mishaps, ..State::default() };
        Self { chance, chronicle, manners: Arc::new(manners), state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn heal(&self) {
        *self.state.lock() = State { healed: true, ..State::default() };
    }

    pub(crate) fn part(&self, node: usize, apart: bool) {
        set(&mut self.state.lock().apart, node, apart);
    }

    pub(crate) fn take_down(&self, endpoint: usize, down: bool) {
        set(&mut self.state.lock().down, endpoint, down);
    }

    pub(crate) fn is_apart(&self, node: usize) -> bool {
        self.state.lock().apart.contains(&node)
    }

    pub(crate) fn loses(&self) -> bool {
        self.draws(|mishaps| mishaps.loss)
    }

    /// How long a message takes beyond the usual.
    pub(crate) fn delay(&self) -> Option<Duration> {
        let late = self.draws(|mishaps| mishaps.delay);
        late.then(|| Duration::from_millis(self.chance.between(100, LATEST_MS)))
    }

    pub(crate) fn doubles(&self) -> bool {
        self.draws(|mishaps| mishaps.duplication)
    }

    /// A message under way, as long as it usually takes.
    pub(crate) async fn travel(&self) {
        sleep(Duration::from_millis(self.chance.between(1, 20))).await;
    }

    fn draws(&self, which: impl Fn(&Mishaps) -> u64) -> bool {
        let once_in = which(&self.state.lock().mishaps);
        once_in > 0 && self.chance.once_in(once_in)
    }

    fn manner(&self, endpoint: usize) -> Manner {
        let state = self.state.lock();
        if state.healed {
            return Manner::Healthy;
        }
        if state.down.contains(&endpoint) {
            return Manner::Outage { until: Duration::MAX };
        }
        self.manners.get(endpoint).copied().unwrap_or(Manner::Healthy)
    }

    /// What an endpoint answers to a request, in its own time.
    pub(crate) async fn behave(&self, endpoint: usize) -> (u16, Option<HeaderValue>) {
        let Self { chance, chronicle, .. } = self;
        let since = chronicle.now().since(crate::clock::BEGINNING);
        match self.manner(endpoint) {
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
}

fn set(among: &mut BTreeSet<usize>, which: usize, present: bool) {
    if present {
        among.insert(which);
    } else {
        among.remove(&which);
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
        let (internet, chronicle) = (&self.internet, &self.internet.chronicle);
        let letter = self.arrival(&post);
        chronicle.sent(letter.delivery, letter.attempt);
        let failed = |kind, message: &str| Err(Failure { kind, message: message.to_owned() });
        internet.travel().await;
        if let Some(late) = internet.delay() {
            chronicle.hitch(Hitch::LateRequest);
            sleep(late).await;
        }
        if internet.is_apart(self.node) {
            return failed(FailureKind::Connect, "no way there");
        }
        if internet.loses() {
            chronicle.fault(self.node, FaultKind::LostRequest);
            return failed(FailureKind::Closed, "the connection was reset");
        }
        let arrival = Arrival { at: chronicle.now(), ..letter };
        let endpoint = arrival.endpoint;
        if internet.doubles() {
            chronicle.fault(self.node, FaultKind::Duplicated);
            tokio::spawn(copy(internet.clone(), arrival.clone()));
        }
        let arrived = chronicle.arrived(arrival);
        let (status, retry_after) = internet.behave(endpoint).await;
        chronicle.answered(arrived, status);
        if internet.loses() || internet.is_apart(self.node) {
            chronicle.fault(self.node, FaultKind::LostAnswer);
            return failed(FailureKind::Closed, "the connection was reset");
        }
        if let Some(late) = internet.delay() {
            chronicle.fault(self.node, FaultKind::LateAnswer);
            sleep(late).await;
        }
        internet.travel().await;
        Ok(Answer {
            status,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            truncated: false,
            retry_after,
        })
    }

    /// An endpoint's number is the path of its URL.
    fn arrival(&self, post: &Post) -> Arrival {
        let endpoint = post.destination.target().path().trim_matches('/').parse();
        let text = |name: &str| {
            post.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
        };
        Arrival {
            at: self.internet.chronicle.now(),
            node: self.node,
            endpoint: endpoint.unwrap_or(usize::MAX),
            delivery: text("postrider-delivery-id").parse().unwrap_or(DeliveryId::from_i64(0)),
            webhook_id: text("webhook-id").to_owned(),
            attempt: text("postrider-attempt").parse().unwrap_or(0),
            headers: post.headers.clone(),
            body: post.body.clone(),
            status: None,
            copied: false,
        }
    }
}

/// A request arrives once more, and what is answered to it goes nowhere.
async fn copy(internet: Internet, first: Arrival) {
    sleep(Duration::from_millis(internet.chance.between(1, COPY_WITHIN_MS))).await;
    let (endpoint, at) = (first.endpoint, internet.chronicle.now());
    let arrived = internet.chronicle.arrived(Arrival { at, copied: true, ..first });
    let (status, _) = internet.behave(endpoint).await;
    internet.chronicle.answered(arrived, status);
}
