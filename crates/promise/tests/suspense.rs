//! Those who make way for a case hear of it when it goes ahead; if it does not, nothing has happened to them.

#![expect(clippy::expect_used, reason = "a wrong assumption is a failed test")]

mod two;
mod works;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_promise::{
    Change, Desk, Discipline, Displaces, Effect, Leeway, Message, Noted, Reservation, Said, Task,
    Turn, Work,
};
use two::{NOW, Two, is_promised_at, one, task};
use works::always;

/// For how long it is waited to hear whether something goes ahead.
const WAITED: i64 = 10_000;

/// One that fills the time of somebody, and one that is more important, due before, and takes room when told.
fn two_tasks(at: u16) -> (Task, Task) {
    let minor = Task { service: Work(4_500), ..task(1, 5_000, 1, &[at]) };
    (minor, Task { displaces: Displaces::WhenTold, ..task(2, 1_500, 5, &[at]) })
}

fn turns(two: &Two, at: u16) -> Vec<Turn> {
    let mut desk = two.nodes[usize::from(at)].desk.clone();
    desk.plan_mut(&one(at), 0).expect("it is here").turns()
}

/// Both are promised at this planner, and the first does not know yet that it makes way.
fn in_suspense(at: u16) -> (Two, Task, Task) {
    both_in_suspense(at, two_tasks(at))
}

/// Two that cannot put anything aside.
fn executors() -> Two {
    let mut two = Two::new();
    for (node, number) in two.nodes.iter_mut().zip(0..) {
        node.desk.refit(&one(number), &always(Discipline::NonPreemptive), NOW);
    }
    two
}

fn both_in_suspense(at: u16, tasks: (Task, Task)) -> (Two, Task, Task) {
    all_in_suspense(Two::new(), at, tasks)
}

fn all_in_suspense(mut two: Two, at: u16, (minor, major): (Task, Task)) -> (Two, Task, Task) {
    assert!(is_promised_at(&two.does(|node| node.submit(minor.clone(), NOW)), minor.id, at));
    assert!(is_promised_at(&two.does(|node| node.submit(major.clone(), NOW)), major.id, at));
    let told = two.does(|node| node.take_room(major.id, NOW));
    assert!(told.len() == 1 && is_promised_at(&told, major.id, at), "{told:?}");
    (two, minor, major)
}

fn said(effects: &[Effect]) -> Vec<&Said> {
    let said = effects.iter().filter_map(|effect| match effect {
        Effect::Say(said) => Some(said),
        Effect::Promised { .. }
        | Effect::Refused { .. }
        | Effect::Removed { .. }
        | Effect::Lost { .. } => None,
    });
    said.collect()
}

#[test]
fn nobody_has_made_way_for_what_is_given_up_after_its_room_was_taken() {
    for at in [0, 1] {
        let (mut two, minor, major) = in_suspense(at);
        let node = &two.nodes[usize::from(at)];
        let before = turns(&two, at);
        assert!(node.desk.task(minor.id).is_some() && node.desk.task(major.id).is_some());
        assert_eq!(two.does(|node| node.finish(major.id)), []);
        let node = &mut two.nodes[usize::from(at)];
        assert!(node.desk.task(major.id).is_none());
        let changes = node.desk.take_changes();
        assert!(!changes.contains(&Change::Ended(minor.id)), "{changes:?}");
        assert_eq!(changes.last(), Some(&Change::Ended(major.id)));
        assert_eq!(node.take_noted(), []);
        assert_eq!(turns(&two, at), before, "all is where it was");
        assert_eq!(two.nodes[usize::from(at)].open(), 1);
        let offered = if at == 0 { vec![] } else { vec![minor.id, major.id] };
        assert_eq!(two.offered, offered, "nothing is tried elsewhere");
    }
}

#[test]
fn those_who_make_way_hear_of_it_when_it_goes_ahead() {
    for at in [0, 1] {
        let (mut two, minor, major) = in_suspense(at);
        let told = two.does(|node| node.go_ahead([major.id].into_iter(), NOW));
        assert!(told.contains(&Effect::Removed { task: minor.id }), "{told:?}");
        let node = &mut two.nodes[usize::from(at)];
        assert!(node.desk.task(minor.id).is_none());
        assert!(node.desk.take_changes().contains(&Change::Ended(minor.id)));
        let promise = node.desk.promise(major.id).expect("it is promised");
        assert!(promise.times.end <= major.window.deadline);
    }
}

