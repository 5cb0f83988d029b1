//! Less important tasks make way only if it helps, as few as possible, and nothing else changes.

#![expect(clippy::expect_used, reason = "a wrong assumption is a failed test")]

mod works;

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_promise::{
    Change, Desk, Discipline, Leeway, Only, Promise, ResourceId, Setup, Span, Supply, Task, TaskId,
    Turn, WHOLE, Window, Work,
};
use proptest::prelude::*;
use works::always;

#[derive(Clone, Copy, Debug)]
struct Small {
    release: i64,
    time: i64,
    cost: i64,
    priority: u8,
    may_abort: bool,
}

fn small() -> impl Strategy<Value = Small> {
    (0_i64..12, 0_i64..24, 1_i64..6, 0_u8..4, prop::bool::weighted(0.8)).prop_map(
        |(release, time, cost, priority, may_abort)| Small {
            release,
            time,
            cost,
            priority,
            may_abort,
        },
    )
}

fn resource() -> ResourceId {
    ResourceId::Executor("one".into())
}

fn desk(discipline: Discipline) -> Desk {
    let mut desk = Desk::default();
    assert!(desk.add(resource(), &always(discipline), Timestamp(0)));
    desk
}

fn task(number: usize, small: Small, can_wait: bool, now: i64) -> Task {
    let release = if can_wait { now + small.release } else { now };
    let deadline = release + small.cost + small.time;
    let window = Window { release: Timestamp(release), deadline: Timestamp(deadline) };
    let id = TaskId::new(InstanceId(number as u128), 0);
    let mut task = Task::new(id, window, Work(small.cost), vec![resource()]);
    (task.priority, task.may_abort) = (small.priority, small.may_abort);
    task
}

fn turns(desk: &Desk) -> Vec<Turn> {
    desk.clone().plan_mut(&resource(), 0).expect("it is here").turns()
}

/// Somebody works by the plan for so long; all that is done is done in time.
fn work(desk: &mut Desk, now: &mut i64, hours: i64, can_put_aside: bool) {
    for _ in 0..hours {
        let plan = desk.plan_mut(&resource(), 0).expect("it is here");
        let is_free = can_put_aside || plan.running().is_none();
        if let Some(next) = plan.next().filter(|_| is_free) {
            plan.begin_with(next);
        }
        *now += 1;
        desk.pass(Timestamp(*now));
        assert_eq!(desk.endangered(Timestamp(*now)), []);
        let plan = desk.plan_mut(&resource(), 0).expect("it is here");
        if let Some(ticket) = plan.running().filter(|it| plan.left(*it) == Some(Work(0))) {
            let id = desk.task_of(&resource(), 0, ticket).expect("it was promised");
            let done = desk.end(id).expect("it was promised");
            assert!(*now <= done.window.deadline.0, "{done:?} at {now}");
        }
    }
}

/// Promises a task at the expense of others; answers those who made way.
fn make_room(desk: &mut Desk, task: &Task) -> Option<(Promise, Vec<Task>)> {
    desk.hold_room(task)?;
    let promise = desk.take_room(task.id)?;
    Some((promise, made_way(desk, task)))
}

/// What room is taken for goes ahead; answers those who made way.
fn made_way(desk: &mut Desk, task: &Task) -> Vec<Task> {
    desk.make_way(task.id).expect("the room is taken").expect("nobody has begun")
}

