//! The state of one instance: a fold over its events, and views of it.
//!
//! Only `evolve` changes a state. It is small, because very many are held in memory at once: one byte per node, and
//! more only for nodes with more detail. Equal histories give equal states, in memory and in snapshots.

mod apart;
mod counted;
mod format;
mod nodes;

use std::sync::Arc;

use legwork_model::event::{Deadline, Incident, Performer, RequestDigest};
use legwork_model::id::{
    Activity, AgentId, DomainId, ElementId, Iteration, NodeId, ServerId, shared_text,
};
use legwork_model::schema::{LoopId, Node, Schema};
use legwork_model::time::Timestamp;
use legwork_model::value::Value;
use minicbor::{Decode, Encode};

use crate::data::precedence::Before;
use crate::data::versions::{Found, Versions, version_bytes};
use crate::failure::Failure;
use crate::marking;
use crate::travel::Travel;
pub use apart::{Completion, Lacking};
pub(crate) use counted::Counted;
use format::Format;
pub(crate) use nodes::Nodes;

/// The state of a node. A job that a worker is doing is still `Activated`: leases are not part of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum NodeState {
    NotActivated = 0,
    /// Due: offered to people, or waiting for a worker.
    Activated = 1,
    /// Claimed by a person, or done by an executor that has not acknowledged the verdict.
    Selected = 2,
    Completed = 3,
    /// It can no longer run in this iteration: it is on a dead path.
    Skipped = 4,
    /// It has an incident.
    Failed = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum Lifecycle {
    #[n(0)]
    Running,
    /// Work that is held goes on, but nothing new is offered.
    #[n(1)]
    Suspended,
    #[n(2)]
    Completed,
    #[n(3)]
    Aborted,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct State {
    #[n(0)]
    format: Format,
    #[cbor(n(1), with = "shared_text")]
    pub(crate) process: Arc<str>,
    #[n(2)]
    pub(crate) version: u32,
    #[n(3)]
    pub(crate) lifecycle: Lifecycle,
    #[n(4)]
    pub(crate) starter: Performer,
    #[n(5)]
    pub(crate) started_at: Timestamp,
    /// The moment of the last record.
    #[n(6)]
    pub(crate) latest: Timestamp,
    #[n(7)]
    pub(crate) nodes: Nodes,
    /// The number of repetitions of each loop, by its number.
    #[n(8)]
    pub(crate) rounds: Box<[u32]>,
    /// The activated, selected or failed nodes, in order.
    #[n(9)]
    pub(crate) pending: Vec<Pending>,
    /// The last completion of each node with work or a choice of its own, in order.
    #[n(10)]
    pub(crate) done: Vec<Done>,
    #[n(11)]
    pub(crate) versions: Versions,
    /// `None` while only one server controls it.
    #[n(12)]
    pub(crate) travel: Option<Box<Travel>>,
    /// Its deadline, if it has one.
    #[n(13)]
    pub(crate) deadline: Option<Box<Deadline>>,
}

/// The details of a node between its activation and its completion.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Pending {
    #[n(0)]
    pub(crate) node: NodeId,
    /// Failed attempts since its activation, or since its last incident was resolved.
    #[n(1)]
    pub(crate) attempts: u32,
    #[n(2)]
    pub(crate) since: Timestamp,
    #[n(3)]
    pub(crate) detail: Option<Box<Detail>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Detail {
    #[n(0)]
    Claimed {
        #[n(0)]
        by: AgentId,
        #[n(1)]
        at: Timestamp,
        /// The person who delegated it. Older snapshots lack it.
        #[n(2)]
        given_by: Option<AgentId>,
    },
    /// Failed attempts, the latest last; the next one is made at `retry_at`, if any.
    #[n(1)]
    Failed {
        #[n(0)]
        retry_at: Option<Timestamp>,
        #[n(1)]
        failures: Vec<Failure>,
    },
    #[n(2)]
    Incident {
        #[n(0)]
        incident: Incident,
        /// The failures that led to it.
        #[n(1)]
        failures: Vec<Failure>,
    },
    /// An executor's result was accepted, and not acknowledged yet.
    #[n(3)]
    Answered(#[n(0)] Box<Answer>),
}

/// An accepted result of an executor that is not acknowledged yet.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Answer {
    #[n(0)]
    pub by: Performer,
    #[n(1)]
    pub started_at: Timestamp,
    #[n(2)]
    pub writes: Vec<(ElementId, Value)>,
    /// The assignment that produced it.
    #[n(3)]
    pub lease: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Done {
    #[n(0)]
    pub(crate) node: NodeId,
    /// The branch taken, if any.
    #[n(1)]
    pub(crate) code: Option<u32>,
    #[n(2)]
    pub(crate) by: Performer,
    #[n(3)]
    pub(crate) at: Timestamp,
    #[n(4)]
    pub(crate) request: Option<RequestDigest>,
    /// `None` outside of loops, at this server, by a performer at home here.
    #[n(5)]
    pub(crate) whereabouts: Option<Box<Whereabouts>>,
}

/// The place and the iteration of a completion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Whereabouts {
    #[n(0)]
    pub(crate) iteration: Iteration,
    /// The server that controlled it; `None` for this server.
    #[n(1)]
    pub(crate) server: Option<ServerId>,
    /// The home of the performer, if not where it was controlled.
    #[n(2)]
    pub(crate) home: Option<DomainId>,
    /// The accepted results of executors in earlier iterations.
    #[n(3)]
    pub(crate) earlier: Counted,
}

/// A change of a node's state that matters outside: a work item or a job was added, removed, or changed hands, or
/// an incident was raised or resolved. A delegated claim and a scheduled repetition keep the state and are reported
/// all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub activity: Activity,
    pub from: NodeState,
    /// `NotActivated` when it was withdrawn: the instance was aborted, or the conditions of a decision with an
    /// incident are evaluated again.
    pub to: NodeState,
}

