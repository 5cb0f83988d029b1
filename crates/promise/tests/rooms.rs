//! Steps of a case have room in one plan: whatever comes of it, all is in time that is promised, and room that is taken is
//! there.

#![expect(clippy::expect_used, reason = "a wrong assumption is a failed test")]

mod works;

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_promise::{Desk, Discipline, ResourceId, Setup, Task, TaskId, Window, Work};
use proptest::prelude::*;
use works::always;

const NOW: Timestamp = Timestamp(0);
const BOTH: [Discipline; 2] = [Discipline::Preemptive, Discipline::NonPreemptive];

fn one() -> ResourceId {
    ResourceId::Executor("one".into())
}

fn desk(discipline: Discipline) -> Desk {
    let mut desk = Desk::default();
    assert!(desk.add(one(), &always(discipline), NOW));
    desk
}

/// A step of a case, in a window.
fn step(id: (u128, u32), (release, deadline): (i64, i64), cost: i64, priority: u8) -> Task {
    let window = Window { release: Timestamp(release), deadline: Timestamp(deadline) };
    let id = TaskId::new(InstanceId(id.0), id.1);
    let mut task = Task::new(id, window, Work(cost), vec![one()]);
    (task.priority, task.may_abort) = (priority, true);
    task
}

/// The same for one that can begin at once.
fn due(id: (u128, u32), deadline: i64, cost: i64, priority: u8) -> Task {
    step(id, (0, deadline), cost, priority)
}

/// Three that leave somebody four hours, and two steps of a case that need eleven.
fn two_steps(discipline: Discipline) -> (Desk, [Task; 3], [Task; 2]) {
    let mut desk = desk(discipline);
    let others = [due((1, 0), 20, 6, 9), due((2, 0), 20, 4, 2), due((3, 0), 20, 6, 3)];
    let steps = [due((4, 0), 19, 8, 5), due((4, 1), 19, 3, 5)];
    for task in &others {
        desk.guarantee(task).expect("it fits");
    }
    for task in &steps {
        desk.hold_room(task).expect("there is room");
    }
    (desk, others, steps)
}

#[test]
fn room_that_is_held_for_two_steps_is_there_beside_what_is_promised_meanwhile() {
    for discipline in BOTH {
        let (mut desk, _, steps) = two_steps(discipline);
        desk.guarantee(&due((5, 0), 20, 3, 1)).expect("it fits");
        for task in &steps {
            desk.take_room(task.id).expect("there is room");
        }
    }
}

#[test]
fn room_that_is_to_be_taken_twice_is_taken_once_also_if_it_is_there_no_more() {
    let (mut desk, [_, minor, other], [first, _]) = two_steps(Discipline::NonPreemptive);
    let promise = desk.take_room(first.id);
    assert!(promise.is_some() && desk.take_room(first.id) == promise);
    for task in [&minor, &other] {
        desk.begin(task.id);
    }
    assert!(desk.has_lost_room(first.id) && desk.take_room(first.id) == promise);
    assert_eq!(desk.make_way(first.id), Some(Err(first)));
    assert_eq!(desk.len(), 3);
}

#[test]
fn the_steps_of_a_case_go_ahead_together() {
    for discipline in BOTH {
        let (mut desk, [_, minor, other], [first, second]) = two_steps(discipline);
        for task in [&first, &second] {
            desk.take_room(task.id).expect("there is room");
        }
        desk.guarantee(&due((5, 0), 20, 3, 1)).expect("it fits");
        assert_eq!(desk.make_way(first.id), Some(Ok(vec![minor, other])));
        assert_eq!(desk.endangered(NOW), []);
        assert!(desk.lane_of(second.id).is_some(), "it is in the plan as well");
        assert_eq!(desk.make_way(second.id), None);
        desk.end(first.id);
        assert_eq!(desk.endangered(NOW), []);
    }
}