#[test]
fn what_is_promised_meanwhile_fits_whatever_comes_of_it() {
    let (mut two, minor, major) = in_suspense(0);
    // Beside the less important one there are 500 left, beside the other 4000.
    let small = Task { service: Work(500), ..task(3, 5_000, 9, &[0]) };
    let large = Task { displaces: Displaces::Never, service: Work(501), ..task(4, 5_000, 9, &[0]) };
    let told = two.does(|node| node.submit(large.clone(), NOW));
    assert!(matches!(told[..], [Effect::Refused { .. }]), "{told:?}");
    // Nor can anybody else have room at the expense of one of them.
    let urgent = task(5, 1_000, 9, &[0]);
    let told = two.does(|node| node.submit(urgent.clone(), NOW));
    assert!(matches!(told[..], [Effect::Refused { .. }]), "{told:?}");
    assert!(is_promised_at(&two.does(|node| node.submit(small.clone(), NOW)), small.id, 0));
    two.does(|node| node.finish(major.id));
    assert_eq!(two.nodes[0].desk.endangered(NOW), []);
    assert!(two.nodes[0].desk.task(minor.id).is_some());
}

#[test]
fn who_has_begun_what_was_to_make_way_and_cannot_put_it_aside_goes_on_and_the_other_yields() {
    for at in [0, 1] {
        let (mut two, minor, major) = all_in_suspense(executors(), at, two_tasks(at));
        let node = &mut two.nodes[usize::from(at)];
        node.begin(minor.id);
        assert_eq!(node.next_due(), Some(NOW), "at once");
        let effects = node.tick(NOW);
        assert!(node.desk.is_begun(minor.id) && node.desk.task(major.id).is_none());
        let told = match said(&effects)[..] {
            [] => effects,
            [said] => {
                let said = said.clone();
                two.does(|node| node.hear(ServerId(1), said, NOW))
            }
            _ => unreachable!("{effects:?}"),
        };
        assert!(told.contains(&Effect::Lost { task: major.id }), "{told:?}");
        assert!(!told.contains(&Effect::Removed { task: minor.id }), "{told:?}");
        // It has not gone ahead: nobody else makes way for it at once.
        assert!(
            told.contains(&Effect::Refused { task: major.id, earliest: Some(Timestamp(5_500)) })
        );
    }
}

#[test]
fn what_people_begin_when_its_time_was_promised_already_makes_way_all_the_same() {
    let later = Timestamp(NOW.0 + 100);
    let begins: [fn(&mut Two, &Task); 2] = [
        |two, minor| two.nodes[0].begin(minor.id),
        |two, minor| two.nodes[0].desk.begin_since(minor.id, NOW),
    ];
    for begin in begins {
        let (mut two, minor, major) = in_suspense(0);
        two.nodes[0].desk.pass(later);
        begin(&mut two, &minor);
        assert_eq!(two.does(|node| node.tick(later)), [], "what was promised stays promised");
        // Should it not go ahead, nothing has happened.
        let mut other = two.nodes[0].clone();
        other.finish(major.id);
        assert!(other.desk.is_begun(minor.id));
        assert_eq!(other.desk.endangered(later), []);
        let told = two.does(|node| node.go_ahead([major.id].into_iter(), later));
        assert!(told.contains(&Effect::Removed { task: minor.id }), "{told:?}");
        let desk = &mut two.nodes[0].desk;
        assert!(desk.task(major.id).is_some());
        assert_eq!(desk.endangered(later), []);
    }
}

