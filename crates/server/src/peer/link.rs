//! One connection: what both ends do with it.
//!
//! Invariant: reading never waits for writing nor the other way round, and no timer is set for a
//! frame: the connection is looked at now and then, and one that was silent for three looks is
//! dead.

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

/// How often a link is looked at, and pinged.
pub(crate) const LOOK: Duration = Duration::from_secs(5);
/// How many looks may find that nothing has come.
const SILENT_MAX: u32 = 3;
/// How long getting acquainted may take.
pub(crate) const INTRODUCTION: Duration = Duration::from_secs(10);
/// What is read at once, and before the other side is known.
const READ_BYTES: usize = 64 << 10;
const FIRST_BYTES: usize = 1 << 10;
/// A buffer that has grown larger than this is given back.
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
            // A server that was killed says no farewell; TLS makes many words of that.
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
    /// Whether the other side does not want this one, or the other way round: it is no matter of
    /// the network.
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

    /// Whether somebody wanted it so: a server was stopped or moved, or the topology says so.
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

/// What comes in.
pub(crate) struct Incoming<R> {
    half: R,
    buffer: BytesMut,
    /// The other side has been let in: it may say more.
    pub(crate) is_known: bool,
    came: bool,
    silent: u32,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    pub(crate) fn new(half: R) -> Self {
        Self { half, buffer: BytesMut::new(), is_known: false, came: false, silent: 0 }
    }

    /// The next frame, and how many bytes it had. Nothing is lost if it is not waited for.
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

    /// Looks whether anything has come since the last look.
    pub(crate) fn look(&mut self) -> Result<(), Ended> {
        self.silent = if std::mem::take(&mut self.came) { 0 } else { self.silent + 1 };
        if self.silent >= SILENT_MAX { Err(Ended::Silent) } else { Ok(()) }
    }
}

/// Writes what is put into the outlet, all that waits at once.
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

/// Says one thing before anything else is said.
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
