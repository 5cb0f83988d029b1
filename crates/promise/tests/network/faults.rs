//! Planners that are gone for a while.

use std::collections::BTreeSet;

use legwork_model::time::Timestamp;
use legwork_promise::TaskId;

use super::{NOTICED, Net, resource, server, setup, whole};

impl Net {
    /// Faults: who is gone does nothing and hears nothing. Who comes back has lost what it had promised, or some of
    /// the time for it; it knows that, and can do things again.
    pub(super) fn go_and_come(&mut self) {
        let now = Timestamp(self.now);
        for (at, node, time) in self.setting.faults.clone() {
            let node = node % self.nodes.len();
            if at == self.now && self.gone.is_empty() {
                self.go(node);
            }
            if !self.gone.contains(&node) {
                continue;
            }
            let others: Vec<usize> = (0..self.nodes.len()).filter(|other| *other != node).collect();
            if at + NOTICED == self.now {
                for other in &others {
                    let effects = self.nodes[*other].lose(server(node), now);
                    self.carry_out(*other, effects);
                }
            }
            if at + NOTICED + time == self.now {
                self.gone.remove(&node);
                for id in self.wanted.keys().copied().collect::<Vec<_>>() {
                    self.hear_done(id);
                }
                let effects = if self.setting.comes_back {
                    self.nodes[node].give_up_endangered(now)
                } else {
                    let effects = self.nodes[node].lose_resource(&resource(node), now);
                    assert!(self.nodes[node].desk.add(resource(node), &setup(&self.setting), now));
                    self.nodes[node].know(resource(node), server(node));
                    effects
                };
                self.carry_out(node, effects);
                for other in others {
                    let effects = self.nodes[other].find(server(node), now);
                    self.carry_out(other, effects);
                }
            }
        }
    }

    /// Nobody works there from now on, and it knows that when it is back.
    fn go(&mut self, node: usize) {
        self.gone.insert(node);
        let has = self.nodes[node].desk.reservations(&resource(node)).into_iter();
        let has: Vec<TaskId> = has.map(|it| it.task.id).collect();
        has.iter().for_each(|id| self.nodes[node].leave(*id));
        let there: BTreeSet<TaskId> = has.into_iter().map(whole).collect();
        for (id, wanted) in &mut self.wanted {
            let has_part = !wanted.task.parts.is_empty() && there.contains(id);
            // What is not due before it is noticed is told in time.
            let is_soon = wanted.task.window.deadline.0 <= self.now + NOTICED;
            let is_there = wanted.at == Some(server(node));
            let is_untold = is_soon || !self.setting.comes_back;
            wanted.is_excused |= has_part || is_there && is_untold;
        }
    }
}
