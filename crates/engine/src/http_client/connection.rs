//! One connection to a peer, HTTP/1 or HTTP/2, and how a request travels over it.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::client::TlsStream;

use super::HEAD_BYTES;
use super::failure::Failure;
use super::frames::Counted;
use crate::destination::Destination;

/// The most bytes hyper buffers of a response, or of a request beside its body.
const BUFFER_BYTES: usize = 4 * HEAD_BYTES;
/// How much of an HTTP/2 response may arrive unread, per stream and in all.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// An HTTP/2 peer with requests outstanding is asked for a sign of life this often, and given up
/// when none comes.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

type Outgoing = Request<Full<Bytes>>;
type Plain = TokioIo<TcpStream>;
type Secured = TokioIo<TlsStream<TcpStream>>;

/// A connection in use by one request.
pub(super) enum Connection {
    /// Held exclusively.
    Http1(Http1),
    /// Shared with other requests.
    Http2(Arc<Http2>),
}

pub(super) enum SendError {
    /// The connection ended before any of the request was sent.
    Unsent(Box<Outgoing>, hyper::Error),
    /// The same, found out before hyper was asked.
    Gone(Box<Outgoing>),
    Failed(hyper::Error),
}

impl Connection {
    pub(super) fn peer(&self) -> SocketAddr {
        match self {
            Self::Http1(connection) => connection.peer,
            Self::Http2(connection) => connection.peer,
        }
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        &mut self,
        mut request: Outgoing,
        destination: &Destination,
    ) -> Result<Response<Incoming>, SendError> {
        let outcome = match self {
            Self::Http1(connection) => {
                *request.uri_mut() = destination.target().clone();
                request.headers_mut().insert(header::HOST, destination.authority().clone());
                connection.send(request).await
            }
            Self::Http2(connection) => {
                *request.uri_mut() = destination.url().clone();
                request.headers_mut().remove(header::HOST);
                let Some(sender) = connection.take_sender() else {
                    return Err(SendError::Gone(Box::new(request)));
                };
                send_over_http2(sender, request).await
            }
        };
        outcome.map_err(|mut failed| match failed.take_message() {
            Some(request) => SendError::Unsent(Box::new(request), failed.into_error()),
            None => SendError::Failed(failed.into_error()),
        })
    }

    /// Waits for the next piece of a response body.
    pub(super) async fn frame(
        &mut self,
        body: &mut Incoming,
    ) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        match self {
            Self::Http1(connection) => connection.frame(body).await,
            Self::Http2(_) => body.frame().await,
        }
    }
}

/// An HTTP/1 connection that makes progress only while somebody polls it: the request's own task
/// when it is used, nobody while it is idle. Dropping it closes the socket.
pub(super) struct Http1 {
    peer: SocketAddr,
    sender: http1::SendRequest<Full<Bytes>>,
    wire: Wire,
}

enum Wire {
    Plain(Box<http1::Connection<Plain, Full<Bytes>>>),
    Secured(Box<http1::Connection<Secured, Full<Bytes>>>),
    Ended,
}

impl Http1 {
    pub(super) async fn plain(io: Plain, peer: SocketAddr) -> Result<Connection, Failure> {
        let opened = http1_builder().handshake(io).await;
        let (sender, wire) = opened.map_err(|error| Failure::http(&error, peer))?;
        let wire = Wire::Plain(Box::new(wire));
        Ok(Connection::Http1(Self { peer, sender, wire }))
    }

    pub(super) async fn secured(io: Secured, peer: SocketAddr) -> Result<Connection, Failure> {
        let opened = http1_builder().handshake(io).await;
        let (sender, wire) = opened.map_err(|error| Failure::http(&error, peer))?;
        let wire = Wire::Secured(Box::new(wire));
        Ok(Connection::Http1(Self { peer, sender, wire }))
    }

