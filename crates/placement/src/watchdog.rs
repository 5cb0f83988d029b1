//! Watches over the weights: whether the servers of a domain have the load they are meant to have.

use std::ops::RangeInclusive;

/// What is done about load that is not where it is meant to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    #[default]
    Off,
    /// Other weights are proposed.
    Propose,
    /// Other weights are put in force.
    Apply,
}

impl Mode {
    pub const ALL: [Self; 3] = [Self::Off, Self::Propose, Self::Apply];

    /// The word for it in a topology file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Propose => "propose",
            Self::Apply => "apply",
        }
    }
}

/// How the weights are watched over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub mode: Mode,
    /// How far, in percent of what is meant, a server's load may be off.
    pub deviation_pct: u32,
    /// For how long it has to be off before anything is done.
    pub window_minutes: u32,
    /// How long a change is given to show.
    pub pause_minutes: u32,
    /// By how much, in percent, a weight changes at once, at most.
    pub step_pct: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            deviation_pct: 10,
            window_minutes: 30,
            pause_minutes: 120,
            step_pct: 20,
        }
    }
}

/// A day.
const MINUTES_MAX: u32 = 24 * 60;

impl Policy {
    /// Its numbers: what they are called in a topology file, and what they may be.
    pub(crate) fn numbers(&mut self) -> [(&'static str, RangeInclusive<u32>, &mut u32); 4] {
        [
            ("deviation_pct", 1..=100, &mut self.deviation_pct),
            ("window_minutes", 1..=MINUTES_MAX, &mut self.window_minutes),
            ("pause_minutes", 1..=MINUTES_MAX, &mut self.pause_minutes),
            ("step_pct", 1..=100, &mut self.step_pct),
        ]
    }
}
