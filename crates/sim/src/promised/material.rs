//! What a run is made of: servers, people, processes whose steps say how long they take.

use std::collections::BTreeSet;
use std::sync::Arc;

use legwork_model::id::{ActivityId, AgentId, DomainId};
use legwork_model::time::Timestamp;
use legwork_placement::{Topology, Transfer};

use crate::cluster::changes::{draw_topology, server};
use crate::dice::Dice;
use crate::material::{AGENTS, DOMAINS};

/// Whoever plays the same role can do the same steps, wherever they are at home.
const ROLES: [&str; 3] = ["clerk", "manager", "driver"];
/// In minutes.
const TAKES_MIN: usize = 4;
const TAKES_MORE: usize = 9;

/// Two or three domains with one or two servers each; people are at home anywhere.
pub(super) fn topology(dice: &mut Dice) -> Topology {
    let size = 2 + dice.below(2);
    let mut topology = draw_topology(size, Transfer::default(), dice);
    topology.servers.clear();
    for (number, name) in (0..).zip(&DOMAINS[..size]) {
        for place in 0..=dice.below(2) {
            topology.servers.push(server(&format!("{name}-{}", place + 1), DomainId(number)));
        }
    }
    topology
}

/// Five people with one or two roles each, at least two for each role. Some are away from a moment on, some work only
/// some minutes of each hour, and some have a substitute.
#[derive(Clone)]
pub(super) struct People {
    roles: Vec<String>,
    /// How many minutes of each hour they work.
    minutes: Vec<i64>,
    /// With how much of that they are planned, in per cent, if that is said.
    shares: Vec<Option<i64>>,
    /// What of that is promised only after a fault, in per cent.
    reserves: Vec<usize>,
    substitutes: Vec<Option<&'static str>>,
    pub(super) away: Vec<Away>,
}

/// Somebody is absent; it may be known until when.
#[derive(Clone)]
pub(super) struct Away {
    pub(super) agent: AgentId,
    pub(super) from: Timestamp,
    pub(super) to: Option<Timestamp>,
}

/// Most have slack, as nobody says otherwise; some have none.
const SHARES: [Option<i64>; 5] = [None, None, Some(100), Some(100), Some(60)];

/// A calendar has no more stretches in a day: enough for a run.
const HOURS: i64 = 12;
const HOUR: i64 = 3_600_000;

impl People {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let roles = (0..AGENTS.len()).map(|place| {
            let (own, more) = (ROLES[place % ROLES.len()], ROLES[dice.below(ROLES.len())]);
            // The last of three roles has one person of its own only.
            let more = if place == 0 { "driver" } else { more };
            if own == more { own.to_owned() } else { format!("{own}, {more}") }
        });
        let roles = roles.collect();
        let has_hours = dice.chance(40);
        let minutes = AGENTS.map(|_| match has_hours && dice.chance(60) {
            true => *dice.pick(&[30, 45, 50]).unwrap_or(&45),
            false => 60,
        });
        let substitutes = AGENTS.map(|agent| {
            dice.pick(&AGENTS).copied().filter(|other| *other != agent && dice.chance(40))
        });
        let shares = AGENTS.map(|_| *dice.pick(&SHARES).unwrap_or(&None));
        let reserves = AGENTS.map(|_| if dice.chance(20) { 10 + dice.below(40) } else { 0 });
        let (minutes, substitutes) = (minutes.to_vec(), substitutes.to_vec());
        let (shares, reserves) = (shares.to_vec(), reserves.to_vec());
        Self { roles, minutes, shares, reserves, substitutes, away: Vec::new() }
    }

    /// Whether somebody works at a moment, by their calendar.
    pub(super) fn is_on_duty(&self, agent: &AgentId, now: Timestamp) -> bool {
        now.0 % HOUR < self.of_an_hour(agent)
    }

    /// How much work somebody is planned to do between two moments; 0 if the second is not later.
    pub(super) fn work_between(&self, agent: &AgentId, from: Timestamp, to: Timestamp) -> i64 {
        let own = self.of_an_hour(agent);
        let until = |moment: Timestamp| moment.0 / HOUR * own + (moment.0 % HOUR).min(own);
        (until(to) - until(from)).max(0) * self.share(agent) / 100
    }

    /// How long somebody works in each hour, from its beginning on.
    fn of_an_hour(&self, agent: &AgentId) -> i64 {
        let place = AGENTS.iter().position(|one| AgentId::from(*one) == *agent);
        place.map_or(HOUR, |place| self.minutes[place] * 60_000)
    }

    fn share(&self, agent: &AgentId) -> i64 {
        let place = AGENTS.iter().position(|one| AgentId::from(*one) == *agent);
        let said = place.and_then(|place| self.shares[place]);
        said.unwrap_or(100)
    }

    pub(super) fn text(&self) -> String {
        // Nobody has this one.
        let mut text = "organisation: promised\ncalendars:\n  any: { zone: UTC }\n".to_owned();
        for minutes in self.minutes.iter().filter(|minutes| **minutes < 60).collect::<BTreeSet<_>>()
        {
            let hours = (0..HOURS).map(|hour| format!("{hour:02}:00-{hour:02}:{minutes:02}"));
            let hours = hours.collect::<Vec<_>>().join(" ");
            text += &format!("  c{minutes}: {{ zone: UTC, hours: {{ mon-sun: {hours} }} }}\n");
        }
        text += "agents:\n";
        for (place, agent) in AGENTS.iter().enumerate() {
            text += &format!("  {agent}: {{ roles: [{}]", self.roles[place]);
            if self.minutes[place] < 60 {
                text += &format!(", calendar: c{}", self.minutes[place]);
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
            if let Some(Away { from, to, .. }) =
                self.away.iter().find(|away| away.agent == AgentId::from(*agent))
            {
                let to = to.map_or(String::new(), |to| format!(", to: \"{to}\""));
                text += &format!(", absent: [{{ from: \"{from}\"{to} }}]");
            }
            text += " }\n";
        }
        text
    }
}

/// A process, and how long it takes in minutes at least.
pub(super) struct Process {
    pub(super) name: Arc<str>,
    pub(super) text: String,
    pub(super) minutes: i64,
}

/// A sequence of steps, of blocks with two branches at the same time, of choices, and of loops that are planned for two
/// rounds, now and then one within the other.
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
                // Of a choice all branches are reckoned with.
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

/// A loop that is planned for so many rounds.
pub(super) const ROUNDS: i64 = 2;

/// A loop and how long it takes in all planned rounds.
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

/// What whoever decides at the end of a loop says; `None` at a step. Mostly no more rounds are gone than planned.
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
    fn only_the_part_of_an_hour_counts_in_which_somebody_works() {
        let mut people = People::draw(&mut Dice::new(1));
        (people.minutes[0], people.shares[0]) = (30, Some(100));
        let ann = AgentId::from(AGENTS[0]);
        let between = |from, to| people.work_between(&ann, Timestamp(from), Timestamp(to));
        assert_eq!(between(3_182_912, 3_601_330), 1_330);
        assert_eq!(between(0, 3 * HOUR), 90 * 60_000);
        assert_eq!((between(HOUR - 1, 0), between(2_000_000, HOUR)), (0, 0));
        assert!(people.is_on_duty(&ann, Timestamp(HOUR)));
        assert!(!people.is_on_duty(&ann, Timestamp(HOUR / 2)));
    }
}