#[test]
fn if_nothing_is_heard_of_it_they_are_told_after_a_while() {
    let minor = Task { service: Work(46_000), ..task(1, 50_000, 1, &[1]) };
    let major = Task { displaces: Displaces::WhenTold, ..task(2, 15_000, 5, &[1]) };
    let major = Task { service: Work(5_000), ..major };
    let (mut two, minor, major) = both_in_suspense(1, (minor, major));
    let node = &mut two.nodes[1];
    let mut at = NOW;
    while at.0 < WAITED && node.desk.task(minor.id).is_some() {
        at = node.next_due().expect("something is due");
        let effects = node.tick(at);
        let is_told = said(&effects).iter().any(
            |said| matches!(said.message, Message::TakenBack { task, .. } if task == minor.id),
        );
        assert_eq!(is_told, node.desk.task(minor.id).is_none());
    }
    assert_eq!(at, Timestamp(WAITED));
    assert!(node.desk.task(major.id).is_some(), "it is still promised");
    let noted = node.take_noted();
    assert!(matches!(noted[..], [Noted::TakenBack { task, .. }] if task == minor.id), "{noted:?}");
}

#[test]
fn what_was_taken_is_confirmed_when_it_goes_ahead_and_again_if_that_got_lost() {
    let (mut two, minor, major) = in_suspense(1);
    // The word of it gets lost.
    let effects = two.nodes[0].go_ahead([major.id].into_iter(), NOW);
    assert!(matches!(said(&effects)[..], [Said { message: Message::Confirm { .. }, .. }]));
    let at = two.nodes[1].next_due().expect("it is said again");
    let again = two.nodes[1].tick(at);
    let [answer] = said(&again)[..] else { unreachable!("{again:?}") };
    let told = two.does(|node| node.hear(ServerId(1), answer.clone(), at));
    assert!(told.contains(&Effect::Removed { task: minor.id }), "{told:?}");
}

#[test]
fn what_is_begun_has_gone_ahead() {
    let (mut two, minor, major) = in_suspense(1);
    two.nodes[1].begin(major.id);
    let effects = two.nodes[1].tick(NOW);
    assert_eq!(said(&effects).len(), 1, "{effects:?}");
    assert!(two.nodes[1].desk.is_begun(major.id));
    assert!(two.nodes[1].desk.task(minor.id).is_none());
}

#[test]
fn who_is_lost_has_promised_both() {
    let (mut two, minor, major) = in_suspense(0);
    let told = two.does(|node| node.lose_resource(&one(0), NOW));
    for id in [minor.id, major.id] {
        assert!(told.contains(&Effect::Lost { task: id }), "{told:?}");
    }
    assert_eq!((two.nodes[0].open(), two.nodes[0].desk.len()), (0, 0));
}

#[test]
fn who_works_at_other_times_holds_and_has_taken_the_same_room() {
    let (mut two, minor, major) = in_suspense(0);
    two.nodes[0].desk.refit(&one(0), &always(Discipline::Preemptive), NOW);
    let mut other = two.nodes[0].clone();
    assert_eq!(other.finish(major.id), []);
    assert_eq!(other.desk.endangered(NOW), []);
    let told = two.does(|node| node.go_ahead([major.id].into_iter(), NOW));
    assert!(told.contains(&Effect::Removed { task: minor.id }), "{told:?}");
    assert_eq!(two.nodes[0].desk.endangered(NOW), []);
}

#[test]
fn what_is_offered_or_told_to_be_taken_again_is_promised_as_it_is() {
    let (mut two, minor, major) = in_suspense(1);
    let before = turns(&two, 1);
    let at = two.nodes[1].next_due().expect("it is said again");
    let again = two.nodes[1].tick(at);
    let [answer] = said(&again)[..] else { unreachable!("{again:?}") };
    // Whoever asked knows it, and has not gone ahead.
    assert_eq!(two.does(|node| node.hear(ServerId(1), answer.clone(), at)), []);
    let Message::Answer { attempt, .. } = answer.message else { unreachable!("{answer:?}") };
    let message = Message::Take { task: major.id, earlier: attempt - 1, attempt };
    let take = Said { to: ServerId(1), surplus: 0, message };
    let heard = two.nodes[1].hear(ServerId(0), take, at);
    assert!(matches!(
        said(&heard)[..],
        [Said { message: Message::Answer { promises: Some(_), .. }, .. }]
    ));
    assert!(two.nodes[1].desk.task(minor.id).is_some());
    assert_eq!(turns(&two, 1).len(), before.len());
}

