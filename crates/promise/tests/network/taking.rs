//! Those who take room for what they want, and go ahead with it then or not.

use legwork_model::time::Timestamp;
use legwork_promise::{Displaces, Node, TaskId};

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

    /// Nobody can work on what room is taken for before the others have made way.
    pub(super) fn wait_in_suspense(&mut self) {
        for (id, wanted) in &mut self.wanted {
            let is_waiting =
                |node: &Node| node.desk.task(*id).is_some() && node.desk.lane_of(*id).is_none();
            wanted.waited += i64::from(self.nodes.iter().any(is_waiting));
        }
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

    /// Somebody may make way only for something more important that is due before and has gone ahead. If something breaks,
    /// or is slow, nobody knows in time.
    pub(super) fn may_be_removed(&self, id: TaskId) -> bool {
        let other = &self.wanted[&id].task;
        let breaks = self.setting.lost > 0 || !self.setting.faults.is_empty();
        let is_more = |it: &&Wanted| {
            it.task.priority > other.priority && it.task.window.deadline < other.window.deadline
        };
        let displaces = |it: &&Wanted| it.task.displaces != Displaces::Never;
        // Where it is in a plan now that the other was in; the word that it is promised may be on its way.
        let is_promised = |it: &&Wanted| {
            let by = |node: &Node| node.desk.promised_by(it.task.id).cloned();
            self.nodes.iter().filter_map(by).any(|by| other.who.contains(&by))
        };
        let mut all = self.wanted.values().filter(is_more).filter(displaces).filter(is_promised);
        breaks || all.any(|it| it.has_gone_ahead)
    }
}
