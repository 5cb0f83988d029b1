//! Resolving: a person decides how an activity with an incident goes on.
//!
//! Every incident can be retried; outputs by hand are for steps, a branch by hand is for decisions.
//! A result by hand is recorded as a completion by that person.

use legwork_model::event::{Completed, Event, Performer};
use legwork_model::id::Activity;
use legwork_model::schema::Node;

use super::{Case, Decision, Draft};
use crate::command::Resolution;
use crate::data;
use crate::rejection::Rejection;
use crate::state::NodeState;

pub(super) fn resolve(
    case: Case<'_>,
    activity: Activity,
    by: Performer,
    resolution: Resolution,
) -> Result<Decision, Rejection> {
    case.alive()?;
    let node = case.node(&activity)?;
    if case.state.node_state(node.id) != NodeState::Failed {
        return Err(Rejection::NoIncident { step: node.name.to_string() });
    }
    let (writes, code) = match (resolution, !node.is_decision()) {
        (Resolution::Retry, is_step) => {
            let mut draft = Draft::of(case);
            draft.record(Event::IncidentResolved { activity, by });
            if !is_step && node.who().is_none() {
                draft.undecided.push(node.id);
            }
            return Ok(draft.finish());
        }
        (Resolution::Complete(outputs), true) => {
            data::check(case.schema, node, &outputs)?;
            (outputs, None)
        }
        (Resolution::Choose(code), false) if (code as usize) < node.answers().len() => {
            (Vec::new(), Some(code))
        }
        (Resolution::Choose(_), false) => return Err(data::answer_unknown(node)),
        (Resolution::Complete(_), false) => {
            return Err(unfit(node, "retry it or choose an answer"));
        }
        (Resolution::Choose(_), true) => return Err(unfit(node, "retry it or supply its outputs")),
    };
    let (started_at, home) = (case.now, case.here.home(&by));
    let request = None;
    case.answer(Event::Completed(Completed {
        activity,
        by,
        started_at,
        writes,
        code,
        request,
        home,
        channel: None,
    }))
}

fn unfit(node: &Node, fits: &'static str) -> Rejection {
    Rejection::ResolutionUnfit { step: node.name.to_string(), fits }
}
