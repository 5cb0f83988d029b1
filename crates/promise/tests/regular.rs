//! Machines that do something regularly at times that nobody knows: what they promise is kept all the same.

#![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

mod works;

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_promise::{
    Desk, Discipline, Plan, ResourceId, Setup, Supply, Task, TaskId, Ticket, WHOLE, Window, Work,
};
use proptest::prelude::*;
use works::always;

const HORIZON: usize = 600;

/// So much in every period, in each of them from this part of it on.
#[derive(Clone, Debug)]
struct Regular {
    every: usize,
    takes: usize,
    places: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    at: usize,
    release: i64,
    cost: i64,
    /// How much later it is due than it could be.
    time: i64,
    /// How much of it is needed in fact, in per cent.
    needed: i64,
}

fn regular() -> impl Strategy<Value = Regular> {
    (
        8_usize..60,
        1_usize..6,
        prop::collection::vec(prop_oneof![Just(0.0), Just(1.0), 0.0..1.0], 80),
    )
        .prop_map(|(every, takes, places)| Regular {
            every,
            takes: takes.min(every * 2 / 5),
            places,
        })
}

fn asked() -> impl Strategy<Value = Asked> {
    (0..HORIZON / 2, 0_i64..60, 1_i64..40, 0_i64..30, prop_oneof![Just(100), 20_i64..=100])
        .prop_map(|(at, release, cost, time, needed)| Asked { at, release, cost, time, needed })
}

/// When the machine does what it does regularly.
fn taken(all: &[Regular]) -> Vec<bool> {
    let mut taken = vec![false; HORIZON * 2];
    for Regular { every, takes, places } in all {
        for (period, place) in (0..taken.len() / every).zip(places.iter().cycle()) {
            let from = (*place * (every - takes) as f64) as usize;
            let slots = (from..*every).chain((0..from).rev()).map(|slot| period * every + slot);
            let free: Vec<usize> = slots.filter(|slot| !taken[*slot]).take(*takes).collect();
            free.into_iter().for_each(|slot| taken[slot] = true);
        }
    }
    taken
}

fn plan(all: &[Regular]) -> Plan {
    let part = |one: &Regular| (one.takes * 100).div_ceil(one.every) as u32;
    let share = WHOLE - all.iter().map(part).sum::<u32>();
    let lag = all.iter().map(|one| 2 * one.takes as i64).sum::<i64>();
    let supply = Supply::always_with(share, Timestamp(0));
    Plan::new(supply, Discipline::NonPreemptive, Timestamp(0)).with_lag(Work(lag))
}

/// A promise: what is needed of it yet, and its deadline.
type Open = (Ticket, i64, i64);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_done_regularly_breaks_no_promise_whenever_it_is_done(
        all in prop::collection::vec(regular(), 1..3),
        tasks in prop::collection::vec(asked(), 1..20),
    ) {
        let (mut plan, taken) = (plan(&all), taken(&all));
        let mut open: Vec<Open> = Vec::new();
        let mut running: Option<Open> = None;
        for (now, is_taken) in taken.into_iter().enumerate().take(HORIZON) {
            let at = Timestamp(now as i64);
            plan.pass(at);
            for task in tasks.iter().filter(|task| task.at == now) {
                let release = Timestamp(at.0 + task.release);
                let earliest = plan.earliest(release, Work(task.cost)).unwrap();
                let deadline = Timestamp(earliest.0 + task.time);
                let promised = plan.reserve(Window { release, deadline }, Work(task.cost));
                if let Some((ticket, times)) = promised {
                    prop_assert!(times.end <= deadline);
                    open.push((ticket, (task.cost * task.needed / 100).max(1), deadline.0));
                }
            }
            prop_assert_eq!(plan.endangered(), [], "at {}", now);
            if running.is_none() {
                let next = open.iter().position(|(ticket, ..)| plan.is_turn_of(*ticket));
                running = next.map(|next| open.swap_remove(next));
                if let Some((ticket, ..)) = running {
                    plan.begin_with(ticket);
                }
            }
            if let Some((ticket, left, deadline)) = &mut running && !is_taken {
                *left -= 1;
                if *left == 0 {
                    let late = at.0 + 1 - *deadline;
                    prop_assert!(late <= 0, "late by {}", late);
                    plan.end(*ticket);
                    running = None;
                }
            }
        }
        for (_, _, deadline) in open.into_iter().chain(running) {
            prop_assert!(deadline > HORIZON as i64, "promised for {}, and never done", deadline);
        }
    }
}

#[test]
fn what_is_begun_costs_no_more_when_its_machine_is_looked_at_anew() {
    let machine = ResourceId::Executor("one".into());
    let setup = Setup { lag: Work(20), ..always(Discipline::NonPreemptive) };
    let mut desk = Desk::default();
    desk.add(machine.clone(), &setup, Timestamp(0));
    let window = Window { release: Timestamp(0), deadline: Timestamp(200) };
    let id = TaskId::new(InstanceId(1), 0);
    desk.guarantee(&Task::new(id, window, Work(50), vec![machine.clone()])).unwrap();
    desk.begin(id);
    for now in [10, 20, 30] {
        desk.pass(Timestamp(now));
        desk.refit(&machine, &setup, Timestamp(now));
    }
    let end = desk.plan_mut(&machine, 0).unwrap().turns().last().unwrap().to;
    assert_eq!(end, Timestamp(50));
}
