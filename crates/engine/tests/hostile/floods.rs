//! Receivers that speak HTTP/2 and flood, or say goodbye without end.
//!
//! What a flood may cost is counted in frames, not in time: each burst is followed by a PING that
//! the client has to answer, so what it has taken in is known to within a burst. A client that
//! takes in a bounded number of frames from one connection, and opens no more than two connections
//! for an attempt, cannot be kept busy.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::certificate::Validity;
use crate::gateway::{Gateway, HUNDRED, Visit};
use crate::http2::{
    ACK, CONTINUATION, Frame, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, Wire,
    frame, ok,
};
use crate::peer::{Exchange, Peer};
use crate::script::ended;
use crate::story::{Expected, Story, check};

/// The most frames of no use that a client may take in before it closes the connection: so many in
/// any case, and so many more for each request that the connection carried.
const BOUND: usize = 10_000;
const BOUND_PER_REQUEST: usize = 100;
/// Where a flood ends that nobody stops.
const ENOUGH: usize = BOUND + BOUND_PER_REQUEST * HUNDRED + 1_000;
const BURST: usize = 50;
/// Few enough that there are several connections, each flooded anew.
const AT_ONCE: u32 = 20;

const CANCEL: [u8; 4] = [0, 0, 0, 8];
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
const NO_ERROR: [u8; 4] = [0; 4];
const NO_STREAM: [u8; 4] = [0; 4];
const ANY_STREAM: [u8; 4] = [0x7f, 0xff, 0xff, 0xff];

/// R38, while the client waits for an answer that does not come.
pub(crate) async fn before_an_answer(gateway: &Gateway) {
    assert_stopped(gateway, Moment::Asked).await;
}

/// R38, when the client has its answer and wants nothing more.
pub(crate) async fn after_an_answer(gateway: &Gateway) {
    assert_stopped(gateway, Moment::Answered).await;
}

async fn assert_stopped(gateway: &Gateway, moment: Moment) {
    let setting: [u8; 6] = [0, 3, 0, 0, 0, 100];
    let goodbye = [ANY_STREAM, NO_ERROR].concat();
    let floods = [
        ("SETTINGS", Flood::of(|_| frame(SETTINGS, 0, 0, &[]))),
        ("SETTINGS with a value", Flood::of(move |_| frame(SETTINGS, 0, 0, &setting))),
        ("PING", Flood::of(|_| frame(PING, 0, 0, &[7; 8]))),
        ("PING that answers nothing", Flood::of(|_| frame(PING, ACK, 0, &[7; 8]))),
        ("RST_STREAM", Flood::of(|stream| frame(RST_STREAM, 0, stream, &CANCEL))),
        ("WINDOW_UPDATE", Flood::of(|_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]))),
        ("GOAWAY", Flood::of(move |_| frame(GOAWAY, 0, 0, &goodbye))),
    ];
    let mut late = Vec::new();
    for (name, flood) in floods {
        match flooded(gateway, flood, moment).await {
            Stopped::InTime => {}
            Stopped::Late(frames) => late.push((name, frames)),
        }
    }
    assert!(late.is_empty(), "taken in, though nobody asked for it: {late:?}");
}

/// When a flood begins.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// With requests unanswered.
    Asked,
    /// With all requests answered.
    Answered,
}

impl Moment {
    async fn answer(self, wire: &mut Wire, stream: u32) -> io::Result<()> {
        match self {
            Self::Asked => Ok(()),
            Self::Answered => wire.send(&ok(stream)).await,
        }
    }
}

/// When a client stopped a flood: by closing the connection within the bound, or after so many
/// frames, if at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stopped {
    InTime,
    Late(usize),
}

#[derive(Clone)]
struct Flood {
    /// One frame of it, given the stream of the request.
    drop: Arc<dyn Fn(u32) -> Vec<u8> + Send + Sync>,
}

impl Flood {
    fn of(drop: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self { drop: Arc::new(drop) }
    }

    /// Goes on until the client has left, or has had enough.
    async fn pour(&self, wire: &mut Wire, stream: u32, moment: Moment) -> Stopped {
        let burst = (self.drop)(stream).repeat(BURST);
        let (mut poured, mut requests) = (0, 1);
        while poured < ENOUGH {
            let marker = poured.to_be_bytes();
            let sent = wire.send(&[&burst[..], &frame(PING, 0, 0, &marker)].concat()).await;
            if sent.is_err() || echo(wire, &marker, moment, &mut requests).await.is_err() {
                break;
            }
            poured += BURST + 1;
        }
        if poured <= BOUND + BOUND_PER_REQUEST * requests {
            Stopped::InTime
        } else {
            Stopped::Late(poured)
        }
    }
}

/// Waits for the client to answer a PING; requests that come meanwhile are treated like the first.
async fn echo(
    wire: &mut Wire,
    marker: &[u8],
    moment: Moment,
    requests: &mut usize,
) -> io::Result<()> {
    loop {
        let Frame { kind, flags, stream, payload } = wire.next().await?;
        match kind {
            PING if flags == ACK && payload == marker => return Ok(()),
            HEADERS => {
                *requests += 1;
                moment.answer(wire, stream).await?;
            }
            _ => {}
        }
    }
}

/// A receiver that follows a script on each connection.
async fn serve<F>(
    gateway: &Gateway,
    script: impl FnOnce(Wire) -> F + Clone + Send + 'static,
) -> (Peer, String)
where
    F: Future<Output = io::Result<()>> + Send,
{
    let leaf = gateway.authority.issue("127.0.0.1", Validity::Current);
    let acceptor = leaf.acceptor(&[b"h2"]);
    let peer = Peer::start(async move |exchange: Exchange| {
        // However the client leaves, it is the client's outcome that the tests look at.
        if let Ok(wire) = Wire::accept(&acceptor, exchange.stream).await {
            let _left = script(wire).await;
        }
    })
    .await;
    let url = format!("https://{}/hook", peer.address);
    (peer, url)
}

