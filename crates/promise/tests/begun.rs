//! What is begun and cannot be put aside: it is finished, it is in the way of the rest until then, and whoever wants it hears
//! of it before it is late.

#![expect(clippy::expect_used, reason = "a wrong assumption is a failed test")]

mod works;

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_promise::{
    Desk, Discipline, Effect, Node, Policy, ResourceId, Setup, Supply, Task, TaskId, Window, Work,
};
use works::always;

const START: Timestamp = Timestamp(0);

fn resource() -> ResourceId {
    ResourceId::Executor("one".into())
}

fn executor() -> Setup {
    always(Discipline::NonPreemptive)
}

fn desk() -> Desk {
    let mut desk = Desk::default();
    assert!(desk.add(resource(), &executor(), START));
    desk
}

fn one(number: u32, due: i64, takes: i64) -> Task {
    let window = Window { release: START, deadline: Timestamp(due) };
    let id = TaskId::new(InstanceId(1), number);
    Task { may_abort: true, ..Task::new(id, window, Work(takes), vec![resource()]) }
}

#[test]
fn who_is_given_something_else_before_the_first_is_done_has_begun_both() {
    let (mut desk, first, second) = (desk(), one(1, 30, 10), one(2, 40, 10));
    for task in [&first, &second] {
        desk.guarantee(task).expect("it fits");
        desk.begin(task.id);
    }
    desk.pass(Timestamp(4));
    assert!(desk.is_begun(first.id) && desk.is_begun(second.id));
    assert_eq!(desk.works_on(&resource()), [Some(Work(16))]);
    // Nobody makes way who is being worked on, and what is asked for waits for both.
    let urgent = Task { priority: 9, ..one(3, 18, 3) };
    assert!(desk.guarantee(&urgent).is_none() && !desk.could_make_room(&urgent));
    assert_eq!(desk.earliest(&urgent), Some(Timestamp(23)));
    desk.refit(&resource(), &executor(), Timestamp(4));
    assert!(desk.is_begun(first.id) && desk.is_begun(second.id), "also if it is looked at anew");
    desk.end(first.id);
    assert_eq!(desk.works_on(&resource()), [Some(Work(10))], "it goes on with the other");
    desk.leave(second.id);
    assert!(!desk.is_begun(second.id) && desk.could_make_room(&urgent));
}

#[test]
fn what_is_begun_and_what_is_done_besides_leaves_less_time() {
    let (mut desk, task) = (desk(), one(1, 100, 60));
    let left = |desk: &Desk| (desk.surplus(&[resource()], Timestamp(100)), desk.factor());
    assert_eq!(left(&desk), (Work(100), 1_000));
    desk.guarantee(&task).expect("it fits");
    let promised = left(&desk);
    desk.begin(task.id);
    assert_eq!(left(&desk), promised);
    // Also up to a moment before it is due, and if it is not in the plan.
    assert_eq!(desk.surplus(&[resource()], Timestamp(70)), Work(10));
    desk.end(task.id);
    desk.occupy(&resource(), &[Some(Timestamp(60))]);
    assert_eq!(left(&desk), promised);
}

#[test]
fn what_is_begun_is_promised_as_it_was_before() {
    let (mut desk, first, second) = (desk(), one(1, 100, 20), one(2, 100, 10));
    for task in [&first, &second] {
        desk.guarantee(task).expect("it fits");
        desk.begin(task.id);
    }
    desk.pass(Timestamp(5));
    let mut times = |task: &Task| {
        let promise = desk.promise(task.id).expect("it is promised");
        (promise.times.start.0, promise.times.end.0)
    };
    assert_eq!((times(&first), times(&second)), ((5, 20), (20, 30)));
}

/// With half of its time from now on.
fn slow() -> Setup {
    Setup { supply: Supply::always_with(50, START), ..executor() }
}

/// Somebody with one task that was begun, due in 65 with 50 left, who works half as much from now on.
fn begun_and_slow() -> (Desk, Task) {
    let (mut desk, task) = (desk(), one(1, 65, 60));
    desk.guarantee(&task).expect("it fits");
    desk.begin(task.id);
    desk.pass(Timestamp(10));
    assert_eq!(desk.endangered(Timestamp(10)), []);
    desk.refit(&resource(), &slow(), Timestamp(10));
    (desk, task)
}

#[test]
fn what_is_begun_will_be_late_if_its_executor_works_less_and_that_is_known_at_once() {
    let (mut desk, task) = begun_and_slow();
    assert!(desk.is_begun(task.id));
    assert_eq!(desk.endangered(Timestamp(10)), [task.id]);
}

#[test]
fn what_is_begun_and_takes_longer_than_was_said_is_late_when_it_is_not_done_in_time() {
    let (mut desk, task) = (self::desk(), one(1, 60, 60));
    desk.guarantee(&task).expect("it fits");
    desk.begin(task.id);
    for (now, late) in [(59, vec![]), (60, vec![]), (61, vec![task.id])] {
        desk.pass(Timestamp(now));
        assert_eq!(desk.endangered(Timestamp(now)), late, "{now}");
    }
}

fn other() -> ResourceId {
    ResourceId::Executor("other".into())
}