/// An activity with outside work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open<'a> {
    pub activity: Activity,
    pub state: NodeState,
    /// Whether it can be taken up: not claimed, no incident, the instance not suspended. A repetition is offered
    /// from `retry_at` on.
    pub offered: bool,
    pub since: Timestamp,
    pub claimed_by: Option<&'a AgentId>,
    pub claimed_at: Option<Timestamp>,
    /// The person who delegated it to its holder, if any.
    pub given_by: Option<&'a AgentId>,
    pub attempts: u32,
    pub retry_at: Option<Timestamp>,
    pub incident: Option<&'a Incident>,
    /// The latest of its failed attempts.
    pub failures: &'a [Failure],
}

/// One value of a data element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version<'a> {
    pub value: &'a Value,
    pub writer: Activity,
    pub at: Timestamp,
}

impl State {
    pub fn process(&self) -> &Arc<str> {
        &self.process
    }

    pub fn version(&self) -> u32 {
        self.version
    }

    pub fn lifecycle(&self) -> Lifecycle {
        self.lifecycle
    }

    /// Its deadline and plan.
    pub fn deadline(&self) -> Option<&Deadline> {
        self.deadline.as_deref()
    }

    pub fn starter(&self) -> &Performer {
        &self.starter
    }

    pub fn started_at(&self) -> Timestamp {
        self.started_at
    }

    pub fn ended_at(&self) -> Option<Timestamp> {
        // With only one server, there is no record after its end.
        let noted = self.travel.as_ref().and_then(|travel| travel.ended_at);
        self.lifecycle.has_ended().then(|| noted.unwrap_or(self.latest))
    }

    /// The moment of the last record.
    pub fn latest(&self) -> Timestamp {
        self.latest
    }

    pub fn node_state(&self, node: NodeId) -> NodeState {
        self.nodes.get(node.0)
    }

