//! What a plan promises fits, what it refuses fits in no order, and a performer that works by the plan is never
//! late.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use legwork_model::time::Timestamp;
use legwork_plan::{Depth, Discipline, Plan, Span, Supply, WHOLE, Window, Work};
use proptest::prelude::*;

const DISCIPLINES: [Discipline; 2] = [Discipline::Preemptive, Discipline::NonPreemptive];

fn plan(discipline: Discipline) -> Plan {
    Plan::new(Supply::always(Timestamp(0)), discipline, 0, Timestamp(0))
}

fn window(release: i64, due: i64) -> Window {
    Window { release: Timestamp(release), due: Timestamp(due) }
}

/// Whether tasks (release, due, cost) can all be done preemptively: in no interval there is more work than its
/// length.
fn fits(tasks: &[(i64, i64, i64)], now: i64) -> bool {
    let tasks: Vec<_> = tasks.iter().map(|(r, d, c)| ((*r).max(now), *d, *c)).collect();
    tasks.iter().all(|(from, ..)| {
        tasks.iter().all(|(_, to, _)| {
            let within = tasks.iter().filter(|(r, d, _)| r >= from && d <= to);
            within.map(|(.., cost)| cost).sum::<i64>() <= (to - from).max(0)
        })
    })
}

fn admit(plan: &mut Plan, key: u64, (release, due, cost): (i64, i64, i64)) -> bool {
    let end = plan.earliest(Timestamp(release), Work(cost), Depth::Normal);
    let fits = end.is_some_and(|end| end <= Timestamp(due));
    if fits {
        plan.add(key, window(release, due), Work(cost));
    }
    fits
}

/// Works by the plan up to a moment, one step at a time: the first planned entry is begun as soon as possible. Some
/// entries take less than planned.
fn work(plan: &mut Plan, (from, to): (i64, i64), sooner: i64, done: &mut Vec<(u64, i64)>) {
    for now in from..to {
        let Some(first) = plan.turns().first().copied().filter(|it| it.from.0 <= now) else {
            plan.pass(Timestamp(now + 1));
            continue;
        };
        plan.begin(first.key, Timestamp(now));
        let left = plan.left(first.key).unwrap().0;
        let sooner = if first.key.is_multiple_of(3) { sooner } else { 0 };
        plan.pass(Timestamp(now + 1));
        if left <= 1 + sooner {
            plan.remove(first.key);
            done.push((first.key, now + 1));
        }
    }
}

fn tasks() -> impl Strategy<Value = Vec<(i64, i64, i64)>> {
    let task = (0_i64..40, 1_i64..8, 0_i64..30)
        .prop_map(|(release, cost, slack)| (release, release + cost + slack, cost));
    prop::collection::vec(task, 1..14)
}

