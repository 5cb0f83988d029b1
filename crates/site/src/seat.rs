//! This server among others: what it controls, and what it knows, in the words of placement.

use std::collections::BTreeSet;
use std::sync::Arc;

use legwork_engine::{Here, NodeState, State};
use legwork_model::event::Performer;
use legwork_model::id::{Activity, DomainId, NodeId, ServerId};
use legwork_model::schema::{LoopId, Schema};
use legwork_placement::{Known, Last, Map, Topology, place};

/// Who a server is among others, as it is told when it starts.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name in the topology.
    pub name: Arc<str>,
    /// The text of a topology: where the others are as long as the catalog does not say it. The
    /// first registrar publishes it.
    pub topology: Arc<str>,
}

/// This server's place in the topology.
#[derive(Clone, Debug)]
pub struct Seat {
    pub here: ServerId,
    pub topology: Arc<Topology>,
}

/// An instance as this server knows it.
#[derive(Clone, Copy)]
pub(crate) struct Knowledge<'a> {
    pub(crate) state: &'a State,
    pub(crate) here: ServerId,
}

impl Seat {
    /// The server that controls a node. What cannot be told stays here: it is better done at the
    /// wrong place than nowhere.
    pub(crate) fn place(&self, schema: &Schema, state: &State, node: NodeId) -> ServerId {
        let known = Knowledge { state, here: self.here };
        place(schema, &known, &*self.topology, node).unwrap_or(self.here)
    }

    /// The name of the server that controls a node, if that can be told yet.
    pub(crate) fn controller(
        &self,
        schema: &Schema,
        state: &State,
        node: NodeId,
    ) -> Option<Arc<str>> {
        let known = Knowledge { state, here: self.here };
        let server = place(schema, &known, &*self.topology, node)?;
        Some(self.topology.server(server)?.name.clone())
    }

    /// All other servers that have to do with an instance, as far as known here.
    pub(crate) fn others(&self, state: &State) -> Vec<ServerId> {
        let known = Knowledge { state, here: self.here };
        let peers = state.peers().iter().map(|peer| peer.server);
        let all: BTreeSet<ServerId> = known.lasts().map(|last| last.server).chain(peers).collect();
        all.into_iter().filter(|server| *server != self.here).collect()
    }
}

impl Here for Seat {
    fn controls(&self, schema: &Schema, state: &State, node: NodeId) -> bool {
        self.place(schema, state, node) == self.here
    }

    fn home(&self, performer: &Performer) -> Option<DomainId> {
        let home = self.topology.home(performer);
        home.filter(|home| self.topology.domain_of(self.here) != Some(*home))
    }
}

impl Known for Knowledge<'_> {
    fn is_completed(&self, node: NodeId) -> bool {
        self.state.node_state(node) == NodeState::Completed
    }

    fn is_skipped(&self, node: NodeId) -> bool {
        self.state.node_state(node) == NodeState::Skipped
    }

    fn round(&self, id: LoopId) -> u32 {
        self.state.rounds(id)
    }

    fn lasts(&self) -> impl Iterator<Item = Last> {
        let start = Activity::once(Schema::START);
        let start = Last { activity: start, server: self.start(), home: None };
        let here = self.here;
        let completions = self.state.completions().map(move |done| Last {
            activity: done.activity,
            server: done.server.unwrap_or(here),
            home: done.home,
        });
        std::iter::once(start).chain(completions)
    }

    fn start(&self) -> ServerId {
        self.state.started_elsewhere().unwrap_or(self.here)
    }
}
