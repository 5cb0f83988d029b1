//! The way of an instance to its deadline: every step gets a window, so that all are done in time.
//!
//! Steps are promised one after the other, each from when those before it are due. At first everyone gets
//! its part of the time to spare; if that does not come out, everything is done as soon as possible. What then
//! is too late is refused, with the date that would do.

use legwork_model::time::Timestamp;

use crate::legs::{Leg, tails};
use crate::plan::Window;

/// How often a date is taken up for one leg, and how much is added if it was too late by then.
const HEARD_MAX: u32 = 4;
const PASSED_MS: i64 = 250;

/// What is to be done next about a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Have this leg promised in this window.
    Promise { leg: usize, window: Window },
    /// Give back what is promised: it is tried in another way.
    Begin,
    /// All is promised.
    Promised,
    /// It cannot be; from the earliest date on it could.
    Refused { earliest: Option<Timestamp> },
}

/// How the legs get their windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Each its part of the time to spare.
    Roomy,
    /// Everything as soon as possible.
    Tight,
    /// As soon as possible, and the time that is left then shared out: whoever has none is late as soon as somebody is
    /// slow to begin.
    Loose,
    /// As soon as possible, and that is all there is.
    Last,
}

/// One attempt to promise a deadline, leg by leg.
#[derive(Clone, Debug)]
pub struct Route {
    /// In their order: those before each, and how long it takes.
    legs: Vec<(Vec<usize>, i64)>,
    /// How long the longest way is behind each.
    tails: Vec<i64>,
    start: Timestamp,
    deadline: Timestamp,
    /// How much of each window is left for time that passes before it is asked for again.
    leeway_ms: i64,
    /// Windows of those that are promised.
    promised: Vec<Window>,
    way: Way,
    /// The windows of the way that does everything as soon as possible.
    tight: Vec<Window>,
    /// The date that was heard of for the leg that is next, and how often one was.
    earliest: Option<Timestamp>,
    heard: u32,
    over: Option<Next>,
}

impl Route {
    /// Of legs, with how long each takes in milliseconds of the clock at least.
    pub fn new(legs: &[Leg], takes_ms: &[i64], start: Timestamp, deadline: Timestamp) -> Self {
        let tails = tails(legs, takes_ms);
        let legs = legs.iter().map(|leg| leg.after.clone()).zip(takes_ms.iter().copied()).collect();
        Self {
            legs,
            tails,
            start,
            deadline,
            leeway_ms: 0,
            promised: Vec::new(),
            way: Way::Roomy,
            tight: Vec::new(),
            earliest: None,
            heard: 0,
            over: None,
        }
    }

    /// In each window so much is left, because time may pass before it is asked for again. Nobody waits for that of another:
    /// if all begin later by so much, all is done later by no more.
    pub fn with_leeway(mut self, leeway_ms: i64) -> Self {
        self.leeway_ms = leeway_ms;
        self
    }

    /// Which windows are promised, in the order of the legs.
    pub fn promised(&self) -> &[Window] {
        &self.promised
    }

    pub fn next(&self) -> Next {
        if let Some(over) = self.over {
            return over;
        }
        let leg = self.promised.len();
        let Some((after, takes)) = self.legs.get(leg) else {
            let end = self.end(&self.promised);
            return match self.way {
                _ if end > self.deadline => Next::Refused { earliest: Some(end.max(self.least())) },
                Way::Tight if end < self.deadline => Next::Begin,
                Way::Roomy | Way::Tight | Way::Loose | Way::Last => Next::Promised,
            };
        };
        let release = after.iter().map(|place| self.promised[*place].deadline).max();
        let release = release.map_or(self.start, |at| Timestamp(at.0 - self.leeway_ms));
        if let Some(tight) = self.tight.get(leg).filter(|_| self.way == Way::Loose) {
            return Next::Promise {
                leg,
                window: Window { release, deadline: self.loose(tight.deadline) },
            };
        }
        let soonest = Timestamp(release.0.saturating_add(*takes));
        let soonest = self.earliest.unwrap_or(soonest);
        let tail = self.tails[leg];
        // What could be done by then and not a moment later would be lost as soon as somebody is slow to begin.
        let spare = self.deadline.0.saturating_sub(soonest.0).saturating_sub(tail);
        let spare = if self.way == Way::Roomy { spare.max(0) } else { 0 };
        let part = i128::from(spare) * i128::from(*takes) / i128::from((takes + tail).max(1));
        let deadline = Timestamp(soonest.0.saturating_add(part as i64));
        Next::Promise { leg, window: Window { release, deadline } }
    }

    /// The leg that was next is promised.
    pub fn promise(&mut self, window: Window) {
        (self.earliest, self.heard) = (None, 0);
        self.promised.push(window);
    }

