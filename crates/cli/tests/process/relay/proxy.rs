//! What lies between a hub and its gateway: a wire that can lose what it carries, and be cut.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};

use crate::within;

const CHUNK_BYTES: usize = 16 << 10;

/// What vanishes on the way. Neither side is told: no connection ends by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vanishing {
    Nothing,
    /// All from the hub, but for so many bytes of what comes first.
    FromHub {
        torn: usize,
    },
    FromGateway,
    Everything,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToGateway,
    ToHub,
}

impl Vanishing {
    const fn takes(self, direction: Direction) -> bool {
        match (self, direction) {
            (Self::Nothing, _)
            | (Self::FromHub { .. }, Direction::ToHub)
            | (Self::FromGateway, Direction::ToGateway) => false,
            (Self::Everything, _)
            | (Self::FromHub { .. }, Direction::ToGateway)
            | (Self::FromGateway, Direction::ToHub) => true,
        }
    }

    /// How much of the first piece gets through all the same.
    const fn torn(self) -> usize {
        match self {
            Self::FromHub { torn } => torn,
            Self::Nothing | Self::FromGateway | Self::Everything => 0,
        }
    }
}

/// A wire that hubs dial instead of their gateway. It has one address, wherever the gateway is.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    /// Without one, connections wait.
    gateway: watch::Sender<Option<SocketAddr>>,
    dialed: watch::Sender<usize>,
    /// Bytes from hubs that have vanished.
    vanished: watch::Sender<u64>,
    lines: Mutex<Vec<Line>>,
}

/// One connection that was dialed.
#[derive(Debug)]
struct Line {
    vanishing: watch::Sender<Vanishing>,
    carrying: AbortHandle,
}

impl Shared {
    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().expect("nobody panics with it")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
        self.cut();
    }
}

impl Proxy {
    pub(crate) async fn start(gateway: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            gateway: watch::Sender::new(Some(gateway)),
            dialed: watch::Sender::new(0),
            vanished: watch::Sender::new(0),
            lines: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        let listening = tokio::spawn(async move {
            loop {
                let (hub, _) = listener.accept().await.expect("the listener stays");
                let vanishing = watch::Sender::new(Vanishing::Nothing);
                let told = vanishing.subscribe();
                let carrying = tokio::spawn(carry(hub, told, Arc::clone(&accepting)));
                let line = Line { vanishing, carrying: carrying.abort_handle() };
                accepting.lines().push(line);
                accepting.dialed.send_modify(|dialed| *dialed += 1);
            }
        });
        Self { address, shared, listening }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where new connections lead. Without a gateway they neither get through nor fail.
    pub(crate) fn lead_to(&self, gateway: Option<SocketAddr>) {
        self.shared.gateway.send_replace(gateway);
    }

    /// What vanishes on the connections of now. Later ones carry all.
    pub(crate) fn lose(&self, vanishing: Vanishing) {
        for line in self.shared.lines().iter() {
            line.vanishing.send_replace(vanishing);
        }
    }

    /// Ends the connections of now, for both sides.
    pub(crate) fn cut(&self) {
        for line in self.shared.lines().drain(..) {
            line.carrying.abort();
        }
    }

    /// How many bytes from hubs have vanished.
    pub(crate) fn vanished(&self) -> u64 {
        *self.shared.vanished.borrow()
    }

    pub(crate) async fn until_vanished(&self, bytes: u64) {
        let mut vanished = self.shared.vanished.subscribe();
        let enough = within("the loss of an answer", vanished.wait_for(|lost| *lost >= bytes));
        drop(enough.await.expect("the sender is ours"));
    }

    /// Waits until so many connections have been dialed since the start.
    pub(crate) async fn until_dialed(&self, times: usize) {
        let mut dialed = self.shared.dialed.subscribe();
        let enough = within("a connection", dialed.wait_for(|dialed| *dialed >= times));
        drop(enough.await.expect("the sender is ours"));
    }
}

/// Carries one connection until one side has ended it, and that could be told the other.
async fn carry(hub: TcpStream, told: watch::Receiver<Vanishing>, shared: Arc<Shared>) {
    let mut gateway = shared.gateway.subscribe();
    let known = gateway.wait_for(Option::is_some).await.map(|address| *address);
    let address = known.expect("the sender is shared").expect("it was waited for");
    // One that is gone refuses; the hub then sees its connection end.
    let Ok(gateway) = TcpStream::connect(address).await else { return };
    for stream in [&hub, &gateway] {
        // A side that has gone is seen by reading from it.
        let _ = stream.set_nodelay(true);
    }
    let (from_hub, to_hub) = hub.into_split();
    let (from_gateway, to_gateway) = gateway.into_split();
    tokio::select! {
        () = pump(Direction::ToGateway, from_hub, to_gateway, &told, &shared) => {}
        () = pump(Direction::ToHub, from_gateway, to_hub, &told, &shared) => {}
    }
}

/// Carries one direction until it ends. An end that vanishes is none.
async fn pump(
    direction: Direction,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    told: &watch::Receiver<Vanishing>,
    shared: &Shared,
) {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut losing = false;
    loop {
        let read = from.read(&mut chunk).await.unwrap_or(0);
        let vanishing = *told.borrow();
        let vanishes = vanishing.takes(direction);
        if read == 0 {
            if vanishes {
                std::future::pending::<()>().await;
            }
            return;
        }
        let passes = match (vanishes, losing) {
            (false, _) => read,
            (true, false) => vanishing.torn().min(read - 1),
            (true, true) => 0,
        };
        losing = vanishes;
        if to.write_all(&chunk[..passes]).await.is_err() {
            return;
        }
        if direction == Direction::ToGateway {
            shared.vanished.send_modify(|vanished| *vanished += (read - passes) as u64);
        }
    }
}
