//! This server within the topology: what it controls and what it knows, in the terms of placement.

use std::collections::BTreeSet;
use std::sync::Arc;

use legwork_engine::{Everywhere, Here, NodeState, State};
use legwork_model::event::Performer;
use legwork_model::id::{Activity, DomainId, InstanceId, NodeId, ServerId};
use legwork_model::schema::{LoopId, Schema};
use legwork_placement::{Known, Last, Map, Topology, place};

use crate::executors::Executors;

/// A server's identity in the cluster, as configured at its start.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name in the topology.
    pub name: Arc<str>,
    /// The text of a topology: the addresses of other servers until the catalog names them. The first registrar
    /// publishes it.
    pub topology: Arc<str>,
}

/// This server's place in the topology.
#[derive(Clone, Debug)]
pub struct Seat {
    pub here: ServerId,
    pub topology: Arc<Topology>,
}

/// This server with regard to one instance.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) seat: &'a Seat,
    pub(crate) instance: InstanceId,
}

/// This server as the engine sees it when it decides about an instance.
#[derive(Clone, Copy)]
pub(crate) enum Standing<'a> {
    Alone,
    Among(At<'a>, &'a Executors),
}

/// An instance as this server knows it.
#[derive(Clone, Copy)]
pub(crate) struct Knowledge<'a> {
    pub(crate) instance: InstanceId,
    pub(crate) state: &'a State,
    pub(crate) here: ServerId,
}

impl Seat {
    /// A domain, unless it is that of this server.
    fn elsewhere(&self, domain: Option<DomainId>) -> Option<DomainId> {
        domain.filter(|domain| self.topology.domain_of(self.here) != Some(*domain))
    }

    pub(crate) fn at(&self, instance: InstanceId) -> At<'_> {
        At { seat: self, instance }
    }
}

impl<'a> At<'a> {
    pub(crate) fn knowing(self, state: &'a State) -> Knowledge<'a> {
        Knowledge { instance: self.instance, state, here: self.seat.here }
    }

    /// The server that controls a node. If it cannot be determined, this server controls the node: the wrong place is
    /// better than none.
    pub(crate) fn place(self, schema: &Schema, state: &State, node: NodeId) -> ServerId {
        place(schema, &self.knowing(state), &*self.seat.topology, node).unwrap_or(self.seat.here)
    }

    pub(crate) fn controls(self, schema: &Schema, state: &State, node: NodeId) -> bool {
        self.place(schema, state, node) == self.seat.here
    }

    /// The name of the server that controls a node, if it can be determined yet.
    pub(crate) fn controller(
        self,
        schema: &Schema,
        state: &State,
        node: NodeId,
    ) -> Option<Arc<str>> {
        let server = place(schema, &self.knowing(state), &*self.seat.topology, node)?;
        Some(self.seat.topology.server(server)?.name.clone())
    }

    /// All other servers involved in the instance, as far as known here.
    pub(crate) fn others(self, state: &State) -> Vec<ServerId> {
        let known = self.knowing(state);
        let peers = state.peers().iter().map(|peer| peer.server);
        let all: BTreeSet<ServerId> = known.lasts().map(|last| last.server).chain(peers).collect();
        all.into_iter().filter(|server| *server != self.seat.here).collect()
    }
}

impl Here for Standing<'_> {
    fn controls(&self, schema: &Schema, state: &State, node: NodeId) -> bool {
        match self {
            Self::Alone => Everywhere.controls(schema, state, node),
            Self::Among(at, _) => at.controls(schema, state, node),
        }
    }

    fn home(&self, performer: &Performer) -> Option<DomainId> {
        match self {
            Self::Alone => Everywhere.home(performer),
            Self::Among(At { seat, .. }, executors) => {
                let home = executors.home(performer, seat);
                seat.elsewhere(home.or_else(|| seat.topology.home(performer)))
            }
        }
    }

    fn home_of_executor(&self, schema: &Schema, state: &State, node: NodeId) -> Option<DomainId> {
        match self {
            Self::Alone => Everywhere.home_of_executor(schema, state, node),
            Self::Among(At { seat, .. }, executors) => {
                seat.elsewhere(executors.best_home(seat, schema, state, node))
            }
        }
    }
}

impl Known for Knowledge<'_> {
    fn instance(&self) -> InstanceId {
        self.instance
    }

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
