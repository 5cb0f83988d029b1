//! What cannot be kept is given up when that is known, and not before: who is a moment late mostly makes up for it.

mod works;

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_promise::{
    Desk, Discipline, Leeway, ResourceId, Setup, Span, Supply, Task, TaskId, WHOLE, Window, Work,
};
use works::always;

fn resource() -> ResourceId {
    ResourceId::Person("ann".into())
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

/// Works from each of these hours to the next.
fn working(spans: &[(i64, i64)]) -> Setup {
    let span =
        |&(from, to): &(i64, i64)| Span { from: Timestamp(from), to: Timestamp(to), share: WHOLE };
    Setup { supply: Supply::new(spans.iter().map(span)), ..always(Discipline::Preemptive) }
}

#[test]
fn nothing_is_given_up_because_somebody_is_a_moment_late() {
    let mut desk = person(Leeway { part: 16, most: 1_000 });
    let task = one(1, 0, 160, 160);
    desk.guarantee(&task).expect("it fits");
    desk.pass(Timestamp(10));
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(0)), None);
    desk.pass(Timestamp(11));
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(0)), Some(task.id));
}

#[test]
fn who_falls_ill_on_a_later_day_is_known_at_once_not_when_that_day_has_come() {
    let mut desk = person(Leeway::default());
    let (today, later) = (one(1, 0, 100, 10), one(2, 200, 300, 50));
    desk.guarantee(&today).expect("it fits");
    desk.guarantee(&later).expect("it fits");
    desk.refit(&resource(), &working(&[(0, 220), (290, 900)]), Timestamp(0));
    assert_eq!(desk.endangered_lanes(), [(resource(), 0)]);
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(0)), Some(later.id));
    desk.end(later.id);
    assert_eq!(desk.endangered_lanes(), []);
}

#[test]
fn what_somebody_has_begun_is_given_up_when_they_cannot_finish_it_any_more() {
    let mut desk = person(Leeway { part: 16, most: 1_000 });
    let task = one(1, 0, 200, 160);
    desk.guarantee(&task).expect("it fits");
    desk.begin(task.id);
    desk.pass(Timestamp(100));
    // There are 60 left to do. A moment less than that is made up for.
    desk.refit(&resource(), &working(&[(0, 155), (500, 900)]), Timestamp(100));
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(0)), None);
    desk.refit(&resource(), &working(&[(0, 149), (500, 900)]), Timestamp(100));
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(0)), Some(task.id));
}

#[test]
fn what_takes_longer_than_said_stays_promised_for_nobody_knows_when_it_is_done() {
    let mut desk = person(Leeway::default());
    let task = one(1, 0, 200, 160);
    desk.guarantee(&task).expect("it fits");
    desk.begin(task.id);
    for now in [159, 161, 200, 300] {
        desk.pass(Timestamp(now));
        assert_eq!(desk.endangered_lanes(), [], "{now}");
    }
}

#[test]
fn what_is_due_first_and_not_begun_is_given_up_before_all_that_it_keeps_waiting() {
    let mut desk = person(Leeway::default());
    let (first, longer) = (one(1, 0, 100, 50), one(2, 0, 160, 60));
    desk.guarantee(&first).expect("it fits");
    desk.guarantee(&longer).expect("it fits");
    desk.pass(Timestamp(70));
    assert_eq!(desk.endangered(Timestamp(70)), [first.id, longer.id]);
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(70)), Some(first.id));
    desk.end(first.id);
    assert_eq!(desk.endangered(Timestamp(70)), []);
}

#[test]
fn while_it_is_waited_for_somebody_to_begin_nothing_that_is_due_later_is_given_up() {
    let mut desk = person(Leeway { part: 10, most: 100 });
    // The second may be late by less than the first, and has time until it is due.
    let (first, second) = (one(1, 0, 500, 500), one(2, 0, 600, 100));
    desk.guarantee(&first).expect("it fits");
    desk.guarantee(&second).expect("it fits");
    for (now, given_up) in [(11, None), (49, None), (51, Some(first.id))] {
        desk.pass(Timestamp(now));
        assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(now)), given_up, "{now}");
    }
    // It is begun in time to be done soon enough: what comes after it is not.
    let mut desk = person(Leeway { part: 10, most: 100 });
    desk.guarantee(&first).expect("it fits");
    desk.guarantee(&second).expect("it fits");
    desk.pass(Timestamp(20));
    desk.begin(first.id);
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(20)), Some(second.id));
}

#[test]
fn what_waits_is_given_up_before_what_is_being_worked_on() {
    let mut desk = person(Leeway::default());
    let (begun, urgent) = (one(1, 0, 200, 100), one(2, 0, 110, 60));
    desk.guarantee(&begun).expect("it fits");
    desk.guarantee(&urgent).expect("it fits");
    desk.begin(begun.id);
    // Whoever works on the one lets the other lie.
    desk.pass(Timestamp(60));
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(0)), Some(urgent.id));
    desk.end(urgent.id);
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(0)), None);
}

#[test]
fn what_would_be_late_also_without_what_is_let_lie_is_given_up_at_once() {
    let mut desk = person(Leeway { part: 10, most: 100 });
    let (sooner, later) = (one(1, 400, 500, 100), one(2, 0, 900, 600));
    desk.guarantee(&sooner).expect("it fits");
    desk.guarantee(&later).expect("it fits");
    // The first is late by a moment whatever anybody does, and nobody can begin it; the other by more than may be.
    desk.refit(&resource(), &working(&[(0, 100), (405, 900)]), Timestamp(0));
    assert_eq!(desk.endangered(Timestamp(0)), [later.id, sooner.id]);
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(0)), Some(later.id));
    // When somebody could begin the first it would be enough to give that up.
    desk.begin(later.id);
    desk.pass(Timestamp(404));
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(404)), None);
    // Not so if the other is late by more than the first takes.
    desk.refit(&resource(), &working(&[(0, 100), (405, 700)]), Timestamp(404));
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(404)), Some(later.id));
}

#[test]
fn what_is_due_soon_is_waited_with_no_longer() {
    let mut desk = person(Leeway { part: 10, most: 100 });
    let (first, second) = (one(1, 0, 500, 500), one(2, 0, 600, 100));
    desk.guarantee(&first).expect("it fits");
    desk.guarantee(&second).expect("it fits");
    // By the clock it is later than in the plan: no time was worked.
    desk.pass(Timestamp(20));
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(399)), None);
    assert_eq!(desk.first_to_give_up(&resource(), 0, Timestamp(400)), Some(second.id));
}
