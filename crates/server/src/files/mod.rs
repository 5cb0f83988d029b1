//! Transfer of file contents between servers: only missing chunks travel.
//!
//! Invariant: a content goes straight from a server that has it to the one whose step reads it. It
//! is identified by its hash, so wrong contents are detected.

mod chunks;
mod fetch;
mod named;
mod serve;
mod spool;
mod wire;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use chunks::noise;
pub(crate) use fetch::{Fetcher, NotBrought, Peers, Unreachable};
pub(crate) use named::named;
pub(crate) use serve::Offered;
pub(crate) use spool::Spool;
pub(crate) use wire::{FileReply, FileRequest};
