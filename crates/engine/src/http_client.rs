//! The HTTP client of the push carrier: one POST to a vetted destination, within one deadline.
//!
//! It speaks hyper's connections directly, because this is the hot path: pooled HTTP/1 connections
//! are driven by the task that waits for the answer, so a request costs no other task a wake-up.
//! It follows no redirects, keeps no cookies, uses no proxy but the one it is given, and never sends
//! a request twice once a byte of it may have left.

mod connection;
mod dial;
mod endpoint_tls;
mod failure;
mod frames;
mod pool;
mod proxy;
mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, response};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};

pub use dial::CONNECT_BUDGET;
pub use endpoint_tls::{
    ClientIdentity, EndpointTls, MAX_CERTIFICATES, MAX_PEM_BYTES, TlsError, TlsPem,
};
pub use failure::{Failure, FailureKind};
pub use pool::{IDLE_TIMEOUT, MAX_IDLE, MAX_IDLE_PER_ORIGIN};
pub use proxy::{BadProxy, EgressProxy};

use crate::destination::{Destination, Guard, Scheme};
use connection::{Connection, SendError};
use dial::Dialer;
use failure::Stage;
use pool::{Key, Pool};
use tls::Connectors;

/// How much of a response body is kept.
pub const BODY_KEPT_BYTES: usize = 16 * 1024;
/// How much of a response body is read before the connection is given up.
pub const BODY_READ_BYTES: usize = 64 * 1024;
/// The largest response head accepted.
pub const HEAD_BYTES: usize = 16 * 1024;

/// Sends POST requests; clones share one pool of connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub struct ClientOptions {
    /// Judges every address at dial time.
    pub guard: Arc<Guard>,
    /// Certificate authorities trusted beside the public ones.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// Lists of certificates that their authorities have taken back.
    pub revoked: Vec<CertificateRevocationListDer<'static>>,
    /// What every connection goes through, if anything.
    pub egress_proxy: Option<EgressProxy>,
}

/// One request. `Host` and `Content-Length` are set by the client, everything else is given.
#[derive(Debug)]
pub struct Post {
    pub destination: Arc<Destination>,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Covers everything from the lookup of the name to the last byte of the response read.
    pub deadline: Duration,
    /// What the endpoint needs of TLS beyond the rest.
    pub tls: Option<Arc<EndpointTls>>,
}

/// A response, decided by its status even if its body was cut short.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    /// The first [`BODY_KEPT_BYTES`] of the body.
    pub body: Bytes,
    /// Whether the body had more to it than `body` holds, or never came to its end.
    pub truncated: bool,
    pub retry_after: Option<HeaderValue>,
}

struct Shared {
    dialer: Dialer,
    pool: Arc<Pool>,
}

impl Client {
    /// Fails only if one of the extra certificates cannot be used as a root.
    pub fn new(options: ClientOptions) -> Result<Self, rustls::Error> {
        let ClientOptions { guard, extra_roots, revoked, egress_proxy } = options;
        let connectors = Connectors::new(extra_roots, revoked)?;
        let dialer = Dialer { guard, connectors, proxy: egress_proxy };
        Ok(Self { shared: Arc::new(Shared { dialer, pool: Arc::default() }) })
    }

    /// Sends one request and reads its answer.
    pub async fn post(&self, post: Post) -> Result<Answer, Failure> {
        let deadline = post.deadline;
        let mut progress = Progress { stage: Stage::Connecting, reading: None };
        match tokio::time::timeout(deadline, self.exchange(post, &mut progress)).await {
            Ok(outcome) => outcome,
            // The status had arrived, and it decides; only the body did not come to its end.
            Err(_) => match progress.reading {
                Some(reading) => Ok(reading.finish(Ending::Cut)),
                None => Err(Failure::deadline(deadline, progress.stage)),
            },
        }
    }

