//! This server within the cluster: its seat, the topology in force, and changes of the topology.

pub(crate) mod coordinate;
pub(crate) mod exceptions;
pub(crate) mod joining;
pub(crate) mod locks;
pub(crate) mod reconfigure;
pub(crate) mod seat;
pub(crate) mod servers;
pub(crate) mod topology;
pub(crate) mod watch;
pub(crate) mod whereabouts;

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::id::ServerId;

use crate::Site;
use crate::message::Registrar;
use coordinate::{Coordination, Reporting};
use exceptions::Endings;
use legwork_model::time::Timestamp;
use locks::Locks;
use seat::Seat;
use watch::Watching;

/// What this server knows of its place in the cluster.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// This server's seat by the catalog; `None` for a single server, or if the catalog does not name it yet.
    pub(crate) seat: Option<Seat>,
    /// The seat by the file this server was started with.
    pub(crate) bootstrap: Option<Seat>,
    /// Numbers of servers by name, of the seat, or else of the file.
    pub(crate) names: BTreeMap<Arc<str>, ServerId>,
    /// Whether any input other than stored records has been handled.
    pub(crate) has_begun: bool,
    /// What waits here for a change of the topology to end.
    pub(crate) locks: Locks,
    /// Reports sent to the registrar, and reports received as the registrar.
    pub(crate) reporting: Reporting,
    pub(crate) coordination: Coordination,
    /// Ended exceptions of the domain.
    pub(crate) endings: Endings,
    /// Whether the loads of the servers match their weights.
    pub(crate) watching: Watching,
}

impl Site {
    pub(crate) fn on_registrar(&mut self, from: ServerId, message: Registrar, now: Timestamp) {
        match message {
            Registrar::Report(report) => self.on_report(from, &report, now),
            Registrar::Moved { change, server } => self.on_moved(from, change, server, now),
            Registrar::Over { ids } => self.on_over(from, ids, now),
            Registrar::Load { written } => self.cluster.on_load(from, written, now),
        }
    }
}
