//! The admission of a case: a search that reserves every step, one after the other, or finds the earliest date.
//!
//! First every step is held as soon as possible. The slack until the deadline is then divided, from the last step
//! to the first. If a step is too late, it may displace less important tasks, provided that makes the case in time;
//! otherwise the case is refused, and the held steps become an offer.
//!
//! Invariant: held windows follow each other at every moment. Nothing is displaced for a case that would be late
//! nevertheless.

use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

use crate::plan::Window;
use crate::slack::{Placed, loosened};
use crate::supply::{Supply, Work};
use crate::task::{Grant, How, TaskId};

/// How long an offer is held, without any work on it: longer than the five minutes that callers are told.
pub const OFFERED: Duration = Duration::from_secs(330);

/// A step that needs a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its predecessors, by index; all smaller.
    pub after: Vec<usize>,
    pub cost: Work,
    /// Its earliest start: an unpromised predecessor is under way.
    pub not_before: Timestamp,
}

/// The next action of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Hold a step from a release time on: by a due date, or as soon as possible.
    Hold { step: usize, release: Timestamp, due: Option<Timestamp>, how: How },
    /// Ask when a step could be done if it displaced what it may.
    Probe { step: usize, release: Timestamp },
    /// Release all held steps: the search starts over in another way.
    Begin,
    /// All steps are held, and in time.
    Found,
    /// The case cannot be in time. The held steps are done by the earliest date, if one is known.
    Refused { earliest: Option<Timestamp> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Accepting an earlier offer as it was offered: for this case or, if that is late, for any case.
    Accepting {
        any: bool,
    },
    /// Holding every step as soon as possible.
    Soonest,
    /// Dividing the slack: steps before this one have none yet.
    Loosening {
        windows: Vec<Window>,
        left: usize,
        is_fixed: Vec<bool>,
    },
    /// Asking what could be displaced: the due date of each step.
    Probing {
        windows: Vec<Window>,
    },
    /// Displacing what is in the way.
    Displacing {
        windows: Vec<Window>,
    },
    /// The case cannot be in time: looking for the earliest date to offer.
    Offering,
    Begins(Box<Phase>),
    Over(Option<Next>),
}

/// One attempt to reserve a case by its deadline.
#[derive(Clone, Debug)]
pub struct Search {
    steps: Vec<Step>,
    start: Timestamp,
    deadline: Timestamp,
    may_displace: bool,
    /// Whether a refused case gets an offer; a running case does not.
    offers: bool,
    /// Only a question: the result stays an offer.
    asks: bool,
    /// Whether offers for other cases may be accepted.
    accepts: bool,
    is_offer: bool,
    /// Whether tasks may have been displaced for the case.
    has_displaced: bool,
    phase: Phase,
    /// Held steps in order, with their servers. While an offer is accepted these are the last steps.
    held: Vec<(ServerId, Grant)>,
}

impl Search {
    pub fn new(steps: Vec<Step>, start: Timestamp, deadline: Timestamp) -> Self {
        Self {
            steps,
            start,
            deadline,
            may_displace: false,
            offers: false,
            asks: false,
            accepts: false,
            is_offer: false,
            has_displaced: false,
            phase: Phase::Soonest,
            held: Vec::new(),
        }
    }

    /// Allows displacing less important tasks.
    #[must_use]
    pub fn displacing(mut self) -> Self {
        self.may_displace = true;
        self
    }

    /// If the case cannot be in time, searches a date to offer.
    #[must_use]
    pub fn offering(mut self) -> Self {
        self.offers = true;
        self
    }

    pub fn held(&self) -> &[(ServerId, Grant)] {
        &self.held
    }

    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// The case may come from an offer, which is tried first.
    #[must_use]
    pub fn accepting(mut self) -> Self {
        (self.phase, self.accepts) = (Phase::Accepting { any: false }, true);
        self
    }

    /// Only asks: the result is an offer. An earlier offer for the same case that is in time stays.
    #[must_use]
    pub fn asking(mut self) -> Self {
        (self.phase, self.asks) = (Phase::Accepting { any: false }, true);
        self
    }

    /// The case whose offer is accepted, known from its first accepted step on.
    pub fn accepted(&self) -> Option<TaskId> {
        self.held.first().filter(|_| self.is_accepting()).and_then(|(_, grant)| grant.offered)
    }

    /// Whether an offer is being accepted, from the last step to the first.
    pub fn is_accepting(&self) -> bool {
        matches!(self.phase, Phase::Accepting { .. })
    }

    /// The earliest start of any step.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// Whether steps are held as an offer.
    pub fn is_offering(&self) -> bool {
        self.is_offer
    }

