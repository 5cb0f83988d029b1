//! The paper's simulation of one domain: instances of several types come, stay and go.
//!
//! All placements get the same instances at the same moments. The production placement decides, with
//! ids as the server generates them; the other placements are here only for comparison.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use legwork_model::id::{InstanceId, ServerId};
use legwork_placement::{Chain, Layout, Sequence, Weighted};

use super::random::{Random, mix};

pub(super) const SERVERS: usize = 3;
pub(super) const WEIGHTS: [u32; SERVERS] = [20, 30, 50];
pub(super) const TYPES: usize = 4;
/// Of all that start, in percent.
const STARTS: [u32; TYPES] = [30, 25, 20, 25];
pub(super) const LOADS: [u32; TYPES] = [1, 3, 2, 4];
/// The ratio of the mean stays by type; each stays from half to one and a half of its own.
const STAYS: [f64; TYPES] = [10.0, 20.0, 15.0, 30.0];
/// The mean stay of all types.
pub(super) const MEAN_STAY_H: f64 = 8.9;
const HOUR_MS: f64 = 3_600_000.0;
pub(super) const YEAR_H: f64 = 365.0 * 24.0;

/// How the server of an instance is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Production placement over a plain hash of the id.
    Hash,
    /// Production placement with the spreads of generated ids.
    Ours,
    /// At random: branches of one instance may get different servers.
    Random,
    /// Round-robin at each server that starts instances, by type; likewise.
    Turns,
    /// The server with the least load for its weight: needs a message for every instance.
    Least,
}

impl Way {
    pub(super) const ALL: [Self; 5] =
        [Self::Hash, Self::Ours, Self::Random, Self::Turns, Self::Least];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Ours => "ours",
            Self::Random => "random",
            Self::Turns => "round-robin",
            Self::Least => "least-loaded",
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// The average number of active instances.
    pub(super) active: u32,
    pub(super) hours: f64,
    /// The number of servers that start instances: each has its own sequences.
    pub(super) fronts: usize,
    pub(super) seed: u64,
}

/// The measures of each placement.
pub(super) type Outcome = [Measured; Way::ALL.len()];

/// The measures of one placement.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) servers: [Extremes; SERVERS],
    /// The same for the instances of one type.
    pub(super) types: [[Extremes; SERVERS]; TYPES],
    /// The load of all servers, and of each type, over time.
    total: f64,
    totals: [f64; TYPES],
}

/// The load of one server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extremes {
    /// Over time.
    sum: f64,
    max: u32,
    min: u32,
    /// The largest deviation of its share of the load from the intended one, in percent of that.
    pub(super) share_dev: f64,
}

impl Default for Extremes {
    fn default() -> Self {
        Self { sum: 0.0, max: 0, min: u32::MAX, share_dev: 0.0 }
    }
}

/// The shown values of a server: shares of the average load of the domain, in percent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) average: f64,
    pub(super) max_dev: f64,
    pub(super) min_dev: f64,
    pub(super) share_dev: f64,
}

pub(super) fn intended(server: usize) -> f64 {
    f64::from(WEIGHTS[server]) / f64::from(WEIGHTS.iter().sum::<u32>())
}

impl Measured {
    pub(super) fn shown(&self, server: usize) -> Shown {
        shown(&self.servers[server], server, self.total)
    }

    pub(super) fn shown_of(&self, kind: usize, server: usize) -> Shown {
        shown(&self.types[kind][server], server, self.totals[kind])
    }
}

fn shown(extremes: &Extremes, server: usize, total: f64) -> Shown {
    let dev = |load: u32, of: f64| (f64::from(load) / of / intended(server) - 1.0) * 100.0;
    Shown {
        average: extremes.sum / total * 100.0,
        max_dev: dev(extremes.max, total),
        min_dev: dev(extremes.min, total),
        share_dev: extremes.share_dev,
    }
}

/// The present instances, under one placement.
#[derive(Clone, Copy, Default)]
struct Present {
    /// Load by type and server.
    loads: [[u32; SERVERS]; TYPES],
    all: [u32; SERVERS],
}

/// The stay of an instance of a type, in milliseconds.
pub(super) fn stay(kind: usize, dice: &mut Random) -> u64 {
    let mean: f64 =
        STARTS.iter().zip(STAYS).map(|(share, stay)| f64::from(*share) / 100.0 * stay).sum();
    let stay = STAYS[kind] / mean * MEAN_STAY_H * (0.5 + dice.unit());
    (stay * HOUR_MS) as u64
}

pub(super) fn kind(dice: &mut Random) -> usize {
    let mut number = dice.below(100) as u32;
    let found = STARTS.iter().position(|share| {
        let is_it = number < *share;
        number = number.saturating_sub(*share);
        is_it
    });
    found.unwrap_or(0)
}

/// The time to the next arrival, in milliseconds, for an average number of active instances.
pub(super) fn gap(active: u32, dice: &mut Random) -> f64 {
    -(1.0 - dice.unit()).ln() * MEAN_STAY_H * HOUR_MS / f64::from(active)
}

pub(super) fn weights(of: [u32; SERVERS]) -> Vec<Weighted> {
    (0..).map(ServerId).zip(of).collect()
}

pub(super) fn layout(of: [u32; SERVERS]) -> Layout {
    Layout::first(&weights(of)).unwrap_or_else(|| Layout::whole(ServerId(0)))
}

/// Generates ids like servers that start instances.
pub(super) struct Fronts {
    sequences: Vec<[Sequence; TYPES]>,
}

impl Fronts {
    pub(super) fn new(count: usize, dice: &mut Random) -> Self {
        let mut begin = || Sequence::new(dice.next() as u32);
        let sequences = (0..count).map(|_| [begin(), begin(), begin(), begin()]).collect();
        Self { sequences }
    }

