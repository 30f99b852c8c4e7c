//! Receivers that want something to remember them by, or somebody to log in.

use crate::gateway::{Gateway, HUNDRED, Visit};
use crate::script::{Then, header, reply};

/// Two attempts for each delivery, the second with all that the first could have taught.
async fn twice(gateway: &Gateway, head: &str, error: &str, never_sent: &[&str]) {
    let peer = reply(format!("{head}Content-Length: 0\r\n\r\n"), Then::Repeat).await;
    for story in gateway.hundred(Visit::to(peer.url()).tries(2)).await {
        story.assert_dead();
        assert_eq!((story.attempts.len(), story.error()), (2, error));
    }
    let requests = peer.requests();
    assert_eq!(requests.len(), 2 * HUNDRED);
    assert_eq!(header(&requests, "webhook-id").len(), 2 * HUNDRED, "names are in lower case");
    for name in never_sent {
        assert_eq!(header(&requests, name), [""; 0]);
    }
}

/// R44
pub(crate) async fn cookies(gateway: &Gateway) {
    let head = "HTTP/1.1 500 x\r\nSet-Cookie: a=b; Path=/; Max-Age=9999\r\nSet-Cookie: c=d\r\n";
    twice(gateway, head, "HTTP 500 Internal Server Error", &["cookie", "cookie2"]).await;
}

/// R45
pub(crate) async fn challenges(gateway: &Gateway) {
    let never_sent = ["authorization", "proxy-authorization"];
    let head = "HTTP/1.1 401 x\r\nWWW-Authenticate: Basic realm=\"a\", Negotiate, NTLM\r\n";
    twice(gateway, head, "HTTP 401 Unauthorized", &never_sent).await;
    let head = "HTTP/1.1 407 x\r\nProxy-Authenticate: Basic realm=\"a\"\r\n";
    twice(gateway, head, "HTTP 407 Proxy Authentication Required", &never_sent).await;
}