    /// The next action. `hours` returns the working time of a performer.
    pub fn next(&mut self, hours: impl Fn(&Grant) -> Arc<Supply>) -> Next {
        match &self.phase {
            Phase::Accepting { any } if self.held.len() < self.steps.len() => {
                let how = match (self.asks, any) {
                    (true, _) => How::Keeping,
                    (false, false) => How::Accepting,
                    (false, true) => How::AcceptingAny,
                };
                let (step, due) = self.last_missing();
                Next::Hold { step, release: self.start, due: Some(due), how }
            }
            Phase::Soonest | Phase::Offering if self.held.len() < self.steps.len() => {
                let step = self.held.len();
                let release = self.release(step, |step| self.held[step].1.window.due);
                let is_offer = self.phase == Phase::Offering;
                let how = if is_offer { How::Offering } else { How::Plain };
                Next::Hold { step, release, due: None, how }
            }
            Phase::Accepting { .. } if self.asks => {
                self.is_offer = true;
                self.over(Next::Found)
            }
            Phase::Accepting { .. } | Phase::Soonest if self.end() <= self.deadline => {
                self.loosen(hours);
                self.next_to_loosen()
            }
            Phase::Soonest if std::mem::take(&mut self.accepts) => {
                self.phase = Phase::Begins(Box::new(Phase::Accepting { any: true }));
                Next::Begin
            }
            Phase::Accepting { .. } | Phase::Soonest => self.not_in_time(),
            // A question is in time, or gets an offer for a later date.
            Phase::Offering => {
                self.is_offer = true;
                let end = self.end();
                match end <= self.deadline {
                    true => self.over(Next::Found),
                    false => self.over(Next::Refused { earliest: Some(end) }),
                }
            }
            Phase::Loosening { .. } => self.next_to_loosen(),
            Phase::Probing { windows } if windows.len() < self.steps.len() => {
                let step = windows.len();
                Next::Probe { step, release: self.release(step, |step| windows[step].due) }
            }
            Phase::Probing { windows } => {
                let windows = windows.clone();
                self.displace(&windows);
                self.next(hours)
            }
            Phase::Displacing { windows } => match windows.get(self.held.len()) {
                Some(Window { release, due }) => {
                    let (release, due) = (*release, Some(*due));
                    Next::Hold { step: self.held.len(), release, due, how: How::Displacing }
                }
                None => self.over(Next::Found),
            },
            Phase::Begins(_) => Next::Begin,
            Phase::Over(next) => next.unwrap_or(Next::Refused { earliest: None }),
        }
    }

    /// As soon as possible is too late, and so is the offer.
    fn not_in_time(&mut self) -> Next {
        let then = match (self.may_displace, self.offers) {
            (true, _) => Phase::Probing { windows: Vec::new() },
            (false, true) => Phase::Offering,
            (false, false) => return self.over(Next::Refused { earliest: Some(self.end()) }),
        };
        self.phase = Phase::Begins(Box::new(then));
        Next::Begin
    }

    /// Each step can be done by then if it displaces what it may.
    fn displace(&mut self, windows: &[Window]) {
        if windows.iter().any(|window| window.due > self.deadline) {
            self.not_displacing();
            return;
        }
        // The performer is unknown: its slack counts by the clock.
        let always = Arc::new(Supply::always(self.start));
        let placed = self.steps.iter().zip(windows).map(|(step, window)| Placed {
            after: step.after.clone(),
            window: *window,
            hours: always.clone(),
        });
        let windows = loosened(&placed.collect::<Vec<_>>(), self.deadline);
        self.phase = Phase::Displacing { windows };
    }

    fn over(&mut self, next: Next) -> Next {
        self.phase = Phase::Over(Some(next));
        next
    }

    /// The release time of a step: the latest due date of its predecessors.
    fn release(&self, step: usize, due: impl Fn(usize) -> Timestamp) -> Timestamp {
        let before = self.steps[step].after.iter().map(|step| due(*step)).max();
        let start = self.start.max(self.steps[step].not_before);
        before.map_or(start, |due| due.max(start))
    }

    /// The next step of an offer to accept, with its due date: last step first, so that the steps before it come
    /// from the same offer.
    fn last_missing(&self) -> (usize, Timestamp) {
        let step = self.steps.len() - 1 - self.held.len();
        let behind = self.steps[step + 1..].iter().zip(&self.held);
        let waiting = behind.filter(|(other, _)| other.after.contains(&step));
        let due = waiting.map(|(_, (_, grant))| grant.window.release).min();
        (step, due.unwrap_or(self.deadline))
    }

    fn end(&self) -> Timestamp {
        let dues = self.held.iter().map(|(_, grant)| grant.window.due);
        dues.max().unwrap_or(self.start)
    }

    fn loosen(&mut self, hours: impl Fn(&Grant) -> Arc<Supply>) {
        let placed = self.steps.iter().zip(&self.held).map(|(step, (_, grant))| Placed {
            after: step.after.clone(),
            window: grant.window,
            hours: hours(grant),
        });
        let windows = loosened(&placed.collect::<Vec<_>>(), self.deadline);
        let is_fixed = vec![false; self.steps.len()];
        self.phase = Phase::Loosening { windows, left: self.steps.len(), is_fixed };
    }

