//! A bound on what an HTTP/2 peer may send without serving a request.
//!
//! Settings, pings, resets and window updates each cost an answer or a change of state, and neither
//! hyper nor h2 limits how many come. So the frames are counted on the wire, below both, and a peer
//! that sends more than its requests can explain is cut off.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Frames beside data that a connection may bring for itself …
const FRAMES: usize = 1_000;
/// … and for each request that was sent over it.
const FRAMES_PER_REQUEST: usize = 100;

/// RFC 9113 section 4.1: three bytes of length, one of type, five that do not matter here.
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;

/// A stream whose frames are counted as they are read.
pub(super) struct Counted<T> {
    io: T,
    requests: Arc<AtomicUsize>,
    head: [u8; HEAD_BYTES],
    /// How much of `head` has been read.
    have: usize,
    /// What is left of the frame whose head has been read.
    skip: usize,
    frames: usize,
}

impl<T> Counted<T> {
    /// `requests` is how many have been sent over it so far.
    pub(super) fn new(io: T, requests: Arc<AtomicUsize>) -> Self {
        Self { io, requests, head: [0; HEAD_BYTES], have: 0, skip: 0, frames: 0 }
    }

    fn look(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let passed = self.skip.min(bytes.len());
                self.skip -= passed;
                bytes = &bytes[passed..];
                continue;
            }
            let taken = (HEAD_BYTES - self.have).min(bytes.len());
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have == HEAD_BYTES {
                let [a, b, c, kind, ..] = self.head;
                self.have = 0;
                self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.frames += usize::from(kind != DATA);
            }
        }
    }

    fn is_flooded(&self) -> bool {
        let requests = self.requests.load(Ordering::Relaxed);
        self.frames > FRAMES.saturating_add(FRAMES_PER_REQUEST.saturating_mul(requests))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.io).poll_read(cx, buffer);
        this.look(&buffer.filled()[before..]);
        if this.is_flooded() {
            return Poll::Ready(Err(io::Error::other("too many frames that serve no request")));
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        let head = [0, 0, length, kind, 0, 0, 0, 0, 1];
        head.into_iter().chain(std::iter::repeat_n(0xff, length.into())).collect()
    }

    #[test]
    fn frames_are_counted_however_the_bytes_arrive() {
        let wire: Vec<u8> = [frame(4, 6), frame(DATA, 200), frame(6, 8), frame(3, 4)].concat();
        for step in 1..=wire.len() {
            let mut counted = Counted::new((), Arc::default());
            for piece in wire.chunks(step) {
                counted.look(piece);
            }
            assert_eq!(counted.frames, 3, "in pieces of {step}");
        }
    }

    #[test]
    fn every_request_explains_some_frames() {
        let requests = Arc::new(AtomicUsize::new(0));
        let mut counted = Counted::new((), Arc::clone(&requests));
        for _ in 0..=FRAMES {
            assert!(!counted.is_flooded());
            counted.look(&frame(6, 8));
        }
        assert!(counted.is_flooded());
        requests.store(1, Ordering::Relaxed);
        assert!(!counted.is_flooded());
    }
}
