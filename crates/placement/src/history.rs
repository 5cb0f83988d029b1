//! Which entries of a history a server knows, and which are missing: Algorithms 1 and 2.
//!
//! Invariant: knowledge is closed. A server that knows an entry of an activity knows the entries of
//! all its predecessors. So the few last activities describe all that a server knows. Whether an
//! entry is known follows from the marking, without reading the history: every entry of a completed
//! iteration is known.

use std::cmp::Ordering;

use legwork_model::id::{Activity, DomainId, InstanceId, Iteration, NodeId, ServerId};
use legwork_model::schema::{LoopId, NodeKind, Schema};

/// What a server knows of an instance.
pub trait Known {
    /// The instance: its id determines the server of a domain that controls it there.
    fn instance(&self) -> InstanceId;

    /// In the current iteration.
    fn is_completed(&self, node: NodeId) -> bool;

    /// In the current iteration.
    fn is_skipped(&self, node: NodeId) -> bool;

    /// The number of repetitions of a loop.
    fn round(&self, id: LoopId) -> u32;

    /// The last known completion of each node that has entries.
    fn lasts(&self) -> impl Iterator<Item = Last>;

    /// The last known completion of one node.
    fn last(&self, node: NodeId) -> Option<Last> {
        self.lasts().find(|last| last.activity.node == node)
    }

    /// Where the instance was started.
    fn start(&self) -> ServerId;
}

/// The last completion of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    pub activity: Activity,
    /// The server that controlled it.
    pub server: ServerId,
    /// The home domain of its performer.
    pub home: Option<DomainId>,
}

/// Whether the entry of an activity is known.
pub fn knows(schema: &Schema, known: &impl Known, activity: &Activity) -> bool {
    match compare(schema, known, activity) {
        Ordering::Less => true,
        Ordering::Equal => known.is_completed(activity.node),
        Ordering::Greater => false,
    }
}

/// Algorithm 1: the last activities among the sources of a transfer and their predecessors that are
/// known here. All their predecessors are known, none of their successors is.
pub fn last_activities(schema: &Schema, known: &impl Known, sources: &[Activity]) -> Vec<Activity> {
    let mut last = Vec::new();
    for source in sources {
        // Everything in a completed iteration is known, also that the source was skipped in it.
        if compare(schema, known, source) == Ordering::Less {
            add(schema, &mut last, source.clone());
        }
    }
    for node in schema.nodes.iter().filter(|node| node.has_entry()) {
        let activity = present(schema, known, node.id);
        // A repeated loop: the decision to repeat came last in the iteration before, also if the
        // current iteration has reached its end as well.
        let is_end = matches!(node.kind, NodeKind::LoopEnd { .. });
        let before = is_end.then(|| step_back(&activity)).flatten();
        let done = known.is_completed(node.id).then_some(activity);
        for activity in before.into_iter().chain(done) {
            if sources.iter().any(|source| matters(schema, &activity, source)) {
                add(schema, &mut last, activity);
            }
        }
    }
    last
}

/// The last activities among the sources of a transfer and their predecessors that `server` certainly
/// knows: those it controlled itself, and those in `told`, which were sent to it or by it.
pub fn last_activities_of(
    schema: &Schema,
    known: &impl Known,
    server: ServerId,
    told: &[Activity],
    sources: &[Activity],
) -> Vec<Activity> {
    let mut last = Vec::new();
    let own = known.lasts().filter(|last| last.server == server).map(|last| last.activity);
    for activity in own.chain(told.iter().cloned()) {
        for source in sources {
            if matters(schema, &activity, source) {
                add(schema, &mut last, activity.clone());
            } else if schema.certainly_precedes(source, &activity) {
                // The server has gone on from there; the message that says so is still under way.
                add(schema, &mut last, source.clone());
            }
        }
    }
    last
}

/// Algorithm 2: whether an entry is transferred, if the target knows everything up to `last`.
pub fn is_missing(
    schema: &Schema,
    activity: &Activity,
    sources: &[Activity],
    last: &[Activity],
) -> bool {
    sources.iter().any(|source| matters(schema, activity, source))
        && !is_known_up_to(schema, activity, last)
}

/// Whether a server that knows everything up to `last` certainly knows an entry.
pub fn is_known_up_to(schema: &Schema, activity: &Activity, last: &[Activity]) -> bool {
    last.iter().any(|last| is_part(schema, activity, last))
}

/// The activity of a node in the current iteration.
pub(crate) fn present(schema: &Schema, known: &impl Known, node: NodeId) -> Activity {
    let loops = schema.node(node).loops.iter();
    Activity { node, iteration: Iteration(loops.map(|id| known.round(*id)).collect()) }
}

/// Whether an entry may be needed to see how the source of a transfer has settled. A strict sync edge
/// may have skipped the source, so all paths of the schema count.
fn matters(schema: &Schema, activity: &Activity, source: &Activity) -> bool {
    activity == source || schema.activity_precedes(activity, source)
}

/// Whether an activity equals another one or always precedes it.
pub(crate) fn is_part(schema: &Schema, activity: &Activity, whole: &Activity) -> bool {
    activity == whole || schema.certainly_precedes(activity, whole)
}

/// Compares the iteration of an activity with the current one.
pub(crate) fn compare(schema: &Schema, known: &impl Known, activity: &Activity) -> Ordering {
    let present = schema.node(activity.node).loops.iter().map(|id| known.round(*id));
    activity.iteration.0.iter().copied().cmp(present)
}

/// The same activity in the previous iteration, if there is one.
fn step_back(activity: &Activity) -> Option<Activity> {
    let mut before = activity.clone();
    let round = before.iteration.0.last_mut()?;
    *round = round.checked_sub(1)?;
    Some(before)
}

/// Keeps the activities that precede no other.
fn add(schema: &Schema, last: &mut Vec<Activity>, activity: Activity) {
    if last.iter().any(|other| is_part(schema, &activity, other)) {
        return;
    }
    last.retain(|other| !schema.certainly_precedes(other, &activity));
    last.push(activity);
}