#[test]
fn a_step_has_room_in_what_others_leave_to_another_step_also_if_that_is_given_back() {
    for (discipline, is_given_back) in BOTH.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let mut desk = desk(discipline);
        let minor = due((1, 0), 20, 18, 2);
        desk.guarantee(&minor).expect("it fits");
        let (first, second) = (due((2, 0), 10, 5, 5), due((2, 1), 15, 5, 5));
        for task in [&first, &second] {
            desk.hold_room(task).expect("there is room");
        }
        for task in [&first, &second] {
            desk.take_room(task.id).expect("there is room");
        }
        if is_given_back {
            desk.drop_room(first.id);
        }
        assert_eq!(desk.make_way(second.id), Some(Ok(vec![minor])));
        assert_eq!(desk.endangered(NOW), []);
    }
}

#[test]
fn what_cannot_be_put_aside_has_its_room_whatever_order_was_found_for_something_else() {
    let mut desk = desk(Discipline::NonPreemptive);
    let windows =
        [(1, 5, 1), (0, 17, 3), (5, 31, 1), (6, 13, 2), (1, 4, 1), (8, 11, 3), (5, 24, 1)];
    for (number, (release, deadline, cost)) in (10..).zip(windows.into_iter().chain([(7, 17, 5)])) {
        desk.guarantee(&step((number, 0), (release, deadline), cost, 0));
    }
    let major = due((1, 0), 7, 4, 2);
    desk.hold_room(&major).expect("there is room");
    desk.take_room(major.id).expect("there is room");
    desk.guarantee(&due((2, 0), 1, 1, 0)).expect("it fits");
    assert!(matches!(desk.make_way(major.id), Some(Ok(_))));
    assert_eq!(desk.endangered(NOW), []);
}

#[test]
fn what_was_promised_before_stays_promised_if_room_is_there_no_more() {
    let mut desk = desk(Discipline::Preemptive);
    let (late, minor) = (due((1, 0), 40, 5, 5), due((2, 0), 20, 14, 2));
    for task in [&late, &minor] {
        desk.guarantee(task).expect("it fits");
    }
    desk.hold_room(&due((1, 0), 10, 7, 5)).expect("there is room");
    desk.begin(minor.id);
    assert_eq!(desk.take_room(late.id), None);
    assert_eq!(desk.task(late.id), Some(&late));
}

#[test]
fn what_is_put_in_anew_beside_room_that_is_taken_is_not_made_late_by_it() {
    let mut desk = desk(Discipline::NonPreemptive);
    let given = step((10, 0), (0, 10), 6, 0);
    desk.guarantee(&given).expect("it fits");
    desk.begin(given.id);
    desk.guarantee(&step((11, 0), (2, 18), 5, 0)).expect("it fits");
    desk.guarantee(&step((1, 0), (8, 14), 5, 4)).expect("it fits");
    desk.pass(Timestamp(1));
    let major = step((1, 1), (1, 9), 3, 4);
    desk.hold_room(&major).expect("there is room");
    desk.take_room(major.id).expect("there is room");
    desk.guarantee(&step((12, 0), (6, 19), 1, 0)).expect("it fits");
    // Nobody knows whether it was begun.
    desk.doubt(given.id);
    assert_eq!(desk.endangered(Timestamp(1)), []);
    desk.make_way(major.id);
    assert_eq!(desk.endangered(Timestamp(1)), []);
}

#[test]
fn what_was_begun_and_waits_again_makes_way_again() {
    let mut desk = desk(Discipline::Preemptive);
    let minor = due((1, 0), 20, 5, 1);
    let fixed = due((3, 0), 20, 12, 9);
    let major = due((2, 0), 19, 4, 5);
    desk.guarantee(&minor).expect("it fits");
    desk.guarantee(&fixed).expect("it fits");
    desk.hold_room(&major).expect("there is room");
    desk.take_room(major.id).expect("there is room");
    desk.end(fixed.id);
    desk.begin(minor.id);
    desk.stop(&one(), 0);
    assert_eq!(desk.make_way(major.id), Some(Ok(Vec::new())));
    assert!(desk.could(&due((4, 0), 20, 11, 0)), "9 of 20 are promised");
}

#[test]
fn room_is_there_again_when_what_was_begun_in_it_is_done() {
    let mut desk = desk(Discipline::NonPreemptive);
    let (minor, major) = (due((1, 0), 20, 18, 1), due((2, 0), 19, 10, 5));
    desk.guarantee(&minor).expect("it fits");
    desk.hold_room(&major).expect("there is room");
    desk.take_room(major.id).expect("there is room");
    desk.begin(minor.id);
    assert!(desk.has_lost_room(major.id));
    desk.end(minor.id);
    assert!(!desk.has_lost_room(major.id));
    assert_eq!(desk.make_way(major.id), Some(Ok(Vec::new())));
}

