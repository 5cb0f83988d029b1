//! The admission of a case: every step is held, one after the other, or the earliest date is found.
//!
//! First everything is held as soon as possible. What is left until the deadline then is shared out, from the last step to
//! the first. What is too late may displace what is less important, if it is in time then; else it is refused, and what is
//! held counts as an offer.
//!
//! Invariant: the windows that are held follow each other, at every moment. Nothing is displaced for a case that would be
//! late all the same.

use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

use crate::plan::Window;
use crate::slack::{Placed, loosened};
use crate::supply::{Supply, Work};
use crate::task::{Grant, How, TaskId};

/// For so long an offer is held, and nobody is taken to work meanwhile: some longer than the five minutes that are told.
pub const OFFERED: Duration = Duration::from_secs(330);

/// A step that has to be promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Those it waits for, by their places, which are smaller.
    pub after: Vec<usize>,
    pub cost: Work,
    /// It cannot begin before: what it waits for is under way and was not promised.
    pub not_before: Timestamp,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Have a step held from a moment on: by a due date, or as soon as possible.
    Hold { step: usize, release: Timestamp, due: Option<Timestamp>, how: How },
    /// Ask when a step could be done if it displaced what it may.
    Probe { step: usize, release: Timestamp },
    /// Give back what is held: it is tried in another way.
    Begin,
    /// All is held, and in time.
    Found,
    /// It cannot be in time. What is held is done by the earliest date, if one is known.
    Refused { earliest: Option<Timestamp> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// What was offered before, as it was offered: for this case, or, if it is late otherwise, for any.
    Accepting {
        any: bool,
    },
    /// Everything as soon as possible.
    Soonest,
    /// Slack is shared out: steps before this one still have none.
    Loosening {
        windows: Vec<Window>,
        left: usize,
        is_fixed: Vec<bool>,
    },
    /// Looks what could be displaced: when each step would be due.
    Probing {
        windows: Vec<Window>,
    },
    /// What is in the way is displaced.
    Displacing {
        windows: Vec<Window>,
    },
    /// It cannot be in time: the earliest date is looked for that can be offered.
    Offering,
    Begins(Box<Phase>),
    Over(Option<Next>),
}

/// One attempt to have a deadline promised.
#[derive(Clone, Debug)]
pub struct Search {
    steps: Vec<Step>,
    start: Timestamp,
    deadline: Timestamp,
    may_displace: bool,
    /// Of a running case nothing is offered.
    offers: bool,
    /// Nothing is started: what is found stays an offer.
    asks: bool,
    /// What was offered for other cases may be taken.
    accepts: bool,
    is_offer: bool,
    /// Something may have been displaced for it.
    has_displaced: bool,
    phase: Phase,
    /// What is held, in the order of the steps, and where. While an offer is accepted these are the last ones.
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

    /// What is less important is displaced if need be.
    #[must_use]
    pub fn displacing(mut self) -> Self {
        self.may_displace = true;
        self
    }

    /// If it cannot be in time, a date is looked for that can be accepted for a while.
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

    /// It may come from an offer: that is looked at first.
    #[must_use]
    pub fn accepting(mut self) -> Self {
        (self.phase, self.accepts) = (Phase::Accepting { any: false }, true);
        self
    }

    /// It is only asked: what is found is an offer. What was offered before for the same case, and is in time, stays one.
    #[must_use]
    pub fn asking(mut self) -> Self {
        (self.phase, self.asks) = (Phase::Accepting { any: false }, true);
        self
    }

    /// The case whose offer is accepted, from the first of its steps on.
    pub fn accepted(&self) -> Option<TaskId> {
        self.held.first().filter(|_| self.is_accepting()).and_then(|(_, grant)| grant.offered)
    }

    /// Whether an offer is taken over, from the last step to the first.
    pub fn is_accepting(&self) -> bool {
        matches!(self.phase, Phase::Accepting { .. })
    }

    /// From when on steps can be done.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// Whether what is held is held as an offer.
    pub fn is_offering(&self) -> bool {
        self.is_offer
    }

    /// What it waits for next. `hours` tells when a performer works.
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
            // What is only asked for is in time, or offered for later.
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

    /// As soon as possible is too late, and so is what was offered.
    fn not_in_time(&mut self) -> Next {
        let then = match (self.may_displace, self.offers) {
            (true, _) => Phase::Probing { windows: Vec::new() },
            (false, true) => Phase::Offering,
            (false, false) => return self.over(Next::Refused { earliest: Some(self.end()) }),
        };
        self.phase = Phase::Begins(Box::new(then));
        Next::Begin
    }

    /// Each step can be done by then, if it displaces what it may.
    fn displace(&mut self, windows: &[Window]) {
        if windows.iter().any(|window| window.due > self.deadline) {
            self.not_displacing();
            return;
        }
        // Who does it is not known: its share is by the clock.
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

    /// A step begins when those it waits for are due.
    fn release(&self, step: usize, due: impl Fn(usize) -> Timestamp) -> Timestamp {
        let before = self.steps[step].after.iter().map(|step| due(*step)).max();
        let start = self.start.max(self.steps[step].not_before);
        before.map_or(start, |due| due.max(start))
    }

    /// Of an offer the last step is accepted first, so that those before it are of the same offer. By when it has to be done.
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

    /// From the last step to the first: so each has room before those that wait for it. Where one could not be
    /// loosened, those before it keep their windows.
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

    /// Whether something may have been displaced for it, since this was asked last.
    pub fn take_displaced(&mut self) -> bool {
        std::mem::take(&mut self.has_displaced)
    }

    /// A step is held as it was asked for.
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

    /// It cannot be held as it was asked for.
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
            // It is not whole any more, and given back: there may be another one.
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

    /// When a step could be done that was asked about.
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

    /// What was held is given back; answers what that was.
    pub fn begin_anew(&mut self) -> Vec<(ServerId, Grant)> {
        if let Phase::Begins(then) = &mut self.phase {
            self.phase = std::mem::replace(then, Phase::Over(None));
        }
        if self.phase == Phase::Offering {
            self.start = self.start + OFFERED;
        }
        std::mem::take(&mut self.held)
    }

    /// Something that is held is lost on the way: everything is tried again.
    pub fn lost(&mut self) {
        self.phase = Phase::Begins(Box::new(Phase::Soonest));
    }
}

/// Several planners are asked about a step: who could do it first, and of those who has the least to do.
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
    pub fn heard(&mut self, from: ServerId, bid: Option<(Timestamp, Work)>) {
        self.open.retain(|one| *one != from);
        self.bids.extend(bid.map(|(end, load)| (end, load, from)));
    }

    pub fn is_complete(&self) -> bool {
        self.open.is_empty()
    }

    pub fn waits_for(&self, server: ServerId) -> bool {
        self.open.contains(&server)
    }

    /// When the best one could do it.
    pub fn earliest(&self) -> Option<Timestamp> {
        self.bids.iter().min().map(|(end, ..)| *end)
    }

    /// The best one; a preferred one if it is as early.
    pub fn best(&self, preferred: Option<ServerId>) -> Option<ServerId> {
        let rank =
            |bid: &&(Timestamp, Work, ServerId)| (bid.0, Some(bid.2) != preferred, bid.1, bid.2);
        self.bids.iter().min_by_key(rank).map(|(_, _, at)| *at)
    }

    /// One could not keep it.
    pub fn drop_bid(&mut self, of: ServerId) {
        self.bids.retain(|(_, _, at)| *at != of);
    }
}