proptest! {
    #[test]
    fn of_preemptible_work_exactly_what_fits_is_promised(tasks in tasks()) {
        let mut plan = plan(Discipline::Preemptive);
        let mut held = Vec::new();
        for (key, task) in (0..).zip(tasks) {
            let with: Vec<_> = held.iter().copied().chain([task]).collect();
            prop_assert_eq!(admit(&mut plan, key, task), fits(&with, 0), "{:?} beside {:?}", task, held);
            if plan.holds(key) {
                held.push(task);
            }
        }
        prop_assert!(plan.late(1, Work(0)).is_empty());
    }

    #[test]
    fn the_earliest_date_is_the_first_that_is_promised(tasks in tasks(), release in 0_i64..50, cost in 1_i64..9) {
        let mut plan = plan(Discipline::Preemptive);
        let mut held = Vec::new();
        for (key, task) in (0..).zip(tasks) {
            if admit(&mut plan, key, task) {
                held.push(task);
            }
        }
        let end = plan.earliest(Timestamp(release), Work(cost), Depth::Normal).unwrap().0;
        let fits_by = |due: i64| {
            let with: Vec<_> = held.iter().copied().chain([(release, due, cost)]).collect();
            fits(&with, 0)
        };
        prop_assert!(fits_by(end) && !fits_by(end - 1));
    }

    #[test]
    fn a_performer_who_works_by_the_plan_is_never_late(
        tasks in tasks(),
        person in any::<bool>(),
        pauses in prop::collection::vec(0_i64..3, 14),
        sooner in 0_i64..3,
    ) {
        let discipline = DISCIPLINES[usize::from(!person)];
        let mut plan = plan(discipline);
        let (mut now, mut done, mut due) = (0, Vec::new(), Vec::new());
        for ((key, (release, until, cost)), pause) in (0..).zip(tasks).zip(pauses) {
            work(&mut plan, (now, now + pause), sooner, &mut done);
            now += pause;
            let task = (release + now, until + now, cost);
            if admit(&mut plan, key, task) {
                due.push((key, task.1));
            }
            prop_assert!(plan.late(1, Work(0)).is_empty(), "{:?}", plan);
        }
        work(&mut plan, (now, now + 200), sooner, &mut done);
        for (key, due) in due {
            let end = done.iter().find(|(one, _)| *one == key).map(|(_, end)| *end);
            prop_assert!(end.is_some_and(|end| end <= due), "{key} is done at {end:?} and due at {due}: {plan:?}");
        }
    }

    #[test]
    fn what_an_executor_may_begin_makes_nothing_late(tasks in tasks(), cost in 1_i64..9) {
        let mut plan = plan(Discipline::NonPreemptive);
        for (key, task) in (0..).zip(tasks) {
            admit(&mut plan, key, task);
        }
        let may = plan.may_begin(None, Work(cost));
        let mut with = plan.clone();
        with.add_other(99, Work(cost));
        prop_assert_eq!(may, with.late(1, Work(0)).is_empty());
        for key in (0..14).filter(|key| plan.holds(*key)) {
            let mut with = plan.clone();
            with.begin(key, Timestamp(0));
            prop_assert_eq!(plan.may_begin(Some(key), Work(0)), with.late(1, Work(0)).is_empty());
        }
    }

    #[test]
    fn what_is_late_delays_nothing_else_and_is_not_delayed_more(tasks in tasks(), person in any::<bool>(), cost in 1_i64..9) {
        let mut plan = plan(DISCIPLINES[usize::from(!person)]);
        for (key, (release, due, cost)) in (0..).zip(tasks) {
            plan.add(key, window(release, due), Work(cost));
        }
        let before: Vec<_> = (0..14).filter_map(|key| plan.times(key)).collect();
        let late = plan.late(1, Work(0));
        let end = plan.earliest(Timestamp(3), Work(cost), Depth::Normal).unwrap();
        plan.add(50, window(3, end.0), Work(cost));
        prop_assert_eq!(plan.late(1, Work(0)), late.clone(), "{:?}", end);
        for (key, before) in (0..).zip(before) {
            prop_assert!(!late.contains(&key) || plan.times(key).unwrap().1 <= before.1);
        }
    }
}

#[test]
fn nights_do_not_count() {
    let day = |from: i64| Span { from: Timestamp(from), to: Timestamp(from + 8), share: WHOLE };
    let supply = Supply::new([day(9), day(33), day(57)]);
    let mut plan = Plan::new(supply, Discipline::Preemptive, 0, Timestamp(7));
    assert_eq!(plan.earliest(Timestamp(7), Work(8), Depth::Normal), Some(Timestamp(17)));
    plan.add(1, window(7, 17), Work(8));
    assert_eq!(plan.earliest(Timestamp(7), Work(4), Depth::Normal), Some(Timestamp(37)));
    assert_eq!(plan.times(1), Some((Timestamp(9), Timestamp(17))));
    assert_eq!(plan.earliest(Timestamp(7), Work(40), Depth::Normal), None);
}

