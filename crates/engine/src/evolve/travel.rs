//! Folds in transfers from other servers.
//!
//! The entries come first: they bring the local state to where the sender's was.

use legwork_model::event::{Entry, Event, Orders, Parcel, Received};
use legwork_model::id::{Activity, NodeId};
use legwork_model::schema::Schema;

use super::{aborted, completed, decided, write};
use crate::data::versions::Written;
use crate::marking::Spread;
use crate::state::Lifecycle;

/// Folds in a transfer: the entries first, then its subject.
pub(super) fn take<N: FnMut(&mut Vec<NodeId>) -> Option<NodeId>>(
    spread: &mut Spread<'_, N>,
    received: &Received,
) {
    let now = spread.at;
    for entry in &received.entries {
        spread.at = entry.at;
        spread.server = Some(entry.server);
        let node = |activity: &Activity| spread.schema.nodes.get(activity.node.0 as usize);
        if let Event::Completed(done) = &entry.event
            && let Some(node) = node(&done.activity)
        {
            away(spread, entry, &done.activity);
            completed(spread, node, done);
        } else if let Event::Decided { activity, code } = &entry.event
            && let Some(node) = node(activity)
        {
            decided(spread, node, *code);
        } else if let Event::Created(created) = &entry.event {
            let start = Activity::once(Schema::START);
            write(spread.state, &created.inputs, &start, entry.at, spread.server);
            away(spread, entry, &start);
            spread.completed(spread.schema.node(Schema::START));
        }
    }
    (spread.at, spread.server) = (now, None);
    let Received { from, number, parcel, .. } = received;
    spread.state.travel_mut().received(spread.schema, *from, *number, parcel);
    if let Some(order) = parcel.order()
        && spread.state.travel_mut().ordered(order)
        && !spread.state.lifecycle.has_ended()
    {
        obey(spread, order.what);
    }
    // An instance that was aborted first stays aborted.
    if let Parcel::Finished { at, .. } = parcel
        && !spread.state.lifecycle.has_ended()
    {
        spread.state.lifecycle = Lifecycle::Completed;
        // The message may be late, and the sender's clock may be ahead.
        spread.state.travel_mut().ended_at = at.map(|at| at.min(now));
    }
}

/// Records the values of an entry that stayed where they were written.
fn away<N>(spread: &mut Spread<'_, N>, entry: &Entry, writer: &Activity) {
    for element in &entry.elsewhere {
        let (element, at, server) = (*element, entry.at, Some(entry.server));
        spread.state.versions.write(Written { element, value: None, writer, at, server });
    }
}

fn obey<N: FnMut(&mut Vec<NodeId>) -> Option<NodeId>>(spread: &mut Spread<'_, N>, what: Orders) {
    match what {
        Orders::Suspend => spread.state.lifecycle = Lifecycle::Suspended,
        Orders::Resume => spread.state.lifecycle = Lifecycle::Running,
        Orders::Abort => aborted(spread),
    }
}
