//! Moving a logical server to another host: its store is copied while it works.
//!
//! Invariant: at no moment do two hosts drive it. The old host goes on until the change has frozen
//! the server and gives it away; the new host drives it when it has the same store and the topology
//! says so.

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
