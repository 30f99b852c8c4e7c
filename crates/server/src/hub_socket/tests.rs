//! What a connection does as time passes, on a clock that does not wait.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use postrider_core::endpoint::{Destination, Ordering, Spec};
use postrider_core::hub::{Answer, Met, SILENCE};
use postrider_core::pattern::Pattern;
use postrider_core::signing::Scheme;
use postrider_core::{TenantId, Timestamp, policy};
use postrider_engine::notices::NoticeKind;
use postrider_engine::ports::{ManualClock, SystemEntropy};
use postrider_engine::{Acting, Options, Private, Submission};
use postrider_store::Store;
use postrider_store::audit::Actor;
use postrider_store::sealing::{Keyring, SealingKey};
use postrider_store::sqlite::{self, Sqlite};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
const ACTING: Acting = Acting { tenant: TenantId::DEFAULT, by: Actor::Gateway };
/// What is under way between the two: less than a large message.
const ROOM: usize = 4 << 10;
/// Less than what it takes to be taken for gone.
const WHILE: Duration = Duration::from_secs(30);
/// A ping as a server writes it.
const PING: [u8; 2] = [0x89, 0];

/// A hub on a connection that is being served.
struct Peer {
    socket: WebSocketStream<DuplexStream>,
    stop: watch::Sender<bool>,
    served: JoinHandle<(End, Duration)>,
}

impl Peer {
    async fn dial(gateway: &Gateway) -> Self {
        let (here, there) = duplex(ROOM);
        let (stop, stopping) = watch::channel(false);
        let (engine, hub) = (gateway.engine.clone(), gateway.hub.clone());
        let served = tokio::spawn(async move {
            let started = Instant::now();
            let wire = Wire::new(there).await;
            let end = serve(wire, &engine, hub, Stopping::when(stopping)).await;
            (end, started.elapsed())
        });
        let socket = WebSocketStream::from_raw_socket(here, Role::Client, None).await;
        Self { socket, stop, served }
    }

    /// One that was welcomed.
    async fn connect(gateway: &Gateway) -> Self {
        let mut peer = Self::dial(gateway).await;
        let hello = FromHub::Hello(Hello { agent: "test".into(), capacity: 8 });
        peer.say(Message::Binary(hello.encode())).await;
        let heard = peer.hear().await;
        assert!(matches!(heard, FromGateway::Welcome(_)), "{heard:?}");
        peer
    }

    async fn say(&mut self, message: Message) {
        self.socket.send(message).await.expect("somebody listens");
    }

    async fn hear(&mut self) -> FromGateway {
        match self.socket.next().await {
            Some(Ok(Message::Binary(bytes))) => FromGateway::decode(bytes).expect("a frame"),
            other => panic!("{other:?}"),
        }
    }

    async fn take(&mut self) -> Deliver {
        match self.hear().await {
            FromGateway::Deliver(deliver) => deliver,
            FromGateway::Welcome(welcome) => panic!("{welcome:?}"),
        }
    }

    /// How the connection ended, and when.
    async fn ended(self) -> (End, Duration) {
        self.served.await.expect("no panic")
    }
}

struct Gateway {
    engine: Engine,
    hub: HubRecord,
    _folder: TempDir,
}

impl Gateway {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("postrider.db");
        let keyring = Keyring::new(vec![SealingKey::from_bytes([7; 32])]).expect("one key");
        let store = Sqlite::open(&path, sqlite::Options::default(), keyring).expect("a database");
        let store: Arc<dyn Store> = Arc::new(store);
        let clock = Arc::new(ManualClock::at(START));
        let entropy = Arc::new(SystemEntropy);
        let engine = Engine::start(Options::default(), store, clock, entropy).await;
        let engine = engine.expect("the engine starts");
        let (hub, _) = engine.create_hub(ACTING, "a hub".into()).await.expect("a hub");
        Self { engine, hub, _folder: folder }
    }

    /// A delivery that waits for the hub, before there is a connection: while the store is at work
    /// no virtual time should pass.
    async fn with_something_to_deliver(body: Bytes) -> Self {
        let gateway = Self::start().await;
        let spec = Spec {
            name: None,
            destination: Destination::Hub(gateway.hub.id),
            event_types: vec![Pattern::Any],
            sources: Vec::new(),
            filter: None,
            policy: policy::Spec::default(),
            ordering: Ordering::None,
            rate_limit: None,
            max_in_flight: None,
            timeout: None,
            headers: BTreeMap::new(),
            signing: Scheme::default(),
            format: None,
            metadata: serde_json::Map::new(),
        };
        let made = gateway.engine.create_endpoint(ACTING, spec, Private::default()).await;
        made.expect("an endpoint");
        let submission = Submission {
            kind: "a.b".into(),
            content_type: "text/plain".into(),
            body,
            idempotency_key: None,
            ordering_key: None,
            deliver_at: None,
            metadata: None,
            source: None,
            verified: None,
            headers: Vec::new(),
            trace: None,
        };
        gateway.engine.accept(ACTING.tenant, vec![submission]).await.expect("accepted");
        gateway
    }
}

