//! Communication between servers: frames over TCP and mutual TLS.
//!
//! Invariant: nothing here blocks the drive thread, and delivery is best-effort: a link that is
//! down or full drops messages and counts them; the site resends what matters. A peer is identified
//! by its certificate and must be in the topology, otherwise it is rejected.

mod accept;
mod certificates;
mod counters;
mod dial;
mod files;
mod frame;
mod host;
mod link;
mod links;
mod other;
mod outlet;
mod passing;
mod rows;
mod stores;
mod tls;

pub use certificates::{Authority, Certified, NotCertified};
pub(crate) use counters::Meter;
pub(crate) use frame::{Answered, Header, Passed};
pub(crate) use host::{Host, Unprepared, Wish};
#[cfg(test)]
pub(crate) use links::tests::{links as links_of, server as server_named};
pub(crate) use links::{Links, Moving, Place, Presence};
pub(crate) use other::{Condition, Late};
pub(crate) use passing::{From, NotPassed};
pub(crate) use rows::Row;
pub(crate) use stores::Twin;
pub use tls::Unusable;
pub(crate) use tls::named_by;