#[test]
fn regular_work_is_not_taken_to_be_done_because_others_are_to_make_way() {
    let mut desk = Desk::default();
    let week = Window { release: NOW, deadline: Timestamp(8) };
    let setup = Setup { jobs: vec![(week, Work(3))], ..always(Discipline::Preemptive) };
    assert!(desk.add(one(), &setup, NOW));
    let (minor, major) = (due((1, 0), 5, 5, 1), step((2, 0), (3, 4), 1, 5));
    desk.guarantee(&minor).expect("it fits");
    desk.hold_room(&major).expect("there is room");
    desk.take_room(major.id).expect("there is room");
    // The less important one comes first, and nobody has begun it.
    desk.pass(Timestamp(2));
    assert_eq!(desk.make_way(major.id), Some(Ok(vec![minor])));
    assert!(desk.could(&due((3, 0), 8, 2, 1)));
    assert!(!desk.could(&due((3, 0), 8, 3, 1)), "there is as much regular work as before");
}

#[derive(Clone, Copy, Debug)]
enum Happening {
    /// When it is released, how much more time it has than it takes, how much that is, and its priority.
    Asked(i64, i64, i64, u8),
    /// The same for a step of one of two cases, at the expense of others.
    Holds(u8, i64, i64, i64),
    Takes(usize),
    GoesAhead(usize),
    GivesBack(usize),
    Ends(usize),
    /// Somebody begins what they can.
    Begins,
    /// Work goes on for some hours, if nobody is in suspense.
    Passes(i64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        5 => (0_i64..10, 0_i64..24, 1_i64..8, 0_u8..4)
            .prop_map(|(release, spare, cost, priority)| Happening::Asked(release, spare, cost, priority)),
        5 => (1_u8..3, 0_i64..10, 0_i64..15, 1_i64..8)
            .prop_map(|(case, release, spare, cost)| Happening::Holds(case, release, spare, cost)),
        5 => (0_usize..20).prop_map(Happening::Takes),
        2 => (0_usize..20).prop_map(Happening::GoesAhead),
        1 => (0_usize..20).prop_map(Happening::GivesBack),
        1 => (0_usize..20).prop_map(Happening::Ends),
        1 => Just(Happening::Begins),
        1 => (1_i64..4).prop_map(Happening::Passes),
    ]
}

/// Somebody who works by a plan, and what was promised.
struct World {
    desk: Desk,
    can_put_aside: bool,
    now: i64,
    held: Vec<TaskId>,
    taken: Vec<TaskId>,
    placed: Vec<TaskId>,
}

impl World {
    fn window(&self, release: i64, length: i64) -> (i64, i64) {
        (self.now + release, self.now + release + length)
    }

    fn happens(&mut self, number: u32, what: Happening) -> Result<(), TestCaseError> {
        match what {
            Happening::Asked(release, spare, cost, priority) => {
                let id = (100 + u128::from(number), 0);
                let task = step(id, self.window(release, cost + spare), cost, priority);
                if self.desk.guarantee(&task).is_some() {
                    self.placed.push(task.id);
                }
            }
            Happening::Holds(case, release, spare, cost) => {
                let id = (u128::from(case), number);
                let task = step(id, self.window(release, cost + spare), cost, 4);
                if self.desk.guarantee(&task).is_some() {
                    self.placed.push(task.id);
                } else if self.desk.hold_room(&task).is_some() {
                    self.held.push(task.id);
                }
            }
            Happening::Takes(which) => {
                if let Some(id) = remove(&mut self.held, which)
                    && self.desk.take_room(id).is_some()
                {
                    self.taken.push(id);
                }
            }
            Happening::GoesAhead(which) => self.go_ahead(which)?,
            Happening::GivesBack(which) => {
                let id = remove(&mut self.taken, which).or_else(|| remove(&mut self.held, which));
                id.into_iter().for_each(|id| self.desk.drop_room(id));
            }
            Happening::Ends(which) => {
                let id = remove(&mut self.placed, which);
                prop_assert!(id.is_none_or(|id| self.desk.end(id).is_some()));
            }
            Happening::Begins => self.begin(),
            Happening::Passes(hours) if self.taken.is_empty() => {
                for _ in 0..hours {
                    self.work()?;
                }
            }
            Happening::Passes(_) => {}
        }
        Ok(())
    }