    /// The leg that was next is not: it would be from a date on, if from any.
    pub fn refuse(&mut self, earliest: Option<Timestamp>) {
        let Next::Promise { window, .. } = self.next() else { return };
        let later = earliest.filter(|at| *at > window.deadline);
        let is_tight = matches!(self.way, Way::Tight | Way::Last);
        match later {
            _ if self.way == Way::Loose => self.over = Some(Next::Begin),
            // In a hurry a date behind the deadline is taken as well: so the earliest for all is found.
            Some(at) if self.heard < HEARD_MAX && (is_tight || at <= self.deadline) => {
                // While it is told, time passes, and it is a little too late: the next time some is added.
                let passed = if self.heard == 0 { 0 } else { PASSED_MS << self.heard };
                self.earliest = Some(Timestamp(at.0.saturating_add(passed)));
                self.heard += 1;
            }
            _ if !is_tight => self.over = Some(Next::Begin),
            _ => self.over = Some(Next::Refused { earliest: None }),
        }
    }

    /// Everything anew, in another way: what was promised is given back.
    pub fn begin_anew(&mut self) {
        let promised = std::mem::take(&mut self.promised);
        self.way = match self.way {
            Way::Roomy => Way::Tight,
            Way::Tight => {
                self.tight = promised;
                Way::Loose
            }
            Way::Loose | Way::Last => Way::Last,
        };
        (self.earliest, self.heard, self.over) = (None, 0, None);
    }

    /// Before that nothing comes out, with the leeway.
    fn least(&self) -> Timestamp {
        let ways = self.legs.iter().zip(&self.tails).map(|((_, takes), tail)| takes + tail);
        let longest = ways.max().unwrap_or(0).saturating_add(self.leeway_ms);
        Timestamp(self.start.0.saturating_add(longest))
    }

    /// Whether somebody who has promised this leg is right behind it with another: what one leaves for time that passes
    /// counts for the other as well.
    pub fn is_right_behind(&self, leg: usize, other: usize) -> bool {
        let ends = |place: &usize| self.promised.get(*place).map(|window| window.deadline);
        let after = &self.legs[other].0;
        after.contains(&leg) && ends(&leg) == after.iter().filter_map(ends).max()
    }

    fn end(&self, windows: &[Window]) -> Timestamp {
        windows.iter().map(|window| window.deadline).max().unwrap_or(self.start)
    }

