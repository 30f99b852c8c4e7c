//! The network between nodes and their database, which can fail over: with a word, or without one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, USER};

const CHUNK_BYTES: usize = 16 << 10;

/// What a connection says that is to hear what others tell.
const LISTENS: &[u8] = b"LISTEN postrider";

/// What becomes of connections; those that are made afterwards get through at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failover {
    /// All are closed.
    Told,
    /// Those that listen carry nothing any more, and nobody is told: no end, no reset.
    Silent,
}

pub(crate) struct Wire {
    url: String,
    failover: watch::Sender<Option<Failover>>,
    listening: JoinHandle<()>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Wire {
    /// A way to a new database of this server.
    pub(crate) async fn to(cluster: &Cluster) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let store = cluster.database();
        let path = store.split('?').next().unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        let url = format!("postgres://{USER}@127.0.0.1:{port}/{name}?sslmode=disable");
        let failover = watch::Sender::new(None);
        let (socket, state) = (cluster.socket(), failover.subscribe());
        let listening = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let socket = socket.clone();
                let mut state = state.clone();
                // What has happened so far happened to others.
                state.mark_unchanged();
                tokio::spawn(async move {
                    let Ok(far) = UnixStream::connect(socket).await else { return };
                    let ((near_in, near_out), (far_in, far_out)) =
                        (near.into_split(), far.into_split());
                    let listens = Arc::new(AtomicBool::new(false));
                    tokio::join!(
                        carry(near_in, far_out, state.clone(), Arc::clone(&listens)),
                        carry(far_in, near_out, state, listens)
                    );
                });
            }
        });
        Self { url, failover, listening }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn fail_over(&self, failover: Failover) {
        self.failover.send_replace(Some(failover));
    }
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<Option<Failover>>,
    listens: Arc<AtomicBool>,
) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = tokio::select! {
            biased;
            changed = state.changed() => {
                let failover = *state.borrow_and_update();
                match (changed, failover) {
                    // Both sockets are kept.
                    (Ok(()), Some(Failover::Silent)) if listens.load(Ordering::SeqCst) => {
                        std::future::pending().await
                    }
                    (Ok(()), Some(Failover::Silent) | None) => continue,
                    (Ok(()), Some(Failover::Told)) | (Err(_), _) => return,
                }
            }
            read = from.read(&mut chunk) => read.unwrap_or(0),
        };
        let said = &chunk[..read];
        if said.windows(LISTENS.len()).any(|part| part == LISTENS) {
            listens.store(true, Ordering::SeqCst);
        }
        if read == 0 || to.write_all(said).await.is_err() {
            return;
        }
    }
}
