//! A server that knows only its bootstrap file, until the catalog assigns it a number.
//!
//! Invariant: server numbers come from the catalog only, never from the file. Before it has joined, a site only fetches
//! the catalog, and then discards everything that used numbers of the file. The driver addresses servers by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

use crate::Site;
use crate::cluster::Cluster;
use crate::cluster::seat::Seat;
use crate::input::Input;
use crate::refusal::{Kind, Refusal};

impl Cluster {
    /// This server's seat, by the file until it has joined; `None` for a single server.
    pub(crate) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref().or(self.bootstrap.as_ref())
    }

    /// The number of a server, by the topology this server uses now: the file until it has joined.
    pub(crate) fn server_named(&self, name: &str) -> Option<ServerId> {
        self.names.get(name).copied()
    }

    /// The name of a server, by the same topology.
    pub(crate) fn name_of(&self, server: ServerId) -> Option<Arc<str>> {
        Some(self.seat()?.topology.server(server)?.name.clone())
    }

    /// Rebuilds the index from name to number.
    pub(crate) fn index_names(&mut self) {
        let named = |seat: &Seat| -> BTreeMap<Arc<str>, ServerId> {
            let servers = seat.topology.numbered();
            servers.map(|(id, server)| (server.name.clone(), id)).collect()
        };
        self.names = self.seat().map(named).unwrap_or_default();
    }

    /// Whether the catalog does not name this server yet. The first registrar need not wait: it works even if it could
    /// not publish its topology.
    pub(crate) fn is_joining(&self) -> bool {
        let waits = |file: &Seat| file.topology.registrar() != Some(file.here);
        self.seat.is_none() && self.bootstrap.as_ref().is_some_and(waits)
    }

    /// Whether other servers are known by the numbers of the file alone.
    pub(crate) fn knows_only_file(&self) -> bool {
        self.seat.is_none() && self.bootstrap.is_some()
    }

    /// Refuses every request before this server has joined, also with "not found".
    pub(crate) fn require_joined(&self) -> Result<(), Refusal> {
        if !self.is_joining() {
            return Ok(());
        }
        let message = "this server has not got the topology it belongs to from the others yet; try \
                       again when it has reached one of them";
        Err(Refusal::new(Kind::Exhausted, "not_joined", message))
    }
}

impl Site {
    /// This server's seat, by the file until it has joined; `None` for a single server.
    pub fn seat(&self) -> Option<&Seat> {
        self.cluster.seat()
    }

    /// This server's seat once the catalog names it; `None` also for a single server.
    pub fn joined(&self) -> Option<&Seat> {
        self.cluster.seat.as_ref()
    }

    /// The number of a server, by the topology this server uses now: the file until it has joined.
    pub fn server_named(&self, name: &str) -> Option<ServerId> {
        self.cluster.server_named(name)
    }

    /// The name of a server, by the same topology.
    pub fn name_of(&self, server: ServerId) -> Option<Arc<str>> {
        self.cluster.name_of(server)
    }

    /// An input at a server that has not joined yet.
    pub(crate) fn act_joining(&mut self, input: Input, now: Timestamp) {
        match input {
            Input::Request { id, ref credential, ref request } if !request.needs_no_catalog() => {
                self.clock.latest = now;
                let admitted = self
                    .catalog
                    .tokens
                    .caller(credential)
                    .and_then(|_| self.cluster.require_joined());
                if let Err(refusal) = admitted {
                    self.answer(id, Err(refusal));
                }
            }
            Input::Stopping => {}
            Input::Settle => {
                self.clock.latest = now;
                self.announce_catalog(now);
            }
            // Reads and requests that need no catalog are answered, and messages about the catalog handled.
            Input::Request { .. }
            | Input::Message { .. }
            | Input::Link { .. }
            | Input::CatalogRead { .. }
            | Input::OwnRead { .. }
            | Input::Recovered(_)
            | Input::SiteRecovered
            | Input::Loaded(_)
            | Input::HistoryRead { .. }
            | Input::ClosedRead { .. }
            | Input::EntriesRead { .. }
            | Input::FilesHere { .. }
            | Input::Cancelled { .. }
            | Input::Unheard { .. }
            | Input::Moved { .. }
            | Input::GivenAway { .. }
            | Input::Jumped { .. } => self.act(input, now),
        }
    }
}