#[test]
fn after_a_restart_both_are_promised_and_what_cannot_be_kept_is_told() {
    let (two, minor, major) = in_suspense(1);
    let before = &two.nodes[1];
    let stored = |task: &Task| -> (Reservation, (ServerId, u64)) {
        let reservation = before.desk.reservation(task.id).expect("it is stored");
        (reservation, before.asker_and_attempt(task.id).expect("it is held"))
    };
    let mut after = Two::new().nodes[1].clone();
    for (reservation, asker) in [stored(&minor), stored(&major)] {
        after.restore(reservation, asker, None);
    }
    let effects = after.give_up_endangered(NOW);
    let is_minor =
        |said: &&Said| matches!(said.message, Message::TakenBack { task, .. } if task == minor.id);
    assert_eq!(said(&effects).into_iter().filter(is_minor).count(), 1, "{effects:?}");
    assert!(after.desk.task(major.id).is_some());
}

#[test]
fn executors_begin_nothing_while_somebody_does_not_know_that_they_make_way() {
    let mut desk = Desk::default();
    assert!(desk.add(one(0), &always(Discipline::NonPreemptive), NOW));
    let (minor, major) = two_tasks(0);
    desk.guarantee(&minor).expect("it fits");
    assert_eq!(desk.turn_of(minor.id, NOW), Some(0));
    desk.hold_room(&major).expect("there is room");
    assert_eq!(desk.turn_of(minor.id, NOW), Some(0), "it is only held");
    desk.take_room(major.id).expect("there is room");
    assert_eq!(desk.turn_of(minor.id, NOW), None);
    assert_eq!(desk.turn_for(&one(0), Work(1), NOW), None);
    let mut other = desk.clone();
    other.end(major.id);
    assert_eq!(other.turn_of(minor.id, NOW), Some(0));
    assert_eq!(desk.make_way(major.id), Some(Ok(vec![minor])));
    assert_eq!(desk.turn_of(major.id, NOW), Some(0));
}

#[test]
fn nobody_makes_way_for_what_would_be_late_all_the_same() {
    let (mut two, minor, major) = in_suspense(0);
    let later = Timestamp(NOW.0 + 600);
    let mut told = two.nodes[0].go_ahead([major.id].into_iter(), later);
    told.extend(two.nodes[0].give_up_endangered(later));
    assert!(told.contains(&Effect::Lost { task: major.id }), "{told:?}");
    assert!(!told.contains(&Effect::Removed { task: minor.id }), "{told:?}");
    // The less important one would have had to be begun as well.
    assert!(told.contains(&Effect::Lost { task: minor.id }), "{told:?}");
}

#[test]
fn a_moment_that_may_be_made_up_for_does_not_undo_what_was_taken() {
    let (minor, major) = two_tasks(0);
    for (most, is_kept) in [(99, false), (100, true)] {
        let mut desk = Desk::with_leeway(Leeway { part: 1, most });
        assert!(desk.add(one(0), &always(Discipline::Preemptive), NOW));
        desk.guarantee(&minor).expect("it fits");
        desk.hold_room(&major).expect("there is room");
        desk.take_room(major.id).expect("there is room");
        desk.pass(Timestamp(600));
        let made_way = desk.make_way(major.id);
        assert_eq!(
            made_way,
            Some(if is_kept { Ok(vec![minor.clone()]) } else { Err(major.clone()) })
        );
        assert_eq!(desk.task(minor.id).is_some(), !is_kept);
    }
}

#[test]
fn who_may_be_at_work_on_what_was_to_make_way_goes_on() {
    let mut desk = Desk::default();
    assert!(desk.add(one(0), &always(Discipline::NonPreemptive), NOW));
    let (minor, major) = two_tasks(0);
    desk.guarantee(&minor).expect("it fits");
    desk.hold_room(&major).expect("there is room");
    let mut before = desk.clone();
    desk.take_room(major.id).expect("there is room");
    for desk in [&mut desk, &mut before] {
        desk.begin(minor.id);
        desk.doubt(minor.id);
        assert!(!desk.is_begun(minor.id) && desk.is_out(minor.id));
    }
    assert_eq!(before.take_room(major.id), None, "there is no room any more");
    assert!(desk.has_lost_room(major.id));
    assert_eq!(desk.make_way(major.id), Some(Err(major)));
    assert!(desk.task(minor.id).is_some());
}

