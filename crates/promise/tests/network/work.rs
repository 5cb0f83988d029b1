//! Those who work by the plans, and whether all is kept that stands.

use legwork_model::time::Timestamp;
use legwork_promise::{Task, TaskId, Work};

use super::{Net, State, resource, whole};

impl Net {
    /// One hour of work, by the plans.
    pub(super) fn work(&mut self) {
        let there: Vec<usize> =
            (0..self.nodes.len()).filter(|node| !self.gone.contains(node)).collect();
        for node in there {
            let lanes = self.nodes[node].desk.lanes(&resource(node));
            (0..lanes).for_each(|lane| self.begin_in(node, lane));
            self.nodes[node].desk.pass(Timestamp(self.now + 1));
            (0..lanes).for_each(|lane| self.end_in(node, lane));
        }
    }

    fn begin_in(&mut self, node: usize, lane: usize) {
        let can_put_aside = self.setting.can_put_aside;
        let next = match can_put_aside {
            true => self.next_of(node),
            false => self.next_in_order(node, lane),
        };
        let desk = &mut self.nodes[node].desk;
        match next {
            Some(next) => desk.begin(next),
            None if can_put_aside => desk.stop(&resource(node), lane),
            None => {}
        }
    }

    fn end_in(&mut self, node: usize, lane: usize) {
        let desk = &mut self.nodes[node].desk;
        let plan = desk.plan_mut(&resource(node), lane).expect("it is here");
        let done = plan.running().filter(|it| plan.left(*it) == Some(Work(0)));
        let Some(id) = done.and_then(|it| desk.task_of(&resource(node), lane, it)) else { return };
        let mut effects = Vec::new();
        self.nodes[node].end(id, &mut effects);
        self.carry_out(node, effects);
        self.done(id);
    }

    /// Nobody works on what was given up, though there is a place for it in a plan.
    fn is_open(&self, task: &Task) -> bool {
        let state = self.wanted[&whole(task.id)].state;
        matches!(state, State::Asked | State::Promised)
    }

    fn can_begin(&self, task: &Task) -> bool {
        task.window.release.0 <= self.now
    }

    /// Who can put work aside works on what is due first, of all that can be begun and that is still wanted.
    fn next_of(&self, node: usize) -> Option<TaskId> {
        let all = self.nodes[node].desk.reservations(&resource(node)).into_iter();
        let ready = all
            .map(|reservation| reservation.task)
            .filter(|task| self.can_begin(task) && self.is_open(task));
        ready.min_by_key(|task| (task.window.deadline, task.id)).map(|task| task.id)
    }

    /// Who cannot begins the next in the order of their plan when it can be begun, and when they are free.
    fn next_in_order(&mut self, node: usize, lane: usize) -> Option<TaskId> {
        let desk = &mut self.nodes[node].desk;
        let plan = desk.plan_mut(&resource(node), lane)?;
        if plan.running().is_some() {
            return None;
        }
        let order = plan.turns().into_iter().filter_map(|turn| turn.ticket);
        let desk = &self.nodes[node].desk;
        let order = order.filter_map(|it| desk.task(desk.task_of(&resource(node), lane, it)?));
        let mut open = order.filter(|task| self.is_open(task));
        if !self.is_in_suspense(node) {
            // What nobody wants any more may still be in the plan, since the word of it got lost: it is nobody's turn.
            return open.next().filter(|task| self.can_begin(task)).map(|task| task.id);
        }
        let open: Vec<TaskId> =
            open.filter(|task| self.can_begin(task)).map(|task| task.id).collect();
        let (desk, now) = (&mut self.nodes[node].desk, Timestamp(self.now));
        open.into_iter().find(|id| desk.turn_of(*id, now).is_some())
    }

    fn done(&mut self, id: TaskId) {
        let wanted = self.wanted.get_mut(&whole(id)).expect("somebody wants it");
        if id.part > 0 {
            wanted.parts_done.insert(id.part);
            if wanted.parts_done.len() < wanted.task.parts.len() {
                return;
            }
        }
        wanted.is_unheard = true;
        self.hear_done(whole(id));
    }

    pub(super) fn hear_done(&mut self, id: TaskId) {
        let Some(wanted) = self.wanted.get_mut(&id) else { return };
        let owner = wanted.owner;
        if !wanted.is_unheard || wanted.state == State::Refused || self.gone.contains(&owner) {
            return;
        }
        (wanted.is_unheard, wanted.state) = (false, State::Done);
        // What was said until now counts; that it is over is another matter.
        let messages = wanted.messages;
        let effects = self.nodes[owner].finish(id);
        self.carry_out(owner, effects);
        if let Some(wanted) = self.wanted.get_mut(&id) {
            wanted.messages = messages;
        }
    }

    /// What stands is kept.
    pub(super) fn check(&self) {
        for (id, wanted) in &self.wanted {
            let is_late = wanted.task.window.deadline.0 + wanted.waited < self.now;
            // Nobody counts on what does not go ahead.
            let is_counted_on = wanted.state == State::Promised && wanted.has_gone_ahead;
            let is_broken = is_late && is_counted_on && !wanted.is_excused;
            assert!(!is_broken || self.gone.contains(&wanted.owner), "{id:?}: broken");
        }
    }

    /// In the end everybody has been answered, and nothing is left.
    pub(crate) fn is_over(&self) {
        for (id, wanted) in &self.wanted {
            let is_over = matches!(wanted.state, State::Refused | State::Done);
            assert!(is_over, "{id:?}: {:?}, at {:?}", wanted.state, wanted.at);
        }
        for node in &self.nodes {
            assert!(node.desk.is_empty(), "reservations are left: {}", node.desk.len());
            assert_eq!(node.open(), 0, "something is under way: {node:?}");
            assert_eq!(node.next_due(), None);
        }
    }
}
