//! Promises are exact and kept: the plan against brute force, and against somebody who works by it.

mod small;

use legwork_model::time::Timestamp;
use legwork_promise::{Discipline, Load, Plan, Span, Supply, Ticket, WHOLE, Window, Work};
use proptest::prelude::*;
use small::{Small, has_preemptive_plan, window};

const START: Timestamp = Timestamp(0);

fn plan(discipline: Discipline) -> Plan {
    Plan::new(Supply::always(START), discipline, START)
}

fn small(horizon: i64) -> impl Strategy<Value = Small> {
    (0..horizon, 0..horizon, 1_i64..5).prop_map(move |(release, more, cost)| Small {
        release,
        deadline: (release + more).min(horizon),
        cost,
    })
}

/// Whether some order does it all, one after the other.
fn has_order(tasks: &[Small], now: i64) -> bool {
    tasks.is_empty()
        || (0..tasks.len()).any(|first| {
            let mut rest = tasks.to_vec();
            let task = rest.remove(first);
            let end = now.max(task.release) + task.cost;
            end <= task.deadline && has_order(&rest, end)
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
    fn of_a_few_that_cannot_be_put_aside_and_are_released_later_none_is_refused_if_an_order_does_it(
        tasks in prop::collection::vec(small(16), 2..7),
    ) {
        let (mut plan, mut promised) = (plan(Discipline::NonPreemptive), Vec::new());
        for (number, task) in tasks.into_iter().enumerate() {
            promised.push(task);
            let there_is = has_order(&promised, 0);
            let reserved = plan.reserve(window(task), Work(task.cost));
            prop_assert_eq!(reserved.is_some(), there_is, "{} of {:?}", number, promised);
            if !there_is {
                promised.pop();
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
    /// Whether they tell when they do something regular.
    tells: bool,
}

impl Worker {
    /// One hour of work, on what is first.
    fn work(&mut self) {
        let is_free = self.plan.running().is_none() || self.can_put_aside;
        let is_told = |next: &Ticket| self.tells || !self.plan.is_regular(*next);
        if let Some(next) = self.plan.next().filter(|next| is_free && is_told(next)) {
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

/// A part of somebody's time.
fn share() -> impl Strategy<Value = u32> {
    prop_oneof![Just(WHOLE), Just(50), 20..=WHOLE]
}

/// Somebody who works for some time after each pause, and from some hour on always.
fn calendar(hours: &[(i64, i64, u32)]) -> Supply {
    let mut at = 0;
    let mut span = |(pause, length, share): (i64, i64, u32)| {
        let from = at + pause;
        at = from + length;
        Span { from: Timestamp(from), to: Timestamp(at), share }
    };
    let hours = hours.iter().copied().chain([(0, 100_000, WHOLE)]);
    Supply::new(hours.map(&mut span).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_promise_is_broken_while_nothing_takes_longer_than_said(
        happenings in prop::collection::vec(happening(), 1..60),
        hours in prop::collection::vec((0_i64..6, 1_i64..20, share()), 0..5),
        regular in prop::option::of((4_i64..9, 1_i64..3)),
        anyway in prop::collection::vec((0_i64..30, 1_i64..20, 1_i64..4), 0..4),
        tells: bool,
        can_put_aside: bool,
    ) {
        let discipline =
            if can_put_aside { Discipline::Preemptive } else { Discipline::NonPreemptive };
        let plan = Plan::new(calendar(&hours), discipline, START);
        let mut worker = Worker { plan, now: 0, promised: Vec::new(), can_put_aside, tells };
        // What cannot be put aside and what comes again and again do not go together for every task.
        if let Some((period, cost)) = regular.filter(|_| can_put_aside) {
            let load = Load { period: Work(period), cost: Work(cost), is_attended: tells };
            prop_assert!(worker.plan.regularly(load));
        }
        for (release, time, cost) in anyway.into_iter().filter(|_| can_put_aside && !tells) {
            let task = Small { release, deadline: release + time, cost };
            worker.plan.occupy(window(task), Work(cost));
        }
        for happening in happenings {
            worker.happens(happening);
        }
        for _ in 0..400 {
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
fn who_does_regular_work_by_the_plan_endangers_no_promise() {
    let mut plan = plan(Discipline::Preemptive);
    let day = Window { release: START, deadline: Timestamp(80) };
    plan.occupy(day, Work(10));
    let (ticket, times) = plan.reserve(day, Work(70)).unwrap();
    assert_eq!(times.start, Timestamp(10));
    for now in 1..=10 {
        plan.pass(Timestamp(now));
        assert_eq!(plan.endangered(), [], "{now}");
    }
    assert!(!plan.fits(day, Work(1)));
    plan.pass(Timestamp(11));
    assert_eq!(plan.endangered(), [ticket], "the letters are written, and nobody has begun it");
}

#[test]
fn what_was_begun_is_put_aside_for_regular_work_that_comes_first() {
    let mut plan = plan(Discipline::Preemptive);
    let window =
        |release, deadline| Window { release: Timestamp(release), deadline: Timestamp(deadline) };
    for day in [0, 80] {
        plan.occupy(window(day, day + 80), Work(10));
    }
    let (long, _) = plan.reserve(window(0, 160), Work(100)).unwrap();
    let (short, _) = plan.reserve(window(0, 160), Work(40)).unwrap();
    plan.pass(Timestamp(10));
    plan.begin_with(long);
    for now in [80, 90, 120] {
        plan.pass(Timestamp(now));
        assert_eq!(plan.endangered(), [], "{now}");
    }
    assert_eq!(plan.left(long), Some(Work(0)), "all of both days but the letters");
    plan.end(long);
    assert_eq!((plan.endangered(), plan.left(short)), (Vec::new(), Some(Work(40))));
}

#[test]
fn regular_work_is_not_taken_to_be_done_while_promised_work_that_comes_first_lies() {
    let mut plan = plan(Discipline::Preemptive);
    let until = |deadline| Window { release: START, deadline: Timestamp(deadline) };
    plan.occupy(until(80), Work(10));
    let (urgent, _) = plan.reserve(until(40), Work(20)).unwrap();
    let (other, _) = plan.reserve(until(80), Work(50)).unwrap();
    plan.pass(Timestamp(1));
    assert_eq!(plan.endangered(), [other]);
    plan.end(urgent);
    plan.pass(Timestamp(20));
    assert_eq!(plan.endangered(), [], "the letters come first");
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

#[test]
fn regular_work_counts_as_far_as_what_is_done_once_can_delay_it() {
    let mut plan = plan(Discipline::Preemptive);
    let load = Load { period: Work(10), cost: Work(5), is_attended: true };
    assert!(plan.regularly(load));
    let until = |deadline| Window { release: START, deadline: Timestamp(deadline) };
    plan.occupy(until(1_000), Work(300));
    plan.restore(until(1_000), Work(190), None);
    // Of the thousand hours 500 are for regular work, and 490 for both of these.
    assert!(!plan.fits(until(40), Work(11)));
    assert!(plan.fits(until(40), Work(10)));
}

#[test]
fn regular_work_counts_for_what_was_promised_before() {
    let mut plan = plan(Discipline::Preemptive);
    let load = Load { period: Work(10), cost: Work(5), is_attended: true };
    assert!(plan.regularly(load));
    let later = Window { release: Timestamp(5_000), deadline: Timestamp(5_100) };
    let ticket = plan.restore(later, Work(51), None);
    assert_eq!(plan.endangered(), [ticket]);
}

#[test]
fn what_takes_no_time_is_not_promised_and_leaves_nothing_in_the_plan() {
    for discipline in [Discipline::Preemptive, Discipline::NonPreemptive] {
        for release in [START, Timestamp(10)] {
            let mut plan = plan(discipline);
            let window = Window { release, deadline: Timestamp(20) };
            assert!(!plan.fits(window, Work(0)));
            assert_eq!(plan.reserve(window, Work(0)), None);
            assert_eq!((plan.len(), plan.earliest(release, Work(0))), (0, None));
        }
    }
}

#[test]
fn what_has_no_time_between_regular_work_that_cannot_wait_has_no_earliest_date() {
    let mut plan = plan(Discipline::NonPreemptive);
    for (period, cost) in [(10, 5), (100, 10)] {
        let load = Load { period: Work(period), cost: Work(cost), is_attended: true };
        assert!(plan.regularly(load));
    }
    assert_eq!(plan.earliest(START, Work(11)), None);
    assert_eq!(plan.earliest(Timestamp(3_000), Work(11)), None);
    assert!(plan.earliest(Timestamp(3_000), Work(2)).is_some());
}
