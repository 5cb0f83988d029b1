//! Promises are exact and kept: the plan against brute force, and against somebody who works by it.

use legwork_model::time::Timestamp;
use legwork_promise::{Discipline, Load, Plan, Supply, Ticket, Window, Work};
use proptest::prelude::*;

/// A small task, in hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Small {
    release: i64,
    deadline: i64,
    cost: i64,
}

const START: Timestamp = Timestamp(0);

fn plan(discipline: Discipline) -> Plan {
    Plan::new(Supply::always(START), discipline, START)
}

fn window(task: Small) -> Window {
    Window { release: Timestamp(task.release), deadline: Timestamp(task.deadline) }
}

fn small(horizon: i64) -> impl Strategy<Value = Small> {
    (0..horizon, 0..horizon, 1_i64..5).prop_map(move |(release, more, cost)| Small {
        release,
        deadline: (release + more).min(horizon),
        cost,
    })
}

/// Whether some assignment of hours to tasks does it all: every hour of a task finds a slot of its own,
/// moving others if need be.
fn has_preemptive_plan(tasks: &[Small], now: i64) -> bool {
    fn finds(
        hour: usize,
        hours: &[Small],
        now: i64,
        owner: &mut [Option<usize>],
        seen: &mut [bool],
    ) -> bool {
        for slot in hours[hour].release.max(now)..hours[hour].deadline {
            let slot = slot as usize;
            if std::mem::replace(&mut seen[slot], true) {
                continue;
            }
            let free = match owner[slot] {
                None => true,
                Some(other) => finds(other, hours, now, owner, seen),
            };
            if free {
                owner[slot] = Some(hour);
                return true;
            }
        }
        false
    }
    let hours: Vec<Small> =
        tasks.iter().flat_map(|task| std::iter::repeat_n(*task, task.cost as usize)).collect();
    let slots = tasks.iter().map(|task| task.deadline).max().unwrap_or(0).max(0) as usize;
    let mut owner = vec![None; slots];
    (0..hours.len()).all(|hour| finds(hour, &hours, now, &mut owner, &mut vec![false; slots]))
}