    /// The activity of a node in its current iteration.
    pub fn activity(&self, schema: &Schema, node: NodeId) -> Activity {
        let loops = schema.nodes.get(node.0 as usize).map_or(&[][..], |node| &node.loops);
        Activity { node, iteration: Iteration(loops.iter().map(|id| self.round(*id)).collect()) }
    }

    /// Its last performer, in the latest iteration.
    pub fn performer(&self, node: NodeId) -> Option<&Performer> {
        self.done(node).map(|done| &done.by)
    }

    pub fn completed_at(&self, node: NodeId) -> Option<Timestamp> {
        self.done(node).map(|done| done.at)
    }

    /// The branch taken last, at a choice.
    pub fn chosen(&self, node: NodeId) -> Option<u32> {
        self.done(node).and_then(|done| done.code)
    }

    /// All activities with outside work, in the order of the nodes.
    pub fn open<'a>(&'a self, schema: &'a Schema) -> impl Iterator<Item = Open<'a>> {
        self.pending.iter().filter_map(|pending| self.opened(schema, pending))
    }

    /// One node as in `open`, if it is open.
    pub fn open_at<'a>(&'a self, schema: &Schema, node: NodeId) -> Option<Open<'a>> {
        self.opened(schema, self.pending(node)?)
    }

    /// The activities with incidents.
    pub fn incidents(&self, schema: &Schema) -> impl Iterator<Item = (Activity, &Incident)> {
        self.pending.iter().filter_map(|pending| match pending.detail.as_deref() {
            Some(Detail::Incident { incident, .. }) => {
                Some((self.activity(schema, pending.node), incident))
            }
            Some(Detail::Claimed { .. } | Detail::Failed { .. } | Detail::Answered(_)) | None => {
                None
            }
        })
    }

    /// The accepted results of executors that are not acknowledged yet.
    pub fn answers(&self, schema: &Schema) -> impl Iterator<Item = (Activity, &Answer)> {
        self.pending.iter().filter_map(|pending| {
            Some((self.activity(schema, pending.node), self.answer(pending.node)?))
        })
    }

    /// Whether an executor's result under a lease has completed a node, in any iteration. Older records have
    /// executors as workers: the name counts.
    pub fn has_counted(&self, node: NodeId, executor: &str, lease: u64) -> bool {
        let Some(done) = self.done(node) else { return false };
        let request = RequestDigest(lease);
        let earlier = done.whereabouts.as_ref().map(|whereabouts| &whereabouts.earlier);
        let is_own = done.by.program().is_some_and(|name| **name == *executor);
        (done.request == Some(request) && is_own)
            || earlier.is_some_and(|earlier| earlier.contains(executor, request))
    }

    /// The accepted result of an executor that is not acknowledged yet.
    pub fn answer(&self, node: NodeId) -> Option<&Answer> {
        match self.pending(node)?.detail.as_deref()? {
            Detail::Answered(answer) => Some(answer),
            Detail::Claimed { .. } | Detail::Failed { .. } | Detail::Incident { .. } => None,
        }
    }

    /// The values an activity reads: for each element the version of the last writer before it.
    /// Elements without such a version are left out.
    pub fn inputs(&self, schema: &Schema, activity: &Activity) -> Vec<(ElementId, &Value)> {
        let reads = schema.nodes.get(activity.node.0 as usize).map_or(&[][..], |node| &node.reads);
        if reads.is_empty() {
            return Vec::new();
        }
        let before = Before::new(schema, self, activity);
        let value = |element| Some((element, self.versions.valid(&before, element)?.value?));
        reads.iter().filter_map(|access| value(access.element)).collect()
    }

    /// The value of an element as a given activity sees it.
    pub fn value_for(
        &self,
        schema: &Schema,
        reader: &Activity,
        element: ElementId,
    ) -> Option<&Value> {
        self.versions.valid(&Before::new(schema, self, reader), element)?.value
    }

    /// The results of an ended instance.
    pub fn results(&self, schema: &Schema) -> Vec<(ElementId, &Value)> {
        self.inputs(schema, &Activity::once(schema.end()))
    }

    /// All local values of an element, oldest first.
    pub fn versions(&self, element: ElementId) -> Vec<Version<'_>> {
        let newest_first = self.versions.of(element);
        let mut versions: Vec<_> = newest_first
            .filter_map(|Found { value, writer, at, .. }| {
                Some(Version { value: value?, writer, at })
            })
            .collect();
        versions.reverse();
        versions
    }

    /// The size of all its files, counting the newest known version of each element.
    pub fn file_bytes(&self) -> u64 {
        let size = |value: &Value| match value {
            Value::File(file) => file.size,
            Value::Bool(_)
            | Value::Int(_)
            | Value::Decimal(_)
            | Value::String(_)
            | Value::DateTime(_)
            | Value::Json(_) => 0,
        };
        self.versions.newest().map(size).sum()
    }

    /// The approximate memory of all values ever written: older ones are kept too, and those of unacknowledged
    /// results count already.
    pub fn data_bytes(&self) -> u64 {
        let unconfirmed = self.unconfirmed().flat_map(|answer| &answer.writes);
        self.versions.bytes()
            + unconfirmed.map(|(_, value)| version_bytes(Some(value))).sum::<u64>()
    }

    /// The number of records to come for accepted results that are not acknowledged.
    pub fn records_owed(&self) -> u64 {
        self.unconfirmed().count() as u64
    }

    fn unconfirmed(&self) -> impl Iterator<Item = &Answer> {
        self.pending.iter().filter_map(|pending| self.answer(pending.node))
    }

    /// Replaces the names in it by shared ones. A state read from a snapshot has its own copies; with very many
    /// states in memory that adds up.
    pub fn intern(&mut self, mut shared: impl FnMut(&Arc<str>) -> Arc<str>) {
        fn name_of(performer: &mut Performer) -> Option<&mut Arc<str>> {
            match performer {
                Performer::System => None,
                Performer::Agent(agent) => Some(&mut agent.0),
                Performer::Worker(name) | Performer::Executor(name) => Some(name),
            }
        }
        self.process = shared(&self.process);
        let performers = self.done.iter_mut().map(|done| &mut done.by);
        for name in performers.chain([&mut self.starter]).filter_map(name_of) {
            *name = shared(name);
        }
        for detail in self.pending.iter_mut().filter_map(|pending| pending.detail.as_deref_mut()) {
            if let Detail::Claimed { by, given_by, .. } = detail {
                [by].into_iter().chain(given_by).for_each(|name| name.0 = shared(&name.0));
            }
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        match minicbor::encode(self, &mut bytes) {
            Ok(()) => bytes,
            Err(_) => unreachable!("encoding into memory cannot fail"),
        }
    }

    /// Reads a snapshot. One of another format is refused: replay the history instead.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, minicbor::decode::Error> {
        minicbor::decode(bytes)
    }

    fn opened<'a>(&'a self, schema: &Schema, pending: &'a Pending) -> Option<Open<'a>> {
        let node = schema.nodes.get(pending.node.0 as usize)?;
        let state = self.node_state(pending.node);
        if !marking::has_outside_work(node) && state != NodeState::Failed {
            return None;
        }
        let mut open = Open {
            activity: self.activity(schema, pending.node),
            state,
            offered: state == NodeState::Activated && self.lifecycle == Lifecycle::Running,
            since: pending.since,
            claimed_by: None,
            claimed_at: None,
            given_by: None,
            attempts: pending.attempts,
            retry_at: None,
            incident: None,
            failures: &[],
        };
        match pending.detail.as_deref() {
            Some(Detail::Claimed { by, at, given_by }) => {
                (open.claimed_by, open.claimed_at) = (Some(by), Some(*at));
                open.given_by = given_by.as_ref();
            }
            Some(Detail::Failed { retry_at, failures }) => {
                (open.retry_at, open.failures) = (*retry_at, failures);
            }
            Some(Detail::Incident { incident, failures }) => {
                (open.incident, open.failures) = (Some(incident), failures);
            }
            // The site sends the verdict without a poll.
            Some(Detail::Answered(_)) | None => {}
        }
        Some(open)
    }
}

