//! The client over TLS: HTTP/1, HTTP/2, and peers that are not who they should be.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::TlsAcceptor;

use super::certificate::{Authority, Leaf};
use super::*;

struct TlsPeer {
    url: String,
    connections: Arc<AtomicUsize>,
    /// Tells the connections to finish.
    leave: Arc<Notify>,
    /// One permit for each connection that has ended.
    ended: Arc<Semaphore>,
}

impl TlsPeer {
    /// Answers every request with its version and path.
    async fn start(leaf: Leaf, protocols: &[&[u8]]) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.certificate], leaf.key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = Self {
            url: format!("https://{}/hook?a=1", listener.local_addr().unwrap()),
            connections: Arc::default(),
            leave: Arc::default(),
            ended: Arc::new(Semaphore::new(0)),
        };
        let (connections, leave, ended) =
            (peer.connections.clone(), peer.leave.clone(), peer.ended.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.fetch_add(1, Ordering::SeqCst);
                let (acceptor, leave, ended) = (acceptor.clone(), leave.clone(), ended.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        answer(stream, &leave).await;
                    }
                    ended.add_permits(1);
                });
            }
        });
        peer
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn answer(stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>, leave: &Notify) {
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(async |request: Request<Incoming>| {
        let text = format!("{:?} {}", request.version(), request.uri().path());
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
    });
    // However the client leaves, it is the client's outcome that the tests look at.
    if http2 {
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let mut connection =
            std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            _ = connection.as_mut() => return,
            () = leave.notified() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    } else {
        let builder = hyper::server::conn::http1::Builder::new();
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    }
}

fn trusting(authority: &Authority) -> Client {
    let extra_roots = vec![authority.root.clone()];
    Client::new(ClientOptions { guard: loopback_guard(), extra_roots }).unwrap()
}

#[tokio::test]
async fn http1_over_tls_keeps_its_connection() {
    let authority = Authority::new();
    let without_alpn: &[&[u8]] = &[];
    for protocols in [&[&b"http/1.1"[..]][..], without_alpn] {
        let peer = TlsPeer::start(authority.issue([127, 0, 0, 1]), protocols).await;
        let client = trusting(&authority);
        for _ in 0..3 {
            let answer = client.post(post_to(&peer.url, AMPLE)).await.unwrap();
            assert_eq!(&answer.body[..], b"HTTP/1.1 /hook");
        }
        assert_eq!(peer.connections(), 1);
    }
}

#[tokio::test]
async fn http2_requests_share_one_connection_until_it_ends() {
    let authority = Authority::new();
    let peer = TlsPeer::start(authority.issue([127, 0, 0, 1]), &[b"h2", b"http/1.1"]).await;
    let client = trusting(&authority);
    for connections in 1..=3 {
        let posts = (0..8).map(|_| client.post(post_to(&peer.url, AMPLE)));
        for answer in futures_util::future::join_all(posts).await {
            let answer = answer.unwrap();
            assert_eq!((answer.status, &answer.body[..]), (200, &b"HTTP/2.0 /hook"[..]));
            assert!(!answer.truncated);
        }
        assert_eq!(peer.connections(), connections);
        assert_eq!(client.shared.pool.kept(), 1);
        peer.leave.notify_one();
        peer.ended.acquire().await.unwrap().forget();
        peer::let_events_arrive().await;
    }
}

#[tokio::test]
async fn an_unused_http2_connection_is_closed_by_the_sweep() {
    let authority = Authority::new();
    let peer = TlsPeer::start(authority.issue([127, 0, 0, 1]), &[b"h2"]).await;
    let client = trusting(&authority);
    client.post(post_to(&peer.url, AMPLE)).await.unwrap();
    let pool = &client.shared.pool;
    assert_eq!(pool.sweep(Instant::now()), Sweep::Kept);
    assert_eq!(pool.sweep(Instant::now() + IDLE_TIMEOUT), Sweep::Empty);
    peer.ended.acquire().await.unwrap().forget();
}

#[tokio::test]
async fn peers_that_cannot_prove_their_name_fail_before_they_see_the_request() {
    let authority = Authority::new();
    let stranger = Authority::new();
    for leaf in [stranger.issue([127, 0, 0, 1]), authority.issue([127, 0, 0, 2])] {
        let peer = TlsPeer::start(leaf, &[b"h2", b"http/1.1"]).await;
        let failure = trusting(&authority).post(post_to(&peer.url, AMPLE)).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Tls);
        assert!(failure.message.starts_with("TLS handshake with 127.0.0.1 at "), "{failure}");
    }
    let peer = Peer::start(async |mut exchange: peer::Exchange| {
        exchange.write("HTTP/1.1 200 OK\r\n\r\n").await;
        exchange.until_closed().await;
    })
    .await;
    let url = format!("https://{}/", peer.address);
    let failure = trusting(&authority).post(post_to(&url, AMPLE)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Tls);
}
