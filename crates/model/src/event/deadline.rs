//! The deadline of an instance and its plan.

use minicbor::{Decode, Encode};

use super::Performer;
use crate::id::{NodeId, ServerId};
use crate::time::Timestamp;

/// The deadline of an instance, and its plan.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Deadline {
    #[n(0)]
    pub at: Timestamp,
    /// Every step with work of its own; empty if the deadline was accepted without a promise.
    #[cbor(n(1), skip_if = "Vec::is_empty")]
    pub legs: Vec<Leg>,
    /// The deadline was accepted although it could not be promised.
    #[n(2)]
    pub is_unpromised: bool,
    /// The last change of its promise; `None` as long as the promise is as given. Never in an event.
    #[n(3)]
    pub turned: Option<Turned>,
    /// Its priority, if not the default.
    #[n(4)]
    pub unusual_priority: Option<u8>,
    /// When it passed last, if it has; the deadline is a later moment if it was extended then. Never in an
    /// event.
    #[n(5)]
    pub passed: Option<Passed>,
}

/// A deadline passed before the case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Passed {
    /// The last deadline that passed.
    #[n(0)]
    pub at: Timestamp,
    /// The number of extensions.
    #[n(1)]
    pub extended: u8,
}

/// The reaction to a passed deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Then {
    /// People are told.
    #[n(0)]
    Tell,
    /// The case is aborted: `Aborted` follows.
    #[n(1)]
    Abort,
    /// The deadline is extended.
    #[n(2)]
    Extend {
        #[n(0)]
        to: Timestamp,
    },
}

/// The promise of a deadline was revoked, or given again.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Turned {
    #[n(0)]
    pub at: Timestamp,
    /// The step whose plan changed.
    #[n(1)]
    pub node: NodeId,
    #[n(2)]
    pub reason: String,
}

/// A step of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Leg {
    #[n(0)]
    pub node: NodeId,
    /// The number of its iteration.
    #[n(1)]
    pub round: u64,
    /// Its release time: all its predecessors are done by then.
    #[n(2)]
    pub release: Timestamp,
    /// Its due date.
    #[n(3)]
    pub due: Timestamp,
    /// In milliseconds of working time.
    #[n(4)]
    pub takes_ms: u64,
    /// Its performer and start; `None` if nobody has promised it, or not any more.
    #[n(5)]
    pub planned: Option<Planned>,
}

/// A performer's promise to do a step.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Planned {
    #[n(0)]
    pub by: Performer,
    /// At the latest.
    #[n(1)]
    pub start: Timestamp,
    #[n(2)]
    pub end: Timestamp,
    /// The server of the plan.
    #[n(3)]
    pub planner: ServerId,
}

/// The plan of an instance has changed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Replanned {
    /// The steps with a new plan.
    #[n(0)]
    pub legs: Vec<Leg>,
    #[n(1)]
    pub reason: String,
}

impl Deadline {
    /// The default and the highest priority of a case with a deadline.
    pub const PRIORITY_DEFAULT: u8 = 5;
    pub const PRIORITY_MAX: u8 = 9;
    /// The most extensions of a deadline.
    pub const EXTENDED_MAX: u8 = 10;

    /// A requested deadline, without a plan.
    pub fn new(at: Timestamp, priority: u8) -> Self {
        let unusual_priority = Some(priority).filter(|it| *it != Self::PRIORITY_DEFAULT);
        let (legs, is_unpromised, turned, passed) = (Vec::new(), false, None, None);
        Self { at, legs, is_unpromised, turned, unusual_priority, passed }
    }

    pub fn priority(&self) -> u8 {
        self.unusual_priority.unwrap_or(Self::PRIORITY_DEFAULT)
    }

    /// Whether it is promised. A case without work is promised at once.
    pub fn is_promised(&self) -> bool {
        !self.is_unpromised && self.legs.iter().all(|leg| leg.planned.is_some())
    }

    /// Whether it has passed without an extension.
    pub fn is_late(&self) -> bool {
        self.passed.is_some_and(|passed| passed.at >= self.at)
    }