    async fn exchange(&self, post: Post, progress: &mut Progress) -> Result<Answer, Failure> {
        let Post { destination, headers, body, tls, deadline: _ } = post;
        let tls = tls.as_deref();
        let key = Key { origin: destination.origin(), identity: tls.map(EndpointTls::identity) };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;

        if let Some(mut pooled) = self.shared.pool.take(key) {
            progress.stage = Stage::Head;
            match pooled.send(request, &destination).await {
                Ok(response) => {
                    return self.receive(key, pooled, response, progress).await;
                }
                // The peer had closed it and nothing was sent: a fresh connection is safe, once.
                Err(SendError::Unsent(returned, _) | SendError::Gone(returned)) => {
                    request = *returned;
                }
                Err(SendError::Failed(error)) => return Err(Failure::http(&error, pooled.peer())),
            }
        }

        // Boxed, so that a request over a pooled connection does not carry the room for a dial.
        let opening = Box::pin(self.open(key, tls, &mut progress.stage));
        let mut fresh = opening.await?;
        progress.stage = Stage::Head;
        match fresh.send(request, &destination).await {
            Ok(response) => self.receive(key, fresh, response, progress).await,
            Err(SendError::Gone(_)) => {
                let peer = fresh.peer();
                Err(Failure::protocol(format!("{peer} closed the connection before the request")))
            }
            Err(SendError::Unsent(_, error) | SendError::Failed(error)) => {
                Err(Failure::http(&error, fresh.peer()))
            }
        }
    }

    /// Dials, or joins an HTTP/2 connection that another request dialled meanwhile.
    async fn open(
        &self,
        key: Key<'_>,
        tls: Option<&EndpointTls>,
        stage: &mut Stage,
    ) -> Result<Connection, Failure> {
        let Shared { dialer, pool } = &*self.shared;
        match key.origin.scheme {
            Scheme::Http => dialer.dial(key.origin, tls, stage).await,
            Scheme::Https => {
                let _turn = pool.turn_to_dial(key).await;
                if let Some(shared) = pool.take_shared(key) {
                    return Ok(shared);
                }
                let dialed = dialer.dial(key.origin, tls, stage).await?;
                Ok(pool.announce(key, dialed))
            }
        }
    }

    async fn receive(
        &self,
        key: Key<'_>,
        mut connection: Connection,
        response: Response<Incoming>,
        progress: &mut Progress,
    ) -> Result<Answer, Failure> {
        let (head, mut body) = response.into_parts();
        check_head(&head)?;
        let reading = progress.reading.insert(Reading::new(head));
        let ending = loop {
            if body.is_end_stream() {
                break Ending::Whole;
            }
            match connection.frame(&mut body).await {
                None => break Ending::Whole,
                Some(Err(_)) => break Ending::Cut,
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref()
                        && !reading.take(data)
                    {
                        break Ending::Cut;
                    }
                }
            }
        };
        drop(body);
        match ending {
            Ending::Whole => self.shared.pool.give(key, connection),
            // What is left on the wire belongs to this answer, so the connection ends here.
            Ending::Cut => drop(connection),
        }
        let answer = progress.reading.take().map(|reading| reading.finish(ending));
        Ok(answer.expect("the reading was put there above"))
    }
}

/// What has been reached when the deadline strikes.
struct Progress {
    stage: Stage,
    reading: Option<Reading>,
}

struct Reading {
    status: StatusCode,
    headers: HeaderMap,
    kept: Vec<u8>,
    read_bytes: usize,
}

#[derive(Clone, Copy)]
enum Ending {
    Whole,
    Cut,
}

impl Reading {
    fn new(head: response::Parts) -> Self {
        Self { status: head.status, headers: head.headers, kept: Vec::new(), read_bytes: 0 }
    }

    /// Takes a piece of the body; `false` when enough has been read.
    fn take(&mut self, data: &[u8]) -> bool {
        let room = BODY_KEPT_BYTES - self.kept.len();
        self.kept.extend_from_slice(&data[..data.len().min(room)]);
        self.read_bytes += data.len();
        self.read_bytes <= BODY_READ_BYTES
    }

    fn finish(self, ending: Ending) -> Answer {
        let cut = match ending {
            Ending::Whole => false,
            Ending::Cut => true,
        };
        Answer {
            status: self.status.as_u16(),
            retry_after: self.headers.get(header::RETRY_AFTER).cloned(),
            headers: self.headers,
            truncated: cut || self.read_bytes > self.kept.len(),
            body: self.kept.into(),
        }
    }
}

/// Refuses heads that hyper lets through but that mean no answer, or two different ones.
fn check_head(head: &response::Parts) -> Result<(), Failure> {
    if head.status.is_informational() {
        let status = head.status.as_u16();
        return Err(Failure::protocol(format!("answered {status}, which was not asked for")));
    }
    let both = head.headers.contains_key(header::CONTENT_LENGTH)
        && head.headers.contains_key(header::TRANSFER_ENCODING);
    if both {
        let message = "the answer has both Content-Length and Transfer-Encoding";
        return Err(Failure::protocol(message.to_owned()));
    }
    Ok(())
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("pool", &self.shared.pool).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