#[test]
fn what_neither_makes_way_nor_is_in_the_way_is_begun_in_suspense() {
    let mut desk = Desk::default();
    assert!(desk.add(one(0), &always(Discipline::NonPreemptive), NOW));
    let first = Task { service: Work(100), ..task(3, 100, 9, &[0]) };
    let minor = Task { service: Work(800), ..task(1, 1_000, 1, &[0]) };
    let major = Task { service: Work(500), ..task(2, 950, 5, &[0]) };
    // It would have its turn with the others there, and be in the way of what they make way for.
    let small = Task { service: Work(100), ..task(4, 1_000, 9, &[0]) };
    for task in [&first, &minor, &small] {
        desk.guarantee(task).expect("it fits");
    }
    desk.hold_room(&major).expect("there is room");
    desk.take_room(major.id).expect("there is room");
    assert_eq!(desk.turn_of(first.id, NOW), Some(0));
    assert_eq!(desk.turn_of(minor.id, NOW), None, "it may make way");
    assert_eq!(desk.turn_of(small.id, NOW), None, "another is due before");
    desk.begin(first.id);
    desk.pass(Timestamp(100));
    desk.end(first.id);
    assert!(!desk.has_lost_room(major.id));
    assert_eq!(desk.make_way(major.id), Some(Ok(vec![minor])));
    assert_eq!(desk.endangered(Timestamp(100)), []);
}

#[test]
fn what_was_begun_and_left_is_not_begun_when_others_have_made_way() {
    let (mut two, minor, major) = in_suspense(0);
    let node = &mut two.nodes[0];
    node.begin(major.id);
    node.leave(major.id);
    node.tick(NOW);
    assert!(node.desk.task(minor.id).is_none(), "it has gone ahead");
    assert!(node.desk.task(major.id).is_some() && !node.desk.is_begun(major.id));
}

#[test]
fn who_still_decides_is_waited_for() {
    let minor = Task { service: Work(46_000), ..task(1, 50_000, 1, &[1]) };
    let major = Task { displaces: Displaces::WhenTold, ..task(2, 40_000, 5, &[1]) };
    let major = Task { service: Work(5_000), ..major };
    let (mut two, minor, major) = both_in_suspense(1, (minor, major));
    let mut said_again = 0;
    while let Some(at) = two.nodes[1].next_due().filter(|at| at.0 < 30_000) {
        for answer in said(&two.nodes[1].tick(at)) {
            said_again += 1;
            let effects = two.nodes[0].hear(ServerId(1), answer.clone(), at);
            let [take] = said(&effects)[..] else { unreachable!("{effects:?}") };
            assert_eq!(two.nodes[1].hear(ServerId(0), take.clone(), at), []);
        }
    }
    assert!(two.nodes[1].desk.task(minor.id).is_some(), "nobody has been told");
    assert!((8..16).contains(&said_again), "{said_again}");
    let told = two.does(|node| node.finish(major.id));
    assert_eq!(told, []);
}

#[test]
fn what_is_asked_for_here_is_decided_here_and_not_by_a_clock() {
    let (mut two, minor, major) = in_suspense(0);
    assert_eq!(two.nodes[0].next_due(), None);
    assert_eq!(two.nodes[0].tick(Timestamp(WAITED)), []);
    assert!(two.nodes[0].desk.task(minor.id).is_some());
    assert_eq!(two.does(|node| node.finish(major.id)), []);
}

/// Two steps of a case, each of which takes room at the other planner, and those who make way for them.
fn two_steps() -> ([Task; 2], [Task; 2]) {
    let step = |number, deadline, service, priority| Task {
        service: Work(service),
        displaces: Displaces::WhenTold,
        ..task(number, deadline, priority, &[1])
    };
    let mut steps = [step(4, 19_000, 8_000, 5), step(4, 19_000, 3_000, 5)];
    steps[1].id.step = 1;
    ([step(2, 20_000, 4_000, 2), step(3, 20_000, 6_000, 3)], steps)
}