    pub(super) fn draw(
        &mut self,
        front: usize,
        kind: usize,
        created_ms: u64,
        tie: u32,
    ) -> InstanceId {
        let spread = self.sequences[front][kind].draw();
        InstanceId::new(created_ms, tie, spread, ServerId(front as u16))
    }

    fn len(&self) -> usize {
        self.sequences.len()
    }
}

/// Weighted round-robin: the server furthest behind its share.
#[derive(Clone, Copy, Default)]
struct Turns([i64; SERVERS]);

impl Turns {
    fn next(&mut self) -> usize {
        for (credit, weight) in self.0.iter_mut().zip(WEIGHTS) {
            *credit += i64::from(weight);
        }
        let most = (0..SERVERS).max_by_key(|server| (self.0[*server], Reverse(*server)));
        let most = most.unwrap_or(0);
        self.0[most] -= i64::from(WEIGHTS.iter().sum::<u32>());
        most
    }
}

struct Choosers {
    chain: Chain,
    dice: Random,
    turns: Vec<[Turns; TYPES]>,
}

impl Choosers {
    /// The server for an instance, by every placement.
    fn choose(
        &mut self,
        id: InstanceId,
        front: usize,
        kind: usize,
        least: &Present,
    ) -> [u8; Way::ALL.len()] {
        let hashed = (mix((id.0 >> 64) as u64 ^ mix(id.0 as u64)) >> 32) as u32;
        let hashed = InstanceId::new(id.created_ms(), 0, hashed, id.server());
        Way::ALL.map(|way| match way {
            Way::Hash => self.chain.server(hashed).0 as u8,
            Way::Ours => self.chain.server(id).0 as u8,
            Way::Random => {
                let number = self.dice.below(100) as u32;
                let bounds = [WEIGHTS[0], WEIGHTS[0] + WEIGHTS[1]];
                bounds.iter().filter(|bound| number >= **bound).count() as u8
            }
            Way::Turns => self.turns[front][kind].next() as u8,
            Way::Least => {
                let load = |server: usize| f64::from(least.all[server]) / intended(server);
                let least = (0..SERVERS).min_by(|a, b| load(*a).total_cmp(&load(*b)));
                least.unwrap_or(0) as u8
            }
        })
    }
}

/// One run. The warm-up, until every initial instance has left, does not count.
pub(super) fn simulate(setting: Setting) -> Outcome {
    let mut dice = Random::new(setting.seed);
    let mut fronts = Fronts::new(setting.fronts, &mut dice);
    let mut choosers = Choosers {
        chain: Chain::new(layout(WEIGHTS)),
        dice: Random::new(!setting.seed),
        turns: vec![[Turns::default(); TYPES]; setting.fronts],
    };
    let warm = MEAN_STAY_H * 3.0 * HOUR_MS;
    let end = warm + setting.hours * HOUR_MS;
    let mut outcome = Outcome::default();
    let mut present = [Present::default(); Way::ALL.len()];
    let mut leaving: BinaryHeap<Reverse<(u64, u8, [u8; Way::ALL.len()])>> = BinaryHeap::new();
    let (mut now, mut arrival, mut count) = (0.0_f64, 0.0_f64, 0_u32);
    loop {
        let leave = leaving.peek().map_or(f64::INFINITY, |Reverse((at, ..))| *at as f64);
        let next = arrival.min(leave).min(end);
        if next > warm {
            let lasted = next - now.max(warm);
            for (measured, present) in outcome.iter_mut().zip(&present) {
                measured.count(present, lasted, end - warm);
            }
        }
        now = next;
        if now >= end {
            return outcome;
        }
        if arrival <= leave {
            let (kind, front) = (kind(&mut dice), dice.below(fronts.len()));
            count = count.wrapping_add(1);
            let id = fronts.draw(front, kind, now as u64, count);
            let servers = choosers.choose(id, front, kind, &present[Way::Least as usize]);
            for (present, server) in present.iter_mut().zip(servers) {
                present.loads[kind][usize::from(server)] += LOADS[kind];
                present.all[usize::from(server)] += LOADS[kind];
            }
            leaving.push(Reverse((now as u64 + stay(kind, &mut dice), kind as u8, servers)));
            arrival = now + gap(setting.active, &mut dice);
        } else if let Some(Reverse((_, kind, servers))) = leaving.pop() {
            let kind = usize::from(kind);
            for (present, server) in present.iter_mut().zip(servers) {
                present.loads[kind][usize::from(server)] -= LOADS[kind];
                present.all[usize::from(server)] -= LOADS[kind];
            }
        }
    }
}

impl Measured {
    fn count(&mut self, present: &Present, lasted: f64, whole: f64) {
        let part = lasted / whole;
        self.total += count(&mut self.servers, &present.all, part);
        for kind in 0..TYPES {
            self.totals[kind] += count(&mut self.types[kind], &present.loads[kind], part);
        }
    }
}

/// Counts loads that lasted for a part of the time; returns their part of the average.
fn count(extremes: &mut [Extremes; SERVERS], loads: &[u32; SERVERS], part: f64) -> f64 {
    let total: u32 = loads.iter().sum();
    for (server, (extremes, load)) in extremes.iter_mut().zip(loads).enumerate() {
        extremes.sum += f64::from(*load) * part;
        extremes.max = extremes.max.max(*load);
        extremes.min = extremes.min.min(*load);
        if total > 0 {
            let share = f64::from(*load) / f64::from(total);
            let off = (share / intended(server) - 1.0).abs() * 100.0;
            extremes.share_dev = extremes.share_dev.max(off);
        }
    }
    f64::from(total) * part
}