/// How the flood ended on the connection where it lasted longest.
async fn flooded(gateway: &Gateway, flood: Flood, moment: Moment) -> Stopped {
    let worst = Arc::new(Mutex::new(Stopped::InTime));
    let record = Arc::clone(&worst);
    let (peer, url) = serve(gateway, async move |mut wire: Wire| {
        let stream = wire.request().await?;
        moment.answer(&mut wire, stream).await?;
        let stopped = flood.pour(&mut wire, stream, moment).await;
        let mut worst = record.lock();
        *worst = stopped.max(*worst);
        Ok(())
    })
    .await;
    let stories = gateway.hundred(Visit::to(url).at_once(AT_ONCE)).await;
    ended(&peer, peer.connections()).await;
    for story in &stories {
        match moment {
            Moment::Answered if story.attempts[0].status.is_some() => story.assert_delivered(),
            // The flood may end the connection under a request that was about to be answered.
            Moment::Asked | Moment::Answered => story.assert_dead(),
        }
    }
    assert_not_late(&stories);
    *worst.lock()
}

/// It was the client that ended it, not its deadline.
fn assert_not_late(stories: &[Story]) {
    for story in stories {
        assert!(!story.error().starts_with("no answer within"), "{story:?}");
    }
}

/// R38. What a receiver in good order says now and then is no flood.
pub(crate) async fn ordinary(gateway: &Gateway) {
    let (peer, url) = serve(gateway, async |mut wire: Wire| {
        loop {
            let stream = wire.request().await?;
            let mut frames = frame(SETTINGS, 0, 0, &[]);
            frames.extend(frame(PING, 0, 0, &[1; 8]).repeat(5));
            frames.extend(frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]).repeat(5));
            frames.extend(ok(stream));
            wire.send(&frames).await?;
        }
    })
    .await;
    let stories = gateway.hundred(Visit::to(url).at_once(AT_ONCE)).await;
    check(&stories, &Expected::Delivered { status: 200, body: b"", truncated: false });
    assert_eq!(peer.connections(), 1);
}

/// R38: `CONTINUATION` without end.
pub(crate) async fn unfinished_head(gateway: &Gateway) {
    let (peer, url) = serve(gateway, async |mut wire: Wire| {
        let stream = wire.request().await?;
        wire.send(&frame(HEADERS, 0, stream, &[])).await?;
        // A literal header that is not indexed: `a: b`.
        let more = frame(CONTINUATION, 0, stream, &[0, 1, b'a', 1, b'b']).repeat(BURST);
        // Nothing may come between, so there is no PING to show how far the client got. That it
        // leaves before its deadline shows that it did not take in all.
        for _ in 0..ENOUGH / BURST {
            wire.send(&more).await?;
        }
        wire.until_closed().await;
        Ok(())
    })
    .await;
    let stories = gateway.hundred(Visit::to(url).at_once(AT_ONCE)).await;
    check(&stories, &Expected::NoAnswer { error: "" });
    assert_not_late(&stories);
    ended(&peer, peer.connections()).await;
}

/// R38: `WINDOW_UPDATE` by nothing, for the connection and for the stream.
pub(crate) async fn no_window(gateway: &Gateway) {
    for of_stream in [false, true] {
        let (peer, url) = serve(gateway, async move |mut wire: Wire| {
            let stream = wire.request().await?;
            let stream = if of_stream { stream } else { 0 };
            wire.send(&frame(WINDOW_UPDATE, 0, stream, &[0; 4])).await?;
            wire.until_closed().await;
            Ok(())
        })
        .await;
        let stories = gateway.hundred(Visit::to(url).at_once(AT_ONCE)).await;
        check(&stories, &Expected::NoAnswer { error: "" });
        assert_not_late(&stories);
        ended(&peer, peer.connections()).await;
    }
}

/// R38. Every request is reset as soon as it is there. One that was refused unread may be sent
/// once more.
pub(crate) async fn resets(gateway: &Gateway) {
    reset(gateway, CANCEL, 1).await;
    reset(gateway, REFUSED_STREAM, 2).await;
}

async fn reset(gateway: &Gateway, reason: [u8; 4], most: usize) {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let (_peer, url) = serve(gateway, async move |mut wire: Wire| {
        loop {
            let stream = wire.request().await?;
            count.fetch_add(1, Ordering::SeqCst);
            wire.send(&frame(RST_STREAM, 0, stream, &reason)).await?;
        }
    })
    .await;
    let stories = gateway.hundred(Visit::to(url).at_once(AT_ONCE)).await;
    check(&stories, &Expected::NoAnswer { error: "" });
    assert_not_late(&stories);
    let requests = requests.load(Ordering::SeqCst);
    assert!((HUNDRED..=most * HUNDRED).contains(&requests), "{requests} requests");
}

/// R38. Every connection is ended as soon as it is there: an attempt dials once, or once more.
pub(crate) async fn goodbyes(gateway: &Gateway) {
    let (peer, url) = serve(gateway, async |mut wire: Wire| {
        let goodbye = frame(GOAWAY, 0, 0, &[NO_STREAM, NO_ERROR].concat());
        wire.send(&goodbye.repeat(BURST)).await?;
        wire.until_closed().await;
        Ok(())
    })
    .await;
    let stories = gateway.hundred(Visit::to(url).at_once(AT_ONCE)).await;
    check(&stories, &Expected::NoAnswer { error: "" });
    assert_not_late(&stories);
    assert!(peer.connections() <= 2 * HUNDRED, "{} connections", peer.connections());
}
