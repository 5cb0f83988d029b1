//! Not in the paper: the share of hours that planning should leave free, for people who begin every step late.
//!
//! Invariant: plans are those of the server, and all variants of a run have the same cases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Result;
use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_plan::{
    Candidate, Discipline, Next, Planner, Reservation, ResourceId, Search, Setup, Span, Step,
    Supply, Task, TaskId, WHOLE, Work,
};

use super::RUNS;
use super::figure::{Figure, Table};
use crate::division::Random;

const ASKER: (ServerId, u64) = (ServerId(0), 1);
const PEOPLE: usize = 8;
/// Lengths are in ticks: five minutes of office time. Cases arrive for six weeks, and are done two weeks later.
const TICK: i64 = 300_000;
const DAY: i64 = 8 * 12;
const ARRIVING: i64 = 6 * 5 * DAY;
const HORIZON: i64 = ARRIVING + 2 * 5 * DAY;
/// A step takes at least a quarter of an hour; a case has up to four.
const TAKES_MIN: i64 = 3;
const STEPS_MAX: usize = 4;
/// Deadlines, as multiples of the duration of a case without waiting.
const LAXITY: (f64, f64) = (1.2, 4.0);
const LOADS: [f64; 4] = [0.6, 0.8, 0.95, 1.1];
/// The working time lost before each step, in ticks, and the longest duration.
const LATE: [(&str, i64, i64); 5] = [
    ("on time", 0, 36),
    ("5 min", 1, 36),
    ("10 min", 2, 36),
    ("20 min", 4, 36),
    ("10 min and steps to 1 h", 2, 12),
];
/// The free share of hours is left out of all plans (`share`), or only of promises (`reserve`).
const SHARES: [u32; 7] = [70, 75, 80, 85, 90, 95, WHOLE];
const RESERVES: [u8; 4] = [20, 15, 10, 5];
/// Of all cases, of all promised ones, of all cases, and of all working time.
const MEASURES: [&str; 4] = ["promised", "lost", "kept", "used"];
/// The measure shown for each lateness.
const SHOWN: (f64, &str) = (0.95, "lost");

#[derive(Clone)]
struct Case {
    at: i64,
    deadline: Timestamp,
    steps: Vec<Doing>,
}

#[derive(Clone)]
struct Doing {
    after: Vec<usize>,
    who: Vec<ResourceId>,
    takes: i64,
    /// The remaining work, and the time lost before it is begun.
    left: i64,
}

impl Doing {
    fn is_begun(&self) -> bool {
        self.left < self.takes
    }
}

fn moment(tick: i64) -> Timestamp {
    let (day, within) = (tick / DAY, tick % DAY);
    Timestamp(((day / 5 * 7 + day % 5) * 24 + 9) * 12 * TICK + within * TICK)
}

fn hours(share: u32) -> Supply {
    let days = (0..2 * HORIZON / DAY).map(|day| moment(day * DAY));
    Supply::new(days.map(|from| Span { from, to: Timestamp(from.0 + DAY * TICK), share }))
}

fn drawn((load, longest): (f64, i64), seed: u64) -> Vec<Case> {
    let (mut random, hours) = (Random::new(seed), hours(WHOLE));
    let work = (TAKES_MIN + longest) as f64 / 2.0 * (1 + STEPS_MAX) as f64 / 2.0;
    let (mut arrives, mut cases) = (0.0, Vec::new());
    loop {
        arrives -= work / (PEOPLE as f64 * load) * (1.0 - random.unit()).ln();
        let at = arrives as i64;
        if at >= ARRIVING {
            return cases;
        }
        let (count, is_parallel) = (1 + random.below(STEPS_MAX), random.below(2) == 0);
        let (mut steps, mut ends) = (Vec::new(), Vec::new());
        for step in 0..count {
            // The second and the third are parallel, or all are sequential.
            let after: Vec<usize> = match step {
                2 if is_parallel => vec![0],
                3 if is_parallel => vec![1, 2],
                _ => step.checked_sub(1).into_iter().collect(),
            };
            let takes = TAKES_MIN + random.below((longest - TAKES_MIN + 1) as usize) as i64;
            let (first, many) = (random.below(PEOPLE), 2 + random.below(3));
            let who = (first..first + many).map(|one| person(one % PEOPLE)).collect();
            ends.push(takes + after.iter().map(|before| ends[*before]).max().unwrap_or(0));
            steps.push(Doing { after, who, takes, left: takes });
        }
        let laxity = LAXITY.0 + (LAXITY.1 - LAXITY.0) * random.unit();
        let length = ends.into_iter().max().unwrap_or(0) as f64 * laxity;
        let deadline = hours.moment(Work((at + length as i64) * TICK)).unwrap_or_default();
        cases.push(Case { at, deadline, steps });
    }
}

