//! A logical server moves from one host to another: its store is copied while it works.
//!
//! Invariant: at no moment do two hosts drive it. The old one goes on until the change that moves the
//! server has frozen it, gives it away, and the new one drives it when it has the same and the
//! topology says so.

mod bring;
mod digest;
mod pull;
mod source;
mod wire;
mod written;

#[cfg(test)]
mod tests;

pub(crate) use bring::bring;
pub(crate) use pull::Progress;
pub(crate) use source::Source;
pub(crate) use wire::{Hash, Origin, StoreReply, StoreRequest, Unanswered};
pub(crate) use written::Written;
#[cfg(test)]
pub(crate) use {wire::Mark, wire::Stream, written::STREAMS_MAX};
