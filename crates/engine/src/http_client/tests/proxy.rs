//! The egress proxy: what it is told, what it is not told, and what becomes of its refusals.

use std::net::SocketAddr;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, BufReader, copy_bidirectional};
use tokio::net::TcpStream;

use super::certificate::Authority;
use super::tls::TlsPeer;
use super::*;
use crate::destination::Rules;

/// A proxy that answers CONNECT with a fixed head, and after a 200 joins the two sides.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

pub(super) const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";
const ESTABLISHED_1_0: &str = "HTTP/1.0 200 Connection established\r\nProxy-Agent: x\r\n\r\n";

impl Proxy {
    /// Tunnels lead to `to`, whatever is asked for, or to what is asked for.
    pub(super) async fn start(answers: &'static [&'static str], to: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = heads.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let seen = seen.clone();
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if stream.read_line(&mut head).await.unwrap() == 0 {
                            return;
                        }
                    }
                    let target = head.split(' ').nth(1).unwrap().parse().unwrap();
                    let answer = {
                        let mut seen = seen.lock();
                        seen.push(head);
                        answers[(seen.len() - 1).min(answers.len() - 1)]
                    };
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    if [ESTABLISHED, ESTABLISHED_1_0].contains(&answer) {
                        let mut far = TcpStream::connect(to.unwrap_or(target)).await.unwrap();
                        // Either side may hang up as it likes.
                        let _ = copy_bidirectional(&mut stream, &mut far).await;
                    }
                });
            }
        });
        Self { address, heads }
    }

    fn with_credentials(&self, credentials: &str) -> EgressProxy {
        format!("http://{credentials}{}", self.address).parse().unwrap()
    }

    pub(super) fn plain(&self) -> EgressProxy {
        self.with_credentials("")
    }

    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }
}

fn through(proxy: EgressProxy) -> Client {
    client_with(loopback_guard(), Vec::new(), Some(proxy))
}

#[tokio::test]
async fn http_and_https_both_go_through_a_tunnel_that_is_kept() {
    let proxy = Proxy::start(&[ESTABLISHED], None).await;
    let authority = Authority::new();
    let plain = Peer::answering(OK).await;
    let http1 = TlsPeer::start(authority.issue([127, 0, 0, 1]), &[]).await;
    let http2 = TlsPeer::start(authority.issue([127, 0, 0, 1]), &[b"h2"]).await;
    let roots = vec![authority.root.clone()];
    let client = client_with(loopback_guard(), roots, Some(proxy.plain()));
    for (url, address, body) in [
        (&plain.url(), plain.address, "ok"),
        (&http1.url, http1.address, "HTTP/1.1 /hook"),
        (&http2.url, http2.address, "HTTP/2.0 /hook"),
    ] {
        for _ in 0..2 {
            assert_eq!(client.post(post_to(url, AMPLE)).await.unwrap().body, body);
        }
        let head = proxy.heads().pop().unwrap();
        assert_eq!(head, format!("CONNECT {address} HTTP/1.1\r\nhost: {address}\r\n\r\n"));
    }
    assert_eq!(proxy.heads().len(), 3);
    // The receiver sees the request as it would without a proxy.
    let request = plain.requests().pop().unwrap();
    assert!(request.starts_with("POST /hook?a=1 HTTP/1.1\r\n"), "{request}");
}

#[tokio::test]
async fn names_are_resolved_and_judged_before_the_proxy_is_asked() {
    let proxy = Proxy::start(&[ESTABLISHED], None).await;
    let peer = Peer::answering(OK).await;
    let by_name = format!("http://localhost:{}/", peer.address.port());
    let client = through(proxy.plain());
    assert_eq!(client.post(post_to(&by_name, AMPLE)).await.unwrap().status, 200);
    let connect = format!("CONNECT {} HTTP/1.1\r\n", peer.address);
    assert!(proxy.heads()[0].starts_with(&connect), "{:?}", proxy.heads());
    let host = format!("\r\nhost: localhost:{}\r\n", peer.address.port());
    assert!(peer.requests()[0].contains(&host), "{:?}", peer.requests());

    // The proxy is on this machine too, but only destinations are judged.
    let strict = Arc::new(Guard::with_rules(Rules::default()));
    let strict = client_with(strict, Vec::new(), Some(proxy.plain()));
    for url in [&by_name, &peer.url()] {
        let failure = strict.post(post_to(url, AMPLE)).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Refused, "{failure}");
    }
    assert_eq!((proxy.heads().len(), peer.connections()), (1, 1));
}

#[tokio::test]
async fn credentials_are_sent_to_the_proxy_and_told_to_nobody() {
    let proxy = Proxy::start(&[ESTABLISHED], None).await;
    let peer = Peer::answering(OK).await;
    let egress = proxy.with_credentials("gate%40way:s3cr%3At@");
    assert_eq!(egress.to_string(), proxy.address.to_string());
    assert_eq!(format!("{egress:?}"), format!("EgressProxy({})", proxy.address));
    assert_eq!(through(egress).post(post(&peer)).await.unwrap().status, 200);
    // `gate@way:s3cr:t`
    let head = proxy.heads().pop().unwrap();
    assert!(head.contains("\r\nproxy-authorization: Basic Z2F0ZUB3YXk6czNjcjp0\r\n"), "{head}");
    let request = peer.requests().pop().unwrap();
    assert!(!request.to_lowercase().contains("authorization"), "{request}");
}