    /// A moment of the tight way, put off by its part of the time that is left at its end.
    fn loose(&self, moment: Timestamp) -> Timestamp {
        let end = self.end(&self.tight);
        let (left, whole) = (self.deadline.0 - end.0, (end.0 - self.start.0).max(1));
        let part = i128::from(left) * i128::from(moment.0 - self.start.0) / i128::from(whole);
        Timestamp(moment.0.saturating_add(part as i64))
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::arbitrary::{Options, definition};
    use legwork_model::compile::compile;
    use legwork_model::id::{Iteration, NodeId};
    use proptest::prelude::*;

    use super::*;
    use crate::legs::{legs, longest_first};
    use crate::{Discipline, Plan, Supply, Work};

    /// Has a route promised by one person's plan.
    fn travel(plan: &mut Plan, route: &mut Route, costs: &[i64]) -> Next {
        let mut tickets = Vec::new();
        loop {
            match route.next() {
                Next::Promise { leg, window } => match plan.reserve(window, Work(costs[leg])) {
                    Some((ticket, _)) => {
                        tickets.push(ticket);
                        route.promise(window);
                    }
                    None => route.refuse(plan.earliest(window.release, Work(costs[leg]))),
                },
                Next::Begin => {
                    tickets.drain(..).for_each(|ticket| assert!(plan.end(ticket)));
                    route.begin_anew();
                }
                over @ (Next::Promised | Next::Refused { .. }) => {
                    if let Next::Refused { .. } = over {
                        tickets.drain(..).for_each(|ticket| assert!(plan.end(ticket)));
                    }
                    return over;
                }
            }
        }
    }

    #[test]
    fn who_is_needed_by_several_branches_does_not_keep_the_longest_one_waiting() {
        let leg = |node: u32, after: &[usize]| Leg {
            node: NodeId(node),
            iteration: Iteration::default(),
            after: after.to_vec(),
            takes: None,
        };
        // Beside one that takes five, one that takes one and is followed by five more.
        let legs = longest_first(vec![leg(0, &[]), leg(1, &[]), leg(2, &[1])], &[5, 1, 5]);
        let order: Vec<(u32, &[usize])> = legs.iter().map(|it| (it.node.0, &*it.after)).collect();
        assert_eq!(order, [(1, &[][..]), (0, &[]), (2, &[0])]);
        let costs = [1, 5, 5];
        let mut route = Route::new(&legs, &costs, Timestamp(0), Timestamp(5));
        let plan = || {
            let supply = Supply::always(Timestamp(0));
            Plan::new(supply, Discipline::Preemptive, Timestamp(0))
        };
        // The first two are done by one, the third by another.
        let (mut one, mut other) = (plan(), plan());
        let over = loop {
            match route.next() {
                Next::Promise { leg, window } => {
                    let plan = if leg == 2 { &mut other } else { &mut one };
                    match plan.reserve(window, Work(costs[leg])) {
                        Some(_) => route.promise(window),
                        None => route.refuse(plan.earliest(window.release, Work(costs[leg]))),
                    }
                }
                Next::Begin => {
                    (one, other) = (plan(), plan());
                    route.begin_anew();
                }
                over @ (Next::Promised | Next::Refused { .. }) => break over,
            }
        };
        assert_eq!(over, Next::Refused { earliest: Some(Timestamp(6)) });
    }

    proptest! {
        #[test]
        fn legs_of_any_process_stand_behind_those_they_wait_for_and_have_windows_after_theirs(
            definition in definition(Options { blocks_max: 12, ..Options::default() }),
            cost in 1_i64..5,
        ) {
            let schema = compile(&definition, 1).unwrap();
            let legs = legs(&schema);
            let takes: Vec<i64> = legs.iter().map(|leg| i64::from(leg.node.0 * 7 % 5)).collect();
            let legs = longest_first(legs, &takes);
            for (place, leg) in legs.iter().enumerate() {
                prop_assert!(leg.after.iter().all(|before| *before < place));
                // Of another round of the same step one comes before the other.
                let rounds = legs[..place].iter().enumerate().filter(|(_, other)| other.node == leg.node);
                for (before, other) in rounds {
                    prop_assert!(other.iteration.number() < leg.iteration.number());
                    prop_assert!(leg.after.contains(&before));
                }
                let loops = &schema.node(leg.node).loops;
                let planned = loops.iter().map(|id| schema.loops[id.0 as usize].rounds);
                prop_assert!(leg.iteration.0.iter().zip(planned).all(|(at, all)| *at < all));
                prop_assert_eq!(leg.iteration.0.len(), loops.len());
            }
            let costs = vec![cost; legs.len()];
            let start = Timestamp(0);
            let mut plan = Plan::new(Supply::always(start), Discipline::Preemptive, start);
            let at = Timestamp(2 * cost * legs.len() as i64);
            let mut route = Route::new(&legs, &costs, start, at);
            prop_assert_eq!(travel(&mut plan, &mut route, &costs), Next::Promised);
            for (leg, window) in legs.iter().zip(route.promised()) {
                prop_assert!(window.deadline <= at);
                prop_assert!(leg.after.iter().all(|it| route.promised()[*it].deadline <= window.release));
            }
        }

        #[test]
        fn windows_follow_each_other_and_a_refusal_names_a_date_that_is_promised(
            others in prop::collection::vec((1_i64..60, 1_i64..6), 0..6),
            costs in prop::collection::vec(1_i64..6, 1..5),
            deadline in 1_i64..60,
        ) {
            let start = Timestamp(0);
            let mut plan = Plan::new(Supply::always(start), Discipline::Preemptive, start);
            for (due, cost) in others {
                plan.reserve(Window { release: start, deadline: Timestamp(due) }, Work(cost));
            }
            let before = plan.len();
            let chain = |place: usize| Leg {
                node: NodeId(place as u32),
                iteration: Iteration::default(),
                after: (0..place).collect(),
                takes: None,
            };
            let legs: Vec<Leg> = (0..costs.len()).map(chain).collect();
            let mut route = Route::new(&legs, &costs, start, Timestamp(deadline));
            match travel(&mut plan, &mut route, &costs) {
                Next::Promised => {
                    let mut at = start;
                    for (window, cost) in route.promised().iter().zip(&costs) {
                        prop_assert!(window.release >= at && window.deadline.0 - window.release.0 >= *cost);
                        at = window.deadline;
                    }
                    prop_assert!(at.0 <= deadline);
                }
                Next::Refused { earliest } => {
                    prop_assert_eq!(plan.len(), before, "all is given back");
                    let earliest = earliest.expect("one person has time some day");
                    prop_assert!(earliest.0 > deadline);
                    let mut again = Route::new(&legs, &costs, start, earliest);
                    prop_assert_eq!(travel(&mut plan, &mut again, &costs), Next::Promised);
                }
                Next::Promise { .. } | Next::Begin => prop_assert!(false, "it came to an end"),
            }
        }
    }
}
