//! The watchdog: whether the servers of a domain have their intended load.
//!
//! Invariant: its input is reported loads and its output other weights, nothing else. It is slow on
//! purpose: only a deviation for a whole window, in one direction, is corrected; after a change it
//! pauses, and a weight changes in small steps and never far from what is intended. If a server does
//! not report its load nothing is concluded: it may be down.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

use crate::layout::Weighted;
use crate::topology::Server;

/// What the watchdog does about a deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    #[default]
    Off,
    /// Proposes other weights.
    Propose,
    /// Applies other weights.
    Apply,
}

impl Mode {
    pub const ALL: [Self; 3] = [Self::Off, Self::Propose, Self::Apply];

    /// The word in a topology file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Propose => "propose",
            Self::Apply => "apply",
        }
    }
}

/// The settings of the watchdog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub mode: Mode,
    /// The tolerated deviation of a server's load, in percent of the intended one.
    pub deviation_pct: u32,
    /// How long a deviation lasts before it is corrected.
    pub window_minutes: u32,
    /// The pause after a change, in which it takes effect.
    pub pause_minutes: u32,
    /// The largest change of a weight at once, in percent.
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
    /// Its numbers: their names in a topology file, and their ranges.
    pub(crate) fn numbers(&mut self) -> [(&'static str, RangeInclusive<u32>, &mut u32); 4] {
        [
            ("deviation_pct", 1..=100, &mut self.deviation_pct),
            ("window_minutes", 1..=MINUTES_MAX, &mut self.window_minutes),
            ("pause_minutes", 1..=MINUTES_MAX, &mut self.pause_minutes),
            ("step_pct", 1..=100, &mut self.step_pct),
        ]
    }
}

/// A server's weight, and its intended share of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    pub server: ServerId,
    pub weight: u32,
    pub meant: u32,
}

impl Watched {
    pub fn new(id: ServerId, server: &Server) -> Self {
        Self { server: id, weight: server.weight, meant: server.meant() }
    }
}

/// Other weights for a domain, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    pub changes: Vec<Proposed>,
}

/// The proposal for one server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposed {
    pub watched: Watched,
    /// Its intended share of the domain's load, and its actual one.
    pub meant: f64,
    pub had: f64,
    /// Its new weight, relative to the other new weights.
    pub weight: u32,
}

/// The observations of one domain.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The end of the pause after the last change.
    quiet_until: Timestamp,
    /// A correction is under way: a smaller deviation is needed to go on than to begin.
    is_correcting: bool,
    /// When the current part of the window began, and the loads since.
    part_since: Timestamp,
    part: BTreeMap<ServerId, u64>,
    /// Earlier parts, oldest first.
    parts: Vec<BTreeMap<ServerId, u64>>,
}

/// The number of parts of a window: the load has to deviate in the same direction in each.
const PARTS: usize = 4;
/// With less load than this in a part, chance decides the shares.
const LOAD_MIN: u64 = 100;
/// How many times smaller or greater than intended a share becomes, at most.
const DRIFT_MAX: f64 = 4.0;
/// The approximate sum of proposed weights.
const WEIGHTS_SUM: f64 = 100_000.0;

impl Watch {
    /// Begins to watch, after a change or for the first time.
    pub fn new(policy: &Policy, now: Timestamp) -> Self {
        Self {
            quiet_until: now.plus(minutes(policy.pause_minutes)),
            is_correcting: false,
            part_since: now,
            part: BTreeMap::new(),
            parts: Vec::new(),
        }
    }

    /// The weights were changed, by the watchdog or by an operator: earlier observations no longer
    /// count.
    pub fn changed(&mut self, policy: &Policy, now: Timestamp) {
        *self = Self { is_correcting: self.is_correcting, ..Self::new(policy, now) };
    }

    /// Takes the reported load of every server of the domain, in any one unit. To be called often,
    /// and equally often in every part of a window.
    pub fn on_loads(
        &mut self,
        policy: &Policy,
        servers: &[Watched],
        loads: &BTreeMap<ServerId, u64>,
        now: Timestamp,
    ) -> Option<Proposal> {
        let counted = servers.iter().filter(|watched| watched.weight > 0 && watched.meant > 0);
        if policy.mode == Mode::Off || !counted.clone().all(|each| loads.contains_key(&each.server))
        {
            self.begin_anew(now);
            return None;
        }
        for watched in counted.clone() {
            let load = loads.get(&watched.server).copied().unwrap_or_default();
            let sum = self.part.entry(watched.server).or_default();
            *sum = sum.saturating_add(load);
        }
        if now < self.part_since.plus(minutes(policy.window_minutes) / PARTS as u32) {
            return None;
        }
        self.part_since = now;
        self.parts.push(std::mem::take(&mut self.part));
        if self.parts.len() > PARTS {
            self.parts.remove(0);
        }
        let counted: Vec<Watched> = counted.copied().collect();
        let is_off = self.is_off(policy, &counted)?;
        self.is_correcting = is_off;
        if !is_off || now < self.quiet_until {
            return None;
        }
        let proposal = self.propose(policy, &counted);
        self.changed(policy, now);
        proposal
    }

