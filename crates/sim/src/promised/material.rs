//! The random inputs of a run: servers, people, processes with durations.

use std::ops::Range;
use std::sync::Arc;

use legwork_model::id::{ActivityId, AgentId, DomainId};
use legwork_model::time::Timestamp;
use legwork_placement::{Topology, Transfer};

use crate::cluster::changes::{draw_topology, server};
use crate::dice::Dice;
use crate::material::{AGENTS, DOMAINS};

/// People with the same role can do the same steps, whatever their homes.
const ROLES: [&str; 3] = ["clerk", "manager", "driver"];
/// In minutes.
const TAKES_MIN: usize = 4;
const TAKES_MORE: usize = 9;

/// Sometimes one server alone, which assigns all work of machines; else two or three domains with one or two
/// servers each. People have any homes.
pub(super) fn topology(dice: &mut Dice) -> Topology {
    let is_alone = dice.chance(15);
    let size = if is_alone { 1 } else { 2 + dice.below(2) };
    let mut topology = draw_topology(size, Transfer::default(), dice);
    topology.servers.clear();
    for (number, name) in (0..).zip(&DOMAINS[..size]) {
        let more = if is_alone { 0 } else { dice.below(2) };
        for place in 0..=more {
            topology.servers.push(server(&format!("{name}-{}", place + 1), DomainId(number)));
        }
    }
    topology
}

/// Five people with one or two roles each, at least two for each role. Some fall ill at a moment, some have known
/// absences, some work only by a calendar, and some have a substitute.
#[derive(Clone)]
pub(super) struct People {
    /// When the run begins.
    pub(super) begin: Timestamp,
    roles: Vec<String>,
    calendars: Vec<Option<Calendar>>,
    /// Their working time, in order: by their calendars, without known absences.
    works: Vec<Vec<Range<i64>>>,
    /// Their share of that for planning, in per cent, if set.
    shares: Vec<Option<i64>>,
    /// Their reserve of that, in per cent.
    reserves: Vec<usize>,
    substitutes: Vec<Option<&'static str>>,
    /// Absences that are known before the first case begins.
    known: Vec<Away>,
    pub(super) away: Vec<Away>,
}

/// A person works for some minutes of every period in local time, from midnight on. A day has twelve such
/// stretches, the first when the run begins: enough for a run.
#[derive(Clone)]
struct Calendar {
    zone: usize,
    every: i64,
    works: i64,
    first: i64,
}

/// An absence; its end may be known.
#[derive(Clone)]
pub(super) struct Away {
    pub(super) agent: AgentId,
    pub(super) from: Timestamp,
    pub(super) to: Option<Timestamp>,
}

/// Most have slack by default; some have none.
const SHARES: [Option<i64>; 5] = [None, None, Some(100), Some(100), Some(60)];

const STRETCHES: i64 = 12;
const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

const ZONES: [&str; 4] = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"];
/// The changes of clocks in 2026, and the offsets in minutes of each zone, before and after.
const CHANGES: [(i64, [(i64, i64); 4]); 6] = [
    (1_772_953_200_000, [(0, 0), (60, 60), (-300, -240), (660, 660)]),
    (1_774_746_000_000, [(0, 0), (60, 120), (-240, -240), (660, 660)]),
    (1_775_314_800_000, [(0, 0), (120, 120), (-240, -240), (660, 630)]),
    (1_791_041_400_000, [(0, 0), (120, 120), (-240, -240), (630, 660)]),
    (1_792_890_000_000, [(0, 0), (120, 60), (-240, -240), (660, 660)]),
    (1_793_512_800_000, [(0, 0), (60, 60), (-240, -300), (660, 660)]),
];
/// How long before that a run begins.
const BEFORE_MAX: usize = 100 * 60_000;

