//! The links of a logical server, for display.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use legwork_model::time::Timestamp;

use super::counters::Meter;
use super::links::Links;
use super::other::{Condition, Peer, State};

/// A link, for display.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) server: Arc<str>,
    pub(crate) domain: Arc<str>,
    pub(crate) address: Arc<str>,
    pub(crate) condition: Condition,
    pub(crate) since: Timestamp,
    /// Transfers that the other server has not acknowledged.
    pub(crate) parcels: usize,
    pub(crate) sent: Meter,
    pub(crate) received: Meter,
}

impl Links {
    pub(crate) fn rows(&self) -> Vec<Row> {
        let topology = self.topology();
        let row = |peer: Arc<Peer>| {
            let server = topology.server(topology.server_named(&peer.name)?)?;
            let domain = topology.domain(server.domain)?;
            let State { condition, since } = peer.state();
            Some(Row {
                server: peer.name.clone(),
                domain: domain.name.clone(),
                address: server.address.clone(),
                condition,
                since,
                parcels: peer.parcels.load(Ordering::Relaxed),
                sent: peer.counters.sent.read(),
                received: peer.counters.received.read(),
            })
        };
        self.peers().into_iter().filter_map(row).collect()
    }
}
