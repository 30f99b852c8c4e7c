//! What others may send to be looked at, and how to see that a page took it for text.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::PATIENCE;
use crate::browser::Page;
use crate::gateway::Gateway;

/// Markup that would run if it were taken for such, from within text, an attribute or a title.
pub(crate) const MARKUP: &str =
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)></title></pre></textarea>";
/// What steers a terminal, and what turns text around.
pub(crate) const STEERING: &str = "\u{1b}[31mred\u{1b}]0;title\u{7}\u{202e}desrever\u{200b}";

/// The largest page that a hostile text may make.
const MAX_PAGE_BYTES: usize = 600 << 10;

/// Nothing of the above is in a page as anything but text.
#[track_caller]
pub(crate) fn assert_inert(page: &Page) {
    for piece in ["<script>alert", "<img src=x", "onerror=alert(2)>", "</title></pre>"] {
        page.assert_lacks(piece);
    }
    let acts = |c: &char| {
        (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{200b}' | '\u{202e}')
    };
    let acting: String = page.text.chars().filter(acts).collect();
    assert!(acting.is_empty(), "{acting:?} in {}", page.text);
    assert_eq!(page.text.matches("</title>").count(), 1);
    assert!(page.bytes.len() < MAX_PAGE_BYTES, "{} bytes", page.bytes.len());
}

/// Posts bytes as they are, with the admin's key.
pub(crate) async fn post_bytes(
    gateway: &Gateway,
    path: &str,
    headers: &[(&str, &[u8])],
    body: &[u8],
) -> serde_json::Value {
    let stream = TcpStream::connect(gateway.address).await.expect("the gateway listens");
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
    tokio::spawn(connection);
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header("host", gateway.address.to_string())
        .header("authorization", format!("Bearer {}", gateway.client.key));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = Full::new(Bytes::copy_from_slice(body));
    let request = request.body(body).expect("a valid request");
    let answer = timeout(PATIENCE, sender.send_request(request)).await.expect("an answer in time");
    let (parts, body) = answer.expect("an answer").into_parts();
    let body = body.collect().await.expect("a whole answer").to_bytes();
    assert_eq!(parts.status.as_u16(), 202, "{:?}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).expect("JSON")
}

/// A receiver that answers everything with these bytes, after a head that says how many they are.
pub(crate) async fn answering(
    status: &'static str,
    headers: &'static str,
    body: Vec<u8>,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (head, body) = (head.clone(), body.clone());
            tokio::spawn(async move {
                let mut seen = Vec::new();
                // The requests of these tests have short bodies that arrive with their heads.
                while !seen.windows(4).any(|four| four == b"\r\n\r\n") {
                    if stream.read_buf(&mut seen).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                // Whoever has heard enough may hang up.
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = stream.write_all(&body).await;
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut seen).await;
            });
        }
    });
    url
}