impl Calendar {
    fn draw(begin: Timestamp, (change, ahead): &(i64, [(i64, i64); 4]), dice: &mut Dice) -> Self {
        // Mostly where the clocks are changed.
        let changed = ahead.iter().position(|(before, after)| before != after).unwrap_or(0);
        let zone = if dice.chance(60) { changed } else { dice.below(ZONES.len()) };
        let every = *dice.pick(&[60, 90, 120]).unwrap_or(&60);
        let works = every * dice.pick(&[50, 75, 84]).unwrap_or(&50) / 100;
        debug_assert!(begin.0 <= *change, "the clocks are changed during the run");
        let first = (begin.0 + ahead[zone].0 * MINUTE).rem_euclid(DAY) / MINUTE / every;
        Self { zone, every, works, first }
    }

    /// In minutes of a day.
    fn stretches(&self) -> impl Iterator<Item = i64> {
        let Self { every, first, .. } = *self;
        let all = (0..STRETCHES).map(|place| (first + place) * every % (24 * 60));
        all.collect::<std::collections::BTreeSet<_>>().into_iter()
    }

    fn text(&self) -> String {
        let time = |minute: i64| format!("{:02}:{:02}", minute / 60, minute % 60);
        let hours =
            self.stretches().map(|from| format!("{}-{}", time(from), time(from + self.works)));
        let hours = hours.collect::<Vec<_>>().join(" ");
        format!("{{ zone: {}, hours: {{ mon-sun: {hours} }} }}", ZONES[self.zone])
    }

    /// A skipped hour is not worked, and a repeated one is worked twice.
    fn works(
        &self,
        within: &Range<i64>,
        (change, ahead): &(i64, [(i64, i64); 4]),
    ) -> Vec<Range<i64>> {
        let (before, after) = ahead[self.zone];
        let mut works = Vec::new();
        for (from, to, ahead) in [(within.start, *change, before), (*change, within.end, after)] {
            let ahead = ahead * MINUTE;
            for day in (from + ahead) / DAY..=(to + ahead) / DAY {
                let begins = self.stretches().map(|minute| day * DAY + minute * MINUTE - ahead);
                let all =
                    begins.map(|begin| begin.max(from)..(begin + self.works * MINUTE).min(to));
                works.extend(all.filter(|stretch| !stretch.is_empty()));
            }
        }
        works
    }
}

