//! Whoever has no plan here any more: their home has changed, or they are gone.
//!
//! Invariant: whatever this planner holds is in the plan of somebody at home here. What is not is taken back, and
//! tried again by whoever asked, where that person is planned now.

use std::time::Duration;

use legwork_model::event::{PlanEvent, Reserved};
use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_promise::ResourceId;

use super::task_id;
use crate::Site;

/// How long the others have to hear of a new topology: whoever asked for what is taken back tries again at once, and
/// should know where.
const SPREADS: Duration = Duration::from_secs(10);

impl Site {
    /// People and executors may be at home elsewhere since the topology or the executors have changed.
    pub(super) fn follow_homes(&mut self, now: Timestamp) {
        let epoch = self.seat.as_ref().map_or(0, |seat| seat.topology.epoch);
        let seen = (epoch, self.executors.registry.revision());
        if std::mem::replace(&mut self.planning.homes, seen) != seen {
            self.learn_homes();
            self.planning.moves_at = Some(now + SPREADS);
        }
        if self.planning.moves_at.is_some_and(|at| at <= now) {
            self.planning.moves_at = None;
            self.take_back_moved(now);
        }
    }

    fn learn_homes(&mut self) {
        let known = self.planning.node.iter().flat_map(|node| node.known());
        let homes: Vec<(ResourceId, ServerId)> =
            known.map(|id| (id.clone(), self.planner_of(id))).collect();
        if let Some(node) = &mut self.planning.node {
            homes.into_iter().for_each(|(id, planner)| node.know(id, planner));
        }
    }

    /// Takes back what those have promised who are at home elsewhere.
    fn take_back_moved(&mut self, now: Timestamp) {
        let here = self.server_here();
        let planned = self.planning.node.iter().flat_map(|node| node.desk.resources());
        let moved: Vec<ResourceId> =
            planned.filter(|id| self.planner_of(id) != here).cloned().collect();
        for id in moved {
            self.plan(now, |node| node.lose_resource(&id, now));
        }
    }

    /// Takes back what was promised before the server went down by somebody who has no plan here now.
    pub(super) fn take_back_strays(&mut self, now: Timestamp) {
        let Some(node) = &self.planning.node else { return };
        let is_stray = |it: &&Reserved| node.desk.task(task_id(it.task)).is_none();
        let strays: Vec<Reserved> = self.planning.ledger.held().filter(is_stray).cloned().collect();
        if strays.is_empty() {
            return;
        }
        self.record_plans(strays.iter().map(|it| PlanEvent::Ended(it.task)).collect(), now);
        for stray in strays {
            if stray.asker == self.server_here() && !self.is_instance(stray.task.instance) {
                continue;
            }
            let asker = (stray.asker, stray.attempt);
            let task = super::journal::task(&stray);
            task.who.iter().for_each(|one| self.prepare(one, now));
            self.plan(now, |node| node.lose_promise(task, asker, now));
        }
    }
}