/// Whether a task fits if one that made way stays.
fn fits_beside(desk: &Desk, new: &Task, removed: &Task) -> bool {
    let mut desk = desk.clone();
    desk.end(new.id);
    desk.guarantee(removed).is_some() && desk.guarantee(new).is_some()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn nobody_makes_way_for_nothing(
        tasks in prop::collection::vec((small(), 0_i64..3), 1..14),
        can_put_aside: bool,
        can_wait: bool,
    ) {
        let discipline =
            if can_put_aside { Discipline::Preemptive } else { Discipline::NonPreemptive };
        let (mut desk, mut now) = (desk(discipline), 0);
        for (number, (small, hours)) in tasks.into_iter().enumerate() {
            let new = task(number, small, can_wait, now);
            if desk.guarantee(&new).is_some() {
                work(&mut desk, &mut now, hours, can_put_aside);
                continue;
            }
            let before = desk.clone();
            let begun = desk.plan_mut(&resource(), 0).and_then(|plan| plan.running());
            let begun = begun.and_then(|ticket| before.task_of(&resource(), 0, ticket));
            match make_room(&mut desk, &new) {
                None => {
                    prop_assert_eq!(turns(&desk), turns(&before), "nothing has changed");
                    prop_assert_eq!(desk.len(), before.len());
                }
                Some((promise, removed)) => {
                    prop_assert_eq!(promise.task, new.id);
                    // Where orders are tried, not all are: one may be found on the way without anybody
                    // making way, and somebody may make way for nothing.
                    let is_exact = can_put_aside || !can_wait;
                    prop_assert!(!is_exact || !removed.is_empty());
                    prop_assert_eq!(desk.len() + removed.len(), before.len() + 1);
                    for other in &removed {
                        prop_assert!(other.may_abort && other.priority < new.priority);
                        prop_assert!(other.window.deadline > new.window.deadline);
                        prop_assert!(Some(other.id) != begun, "it was begun");
                        prop_assert!(before.task(other.id).is_some() && desk.task(other.id).is_none());
                        prop_assert!(!is_exact || !fits_beside(&desk, &new, other), "for nothing");
                    }
                }
            }
            prop_assert_eq!(desk.endangered(Timestamp(now)), []);
            work(&mut desk, &mut now, hours, can_put_aside);
        }
        work(&mut desk, &mut now, 120, can_put_aside);
        prop_assert!(desk.is_empty(), "all is done");
    }

    #[test]
    fn what_is_promised_while_room_is_held_fits_with_and_without_it(
        tasks in prop::collection::vec(small(), 1..10),
        important in small(),
        later in prop::collection::vec(small(), 0..6),
        can_put_aside: bool,
    ) {
        let discipline =
            if can_put_aside { Discipline::Preemptive } else { Discipline::NonPreemptive };
        let mut desk = desk(discipline);
        for (number, small) in tasks.into_iter().enumerate() {
            desk.guarantee(&task(number, small, can_put_aside, 0));
        }
        let important = task(100, Small { priority: 5, ..important }, can_put_aside, 0);
        if desk.could(&important) || desk.hold_room(&important).is_none() {
            return Ok(());
        }
        let before = desk.len();
        let mut promised = 0;
        for (number, small) in later.into_iter().enumerate() {
            let small = Small { may_abort: false, ..small };
            let mut later = task(200 + number, small, can_put_aside, 0);
            if desk.guarantee(&later).is_some() {
                promised += 1;
            } else {
                later.window.deadline = desk.earliest(&later).expect("there is time enough");
                prop_assert!(desk.could(&later), "the date that is told can be promised");
            }
        }
        prop_assert_eq!(desk.len(), before + promised);
        let mut without = desk.clone();
        without.drop_room(important.id);
        prop_assert_eq!(without.endangered(Timestamp(0)), []);
        let held = turns(&desk);
        desk.take_room(important.id).expect("the room is there");
        prop_assert_eq!(turns(&desk), held, "nobody has made way yet");
        let removed = made_way(&mut desk, &important);
        prop_assert!(!removed.is_empty());
        prop_assert_eq!(desk.len(), before + promised + 1 - removed.len());
        prop_assert_eq!(desk.endangered(Timestamp(0)), []);
        let mut now = 0;
        work(&mut desk, &mut now, 120, can_put_aside);
        prop_assert!(desk.is_empty(), "all is done, in time");
    }

    #[test]
    fn all_are_promised_or_none(tasks in prop::collection::vec(small(), 2..8), can_put_aside: bool) {
        let discipline =
            if can_put_aside { Discipline::Preemptive } else { Discipline::NonPreemptive };
        let mut desk = desk(discipline);
        let tasks: Vec<Task> =
            tasks.into_iter().enumerate().map(|(number, small)| task(number, small, true, 0)).collect();
        let (first, others) = tasks.split_at(1);
        desk.guarantee(&first[0]);
        let before = turns(&desk);
        match desk.guarantee_all(others) {
            Some(promises) => prop_assert_eq!(promises.len(), others.len()),
            None => prop_assert_eq!(turns(&desk), before),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn who_works_as_before_loses_no_promise_by_being_looked_at_anew(
        tasks in prop::collection::vec(small(), 1..10),
    ) {
        let mut desk = desk(Discipline::NonPreemptive);
        for (number, small) in tasks.into_iter().rev().enumerate() {
            desk.guarantee(&task(number, small, true, 0));
        }
        desk.refit(&resource(), &always(Discipline::NonPreemptive), Timestamp(0));
        prop_assert_eq!(desk.endangered(Timestamp(0)), []);
    }
}

fn one(number: u32, from: i64, to: i64, takes: i64) -> Task {
    let window = Window { release: Timestamp(from), deadline: Timestamp(to) };
    Task::new(TaskId::new(InstanceId(1), number), window, Work(takes), vec![resource()])
}

fn person(leeway: Leeway) -> Desk {
    let mut desk = Desk::with_leeway(leeway);
    assert!(desk.add(resource(), &always(Discipline::Preemptive), Timestamp(0)));
    desk
}

#[test]
fn who_has_put_something_aside_goes_on_with_it() {
    let mut desk = person(Leeway::default());
    let (long, urgent) = (one(1, 0, 200, 100), one(2, 0, 60, 50));
    desk.guarantee(&long).expect("it fits");
    desk.begin(long.id);
    desk.pass(Timestamp(10));
    desk.guarantee(&urgent).expect("it fits");
    desk.begin(urgent.id);
    desk.pass(Timestamp(60));
    desk.end(urgent.id);
    // Nobody says that the first is worked on again.
    desk.pass(Timestamp(100));
    assert_eq!(
        desk.plan_mut(&resource(), 0).expect("it fits").turns().last().expect("it fits").to,
        Timestamp(150)
    );
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(0)), None);
}

