//! Watches over the weights: whether the servers of a domain have the load they are meant to have.
//!
//! Invariant: it sees what it is told and answers with other weights, nothing else. It is slow on
//! purpose: what is not off for a whole window, in one direction, is left to itself; after a change
//! it waits, and a weight changes by little at once and never far away from what is meant. Where
//! a server does not tell its load nothing is concluded: it may be down.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

use crate::layout::Weighted;
use crate::topology::Server;

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

/// A server's weight, and the part of the load it is meant to have.
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

/// What is proposed for one server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposed {
    pub watched: Watched,
    /// The share of the domain's load that it is meant to have, and the one it had.
    pub meant: f64,
    pub had: f64,
    /// Its weight from now on; of the others in the same measure.
    pub weight: u32,
}

/// What has been seen of one domain.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Nothing is proposed before: the last change is to show first.
    quiet_until: Timestamp,
    /// Loads were off and are not right yet: less is needed to go on than to begin.
    is_correcting: bool,
    /// When the present part of the window began, and the loads since.
    part_since: Timestamp,
    part: BTreeMap<ServerId, u64>,
    /// The parts before, the oldest first.
    parts: Vec<BTreeMap<ServerId, u64>>,
}

/// A window is looked at in so many parts: in each of them the load has to be off the same way.
const PARTS: usize = 4;
/// With less load than this in a part, chance decides who has how much of it.
const LOAD_MIN: u64 = 100;
/// How many times smaller or greater than meant the share of a weight becomes, at most.
const DRIFT_MAX: f64 = 4.0;
/// What proposed weights add up to, about.
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

    /// The weights were changed, by whomever: what was seen before counts no more.
    pub fn changed(&mut self, policy: &Policy, now: Timestamp) {
        *self = Self { is_correcting: self.is_correcting, ..Self::new(policy, now) };
    }

    /// Hears what load every server of the domain has, in any one measure. To be called often, and
    /// as often in every part of a window.
    pub fn hear(
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

    /// Whether a server was off, the same way in all parts of a window, and more than it may.
    /// `None` if that cannot be told.
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

    /// Weights that would have given every server what it is meant to have, as far as one step goes.
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
