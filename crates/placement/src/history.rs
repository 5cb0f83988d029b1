//! Which entries of a history a server knows, and which ones it lacks: Algorithms 1 and 2.
//!
//! Invariant: knowledge is closed. Whoever knows an entry of an activity knows the entries of all
//! its predecessors. So a few activities, the last ones, tell all that a server knows; and whether
//! an entry is known follows from the marking, without a look at the history itself: of an
//! iteration that is over everything is known.

use std::cmp::Ordering;

use legwork_model::id::{Activity, DomainId, InstanceId, Iteration, NodeId, ServerId};
use legwork_model::schema::{LoopId, NodeKind, Schema};

/// What a server knows of an instance.
pub trait Known {
    /// Which one: from its id follows which server of a domain controls it there.
    fn instance(&self) -> InstanceId;

    /// In the present iteration.
    fn is_completed(&self, node: NodeId) -> bool;

    /// In the present iteration.
    fn is_skipped(&self, node: NodeId) -> bool;

    /// How often a loop has gone round.
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
    /// Who controlled it.
    pub server: ServerId,
    /// Where whoever did it is at home.
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

/// Algorithm 1: the last activities among the sources of a move and their predecessors that are
/// known here. All that precedes them is known, nothing after them is.
pub fn last_activities(schema: &Schema, known: &impl Known, sources: &[Activity]) -> Vec<Activity> {
    let mut last = Vec::new();
    for source in sources {
        // Of an iteration that is over all is known, also that the source was skipped in it.
        if compare(schema, known, source) == Ordering::Less {
            add(schema, &mut last, source.clone());
        }
    }
    for node in schema.nodes.iter().filter(|node| node.has_entry()) {
        let activity = present(schema, known, node.id);
        // A loop that has gone round: the decision to do so came last in the round before, also where
        // the present round has come to its end as well.
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

/// The last activities among the sources of a move and their predecessors that `server` is sure to
/// know: those it controlled itself, and those of `told`, which it was told or has told.
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
                // It has gone on from there: the word that it got this far is still under way.
                add(schema, &mut last, source.clone());
            }
        }
    }
    last
}

/// Algorithm 2: whether an entry goes along, when the target knows all up to `last`.
pub fn is_missing(
    schema: &Schema,
    activity: &Activity,
    sources: &[Activity],
    last: &[Activity],
) -> bool {
    sources.iter().any(|source| matters(schema, activity, source))
        && !is_known_up_to(schema, activity, last)
}

/// Whether whoever knows all up to `last` is sure to know an entry.
pub fn is_known_up_to(schema: &Schema, activity: &Activity, last: &[Activity]) -> bool {
    last.iter().any(|last| is_part(schema, activity, last))
}

/// The activity of a node in the present iteration.
pub(crate) fn present(schema: &Schema, known: &impl Known, node: NodeId) -> Activity {
    let loops = schema.node(node).loops.iter();
    Activity { node, iteration: Iteration(loops.map(|id| known.round(*id)).collect()) }
}

/// Whether an entry may be needed to see how the source of a move has settled. A strict sync edge
/// may have skipped it, so all paths of the schema count.
fn matters(schema: &Schema, activity: &Activity, source: &Activity) -> bool {
    activity == source || schema.activity_precedes(activity, source)
}

/// Whether an activity is another one or is sure to precede it.
pub(crate) fn is_part(schema: &Schema, activity: &Activity, whole: &Activity) -> bool {
    activity == whole || schema.certainly_precedes(activity, whole)
}

/// How the iteration of an activity compares to the present one.
pub(crate) fn compare(schema: &Schema, known: &impl Known, activity: &Activity) -> Ordering {
    let present = schema.node(activity.node).loops.iter().map(|id| known.round(*id));
    activity.iteration.0.iter().copied().cmp(present)
}

/// The same in the iteration before, if there is one.
fn step_back(activity: &Activity) -> Option<Activity> {
    let mut before = activity.clone();
    let round = before.iteration.0.last_mut()?;
    *round = round.checked_sub(1)?;
    Some(before)
}

/// Keeps those that precede no other.
fn add(schema: &Schema, last: &mut Vec<Activity>, activity: Activity) {
    if last.iter().any(|other| is_part(schema, &activity, other)) {
        return;
    }
    last.retain(|other| !schema.certainly_precedes(other, &activity));
    last.push(activity);
}