#[test]
fn what_is_told_twice_was_begun_once_and_is_not_begun_anew_with_another_calendar() {
    let mut desk = person(Leeway::default());
    let task = one(1, 0, 200, 100);
    desk.guarantee(&task).expect("it fits");
    desk.begin(task.id);
    desk.pass(Timestamp(40));
    desk.begin(task.id);
    let begun = desk.take_changes().into_iter().filter(|it| *it == Change::Begun(task.id));
    assert_eq!(begun.count(), 1);
    desk.refit(&resource(), &always(Discipline::Preemptive), Timestamp(40));
    assert_eq!(
        desk.plan_mut(&resource(), 0).expect("it fits").turns().last().expect("it fits").to,
        Timestamp(100)
    );
}

/// Works from each of these hours to the next.
fn working(spans: &[(i64, i64)]) -> Setup {
    let span =
        |&(from, to): &(i64, i64)| Span { from: Timestamp(from), to: Timestamp(to), share: WHOLE };
    Setup { supply: Supply::new(spans.iter().map(span)), ..always(Discipline::Preemptive) }
}

#[test]
fn regular_work_that_is_done_stays_done_however_often_somebody_is_looked_at_anew() {
    let mut desk = person(Leeway::default());
    let day = |from: i64| Window { release: Timestamp(from), deadline: Timestamp(from + 80) };
    let letters = |days: &[i64]| Setup {
        jobs: days.iter().map(|from| (day(*from), Work(10))).collect(),
        ..working(&[(0, 900)])
    };
    desk.refit(&resource(), &letters(&[0, 80]), Timestamp(0));
    let task = one(1, 0, 160, 140);
    desk.guarantee(&task).expect("it fits");
    for now in [6, 8, 10, 12] {
        desk.pass(Timestamp(now));
        desk.refit(&resource(), &letters(&[0, 80]), Timestamp(now));
        assert_eq!(desk.endangered(Timestamp(now)), if now > 10 { vec![task.id] } else { vec![] });
    }
}

#[test]
fn who_stands_in_for_somebody_does_so_only_while_that_one_is_away() {
    let mut desk = person(Leeway::default());
    let mut task = one(1, 0, 200, 30);
    let within = |from, to| Window { release: Timestamp(from), deadline: Timestamp(to) };
    task.only = vec![Only { who: resource(), within: within(100, 120) }];
    assert!(!desk.could(&task) && desk.guarantee(&task).is_none(), "it is too short");
    assert_eq!(desk.earliest(&task), None);
    // Perhaps later than it is wanted.
    task.only[0].within = within(190, 400);
    assert!(!desk.could(&task));
    assert_eq!(desk.earliest(&task), Some(Timestamp(220)));
    task.only[0].within = within(100, 400);
    let promise = desk.guarantee(&task).expect("it fits");
    assert_eq!(promise.times.start, Timestamp(100));
    // Nor is that forgotten with another calendar.
    desk.refit(&resource(), &working(&[(0, 110), (190, 900)]), Timestamp(0));
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(0)), Some(task.id));
}

