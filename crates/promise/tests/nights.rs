//! What is due in the same night is due at the same point of working time. People do that first which is due first by the
//! clock, and so do their plans.

mod works;

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_promise::{
    Desk, Discipline, Leeway, ResourceId, Setup, Span, Supply, Task, TaskId, WHOLE, Window, Work,
};
use works::always;

const START: Timestamp = Timestamp(0);

fn ann() -> ResourceId {
    ResourceId::Person("ann".into())
}

/// By day, from 0 to 100 and from 200 to 300.
fn desk() -> Desk {
    desk_with(Leeway::default())
}

fn desk_with(leeway: Leeway) -> Desk {
    let span = |(from, to)| Span { from: Timestamp(from), to: Timestamp(to), share: WHOLE };
    let supply = Supply::new([(0, 100), (200, 300)].map(span));
    let mut desk = Desk::with_leeway(leeway);
    assert!(desk.add(ann(), &Setup { supply, ..always(Discipline::Preemptive) }, START));
    desk
}

fn one(number: u32, from: i64, due: i64, takes: i64) -> Task {
    let window = Window { release: Timestamp(from), deadline: Timestamp(due) };
    Task::new(TaskId::new(InstanceId(1), number), window, Work(takes), vec![ann()])
}

#[test]
fn what_is_due_first_in_a_night_is_worked_on_although_something_else_was_begun_before() {
    let (mut desk, slow, soon) = (desk(), one(1, 0, 190, 40), one(2, 10, 150, 40));
    desk.guarantee(&slow).expect("it fits");
    desk.begin(slow.id);
    desk.pass(Timestamp(10));
    desk.guarantee(&soon).expect("it fits");
    desk.begin(soon.id);
    // By now it is nearly done, and nothing of the other besides.
    desk.pass(Timestamp(45));
    assert_eq!(desk.works_on(&ann()), [Some(Work(5))]);
    desk.end(soon.id);
    assert_eq!(desk.works_on(&ann()), [Some(Work(30))], "of the other as much is left as before");
    // There is no more time before the night than that leaves.
    assert!(!desk.could(&one(3, 45, 120, 26)));
    assert!(desk.could(&one(3, 45, 120, 25)));
}

#[test]
fn nothing_is_lost_of_what_somebody_works_on_in_the_order_of_the_clock() {
    let (mut desk, slow, soon) = (desk(), one(1, 0, 190, 40), one(2, 10, 150, 50));
    desk.guarantee(&slow).expect("it fits");
    desk.begin(slow.id);
    desk.pass(Timestamp(10));
    desk.guarantee(&soon).expect("it fits");
    desk.begin(soon.id);
    for now in 11..60 {
        desk.pass(Timestamp(now));
        assert_eq!(desk.endangered(Timestamp(now)), [], "at {now}");
    }
}

#[test]
fn the_night_is_planned_by_the_clock() {
    // Also what is released later, and whoever is promised first.
    for from in [0, 20] {
        let (mut desk, slow, soon) = (desk(), one(1, from, 190, 30), one(2, from, 150, 20));
        for task in [&slow, &soon] {
            desk.guarantee(task).expect("it fits");
        }
        let mut end = |task: &Task| desk.promise(task.id).map(|promise| promise.times.end.0 - from);
        assert_eq!((end(&soon), end(&slow)), (Some(20), Some(50)));
    }
}

#[test]
fn who_is_a_moment_late_in_the_evening_does_not_make_up_for_it_in_the_night() {
    // With no working time before it is due, and with some on the next day.
    for (due, given_up) in [(100, 100), (150, 100), (210, 210)] {
        let mut desk = desk_with(Leeway { part: 8, most: 1_000 });
        let done_before = if due > 200 { 10 } else { 0 };
        let task = one(1, 0, due, 80);
        let before = one(2, 0, 20 + done_before, 20 + done_before);
        desk.guarantee(&before).expect("it fits");
        desk.guarantee(&task).expect("it fits");
        desk.begin(before.id);
        // It is told a moment late that it is done.
        desk.pass(Timestamp(25 + done_before));
        desk.end(before.id);
        desk.begin(task.id);
        for now in [26 + done_before, given_up - 1] {
            desk.pass(Timestamp(now));
            assert_eq!(desk.endangered_lanes(), [(ann(), 0)]);
            assert_eq!(desk.first_to_give_up(&ann(), 0, Timestamp(given_up)), None, "{now}, {due}");
        }
        desk.pass(Timestamp(given_up));
        assert_eq!(desk.first_to_give_up(&ann(), 0, Timestamp(given_up)), Some(task.id), "{due}");
    }
}
