//! Whatever happens at a desk, the plan of a lane and the plan ahead of it tell the same story, and nobody is made late by
//! what is promised or by making way.

use std::collections::BTreeSet;

use legwork_model::id::InstanceId;
use proptest::prelude::*;

use super::*;
use crate::supply::Span;

#[derive(Clone, Copy, Debug)]
enum Happening {
    /// Released so much later, so much time more than it takes, so much work, how important.
    Asked(i64, i64, i64, u8),
    /// The same of a step of a case that is more important than all.
    Holds(u128, i64, i64, i64),
    Takes(usize),
    GoesAhead(usize),
    Drops(usize),
    /// Somebody does something with what they have promised.
    Does(Deed, usize),
    Passes(i64),
    IsLookedAtAnew(bool),
    Occupies(i64),
    Shades(i64),
    GivesUp,
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Ends,
    Begins,
    BeganBefore(i64),
    Leaves,
    Doubts,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        1 => Just(Deed::Ends),
        2 => Just(Deed::Begins),
        1 => (0_i64..5).prop_map(Deed::BeganBefore),
        1 => Just(Deed::Leaves),
        1 => Just(Deed::Doubts),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    let which = || 0_usize..20;
    prop_oneof![
        6 => (0_i64..10, 0_i64..24, 1_i64..8, 0_u8..4)
            .prop_map(|(release, more, cost, priority)| Happening::Asked(release, more, cost, priority)),
        5 => (1_u128..3, 0_i64..10, 0_i64..15, 1_i64..8)
            .prop_map(|(case, release, more, cost)| Happening::Holds(case, release, more, cost)),
        4 => which().prop_map(Happening::Takes),
        3 => which().prop_map(Happening::GoesAhead),
        1 => which().prop_map(Happening::Drops),
        6 => (deed(), which()).prop_map(|(deed, which)| Happening::Does(deed, which)),
        2 => (1_i64..4).prop_map(Happening::Passes),
        1 => any::<bool>().prop_map(Happening::IsLookedAtAnew),
        1 => (0_i64..5).prop_map(Happening::Occupies),
        1 => (0_i64..8).prop_map(Happening::Shades),
        1 => Just(Happening::GivesUp),
    ]
}

/// How somebody works.
#[derive(Clone, Copy, Debug)]
struct Works {
    discipline: Discipline,
    at_once: usize,
    /// All the time, by day, or half of it.
    hours: u8,
    has_regular_work: bool,
    has_jobs: bool,
    is_lagging: bool,
}

fn works() -> impl Strategy<Value = Works> {
    (any::<bool>(), 1_usize..3, 0_u8..3, any::<[bool; 3]>()).prop_map(
        |(can_put_aside, at_once, hours, [has_regular_work, has_jobs, is_lagging])| {
            let (discipline, has_jobs, is_lagging) = match can_put_aside {
                true => (Discipline::Preemptive, has_jobs, false),
                false => (Discipline::NonPreemptive, false, is_lagging),
            };
            Works { discipline, at_once, hours, has_regular_work, has_jobs, is_lagging }
        },
    )
}

impl Works {
    fn can_put_aside(self) -> bool {
        self.discipline == Discipline::Preemptive
    }

    fn setup(self) -> Setup {
        let days = |length: i64, share: u32| {
            let day = move |day: i64| Span {
                from: Timestamp(day * 10),
                to: Timestamp(day * 10 + length),
                share,
            };
            Supply::new((0..30).map(day))
        };
        let supply = match self.hours {
            0 => Supply::always(Timestamp(0)),
            1 => days(8, 100),
            _ => days(9, 50),
        };
        let load = Load { period: Work(9), cost: Work(2), is_attended: false };
        let job = |day: i64| {
            let (release, deadline) = (Timestamp(day * 12), Timestamp(day * 12 + 12));
            (Window { release, deadline }, Work(2))
        };
        Setup {
            supply,
            discipline: self.discipline,
            at_once: self.at_once,
            loads: self.has_regular_work.then_some(load).into_iter().collect(),
            jobs: (0..if self.has_jobs { 10 } else { 0 }).map(job).collect(),
            lag: Work(if self.is_lagging { 2 } else { 0 }),
        }
    }
}

