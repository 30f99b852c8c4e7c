//! A hub under the test's control, on a WebSocket of its own.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{Method, Request};
use postrider_core::hub::{Answer, Deliver, FromGateway, FromHub, Hello, Met, PROTOCOL, Welcome};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;

use crate::gateway::{Call, Gateway, PATIENCE};

/// A hub that was made over HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Hub {
    pub(crate) id: String,
    pub(crate) token: String,
}

impl Hub {
    pub(crate) fn path(&self) -> String {
        format!("/v1/hubs/{}", self.id)
    }

    pub(crate) fn call(&self, method: Method, path: &str) -> Call {
        let value = format!("Bearer {}", self.token);
        Call::new(method, path).without_key().header("authorization", &value)
    }
}

impl Gateway {
    pub(crate) async fn hub(&self, name: &str) -> Hub {
        let made = self.post("/v1/hubs", json!({"name": name})).await;
        assert_eq!(made.status, 201, "{made:?}");
        let made = made.json();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        Hub { id: text(&made["id"]), token: text(&made["token"]) }
    }

    /// A connection with this token that has said nothing yet.
    pub(crate) async fn dial(&self, hub: &Hub) -> Connection {
        let stream = TcpStream::connect(self.address).await.expect("a connection");
        let request = Request::builder()
            .uri(format!("ws://{}/v1/hub", self.address))
            .header("host", self.address.to_string())
            .header("authorization", format!("Bearer {}", hub.token))
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", generate_key())
            .header("sec-websocket-protocol", format!("other, {PROTOCOL}"));
        let request = request.body(()).expect("a request");
        let (socket, response) =
            tokio_tungstenite::client_async(request, stream).await.expect("a handshake");
        assert_eq!(response.headers()["sec-websocket-protocol"], PROTOCOL);
        Connection { socket }
    }

    /// A connection that was welcomed.
    pub(crate) async fn connect(&self, hub: &Hub, capacity: u32) -> Connection {
        let mut connection = self.dial(hub).await;
        connection.say(&hello(capacity)).await;
        assert_eq!(connection.welcome().await.hub.to_string(), hub.id);
        connection
    }
}

pub(crate) fn hello(capacity: u32) -> FromHub {
    FromHub::Hello(Hello { agent: "test/1".into(), capacity })
}

/// An answer with a status and nothing else.
pub(crate) fn status(status: u16) -> Met {
    Met::Status { status, headers: Vec::new(), body: Bytes::new(), truncated: false }
}

pub(crate) struct Connection {
    socket: WebSocketStream<TcpStream>,
}

/// What came.
#[derive(Debug)]
pub(crate) enum Heard {
    Frame(FromGateway),
    Closed {
        code: u16,
        reason: String,
    },
    /// Without a word.
    Cut,
}

impl Connection {
    pub(crate) async fn say(&mut self, frame: &FromHub) {
        self.send(Message::Binary(frame.encode())).await;
    }

    pub(crate) async fn send(&mut self, message: Message) {
        let sent = tokio::time::timeout(PATIENCE, self.socket.send(message)).await;
        sent.expect("in time").expect("the gateway listens");
    }

    pub(crate) async fn answer(&mut self, seq: u64, met: Met) {
        let duration = Duration::from_millis(31);
        self.say(&FromHub::Answer(Answer { seq, duration, met })).await;
    }

    pub(crate) async fn hear(&mut self) -> Heard {
        let hearing = async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Binary(bytes))) => {
                        return Heard::Frame(FromGateway::decode(bytes).expect("a frame"));
                    }
                    Some(Ok(Message::Close(Some(close)))) => {
                        let reason = close.reason.to_string();
                        return Heard::Closed { code: close.code.into(), reason };
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(other)) => panic!("{other:?}"),
                    Some(Err(_)) | None => return Heard::Cut,
                }
            }
        };
        tokio::time::timeout(PATIENCE, hearing).await.expect("something in time")
    }

    pub(crate) async fn welcome(&mut self) -> Welcome {
        match self.hear().await {
            Heard::Frame(FromGateway::Welcome(welcome)) => welcome,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn take(&mut self) -> Deliver {
        match self.hear().await {
            Heard::Frame(FromGateway::Deliver(deliver)) => deliver,
            other => panic!("{other:?}"),
        }
    }

    /// The code and the reason of the close that has to be next.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        match self.hear().await {
            Heard::Closed { code, reason } => (code, reason),
            other => panic!("{other:?}"),
        }
    }
}
