//! An upper bound for planners that know all arrivals, and what an offline planner reaches.
//!
//! The bound: one machine as fast as all nodes together, without messages and overheads, on which a task may be
//! done in part and counts for that part. The feasible parts of all tasks then form a polymatroid, so the greedy
//! order, shortest first and as much of each as still fits, is optimal.

use super::drawn::{Arrival, NODES, REGULAR};
use super::line::Line;

/// Speeds are scaled so that everything stays a whole number.
const SCALE: i64 = NODES as i64;

pub(super) fn of(arrivals: &[Arrival]) -> f64 {
    let mut line = Line::new(&REGULAR.map(|(period, cost)| (period, cost / SCALE)));
    let counts: f64 =
        by_length(arrivals).into_iter().map(|arrival| taken(&mut line, arrival)).sum();
    counts / arrivals.len().max(1) as f64
}

/// The greedy result with the shortest tasks first, each whole and at one node. The optimum lies between this and
/// the bound.
pub(super) fn reached(arrivals: &[Arrival]) -> f64 {
    let mut lines = REGULAR.map(|regular| Line::new(&[regular]));
    let kept = by_length(arrivals).into_iter().filter(|arrival| {
        let window = (arrival.at, arrival.deadline);
        // At the node of its arrival, else at another possible one.
        let others = (0..NODES).filter(|node| arrival.is_global && *node != arrival.node);
        let mut nodes = std::iter::once(arrival.node).chain(others);
        let found = nodes.find(|node| lines[*node].fits(window, arrival.service));
        found.is_some_and(|node| {
            lines[node].take(window, arrival.service);
            true
        })
    });
    kept.count() as f64 / arrivals.len().max(1) as f64
}

fn by_length(arrivals: &[Arrival]) -> Vec<&Arrival> {
    let mut shortest: Vec<&Arrival> = arrivals.iter().collect();
    shortest.sort_by_key(|arrival| (arrival.service, arrival.at));
    shortest
}

/// Takes as much of a task as fits; returns that part.
fn taken(line: &mut Line, arrival: &Arrival) -> f64 {
    let (window, whole) = ((arrival.at, arrival.deadline), arrival.service / SCALE);
    let (mut most, mut too_much) = (0, whole + 1);
    if line.fits(window, whole) {
        most = whole;
    }
    while most < whole && too_much - most > 1 {
        let middle = most + (too_much - most) / 2;
        if line.fits(window, middle) { most = middle } else { too_much = middle }
    }
    if most > 0 {
        line.take(window, most);
    }
    most as f64 / whole as f64
}