/// For other modules of this crate.
impl State {
    pub(crate) fn fresh(schema: &Schema, starter: Performer, at: Timestamp) -> Self {
        Self {
            format: Format,
            process: schema.process.clone(),
            version: schema.version,
            lifecycle: Lifecycle::Running,
            starter,
            started_at: at,
            latest: at,
            nodes: Nodes::new(schema.nodes.len()),
            rounds: vec![0; schema.loops.len()].into(),
            pending: Vec::new(),
            done: Vec::new(),
            versions: Versions::default(),
            travel: None,
            deadline: None,
        }
    }

    /// Marks the instance as shared by several servers.
    pub(crate) fn travel_mut(&mut self) -> &mut Travel {
        self.travel.get_or_insert_default()
    }

    pub(crate) fn round(&self, id: LoopId) -> u32 {
        self.rounds.get(id.0 as usize).copied().unwrap_or(0)
    }

    /// Compares an iteration with the current one of the loops around a node.
    pub(crate) fn compare_iteration(
        &self,
        node: &Node,
        iteration: &Iteration,
    ) -> std::cmp::Ordering {
        iteration.0.iter().copied().cmp(node.loops.iter().map(|id| self.round(*id)))
    }

    pub(crate) fn pending(&self, node: NodeId) -> Option<&Pending> {
        let place = self.pending.binary_search_by_key(&node, |pending| pending.node).ok()?;
        self.pending.get(place)
    }