fn one() -> ResourceId {
    ResourceId::Executor("one".into())
}

struct World {
    desk: Desk,
    works: Works,
    now: i64,
    held: Vec<TaskId>,
}

impl World {
    fn task(&self, id: TaskId, (release, more, cost): (i64, i64, i64), priority: u8) -> Task {
        let release = self.now + release;
        let deadline = Timestamp(release + cost + more);
        let window = Window { release: Timestamp(release), deadline };
        let task = Task::new(id, window, Work(cost), vec![one()]);
        Task { priority, may_abort: true, ..task }
    }

    fn late(&mut self) -> BTreeSet<TaskId> {
        self.desk.endangered(Timestamp(self.now)).into_iter().collect()
    }

    fn happens(&mut self, number: u32, what: Happening) -> Result<(), TestCaseError> {
        let any = |of: Vec<TaskId>, which: usize| (!of.is_empty()).then(|| of[which % of.len()]);
        let now = Timestamp(self.now);
        match what {
            Happening::Asked(release, more, cost, priority) => {
                let id = TaskId::new(InstanceId(100 + u128::from(number)), 0);
                self.ask(&self.task(id, (release, more, cost), priority))?;
            }
            Happening::Holds(case, release, more, cost) => {
                let id = TaskId::new(InstanceId(case), number);
                let task = self.task(id, (release, more, cost), 4);
                if self.desk.guarantee(&task).is_none() && self.desk.hold_room(&task).is_some() {
                    self.held.push(id);
                }
            }
            Happening::Takes(which) => {
                if let Some(id) = any(self.held.clone(), which) {
                    self.held.retain(|it| *it != id);
                    self.desk.take_room(id);
                }
            }
            Happening::GoesAhead(which) => {
                if let Some(id) = any(self.desk.taken.keys().copied().collect(), which) {
                    self.go_ahead(id)?;
                }
            }
            Happening::Drops(which) => {
                let all = self.held.iter().chain(self.desk.taken.keys()).copied().collect();
                if let Some(id) = any(all, which) {
                    self.held.retain(|it| *it != id);
                    self.desk.drop_room(id);
                }
            }
            Happening::Passes(hours) => {
                self.now += hours;
                self.desk.pass(Timestamp(self.now));
            }
            Happening::IsLookedAtAnew(is_otherwise) => {
                let hours = (self.works.hours + u8::from(is_otherwise)) % 3;
                self.desk.refit(&one(), &Works { hours, ..self.works }.setup(), now);
            }
            Happening::Occupies(hours) if !self.works.can_put_aside() => {
                let until = (hours > 0).then_some(Timestamp(self.now + hours));
                self.desk.occupy(&one(), &[until]);
            }
            Happening::Shades(hours) if !self.works.can_put_aside() => {
                let until = (hours > 2).then_some(Timestamp(self.now + hours));
                self.desk.shade(&one(), until);
            }
            Happening::Occupies(_) | Happening::Shades(_) => {}
            Happening::GivesUp => {
                for (whose, lane) in self.desk.endangered_lanes() {
                    while let Some(id) = self.desk.first_to_give_up(&whose, lane, now) {
                        prop_assert!(self.desk.give_up(id).is_some());
                    }
                }
            }
            Happening::Does(deed, which) => {
                if let Some(id) = any(self.desk.placed.keys().copied().collect(), which) {
                    self.does(id, deed);
                }
            }
        }
        Ok(())
    }

    fn does(&mut self, id: TaskId, deed: Deed) {
        let (desk, now, can_put_aside) = (&mut self.desk, self.now, self.works.can_put_aside());
        match deed {
            Deed::Ends => drop(desk.end(id)),
            Deed::Leaves => desk.leave(id),
            Deed::Doubts => desk.doubt(id),
            Deed::BeganBefore(ago) if can_put_aside && !desk.is_begun(id) => {
                desk.begin_since(id, Timestamp(now - ago));
            }
            Deed::Begins if can_put_aside || desk.turn_of(id, Timestamp(now)).is_some() => {
                desk.begin(id);
            }
            Deed::BeganBefore(_) | Deed::Begins => {}
        }
    }

