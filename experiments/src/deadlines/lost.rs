//! Reservations that end early: displaced tasks, and those of a lost node, are retried by the requesting node, or
//! by the deputy of that node.

use std::collections::BTreeSet;

use legwork_plan::{Reservation, TaskId};

use super::node::{Message, Node, Out, number};

impl Node<'_> {
    /// The deputy keeps the reservations of this node.
    pub(super) fn tell_deputy(&mut self, message: Message, now: i64) {
        if let Some(deputy) = self.deputy {
            self.say(deputy, message, now);
        }
    }

    /// A reservation here was displaced.
    pub(super) fn displaced_here(&mut self, reservation: &Reservation, now: i64) {
        let (id, attempt) = (reservation.task, reservation.attempt);
        let asker = usize::from(reservation.asker.0);
        if asker == self.me {
            self.try_again(id, true, true, now);
        } else {
            self.say(asker, Message::Displaced(id, attempt), now);
        }
    }

    /// A reservation for a task that was requested here has ended. Nothing is displaced for a displaced task: that
    /// might go on and on.
    pub(super) fn try_again(&mut self, id: TaskId, is_displaced: bool, is_here: bool, now: i64) {
        let whole = TaskId { step: 0, ..id };
        let was_reserved = match id.step {
            0 => self.asked.remove(&id).is_none_or(|asked| asked.at.is_some()),
            // Another part of it was retried before.
            _ => match self.cancel_parts(whole, now) {
                Some(parts) => parts.open == 0,
                None => return,
            },
        };
        self.passing.remove(&whole);
        if was_reserved {
            self.tell_deputy(Message::Forget(whole), now);
            self.tell(Out::Revoked(whole));
        }
        let job = self.job(whole, !is_displaced);
        match is_here && id.step == 0 {
            true => self.pass_on(job, now),
            false => self.admit(job, now),
        }
    }

    /// A node is lost: its reservations are placed again, most urgent first, for the tasks that were requested
    /// here, and for those kept here as its deputy.
    pub(super) fn lose(&mut self, node: usize, now: i64) {
        self.lost[node] = true;
        // A job without an answer may be there as well.
        let asked = self.asked.iter().filter(|(_, it)| it.at.is_none_or(|at| at == node));
        let kept = self.kept.iter().filter(|(_, of)| self.stands_in && **of == node);
        let asked = asked.map(|(id, _)| *id);
        let mut ids: Vec<TaskId> = asked.chain(kept.map(|(id, _)| *id)).collect();
        ids.sort_by_key(|id| {
            let job = self.job(*id, false);
            (job.slack(now), std::cmp::Reverse(job.priority), *id)
        });
        // One part represents its task.
        let mut seen = BTreeSet::new();
        ids.retain(|id| seen.insert(number(*id)));
        for id in ids {
            let is_kept = self.kept.remove(&id).is_some();
            if is_kept || self.asked.get(&id).is_some_and(|it| it.at.is_none_or(|at| at == node)) {
                self.try_again(id, false, false, now);
            }
        }
    }
}