fn large() -> Bytes {
    (0..=250).cycle().take(300_000).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_says_no_hello_is_sent_away() {
    let gateway = Gateway::start().await;
    let mut peer = Peer::dial(&gateway).await;
    // It is not enough to show that somebody is there.
    peer.say(Message::Ping(Bytes::new())).await;
    let (end, after) = peer.ended().await;
    assert_eq!(end, End::closed(close::MALFORMED, "no hello came in time"));
    assert!(after >= GREETING, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_falls_silent_is_given_up() {
    let gateway = Gateway::start().await;
    let mut notices = gateway.engine.notices().subscribe();
    let mut told = || notices.try_recv().ok().map(|notice| notice.kind);
    let Peer { socket, served, stop } = Peer::connect(&gateway).await;
    assert_eq!(told(), Some(NoticeKind::HubConnected));
    let (end, after) = served.await.expect("no panic");
    assert_eq!(end, End::Lost);
    assert!((SILENCE..SILENCE + HEARTBEAT).contains(&after), "{after:?}");
    assert_eq!(told(), Some(NoticeKind::HubDisconnected));
    let mut left = Vec::new();
    socket.into_inner().read_to_end(&mut left).await.expect("readable");
    assert_eq!(left, [PING, PING].concat(), "it was asked, and not told");
    drop(stop);
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_shows_that_it_is_there_stays() {
    let gateway = Gateway::start().await;
    let mut peer = Peer::connect(&gateway).await;
    for _ in 0..20 {
        tokio::time::sleep(WHILE).await;
        peer.say(Message::Pong(Bytes::new())).await;
    }
    peer.say(Message::Close(None)).await;
    assert_eq!(peer.ended().await.0, End::Goodbye);
}

#[tokio::test(start_paused = true)]
async fn part_of_a_message_is_a_sign_of_life() {
    let gateway = Gateway::start().await;
    let mut peer = Peer::connect(&gateway).await;
    // A binary frame of a hundred bytes, masked as a client's are, one byte at a time.
    for byte in [0x82, 0xe4, 1, 2, 3, 4, 5, 6] {
        peer.socket.get_mut().write_all(&[byte]).await.expect("somebody listens");
        tokio::time::sleep(WHILE).await;
        assert!(!peer.served.is_finished());
    }
    let (end, after) = peer.ended().await;
    assert_eq!(end, End::Lost);
    assert!((8 * WHILE..8 * WHILE + SILENCE).contains(&after), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_does_not_read_is_given_up_whatever_it_says() {
    let gateway = Gateway::with_something_to_deliver(large()).await;
    let Peer { mut socket, served, stop } = Peer::connect(&gateway).await;
    let talking = tokio::spawn(async move {
        while socket.send(Message::Pong(Bytes::new())).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let (end, after) = served.await.expect("no panic");
    assert_eq!(end, End::Lost);
    assert!((SILENCE..SILENCE + HEARTBEAT).contains(&after), "{after:?}");
    talking.await.expect("no panic");
    drop(stop);
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_reads_slowly_is_waited_for() {
    let gateway = Gateway::with_something_to_deliver(large()).await;
    let mut peer = Peer::connect(&gateway).await;
    let started = Instant::now();
    // The beginning may have been read with the welcome.
    let mut left = large().len() - ROOM;
    let mut some = vec![0; 64 << 10];
    while left > 0 {
        let count = some.len().min(left);
        peer.socket.get_mut().read_exact(&mut some[..count]).await.expect("it goes on");
        left -= count;
        peer.say(Message::Pong(Bytes::new())).await;
        tokio::time::sleep(WHILE).await;
    }
    assert!(started.elapsed() > 2 * SILENCE);
    assert!(!peer.served.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_large_delivery_comes_whole() {
    let gateway = Gateway::with_something_to_deliver(large()).await;
    let mut peer = Peer::connect(&gateway).await;
    assert_eq!(peer.take().await.body, large());
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_answers_but_not_for_ever() {
    for answers in [true, false] {
        let gateway = Gateway::with_something_to_deliver(Bytes::from_static(b"hello")).await;
        let mut peer = Peer::connect(&gateway).await;
        let seq = peer.take().await.seq;
        peer.stop.send_replace(true);
        tokio::time::sleep(LAST_ANSWERS / 2).await;
        assert!(!peer.served.is_finished());
        if answers {
            let met = Met::Status {
                status: 200,
                headers: Vec::new(),
                body: Bytes::new(),
                truncated: false,
            };
            let answer = FromHub::Answer(Answer { seq, duration: Duration::ZERO, met });
            peer.say(Message::Binary(answer.encode())).await;
        }
        let (end, after) = peer.ended().await;
        assert_eq!(end, End::closed(close::STOPPING, "the gateway is stopping"));
        assert_eq!(after >= LAST_ANSWERS, !answers, "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_what_has_nothing_to_wait_for() {
    let gateway = Gateway::start().await;
    for greeted in [false, true] {
        let mut peer =
            if greeted { Peer::connect(&gateway).await } else { Peer::dial(&gateway).await };
        peer.stop.send_replace(true);
        let last = peer.socket.next().await;
        let Some(Ok(Message::Close(Some(frame)))) = last else { panic!("{last:?}") };
        assert_eq!(u16::from(frame.code), close::STOPPING);
        // It answers in turn, and has nothing more to hear.
        assert!(peer.socket.next().await.is_none());
        let (_, after) = peer.ended().await;
        assert!(after < CLOSING, "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_does_not_take_note_of_the_end_is_left_alone() {
    let gateway = Gateway::with_something_to_deliver(large()).await;
    let mut peer = Peer::connect(&gateway).await;
    peer.say(Message::Text("hello?".into())).await;
    let (end, after) = peer.ended().await;
    assert_eq!(end, End::closed(close::MALFORMED, "frames are binary, not text"));
    assert!(after <= 2 * CLOSING, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn the_end_is_noticed_while_a_hub_does_not_read() {
    let gateway = Gateway::with_something_to_deliver(large()).await;
    let old = Peer::connect(&gateway).await;
    let (here, there) = duplex(1 << 20);
    let (engine, hub) = (gateway.engine.clone(), gateway.hub.clone());
    let new = tokio::spawn(async move {
        let hello = Hello { agent: "another".into(), capacity: 1 };
        let link = engine.connect_hub(hub.id, &hello).await.expect("the hub is known");
        converse(&mut Wire::new(there).await, link, Stopping::never()).await
    });
    let (end, after) = old.ended().await;
    assert_eq!(end, Ending::TakenOver.into());
    assert!(after <= 2 * CLOSING, "{after:?}");
    drop(here);
    assert_eq!(new.await.expect("no panic"), End::Lost);
}

#[tokio::test]
async fn a_reason_is_cut_to_what_a_close_frame_holds() {
    let (here, there) = duplex(ROOM);
    let closing = tokio::spawn(async move {
        Wire::new(there).await.finish(Some((AMISS, &"é".repeat(100)))).await;
    });
    let mut socket = WebSocketStream::from_raw_socket(here, Role::Client, None).await;
    let last = socket.next().await;
    let Some(Ok(Message::Close(Some(frame)))) = last else { panic!("{last:?}") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (AMISS, "é".repeat(61).as_str()));
    assert!(socket.next().await.is_none());
    closing.await.expect("it ends when the other side has heard it");
}