    pub(crate) fn pending_mut(&mut self, node: NodeId) -> Option<&mut Pending> {
        let place = self.pending.binary_search_by_key(&node, |pending| pending.node).ok()?;
        self.pending.get_mut(place)
    }

    pub(crate) fn done(&self, node: NodeId) -> Option<&Done> {
        let place = self.done.binary_search_by_key(&node, |done| done.node).ok()?;
        self.done.get(place)
    }

    pub(crate) fn holder(&self, node: NodeId) -> Option<&AgentId> {
        match self.pending(node)?.detail.as_deref() {
            Some(Detail::Claimed { by, .. }) => Some(by),
            Some(Detail::Failed { .. } | Detail::Incident { .. } | Detail::Answered(_)) | None => {
                None
            }
        }
    }
}

impl NodeState {
    pub const ALL: [Self; 6] = [
        Self::NotActivated,
        Self::Activated,
        Self::Selected,
        Self::Completed,
        Self::Skipped,
        Self::Failed,
    ];

    /// Whether it waits for outside work.
    pub fn is_pending(self) -> bool {
        match self {
            Self::Activated | Self::Selected | Self::Failed => true,
            Self::NotActivated | Self::Completed | Self::Skipped => false,
        }
    }
}

impl Lifecycle {
    pub fn has_ended(self) -> bool {
        match self {
            Self::Completed | Self::Aborted => true,
            Self::Running | Self::Suspended => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_stays_small() {
        assert!(size_of::<State>() <= 208, "{}", size_of::<State>());
        assert!(size_of::<Pending>() <= 24, "{}", size_of::<Pending>());
        assert!(size_of::<Done>() <= 72, "{}", size_of::<Done>());
    }

    #[test]
    fn a_snapshot_of_another_format_is_refused() {
        // A list whose first entry is the format number.
        let refusal = State::from_bytes(&[0x81, 0x01]).unwrap_err();
        assert!(refusal.to_string().contains("another format"), "{refusal}");
    }
}