/// Whether some order does it all, one after the other without a pause.
fn has_order(tasks: &[Small], now: i64) -> bool {
    tasks.is_empty()
        || (0..tasks.len()).any(|first| {
            let mut rest = tasks.to_vec();
            let task = rest.remove(first);
            now + task.cost <= task.deadline && has_order(&rest, now + task.cost)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_can_be_put_aside_is_refused_only_if_no_plan_does_it(
        tasks in prop::collection::vec(small(24), 1..9),
    ) {
        let (mut plan, mut promised) = (plan(Discipline::Preemptive), Vec::new());
        for task in tasks {
            promised.push(task);
            let there_is = has_preemptive_plan(&promised, 0);
            prop_assert_eq!(plan.fits(window(task), Work(task.cost)), there_is);
            let reserved = plan.reserve(window(task), Work(task.cost));
            prop_assert_eq!(reserved.is_some(), there_is);
            if let Some((_, times)) = reserved {
                prop_assert!(times.start.0 >= task.release && times.end.0 <= task.deadline);
            } else {
                promised.pop();
            }
        }
    }

    #[test]
    fn what_cannot_be_put_aside_is_refused_only_if_no_order_does_it(
        tasks in prop::collection::vec((1_i64..24, 1_i64..5), 1..7),
        begun in 0_usize..4,
    ) {
        let (mut plan, mut promised) = (plan(Discipline::NonPreemptive), Vec::new());
        let mut from = 0;
        for (number, (deadline, cost)) in tasks.into_iter().enumerate() {
            let task = Small { release: 0, deadline, cost };
            promised.push(task);
            let there_is = has_order(&promised, from);
            let reserved = plan.reserve(window(task), Work(task.cost));
            prop_assert_eq!(reserved.is_some(), there_is, "{:?} from {}", promised, from);
            match reserved {
                None => drop(promised.pop()),
                Some((ticket, _)) if number == begun => {
                    // One is being worked on; it comes first whatever follows.
                    let others = &promised[..promised.len() - 1];
                    if has_order(others, from + task.cost) {
                        plan.begin_with(ticket);
                        from += task.cost;
                        promised.pop();
                    }
                }
                Some(_) => {}
            }
        }
    }

    #[test]
    fn the_earliest_date_can_be_promised_and_none_before_it(
        tasks in prop::collection::vec(small(24), 0..7),
        release in 0_i64..24,
        cost in 1_i64..6,
    ) {
        let (mut plan, mut promised) = (plan(Discipline::Preemptive), Vec::new());
        for task in tasks {
            promised.extend(plan.reserve(window(task), Work(task.cost)).map(|_| task));
        }
        let earliest = plan.earliest(Timestamp(release), Work(cost)).unwrap();
        for deadline in release..=earliest.0 {
            let all: Vec<Small> =
                promised.iter().copied().chain([Small { release, deadline, cost }]).collect();
            prop_assert_eq!(has_preemptive_plan(&all, 0), deadline == earliest.0, "{}", deadline);
        }
    }

    #[test]
    fn with_regular_work_a_refusal_is_right_as_well(
        tasks in prop::collection::vec(small(24), 1..7),
        loads in prop::collection::vec((3_i64..9, 1_i64..4), 1..3),
    ) {
        let mut plan = plan(Discipline::Preemptive);
        let mut promised = Vec::new();
        for (period, cost) in loads {
            let load = Load { period: Work(period), cost: Work(cost), is_attended: true };
            let mut anew = plan.clone();
            if anew.regularly(load) {
                plan = anew;
                // Far beyond all deadlines.
                promised.extend((0..60 / period).map(|time| Small {
                    release: time * period,
                    deadline: (time + 1) * period,
                    cost,
                }));
            }
        }
        for task in tasks {
            promised.push(task);
            let there_is = has_preemptive_plan(&promised, 0);
            let is_promised = plan.reserve(window(task), Work(task.cost)).is_some();
            prop_assert_eq!(is_promised, there_is, "{:?}", task);
            if !there_is {
                promised.pop();
            }
        }
    }
}

/// What happens to somebody who works by their plan.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Arrives(Small),
    /// They go on for so long.
    Hours(i64),
    /// What they have at hand takes less than it was said to.
    Sooner,
    /// Something is not wanted any more.
    Cancelled(usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (0_i64..12, 0_i64..20, 1_i64..5).prop_map(|(release, more, cost)| {
            Happening::Arrives(Small { release, deadline: release + more, cost })
        }),
        3 => (1_i64..4).prop_map(Happening::Hours),
        1 => Just(Happening::Sooner),
        1 => (0_usize..8).prop_map(Happening::Cancelled),
    ]
}

/// Somebody who works by their plan.
struct Worker {
    plan: Plan,
    now: i64,
    promised: Vec<(Ticket, i64)>,
    can_put_aside: bool,
}

impl Worker {
    /// One hour of work, on what is first.
    fn work(&mut self) {
        let is_free = self.plan.running().is_none() || self.can_put_aside;
        if let Some(next) = self.plan.next().filter(|_| is_free) {
            self.plan.begin_with(next);
        }
        self.now += 1;
        self.plan.pass(Timestamp(self.now));
        if let Some(ticket) = self.plan.running().filter(|it| self.plan.left(*it) == Some(Work(0)))
        {
            self.finish(ticket);
        }
    }

    fn finish(&mut self, ticket: Ticket) {
        assert!(self.plan.end(ticket));
        let place = self.promised.iter().position(|(of, _)| *of == ticket);
        let Some(place) = place else { return };
        let (_, deadline) = self.promised.remove(place);
        assert!(self.now <= deadline, "promised for {deadline}, done at {}", self.now);
    }

    fn happens(&mut self, happening: Happening) {
        match happening {
            Happening::Arrives(task) => {
                let (release, deadline) = (self.now + task.release, self.now + task.deadline);
                let reserved =
                    self.plan.reserve(window(Small { release, deadline, ..task }), Work(task.cost));
                self.promised.extend(reserved.map(|(ticket, _)| (ticket, deadline)));
            }
            Happening::Hours(hours) => (0..hours).for_each(|_| self.work()),
            Happening::Sooner => {
                let own = self.plan.running().filter(|ticket| !self.plan.is_regular(*ticket));
                own.into_iter().for_each(|ticket| self.finish(ticket));
            }
            Happening::Cancelled(which) => {
                if which < self.promised.len() {
                    let (ticket, _) = self.promised.remove(which);
                    assert!(self.plan.end(ticket));
                }
            }
        }
        assert!(self.plan.endangered().is_empty(), "at {}", self.now);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_promise_is_broken_while_nothing_takes_longer_than_said(
        happenings in prop::collection::vec(happening(), 1..60),
        regular in prop::option::of((4_i64..9, 1_i64..3)),
        can_put_aside: bool,
    ) {
        let discipline =
            if can_put_aside { Discipline::Preemptive } else { Discipline::NonPreemptive };
        let mut worker = Worker { plan: plan(discipline), now: 0, promised: Vec::new(), can_put_aside };
        // What cannot be put aside and what comes again and again do not go together for every task.
        if let Some((period, cost)) = regular.filter(|_| can_put_aside) {
            let load = Load { period: Work(period), cost: Work(cost), is_attended: true };
            prop_assert!(worker.plan.regularly(load));
        }
        for happening in happenings {
            worker.happens(happening);
        }
        for _ in 0..200 {
            worker.work();
        }
        prop_assert_eq!(worker.promised, Vec::new(), "all is done");
    }
}

#[test]
fn surplus_is_what_regular_work_and_promises_leave() {
    let mut plan = plan(Discipline::Preemptive);
    for (period, cost) in [(10, 2), (25, 5)] {
        let load = Load { period: Work(period), cost: Work(cost), is_attended: true };
        assert!(plan.regularly(load));
    }
    let window = Window { release: START, deadline: Timestamp(100) };
    for cost in [12, 8] {
        assert!(plan.reserve(window, Work(cost)).is_some());
    }
    assert_eq!(plan.surplus(Timestamp(100)), Work(40));
}

#[test]
fn whoever_does_regular_things_all_day_can_promise_nothing() {
    let mut plan = plan(Discipline::Preemptive);
    let load = |cost| Load { period: Work(100), cost: Work(cost), is_attended: true };
    assert!(plan.regularly(load(60)));
    assert!(!plan.regularly(load(40)));
    assert!(plan.fits(Window { release: START, deadline: Timestamp(100) }, Work(40)));
}

#[test]
fn regular_work_of_which_nobody_tells_is_over_when_its_period_is() {
    let mut plan = plan(Discipline::Preemptive);
    let load = Load { period: Work(10), cost: Work(4), is_attended: false };
    assert!(plan.regularly(load));
    for now in 1..50 {
        plan.pass(Timestamp(now));
        assert!(plan.endangered().is_empty(), "{now}");
    }
    assert_eq!(plan.len(), 0);
}

#[test]
fn who_does_not_work_endangers_what_was_promised_and_it_is_known_before_it_is_late() {
    let mut plan = plan(Discipline::Preemptive);
    let mut reserve = |deadline, cost| {
        let window = Window { release: START, deadline: Timestamp(deadline) };
        plan.reserve(window, Work(cost)).unwrap().0
    };
    let (soon, late) = (reserve(10, 4), reserve(20, 10));
    plan.pass(Timestamp(6));
    assert_eq!(plan.endangered(), []);
    plan.pass(Timestamp(7));
    assert_eq!(plan.endangered(), [soon, late], "it is 7, and both are late if nothing changes");
    plan.end(soon);
    assert_eq!(plan.endangered(), []);
}

#[test]
fn regular_work_goes_on_when_nobody_asks_for_anything() {
    let mut plan = plan(Discipline::Preemptive);
    let load = Load { period: Work(10), cost: Work(4), is_attended: true };
    assert!(plan.regularly(load));
    for now in (0..1_000).step_by(10) {
        plan.pass(Timestamp(now));
        let job = plan.next().expect("a job begins in every period");
        assert!(plan.is_regular(job));
        plan.end(job);
        assert_eq!(plan.next_release(), Some(Timestamp(now + 10)));
    }
}

#[test]
fn regular_work_behind_a_later_window_counts_as_far_as_the_window_can_delay_it() {
    let mut plan = plan(Discipline::Preemptive);
    for (period, cost) in [(10, 5), (100, 39)] {
        let load = Load { period: Work(period), cost: Work(cost), is_attended: true };
        assert!(plan.regularly(load));
    }
    let window = Window { release: Timestamp(500), deadline: Timestamp(565) };
    // From 500 to 600 there are 89 of regular work.
    assert!(!plan.fits(window, Work(12)));
    assert!(plan.fits(window, Work(11)));
}

#[test]
fn what_somebody_does_anyway_is_not_left() {
    let mut plan = plan(Discipline::Preemptive);
    plan.occupy(Window { release: START, deadline: Timestamp(50) }, Work(20));
    assert_eq!(plan.surplus(Timestamp(100)), Work(80));
}