    fn go_ahead(&mut self, which: usize) -> Result<(), TestCaseError> {
        let Some(id) = self.taken.get(which % self.taken.len().max(1)).copied() else {
            return Ok(());
        };
        let made_way = self.desk.make_way(id);
        let Some(Ok(removed)) = made_way else {
            return Err(TestCaseError::fail(format!("{made_way:?}")));
        };
        for task in removed {
            prop_assert!(self.placed.contains(&task.id));
            prop_assert!(task.priority < 4, "it is as important");
            self.placed.retain(|other| *other != task.id);
        }
        let desk = &self.desk;
        let ahead = self.taken.extract_if(.., |it| desk.lane_of(*it).is_some());
        let ahead: Vec<TaskId> = ahead.collect();
        prop_assert!(ahead.contains(&id));
        self.placed.extend(ahead);
        Ok(())
    }

    /// Who can put work aside begins what is due first, who cannot what has its turn.
    fn begin(&mut self) {
        let now = Timestamp(self.now);
        let plan = self.desk.plan_mut(&one(), 0).expect("it is here");
        let (next, is_free) = (plan.next(), plan.running().is_none());
        let next = next.and_then(|it| self.desk.task_of(&one(), 0, it));
        let has_turn = |id: &TaskId, desk: &mut Desk| {
            let task = desk.task(*id).expect("it is promised");
            task.window.release <= now && desk.turn_of(*id, now).is_some()
        };
        let next = match self.can_put_aside {
            true => next.filter(|_| self.taken.is_empty()),
            false if is_free => self.placed.iter().copied().find(|id| has_turn(id, &mut self.desk)),
            false => None,
        };
        next.into_iter().for_each(|id| self.desk.begin(id));
    }

    /// An hour passes, with work by the plan.
    fn work(&mut self) -> Result<(), TestCaseError> {
        self.begin();
        self.now += 1;
        let now = Timestamp(self.now);
        self.desk.pass(now);
        let plan = self.desk.plan_mut(&one(), 0).expect("it is here");
        let done = plan.running().filter(|it| plan.left(*it) == Some(Work(0)));
        if let Some(id) = done.and_then(|it| self.desk.task_of(&one(), 0, it)) {
            let task = self.desk.end(id).expect("it is promised");
            self.placed.retain(|other| *other != id);
            prop_assert!(now <= task.window.deadline, "{task:?}");
        }
        Ok(())
    }

    /// Nothing is late, and nothing has got lost.
    fn check(&mut self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.desk.endangered(Timestamp(self.now)), vec![]);
        prop_assert_eq!(self.desk.len(), self.placed.len() + self.taken.len());
        prop_assert!(self.taken.iter().all(|id| !self.desk.has_lost_room(*id)));
        Ok(())
    }
}

fn remove(from: &mut Vec<TaskId>, which: usize) -> Option<TaskId> {
    (!from.is_empty()).then(|| from.remove(which % from.len()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn whatever_comes_of_room_all_is_in_time_and_what_is_taken_can_go_ahead(
        happenings in prop::collection::vec(happening(), 1..30),
        can_put_aside: bool,
    ) {
        let discipline =
            if can_put_aside { Discipline::Preemptive } else { Discipline::NonPreemptive };
        let (held, taken, placed) = (Vec::new(), Vec::new(), Vec::new());
        let desk = desk(discipline);
        let mut world = World { desk, can_put_aside, now: 0, held, taken, placed };
        for (number, what) in (0..).zip(happenings) {
            world.happens(number, what)?;
            world.check()?;
        }
        // In the end each goes ahead or is given back.
        while let Some(id) = world.taken.first().copied() {
            if id.step % 2 == 0 {
                world.go_ahead(0)?;
            } else {
                world.happens(0, Happening::GivesBack(0))?;
            }
            world.check()?;
        }
        for _ in 0..200 {
            world.work()?;
            world.check()?;
        }
        prop_assert!(world.placed.is_empty(), "all is done, in time");
    }
}
