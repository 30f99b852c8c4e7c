//! The network between the nodes and their database, which can be made to carry nothing.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::database_of;
use crate::cluster::{Cluster, USER};

const CHUNK_BYTES: usize = 16 << 10;

pub(super) struct Tunnel {
    url: String,
    open: watch::Sender<bool>,
    listening: JoinHandle<()>,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Tunnel {
    /// A way to a new database of this server.
    pub(super) async fn to(cluster: &Cluster) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let store = cluster.database();
        let url =
            format!("postgres://{USER}@127.0.0.1:{port}/{}?sslmode=disable", database_of(&store));
        let (open, state) = watch::channel(true);
        let socket = cluster.socket();
        let listening = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (socket, state) = (socket.clone(), state.clone());
                tokio::spawn(async move {
                    let Ok(far) = UnixStream::connect(socket).await else { return };
                    let ((near_in, near_out), (far_in, far_out)) =
                        (near.into_split(), far.into_split());
                    tokio::join!(
                        carry(near_in, far_out, state.clone()),
                        carry(far_in, near_out, state)
                    );
                });
            }
        });
        Self { url, open, listening }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// From now on nothing gets through, not even an end. What is under way waits, as it does where
    /// what was lost is sent again when the way is clear.
    pub(super) fn close(&self) {
        self.open.send_replace(false);
    }

    pub(super) fn clear(&self) {
        self.open.send_replace(true);
    }
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut open: watch::Receiver<bool>,
) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk).await.unwrap_or(0);
        let passes = open.wait_for(|open| *open).await.is_ok();
        if read == 0 || !passes || to.write_all(&chunk[..read]).await.is_err() {
            return;
        }
    }
}
