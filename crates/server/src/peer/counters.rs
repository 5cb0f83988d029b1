//! Traffic counters of links.
//!
//! Invariant: every byte given to TLS is counted once, by its purpose, frame headers included;
//! every byte on the socket is counted once too, so that both can be compared with the counters of
//! the network interface.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::{array, io};

use legwork_site::Shares;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The counters of one peer, over all its connections since the server started.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: Direction,
    pub(crate) received: Direction,
}

#[derive(Debug, Default)]
pub(crate) struct Direction {
    /// In the order of `Shares::named`.
    kinds: [AtomicU64; 5],
    /// On the socket, below TLS.
    socket: AtomicU64,
    /// Dropped messages.
    dropped: AtomicU64,
    /// Messages and requests within this process, without a socket.
    local: AtomicU64,
}

/// A snapshot of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meter {
    pub(crate) kinds: [(&'static str, u64); 5],
    pub(crate) socket: u64,
    pub(crate) dropped: u64,
    pub(crate) local: u64,
}

impl Direction {
    pub(crate) fn add(&self, shares: &Shares) {
        for (kind, (_, bytes)) in self.kinds.iter().zip(shares.named()) {
            kind.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// A message was handed from queue to queue.
    pub(crate) fn hand_over(&self) {
        self.local.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Meter {
        let names = Shares::default().named();
        let kinds = array::from_fn(|n| (names[n].0, self.kinds[n].load(Ordering::Relaxed)));
        let socket = self.socket.load(Ordering::Relaxed);
        let dropped = self.dropped.load(Ordering::Relaxed);
        Meter { kinds, socket, dropped, local: self.local.load(Ordering::Relaxed) }
    }
}

/// A socket whose bytes are counted, also before the peer is known.
pub(crate) struct Counted<S> {
    stream: S,
    tally: Arc<Tally>,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    sent: AtomicU64,
    received: AtomicU64,
    peer: OnceLock<Arc<Counters>>,
}

impl Tally {
    /// Assigns all past and future bytes to this peer. Called by the task that owns the socket, so
    /// nothing is counted meanwhile.
    pub(crate) fn belongs_to(&self, counters: &Arc<Counters>) {
        if self.peer.set(counters.clone()).is_ok() {
            let moved = |from: &AtomicU64| from.swap(0, Ordering::Relaxed);
            counters.sent.socket.fetch_add(moved(&self.sent), Ordering::Relaxed);
            counters.received.socket.fetch_add(moved(&self.received), Ordering::Relaxed);
        }
    }

    fn add_sent(&self, bytes: usize) {
        let count = self.peer.get().map_or(&self.sent, |counters| &counters.sent.socket);
        count.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn add_received(&self, bytes: usize) {
        let count = self.peer.get().map_or(&self.received, |counters| &counters.received.socket);
        count.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl<S> Counted<S> {
    pub(crate) fn new(stream: S) -> (Self, Arc<Tally>) {
        let tally = Arc::new(Tally::default());
        (Self { stream, tally: tally.clone() }, tally)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.tally.add_received(buffer.filled().len() - before);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(bytes)) = &polled {
            self.tally.add_sent(*bytes);
        }
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        if let Poll::Ready(Ok(bytes)) = &polled {
            self.tally.add_sent(*bytes);
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