#[test]
fn between_two_confirmations_nobody_is_given_up() {
    let mut two = Two::new();
    let (others, steps) = two_steps();
    let fixed = Task { service: Work(6_000), ..task(1, 20_000, 9, &[1]) };
    for it in [&fixed].into_iter().chain(&others).chain(&steps) {
        assert!(is_promised_at(&two.does(|node| node.submit(it.clone(), NOW)), it.id, 1));
    }
    for it in &steps {
        assert!(is_promised_at(&two.does(|node| node.take_room(it.id, NOW)), it.id, 1));
    }
    let beside = Task { service: Work(3_000), ..task(5, 20_000, 1, &[1]) };
    assert!(is_promised_at(&two.does(|node| node.submit(beside.clone(), NOW)), beside.id, 1));
    let confirmed = two.nodes[0].go_ahead(steps.iter().map(|it| it.id), NOW);
    let mut told = Vec::new();
    for confirm in said(&confirmed) {
        told.extend(two.nodes[1].hear(ServerId(0), confirm.clone(), NOW));
        // As whoever drives a planner does now and then.
        told.extend(two.nodes[1].give_up_endangered(NOW));
    }
    let taken_back = said(&told).into_iter().filter_map(|said| {
        let Message::TakenBack { task, is_lost, .. } = said.message else { return None };
        Some((task, is_lost))
    });
    assert_eq!(taken_back.collect::<Vec<_>>(), others.map(|it| (it.id, false)));
    assert_eq!(two.nodes[1].next_due(), Some(Timestamp(400)), "only what was taken back is open");
}

#[test]
fn what_somebody_works_on_is_not_sought_elsewhere() {
    let (minor, mut major) = two_tasks(0);
    major.who.push(one(1));
    let mut two = executors();
    let elsewhere = Task { service: Work(1_500), ..task(3, 1_500, 9, &[1]) };
    for (it, at) in [(&elsewhere, 1), (&minor, 0), (&major, 0)] {
        assert!(is_promised_at(&two.does(|node| node.submit(it.clone(), NOW)), it.id, at));
    }
    assert!(is_promised_at(&two.does(|node| node.take_room(major.id, NOW)), major.id, 0));
    // Whoever is here has begun both; whoever is elsewhere has time again.
    two.nodes[0].begin(minor.id);
    two.nodes[0].begin(major.id);
    two.does(|node| node.finish(elsewhere.id));
    assert_eq!(two.does(|node| node.tick(NOW)), []);
    for id in [minor.id, major.id] {
        assert!(two.nodes[0].desk.is_begun(id));
    }
    assert_eq!(two.nodes[0].next_due(), None);
}

#[test]
fn what_is_asked_for_again_while_its_room_is_taken_is_promised_anew_or_not_at_all() {
    // Somebody may have begun what was to make way; or it is not wanted any more; or all is as it was.
    let changes: [fn(&mut Two, &Task); 3] = [
        |two, minor| two.nodes[0].desk.doubt(minor.id),
        |two, minor| drop(two.does(|node| node.finish(minor.id))),
        |_, _| {},
    ];
    for (change, (is_promised, is_placed)) in
        changes.into_iter().zip([(false, false), (true, true), (true, false)])
    {
        let (mut two, minor, major) = in_suspense(0);
        change(&mut two, &minor);
        let told = two.does(|node| node.submit(major.clone(), NOW));
        assert_eq!(is_promised_at(&told, major.id, 0), is_promised, "{told:?}");
        let node = &two.nodes[0];
        assert_eq!(node.desk.task(major.id).is_some(), is_placed, "else it is held at most");
        assert_eq!(node.asker(major.id).is_some(), is_placed);
        two.does(|node| node.finish(major.id));
        two.does(|node| node.finish(minor.id));
        assert_eq!((two.nodes[0].open(), two.nodes[0].desk.len()), (0, 0));
        assert!(two.nodes[0].desk.could(&major), "no room is left");
    }
}