fn person(number: usize) -> ResourceId {
    ResourceId::Person(number.to_string().as_str().into())
}

fn task(case: usize, step: usize) -> TaskId {
    TaskId { instance: InstanceId(case as u128), step: step as u32, round: 0 }
}

/// Plans the rest of a case; if that is impossible nothing of it is planned any more.
fn plan(
    planner: &mut Planner,
    hours: &Arc<Supply>,
    (id, case): (usize, &Case),
    now: Timestamp,
) -> bool {
    let rest = (0..case.steps.len()).filter(|step| case.steps[*step].left > 0);
    let rest: Vec<usize> = rest.collect();
    for step in rest.iter().filter(|step| !case.steps[**step].is_begun()) {
        planner.end(task(id, *step));
    }
    let place = |before: &usize| rest.iter().position(|step| step == before);
    let steps = rest.iter().map(|step| &case.steps[*step]).map(|step| Step {
        after: step.after.iter().filter_map(place).collect(),
        cost: Work(step.takes * TICK),
        not_before: now,
    });
    let mut search = Search::new(steps.collect(), now, case.deadline);
    let mut next = search.next(|_| hours.clone());
    while let Next::Hold { step: place, release, due, how } = next {
        let (id, step) = (task(id, rest[place]), &case.steps[rest[place]]);
        // The performer who has begun it goes on.
        let begun =
            planner.reservation(id).filter(|_| step.is_begun()).map(|it| vec![it.by.clone()]);
        let who =
            begun.unwrap_or(step.who.clone()).into_iter().map(Candidate::at_any_time).collect();
        let (cost, priority, after_fault) = (Work(step.takes * TICK), 5, false);
        let (step, idle_until, offer, of) = ("step".into(), None, None, None);
        let wanted = Task {
            id,
            step,
            priority,
            release,
            due,
            cost,
            who,
            how,
            after_fault,
            idle_until,
            offer,
            of,
        };
        match planner.hold(&wanted, ASKER, Timestamp(i64::MAX)) {
            Ok((grant, _)) => search.granted(ASKER.0, grant),
            Err(_) => search.refused(),
        }
        next = search.next(|_| hours.clone());
    }
    for task in rest.into_iter().map(|step| task(id, step)) {
        match next == Next::Found {
            true => drop(planner.confirm(task, ASKER.0, ASKER.1)),
            false => drop(planner.end(task)),
        }
    }
    next == Next::Found
}

/// Everybody works for a tick on their earliest due date. Returns the worked tasks.
fn work(planner: &mut Planner, cases: &mut [Case], now: Timestamp) -> Vec<TaskId> {
    let mut heads: BTreeMap<ResourceId, (Timestamp, bool, TaskId)> = BTreeMap::new();
    for Reservation { task, by, window, .. } in planner.firm() {
        let steps = &cases[task.instance.0 as usize].steps;
        let step = &steps[task.step as usize];
        if step.after.iter().all(|before| steps[*before].left == 0) {
            let rank = (window.due, !step.is_begun(), *task);
            let head = heads.entry(by.clone()).or_insert(rank);
            *head = rank.min(*head);
        }
    }
    let heads = heads.into_values().map(|(.., task)| task).filter(|task| {
        let step = &mut cases[task.instance.0 as usize].steps[task.step as usize];
        step.left -= 1;
        step.is_begun()
    });
    let worked: Vec<TaskId> = heads.collect();
    worked.iter().for_each(|task| planner.begin(*task, now));
    worked
}

