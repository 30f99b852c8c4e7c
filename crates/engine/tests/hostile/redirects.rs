//! Receivers that point elsewhere.

use crate::gateway::{Gateway, HUNDRED, Visit};
use crate::peer::{Exchange, Peer};
use crate::script::{OK, Then, reply};
use crate::story::{Expected, check};

const METADATA: &str = "http://169.254.169.254/";

/// R21. Requests to the row's own target cannot be counted here, so the same is shown with one that
/// can.
pub(crate) async fn elsewhere(gateway: &Gateway) {
    let target = reply(OK, Then::Repeat).await;
    for (status, error) in [
        (301, "HTTP 301 Moved Permanently"),
        (302, "HTTP 302 Found"),
        (303, "HTTP 303 See Other"),
        (307, "HTTP 307 Temporary Redirect"),
        (308, "HTTP 308 Permanent Redirect"),
    ] {
        for location in [METADATA, &target.url()] {
            let answer =
                format!("HTTP/1.1 {status} x\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
            let peer = reply(answer, Then::Repeat).await;
            let stories = gateway.hundred(Visit::to(peer.url())).await;
            check(&stories, &Expected::Refused { status, error });
            assert_eq!(peer.requests().len(), HUNDRED);
        }
    }
    assert_eq!(target.connections(), 0);
}

/// R22
pub(crate) async fn to_itself(gateway: &Gateway) {
    let peer = Peer::start(async |mut exchange: Exchange| {
        while exchange.read_request().await {
            let own = exchange.stream.local_addr().expect("an address");
            let head = format!("HTTP/1.1 307 x\r\nLocation: http://{own}/hook?a=1\r\n");
            exchange.write(&format!("{head}Content-Length: 0\r\n\r\n")).await;
        }
    })
    .await;
    let stories = gateway.hundred(Visit::to(peer.url())).await;
    let error = "HTTP 307 Temporary Redirect";
    check(&stories, &Expected::Refused { status: 307, error });
    assert_eq!(peer.requests().len(), HUNDRED);
}

/// R23
pub(crate) async fn refresh(gateway: &Gateway) {
    let target = reply(OK, Then::Repeat).await;
    let url = target.url();
    let page = format!("<meta http-equiv=\"refresh\" content=\"0;url={url}\">");
    let length = page.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nRefresh: 0;url={url}\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n{page}"
    );
    let peer = reply(answer, Then::Repeat).await;
    let stories = gateway.hundred(Visit::to(peer.url())).await;
    let body = page.as_bytes();
    check(&stories, &Expected::Delivered { status: 200, body, truncated: false });
    assert_eq!((peer.requests().len(), target.connections()), (HUNDRED, 0));
}
