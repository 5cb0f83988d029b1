//! Random inputs: speeds for which the paper gives means, and the sizes of all tasks.
//!
//! Invariant: they follow from the case, the number of processes and the seed alone, so that all
//! policies have the same work.

use legwork_schedule::Dice;

use super::{EXECUTORS, KINDS};

pub(super) const ENGINES: usize = 2;
/// The steps between two processes of an engine.
pub(super) const INTERVAL: f64 = 10.0;
/// The largest random size, by default; the smallest is one.
pub(super) const SIZE_MAX: usize = 100;
/// Not a table of the paper: every speed is random, as in its experiments with failures.
pub(super) const RANDOM: u8 = 6;

/// The units of a type that an executor does in a step.
pub(super) type Speeds = [[f64; EXECUTORS]; KINDS];

/// Table 1: each executor is good at another type.
const TABLE_1: Speeds = [
    [10.0, 2.0, 4.0, 4.0, 5.0, 5.0],
    [4.0, 5.0, 4.0, 10.0, 4.0, 1.0],
    [5.0, 10.0, 3.0, 2.0, 5.0, 10.0],
    [1.0, 5.0, 3.0, 5.0, 10.0, 4.0],
    [5.0, 4.0, 10.0, 5.0, 1.0, 4.0],
];

#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub(super) seed: u64,
    pub(super) speeds: Speeds,
    /// Of the tasks of each process, for each engine.
    pub(super) sizes: [Vec<[f64; KINDS]>; ENGINES],
}

impl Drawn {
    pub(super) fn new(case: u8, processes: u32, seed: u64) -> Self {
        Self::with_sizes(case, processes, seed, SIZE_MAX)
    }

    /// With sizes from one to `size_max`.
    pub(super) fn with_sizes(case: u8, processes: u32, seed: u64, size_max: usize) -> Self {
        let mut dice = Dice::new(seed << 8 | u64::from(case));
        let speeds = speeds(case, &mut dice);
        let mut process = |_| [(); KINDS].map(|()| 1.0 + dice.below(size_max) as f64);
        let sizes = [(); ENGINES].map(|()| (0..processes).map(&mut process).collect());
        Self { seed, speeds, sizes }
    }

    /// The units of work of each type.
    pub(super) fn work(&self) -> [f64; KINDS] {
        let mut work = [0.0; KINDS];
        for (kind, size) in self.sizes.iter().flatten().flat_map(|sizes| sizes.iter().enumerate()) {
            work[kind] += size;
        }
        work
    }

    /// When the last process arrives: no run ends before.
    pub(super) fn last_arrival(&self) -> f64 {
        self.sizes[0].len().saturating_sub(1) as f64 * INTERVAL
    }
}

/// The tables of the paper. For tables 2 to 4 it gives means: deviations of one unit are random.
fn speeds(case: u8, dice: &mut Dice) -> Speeds {
    let mut around = |means: [f64; EXECUTORS]| -> Speeds {
        [(); KINDS].map(|()| means.map(|mean| mean - 1.0 + dice.below(3) as f64))
    };
    match case {
        1 => TABLE_1,
        2 => around([8.0, 3.0, 3.0, 3.0, 3.0, 3.0]),
        3 => around([8.0, 5.0, 2.0, 8.0, 5.0, 2.0]),
        4 => around([5.0; EXECUTORS]),
        RANDOM => [(); KINDS].map(|()| [(); EXECUTORS].map(|()| 1.0 + dice.below(10) as f64)),
        _ => std::array::from_fn(|kind| match kind % 2 {
            0 => [9.0, 1.0, 5.0, 7.0, 3.0, 5.0],
            _ => [1.0, 9.0, 5.0, 3.0, 7.0, 5.0],
        }),
    }
}
