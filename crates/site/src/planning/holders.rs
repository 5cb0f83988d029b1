//! Who has claimed a step. The server that started an instance has its steps planned, but only the server that controls a step
//! sees who has claimed it, and says so with how far it is.
//!
//! Invariant: what somebody has claimed is planned for them, for one of their substitutes, or for nobody: nobody else can do
//! it.

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

/// Who has claimed steps of instances that were started here, as other servers told. Nothing of it is stored: it is resent.
#[derive(Debug, Default)]
pub(super) struct Holders(BTreeMap<TaskId, AgentId>);

impl Holders {
    /// Whether that is news.
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
    /// Who has claimed a step, as far as is known here.
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
    /// Another server tells who has claimed a step; answers whether that is news.
    pub(super) fn note_holder(&mut self, task: TaskId, holder: Option<AgentId>) -> bool {
        let state = self.cases.instances.state(task.instance);
        let is_own = state.is_some_and(|(_, state)| state.started_elsewhere().is_none());
        is_own && self.planning.holders.note(task, holder)
    }

    /// What somebody has claimed and is planned for somebody else is planned anew, for the holder.
    pub(super) fn follow_holder(&mut self, task: TaskId, has_changed: bool, now: Timestamp) {
        let Some((schema, state, leg)) = self.cases.promised_leg(task) else { return };
        let is_held = self.planning.holder(task.instance, (schema, state), leg).is_some();
        if is_held && has_changed && self.is_in_vain(task) {
            self.replan_step(task, "somebody else has taken it", false, now);
        }
    }

    /// Whether somebody has claimed a step who is away, and somebody else is to do it.
    pub(super) fn is_left_to_others(&self, id: InstanceId, leg: &Leg, now: Timestamp) -> bool {
        let Some((schema, state)) = self.cases.instances.state(id) else { return false };
        let Some(holder) = claimed_by(schema, state, leg) else { return false };
        let by = leg.planned.as_ref().and_then(|planned| agent(&planned.by));
        by.as_ref() != Some(holder) && self.catalog.organisation().is_absent(holder, now)
    }
}

/// Who has claimed a step that is controlled here.
pub(super) fn claimed_by<'s>(schema: &Schema, state: &'s State, leg: &Leg) -> Option<&'s AgentId> {
    state.open_at(schema, leg.node).filter(|_| is_now(schema, state, leg))?.claimed_by
}
