//! What nobody could promise more than, who knows all that will arrive.
//!
//! One machine as fast as all nodes together, without messages and overheads, on which a task may be
//! done in part and counts for that part. What can be done of all tasks then forms a polymatroid, and
//! whoever takes the shortest first, as much of each as still fits, gets the most: no other choice counts for more.

use legwork_model::time::Timestamp;
use legwork_promise::{Discipline, Load, Plan, Supply, Window, Work};

use super::drawn::{Arrival, NODES, REGULAR};

/// Speeds are scaled so that everything stays a whole number.
const SCALE: i64 = NODES as i64;

pub(super) fn of(arrivals: &[Arrival]) -> f64 {
    let mut plan = Plan::new(Supply::always(Timestamp(0)), Discipline::Preemptive, Timestamp(0));
    for (period, cost) in REGULAR {
        let load = Load { period: Work(period), cost: Work(cost / SCALE), is_attended: true };
        assert!(plan.regularly(load), "regular work leaves time");
    }
    let mut shortest: Vec<&Arrival> = arrivals.iter().collect();
    shortest.sort_by_key(|arrival| (arrival.service, arrival.at));
    let counts: f64 = shortest.iter().map(|arrival| fits(&mut plan, arrival)).sum();
    counts / arrivals.len().max(1) as f64
}

/// What somebody reaches who knows all that will arrive, without messages and overheads: the shortest tasks first, each whole
/// and at one node. The most that can be reached lies between this and the bound.
pub(super) fn reached(arrivals: &[Arrival]) -> f64 {
    let mut plans = REGULAR.map(|(period, cost)| {
        let start = Timestamp(0);
        let mut plan = Plan::new(Supply::always(start), Discipline::Preemptive, start);
        let load = Load { period: Work(period), cost: Work(cost), is_attended: true };
        assert!(plan.regularly(load), "regular work leaves time");
        plan
    });
    let mut shortest: Vec<&Arrival> = arrivals.iter().collect();
    shortest.sort_by_key(|arrival| (arrival.service, arrival.at));
    let kept = shortest.into_iter().filter(|arrival| {
        let (release, deadline) = (Timestamp(arrival.at), Timestamp(arrival.deadline));
        let (window, work) = (Window { release, deadline }, Work(arrival.service));
        // Where it arrives, else where it can.
        let others = (0..NODES).filter(|node| arrival.is_global && *node != arrival.node);
        let mut nodes = std::iter::once(arrival.node).chain(others);
        nodes.any(|node| plans[node].reserve(window, work).is_some())
    });
    kept.count() as f64 / arrivals.len().max(1) as f64
}

/// Takes as much of a task as fits; answers which part of it that is.
fn fits(plan: &mut Plan, arrival: &Arrival) -> f64 {
    let window = Window { release: Timestamp(arrival.at), deadline: Timestamp(arrival.deadline) };
    let whole = arrival.service / SCALE;
    let (mut most, mut too_much) = (0, whole + 1);
    if plan.fits(window, Work(whole)) {
        most = whole;
    }
    while most < whole && too_much - most > 1 {
        let middle = most + (too_much - most) / 2;
        if plan.fits(window, Work(middle)) { most = middle } else { too_much = middle }
    }
    if most > 0 {
        plan.reserve(window, Work(most));
    }
    most as f64 / whole as f64
}
