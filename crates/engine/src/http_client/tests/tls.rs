//! The client over TLS: HTTP/1, HTTP/2, and peers that are not who they should be.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::AsyncReadExt;
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::TlsAcceptor;

use super::super::tls::provider;
use super::certificate::{Authority, EXPIRED, Leaf, NOT_YET_VALID};
use super::*;

pub(super) struct TlsPeer {
    pub(super) url: String,
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// Tells the connections to finish.
    leave: Arc<Notify>,
    /// One permit for each connection that has ended.
    ended: Arc<Semaphore>,
}

impl TlsPeer {
    /// Answers every request with its version and path.
    pub(super) async fn start(leaf: Leaf, protocols: &[&[u8]]) -> Self {
        Self::asking(None, leaf, protocols).await
    }

    /// Demands a certificate of the given authority.
    pub(super) async fn demanding(clients: &Authority, leaf: Leaf, protocols: &[&[u8]]) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(clients.root.clone()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider()));
        Self::asking(Some(verifier.build().unwrap()), leaf, protocols).await
    }

    async fn asking(
        verifier: Option<Arc<dyn ClientCertVerifier>>,
        leaf: Leaf,
        protocols: &[&[u8]],
    ) -> Self {
        let builder = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(vec![leaf.certificate], leaf.key).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let peer = Self {
            url: format!("https://{address}/hook?a=1"),
            address,
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
                    match acceptor.accept(stream).into_fallible().await {
                        Ok(stream) => answer(stream, &leave).await,
                        // Closing at once could destroy the alert on its way.
                        Err((_, mut stream)) => {
                            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                        }
                    }
                    ended.add_permits(1);
                });
            }
        });
        peer
    }

    pub(super) fn connections(&self) -> usize {
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

pub(super) fn trusting(authority: &Authority) -> Client {
    client_with(loopback_guard(), vec![authority.root.clone()], None)
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

/// Row R36 of the hostile responses.
#[tokio::test]
async fn peers_that_cannot_prove_their_name_fail_before_they_see_the_request() {
    let authority = Authority::new();
    let here = [127, 0, 0, 1];
    let unknown = "its certificate comes from no authority that is trusted here";
    for (leaf, reason) in [
        (Authority::new().issue(here), unknown),
        (Leaf::self_signed(here), unknown),
        (authority.issue([127, 0, 0, 2]), "its certificate is for another name"),
        (authority.issue_named("example.com"), "its certificate is for another name"),
        (authority.issue_for(here, EXPIRED), "its certificate has expired"),
        (authority.issue_for(here, NOT_YET_VALID), "its certificate is not valid yet"),
    ] {
        let peer = TlsPeer::start(leaf, &[b"h2", b"http/1.1"]).await;
        let failure = trusting(&authority).post(post_to(&peer.url, AMPLE)).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
        let begins = format!("TLS handshake with 127.0.0.1 at {} failed: {reason}", peer.address);
        assert!(failure.message.starts_with(&begins), "{failure}");
    }
}

#[tokio::test]
async fn peers_that_speak_no_tls_or_an_old_one_fail_with_a_sentence() {
    const OLD: &str = "it speaks no version of TLS from 1.2 up";
    // A fatal alert `protocol_version`, as a server of TLS 1.1 answers one that offers more.
    let alert = &[21, 3, 2, 0, 2, 2, 70][..];
    let mut server_hello = vec![22, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2];
    server_hello.extend([7; 32]);
    server_hello.extend([0, 0xc0, 0x14, 0]);
    for (answer, reason) in [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), "what it speaks is not TLS"),
        (alert, OLD),
        (&server_hello, OLD),
    ] {
        let answer = answer.to_vec();
        let peer = Peer::start(async move |mut exchange: peer::Exchange| {
            let mut hello = [0; 4096];
            assert!(exchange.stream.read(&mut hello).await.unwrap() > 0);
            exchange.stream.write_all(&answer).await.unwrap();
            exchange.until_closed().await;
        })
        .await;
        let url = format!("https://{}/", peer.address);
        let failure = client().post(post_to(&url, AMPLE)).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
        assert!(failure.message.ends_with(reason), "{failure}");
    }
}