    /// Whether the last exchange is over on both sides and the peer has not closed since.
    ///
    /// The poll without a waker also takes the socket's wake-ups away from the task that used the
    /// connection last, whose memory they would hold.
    pub(super) fn is_idle(&mut self) -> bool {
        self.wire.drive(&mut Context::from_waker(Waker::noop()));
        match self.wire {
            Wire::Ended => false,
            Wire::Plain(_) | Wire::Secured(_) => self.sender.is_ready(),
        }
    }

    async fn send(
        &mut self,
        request: Outgoing,
    ) -> Result<Response<Incoming>, TrySendError<Outgoing>> {
        let wire = &mut self.wire;
        let mut answer = pin!(self.sender.try_send_request(request));
        poll_fn(|cx| {
            wire.drive(cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    async fn frame(&mut self, body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        poll_fn(|cx| {
            // The first poll tells the wire that the body is wanted.
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                return Poll::Ready(frame);
            }
            self.wire.drive(cx);
            Pin::new(&mut *body).poll_frame(cx)
        })
        .await
    }
}

impl Wire {
    /// Moves bytes both ways as far as possible. Errors are not looked at here: hyper hands them
    /// to whoever waits for the answer or its body, and an idle connection that failed is ended.
    fn drive(&mut self, cx: &mut Context<'_>) {
        let ended = match self {
            Self::Plain(connection) => Pin::new(connection).poll(cx).is_ready(),
            Self::Secured(connection) => Pin::new(connection).poll(cx).is_ready(),
            Self::Ended => true,
        };
        if ended {
            *self = Self::Ended;
        }
    }
}

/// An HTTP/2 connection, shared by its requests. Its tasks end when the last holder drops it.
pub(super) struct Http2 {
    peer: SocketAddr,
    /// None once the connection has ended. Hyper gives a request back whose connection ended before
    /// it was taken on, but only when nobody holds a sender any more: one that is kept would let
    /// such a request wait for its deadline.
    sender: Arc<Mutex<Option<Http2Sender>>>,
    requests: Arc<AtomicUsize>,
    _open: watch::Sender<()>,
}

type Http2Sender = http2::SendRequest<Full<Bytes>>;

impl Http2 {
    pub(super) async fn open(
        stream: TlsStream<TcpStream>,
        peer: SocketAddr,
    ) -> Result<Connection, Failure> {
        let requests = Arc::<AtomicUsize>::default();
        let io = TokioIo::new(Counted::new(stream, Arc::clone(&requests)));
        let (open, tasks) = watch::channel(());
        let tasks = Tasks { open: tasks };
        let opened = http2::Builder::new(tasks.clone())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(io)
            .await;
        let (sender, wire) = opened.map_err(|error| Failure::http(&error, peer))?;
        let sender = Arc::new(Mutex::new(Some(sender)));
        let ended = Arc::clone(&sender);
        tasks.spawn(async move {
            // Every request waiting on the connection is told of the error as well.
            if let Err(error) = wire.await {
                tracing::debug!(%peer, %error, "HTTP/2 connection failed");
            }
            drop(ended.lock().take());
        });
        Ok(Connection::Http2(Arc::new(Self { peer, sender, requests, _open: open })))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.lock().as_ref().is_none_or(http2::SendRequest::is_closed)
    }

    /// The way to send one request; none if the connection has ended.
    fn take_sender(&self) -> Option<Http2Sender> {
        let sender = self.sender.lock().clone()?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        Some(sender)
    }
}

/// The sender is gone when this waits.
fn send_over_http2(
    mut sender: Http2Sender,
    request: Outgoing,
) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Outgoing>>> {
    sender.try_send_request(request)
}

/// Spawns the tasks of one HTTP/2 connection so that none outlives it.
#[derive(Clone)]
struct Tasks {
    open: watch::Receiver<()>,
}

impl Tasks {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut open = self.open.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = task => {}
                // Nothing is ever sent: it ends when the sender is dropped.
                _ = open.changed() => {}
            }
        });
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

pub(super) fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The number of headers keeps hyper's own limit of 100, which costs no allocation.
    builder.max_header_size(HEAD_BYTES).max_buf_size(BUFFER_BYTES);
    builder
}
