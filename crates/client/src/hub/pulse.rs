//! A connection that notes when it last brought a byte.
//!
//! A large message takes long over a slow line, and nothing else can come before its end. So it is
//! not messages that show that the other side is there, but bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

use crate::ports;

/// When the other side was last heard.
#[derive(Debug, Clone)]
pub(super) struct Pulse {
    since: Instant,
    /// Milliseconds from `since`.
    heard: Arc<AtomicU64>,
}

impl Pulse {
    fn start() -> Self {
        Self { since: ports::now(), heard: Arc::default() }
    }

    fn beat(&self) {
        let millis = ports::now().duration_since(self.since).as_millis();
        self.heard.store(millis.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Waits until nothing has been heard for `silence`.
    pub(super) async fn silent_for(&self, silence: Duration) {
        loop {
            let heard = Duration::from_millis(self.heard.load(Ordering::Relaxed));
            let gone = self.since + heard + silence;
            if ports::now() >= gone {
                return;
            }
            sleep_until(gone).await;
        }
    }
}

#[derive(Debug)]
pub(super) struct Pulsing<S> {
    stream: S,
    pulse: Pulse,
}

impl<S> Pulsing<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, pulse: Pulse::start() }
    }

    pub(super) fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Pulsing<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.pulse.beat();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Pulsing<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
