//! A peer on a real socket that follows a script and counts what reaches it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};

pub(super) struct Peer {
    pub(super) address: SocketAddr,
    seen: Arc<Seen>,
}

struct Seen {
    connections: AtomicUsize,
    requests: Mutex<Vec<String>>,
    release: Arc<Notify>,
    /// One permit for each connection whose script came to its end.
    ended: Semaphore,
}

/// One connection, for the script to read from and write to.
pub(super) struct Exchange {
    /// Counts connections from 0.
    pub(super) number: usize,
    pub(super) stream: TcpStream,
    pub(super) release: Arc<Notify>,
    seen: Arc<Seen>,
}

impl Peer {
    /// Runs the script for every connection and closes the connection at its end.
    pub(super) async fn start<S, F>(script: S) -> Self
    where
        S: FnOnce(Exchange) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen {
            connections: AtomicUsize::new(0),
            requests: Mutex::default(),
            release: Arc::default(),
            ended: Semaphore::new(0),
        });
        let shared = seen.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = shared.connections.fetch_add(1, Ordering::SeqCst);
                let release = shared.release.clone();
                let seen = shared.clone();
                let run = script.clone()(Exchange { number, stream, release, seen: seen.clone() });
                tokio::spawn(async move {
                    run.await;
                    seen.ended.add_permits(1);
                });
            }
        });
        Self { address, seen }
    }

    /// Answers every request with the same bytes, over and over.
    pub(super) async fn answering(response: impl Into<String>) -> Self {
        let response: Arc<str> = response.into().into();
        Self::start(move |mut exchange| {
            let response = response.clone();
            async move {
                while exchange.read_request().await
                    && exchange.stream.write_all(response.as_bytes()).await.is_ok()
                {
                }
            }
        })
        .await
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/hook?a=1", self.address)
    }

    pub(super) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().clone()
    }

    pub(super) fn release(&self) {
        self.seen.release.notify_one();
    }

    /// Waits until one more connection has been closed by the peer.
    pub(super) async fn exchange_ended(&self) {
        self.seen.ended.acquire().await.unwrap().forget();
    }
}

impl Exchange {
    /// Reads a request with a `content-length`; `false` when the client closed instead.
    pub(super) async fn read_request(&mut self) -> bool {
        let mut text = Vec::new();
        loop {
            if self.stream.read_buf(&mut text).await.unwrap_or(0) == 0 {
                return false;
            }
            let text = String::from_utf8_lossy(&text);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.split_once("content-length: ").unwrap().1.lines().next().unwrap();
            if body.len() == length.parse::<usize>().unwrap() {
                self.seen.requests.lock().push(text.into_owned());
                return true;
            }
        }
    }

    pub(super) async fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until the client closes or resets the connection.
    pub(super) async fn until_closed(&mut self) {
        let mut discarded = [0; 4096];
        while self.stream.read(&mut discarded).await.unwrap_or(0) > 0 {}
    }
}

/// Returns after the runtime has seen what happened to sockets before this call: a socket event
/// that is caused later has to pass through the same queue.
pub(super) async fn let_events_arrive() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    far.write_all(b"x").await.unwrap();
    near.read_exact(&mut [0]).await.unwrap();
}
