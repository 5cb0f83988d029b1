//! A server that has nothing but the file it was started with, until the catalog says who it is.
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
    /// This server among others, by the file until it has joined; `None` if it is alone.
    pub(crate) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref().or(self.bootstrap.as_ref())
    }

    /// The number of a server, by the topology that this one goes by now: the file until it has joined.
    pub(crate) fn server_named(&self, name: &str) -> Option<ServerId> {
        self.names.get(name).copied()
    }

    /// The name of a server, by the same topology.
    pub(crate) fn name_of(&self, server: ServerId) -> Option<Arc<str>> {
        Some(self.seat()?.topology.server(server)?.name.clone())
    }

    /// Rebuilds the index from name to number.
    pub(crate) fn name_servers(&mut self) {
        let named = |seat: &Seat| -> BTreeMap<Arc<str>, ServerId> {
            let servers = seat.topology.numbered();
            servers.map(|(id, server)| (server.name.clone(), id)).collect()
        };
        self.names = self.seat().map(named).unwrap_or_default();
    }

    /// Whether the catalog has yet to say who this server is. The first of all need not wait for
    /// it: what it could not publish does not keep it from working.
    pub(crate) fn is_joining(&self) -> bool {
        let waits = |file: &Seat| file.topology.registrar() != Some(file.here);
        self.seat.is_none() && self.bootstrap.as_ref().is_some_and(waits)
    }

    /// Whether others are known by the numbers of the file alone.
    pub(crate) fn knows_only_file(&self) -> bool {
        self.seat.is_none() && self.bootstrap.is_some()
    }

    /// Refuses to do anything, or to say that something does not exist, before the catalog says who
    /// this server is.
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
    /// This server among others, by the file until it has joined; `None` if it is alone.
    pub fn seat(&self) -> Option<&Seat> {
        self.cluster.seat()
    }

    /// This server among others, once the catalog names it; `None` also if it is alone.
    pub fn joined(&self) -> Option<&Seat> {
        self.cluster.seat.as_ref()
    }

    /// The number of a server, by the topology that this one goes by now: the file until it has joined.
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
                self.beat(now);
            }
            // What was asked for is answered, and of messages those about the catalog are heard.
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
