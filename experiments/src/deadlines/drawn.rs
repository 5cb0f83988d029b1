//! Arrivals: drawn once per load and seed, the same for all compared variants.

use crate::division::Random;

pub(super) const NODES: usize = 3;
/// Milliseconds of a unit of time: plans count in whole milliseconds.
pub(super) const UNIT: i64 = 1_000;
/// How long tasks arrive.
pub(super) const HORIZON: i64 = 10_000 * UNIT;
/// The regular work of each node: so much in every period.
pub(super) const REGULAR: [(i64, i64); NODES] =
    [(20 * UNIT, 4 * UNIT), (25 * UNIT, 5 * UNIT), (40 * UNIT, 6 * UNIT)];
/// Service times, and the deadline as a multiple of them.
const SERVICE: (f64, f64) = (2.0, 10.0);
const LAXITY: (f64, f64) = (2.0, 6.0);
/// The parts of tasks that any node can do, and that are separable.
const GLOBAL: f64 = 0.6;
const SEPARABLE: f64 = 0.2;
pub(super) const PRIORITIES: usize = 3;

/// A task that arrives.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) at: i64,
    pub(super) node: usize,
    pub(super) service: i64,
    pub(super) deadline: i64,
    pub(super) is_global: bool,
    /// Of separable tasks: one part begins, these are parallel, one ends.
    pub(super) middle: Vec<i64>,
    /// From 1 on.
    pub(super) priority: u8,
}

/// All tasks of a run by arrival. The load is that of every node, its regular work included.
pub(super) fn arrivals(load: f64, seed: u64) -> Vec<Arrival> {
    let mut arrivals: Vec<Arrival> =
        (0..NODES).flat_map(|node| of_node(node, load, seed)).collect();
    arrivals.sort_by_key(|arrival| (arrival.at, arrival.node));
    arrivals
}

fn of_node(node: usize, load: f64, seed: u64) -> Vec<Arrival> {
    let mut random = Random::new(seed * NODES as u64 + node as u64);
    let (period, regular) = REGULAR[node];
    let rest = (load - regular as f64 / period as f64).max(0.0);
    let mean = (SERVICE.0 + SERVICE.1) / 2.0 * UNIT as f64 / rest;
    let (mut at, mut arrivals) = (0.0, Vec::new());
    loop {
        at += -mean * (1.0 - random.unit()).ln();
        if at >= HORIZON as f64 {
            return arrivals;
        }
        let between =
            |random: &mut Random, (from, to): (f64, f64)| from + (to - from) * random.unit();
        let service = (between(&mut random, SERVICE) * UNIT as f64) as i64;
        let laxity = between(&mut random, LAXITY);
        let (is_global, is_separable) = (random.unit() < GLOBAL, random.unit() < SEPARABLE);
        let branches = 2 + random.below(2);
        let middle =
            vec![service * 8 / 10 / branches as i64; if is_separable { branches } else { 0 }];
        let priority = 1 + random.below(PRIORITIES) as u8;
        arrivals.push(Arrival {
            at: at as i64,
            node,
            service,
            deadline: at as i64 + (service as f64 * laxity) as i64,
            is_global,
            middle,
            priority,
        });
    }
}
