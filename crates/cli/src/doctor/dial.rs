//! Connecting to an address, to see whether that can be done; and asking a gateway what time it is.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{DATE, HOST};
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use postrider_core::Timestamp;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Url;

/// How long connecting may take, with TLS.
pub(super) const DEADLINE: Duration = Duration::from_secs(5);

/// What a connection is made to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layer<'a> {
    Tcp,
    /// With a certificate for this name.
    Tls(&'a str),
}

/// Connects to one of the addresses, and leaves again. Says which, or why to none.
pub(super) async fn reach(
    addresses: &[SocketAddr],
    layer: Layer<'_>,
) -> Result<SocketAddr, String> {
    let mut why = "it has no address".to_owned();
    for address in addresses {
        let attempt = async {
            let stream = TcpStream::connect(address).await?;
            match layer {
                Layer::Tcp => {}
                Layer::Tls(name) => drop(secure(stream, name).await?),
            }
            Ok::<_, io::Error>(())
        };
        match tokio::time::timeout(DEADLINE, attempt).await {
            Ok(Ok(())) => return Ok(*address),
            Ok(Err(error)) => why = format!("{address}: {error}"),
            Err(_) => why = format!("{address}: nothing within {DEADLINE:?}"),
        }
    }
    Err(why)
}

async fn secure(stream: TcpStream, name: &str) -> io::Result<TlsStream<TcpStream>> {
    let roots: RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// What a gateway says without being told a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Alive {
    pub(super) status: StatusCode,
    /// By its clock, to the second.
    pub(super) date: Option<Timestamp>,
}

/// Asks `/healthz` of the gateway at `base`.
pub(super) async fn alive(base: &str) -> Result<Alive, String> {
    match tokio::time::timeout(DEADLINE, ask(base)).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {DEADLINE:?}")),
    }
}

async fn ask(base: &str) -> io::Result<Alive> {
    let url = Url::parse(base).map_err(io::Error::other)?;
    let host = url.host_str().ok_or_else(|| io::Error::other("it has no host"))?;
    let port = url.port_or_known_default().unwrap_or(80);
    // An IPv6 address stands in brackets in a URL only.
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((address, port)).await?;
    let path = format!("{}/healthz", url.path().trim_end_matches('/'));
    let authority = format!("{host}:{port}");
    if url.scheme() == "https" {
        exchange(secure(stream, address).await?, &path, &authority).await
    } else {
        exchange(stream, &path, &authority).await
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    path: &str,
    authority: &str,
) -> io::Result<Alive> {
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(io::Error::other)?;
    let connection = tokio::spawn(async move { drop(connection.await) });
    let request = Request::get(path).header(HOST, authority).body(Empty::<Bytes>::new());
    let request = request.map_err(io::Error::other)?;
    let answer = sender.send_request(request).await;
    connection.abort();
    let answer = answer.map_err(io::Error::other)?;
    let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
    Ok(Alive { status: answer.status(), date: date.and_then(time) })
}

fn time(date: &str) -> Option<Timestamp> {
    let since = httpdate::parse_http_date(date).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok().map(Timestamp::from_millis)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn what_listens_can_be_reached_and_gets_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let taken = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut received = Vec::new();
            stream.read_to_end(&mut received).await.expect("it ends");
            received
        });
        assert_eq!(reach(&[address], Layer::Tcp).await, Ok(address));
        assert_eq!(taken.await.expect("taken"), b"");
        let refused = reach(&[address], Layer::Tcp).await.expect_err("nobody listens any more");
        assert!(refused.contains(&address.to_string()), "{refused}");
        assert!(reach(&[], Layer::Tcp).await.is_err());
    }

    #[tokio::test]
    async fn what_speaks_no_tls_is_told_apart_from_what_does() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("written");
            }
        });
        assert!(reach(&[address], Layer::Tcp).await.is_ok());
        assert!(reach(&[address], Layer::Tls("example.com")).await.is_err());
    }

    #[tokio::test]
    async fn a_gateway_says_that_it_is_alive_and_what_time_it_is() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut head = [0; 1_024];
            let read = stream.read(&mut head).await.expect("a question");
            let answer = "HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
                          content-length: 0\r\n\r\n";
            stream.write_all(answer.as_bytes()).await.expect("answered");
            String::from_utf8_lossy(&head[..read]).into_owned()
        });
        let found = alive(&format!("http://{address}/below")).await.expect("an answer");
        let date = Some(Timestamp::from_millis(1_767_225_600_000));
        assert_eq!(found, Alive { status: StatusCode::OK, date });
        let asked = asked.await.expect("asked");
        assert!(asked.starts_with("GET /below/healthz "), "{asked}");
        assert!(!asked.to_ascii_lowercase().contains("authorization"), "{asked}");
    }
}
