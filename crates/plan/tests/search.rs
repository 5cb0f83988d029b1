//! A case is promised with windows that follow each other, refused with a date that is accepted, and displaces only what is less
//! important.

use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_plan::{
    Candidate, Discipline, How, Next, OFFERED, Offer, Planner, Reservation, ResourceId, Search,
    Setup, Span, Step, Supply, Task, TaskId, WHOLE, Work,
};
use proptest::prelude::*;

const HERE: ServerId = ServerId(0);
const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

fn hours() -> Supply {
    let day = |day: i64| {
        let from = Timestamp(day * DAY + 9 * HOUR);
        Span { from, to: Timestamp(from.0 + 8 * HOUR), share: WHOLE }
    };
    Supply::new((0..60).filter(|day| day % 7 < 5).map(day))
}

fn person(number: usize) -> ResourceId {
    ResourceId::Person(["ann", "ben", "cleo"][number].into())
}

fn planner(programs: bool) -> Planner {
    let mut planner = Planner::default();
    set_up(&mut planner, programs);
    planner
}

fn set_up(planner: &mut Planner, programs: bool) {
    for number in 0..3 {
        let (supply, discipline) = match programs {
            true => (Supply::always(Timestamp(0)), Discipline::NonPreemptive),
            false => (hours(), Discipline::Preemptive),
        };
        let setup =
            Setup { supply, discipline, hands: 1, regular: Vec::new(), reserve: 0, lag: Work(0) };
        planner.set_up(person(number), &setup, Timestamp(0));
    }
}

/// A case: the candidates of each of its steps.
#[derive(Clone, Debug)]
struct Case {
    id: u128,
    steps: Vec<Step>,
    who: Vec<Vec<usize>>,
    priority: u8,
    process: u64,
}

impl Case {
    fn task(&self, step: usize, release: Timestamp, due: Option<Timestamp>, how: How) -> Task {
        let who = self.who[step].iter().map(|it| Candidate::at_any_time(person(*it))).collect();
        Task {
            id: TaskId { instance: InstanceId(self.id), step: step as u32, round: 0 },
            step: "step".into(),
            priority: self.priority,
            release,
            due,
            cost: self.steps[step].cost,
            who,
            how,
            after_fault: false,
            idle_until: None,
            offer: Some(Offer { caller: 1, process: self.process, case: self.id as u64 % 100 }),
            of: None,
        }
    }
}

/// Runs a search; returns its result and the displaced tasks.
fn travel(
    planner: &mut Planner,
    search: &mut Search,
    case: &Case,
    until: Timestamp,
) -> (Next, Vec<Reservation>) {
    let (mut displaced, supply) = (Vec::new(), Arc::new(hours()));
    loop {
        match search.next(|_| supply.clone()) {
            Next::Hold { step, release, due, how } => {
                let mut task = case.task(step, release, due, how);
                task.idle_until = (how == How::Offering).then(|| search.start());
                task.of = search.accepted();
                match planner.hold(&task, (HERE, 1), until) {
                    Ok((grant, out)) => {
                        assert!(how == How::Displacing || out.is_empty());
                        displaced.extend(out);
                        search.granted(HERE, grant);
                    }
                    Err(_) => search.refused(),
                }
            }
            Next::Probe { step, release } => {
                let bid = planner.probe(&case.task(step, release, None, How::Displacing));
                search.probed(bid.map(|(end, _)| end));
            }
            Next::Begin => {
                for (_, grant) in search.begin_anew() {
                    planner.release(grant.task, HERE, 1);
                }
            }
            over @ (Next::Found | Next::Refused { .. }) => return (over, displaced),
        }
    }
}

fn confirm(planner: &mut Planner, search: &Search) {
    for (_, grant) in search.held() {
        assert!(planner.confirm(grant.task, HERE, 1));
    }
}