    /// The number of extensions.
    pub fn extended(&self) -> u8 {
        self.passed.map_or(0, |passed| passed.extended)
    }

    /// The deadline has passed. If it is extended, unpromised steps get so much more time; those that can be
    /// begun already (`is_open`) have no later release time.
    pub fn pass(&mut self, at: Timestamp, then: Then, is_open: impl Fn(&Leg) -> bool) {
        let extended = self.extended();
        match then {
            Then::Tell | Then::Abort => self.passed = Some(Passed { at, extended }),
            Then::Extend { to } => {
                let more = to.since(self.at);
                for leg in self.legs.iter_mut().filter(|leg| leg.planned.is_none()) {
                    leg.due = leg.due.plus(more);
                    leg.release = if is_open(leg) { leg.release } else { leg.release.plus(more) };
                }
                self.at = to;
                self.passed = Some(Passed { at, extended: extended.saturating_add(1) });
            }
        }
    }

    /// Replaces the plan of some steps, and records whether that revokes the promise, or renews it.
    pub fn replan(&mut self, replanned: &Replanned, at: Timestamp) {
        let was_promised = self.is_promised();
        for new in &replanned.legs {
            let same = |leg: &&mut Leg| (leg.node, leg.round) == (new.node, new.round);
            match self.legs.iter_mut().find(same) {
                Some(leg) => leg.clone_from(new),
                None => self.legs.push(new.clone()),
            }
        }
        if let Some(leg) = replanned.legs.first().filter(|_| was_promised != self.is_promised()) {
            self.turned = Some(Turned { at, node: leg.node, reason: replanned.reason.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(node: u32, is_planned: bool) -> Leg {
        let (start, end) = (Timestamp(1), Timestamp(2));
        let by = Performer::System;
        Leg {
            node: NodeId(node),
            round: 0,
            release: start,
            due: end,
            takes_ms: 1,
            planned: is_planned.then_some(Planned { by, start, end, planner: ServerId(0) }),
        }
    }

    #[test]
    fn a_promise_turns_when_the_first_step_has_none_and_when_the_last_has_one_again() {
        let legs = vec![leg(1, true), leg(2, true)];
        let mut deadline =
            Deadline { legs, ..Deadline::new(Timestamp(9), Deadline::PRIORITY_DEFAULT) };
        let mut at = 0;
        let mut turned = |node, is_planned| {
            at += 1;
            let legs = vec![leg(node, is_planned)];
            deadline.replan(&Replanned { legs, reason: format!("reason {at}") }, Timestamp(at));
            let turned = deadline.turned.as_ref();
            turned.map(|it| (it.at.0, it.node.0, it.reason.clone()))
        };
        assert_eq!(turned(1, true), None, "somebody else does it");
        let lost = Some((2, 2, "reason 2".to_owned()));
        assert_eq!(turned(2, false), lost);
        assert_eq!(turned(1, false), lost);
        assert_eq!(turned(2, true), lost);
        assert_eq!(turned(1, true), Some((5, 1, "reason 5".to_owned())));
    }

    #[test]
    fn a_deadline_that_is_extended_gives_more_time_to_steps_that_nobody_has_promised() {
        let legs = vec![leg(1, true), leg(2, false), leg(3, false)];
        let mut deadline =
            Deadline { legs, ..Deadline::new(Timestamp(9), Deadline::PRIORITY_DEFAULT) };
        assert!(!deadline.is_late());
        let to = Timestamp(19);
        deadline.pass(Timestamp(9), Then::Extend { to }, |leg| leg.node == NodeId(2));
        assert_eq!((deadline.at, deadline.extended(), deadline.is_late()), (to, 1, false));
        let windows: Vec<_> = deadline.legs.iter().map(|leg| (leg.release.0, leg.due.0)).collect();
        assert_eq!(windows, [(1, 2), (1, 12), (11, 12)]);
        deadline.pass(to, Then::Tell, |_| true);
        assert_eq!((deadline.at, deadline.extended(), deadline.is_late()), (to, 1, true));
    }
}
