//! Whether a connection is in use.
//!
//! Invariant: serving a request sets no timer. A connection is inspected at intervals, and two
//! inspections in a row decide whether it is idle or stalled.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection without a request for this long is closed.
const IDLE: Duration = Duration::from_secs(90);
/// An answer of which the caller reads nothing for this long is abandoned.
const STUCK: Duration = Duration::from_secs(60);

/// The traffic of one connection.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    begun: AtomicU64,
    under_way: AtomicU64,
    /// Received bytes.
    received: AtomicU64,
    /// `received` at the time of the last answer: later bytes are the beginning of a request.
    settled: AtomicU64,
    /// Sent bytes.
    sent: AtomicU64,
    /// The last write would have blocked: the caller does not read.
    blocked: AtomicBool,
}

/// A request in progress.
pub(crate) struct UnderWay<'a>(&'a Activity);

impl Activity {
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        self.0.settled.store(self.0.received.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Busy,
    /// No request for too long.
    Idle,
    /// A request arrives too slowly, or an answer is not read.
    Stalled,
}

/// Inspects one connection at fixed intervals.
#[derive(Debug)]
pub(crate) struct Watch {
    begun: u64,
    /// The number of inspections without a request in between.
    quiet: u32,
    quiet_max: u32,
    /// A partial request was present at the last inspection.
    partial: bool,
    /// The number of inspections without progress of an answer.
    stuck: u32,
    stuck_max: u32,
    sent: u64,
}

impl Watch {
    pub(crate) fn new(period: Duration) -> Self {
        let looks = |length: Duration| {
            let looks = length.as_millis().div_ceil(period.as_millis().max(1));
            u32::try_from(looks).unwrap_or(u32::MAX)
        };
        let (quiet_max, stuck_max) = (looks(IDLE), looks(STUCK));
        Self { begun: 0, quiet: 0, quiet_max, partial: false, stuck: 0, stuck_max, sent: 0 }
    }

    pub(crate) fn look(&mut self, activity: &Activity) -> Use {
        if self.is_stuck(activity) { Use::Stalled } else { self.is_asked(activity) }
    }

    /// Whether an answer has made no progress for too long.
    fn is_stuck(&mut self, activity: &Activity) -> bool {
        let sent = activity.sent.load(Ordering::Relaxed);
        let stands = activity.blocked.load(Ordering::Relaxed) && sent == self.sent;
        self.sent = sent;
        self.stuck = if stands { self.stuck + 1 } else { 0 };
        self.stuck >= self.stuck_max
    }

    fn is_asked(&mut self, activity: &Activity) -> Use {
        let begun = activity.begun.load(Ordering::Relaxed);
        let news = begun != self.begun || activity.under_way.load(Ordering::Relaxed) > 0;
        let partial =
            activity.received.load(Ordering::Relaxed) != activity.settled.load(Ordering::Relaxed);
        let was_partial = self.partial;
        self.begun = begun;
        self.partial = partial && !news;
        if news {
            self.quiet = 0;
            return Use::Busy;
        }
        self.quiet += 1;
        match (was_partial && partial, self.quiet >= self.quiet_max) {
            (true, _) => Use::Stalled,
            (false, true) => Use::Idle,
            (false, false) => Use::Busy,
        }
    }
}

/// Counts received and sent bytes.
pub(crate) struct Metered<'a, S> {
    stream: S,
    activity: &'a Activity,
}

impl<'a, S> Metered<'a, S> {
    pub(crate) fn new(stream: S, activity: &'a Activity) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let came = buffer.filled().len() - before;
        self.activity.received.fetch_add(came as u64, Ordering::Relaxed);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.activity.blocked.store(polled.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(Ok(bytes)) = &polled {
            self.activity.sent.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn receive(activity: &Activity, bytes: u64) {
        activity.received.fetch_add(bytes, Ordering::Relaxed);
    }

    #[test]
    fn a_connection_is_idle_when_nothing_was_asked_for_long_enough() {
        let activity = Activity::default();
        let mut watch = Watch::new(IDLE / 2);
        assert_eq!(watch.look(&activity), Use::Busy);
        drop(activity.begin());
        assert_eq!(watch.look(&activity), Use::Busy);
        let under_way = activity.begin();
        for _ in 0..3 {
            assert_eq!(watch.look(&activity), Use::Busy, "a long poll is no idling");
        }
        drop(under_way);
        assert_eq!(watch.look(&activity), Use::Busy);
        assert_eq!(watch.look(&activity), Use::Idle);
    }

    #[test]
    fn a_request_that_comes_drop_by_drop_stalls() {
        let activity = Activity::default();
        let mut watch = Watch::new(IDLE / 100);
        receive(&activity, 1);
        assert_eq!(watch.look(&activity), Use::Busy, "it may have come just now");
        receive(&activity, 1);
        assert_eq!(watch.look(&activity), Use::Stalled);
    }

    #[tokio::test]
    async fn an_answer_that_nobody_takes_stalls_and_one_that_gets_on_does_not() {
        let activity = Activity::default();
        let (near, mut far) = tokio::io::duplex(4);
        let mut metered = Metered::new(near, &activity);
        let mut watch = Watch::new(STUCK / 2);
        let answer = [0; 100];
        let mut write = pin!(metered.write_all(&answer));
        let mut context = Context::from_waker(Waker::noop());
        assert!(write.as_mut().poll(&mut context).is_pending());
        let mut stalls = || watch.look(&activity) == Use::Stalled;
        assert_eq!([stalls(), stalls()], [false, false]);
        // A little is read just in time.
        far.read_exact(&mut [0; 4]).await.unwrap();
        assert!(write.as_mut().poll(&mut context).is_pending());
        assert_eq!([stalls(), stalls(), stalls()], [false, false, true]);
    }

    #[test]
    fn a_request_that_comes_as_a_whole_does_not_stall() {
        let activity = Activity::default();
        let mut watch = Watch::new(IDLE / 100);
        for _ in 0..3 {
            receive(&activity, 100);
            let under_way = activity.begin();
            // Its body.
            receive(&activity, 100);
            assert_eq!(watch.look(&activity), Use::Busy);
            assert_eq!(watch.look(&activity), Use::Busy);
            drop(under_way);
            assert_eq!(watch.look(&activity), Use::Busy);
            assert_eq!(watch.look(&activity), Use::Busy);
        }
    }
}