fn case(id: u128) -> impl Strategy<Value = Case> {
    let step = (prop::collection::vec(any::<prop::sample::Index>(), 0..3), 1_i64..10, 1_usize..8);
    (prop::collection::vec(step, 1..6), 0_u8..3).prop_map(move |(drawn, priority)| {
        let mut case =
            Case { id, steps: Vec::new(), who: Vec::new(), priority, process: id as u64 };
        for (place, (after, hours, who)) in drawn.into_iter().enumerate() {
            let mut after: Vec<usize> =
                after.iter().filter(|_| place > 0).map(|it| it.index(place.max(1))).collect();
            after.sort_unstable();
            after.dedup();
            case.steps.push(Step { after, cost: Work(hours * HOUR / 2), not_before: Timestamp(0) });
            case.who.push((0..3).filter(|one| who & (1 << one) != 0).collect());
        }
        case
    })
}

fn cases() -> impl Strategy<Value = Vec<(Case, i64)>> {
    (0_u128..12).map(|id| (case(id), 1_i64..30)).collect::<Vec<_>>()
}

fn windows_follow_each_other(
    search: &Search,
    case: &Case,
    start: Timestamp,
) -> Result<(), TestCaseError> {
    let held = search.held();
    prop_assert_eq!(held.len(), case.steps.len());
    for (step, (_, grant)) in case.steps.iter().zip(held) {
        prop_assert!(grant.window.release >= start && grant.window.due <= search.deadline());
        prop_assert!(grant.end <= grant.window.due, "{:?}", grant);
        for before in &step.after {
            prop_assert!(held[*before].1.window.due <= grant.window.release);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_promise_is_a_plan_and_a_refusal_an_offer(cases in cases(), programs in any::<bool>()) {
        let mut planner = planner(programs);
        let until = Timestamp(0) + OFFERED * 2;
        for (mut case, days) in cases {
            let deadline = Timestamp(days * DAY / 4);
            let mut search = Search::new(case.steps.clone(), Timestamp(0), deadline).offering();
            match travel(&mut planner, &mut search, &case, until).0 {
                Next::Found => {}
                Next::Refused { earliest } => {
                    // Everybody has time at some day, and this is an offer.
                    let earliest = earliest.unwrap();
                    prop_assert!(earliest > deadline);
                    // Five minutes later the offer is accepted, under another id.
                    case.id += 100;
                    let now = Timestamp(0) + OFFERED;
                    search = Search::new(case.steps.clone(), now, earliest).accepting();
                    prop_assert_eq!(travel(&mut planner, &mut search, &case, until).0, Next::Found);
                }
                other @ (Next::Hold { .. } | Next::Probe { .. } | Next::Begin) => {
                    prop_assert!(false, "{:?}", other);
                }
            }
            windows_follow_each_other(&search, &case, Timestamp(0))?;
            confirm(&mut planner, &search);
            prop_assert!(planner.late().is_empty());
        }
    }

    #[test]
    fn only_what_is_less_important_is_displaced_and_only_for_a_promise(cases in cases()) {
        let mut planner = planner(false);
        let until = Timestamp(0) + OFFERED * 2;
        for (case, days) in cases {
            let deadline = Timestamp(days * DAY / 4);
            let mut search = Search::new(case.steps.clone(), Timestamp(0), deadline).displacing();
            let before = planner.firm().count();
            let (over, displaced) = travel(&mut planner, &mut search, &case, until);
            prop_assert!(displaced.iter().all(|it| it.priority < case.priority));
            prop_assert!(search.take_displaced() || displaced.is_empty());
            if over == Next::Found {
                windows_follow_each_other(&search, &case, Timestamp(0))?;
                confirm(&mut planner, &search);
            } else {
                for (_, grant) in search.held() {
                    planner.release(grant.task, HERE, 1);
                }
                prop_assert_eq!(planner.firm().count() + displaced.len(), before);
            }
            prop_assert!(planner.late().is_empty());
        }
    }

    #[test]
    fn what_is_not_confirmed_leaves_no_trace(cases in cases(), first in case(50)) {
        let mut planner = planner(false);
        let until = Timestamp(0) + OFFERED * 2;
        let ask = |planner: &mut Planner| {
            let mut search = Search::new(first.steps.clone(), Timestamp(0), Timestamp(0)).offering();
            let over = travel(planner, &mut search, &first, until).0;
            search.begin_anew().into_iter().for_each(|(_, grant)| planner.release(grant.task, HERE, 1));
            over
        };
        let before = ask(&mut planner);
        for (case, days) in cases {
            let mut search = Search::new(case.steps.clone(), Timestamp(0), Timestamp(days * DAY / 4));
            travel(&mut planner, &mut search, &case, until);
        }
        planner.pass(until);
        prop_assert!(planner.is_empty() && planner.take_changes().is_empty());
        planner = self::planner(false);
        prop_assert_eq!(ask(&mut planner), before);
    }
}

#[test]
fn what_was_lost_by_a_fault_uses_the_reserve_of_others() {
    let mut planner = Planner::default();
    let (supply, discipline) = (Supply::always(Timestamp(0)), Discipline::Preemptive);
    let setup =
        Setup { supply, discipline, hands: 1, regular: Vec::new(), reserve: 50, lag: Work(0) };
    planner.set_up(person(0), &setup, Timestamp(0));
    let step = Step { after: Vec::new(), cost: Work(HOUR), not_before: Timestamp(0) };
    let case = Case { id: 1, steps: vec![step], who: vec![vec![0]], priority: 1, process: 1 };
    let (due, until) = (Some(Timestamp(HOUR)), Timestamp(0) + OFFERED);
    let mut hold = |after_fault| {
        let task = Task { after_fault, ..case.task(0, Timestamp(0), due, How::Plain) };
        planner.hold(&task, (HERE, 1), until).map(|(grant, _)| grant.end)
    };
    assert_eq!(hold(false), Err(Some(Timestamp(2 * HOUR))));
    assert_eq!(hold(true), Ok(Timestamp(HOUR)));
}

#[test]
fn the_earliest_date_has_no_padding_in_working_time() {
    let mut planner = planner(false);
    // At seven in the morning, for a person who works from nine to five.
    let start = Timestamp(7 * HOUR);
    let case = Case {
        id: 1,
        steps: vec![Step { after: Vec::new(), cost: Work(8 * HOUR), not_before: start }],
        who: vec![vec![0]],
        priority: 5,
        process: 1,
    };
    let mut search = Search::new(case.steps.clone(), start, Timestamp(12 * HOUR)).offering();
    let over = travel(&mut planner, &mut search, &case, start + OFFERED).0;
    assert_eq!(over, Next::Refused { earliest: Some(Timestamp(17 * HOUR)) });
}

#[test]
fn slack_is_shared_out_in_working_time() {
    let mut planner = planner(false);
    let step = |after: &[usize]| Step {
        after: after.to_vec(),
        cost: Work(2 * HOUR),
        not_before: Timestamp(0),
    };
    let case = Case {
        id: 1,
        steps: vec![step(&[]), step(&[0])],
        who: vec![vec![0], vec![1]],
        priority: 5,
        process: 1,
    };
    // Until Sunday evening: nobody works at the weekend.
    let mut search = Search::new(case.steps.clone(), Timestamp(0), Timestamp(7 * DAY - HOUR));
    assert_eq!(travel(&mut planner, &mut search, &case, Timestamp(DAY)).0, Next::Found);
    let dues: Vec<i64> = search.held().iter().map(|(_, grant)| grant.window.due.0 / HOUR).collect();
    // Half of five days of eight hours.
    assert_eq!(dues, [2 * 24 + 13, 7 * 24 - 1]);
}

/// The date that is offered for a step of an hour of one person, asked with too early a deadline.
fn offered(planner: &mut Planner, id: u128) -> Timestamp {
    let case = hour_of_ann(id);
    let mut search = Search::new(case.steps.clone(), Timestamp(0), Timestamp(0)).offering();
    let over = travel(planner, &mut search, &case, Timestamp(0)).0;
    if let Next::Refused { earliest: Some(earliest) } = over { earliest } else { Timestamp(0) }
}

fn hour_of_ann(id: u128) -> Case {
    let step = |after: &[usize]| Step {
        after: after.to_vec(),
        cost: Work(HOUR),
        not_before: Timestamp(0),
    };
    let (steps, who) = (vec![step(&[]), step(&[0])], vec![vec![0], vec![0]]);
    Case { id, steps, who, priority: 5, process: 1 }
}

/// Starts a case by a date, under a new id.
fn started(planner: &mut Planner, id: u128, by: Timestamp) -> Next {
    let case = hour_of_ann(id);
    let mut search = Search::new(case.steps.clone(), Timestamp(0), by).accepting();
    let over = travel(planner, &mut search, &case, Timestamp(0) + OFFERED).0;
    if over == Next::Found {
        confirm(planner, &search);
    }
    over
}

proptest! {
    #[test]
    fn ten_offers_are_accepted_in_any_order(order in Just((0_usize..10).collect::<Vec<_>>()).prop_shuffle()) {
        let mut planner = planner(false);
        let dates: Vec<Timestamp> = (0..10).map(|case| offered(&mut planner, case)).collect();
        prop_assert!(dates.is_sorted_by(|one, next| one < next));
        for one in order {
            // Of a case with other data as well.
            prop_assert_eq!(started(&mut planner, 150 + one as u128, dates[one]), Next::Found);
        }
        prop_assert!(planner.late().is_empty());
    }
}

#[test]
fn a_caller_who_asks_again_has_the_same_date() {
    let mut planner = planner(false);
    let first = offered(&mut planner, 1);
    assert_eq!(offered(&mut planner, 101), first);
    assert!(offered(&mut planner, 2) > first);
}

#[test]
fn an_offer_that_is_asked_about_again_can_be_promised() {
    let mut planner = planner(false);
    let (date, other) = (offered(&mut planner, 1), offered(&mut planner, 2));
    let case = hour_of_ann(101);
    let mut search = Search::new(case.steps.clone(), Timestamp(60_000), date).asking();
    assert_eq!(travel(&mut planner, &mut search, &case, Timestamp(90_000)).0, Next::Found);
    assert!(search.is_offering());
    planner.pass(Timestamp(0) + Duration::from_mins(5));
    assert_eq!(started(&mut planner, 102, other), Next::Found);
    assert_eq!(started(&mut planner, 103, date), Next::Found);
}

#[test]
fn of_more_than_ten_offers_the_oldest_is_over() {
    let mut planner = planner(false);
    let first = offered(&mut planner, 0);
    for case in 1..11 {
        offered(&mut planner, case);
    }
    assert_eq!(offered(&mut planner, 50), first, "the time of the first is free again");
}

#[test]
fn what_was_accepted_is_nobody_elses_offer() {
    let mut planner = planner(false);
    let date = offered(&mut planner, 0);
    assert_eq!(started(&mut planner, 100, date), Next::Found);
    assert_ne!(started(&mut planner, 200, date), Next::Found);
    assert_eq!(planner.firm().count(), 2);
}

#[test]
fn a_step_that_another_has_begun_is_taken_over_as_a_whole() {
    let mut planner = planner(false);
    let mut case = hour_of_ann(1);
    (case.who, case.steps) = (vec![vec![0]], vec![case.steps[0].clone()]);
    case.steps[0].cost = Work(6 * HOUR);
    let mut search = Search::new(case.steps.clone(), Timestamp(0), Timestamp(2 * DAY));
    assert_eq!(travel(&mut planner, &mut search, &case, Timestamp(DAY)).0, Next::Found);
    confirm(&mut planner, &search);
    let task = search.held()[0].1.task;
    planner.begin(task, Timestamp(9 * HOUR));
    planner.pass(Timestamp(13 * HOUR));
    assert_eq!(planner.left(task), Some(Work(2 * HOUR)));
    // Only the rest for Ann, all of it for Ben, who works until five.
    let hold = |planner: &mut Planner, who: usize| {
        let task = Task {
            who: vec![Candidate::at_any_time(person(who))],
            ..case.task(0, Timestamp(13 * HOUR), Some(Timestamp(17 * HOUR)), How::Plain)
        };
        planner.hold(&task, (HERE, 2), Timestamp(DAY)).is_ok()
    };
    assert!(!hold(&mut planner, 1));
    assert!(hold(&mut planner, 0));
    // Also if it is released in between, because other steps of its case found no time.
    planner.release(task, HERE, 2);
    assert!(!hold(&mut planner, 1));
    assert!(hold(&mut planner, 0));
    assert_eq!(planner.left(task), Some(Work(2 * HOUR)));
}

#[test]
fn what_was_worked_on_before_a_restart_counts_in_working_time() {
    let mut planner = planner(false);
    let mut case = hour_of_ann(1);
    (case.who, case.steps) = (vec![vec![0]], vec![case.steps[0].clone()]);
    case.steps[0].cost = Work(8 * HOUR);
    let mut search = Search::new(case.steps.clone(), Timestamp(0), Timestamp(3 * DAY));
    travel(&mut planner, &mut search, &case, Timestamp(DAY));
    confirm(&mut planner, &search);
    let task = search.held()[0].1.task;
    let own = planner.reservation(task).unwrap().clone();
    let mut again = self::planner(false);
    // From four in the afternoon until ten the next morning.
    again.restore(own, Some((Timestamp(16 * HOUR), Timestamp(DAY + 10 * HOUR))));
    assert_eq!(again.left(task), Some(Work(6 * HOUR)));
}

#[test]
fn what_is_held_in_another_way_still_is_given_up_for_an_offer() {
    let mut planner = planner(false);
    offered(&mut planner, 1);
    let case = hour_of_ann(101);
    // The release was lost.
    let plain = case.task(0, Timestamp(0), None, How::Plain);
    let plain = Task { offer: None, ..plain };
    assert!(planner.hold(&plain, (HERE, 1), Timestamp(DAY)).is_ok());
    let accepting = case.task(0, Timestamp(0), None, How::Accepting);
    assert!(planner.hold(&accepting, (HERE, 2), Timestamp(DAY)).is_ok());
    planner.pass(Timestamp(2 * DAY));
    assert!(planner.is_empty());
    let turns = planner.turns(&person(0), 0).unwrap();
    assert!(turns.is_empty(), "{turns:?}");
}

#[test]
fn a_start_that_is_in_time_without_it_leaves_the_offer_of_another_case() {
    let mut planner = planner(false);
    let date = offered(&mut planner, 1);
    assert_eq!(started(&mut planner, 150, Timestamp(20 * DAY)), Next::Found);
    assert_eq!(started(&mut planner, 101, date), Next::Found);
}

proptest! {
    #[test]
    fn a_resource_that_is_set_up_anew_keeps_all_it_has_promised(cases in cases(), programs in any::<bool>()) {
        let mut planner = planner(programs);
        for (case, days) in cases {
            let mut search = Search::new(case.steps.clone(), Timestamp(0), Timestamp(days * DAY / 4));
            if travel(&mut planner, &mut search, &case, Timestamp(DAY)).0 == Next::Found {
                confirm(&mut planner, &search);
            }
        }
        let starts = |planner: &Planner| -> Vec<_> { planner.firm().map(|it| planner.start_of(it.task)).collect() };
        let before = starts(&planner);
        set_up(&mut planner, programs);
        prop_assert!(planner.late().is_empty());
        prop_assert_eq!(starts(&planner), before);
    }
}
