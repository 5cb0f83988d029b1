//! Those who take room for what they want, and go ahead with it then or not.

use legwork_model::time::Timestamp;
use legwork_promise::{Displaces, TaskId};

use super::Net;
use super::wanted::{State, Wanted};

impl Wanted {
    /// Room is taken for it, or is being taken, and it has not gone ahead.
    pub(super) fn is_taking(&self) -> bool {
        let is_open = matches!(self.state, State::Asked | State::Promised);
        is_open && self.has_decided && !self.has_gone_ahead
    }
}

impl Net {
    /// Those for whom room is held have what else they need, or do not want it any more.
    pub(super) fn decide(&mut self) {
        let due = self.wanted.iter().filter(|(_, it)| !self.gone.contains(&it.owner));
        let due = due.filter(|(_, it)| it.decides.is_some_and(|at| at <= self.now));
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            let takes = self.below(3) > 0;
            let now = self.now;
            let wanted = self.wanted.get_mut(&id).expect("it is there");
            (wanted.decides, wanted.has_decided) = (None, true);
            wanted.state = if takes { State::Asked } else { State::Refused };
            let owner = &mut self.nodes[wanted.owner];
            let effects =
                if takes { owner.take_room(id, Timestamp(now)) } else { owner.finish(id) };
            let owner = wanted.owner;
            self.carry_out(owner, effects);
        }
    }

    /// Those who have taken room go ahead, or hang up.
    pub(super) fn go_ahead_or_not(&mut self) {
        let due = self.wanted.iter().filter(|(_, it)| !self.gone.contains(&it.owner));
        let due = due.filter(|(_, it)| it.goes_ahead.is_some_and(|at| at <= self.now));
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            let (goes_ahead, now) = (self.below(100) < self.setting.goes_ahead, self.now);
            let wanted = self.wanted.get_mut(&id).expect("it is there");
            wanted.goes_ahead = None;
            if wanted.state != State::Promised {
                continue;
            }
            if !goes_ahead {
                self.hang_up(id);
                continue;
            }
            wanted.has_gone_ahead = true;
            let owner = wanted.owner;
            let effects = self.nodes[owner].go_ahead([id].into_iter(), Timestamp(now));
            self.carry_out(owner, effects);
            self.make_up_for_waiting(owner);
        }
    }

    /// Room is taken for a task here, and the others have not made way.
    fn is_in_room(&self, node: usize, id: TaskId) -> bool {
        let desk = &self.nodes[node].desk;
        desk.task(id).is_some() && desk.lane_of(id).is_none()
    }

    pub(super) fn is_in_suspense(&self, node: usize) -> bool {
        self.wanted.keys().any(|id| self.is_in_room(node, *id))
    }

    /// Nobody can work on what room is taken for before the others have made way.
    pub(super) fn wait_in_suspense(&mut self) {
        let all = 0..self.nodes.len();
        let is_waiting = |id: &&TaskId| all.clone().any(|node| self.is_in_room(node, **id));
        let waiting: Vec<TaskId> = self.wanted.keys().filter(is_waiting).copied().collect();
        let nodes: Vec<usize> = all.clone().filter(|node| self.is_in_suspense(*node)).collect();
        for id in waiting {
            self.wanted.get_mut(&id).expect("it is there").waited += 1;
        }
        // Nor on those who may have to make way: who is late for that is told.
        let there = nodes.into_iter().filter(|node| !self.gone.contains(node));
        there.collect::<Vec<_>>().into_iter().for_each(|node| self.make_up_for_waiting(node));
    }

    /// Whoever wanted it does not any more.
    pub(super) fn hang_up(&mut self, id: TaskId) {
        let wanted = self.wanted.get_mut(&id).expect("it is there");
        (wanted.state, wanted.goes_ahead) = (State::Refused, None);
        let owner = wanted.owner;
        let effects = self.nodes[owner].finish(id);
        self.carry_out(owner, effects);
    }

    /// Between taking room and going ahead time has passed, in which nobody could work on what it was taken for: what cannot be
    /// kept any more is given up, as whoever drives a planner does now and then.
    pub(super) fn make_up_for_waiting(&mut self, node: usize) {
        let effects = self.nodes[node].give_up_endangered(Timestamp(self.now));
        self.carry_out(node, effects);
    }

    /// Who has promised what: whoever makes way hears of it later, when that may be done.
    pub(super) fn note_promised(&mut self, node: usize) {
        let desk = &self.nodes[node].desk;
        for (id, wanted) in &mut self.wanted {
            let parts = 0..=wanted.task.parts.len() as u16;
            let by = parts.filter_map(|part| desk.promised_by(TaskId { part, ..*id }));
            wanted.by.extend(by.cloned());
        }
    }

    /// Somebody may make way only for something more important that is due before and has gone ahead. If something breaks,
    /// or is slow, nobody knows in time.
    pub(super) fn may_be_removed(&self, id: TaskId) -> bool {
        let other = &self.wanted[&id].task;
        let breaks = self.setting.lost > 0 || !self.setting.faults.is_empty();
        let is_more = |it: &&Wanted| {
            it.task.priority > other.priority && it.task.window.deadline < other.window.deadline
        };
        let displaces = |it: &&Wanted| it.task.displaces != Displaces::Never;
        // It was promised by somebody who had promised the other.
        let by = &self.wanted[&id].by;
        let is_promised = |it: &&Wanted| !it.by.is_disjoint(by);
        let mut all = self.wanted.values().filter(is_more).filter(displaces).filter(is_promised);
        breaks || all.any(|it| it.has_gone_ahead)
    }
}
