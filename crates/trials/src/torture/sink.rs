//! Where everything goes: one server for all endpoints, which writes down each arrival, looks at its
//! signature, and answers as the endpoint would.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sha2::Sha256;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::ledger::{Digest, digest, number_in};
use super::random::Random;
use super::route::{Reply, Target};

const MAX_BODY_BYTES: usize = 1 << 20;
const MAX_CONNECTIONS: usize = 1_024;
/// The most arrivals of one round.
const MAX_ARRIVALS: usize = 5_000_000;
/// How old or new a timestamp may be, as libraries that verify have it.
const TOLERANCE: Duration = Duration::from_mins(5);

/// One attempt, as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) target: Target,
    /// `webhook-id`: the event.
    pub(crate) event: String,
    pub(crate) delivery: String,
    pub(crate) attempt: u32,
    /// The number in the body; none where it is no body of ours.
    pub(crate) number: Option<u64>,
    pub(crate) kind: String,
    pub(crate) digest: Digest,
    /// What is wrong with its signature.
    pub(crate) forged: Option<&'static str>,
    /// Whether it was answered with a yes, be that heard or not.
    pub(crate) taken: bool,
    /// Whether the way was disturbed, so that the answer may not be heard.
    pub(crate) troubled: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) arrivals: Vec<Arrival>,
    /// The highest number that arrived where everything does.
    pub(crate) newest: Option<u64>,
    troubled: bool,
}

/// How the time of a signature is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clocks {
    True,
    /// The gateway's clock is being set: its time says nothing.
    Stepped,
}

/// Serves until dropped.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

struct Shared {
    seen: watch::Sender<Seen>,
    keys: BTreeMap<Target, [u8; 32]>,
    clocks: Clocks,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("clocks", &self.clocks).finish_non_exhaustive()
    }
}

impl Sink {
    pub(crate) async fn start(clocks: Clocks, random: &mut Random) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let keys = Target::ALL.into_iter().map(|target| (target, random.bytes())).collect();
        let shared = Arc::new(Shared { seen: watch::Sender::new(Seen::default()), keys, clocks });
        let server = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, server })
    }

    /// The secret that an endpoint's requests have to be signed with.
    pub(crate) fn secret(&self, target: Target) -> Result<String> {
        let key = self.shared.keys.get(&target).context("an endpoint without a key")?;
        Ok(format!("whsec_{}", STANDARD.encode(key)))
    }

    pub(crate) fn seen(&self) -> watch::Receiver<Seen> {
        self.shared.seen.subscribe()
    }

    pub(crate) fn arrived(&self) -> usize {
        self.shared.seen.borrow().arrivals.len()
    }

    /// From now on answers may get lost on their way, or do so no more.
    pub(crate) fn set_troubled(&self, troubled: bool) {
        self.shared.seen.send_modify(|seen| seen.troubled = troubled);
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.shared.seen.borrow().arrivals.clone()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Dropping the set with this task ends every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                // A connection that broke before it was taken shows at its other end.
                if let Ok((stream, _)) = accepted {
                    connections.spawn(attend(stream, Arc::clone(&shared)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn attend(stream: TcpStream, shared: Arc<Shared>) {
    let respond = service_fn(|request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(receive(&shared, request).await) }
    });
    if stream.set_nodelay(true).is_ok() {
        // A sender that is killed breaks its connections off.
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), respond).await;
    }
}

async fn receive(shared: &Shared, request: Request<Incoming>) -> Response<Empty<Bytes>> {
    let (parts, body) = request.into_parts();
    let mut response = Response::new(Empty::new());
    // An attempt whose sender was killed half-way has not arrived.
    let Ok(body) = Limited::new(body, MAX_BODY_BYTES).collect().await else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    };
    let body = body.to_bytes();
    let Some(target) = Target::of_path(parts.uri.path()) else {
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    let header = |name| text(&parts.headers, name);
    let attempt = header("postrider-attempt").parse().unwrap_or(0);
    let number = number_in(&body);
    let reply = target.reply(number.unwrap_or(0), attempt);
    let arrival = Arrival {
        target,
        event: header("webhook-id").to_owned(),
        delivery: header("postrider-delivery-id").to_owned(),
        attempt,
        number,
        kind: header("postrider-event-type").to_owned(),
        digest: digest(&body),
        forged: shared.forged(target, &parts.headers, &body),
        taken: matches!(reply, Reply::Taken { .. }),
        troubled: false,
    };
    shared.note(arrival);
    match reply {
        Reply::Taken { after } => tokio::time::sleep(after).await,
        Reply::Refused => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
        Reply::Never => std::future::pending().await,
    }
    response
}