#[test]
fn the_reserve_is_left_free_until_something_fails() {
    let mut plan =
        Plan::new(Supply::always(Timestamp(0)), Discipline::Preemptive, 20, Timestamp(0));
    assert_eq!(plan.earliest(Timestamp(0), Work(80), Depth::Normal), Some(Timestamp(100)));
    plan.add(1, window(0, 100), Work(80));
    assert_eq!(plan.earliest(Timestamp(0), Work(8), Depth::Normal), Some(Timestamp(110)));
    assert_eq!(plan.earliest(Timestamp(0), Work(20), Depth::Reserve), Some(Timestamp(20)));
}

#[test]
fn what_a_person_does_regularly_is_done_by_the_plan() {
    let mut plan = plan(Discipline::Preemptive);
    plan.add_regular(1, window(0, 10), Work(4));
    plan.add_regular(2, window(10, 20), Work(4));
    assert_eq!(plan.earliest(Timestamp(0), Work(7), Depth::Normal), Some(Timestamp(11)));
    plan.pass(Timestamp(3));
    assert_eq!(plan.left(1), Some(Work(1)));
    // The entry due sooner waits to be begun: no progress is assumed.
    plan.add(3, window(3, 8), Work(2));
    plan.pass(Timestamp(5));
    assert_eq!(plan.left(1), Some(Work(1)));
    plan.pass(Timestamp(25));
    assert_eq!((plan.left(1), plan.left(2)), (None, None));
}

#[test]
fn what_takes_an_executor_longer_is_expected_to_take_a_quarter_more() {
    let mut plan = plan(Discipline::NonPreemptive);
    plan.add(1, window(0, 10), Work(8));
    plan.begin(1, Timestamp(0));
    plan.pass(Timestamp(8));
    assert_eq!(plan.left(1), Some(Work(2)));
    assert!(plan.late(1, Work(0)).is_empty());
    plan.pass(Timestamp(10));
    assert_eq!(plan.late(1, Work(0)), [1]);
}

#[test]
fn what_is_begun_before_its_release_time_is_worked_on() {
    let mut plan = plan(Discipline::Preemptive);
    plan.add(1, window(0, 40), Work(5));
    plan.add(2, window(20, 30), Work(10));
    // Its predecessor was done sooner than planned.
    plan.begin(2, Timestamp(0));
    plan.pass(Timestamp(8));
    assert_eq!((plan.left(1), plan.left(2)), (Some(Work(5)), Some(Work(2))));
}

#[test]
fn of_what_is_due_at_the_same_time_that_is_worked_on_which_is_begun() {
    let mut plan = plan(Discipline::Preemptive);
    plan.add(1, window(0, 20), Work(5));
    plan.add(2, window(0, 20), Work(10));
    plan.begin(2, Timestamp(0));
    plan.pass(Timestamp(8));
    assert_eq!((plan.left(1), plan.left(2)), (Some(Work(5)), Some(Work(2))));
    plan.leave(2);
    assert_eq!(plan.left(2), Some(Work(10)));
}

#[test]
fn what_is_only_held_keeps_nobody_from_their_work() {
    let mut plan = plan(Discipline::Preemptive);
    plan.add(1, window(0, 20), Work(10));
    plan.add(2, window(0, 10), Work(5));
    plan.set_held(2, true);
    plan.begin(1, Timestamp(0));
    plan.pass(Timestamp(4));
    assert_eq!(plan.left(1), Some(Work(6)));
    plan.set_held(2, false);
    plan.pass(Timestamp(8));
    assert_eq!(plan.left(1), Some(Work(6)), "it waits to be begun");
}

#[test]
fn an_executor_may_begin_what_is_first_though_all_is_late() {
    let mut plan = plan(Discipline::NonPreemptive);
    plan.add(1, window(0, 10), Work(5));
    plan.add(2, window(10, 20), Work(5));
    plan.pass(Timestamp(30));
    assert!(plan.may_begin(Some(1), Work(0)));
    assert!(!plan.may_begin(None, Work(1)), "what is late is not made later");
}