impl People {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let roles = (0..AGENTS.len()).map(|place| {
            let (own, more) = (ROLES[place % ROLES.len()], ROLES[dice.below(ROLES.len())]);
            // Only one person has the last of three roles as their own.
            let more = if place == 0 { "driver" } else { more };
            if own == more { own.to_owned() } else { format!("{own}, {more}") }
        });
        let roles = roles.collect();
        let change = dice.pick(&CHANGES).unwrap_or(&CHANGES[0]);
        let begin = Timestamp(change.0 - dice.below(BEFORE_MAX) as i64);
        let (has_hours, has_absences) = (dice.chance(60), dice.chance(50));
        let calendars = AGENTS
            .map(|_| (has_hours && dice.chance(60)).then(|| Calendar::draw(begin, change, dice)));
        let mut known = Vec::new();
        for agent in AGENTS.iter().filter(|_| has_absences) {
            let from = begin.0 + dice.below(120 * 60_000) as i64 - 30 * MINUTE;
            let length = if dice.chance(20) { 300 } else { 10 + dice.below(60) as i64 };
            let (from, to) = (Timestamp(from), Some(Timestamp(from + length * MINUTE)));
            known.extend(dice.chance(40).then(|| Away { agent: (*agent).into(), from, to }));
        }
        let all = begin.0 - DAY..begin.0 + 4 * DAY;
        let works = AGENTS.iter().zip(&calendars).map(|(agent, calendar)| {
            let all = calendar.as_ref().map_or(vec![all.clone()], |own| own.works(&all, change));
            let own = known.iter().find(|away| away.agent == AgentId::from(*agent));
            let away = own.map_or(0..0, |away| away.from.0..away.to.map_or(i64::MAX, |to| to.0));
            let parts = all.into_iter().flat_map(|Range { start, end }| {
                [start..end.min(away.start), start.max(away.end)..end]
            });
            parts.filter(|part| !part.is_empty()).collect()
        });
        let (works, calendars) = (works.collect(), calendars.to_vec());
        let substitutes = AGENTS.map(|agent| {
            dice.pick(&AGENTS).copied().filter(|other| *other != agent && dice.chance(40))
        });
        let shares = AGENTS.map(|_| *dice.pick(&SHARES).unwrap_or(&None));
        let reserves = AGENTS.map(|_| if dice.chance(20) { 10 + dice.below(40) } else { 0 });
        let substitutes = substitutes.to_vec();
        let (shares, reserves) = (shares.to_vec(), reserves.to_vec());
        let away = Vec::new();
        Self { begin, roles, calendars, works, shares, reserves, substitutes, known, away }
    }

    /// Whether a person works at a moment, as far as known in advance.
    pub(super) fn is_on_duty(&self, agent: &AgentId, now: Timestamp) -> bool {
        self.works(agent).iter().any(|stretch| stretch.contains(&now.0))
    }

    /// The planned work of a person between two moments; 0 if the second is not later.
    pub(super) fn work_between(&self, agent: &AgentId, from: Timestamp, to: Timestamp) -> i64 {
        let own = self.works(agent).iter();
        let own = own.map(|stretch| (stretch.end.min(to.0) - stretch.start.max(from.0)).max(0));
        own.sum::<i64>() * self.share(agent) / 100
    }

    fn works(&self, agent: &AgentId) -> &[Range<i64>] {
        let place = AGENTS.iter().position(|one| AgentId::from(*one) == *agent);
        place.map_or(&[], |place| &self.works[place])
    }

    fn share(&self, agent: &AgentId) -> i64 {
        let place = AGENTS.iter().position(|one| AgentId::from(*one) == *agent);
        let said = place.and_then(|place| self.shares[place]);
        said.unwrap_or(100)
    }

    pub(super) fn text(&self) -> String {
        // No person has this one.
        let mut text = "organisation: promised\ncalendars:\n  any: { zone: UTC }\n".to_owned();
        for (agent, calendar) in AGENTS.iter().zip(&self.calendars) {
            if let Some(calendar) = calendar {
                text += &format!("  of-{agent}: {}\n", calendar.text());
            }
        }
        text += "agents:\n";
        for (place, agent) in AGENTS.iter().enumerate() {
            text += &format!("  {agent}: {{ roles: [{}]", self.roles[place]);
            if self.calendars[place].is_some() {
                text += &format!(", calendar: of-{agent}");
            }
            if let Some(share) = self.shares[place] {
                text += &format!(", share: {share}");
            }
            if self.reserves[place] > 0 {
                text += &format!(", reserve: {}", self.reserves[place]);
            }
            if let Some(substitute) = self.substitutes[place] {
                text += &format!(", substitutes: [{substitute}]");
            }
            let own = self.known.iter().chain(&self.away);
            let own = own.filter(|away| away.agent == AgentId::from(*agent));
            let absent = own.map(|Away { from, to, .. }| {
                let to = to.map_or(String::new(), |to| format!(", to: \"{to}\""));
                format!("{{ from: \"{from}\"{to} }}")
            });
            text += &format!(", absent: [{}]", absent.collect::<Vec<_>>().join(", "));
            text += " }\n";
        }
        text
    }
}

/// A process, and its shortest duration in minutes.
pub(super) struct Process {
    pub(super) name: Arc<str>,
    pub(super) text: String,
    pub(super) minutes: i64,
}

