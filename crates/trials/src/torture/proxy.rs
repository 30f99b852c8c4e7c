//! A TCP proxy that makes trouble: it stands between two programs and delays, resets, swallows or
//! cuts short what they say to each other.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// Further connections wait in the system's queue until one of these has ended.
const MAX_CONNECTIONS: usize = 1_024;
const CHUNK_BYTES: usize = 16 << 10;
/// How long a connection that was cut short may take to say that it has heard so.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the proxy does to every connection, those that are open and those to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// Each piece is passed on this much later.
    Delay(Duration),
    /// Both ends are told that the connection was reset.
    Reset,
    /// Nothing gets through either way, and nobody is told: the sockets stay.
    HalfOpen,
    /// What is asked arrives, and the answers vanish; the sockets stay.
    Mute,
    /// Of each connection this many more bytes of answers are passed; then it is closed.
    Truncate(usize),
}

/// Passes connections on to its target until dropped; dropping it ends them.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    trouble: watch::Sender<Trouble>,
    listening: JoinHandle<()>,
}

impl Proxy {
    /// Listens on loopback, without trouble at first. To be called within a runtime.
    pub(crate) fn start(target: SocketAddr) -> io::Result<Self> {
        Self::start_bounded(target, MAX_CONNECTIONS)
    }

    fn start_bounded(target: SocketAddr, most: usize) -> io::Result<Self> {
        let listener = StdListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        let (trouble, troubles) = watch::channel(Trouble::None);
        let listening = tokio::spawn(serve(listener, target, troubles, most));
        Ok(Self { address, trouble, listening })
    }