    fn ask(&mut self, task: &Task) -> Result<(), TestCaseError> {
        let before = self.late();
        let earliest = self.desk.clone().earliest(task).filter(|_| self.works.can_put_aside());
        if let Some(earliest) = earliest {
            let could = |deadline: i64| {
                let window = Window { deadline: Timestamp(deadline), ..task.window };
                self.desk.clone().could(&Task { window, ..task.clone() })
            };
            prop_assert!(could(earliest.0), "not by {}", earliest.0);
            prop_assert!(!could(earliest.0 - 1), "before {}", earliest.0);
        }
        if self.desk.guarantee(task).is_some() {
            prop_assert!(self.late().is_subset(&before), "somebody is late for it");
        }
        Ok(())
    }

    fn go_ahead(&mut self, id: TaskId) -> Result<(), TestCaseError> {
        let (before, desk) = (self.late(), self.desk.clone());
        let Some(Ok(removed)) = self.desk.make_way(id) else { return Ok(()) };
        let late = self.late();
        prop_assert!(late.is_subset(&before), "somebody else is late: {before:?} {late:?}");
        prop_assert!(self.desk.lane_of(id).is_some());
        for task in removed {
            // Who can put it aside may have begun it after it was promised that it makes way.
            let is_begun = desk.is_begun(task.id) && !self.works.can_put_aside();
            prop_assert!(!is_begun && !desk.is_out(task.id));
            let reservation = desk.reservation(task.id);
            let Some(Reservation { lane, window, .. }) =
                reservation.filter(|_| before.is_empty() && self.works.can_put_aside())
            else {
                continue;
            };
            let resource = self.desk.resources.get(&one());
            let fits = |lane: &Lane| lane.plan.clone().fits(window, task.service);
            let fits = resource.is_some_and(|resource| fits(&resource.lanes[lane]));
            prop_assert!(!fits, "{task:?} made way for nothing");
        }
        Ok(())
    }

    fn is_sound(&self) -> Result<(), TestCaseError> {
        let Some(resource) = self.desk.resources.get(&one()) else { return Ok(()) };
        for (number, lane) in resource.lanes.iter().enumerate() {
            lane.plan.is_sound();
            let image = lane.plan.image();
            let tasks: BTreeSet<Ticket> = lane.tasks.keys().copied().collect();
            prop_assert_eq!(image.tickets(), tasks, "what is in the plan has a task");
            for (ticket, id) in &lane.tasks {
                let placed = self.desk.placed.get(id);
                prop_assert!(placed.is_some_and(|it| (it.ticket, it.lane) == (*ticket, number)));
            }
            prop_assert!(lane.out.iter().all(|ticket| lane.tasks.contains_key(ticket)));
            let Some(rooms) = &lane.rooms else { continue };
            rooms.ahead.is_sound();
            prop_assert!(!rooms.all.is_empty());
            prop_assert!(rooms.others.iter().all(|ticket| lane.tasks.contains_key(ticket)));
            let own: BTreeSet<Ticket> = rooms.all.iter().map(|room| room.ticket).collect();
            prop_assert_eq!(own.len(), rooms.all.len());
            prop_assert!(own.iter().all(|ticket| !lane.tasks.contains_key(ticket)));
            let make_way = rooms.others.iter().copied().filter(|ticket| !lane.is_given(*ticket));
            let make_way: BTreeSet<Ticket> = make_way.collect();
            let ahead = rooms.ahead.image();
            prop_assert!(own.is_subset(&ahead.tickets()));
            prop_assert_eq!(image.without(&make_way), ahead.without(&own), "the plans are apart");
        }
        for (id, taken) in &self.desk.taken {
            prop_assert!(!self.desk.placed.contains_key(id));
            let room = taken.in_lane(&resource.lanes).and_then(|lane| lane.room(*id));
            prop_assert!(room.is_some_and(|room| room.is_taken));
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn both_plans_of_a_lane_tell_the_same_and_nobody_is_made_late(
        happenings in prop::collection::vec(happening(), 1..40),
        works in works(),
    ) {
        let mut desk = Desk::default();
        desk.add(one(), &works.setup(), Timestamp(0));
        let mut world = World { desk, works, now: 0, held: Vec::new() };
        for (number, what) in (0..).zip(happenings) {
            world.happens(number, what)?;
            world.is_sound()?;
        }
    }
}