#[tokio::test]
async fn a_proxy_that_opens_no_tunnel_is_a_failed_connection() {
    let wants = "it asks for a user name and password (407)";
    let rejects = "it does not accept the user name and password (407)";
    let challenge: &[&str] = &[
        "HTTP/1.1 407 Who?\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n",
    ];
    let cases: [(&'static [&'static str], &str, &str); 8] = [
        (challenge, "", wants),
        (challenge, "bob:s3cret@", rejects),
        (&["HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno"], "", "it answered 403 Forbidden"),
        (&["HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n"], "", "it answered 502 Bad Gateway"),
        (&["HTTP/1.1 204 Fine\r\n\r\n"], "", "it answered 204 No Content"),
        (&["HTTP/1.1 302 Go\r\nLocation: http://x/\r\n\r\n"], "", "it answered 302 Found"),
        (&["SSH-2.0-OpenSSH_9.9\r\n\r\n"], "bob:s3cret@", "the exchange with it failed: "),
        (&[concat!("HTTP/1.1 200 OK\r\n\r\n", "220 ready\r\n")], "", "it sent bytes before"),
    ];
    for (answers, credentials, reason) in cases {
        let proxy = Proxy::start(answers, None).await;
        let peer = Peer::answering(OK).await;
        let client = through(proxy.with_credentials(credentials));
        let failure = client.post(post(&peer)).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Connect, "{failure}");
        let (to, via) = (peer.address, proxy.address);
        let begins = format!("no connection to {to} through the egress proxy {via}: {reason}");
        assert!(failure.message.starts_with(&begins), "{failure}, not {begins}");
        assert!(!failure.message.contains("s3cret"), "{failure}");
        assert_eq!((proxy.heads().len(), peer.connections()), (1, 0), "{failure}");
    }
}

#[tokio::test]
async fn an_old_proxy_opens_tunnels_too() {
    let peer = Peer::answering(OK).await;
    let proxy = Proxy::start(&[ESTABLISHED_1_0], None).await;
    assert_eq!(through(proxy.plain()).post(post(&peer)).await.unwrap().status, 200);
}

#[tokio::test]
async fn the_next_address_is_tried_where_the_proxy_did_not_reach_one() {
    const BAD_GATEWAY: &str = "HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n";
    let peer = Peer::answering(OK).await;
    let allowed = ["127.0.0.0/8", "::1/128"].map(|network| network.parse().unwrap());
    let guard = Arc::new(Guard::new(allowed.into()));
    let url = format!("http://localhost:{}/", peer.address.port());
    let proxy = Proxy::start(&[BAD_GATEWAY, ESTABLISHED], Some(peer.address)).await;
    let client = client_with(guard, Vec::new(), Some(proxy.plain()));
    assert_eq!(client.post(post_to(&url, AMPLE)).await.unwrap().status, 200);
    let asked: Vec<_> = proxy.heads().iter().map(|head| head[8..].chars().next()).collect();
    assert_eq!(asked, [Some('1'), Some('[')]);
}

#[tokio::test]
async fn an_absent_or_silent_proxy_is_named() {
    let peer = Peer::answering(OK).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let proxy: EgressProxy = format!("http://bob:s3cret@{address}").parse().unwrap();
    let client = through(proxy);
    // It listens and never reads.
    let failure = client.post(post_to(&peer.url(), SHORT)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Timeout, "{failure}");
    drop(listener);
    let failure = client.post(post(&peer)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Connect, "{failure}");
    let begins = format!("no connection to the egress proxy {address}: ");
    assert!(failure.message.starts_with(&begins), "{failure}");
    assert!(!failure.message.contains("s3cret"), "{failure}");
    assert_eq!(peer.connections(), 0);
}

#[test]
fn a_proxy_is_written_as_a_url_without_a_path() {
    for (text, shown) in [
        ("http://proxy.internal:3128", "proxy.internal:3128"),
        ("http://proxy.internal:3128/", "proxy.internal:3128"),
        ("http://proxy", "proxy:80"),
        ("http://10.0.0.5:8080", "10.0.0.5:8080"),
        ("http://[fd00::5]:8080", "[fd00::5]:8080"),
        ("http://bob:s3cret@proxy:3128", "proxy:3128"),
        ("http://bob@proxy:3128", "proxy:3128"),
    ] {
        assert_eq!(text.parse::<EgressProxy>().unwrap().to_string(), shown);
    }
    for (text, error) in [
        ("", BadProxy::Form),
        ("proxy", BadProxy::Form),
        ("http://", BadProxy::Form),
        ("http://proxy:0", BadProxy::Form),
        ("http://proxy:99999", BadProxy::Form),
        ("http://b%3Aob:s3cret@proxy:3128", BadProxy::Form),
        ("https://bob:s3cret@proxy:3128", BadProxy::Scheme),
        ("socks5://proxy:1080", BadProxy::Scheme),
        ("proxy:3128", BadProxy::Scheme),
        ("http://proxy:3128/path", BadProxy::Path),
        ("http://proxy:3128/?q", BadProxy::Path),
        ("http://proxy:3128/#f", BadProxy::Path),
    ] {
        let refused = text.parse::<EgressProxy>().unwrap_err();
        assert_eq!(refused, error, "{text}");
        assert!(!refused.to_string().contains("s3cret"), "{refused}");
    }
}
