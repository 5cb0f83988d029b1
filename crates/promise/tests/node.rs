//! Planners that promise for each other, over a network on which anything can happen to a message.

mod network;
mod two;
mod works;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_promise::{
    Change, Displaces, Effect, Noted, Only, Part, Policy, Said, Strategy as Asking, Task, TaskId,
    Window, Work,
};
use network::{BUSY, DELAY, Happened, Net, Setting};
use proptest::prelude::*;
use two::{NOW, Two, is_promised_at, one, task};

fn asking() -> impl Strategy<Value = Asking> {
    prop_oneof![
        1 => Just(Asking::Local),
        1 => Just(Asking::Random),
        1 => Just(Asking::Focused),
        2 => Just(Asking::Bidding),
        4 => Just(Asking::Flexible),
    ]
}

fn setting() -> impl Strategy<Value = Setting> {
    let fault = (1..BUSY, 0_usize..4, 1_i64..60);
    (
        (any::<u64>(), 3_usize..=4, 1_usize..160, asking(), any::<bool>(), any::<bool>()),
        (0_u64..40, 0_u64..30, 1_u64..9, any::<bool>(), prop::collection::vec(fault, 0..4)),
        (any::<bool>(), 0_u64..=100),
    )
        .prop_map(|(first, (lost, doubled, delay_max, comes_back, faults), taking)| {
            let (asks_first, goes_ahead) = taking;
            let (seed, nodes, tasks, strategy, removes, can_put_aside) = first;
            Setting {
                seed,
                nodes,
                tasks,
                strategy,
                removes,
                can_put_aside,
                lost,
                doubled,
                delay_max,
                comes_back,
                faults,
                asks_first,
                goes_ahead,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn everybody_is_answered_once_promises_are_kept_and_nothing_is_left(setting in setting()) {
        let mut net = Net::new(setting);
        net.run();
        net.is_over();
    }

    #[test]
    fn for_a_task_no_more_is_said_than_is_said_here(setting in setting(), nodes in 3_usize..=9) {
        let delay_max = DELAY as u64;
        let calm = Setting { nodes, lost: 0, doubled: 0, delay_max, faults: Vec::new(), ..setting };
        let mut net = Net::new(calm);
        net.run();
        net.is_over();
        let (others, parts) = (nodes - 1, 4);
        let [whole, apart] = net.messages();
        // That it is to be taken, that it was, once more because it takes a while, that this was heard, and that it goes
        // ahead.
        let later = 5;
        // That it is taken back, that this was heard, and that the promise it has overtaken is not wanted.
        let again = 3;
        prop_assert!(whole <= 3 * others + 3 + later + again, "{whole}");
        prop_assert!(apart <= 3 * others + 3 + 4 * others + parts + again, "{apart}");
    }

    #[test]
    fn nobody_makes_way_for_what_does_not_go_ahead(setting in setting()) {
        let calm = Setting {
            strategy: Asking::Flexible,
            removes: true,
            lost: 0,
            delay_max: DELAY as u64,
            faults: Vec::new(),
            asks_first: true,
            goes_ahead: 0,
            ..setting
        };
        let mut net = Net::new(calm);
        net.run();
        net.is_over();
        prop_assert_eq!(net.happened.removed, 0);
    }
}

#[test]
fn tasks_make_way_are_lost_taken_apart_and_promised_elsewhere() {
    let mut all = [0; 5];
    for seed in 0..60 {
        let (strategy, faults) = (Asking::Flexible, vec![(60, 1, 30), (140, 2, 20)]);
        let (lost, doubled, delay_max) = (10, 10, 4);
        let (nodes, tasks, removes) = (3, 140, true);
        let mut net = Net::new(Setting {
            seed,
            nodes,
            tasks,
            strategy,
            removes,
            can_put_aside: seed % 3 > 0,
            lost,
            doubled,
            delay_max,
            comes_back: seed % 2 == 0,
            faults,
            asks_first: false,
            goes_ahead: 70,
        });
        net.run();
        net.is_over();
        let Happened { removed, lost, in_parts, elsewhere, refused } = net.happened;
        for (sum, count) in all.iter_mut().zip([removed, lost, in_parts, elsewhere, refused]) {
            *sum += count;
        }
    }
    assert!(all.iter().all(|count| *count > 5), "{all:?}");
}

#[test]
fn room_is_held_until_it_is_taken_and_what_is_lost_later_takes_it_at_once() {
    let mut two = Two::new();
    let (busy, minor) = (task(1, 1_000, 9, &[0]), task(2, 5_000, 1, &[0]));
    let held = Task { displaces: Displaces::WhenTold, ..task(3, 1_500, 5, &[0, 1]) };
    two.does(|node| node.submit(busy.clone(), NOW));
    assert!(is_promised_at(&two.does(|node| node.submit(held.clone(), NOW)), held.id, 1));
    assert!(is_promised_at(&two.does(|node| node.take_room(held.id, NOW)), held.id, 1));
    assert_eq!(two.does(|node| node.go_ahead([held.id].into_iter(), NOW)), []);
    two.does(|node| node.finish(busy.id));
    two.does(|node| node.submit(Task { service: Work(4_500), ..minor.clone() }, NOW));
    // Its planner is lost: it is urgent, and who is here makes way now and not when somebody says so.
    let told = two.does(|node| node.lose(ServerId(1), NOW));
    assert!(told.contains(&Effect::Lost { task: held.id }), "{told:?}");
    assert!(told.contains(&Effect::Removed { task: minor.id }), "{told:?}");
    assert!(is_promised_at(&told, held.id, 0), "{told:?}");
    assert!(two.nodes[0].desk.task(held.id).is_some());
}

/// What the first would tell the second if it wanted a task no more.
fn cancellation(two: &Two, id: TaskId) -> Option<Said> {
    said(two.nodes[0].clone().finish(id))
}

fn said(effects: Vec<Effect>) -> Option<Said> {
    effects.into_iter().find_map(|effect| match effect {
        Effect::Say(said) => Some(said),
        Effect::Promised { .. }
        | Effect::Refused { .. }
        | Effect::Removed { .. }
        | Effect::Lost { .. } => None,
    })
}

#[test]
fn a_late_copy_of_an_old_cancellation_meets_no_promise_after_a_restart_of_either() {
    let mut two = Two::new();
    let asked = task(1, 5_000, 1, &[1]);
    let promise = |two: &mut Two| {
        assert!(is_promised_at(&two.does(|node| node.submit(asked.clone(), NOW)), asked.id, 1));
    };
    promise(&mut two);
    let old = cancellation(&two, asked.id).expect("it is cancelled");
    two.does(|node| node.finish(asked.id));
    promise(&mut two);
    // The one that has promised it.
    let held = two.nodes[1].desk.reservation(asked.id).expect("it is promised");
    let asker = two.nodes[1].asker_and_attempt(asked.id).expect("it is promised");
    two.nodes[1] = Two::new().nodes[1].clone();
    two.nodes[1].restore(held, asker, None);
    two.nodes[1].hear(ServerId(0), old, NOW);
    assert!(two.nodes[1].desk.task(asked.id).is_some());
    // The one that asked: it can cancel what it asked for before, and not what it asks for later.
    let later = Timestamp(NOW.0 + 50);
    two.nodes[0] = Two::new().nodes[0].clone();
    two.nodes[0].expect(asked.clone(), ServerId(1), NOW, later);
    let old = cancellation(&two, asked.id).expect("it is cancelled");
    two.does(|node| node.finish(asked.id));
    assert!(two.nodes[1].desk.task(asked.id).is_none());
    promise(&mut two);
    two.nodes[1].hear(ServerId(0), old, later);
    assert!(two.nodes[1].desk.task(asked.id).is_some());
}

#[test]
fn a_late_copy_of_an_old_cancellation_does_not_silence_that_a_promise_was_taken_back() {
    let mut two = Two::new();
    let asked = task(1, 5_000, 1, &[1]);
    let submit = |two: &mut Two| two.does(|node| node.submit(asked.clone(), NOW));
    submit(&mut two);
    let old = cancellation(&two, asked.id).expect("it is cancelled");
    two.does(|node| node.finish(asked.id));
    assert!(is_promised_at(&submit(&mut two), asked.id, 1));
    // It is lost, what is said of that is lost too, and the one that has said it is down for a while.
    two.nodes[1].lose_resource(&one(1), NOW);
    let noted = two.nodes[1].take_noted();
    let [Noted::TakenBack { task, asker, attempt, is_lost, goes_on }] = noted[..] else {
        unreachable!("{noted:?}")
    };
    two.nodes[1] = Two::new().nodes[1].clone();
    two.nodes[1].tell_taken_back(task, (asker, attempt), (is_lost, goes_on), NOW);
    two.nodes[1].hear(ServerId(0), old, NOW);
    assert_eq!(two.nodes[1].take_noted(), [], "nobody knows of it yet");
    let said = said(two.nodes[1].tick(NOW)).expect("it says so again");
    let told = two.does(|node| node.hear(ServerId(1), said, NOW));
    assert!(told.contains(&Effect::Lost { task }), "{told:?}");
    assert_eq!(two.nodes[1].take_noted(), [Noted::Told { task }]);
}

#[test]
fn nobody_is_told_of_room_that_is_not_taken() {
    let mut two = Two::new();
    let minor = Task { service: Work(4_500), ..task(1, 5_000, 1, &[1]) };
    let held = Task { displaces: Displaces::WhenTold, ..task(2, 1_500, 5, &[1]) };
    assert!(is_promised_at(&two.does(|node| node.submit(minor.clone(), NOW)), minor.id, 1));
    assert!(is_promised_at(&two.does(|node| node.submit(held.clone(), NOW)), held.id, 1));
    assert_eq!(two.does(|node| node.finish(held.id)), []);
    assert!(two.nodes[1].desk.task(minor.id).is_some());
    assert!(is_promised_at(&two.does(|node| node.submit(held.clone(), NOW)), held.id, 1));
    let told = two.does(|node| node.take_room(held.id, NOW));
    assert!(told.len() == 1 && is_promised_at(&told, held.id, 1), "{told:?}");
    let told = two.does(|node| node.go_ahead([held.id].into_iter(), NOW));
    assert!(told.contains(&Effect::Removed { task: minor.id }), "{told:?}");
    assert!(two.nodes[1].desk.task(minor.id).is_none());
    assert!(two.nodes[1].desk.task(held.id).is_some());
}

#[test]
fn who_can_be_reached_again_is_asked_after_all_promises_some_at_a_time() {
    let mut two = Two::new();
    for number in 0..250 {
        two.does(|node| node.submit(task(number, 10_000_000, 1, &[1]), NOW));
    }
    let said = |effects: Vec<Effect>| {
        effects.iter().filter(|effect| matches!(effect, Effect::Say(_))).count()
    };
    let mut asked = vec![said(two.nodes[1].ask_again(ServerId(0), NOW))];
    for turn in 1..=2 {
        asked.push(said(two.nodes[1].tick(Timestamp(NOW.0 + turn * 100))));
    }
    assert_eq!(asked, [100, 100, 50]);
}

#[test]
fn who_was_away_for_an_hour_hears_at_once_what_was_taken_back() {
    let mut two = Two::new();
    let asked = task(1, 10_000_000, 1, &[1]);
    two.does(|node| node.submit(asked.clone(), NOW));
    two.nodes[1].lose_resource(&one(1), NOW);
    // Nobody hears it. It is said again and again, and not less and less often for ever.
    let (mut at, mut times) = (NOW, Vec::new());
    while at < Timestamp(3_600_000) {
        at = two.nodes[1].next_due().expect("it is said again");
        assert!(said(two.nodes[1].tick(at)).is_some());
        times.push(at.0);
    }
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 60_000), "{times:?}");
    let back = Timestamp(at.0 + 1_000);
    assert_eq!(two.nodes[1].tick(back), [], "it is not due yet");
    let said = said(two.nodes[1].ask_again(ServerId(0), back)).expect("it is said at once");
    let told = two.does(|node| node.hear(ServerId(1), said, back));
    assert!(told.contains(&Effect::Lost { task: asked.id }), "{told:?}");
}

#[test]
fn who_can_do_a_task_from_now_on_is_put_down_if_they_are_others() {
    let mut two = Two::new();
    let asked = task(1, 5_000, 1, &[0]);
    two.does(|node| node.submit(asked.clone(), NOW));
    two.nodes[0].desk.take_changes();
    let within = Window { release: NOW, deadline: Timestamp(4_000) };
    let only = [Only { who: one(0), within }];
    let revised = [(&only[..], 1), (&only[..], 0), (&[][..], 1), (&[][..], 0)];
    for (only, noted) in revised {
        two.nodes[0].revise(asked.id, &[one(0)], only);
        let expected = vec![Change::Reserved(asked.id); noted];
        assert_eq!(two.nodes[0].desk.take_changes(), expected);
    }
}

#[test]
fn what_made_way_goes_to_another_hand_of_the_same_one_if_that_has_the_time() {
    let mut two = Two::with(2, &Policy::default());
    let task = |number, service, deadline, priority| Task {
        service: Work(service),
        ..task(number, deadline, priority, &[0])
    };
    let (minor, major, new) = (task(1, 6, 10, 1), task(2, 3, 5, 9), task(3, 5, 5, 5));
    for task in [&minor, &major] {
        assert!(is_promised_at(&two.does(|node| node.submit(task.clone(), NOW)), task.id, 0));
    }
    let told = two.does(|node| node.submit(new.clone(), NOW));
    assert!(told.contains(&Effect::Removed { task: minor.id }), "{told:?}");
    assert!(is_promised_at(&told, minor.id, 0) && is_promised_at(&told, new.id, 0), "{told:?}");
}

#[test]
fn nobody_elsewhere_makes_way_for_what_has_made_way() {
    let mut two = Two::new();
    let long = |number, deadline, priority, who: &[u16]| Task {
        service: Work(4_000),
        ..task(number, deadline, priority, who)
    };
    let (least, minor) = (long(1, 6_000, 1, &[1]), long(2, 5_000, 2, &[0, 1]));
    for task in [&least, &minor] {
        two.does(|node| node.submit(task.clone(), NOW));
    }
    let told = two.does(|node| node.submit(long(3, 4_500, 5, &[0]), NOW));
    assert!(told.contains(&Effect::Removed { task: minor.id }), "{told:?}");
    assert!(!told.contains(&Effect::Removed { task: least.id }), "{told:?}");
    assert!(two.nodes[1].desk.task(least.id).is_some());
}

/// A task of two parts that nobody can do as a whole, and which is more important than others.
fn in_two_parts(number: u128) -> Task {
    let part = || Part { service: Work(4_000), after: Vec::new(), carry: Work(0) };
    let parts = vec![part(), part()];
    Task { service: Work(8_000), parts, ..task(number, 5_000, 5, &[0, 1]) }
}

#[test]
fn nobody_makes_way_for_a_part() {
    let mut two = Two::new();
    let minor = Task { service: Work(4_500), ..task(1, 6_000, 1, &[0]) };
    let major = Task { service: Work(4_000), ..task(2, 4_500, 9, &[1]) };
    two.does(|node| node.submit(minor.clone(), NOW));
    assert!(is_promised_at(&two.does(|node| node.submit(major.clone(), NOW)), major.id, 1));
    let apart = in_two_parts(3);
    let told = two.does(|node| node.submit(apart.clone(), NOW));
    assert_eq!(told, [Effect::Refused { task: apart.id, earliest: None }]);
    assert!(two.nodes[0].desk.task(minor.id).is_some());
}

#[test]
fn nothing_is_offered_to_others_when_a_part_is_refused_here() {
    let mut two = Two::new();
    let busy = Task { service: Work(4_000), ..task(1, 4_500, 9, &[0]) };
    // Who has promised little up to a late date seems to have the most time.
    let (few, many) = (task(2, 1_000_000, 9, &[0]), task(3, 1_000_000, 9, &[1]));
    for task in [busy, few, Task { service: Work(900_000), ..many }] {
        two.does(|node| node.submit(task.clone(), NOW));
    }
    two.offered.clear();
    let apart = in_two_parts(4);
    let told = two.does(|node| node.submit(apart.clone(), NOW));
    assert_eq!(told, [Effect::Refused { task: apart.id, earliest: None }]);
    assert_eq!(two.offered, []);
    assert_eq!(two.nodes[0].open(), 3, "what is promised, and nothing else");
}

#[test]
fn of_those_that_waited_for_a_planner_the_most_urgent_goes_first() {
    let policy = Policy { comes_back: false, removes: false, ..Policy::default() };
    let (later, sooner) = (task(1, 5_600, 1, &[1]), task(2, 5_500, 1, &[1]));
    let mut two = Two::with(1, &policy);
    // There is time for one of them.
    for (number, takes) in [(0, 2_500), (1, 4_000)] {
        let busy =
            Task { service: Work(takes), ..task(8 + u128::from(number), 5_400, 9, &[number]) };
        two.does(|node| node.submit(busy, NOW));
    }
    two.does(|node| node.lose(ServerId(1), NOW));
    for task in [&later, &sooner] {
        let task = Task { deputies: vec![one(0)], ..task.clone() };
        assert_eq!(two.does(|node| node.submit(task, NOW)), [], "it waits while it can");
    }
    let told = two.nodes[0].clone().tick(Timestamp(1_600));
    assert!(is_promised_at(&told, sooner.id, 0), "{told:?}");
    let told = two.does(|node| node.find(ServerId(1), NOW));
    assert!(is_promised_at(&told, sooner.id, 1), "{told:?}");
}

#[test]
fn what_was_taken_apart_is_promised_anew_by_the_deputy_of_whoever_is_lost() {
    let policy = Policy { comes_back: false, ..Policy::default() };
    let mut two = Two::with(1, &policy);
    two.nodes[0].deputise(ServerId(1));
    let apart = Task { window: task(1, 9_000, 5, &[]).window, ..in_two_parts(1) };
    let [here, there] =
        [0, 1].map(|at| Task { service: Work(2_000), ..task(2 + u128::from(at), 2_000, 9, &[at]) });
    for task in [&here, &there, &apart] {
        two.does(|node| node.submit(task.clone(), NOW));
    }
    let parts = two.nodes.each_ref().map(|node| node.desk.len());
    assert_eq!(parts, [2, 2], "there is time for a part everywhere, and for the whole nowhere");
    two.does(|node| node.finish(there.id));
    let told = two.nodes[1].lose(ServerId(0), NOW);
    assert!(told.contains(&Effect::Lost { task: apart.id }), "{told:?}");
    assert!(is_promised_at(&told, apart.id, 1), "{told:?}");
}

#[test]
fn what_is_kept_for_a_planner_that_comes_back_waits_for_it_while_it_can() {
    let mut two = Two::new();
    two.nodes[0].deputise(ServerId(1));
    let [sooner, later] = [6_000, 9_000].map(|due| task(due as u128, due, 1, &[0, 1]));
    for task in [&sooner, &later] {
        assert!(is_promised_at(&two.does(|node| node.submit(task.clone(), NOW)), task.id, 0));
    }
    let deputy = &mut two.nodes[1];
    assert_eq!(deputy.lose(ServerId(0), NOW), [], "both can wait");
    let due = Timestamp(2_000);
    assert_eq!(deputy.next_due(), Some(due));
    let told = deputy.tick(due);
    assert!(told.contains(&Effect::Lost { task: sooner.id }), "{told:?}");
    assert!(is_promised_at(&told, sooner.id, 1), "{told:?}");
    deputy.find(ServerId(0), due);
    assert_eq!(deputy.tick(Timestamp(8_000)), [], "it is back, with what it has promised");
    assert!(deputy.desk.task(later.id).is_none());
}

#[test]
fn who_asks_nobody_offers_no_parts_either() {
    let mut two = Two::with(1, &Policy { strategy: Asking::Local, ..Policy::default() });
    let apart = in_two_parts(1);
    let told = two.does(|node| node.submit(apart.clone(), NOW));
    assert!(matches!(told[..], [Effect::Refused { .. }]), "{told:?}");
    assert_eq!(two.offered, []);
}

#[test]
fn who_had_no_time_is_asked_again_after_a_while() {
    let mut two = Two::with(1, &Policy { strategy: Asking::Focused, ..Policy::default() });
    let busy = Task { service: Work(7_000), ..task(1, 9_000, 9, &[1]) };
    let asked = |number| task(number, 5_000, 1, &[1]);
    two.does(|node| node.submit(busy.clone(), NOW));
    two.offered.clear();
    two.does(|node| node.submit(asked(2), NOW));
    assert_eq!(two.offered, [], "it was heard that there is no time");
    let effects = two.nodes[0].submit(asked(3), Timestamp(1_700));
    assert!(said(effects).is_some(), "there may be some again");
}
