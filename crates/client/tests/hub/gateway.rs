//! The gateway's end of a hub's connection, played by the test.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderValue, Request, Response, StatusCode};
use postrider_core::hub::{
    Answer, Deliver, FromGateway, FromHub, Hello, MAX_FROM_HUB_BYTES, Met, PROTOCOL, Welcome,
};
use postrider_core::{DeliveryId, EndpointId, EventId, HubId};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};

use crate::within;

pub(crate) const TOKEN: &str = "prh_0123456789abcdefghijklmnopqrstuvwxyz";

pub(crate) struct Gateway {
    listener: TcpListener,
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::on(listener)
    }

    pub(crate) fn on(listener: TcpListener) -> Self {
        Self { listener }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("it listens")
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    pub(crate) async fn stream(&self) -> TcpStream {
        within("a connection", self.listener.accept()).await.expect("a connection").0
    }

    /// The next hub to connect, before it has said hello.
    pub(crate) async fn accept(&self) -> Peer<TcpStream> {
        Peer::accept(self.stream().await).await
    }

    /// The next hub to connect, after it was welcomed.
    pub(crate) async fn welcome(&self) -> Peer<TcpStream> {
        let mut peer = self.accept().await;
        peer.hello().await;
        peer.send(&FromGateway::Welcome(welcome())).await;
        peer
    }

    /// Answers the next handshake with no.
    #[expect(clippy::result_large_err, reason = "tungstenite wants the whole response")]
    pub(crate) async fn refuse(&self, status: u16, body: &'static str) {
        let status = StatusCode::from_u16(status).expect("a status");
        let refuse = |_: &Request<()>, _: Response<()>| {
            let mut response = Response::new(Some(body.to_owned()));
            *response.status_mut() = status;
            Err(response)
        };
        let stream = self.stream().await;
        let accepted = within("a handshake", shake_hands(stream, refuse)).await;
        accepted.expect_err("the handshake was refused");
    }
}

type Refusal = Response<Option<String>>;

async fn shake_hands<S, C>(stream: S, callback: C) -> tungstenite::Result<WebSocketStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
    C: FnOnce(&Request<()>, Response<()>) -> Result<Response<()>, Refusal> + Unpin,
{
    let config = WebSocketConfig::default().max_message_size(Some(MAX_FROM_HUB_BYTES));
    accept_hdr_async_with_config(stream, callback, Some(config)).await
}

pub(crate) fn welcome() -> Welcome {
    Welcome { hub: HubId::from_i64(5), name: "office".to_owned() }
}

/// A delivery like any other; tests change what they are about.
pub(crate) fn deliver(seq: u64) -> Deliver {
    let raw = i64::try_from(seq).expect("a small number");
    Deliver {
        seq,
        delivery: DeliveryId::from_i64(raw),
        event: EventId::from_i64(raw),
        endpoint: EndpointId::from_i64(7),
        endpoint_name: Some("orders".to_owned()),
        kind: "order.created".to_owned(),
        attempt: 1,
        timeout: Duration::from_secs(10),
        headers: vec![("content-type".to_owned(), Bytes::from_static(b"application/json"))],
        body: Bytes::from_static(b"{}"),
    }
}

/// A connected hub, as the gateway sees it.
pub(crate) struct Peer<S> {
    pub(crate) socket: WebSocketStream<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    /// Shakes hands as a gateway does, and checks what the hub brought.
    #[expect(clippy::result_large_err, reason = "tungstenite wants the whole response")]
    pub(crate) async fn accept(stream: S) -> Self {
        let check = |request: &Request<()>, mut response: Response<()>| {
            assert_eq!(request.uri().path(), "/v1/hub");
            assert_eq!(request.headers()[SEC_WEBSOCKET_PROTOCOL], PROTOCOL);
            assert_eq!(request.headers()[AUTHORIZATION], format!("Bearer {TOKEN}"));
            let protocol = HeaderValue::from_static(PROTOCOL);
            response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
            Ok(response)
        };
        let socket = within("a handshake", shake_hands(stream, check)).await;
        Self { socket: socket.expect("a good handshake") }
    }

    pub(crate) async fn hello(&mut self) -> Hello {
        match self.frame().await {
            FromHub::Hello(hello) => hello,
            FromHub::Answer(answer) => panic!("no hello, but {answer:?}"),
        }
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        match self.frame().await {
            FromHub::Answer(answer) => answer,
            FromHub::Hello(hello) => panic!("no answer, but {hello:?}"),
        }
    }

    /// The status that a delivery was answered with.
    pub(crate) async fn status_of(&mut self, seq: u64) -> u16 {
        let answer = self.answer().await;
        assert_eq!(answer.seq, seq);
        match answer.met {
            Met::Status { status, .. } => status,
            other @ (Met::Network { .. } | Met::Timeout { .. }) => panic!("{other:?}"),
        }
    }

    async fn frame(&mut self) -> FromHub {
        loop {
            match self.message().await {
                Some(Ok(Message::Binary(bytes))) => {
                    return FromHub::decode(bytes).expect("a frame");
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("no frame, but {other:?}"),
            }
        }
    }

    pub(crate) async fn message(&mut self) -> Option<tungstenite::Result<Message>> {
        within("a message of the hub", self.socket.next()).await
    }

    pub(crate) async fn deliver(&mut self, deliver: Deliver) {
        self.send(&FromGateway::Deliver(deliver)).await;
    }

    pub(crate) async fn send(&mut self, frame: &FromGateway) {
        self.say(Message::Binary(frame.encode())).await;
    }

    pub(crate) async fn say(&mut self, message: Message) {
        within("sending", self.socket.send(message)).await.expect("the hub is there");
    }

    pub(crate) async fn close(&mut self, code: u16, reason: &'static str) {
        let frame = CloseFrame { code: code.into(), reason: reason.into() };
        self.say(Message::Close(Some(frame))).await;
    }

    /// What the hub closes the connection with, whatever else it says before. Takes note of it, and
    /// hangs up.
    pub(crate) async fn closed(mut self) -> (u16, String) {
        loop {
            match self.message().await {
                Some(Ok(Message::Close(Some(frame)))) => {
                    assert!(self.message().await.is_none(), "nothing follows a close");
                    return (frame.code.into(), frame.reason.to_string());
                }
                Some(Ok(_)) => {}
                other => panic!("no close, but {other:?}"),
            }
        }
    }
}