    fn begin_anew(&mut self, now: Timestamp) {
        self.part_since = now;
        self.part.clear();
        self.parts.clear();
    }

    /// Whether a server deviated in the same direction in all parts of a window by more than is
    /// tolerated. `None` if unknown.
    fn is_off(&self, policy: &Policy, servers: &[Watched]) -> Option<bool> {
        let weak = |part: &BTreeMap<ServerId, u64>| total(part) < LOAD_MIN as f64;
        if self.parts.len() < PARTS || self.parts.iter().any(weak) || servers.len() < 2 {
            return None;
        }
        let parts = if self.is_correcting { 2.0 } else { 1.0 };
        let limit = f64::from(policy.deviation_pct) / 100.0 / parts;
        Some(servers.iter().any(|watched| {
            let meant = meant(servers, watched);
            let off = |part: &BTreeMap<ServerId, u64>| share(part, watched.server) / meant - 1.0;
            let all = self.parts.iter().map(off);
            let mean = all.clone().sum::<f64>() / PARTS as f64;
            mean.abs() > limit && all.clone().all(|off| off * mean > 0.0)
        }))
    }

    /// Weights that would have given every server its intended load, limited to one step.
    fn propose(&self, policy: &Policy, servers: &[Watched]) -> Option<Proposal> {
        let mut seen: BTreeMap<ServerId, u64> = BTreeMap::new();
        for (server, load) in self.parts.iter().flatten() {
            *seen.entry(*server).or_default() += load;
        }
        let step = 1.0 + f64::from(policy.step_pct) / 100.0;
        let weights: f64 = servers.iter().map(|watched| f64::from(watched.weight)).sum();
        let wanted = servers.iter().map(|watched| {
            let (meant, had) = (meant(servers, watched), share(&seen, watched.server));
            let factor = (meant / had.max(f64::EPSILON)).clamp(1.0 / step, step);
            let part = f64::from(watched.weight) / weights * factor;
            (*watched, meant, had, part.clamp(meant / DRIFT_MAX, meant * DRIFT_MAX))
        });
        let wanted: Vec<(Watched, f64, f64, f64)> = wanted.collect();
        let sum: f64 = wanted.iter().map(|(_, _, _, part)| part).sum();
        let changes = wanted.into_iter().map(|(watched, meant, had, part)| {
            let weight = (part / sum * WEIGHTS_SUM).round().max(1.0) as u32;
            Proposed { watched, meant, had, weight }
        });
        let proposal = Proposal { changes: changes.collect() };
        proposal.changes_anything().then_some(proposal)
    }
}

impl Proposal {
    pub fn weights(&self) -> impl Iterator<Item = Weighted> {
        self.changes.iter().map(|change| (change.watched.server, change.weight))
    }

    /// Whether any share changes by more than rounding: at the limits none does.
    fn changes_anything(&self) -> bool {
        let sum =
            |of: fn(&Proposed) -> u32| self.changes.iter().map(|c| f64::from(of(c))).sum::<f64>();
        let (before, after) = (sum(|change| change.watched.weight), sum(|change| change.weight));
        self.changes.iter().any(|change| {
            let was = f64::from(change.watched.weight) / before;
            (f64::from(change.weight) / after / was - 1.0).abs() > 0.001
        })
    }
}

impl fmt::Display for Proposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (had, meant) = (self.had * 100.0, self.meant * 100.0);
        write!(f, "{had:.1} % of the load where {meant:.1} % is meant: weight {}", self.weight)
    }
}

fn meant(servers: &[Watched], of: &Watched) -> f64 {
    let all: f64 = servers.iter().map(|watched| f64::from(watched.meant)).sum();
    f64::from(of.meant) / all
}

fn total(loads: &BTreeMap<ServerId, u64>) -> f64 {
    loads.values().map(|load| *load as f64).sum()
}

fn share(loads: &BTreeMap<ServerId, u64>, of: ServerId) -> f64 {
    loads.get(&of).copied().unwrap_or_default() as f64 / total(loads).max(1.0)
}

fn minutes(count: u32) -> Duration {
    Duration::from_secs(u64::from(count) * 60)
}
