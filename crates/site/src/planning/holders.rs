//! Holders of steps. The server that started an instance has its steps planned, but only the server that controls a
//! step sees who has claimed it, and reports the holder with the stage of the step.
//!
//! Invariant: a claimed step is planned for its holder, for one of the holder's substitutes, or not at all: nobody else
//! can do it.

use std::collections::BTreeMap;

use legwork_engine::State;
use legwork_model::event::Leg;
use legwork_model::id::{AgentId, InstanceId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_plan::TaskId;

use super::cases::steps_of;
use super::steps::{is_now, task_of};
use crate::Site;
use crate::cases::step::agent;
use crate::planning::Planning;

/// Holders of steps of instances started here, as reported by other servers. Nothing is stored: reports are resent.
#[derive(Debug, Default)]
pub(super) struct Holders(BTreeMap<TaskId, AgentId>);

impl Holders {
    /// Notes a holder. Returns whether it has changed.
    fn note(&mut self, task: TaskId, holder: Option<AgentId>) -> bool {
        let before = match holder.clone() {
            Some(holder) => self.0.insert(task, holder),
            None => self.0.remove(&task),
        };
        before != holder
    }

    pub(super) fn forget(&mut self, id: InstanceId) {
        self.0.extract_if(steps_of(id), |_, _| true).for_each(drop);
    }
}

impl Planning {
    /// The holder of a step, as far as known here.
    pub(super) fn holder<'s>(
        &'s self,
        id: InstanceId,
        (schema, state): (&Schema, &'s State),
        leg: &Leg,
    ) -> Option<&'s AgentId> {
        claimed_by(schema, state, leg).or_else(|| self.holders.0.get(&task_of(id, leg)))
    }
}

impl Site {
    /// Another server reports the holder of a step. Returns whether it has changed.
    pub(super) fn note_holder(&mut self, task: TaskId, holder: Option<AgentId>) -> bool {
        let state = self.cases.instances.state(task.instance);
        let is_own = state.is_some_and(|(_, state)| state.started_elsewhere().is_none());
        is_own && self.planning.holders.note(task, holder)
    }

    /// Replans a step that is claimed by another person than the planned performer, for its holder.
    pub(super) fn replan_for_holder(&mut self, task: TaskId, has_changed: bool, now: Timestamp) {
        let Some((schema, state, leg)) = self.cases.promised_leg(task) else { return };
        let is_held = self.planning.holder(task.instance, (schema, state), leg).is_some();
        if is_held && has_changed && self.lacks_performer(task) {
            self.replan_step(task, "claimed by another person", false, now);
        }
    }

    /// Whether the holder of a step is absent, and another person is planned for it.
    pub(super) fn is_left_to_others(&self, id: InstanceId, leg: &Leg, now: Timestamp) -> bool {
        let Some((schema, state)) = self.cases.instances.state(id) else { return false };
        let Some(holder) = claimed_by(schema, state, leg) else { return false };
        let by = leg.planned.as_ref().and_then(|planned| agent(&planned.by));
        by.as_ref() != Some(holder) && self.catalog.organisation().is_absent(holder, now)
    }
}

/// The holder of a step that is controlled here.
pub(super) fn claimed_by<'s>(schema: &Schema, state: &'s State, leg: &Leg) -> Option<&'s AgentId> {
    state.open_at(schema, leg.node).filter(|_| is_now(schema, state, leg))?.claimed_by
}
