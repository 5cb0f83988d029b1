//! The way of an instance to its deadline: every step gets a window, so that all are done in time.
//!
//! Steps are promised one after the other, each from when those before it are due. At first everyone gets
//! its part of the time to spare (`spare`); if that does not come out, everything is done as soon as possible, and what is left
//! then is shared out. What is too late even so is refused, with the date that would do.
//!
//! Invariant: nothing is refused before it was tried as soon as possible.

use legwork_model::time::Timestamp;

use crate::legs::{Leg, tails};
use crate::plan::Window;
use crate::spare::{Hours, Spare};

/// How often a date is taken up for one leg, and how much is added if it was too late by then.
const HEARD_MAX: u32 = 4;
const PASSED_MS: i64 = 250;
/// How often less is shared out if somebody is busy just then.
const HALVED_MAX: u32 = 3;

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
    /// As soon as possible, and the time that is left then shared out, or a half of it, or less: whoever has none is late as
    /// soon as somebody is slow to begin.
    Loose { halved: u32 },
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
    /// The time to spare: of the legs as they are, or as they were promised as soon as possible.
    spare: Spare,
    /// The date that was heard of for the leg that is next, and how often one was.
    earliest: Option<Timestamp>,
    heard: u32,
    over: Option<Next>,
}

impl Route {
    /// Of legs, with how long each takes in milliseconds of the clock at least, and when those work who can do it.
    pub fn new(
        legs: &[Leg],
        takes_ms: &[i64],
        hours: &[Hours],
        start: Timestamp,
        deadline: Timestamp,
    ) -> Self {
        let tails = tails(legs, takes_ms);
        let spare = Spare::new(legs, takes_ms, hours, (start, deadline));
        let legs = legs.iter().map(|leg| leg.after.clone()).zip(takes_ms.iter().copied()).collect();
        let mut route = Self {
            legs,
            tails,
            start,
            deadline,
            leeway_ms: 0,
            promised: Vec::new(),
            way: Way::Roomy,
            spare,
            earliest: None,
            heard: 0,
            over: None,
        };
        // Where there is nothing to spare it is only asked for the earliest date.
        if route.least() > deadline {
            route.way = Way::Tight;
        }
        route
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
            let is_late = end > self.deadline;
            return match self.way {
                // Whoever took some of the time to spare may have had none to give.
                Way::Roomy | Way::Loose { .. } if is_late => Next::Begin,
                _ if is_late => Next::Refused { earliest: Some(end.max(self.least())) },
                Way::Tight if end < self.deadline => Next::Begin,
                Way::Roomy | Way::Tight | Way::Loose { .. } | Way::Last => Next::Promised,
            };
        };
        let release = after.iter().map(|place| self.promised[*place].deadline).max();
        let release = release.map_or(self.start, |at| Timestamp(at.0 - self.leeway_ms));
        let soonest = self.earliest.unwrap_or(Timestamp(release.0.saturating_add(*takes)));
        let shared = |halved: u32| {
            // What could be done by then and not a moment later would be lost as soon as somebody is slow to begin.
            let soonest = self.earliest.or_else(|| self.spare.soonest(leg, release))?;
            self.spare.due(leg, soonest, halved)
        };
        let deadline = match self.way {
            // Nobody waits for what is done last.
            Way::Roomy | Way::Loose { halved: 0 } if self.tails[leg] == 0 => {
                soonest.max(self.deadline)
            }
            Way::Roomy => shared(0).unwrap_or(soonest),
            Way::Loose { halved } => shared(halved).unwrap_or(soonest),
            Way::Tight | Way::Last => soonest,
        };
        Next::Promise { leg, window: Window { release, deadline } }
    }

    /// The leg that was next is promised.
    pub fn promise(&mut self, window: Window) {
        (self.earliest, self.heard) = (None, 0);
        self.promised.push(window);
    }

    /// The leg that was next is not: it would be from a date on, if from any.
    pub fn refuse(&mut self, earliest: Option<Timestamp>) {
        let Next::Promise { leg, window } = self.next() else { return };
        let later = earliest.filter(|at| *at > window.deadline);
        let is_tight = matches!(self.way, Way::Tight | Way::Last);
        // What follows has to be done as well.
        let leaves_enough = |at: Timestamp| self.spare.leaves_enough(leg, at);
        match later {
            _ if matches!(self.way, Way::Loose { .. }) => self.over = Some(Next::Begin),
            // In a hurry a date behind the deadline is taken as well: so the earliest for all is found.
            Some(at) if self.heard < HEARD_MAX && (is_tight || leaves_enough(at)) => {
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
                self.spare = self.spare.as_planned(&promised);
                Way::Loose { halved: 0 }
            }
            Way::Loose { halved } if halved < HALVED_MAX => Way::Loose { halved: halved + 1 },
            Way::Loose { .. } | Way::Last => Way::Last,
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

    /// Has a route promised: of each leg it is said whose plan it goes into.
    fn travel(plans: &mut [Plan], whose: &[usize], route: &mut Route, costs: &[i64]) -> Next {
        let mut tickets = Vec::new();
        loop {
            let over = route.next();
            match over {
                Next::Promise { leg, window } => {
                    let (plan, cost) = (&mut plans[whose[leg]], Work(costs[leg]));
                    match plan.reserve(window, cost) {
                        Some((ticket, _)) => {
                            tickets.push((whose[leg], ticket));
                            route.promise(window);
                        }
                        None => route.refuse(plan.earliest(window.release, cost)),
                    }
                }
                Next::Begin | Next::Refused { .. } => {
                    tickets.drain(..).for_each(|(at, ticket)| assert!(plans[at].end(ticket)));
                    if over != Next::Begin {
                        return over;
                    }
                    route.begin_anew();
                }
                Next::Promised => return over,
            }
        }
    }

    fn plan() -> Plan {
        Plan::new(Supply::always(Timestamp(0)), Discipline::Preemptive, Timestamp(0))
    }

    /// One leg after the other.
    fn chain(length: usize) -> Vec<Leg> {
        let leg = |place: usize| Leg {
            node: NodeId(place as u32),
            iteration: Iteration::default(),
            after: (0..place).collect(),
            takes: None,
        };
        (0..length).map(leg).collect()
    }

    #[test]
    fn who_has_time_only_at_once_is_asked_before_all_is_refused() {
        let (mut plans, costs) = ([plan(), plan(), plan()], [10, 10, 10]);
        let busy = Window { release: Timestamp(30), deadline: Timestamp(88) };
        assert!(plans[1].reserve(busy, Work(58)).is_some());
        let mut route = Route::new(&chain(3), &costs, &[], Timestamp(0), Timestamp(100));
        assert_eq!(travel(&mut plans, &[0, 1, 2], &mut route, &costs), Next::Promised);
        let spare = |window: &Window| window.deadline.0 - window.release.0 - 10;
        assert!(route.promised().iter().all(|it| spare(it) > 0), "{:?}", route.promised());
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
        let mut route = Route::new(&legs, &costs, &[], Timestamp(0), Timestamp(5));
        // The first two are done by one, the third by another.
        let over = travel(&mut [plan(), plan()], &[0, 0, 1], &mut route, &costs);
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
            let at = Timestamp(2 * cost * legs.len() as i64);
            let mut route = Route::new(&legs, &costs, &[], Timestamp(0), at);
            let by_one = vec![0; legs.len()];
            prop_assert_eq!(travel(&mut [plan()], &by_one, &mut route, &costs), Next::Promised);
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
            let (start, mut plans) = (Timestamp(0), [plan()]);
            for (due, cost) in others {
                plans[0].reserve(Window { release: start, deadline: Timestamp(due) }, Work(cost));
            }
            let (before, by_one) = (plans[0].len(), vec![0; costs.len()]);
            let legs = chain(costs.len());
            let mut route = Route::new(&legs, &costs, &[], start, Timestamp(deadline));
            match travel(&mut plans, &by_one, &mut route, &costs) {
                Next::Promised => {
                    let mut at = start;
                    for (window, cost) in route.promised().iter().zip(&costs) {
                        prop_assert!(window.release >= at && window.deadline.0 - window.release.0 >= *cost);
                        at = window.deadline;
                    }
                    prop_assert!(at.0 <= deadline);
                }
                Next::Refused { earliest } => {
                    prop_assert_eq!(plans[0].len(), before, "all is given back");
                    let earliest = earliest.expect("one person has time some day");
                    prop_assert!(earliest.0 > deadline);
                    let mut again = Route::new(&legs, &costs, &[], start, earliest);
                    prop_assert_eq!(travel(&mut plans, &by_one, &mut again, &costs), Next::Promised);
                }
                Next::Promise { .. } | Next::Begin => prop_assert!(false, "it came to an end"),
            }
        }

        #[test]
        fn what_can_be_promised_as_soon_as_possible_is_not_refused(
            others in prop::collection::vec((0_usize..3, 5_i64..40, 0_i64..4, 20_i64..60), 1..4),
            legs in prop::collection::vec((1_i64..12, 0_usize..3), 2..5),
            deadline in 30_i64..110,
        ) {
            let mut plans = [plan(), plan(), plan()];
            for (whose, release, more, cost) in others {
                let window = Window {
                    release: Timestamp(release),
                    deadline: Timestamp(release + cost + more),
                };
                plans[whose].reserve(window, Work(cost));
            }
            let (costs, whose): (Vec<i64>, Vec<usize>) = legs.into_iter().unzip();
            let route = Route::new(&chain(costs.len()), &costs, &[], Timestamp(0), Timestamp(deadline));
            let mut at_once = Route { way: Way::Tight, ..route.clone() };
            let by_all = |route: &mut Route| travel(&mut plans.clone(), &whose, route, &costs);
            if by_all(&mut at_once) == Next::Promised {
                prop_assert_eq!(by_all(&mut route.clone()), Next::Promised);
            }
        }
    }
}
