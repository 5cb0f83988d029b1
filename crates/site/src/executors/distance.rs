//! Distances of executors: the cost of sending them what a task reads.
//!
//! Invariant: an executor without a home domain is at distance 0; with a single server all are.

use legwork_engine::State;
use legwork_model::event::{ExecutorRegistered, Performer};
use legwork_model::id::{Activity, DomainId, NodeId};
use legwork_model::schema::Schema;
use legwork_model::value::Value;
use legwork_placement::Map;
use legwork_schedule::{Candidate, ExecutorId, Task};

use super::{Executors, Registry};
use crate::cluster::seat::Seat;
use crate::jobs::demand::demanded;
use crate::planning::leg_of;

/// The latency, and the time for each byte, in milliseconds for each unit of cost between two domains: as if a link of
/// cost 1 had a latency of a millisecond and carried ten megabytes a second.
const WAY_MS: f64 = 1.0;
const BYTE_MS: f64 = 0.000_1;

/// The cost to each executor, by number.
#[derive(Debug, Default)]
pub(crate) struct Distances {
    costs: Vec<u32>,
    /// The topology and the registry the costs belong to.
    as_of: Option<(u32, u64)>,
    is_all_near: bool,
}

impl Distances {
    /// Computes the costs again if anything has changed.
    pub(super) fn measure(&mut self, registry: &Registry, seat: Option<&Seat>) {
        let as_of = (seat.map_or(0, |seat| seat.topology.epoch), registry.revision());
        if self.as_of == Some(as_of) {
            return;
        }
        self.as_of = Some(as_of);
        self.costs.clear();
        self.costs.resize(registry.numbers(), 0);
        let here = seat.and_then(|seat| Some((seat, seat.topology.domain_of(seat.here)?)));
        if let Some((seat, here)) = here {
            for (id, one) in registry.all() {
                let home = home_of(one, seat);
                let cost = home.map_or(0, |home| seat.topology.cost_between(here, home));
                if let Some(place) = self.costs.get_mut(id.0 as usize) {
                    *place = cost;
                }
            }
        }
        self.is_all_near = self.costs.iter().all(|cost| *cost == 0);
    }

    /// Whether all executors are at distance 0.
    pub(super) fn is_all_near(&self) -> bool {
        self.is_all_near
    }

    /// An executor, with the cost of sending it `bytes`.
    pub(super) fn candidate(&self, executor: ExecutorId, bytes: f64) -> Candidate {
        let cost = self.costs.get(executor.0 as usize).copied().unwrap_or(0);
        let cost_ms = f64::from(cost) * (WAY_MS + BYTE_MS * bytes);
        Candidate { cost_ms, ..Candidate::near(executor) }
    }
}

impl Executors {
    /// The home domain of the executor that did a step, if it has one.
    pub(crate) fn home(&self, performer: &Performer, seat: &Seat) -> Option<DomainId> {
        let name = performer.program()?;
        home_of(self.registry.named(name)?.1, seat)
    }

    /// The home of the executor that has promised a step, or else is expected to be best for the step if it were due
    /// now, given its load and the cost of sending what the step reads and is here.
    pub(crate) fn best_home(
        &self,
        seat: &Seat,
        schema: &Schema,
        state: &State,
        node: NodeId,
    ) -> Option<DomainId> {
        let kind = self.registry.kind(schema.node(node).job()?)?;
        let activity = state.activity(schema, node);
        let leg = leg_of(schema, state, &activity);
        let planned = leg.and_then(|leg| leg.planned.as_ref()).map(|planned| &planned.by);
        if let Some(home) = planned.and_then(|by| self.home(by, seat)) {
            return Some(home);
        }
        let size = demanded(schema, state, &activity).size;
        let bytes = bytes_read(schema, state, &activity);
        let among = self.registry.offering(kind).iter();
        let among: Vec<_> = among.map(|id| self.distances.candidate(*id, bytes)).collect();
        let task = Task { kind, size, attempt: 0 };
        let known = self.plan.best_known(&self.book, &task, &among, state.latest());
        let nearest = || among.iter().min_by(|a, b| a.cost_ms.total_cmp(&b.cost_ms));
        let best = known.or_else(|| nearest().map(|to| to.executor))?;
        home_of(self.registry.get(best)?, seat)
    }
}

/// The home of an executor: by the topology, else by its registration.
fn home_of(one: &ExecutorRegistered, seat: &Seat) -> Option<DomainId> {
    let registered = || seat.topology.domain_named(one.domain.as_deref()?);
    seat.topology.home(&Performer::Executor(one.name.clone())).or_else(registered)
}

/// How many bytes a task reads, including files.
pub(super) fn bytes_read(schema: &Schema, state: &State, activity: &Activity) -> f64 {
    let bytes = |value: &Value| match value {
        Value::File(file) => file.size as f64,
        Value::Bool(_)
        | Value::Int(_)
        | Value::Decimal(_)
        | Value::String(_)
        | Value::DateTime(_)
        | Value::Json(_) => value.content_bytes() as f64,
    };
    state.inputs(schema, activity).into_iter().map(|(_, value)| bytes(value)).sum()
}