    /// Where to connect to instead of to the target.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set(&self, trouble: Trouble) {
        self.trouble.send_replace(trouble);
    }

    /// Ends the trouble. A connection of which something was swallowed cannot go on as if it had
    /// not been: it is reset.
    pub(crate) fn heal(&self) {
        self.set(Trouble::None);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn serve(
    listener: TcpListener,
    target: SocketAddr,
    troubles: watch::Receiver<Trouble>,
    most: usize,
) {
    // Dropping the set with this task ends every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < most => {
                // A connection that broke before it was taken shows at its other end.
                if let Ok((near, _)) = accepted {
                    connections.spawn(connect(near, target, troubles.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// How a connection, or one direction of it, came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// By itself, and the other side knows.
    Finished,
    /// It was cut short, and is to be closed as if by the target.
    Cut,
    Reset,
}

async fn connect(mut near: TcpStream, target: SocketAddr, mut troubles: watch::Receiver<Trouble>) {
    let trouble = *troubles.borrow_and_update();
    match trouble {
        Trouble::Reset => return reset(&near),
        Trouble::HalfOpen => {
            swallow(&mut near, &mut troubles).await;
            return reset(&near);
        }
        Trouble::None | Trouble::Delay(_) | Trouble::Mute | Trouble::Truncate(_) => {}
    }
    let Ok(mut far) = TcpStream::connect(target).await else { return reset(&near) };
    // Small pieces are to arrive as they were sent, trouble apart.
    if near.set_nodelay(true).is_err() || far.set_nodelay(true).is_err() {
        return reset(&near);
    }
    match exchange(&mut near, &mut far, &troubles).await {
        End::Finished => {}
        End::Cut => cut(&mut near).await,
        End::Reset => {
            reset(&near);
            reset(&far);
        }
    }
}

/// Closing a socket that has been told not to linger resets the connection.
fn reset(stream: &TcpStream) {
    // It fails where the connection has ended, which is what is wanted.
    let _ = stream.set_zero_linger();
}

/// A plain close while something is unread would be a reset, and could take back what was passed.
async fn cut(near: &mut TcpStream) {
    let mut rest = vec![0; CHUNK_BYTES];
    let heard = async {
        near.shutdown().await?;
        while near.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // Whether it was heard or not, this is the end of it.
    let _ = timeout(LAST_WORDS, heard).await;
}

/// Takes everything and passes nothing, until the trouble is another one.
async fn swallow(near: &mut TcpStream, troubles: &mut watch::Receiver<Trouble>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        tokio::select! {
            _ = troubles.changed() => return,
            read = near.read(&mut chunk) => {
                if read.unwrap_or(0) == 0 {
                    // Not even its end gets through.
                    let _ = troubles.changed().await;
                    return;
                }
            }
        }
    }
}

async fn exchange(
    near: &mut TcpStream,
    far: &mut TcpStream,
    troubles: &watch::Receiver<Trouble>,
) -> End {
    let (near_read, near_write) = near.split();
    let (far_read, far_write) = far.split();
    let questions = Way::new(Direction::Questions, troubles).carry(near_read, far_write);
    let answers = Way::new(Direction::Answers, troubles).carry(far_read, near_write);
    tokio::pin!(questions, answers);
    let (mut asked, mut answered) = (false, false);
    while !(asked && answered) {
        let end = tokio::select! {
            end = &mut questions, if !asked => { asked = true; end }
            end = &mut answers, if !answered => { answered = true; end }
        };
        match end {
            End::Finished => {}
            End::Cut | End::Reset => return end,
        }
    }
    End::Finished
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// From whoever connected to the target.
    Questions,
    Answers,
}

/// One direction of a connection.
struct Way {
    direction: Direction,
    troubles: watch::Receiver<Trouble>,
    trouble: Trouble,
    /// How much may still be passed before it is cut.
    left: usize,
    /// Something did not arrive, so that nothing may arrive any more.
    broken: bool,
}

impl Way {
    fn new(direction: Direction, troubles: &watch::Receiver<Trouble>) -> Self {
        let mut troubles = troubles.clone();
        let trouble = *troubles.borrow_and_update();
        let mut way = Self { direction, troubles, trouble, left: usize::MAX, broken: false };
        way.enter(trouble);
        way
    }

    async fn carry(mut self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> End {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            if self.left == 0 {
                return End::Cut;
            }
            let read = tokio::select! {
                biased;
                changed = self.troubles.changed() => {
                    if changed.is_err() || self.turn() == Turn::End {
                        return End::Reset;
                    }
                    continue;
                }
                read = from.read(&mut chunk) => read,
            };
            let Ok(read) = read else { return End::Reset };
            if self.vanishes() {
                self.broken = true;
                if read == 0 {
                    // The end vanishes as well; there is nothing more to read.
                    while self.troubles.changed().await.is_ok() && self.turn() == Turn::GoOn {}
                    return End::Reset;
                }
                continue;
            }
            if self.held_up().await == Turn::End {
                return End::Reset;
            }
            let passed = &chunk[..read.min(self.left)];
            if self.pass(passed, &mut to).await == Turn::End {
                return End::Reset;
            }
            if read == 0 {
                return End::Finished;
            }
            self.left = self.left.saturating_sub(passed.len());
        }
    }

    fn vanishes(&self) -> bool {
        match self.trouble {
            Trouble::HalfOpen => true,
            Trouble::Mute => self.direction == Direction::Answers,
            Trouble::None | Trouble::Delay(_) | Trouble::Reset | Trouble::Truncate(_) => false,
        }
    }

    /// Waits as long as a delay says, or until there is none any more.
    async fn held_up(&mut self) -> Turn {
        while let Trouble::Delay(delay) = self.trouble {
            tokio::select! {
                () = sleep(delay) => return Turn::GoOn,
                changed = self.troubles.changed() => {
                    if changed.is_err() || self.turn() == Turn::End {
                        return Turn::End;
                    }
                }
            }
        }
        Turn::GoOn
    }

    /// Passes all of it; nothing is the end. Somebody who does not read cannot hold up a reset.
    async fn pass(&mut self, piece: &[u8], to: &mut WriteHalf<'_>) -> Turn {
        let write = async {
            if piece.is_empty() { to.shutdown().await } else { to.write_all(piece).await }
        };
        tokio::pin!(write);
        loop {
            tokio::select! {
                biased;
                written = &mut write => {
                    return if written.is_ok() { Turn::GoOn } else { Turn::End };
                }
                changed = self.troubles.changed() => {
                    if changed.is_err() || self.turn() == Turn::End {
                        return Turn::End;
                    }
                }
            }
        }
    }

    /// Looks at what the trouble has become.
    fn turn(&mut self) -> Turn {
        let trouble = *self.troubles.borrow_and_update();
        let was_vanishing = self.vanishes();
        self.enter(trouble);
        let broken = self.broken && !(was_vanishing && self.vanishes());
        if broken || trouble == Trouble::Reset { Turn::End } else { Turn::GoOn }
    }

    fn enter(&mut self, trouble: Trouble) {
        self.trouble = trouble;
        self.left = match trouble {
            Trouble::Truncate(bytes) if self.direction == Direction::Answers => bytes,
            Trouble::None
            | Trouble::Delay(_)
            | Trouble::Reset
            | Trouble::HalfOpen
            | Trouble::Mute
            | Trouble::Truncate(_) => usize::MAX,
        };
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    GoOn,
    /// The connection is over.
    End,
}

#[cfg(test)]
mod tests;