/// A sequence of steps, of blocks with two parallel branches, of choices, and of loops that are planned for two
/// iterations, sometimes nested.
pub(super) fn process(name: &str, domains: usize, dice: &mut Dice) -> Process {
    let mut text = format!("process: {name}\ndata: {{ n: int }}\nstart: [n]\nsteps:\n");
    let (mut minutes, mut steps) = (0, 0);
    for block in 0..2 + dice.below(2) {
        let (kind, is_nested) = (dice.below(4), dice.chance(30));
        let mut work = || {
            let takes = TAKES_MIN + dice.below(TAKES_MORE);
            let (role, domain) = (ROLES[dice.below(ROLES.len())], DOMAINS[dice.below(domains)]);
            (format!("who: Role({role}), at: {domain}, takes: {takes}m"), takes as i64)
        };
        let mut step = |margin: &str| {
            steps += 1;
            let (work, takes) = work();
            (format!("{margin}- {{ step: s{steps}, {work} }}\n"), takes)
        };
        if block == 0 {
            let (line, takes) = step("  ");
            text += &line;
            minutes += takes;
            continue;
        }
        let ((first, one), (second, other)) = (step("          "), step("          "));
        match kind {
            0 => {
                text += &format!(
                    "  - parallel: p{block}\n    branches:\n      - steps:\n{first}      - steps:\n{second}"
                );
                minutes += one.max(other);
            }
            1 => {
                text += &format!(
                    "  - choice: c{block}\n    branches:\n      - name: low\n        when: n < 5\n        steps:\n\
                     {first}      - name: high\n        otherwise: true\n        steps:\n{second}"
                );
                // All branches of a choice are planned.
                minutes += one.max(other);
            }
            _ => {
                let (inner, longer) = match is_nested {
                    true => {
                        repeated("          ", &format!("inner{block}"), (&second, other), work())
                    }
                    false => (second, other),
                };
                let body = (&*(first + &inner), one + longer);
                let (block, takes) = repeated("  ", &format!("outer{block}"), body, work());
                text += &block;
                minutes += takes;
            }
        }
    }
    Process { name: name.into(), text, minutes }
}

/// The planned iterations of a loop.
pub(super) const ROUNDS: i64 = 2;

/// A loop and its duration in all planned iterations.
fn repeated(
    margin: &str,
    name: &str,
    (body, takes): (&str, i64),
    (decision, decided): (String, i64),
) -> (String, i64) {
    let fields = decision.replace(", ", &format!("\n{margin}  "));
    let body = body.lines().map(|line| format!("{margin}{line}\n")).collect::<String>();
    let text = format!(
        "{margin}- loop: {name}\n{margin}  rounds: {ROUNDS}\n{margin}  {fields}\n{margin}  steps:\n{body}"
    );
    (text, (takes + decided) * ROUNDS)
}

/// The decision at the end of a loop; `None` at a step. Mostly within the planned iterations.
pub(super) fn decision(activity: &ActivityId) -> Option<&'static str> {
    let is_loop = ["outer", "inner"].iter().any(|name| activity.step.starts_with(name));
    let (round, around) = activity.iteration.0.split_last().filter(|_| is_loop)?;
    let luck = u64::from(activity.instance.spread()) + activity.step.len() as u64;
    let luck = around.iter().fold(luck, |luck, round| luck * 31 + u64::from(*round)) % 10;
    let rounds = match luck {
        0..=3 => 1,
        4..=8 => ROUNDS as u32,
        _ => ROUNDS as u32 + 1,
    };
    Some(if round + 1 < rounds { "repeat" } else { "leave" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_that_exists_twice_is_worked_twice() {
        let works = |change: usize, zone: usize| {
            let all = Calendar { zone, every: 120, works: 60, first: 0 };
            let (at, _) = CHANGES[change];
            let works = all.works(&(at - 120 * MINUTE..at + 180 * MINUTE), &CHANGES[change]);
            let minutes = works.iter().map(|it| (it.start - at) / MINUTE..(it.end - at) / MINUTE);
            minutes.collect::<Vec<_>>()
        };
        // In Berlin at 2 o'clock: it is 3 then, or 2 once more.
        assert_eq!(works(1, 1), [-120..-60, 60..120]);
        assert_eq!(works(4, 1), [-60..0, 0..60, 120..180]);
        // On Lord Howe it is half past 1 again.
        assert_eq!(works(2, 3), [-120..-60, 30..90, 150..180]);
    }
}