impl Shared {
    fn note(&self, arrival: Arrival) {
        self.seen.send_modify(|seen| {
            if seen.arrivals.len() < MAX_ARRIVALS {
                if arrival.target == Target::Every {
                    seen.newest = seen.newest.max(arrival.number);
                }
                let troubled = seen.troubled;
                seen.arrivals.push(Arrival { troubled, ..arrival });
            }
        });
    }

    /// What is wrong with a request's signature: made by hand from the text of Standard Webhooks, so
    /// that it is not the gateway's own code that finds its signatures good.
    fn forged(&self, target: Target, headers: &HeaderMap, body: &[u8]) -> Option<&'static str> {
        let Some(key) = self.keys.get(&target) else { return Some("nobody's") };
        let (id, time) = (text(headers, "webhook-id"), text(headers, "webhook-timestamp"));
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Some("no key") };
        mac.update(format!("{id}.{time}.").as_bytes());
        mac.update(body);
        let wanted = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        if text(headers, "webhook-signature") != wanted {
            return Some("its signature is not that of its id, time and body");
        }
        let Ok(seconds) = time.parse() else { return Some("it has no time") };
        let signed = UNIX_EPOCH + Duration::from_secs(seconds);
        let now = SystemTime::now();
        let apart = now.duration_since(signed).or_else(|_| signed.duration_since(now));
        let fresh = apart.is_ok_and(|apart| apart <= TOLERANCE);
        (self.clocks == Clocks::True && !fresh).then_some("its time is not of now")
    }
}

/// Empty where it is missing, which no check lets pass.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use postrider_core::signing::{Scheme, Secret, Signer};

    use super::*;

    fn headers(id: &str, seconds: i64, signature: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("webhook-id", id),
            ("webhook-timestamp", &seconds.to_string()),
            ("webhook-signature", signature),
        ] {
            headers.insert(name, HeaderValue::from_str(value).expect("a value"));
        }
        headers
    }

    #[tokio::test]
    async fn only_what_is_signed_with_the_endpoints_secret_and_in_time_is_good() {
        let mut random = Random::new(1);
        let sink = Sink::start(Clocks::True, &mut random).await.expect("it starts");
        let stepped = Sink::start(Clocks::Stepped, &mut Random::new(1)).await.expect("it starts");
        let secret = sink.secret(Target::Fifo).expect("a secret");
        let secret = Secret::parse(&secret, &Scheme::Standard).expect("a secret");
        let signer = Signer::new(&Scheme::Standard, &[secret]);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let now = i64::try_from(now).expect("it fits");
        let sign = |seconds| signer.sign("evt_1", seconds, b"{}").expect("it signs").value;
        let judge = |sink: &Sink, target, id, seconds, body: &[u8]| {
            sink.shared.forged(target, &headers(id, seconds, &sign(seconds)), body)
        };
        assert_eq!(judge(&sink, Target::Fifo, "evt_1", now, b"{}"), None);
        assert!(judge(&sink, Target::Every, "evt_1", now, b"{}").is_some());
        assert!(judge(&sink, Target::Fifo, "evt_2", now, b"{}").is_some());
        assert!(judge(&sink, Target::Fifo, "evt_1", now, b"{ }").is_some());
        assert!(judge(&sink, Target::Fifo, "evt_1", now - 3_600, b"{}").is_some());
        assert_eq!(judge(&stepped, Target::Fifo, "evt_1", now - 3_600, b"{}"), None);
    }
}
