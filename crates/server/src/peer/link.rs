//! One connection: the common part of both ends.
//!
//! Invariant: reads never wait for writes nor the other way round, and no timer is set per frame:
//! the connection is checked at intervals, and one without any input in three checks is dead.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use legwork_site::Shares;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::counters::Counters;
use super::frame::{self, Frame, Malformed};
use super::outlet::{Outlet, Waiting};

/// How often a link is checked, and pinged.
pub(crate) const LOOK: Duration = Duration::from_secs(5);
/// The most checks without input.
const SILENT_MAX: u32 = 3;
/// How long the introduction may take.
pub(crate) const INTRODUCTION: Duration = Duration::from_secs(10);
/// The read size, and that before authentication.
const READ_BYTES: usize = 64 << 10;
const FIRST_BYTES: usize = 1 << 10;
/// A larger buffer is released.
const KEPT_BYTES: usize = 1 << 20;

/// Why a connection has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("the other side has closed the connection")]
    Closed,
    #[error("nothing was heard for {} seconds", (LOOK * SILENT_MAX).as_secs())]
    Silent,
    #[error("what came makes no sense: {0}")]
    Malformed(#[from] Malformed),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Broken(io::Error),
    #[error("the topology has changed")]
    Changed,
    #[error("`{0}` does not hold it")]
    NotHere(Arc<str>),
    #[error("it is no longer in this process")]
    Left,
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            // A killed server sends no close_notify; the TLS error for that is long.
            Self::Closed
        } else if error.kind() == io::ErrorKind::InvalidData {
            Self::Refused(format!(
                "{error}; certificates must be of the same cluster, for the servers that show \
                 them, and not too old: `legwork cluster certify` makes new ones"
            ))
        } else {
            Self::Broken(error)
        }
    }
}

impl Ended {
    /// Whether one side rejects the other: not a network error.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Malformed(_) => true,
            Self::Closed
            | Self::Silent
            | Self::Broken(_)
            | Self::Changed
            | Self::NotHere(_)
            | Self::Left => false,
        }
    }

    /// Whether the end was intended: a server was stopped or moved, or the topology has changed.
    pub(crate) fn is_wanted(&self) -> bool {
        match self {
            Self::Changed | Self::Left => true,
            Self::Closed
            | Self::Silent
            | Self::Malformed(_)
            | Self::Refused(_)
            | Self::Broken(_)
            | Self::NotHere(_) => false,
        }
    }
}

/// The read side.
pub(crate) struct Incoming<R> {
    half: R,
    buffer: BytesMut,
    /// The other side is authenticated: larger frames are allowed.
    pub(crate) is_known: bool,
    came: bool,
    silent: u32,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    pub(crate) fn new(half: R) -> Self {
        Self { half, buffer: BytesMut::new(), is_known: false, came: false, silent: 0 }
    }

    /// The next frame, with its size. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<(Frame, u64), Ended> {
        loop {
            if let Some(taken) = frame::take(&mut self.buffer, self.is_known)? {
                return Ok(taken);
            }
            self.buffer.reserve(if self.is_known { READ_BYTES } else { FIRST_BYTES });
            if self.half.read_buf(&mut self.buffer).await? == 0 {
                return Err(Ended::Closed);
            }
            self.came = true;
        }
    }

    /// Checks whether anything has arrived since the last check.
    pub(crate) fn look(&mut self) -> Result<(), Ended> {
        self.silent = if std::mem::take(&mut self.came) { 0 } else { self.silent + 1 };
        if self.silent >= SILENT_MAX { Err(Ended::Silent) } else { Ok(()) }
    }
}

/// Writes the frames of the outlet, all queued ones at once.
pub(crate) async fn write<W: AsyncWrite + Unpin>(
    outlet: &Outlet,
    mut half: W,
    counters: &Counters,
) -> Result<(), Ended> {
    let mut waiting = Waiting::default();
    loop {
        outlet.take(&mut waiting).await;
        half.write_all(&waiting.bytes).await?;
        half.flush().await?;
        counters.sent.add(&waiting.shares);
        if waiting.bytes.capacity() > KEPT_BYTES {
            waiting.bytes = Vec::new();
        }
    }
}

/// Sends one frame before all others.
pub(crate) async fn say<W: AsyncWrite + Unpin>(
    half: &mut W,
    frame: &Frame,
) -> Result<Shares, Ended> {
    let bytes = frame.to_bytes();
    half.write_all(&bytes).await?;
    half.flush().await?;
    Ok(control(bytes.len() as u64))
}

pub(crate) fn control(bytes: u64) -> Shares {
    Shares { control: bytes, ..Shares::default() }
}

pub(crate) fn looks() -> Interval {
    let mut looks = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_without_farewell_is_told_in_plain_words() {
        let killed = io::Error::new(io::ErrorKind::UnexpectedEof, "no close_notify, see https://…");
        assert_eq!(Ended::from(killed).to_string(), "the other side has closed the connection");
        let unknown = Ended::from(io::Error::new(io::ErrorKind::InvalidData, "unknown authority"));
        assert!(unknown.is_refusal());
    }

    #[test]
    fn only_what_nobody_wanted_is_a_warning() {
        assert!(Ended::Left.is_wanted() && Ended::Changed.is_wanted());
        let broken = Ended::Broken(io::Error::from(io::ErrorKind::ConnectionRefused));
        for ended in [Ended::Closed, Ended::Silent, Ended::NotHere("a".into()), broken] {
            assert!(!ended.is_wanted(), "{ended}");
        }
    }
}
