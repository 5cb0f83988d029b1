//! This server among others: its seat, the topology in force, and changes of it.

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
    /// This server among others, as the catalog says; `None` if it is alone, or if the catalog
    /// does not say so yet.
    pub(crate) seat: Option<Seat>,
    /// The same, as it was told when it started.
    pub(crate) bootstrap: Option<Seat>,
    /// The numbers of servers by their names, as of the seat, or else of the file.
    pub(crate) names: BTreeMap<Arc<str>, ServerId>,
    /// Whether something other than what was stored has come in.
    pub(crate) has_begun: bool,
    /// What waits here for a change of the topology to end.
    pub(crate) locks: Locks,
    /// What is said to the registrar about it, and what the registrar has heard.
    pub(crate) reporting: Reporting,
    pub(crate) coordination: Coordination,
    /// Exceptions of the domain that are here.
    pub(crate) endings: Endings,
    /// Whether the servers have the load they are meant to have.
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
