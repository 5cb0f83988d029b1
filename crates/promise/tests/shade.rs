//! What is promised while a resource may have something to finish that nobody knows of is in time with it or without it.

#![expect(clippy::expect_used, reason = "a wrong assumption is a failed test")]

mod works;

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_promise::{Desk, Discipline, ResourceId, Task, TaskId, Window, Work};
use proptest::prelude::*;
use works::always;

const NOW: Timestamp = Timestamp(0);

fn one() -> ResourceId {
    ResourceId::Executor("one".into())
}

fn task(number: u128, service: i64, deadline: i64, priority: u8) -> Task {
    let window = Window { release: NOW, deadline: Timestamp(deadline) };
    let mut task =
        Task::new(TaskId::new(InstanceId(number), 0), window, Work(service), vec![one()]);
    (task.priority, task.may_abort) = (priority, true);
    task
}

/// Somebody who may be busy until then has promised something, and room is held at its expense.
fn with_room(until: i64) -> (Desk, Task, Task) {
    let mut desk = Desk::default();
    assert!(desk.add(one(), &always(Discipline::NonPreemptive), NOW));
    desk.shade(&one(), Some(Timestamp(until)));
    let (minor, major) = (task(1, 50, 240, 1), task(2, 100, 200, 5));
    desk.guarantee(&minor).expect("it fits");
    assert!(!desk.could(&major), "only if all is known");
    desk.hold_room(&major).expect("there is room");
    (desk, minor, major)
}

#[test]
fn who_would_be_late_behind_what_nobody_knows_makes_way() {
    let (mut desk, minor, major) = with_room(100);
    desk.take_room(major.id).expect("there is room");
    assert_eq!(desk.make_way(major.id), Some(Ok(vec![minor])));
}

#[test]
fn who_would_be_in_time_stays_when_all_is_known() {
    let (mut desk, _, major) = with_room(100);
    desk.take_room(major.id).expect("there is room");
    desk.shade(&one(), None);
    assert_eq!(desk.make_way(major.id), Some(Ok(vec![])));
    assert_eq!(desk.endangered(NOW), []);
}

#[test]
fn room_is_not_taken_that_is_not_there_behind_what_nobody_knows() {
    let (mut desk, minor, major) = with_room(100);
    desk.shade(&one(), Some(Timestamp(101)));
    assert_eq!(desk.take_room(major.id), None);
    assert!(desk.task(minor.id).is_some());
}

#[test]
fn what_is_promised_beside_room_fits_also_if_both_are_so() {
    let (mut desk, ..) = with_room(100);
    let next = task(3, 30, 220, 1);
    assert!(!desk.could(&next), "behind the unknown and what room is held for it is late");
    assert_eq!(desk.earliest(&next), Some(Timestamp(230)));
    assert!(desk.guarantee(&task(3, 30, 230, 1)).is_some());
}

#[test]
fn what_is_known_to_be_at_work_is_part_of_what_may_be() {
    let mut desk = Desk::default();
    assert!(desk.add(one(), &always(Discipline::NonPreemptive), NOW));
    let begun = task(1, 100, 100, 1);
    desk.guarantee(&begun).expect("it fits");
    desk.begin(begun.id);
    for (until, earliest) in [(50, 130), (100, 130), (150, 180)] {
        desk.shade(&one(), Some(Timestamp(until)));
        assert_eq!(desk.earliest(&task(2, 30, 180, 1)), Some(Timestamp(earliest)));
    }
    // So is what else takes it: but what was begun comes behind that.
    desk.occupy(&one(), &[Some(Timestamp(60))]);
    assert_eq!(desk.earliest(&task(2, 30, 190, 1)), Some(Timestamp(190)));
}

#[derive(Clone, Debug)]
enum Happening {
    Asked(i64, i64),
    /// At the expense of others: held, or taken as well.
    Holds(i64, i64, bool),
    GoesAhead,
    Drops,
}

fn happening() -> impl Strategy<Value = Happening> {
    let asked = || (1_i64..12, 0_i64..60);
    prop_oneof![
        4 => asked().prop_map(|(service, spare)| Happening::Asked(service, spare)),
        3 => (asked(), any::<bool>())
            .prop_map(|((service, spare), takes)| Happening::Holds(service, spare, takes)),
        1 => Just(Happening::GoesAhead),
        1 => Just(Happening::Drops),
    ]
}

/// Whether all is in time that is promised, begun at a moment one after the other as it is due.
fn is_in_time(desk: &Desk, from: i64) -> bool {
    let mut all: Vec<(i64, i64)> = desk
        .reservations(&one())
        .iter()
        .map(|it| (it.task.window.deadline.0, it.task.service.0))
        .collect();
    all.sort_unstable();
    let mut end = from;
    all.into_iter().all(|(deadline, service)| {
        end += service;
        end <= deadline
    })
}

fn goes_ahead(desk: &mut Desk, id: TaskId) {
    let is_there = desk.promise(id).is_some() || desk.take_room(id).is_some();
    assert!(is_there, "{id:?}: room is not there");
    assert!(matches!(desk.make_way(id), Some(Ok(_))), "{id:?}: room is not there");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn all_is_in_time_with_or_without_what_nobody_knows_whatever_comes_of_room(
        happenings in prop::collection::vec(happening(), 1..30),
        shade in 1_i64..30,
    ) {
        let mut desk = Desk::default();
        prop_assert!(desk.add(one(), &always(Discipline::NonPreemptive), NOW));
        desk.shade(&one(), Some(Timestamp(shade)));
        let mut room: Option<TaskId> = None;
        for (number, happening) in (1_u128..).zip(happenings) {
            match happening {
                Happening::Asked(service, spare) => {
                    desk.guarantee(&task(number, service, service + spare, 1));
                }
                Happening::Holds(service, spare, takes) if room.is_none() => {
                    let major = task(number, service, service + spare, 5);
                    if !desk.could(&major) {
                        room = desk.hold_room(&major).map(|promise| promise.task);
                    }
                    if let Some(id) = room.filter(|_| takes) {
                        prop_assert!(desk.take_room(id).is_some());
                    }
                }
                Happening::Holds(..) => {}
                Happening::GoesAhead => room.take().into_iter().for_each(|it| goes_ahead(&mut desk, it)),
                Happening::Drops => room.take().into_iter().for_each(|it| desk.drop_room(it)),
            }
            for from in [0, shade] {
                prop_assert!(is_in_time(&desk, from), "from {}", from);
                if let Some(id) = room {
                    let mut desk = desk.clone();
                    goes_ahead(&mut desk, id);
                    prop_assert!(is_in_time(&desk, from), "from {}, with room", from);
                }
            }
        }
    }
}