    /// From the last step to the first: so each step gets its slack before its predecessors. If a step cannot be
    /// loosened, its predecessors keep their windows.
    fn next_to_loosen(&mut self) -> Next {
        let Phase::Loosening { windows, left, is_fixed } = &mut self.phase else {
            return Next::Found;
        };
        while let Some(step) = left.checked_sub(1) {
            let window = windows[step];
            if !is_fixed[step] && window != self.held[step].1.window {
                let (release, due) = (window.release, Some(window.due));
                return Next::Hold { step, release, due, how: How::Plain };
            }
            if is_fixed[step] {
                self.steps[step].after.iter().for_each(|before| is_fixed[*before] = true);
            }
            *left = step;
        }
        self.over(Next::Found)
    }

    /// Whether tasks may have been displaced for the case since the last call.
    pub fn take_displaced(&mut self) -> bool {
        std::mem::take(&mut self.has_displaced)
    }

    /// The step is held as requested.
    pub fn granted(&mut self, at: ServerId, grant: Grant) {
        self.has_displaced |= matches!(self.phase, Phase::Displacing { .. });
        if let Phase::Loosening { left, .. } = &mut self.phase {
            if let Some(step) = left.checked_sub(1) {
                self.held[step] = (at, grant);
                *left = step;
            }
            return;
        }
        let place = if matches!(self.phase, Phase::Accepting { .. }) { 0 } else { self.held.len() };
        self.held.insert(place, (at, grant));
    }

    /// The step cannot be held as requested.
    pub fn refused(&mut self) {
        match &mut self.phase {
            Phase::Loosening { left, is_fixed, .. } => {
                if let Some(step) = left.checked_sub(1) {
                    is_fixed[step] = true;
                }
            }
            Phase::Displacing { .. } => {
                let then = if self.offers { Phase::Offering } else { Phase::Over(None) };
                self.phase = Phase::Begins(Box::new(then));
            }
            // The offer is no longer complete and is released: there may be another one.
            Phase::Accepting { any } if !self.asks && !self.held.is_empty() => {
                self.phase = Phase::Begins(Box::new(Phase::Accepting { any: *any }));
            }
            Phase::Accepting { any: false } => {
                let then = if self.asks { Phase::Offering } else { Phase::Soonest };
                self.phase = Phase::Begins(Box::new(then));
            }
            Phase::Accepting { any: true } => {
                self.not_in_time();
            }
            Phase::Soonest | Phase::Offering | Phase::Probing { .. } => {
                self.phase = Phase::Over(None);
            }
            Phase::Begins(_) | Phase::Over(_) => {}
        }
    }

    /// The answer of a probe.
    pub fn probed(&mut self, end: Option<Timestamp>) {
        let Some(end) = end else {
            self.not_displacing();
            return;
        };
        if let Phase::Probing { windows } = &self.phase {
            let step = windows.len();
            let release = self.release(step, |step| windows[step].due);
            let mut windows = windows.clone();
            windows.push(Window { release, due: end.max(release) });
            self.phase = Phase::Probing { windows };
        }
    }

    fn not_displacing(&mut self) -> Next {
        let then = if self.offers { Phase::Offering } else { Phase::Over(None) };
        self.phase = Phase::Begins(Box::new(then));
        Next::Begin
    }

    /// Starts over; returns the reservations to release.
    pub fn begin_anew(&mut self) -> Vec<(ServerId, Grant)> {
        if let Phase::Begins(then) = &mut self.phase {
            self.phase = std::mem::replace(then, Phase::Over(None));
        }
        if self.phase == Phase::Offering {
            self.start = self.start + OFFERED;
        }
        std::mem::take(&mut self.held)
    }

    /// A reservation was lost on the way: the search starts over.
    pub fn lost(&mut self) {
        self.phase = Phase::Begins(Box::new(Phase::Soonest));
    }
}

/// The bids of several planners for a step: the earliest wins, then the least load.
#[derive(Clone, Debug, Default)]
pub struct Bids {
    open: Vec<ServerId>,
    bids: Vec<(Timestamp, Work, ServerId)>,
}

impl Bids {
    pub fn new(open: Vec<ServerId>) -> Self {
        Self { open, bids: Vec::new() }
    }

    /// A planner has answered, or cannot be reached.
    pub fn on_bid(&mut self, from: ServerId, bid: Option<(Timestamp, Work)>) {
        self.open.retain(|one| *one != from);
        self.bids.extend(bid.map(|(end, load)| (end, load, from)));
    }

    pub fn is_complete(&self) -> bool {
        self.open.is_empty()
    }

    pub fn waits_for(&self, server: ServerId) -> bool {
        self.open.contains(&server)
    }

    /// The end of the best bid.
    pub fn earliest(&self) -> Option<Timestamp> {
        self.bids.iter().min().map(|(end, ..)| *end)
    }

    /// The best bidder; the preferred one if it is as early.
    pub fn best(&self, preferred: Option<ServerId>) -> Option<ServerId> {
        let rank =
            |bid: &&(Timestamp, Work, ServerId)| (bid.0, Some(bid.2) != preferred, bid.1, bid.2);
        self.bids.iter().min_by_key(rank).map(|(_, _, at)| *at)
    }

    /// A bidder could not keep its bid.
    pub fn drop_bid(&mut self, of: ServerId) {
        self.bids.retain(|(_, _, at)| *at != of);
    }
}