/// A planner, and at home at which others are.
fn planner(me: u16, desk: Desk, homes: [(ResourceId, u16); 2]) -> Node {
    let mut node = Node::new(ServerId(me), desk, Policy::default(), 1);
    homes.into_iter().for_each(|(one, home)| node.know(one, ServerId(home)));
    node
}

/// Whoever has begun a task has less time from now on.
fn begin_and_slow_down(node: &mut Node, id: TaskId, now: Timestamp) -> Vec<Effect> {
    node.begin(id);
    node.desk.pass(now);
    node.desk.refit(&resource(), &slow(), now);
    node.give_up_endangered(now)
}

#[test]
fn what_is_begun_and_will_be_late_is_told_and_nobody_else_is_asked_to_do_it() {
    let mut node = planner(0, desk(), [(resource(), 0), (other(), 1)]);
    let task = Task { who: vec![resource(), other()], ..one(1, 65, 60) };
    let id = task.id;
    node.submit(task, START);
    let told = begin_and_slow_down(&mut node, id, Timestamp(10));
    assert_eq!(told, [Effect::Lost { task: id }, Effect::Refused { task: id, earliest: None }]);
    assert!(node.desk.is_empty() && node.open() == 0);
    // It goes on all the same: 50 are left, which take twice as long now.
    assert_eq!(node.desk.earliest(&one(2, 200, 10)), Some(Timestamp(130)));
}

/// All that planners say to each other after one has done something, and what it comes to.
fn talk(nodes: &mut [Node; 2], from: usize, effects: Vec<Effect>, now: Timestamp) -> Vec<Effect> {
    let (mut open, mut told) = (vec![(from, effects)], Vec::new());
    while let Some((from, effects)) = open.pop() {
        for effect in effects {
            if let Effect::Say(said) = effect {
                let to = usize::from(said.to.0);
                open.push((to, nodes[to].hear(ServerId(from as u16), said, now)));
            } else {
                told.push(effect);
            }
        }
    }
    told
}

#[test]
fn whoever_asked_for_what_is_begun_elsewhere_and_will_be_late_does_not_ask_others() {
    let homes = || [(resource(), 1), (other(), 0)];
    let mut idle = Desk::default();
    assert!(idle.add(other(), &executor(), START));
    let mut nodes = [planner(0, idle, homes()), planner(1, desk(), homes())];
    let task = one(1, 65_000, 60_000);
    let id = task.id;
    let effects = nodes[0].submit(task, START);
    let told = talk(&mut nodes, 0, effects, START);
    assert!(matches!(told[..], [Effect::Promised { .. }]), "{told:?}");
    nodes[0].begin(id);
    // Another could do it by now.
    nodes[0].revise(id, &[resource(), other()], &[]);
    let effects = begin_and_slow_down(&mut nodes[1], id, Timestamp(10_000));
    let told = talk(&mut nodes, 1, effects, Timestamp(10_000));
    assert_eq!(told, [Effect::Lost { task: id }, Effect::Refused { task: id, earliest: None }]);
    assert_eq!(nodes.each_ref().map(Node::open), [0, 0]);
}

#[test]
fn the_time_in_which_something_else_was_done_counts_for_that_alone() {
    let mut desk = Desk::default();
    assert!(desk.add(resource(), &always(Discipline::Preemptive), START));
    let (first, second) = (one(1, 200, 50), one(2, 300, 60));
    for task in [&first, &second] {
        desk.guarantee(task).expect("it fits");
    }
    desk.begin(first.id);
    desk.pass(Timestamp(50));
    desk.end(first.id);
    desk.pass(Timestamp(70));
    // That the second was begun before the first is told only now.
    desk.begin_since(second.id, START);
    let left = desk.works_on(&resource());
    assert_eq!(left, [Some(Work(40))], "20 of 60 were done since the first");
}

#[test]
fn what_takes_somebody_besides_goes_on_also_if_they_are_looked_at_anew() {
    let mut desk = desk();
    desk.occupy(&resource(), &[Some(Timestamp(10))]);
    let slower = Setup { supply: Supply::always_with(50, START), ..executor() };
    for (setup, earliest) in [(executor(), 15), (slower, 20), (executor(), 15)] {
        desk.refit(&resource(), &setup, START);
        assert_eq!(desk.earliest(&one(1, 20, 5)), Some(Timestamp(earliest)));
    }
    desk.pass(Timestamp(10));
    desk.refit(&resource(), &executor(), Timestamp(10));
    assert_eq!(desk.turn_for(&resource(), Work(1), Timestamp(10)), Some(0));
}

#[test]
fn what_was_done_before_somebody_is_looked_at_anew_does_not_count_for_something_else() {
    let mut desk = Desk::default();
    let setup = always(Discipline::Preemptive);
    desk.add(resource(), &setup, START);
    let (first, second) = (one(1, 100, 50), one(2, 200, 60));
    for task in [&first, &second] {
        desk.guarantee(task).expect("it fits");
    }
    desk.begin(first.id);
    desk.pass(Timestamp(50));
    desk.end(first.id);
    desk.refit(&resource(), &setup, Timestamp(50));
    desk.pass(Timestamp(60));
    // It is told late that it was begun, and who began it was busy with the first.
    desk.begin_since(second.id, Timestamp(10));
    assert_eq!(desk.works_on(&resource()), [Some(Work(50))]);
}
