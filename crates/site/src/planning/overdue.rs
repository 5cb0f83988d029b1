//! Deadlines that pass: they are counted, recorded and announced at that moment, and handled as the process says.
//!
//! Invariant: a deadline passes once, at the server that started the case, before anything that is done after it. Other
//! servers only write letters to their people.

use std::time::Duration;

use legwork_engine::{Command, Here, Open, State};
use legwork_model::definition::Late;
use legwork_model::event::{Deadline, Performer, Then};
use legwork_model::id::InstanceId;
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;

use crate::Site;
use crate::cases::Cases;

/// How many deadlines are checked in one commit.
const CHECKED_AT_ONCE: usize = 256;
/// When to check a case again that has to be loaded; or whose history is full, or which may have ended at another
/// server.
const LOADED: Duration = Duration::from_secs(10);
const REFUSED: Duration = Duration::from_secs(60);

impl Cases {
    /// A case is in memory again: its alarm need not wait any longer.
    pub(crate) fn deadline_loaded(&mut self, id: InstanceId) {
        self.postpone_alarm(id, None);
    }

    fn postpone_alarm(&mut self, id: InstanceId, until: Option<Timestamp>) {
        if let Some(slot) = self.instances.get_mut(id) {
            slot.alarm.postponed_until = until;
            self.instances.set_alarm(id);
        }
    }
}

impl Site {
    /// Checks all deadlines that are in danger by now, or have passed.
    pub(crate) fn pass_deadlines(&mut self, now: Timestamp) {
        if now < self.planning.grace_until() {
            return;
        }
        for _ in 0..CHECKED_AT_ONCE {
            let next = self.cases.instances.next_alarm().filter(|(at, _)| *at <= now);
            let Some((_, id)) = next.filter(|_| !self.entailed.is_enough()) else { return };
            self.check_deadline(id, now);
        }
    }

    /// When a deadline has to be checked.
    pub(crate) fn next_alarm(&self) -> Option<Timestamp> {
        let (at, _) = self.cases.instances.next_alarm()?;
        Some(at.max(self.planning.grace_until()))
    }

    /// After a restart: letters about a passed deadline may not have been sent to all.
    pub(crate) fn recover_deadline(&mut self, id: InstanceId) {
        let deadline = self.cases.instances.state(id).and_then(|(_, state)| state.deadline());
        if deadline.is_some_and(|deadline| deadline.passed.is_some()) {
            self.note_deadline(id);
        }
    }

    /// Commands after the deadline come after its passing in the history, even if the alarm was not handled yet.
    pub(crate) fn pass_before(&mut self, id: InstanceId, commands: &[Command], now: Timestamp) {
        let Some((_, state)) = self.cases.instances.state(id) else { return };
        let is_own = !state.lifecycle().has_ended() && state.started_elsewhere().is_none();
        let has_passed = |deadline: &Deadline| now > deadline.at && !deadline.is_late();
        if is_own && state.deadline().is_some_and(has_passed) && commands.iter().any(is_work) {
            self.check_deadline(id, now);
        }
    }

    fn check_deadline(&mut self, id: InstanceId, now: Timestamp) {
        let Some(slot) = self.cases.instances.get_mut(id) else { return };
        let Some(due) = slot.due.as_deref().copied() else { return };
        let has_passed = now > due.at;
        let tells = self.config.mail.is_some();
        let Some(state) = slot.state.as_deref() else {
            if has_passed || tells {
                self.cases.postpone_alarm(id, Some(now + LOADED));
                self.ask_for(id.into(), false);
            } else {
                slot.alarm.in_danger = due.danger;
                self.cases.instances.set_alarm(id);
            }
            return;
        };
        if has_passed && state.started_elsewhere().is_none() {
            return self.pass_deadline(id, now);
        }
        if has_passed {
            slot.alarm.passed = Some(due.at);
        } else {
            slot.alarm.in_danger = due.danger;
        }
        self.cases.postpone_alarm(id, None);
        self.note_deadline(id);
    }

    fn pass_deadline(&mut self, id: InstanceId, now: Timestamp) {
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let Some(deadline) = state.deadline() else { return };
        let (at, is_first) = (deadline.at, deadline.passed.is_none());
        let then = then(schema.late, deadline);
        let is_known = self.is_still_open(id, (schema, state));
        let is_cut = || state.peers().iter().any(|peer| self.planning.reach.is_cut(peer.server));
        if then == Then::Abort && !is_known && is_cut() {
            // It may have ended in time.
            return self.cases.postpone_alarm(id, Some(now + REFUSED));
        }
        let place = self.broken_at(id, (schema, state), deadline);
        let mut commands = vec![Command::PassDeadline { at, then }];
        if then == Then::Abort {
            let reason = format!("its deadline {at} has passed (`late: abort`)");
            commands.push(Command::Abort { by: Performer::System, reason });
        }
        let owed = self.owed_letters(id, at);
        if self.record_commands(id, commands, now).is_err() {
            return self.cases.postpone_alarm(id, Some(now + REFUSED));
        }
        let is_over = is_known || then == Then::Abort;
        if is_over && (self.planning.uncounted.remove(&id).is_some() || is_first) {
            self.planning.count_broken(place);
        } else if is_first {
            self.planning.uncounted.insert(id, at);
        }
        match then {
            Then::Tell => {}
            Then::Abort => return self.store_owed(owed, now),
            Then::Extend { .. } => self.try_extended(id, now),
        }
        self.cases.postpone_alarm(id, None);
        self.note_deadline(id);
    }

    /// Whether a case is known here not to have ended, since a step is open here.
    fn is_still_open(&self, id: InstanceId, (schema, state): (&Schema, &State)) -> bool {
        let standing = self.standing(id);
        let is_here = |open: Open<'_>| standing.controls(schema, state, open.activity.node);
        !state.is_shared() || state.open(schema).any(is_here)
    }

    /// The deadline was extended: tries a revoked promise again, and seeks new dates for a promised case.
    fn try_extended(&mut self, id: InstanceId, now: Timestamp) {
        let deadline = self.cases.instances.state(id).and_then(|(_, state)| state.deadline());
        let Some(deadline) = deadline.filter(|deadline| !deadline.is_unpromised) else { return };
        match deadline.is_promised() {
            true => self.replan_extended(id, now),
            false => self.planning.replan_revoked(id),
        }
    }
}

/// The reaction of a process to a passed deadline.
fn then(late: Late, deadline: &Deadline) -> Then {
    match late {
        Late::Tell => Then::Tell,
        Late::Abort => Then::Abort,
        Late::Extend(_) if deadline.extended() >= Deadline::EXTENDED_MAX => Then::Tell,
        Late::Extend(by) => Then::Extend { to: deadline.at.plus(by) },
    }
}

/// The text of a history entry.
pub(crate) fn describe(due: Timestamp, then: Then) -> String {
    match then {
        Then::Tell => due.to_string(),
        Then::Abort => format!("{due}; the case is aborted"),
        Then::Extend { to } => format!("{due}; extended until {to}"),
    }
}

/// Whether a command does work that has to be in time.
fn is_work(command: &Command) -> bool {
    matches!(
        command,
        Command::Claim { .. }
            | Command::Complete { .. }
            | Command::Answer { .. }
            | Command::Confirm { .. }
            | Command::Resolve { .. }
            | Command::Abort { .. }
    )
}
