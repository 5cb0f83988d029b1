//! The state of an instance that several servers control, for placement and the site.

use legwork_model::event::Order;
use legwork_model::id::{Activity, DomainId, ElementId, NodeId, ServerId};
use legwork_model::schema::{LoopId, Schema};
use legwork_model::value::Value;

use super::{Lifecycle, NodeState, State, Whereabouts};
use crate::data::precedence::Before;
use crate::marking;
use crate::travel::Peer;

/// A read value that is still at another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    pub element: ElementId,
    pub writer: Activity,
}

/// The last completion of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    pub activity: Activity,
    /// `None` for this server.
    pub server: Option<ServerId>,
    pub home: Option<DomainId>,
}

impl State {
    /// The known number of writes of an element, and its newest value if that is here.
    pub fn written(&self, element: ElementId) -> (usize, Option<&Value>) {
        let mut newest_first = self.versions.of(element);
        let newest = newest_first.next();
        let count = newest_first.count() + usize::from(newest.is_some());
        (count, newest.and_then(|found| found.value))
    }

    /// The writer of the version of an element that is valid for an activity, and the server that
    /// controlled that writer: `None` for this server.
    pub fn last_writer(
        &self,
        schema: &Schema,
        reader: &Activity,
        element: ElementId,
    ) -> Option<(Activity, Option<ServerId>)> {
        let found = self.versions.valid(&Before::new(schema, self, reader), element)?;
        Some((found.writer, found.server))
    }

    /// The elements that an activity reads whose values are still elsewhere.
    pub fn lacking(&self, schema: &Schema, activity: &Activity) -> Vec<Lacking> {
        if self.travel.is_none() {
            return Vec::new();
        }
        let Some(node) = schema.nodes.get(activity.node.0 as usize) else { return Vec::new() };
        let before = Before::new(schema, self, activity);
        let lacking = |element: ElementId| {
            let found = self.versions.valid(&before, element)?;
            let is_elsewhere = found.value.is_none();
            is_elsewhere.then_some(Lacking { element, writer: found.writer })
        };
        marking::read_by(schema, node).into_iter().filter_map(lacking).collect()
    }

    /// The number of repetitions of a loop.
    pub fn rounds(&self, id: LoopId) -> u32 {
        self.round(id)
    }

    /// The last completion of each node that has entries, except the start.
    pub fn completions(&self) -> impl Iterator<Item = Completion> {
        self.done.iter().map(|done| {
            let Whereabouts { iteration, server, home, .. } =
                done.whereabouts.as_deref().cloned().unwrap_or_default();
            Completion { activity: Activity { node: done.node, iteration }, server, home }
        })
    }

    /// The server where it was started; `None` for this server.
    pub fn started_elsewhere(&self) -> Option<ServerId> {
        self.travel.as_ref()?.started_at
    }

    /// The other servers of the instance that are known here.
    pub fn peers(&self) -> &[Peer] {
        self.travel.as_ref().map_or(&[], |travel| &travel.peers)
    }

    pub fn peer(&self, server: ServerId) -> Option<&Peer> {
        self.travel.as_ref()?.peer(server)
    }

    /// The last order that took effect here.
    pub fn order(&self) -> Option<&Order> {
        self.travel.as_ref()?.order.as_ref()
    }

    /// Whether it has ended, with all its results at the server where it was started.
    pub fn has_results(&self, schema: &Schema) -> bool {
        self.lifecycle.has_ended() && !self.lacks_results(schema)
    }

    /// Whether nothing is left to do at this server.
    pub fn is_over(&self, schema: &Schema) -> bool {
        self.has_results(schema) && !self.is_sending()
    }

    /// Whether it has ended, was started here, and some of its results are elsewhere.
    pub fn lacks_results(&self, schema: &Schema) -> bool {
        let end = Activity::once(schema.end());
        self.lifecycle == Lifecycle::Completed
            && self.started_elsewhere().is_none()
            && !self.lacking(schema, &end).is_empty()
    }

    /// Whether several servers control it.
    pub fn is_shared(&self) -> bool {
        self.travel.is_some()
    }

    /// Whether a transfer is unacknowledged.
    pub fn is_sending(&self) -> bool {
        self.peers().iter().any(|peer| !peer.waiting.is_empty())
    }

    /// All due activities, decisions by condition included.
    pub fn due<'a>(&'a self, schema: &'a Schema) -> impl Iterator<Item = Activity> + 'a {
        let due = |node: &NodeId| self.node_state(*node) == NodeState::Activated;
        let nodes = self.pending.iter().map(|pending| pending.node);
        nodes.filter(due).map(|node| self.activity(schema, node))
    }

    /// Whether an element has this version, and its value is not here.
    pub fn is_elsewhere(&self, element: ElementId, writer: &Activity) -> bool {
        self.versions.by(element, writer).is_some_and(|found| found.value.is_none())
    }

    /// The local value of a version of an element, by its writer.
    pub fn value_by(&self, element: ElementId, writer: &Activity) -> Option<&Value> {
        self.versions.by(element, writer)?.value
    }
}