/// Somebody who stands in from 100 to 120 and from 200 to 230, and works so long at something from 100 on.
fn standing_in_twice(busy: i64) -> (Desk, Task) {
    let mut desk = person(Leeway::default());
    desk.guarantee(&one(1, 100, 100 + busy, busy)).expect("it fits");
    let within = |from, to| Window { release: Timestamp(from), deadline: Timestamp(to) };
    let mut task = one(2, 0, 240, 15);
    task.only = [within(100, 120), within(200, 230)]
        .map(|within| Only { who: resource(), within })
        .to_vec();
    (desk, task)
}

#[test]
fn who_stands_in_twice_is_asked_for_the_second_time_if_there_is_no_room_in_the_first() {
    for (busy, start, earliest) in [(5, 105, 120), (6, 200, 215), (110, 210, 225)] {
        let (mut desk, task) = standing_in_twice(busy);
        assert!(desk.could(&task));
        assert_eq!(desk.earliest(&task), Some(Timestamp(earliest)), "{busy}");
        let promise = desk.guarantee(&task).expect("it fits");
        assert_eq!(promise.times.start, Timestamp(start), "{busy}");
    }
    let (mut desk, mut task) = standing_in_twice(116);
    assert!(!desk.could(&task) && desk.guarantee(&task).is_none());
    assert_eq!(desk.earliest(&task), None);
    // What is wanted sooner than they stand in for the second time can be done by then.
    (desk, task) = standing_in_twice(6);
    task.window.deadline = Timestamp(150);
    assert!(!desk.could(&task));
    assert_eq!(desk.earliest(&task), Some(Timestamp(215)));
}

#[test]
fn others_make_way_in_the_second_time_if_that_helps_and_the_first_does_not() {
    let (mut desk, mut task) = standing_in_twice(5);
    (task.priority, task.window.deadline) = (1, Timestamp(300));
    task.service = Work(20);
    // In the first time there is something that stays, in the second something that can make way.
    let mut other = one(3, 200, 400, 200);
    other.may_abort = true;
    desk.guarantee(&other).expect("it fits");
    assert!(desk.guarantee(&task).is_none() && desk.could_make_room(&task));
    let (promise, removed) = make_room(&mut desk, &task).expect("there is room");
    assert_eq!(promise.times.start, Timestamp(200));
    assert_eq!(removed.iter().map(|it| it.id).collect::<Vec<_>>(), [other.id]);
}

#[test]
fn in_which_time_somebody_stands_in_is_kept_with_the_promise() {
    let (mut desk, task) = standing_in_twice(6);
    desk.guarantee(&task).expect("it fits");
    let promised = desk.reservation(task.id).expect("it is promised");
    let second = Window { release: Timestamp(200), deadline: Timestamp(230) };
    assert_eq!(promised.window, second);
    // With the first time free again it is still to be done in the second: that was said.
    desk.end(one(1, 0, 1, 1).id);
    desk.refit(&resource(), &working(&[(0, 900)]), Timestamp(0));
    let promise = desk.promise(task.id).expect("it is promised");
    assert_eq!(promise.times.start, Timestamp(200));
    desk.begin(task.id);
    desk.leave(task.id);
    assert_eq!(desk.reservation(task.id), Some(promised));
    // When it was to begin is enough to know it again.
    for (start, window) in [(100, 100), (119, 100), (150, 100), (170, 200), (215, 200), (300, 200)]
    {
        let start = Window { release: Timestamp(start), deadline: Timestamp(start) };
        assert_eq!(task.window_near(&resource(), start).release, Timestamp(window), "{start:?}");
    }
}

#[test]
fn who_makes_way_for_two_stays_until_the_one_goes_ahead_that_needs_it() {
    let mut desk = person(Leeway::default());
    let minor = Task { may_abort: true, ..one(1, 0, 11, 5) };
    let (major, done) = (one(2, 0, 10, 5), one(3, 0, 10, 1));
    for task in [&minor, &major, &done] {
        desk.guarantee(task).expect("it fits");
    }
    let [first, second] =
        [(4, 1), (5, 3)].map(|(number, takes)| Task { priority: 5, ..one(number, 0, 10, takes) });
    for task in [&first, &second] {
        assert!(desk.guarantee(task).is_none() && desk.hold_room(task).is_some());
    }
    // Now there is time for the first beside all others, but not for the second.
    desk.end(done.id);
    desk.take_room(first.id).expect("there is room");
    assert_eq!(made_way(&mut desk, &first), []);
    desk.take_room(second.id).expect("there is room");
    assert_eq!(made_way(&mut desk, &second), [minor]);
    assert_eq!(desk.endangered(Timestamp(0)), []);
}