/// The measures of a run.
fn simulated(mut cases: Vec<Case>, (share, reserve): (u32, u8), late: i64) -> [f64; 4] {
    let (mut planner, supply) = (Planner::default(), hours(share));
    let (hours, discipline) = (Arc::new(supply.clone()), Discipline::Preemptive);
    let (hands, regular, lag) = (1, Vec::new(), Work(0));
    let setup = Setup { supply, discipline, hands, regular, reserve, lag };
    (0..PEOPLE).for_each(|one| planner.set_up(person(one), &setup, moment(0)));
    cases.iter_mut().flat_map(|case| &mut case.steps).for_each(|step| step.left += late);
    let (mut next, mut promised, mut kept, mut used) = (0, 0, 0, 0);
    for tick in 0..HORIZON {
        let now = moment(tick);
        let late = planner.late().into_iter().map(|task| task.instance.0 as usize);
        let late: BTreeSet<_> = late.map(|id| (cases[id].deadline, id)).collect();
        for (_, id) in late {
            plan(&mut planner, &hours, (id, &cases[id]), now);
        }
        while let Some(case) = cases.get(next).filter(|case| case.at <= tick) {
            promised += u32::from(plan(&mut planner, &hours, (next, case), now));
            next += 1;
        }
        let worked = work(&mut planner, &mut cases, now);
        used += if tick < ARRIVING { worked.len() } else { 0 };
        planner.pass(moment(tick + 1));
        let mut over = BTreeSet::new();
        for task in worked {
            let id = task.instance.0 as usize;
            if cases[id].steps[task.step as usize].left == 0 {
                planner.end(task);
                over.extend(cases[id].steps.iter().all(|step| step.left == 0).then_some(id));
            }
        }
        let in_time = over.into_iter().filter(|id| Timestamp(now.0 + TICK) <= cases[*id].deadline);
        kept += in_time.count() as u32;
    }
    let (asked, promised, kept) = (cases.len() as f64, f64::from(promised), f64::from(kept));
    let all = (PEOPLE as i64 * ARRIVING) as f64;
    [promised / asked, 1.0 - kept / promised, kept / asked, used as f64 / all]
}

fn variants() -> impl Iterator<Item = (String, (u32, u8))> {
    let reserves = RESERVES.map(|reserve| (format!("reserve {reserve}"), (WHOLE, reserve)));
    SHARES.map(|share| (format!("share {share}"), (share, 0))).into_iter().chain(reserves)
}

pub(crate) fn run(json: bool) -> Result<()> {
    let mut figure = Figure::new("004-share", "share.csv");
    for (load, (late_by, late, longest)) in LOADS.iter().flat_map(|load| LATE.map(|it| (*load, it)))
    {
        let cases = (0..RUNS).map(|seed| drawn((load, longest), seed));
        let cases: Vec<Vec<Case>> = cases.collect();
        for (name, left) in variants() {
            let runs = cases.iter().map(|cases| simulated(cases.clone(), left, late));
            let runs: Vec<[f64; 4]> = runs.collect();
            for (place, measure) in MEASURES.iter().enumerate() {
                let values: Vec<f64> = runs.iter().map(|run| run[place]).collect();
                figure.add(load, &name, &format!("{measure} {late_by}"), &values);
            }
        }
    }
    let by_load = |of: &str| LOADS.map(|load| (format!("load {load}"), load, of.to_owned()));
    let by_late = LATE.map(|(late, ..)| (late.to_owned(), SHOWN.0, format!("{} {late}", SHOWN.1)));
    let tables = MEASURES.map(|measure| by_load(&format!("{measure} 10 min")));
    let mut tables = tables.map(|columns| table(&figure, &columns)).to_vec();
    tables.push(table(&figure, &by_late));
    figure.tell(&tables, json)
}

fn table(figure: &Figure, columns: &[(String, f64, String)]) -> Table {
    let mut table = vec![vec![String::new()]];
    table[0].extend(columns.iter().map(|(head, ..)| head.clone()));
    for (name, _) in variants() {
        let cells = columns.iter().map(|(_, load, of)| figure.percent(*load, &name, of));
        table.push(std::iter::once(name.clone()).chain(cells).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_if_everybody_begins_in_time() {
        for left in [(WHOLE, 0), (85, 0), (WHOLE, 15)] {
            let [promised, lost, kept, _] = simulated(drawn((0.95, 36), 1), left, 0);
            assert_eq!((lost, kept), (0.0, promised), "{left:?}");
        }
    }
}
