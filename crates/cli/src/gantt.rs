//! A plan as a chart: a line for each task, bars over the days with work.
//!
//! Invariant: no line is longer than the given width. Days and hours without work are left out.
//! Days and hours are those of the reader's time zone.

use std::collections::BTreeSet;

use legwork_api::deadlines::{Plan, Turn, TurnKind};
use legwork_model::time::Timestamp;
use legwork_model::zone::Zone;

use crate::abbreviate::short;
use crate::style::{ACTIVE, DIM, count, paint, plain, shorten, width};
use crate::{tree, when};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// Room for the weekday and the number of the day.
const COLUMNS_MIN: usize = 8;
const LABEL_CHARS: usize = 28;
/// How far ahead regular work is shown if there is no task.
const REGULAR_DAYS: i64 = 7;
const REGULAR: &str = "regular work";
const OFFERED: &str = "offered";
const OTHER: &str = "other jobs";

/// Keeps the turns before the end of the chart. Regular work has no end of its own.
pub(crate) fn cut(plan: &mut Plan) {
    let end = end(plan);
    plan.turns.retain(|turn| turn.from.0 < end);
}

/// The end of the last task, or some days ahead if there is none.
fn end(plan: &Plan) -> i64 {
    let given = plan.turns.iter().filter(|turn| turn.what != TurnKind::Regular);
    let end = given.map(|turn| turn.to.0).max();
    end.unwrap_or(plan.at.0.saturating_add(REGULAR_DAYS * DAY))
}

pub(crate) fn render(plan: &Plan, columns: usize) -> String {
    render_by(when::zone(), plan, columns)
}

fn render_by(zone: &Zone, plan: &Plan, columns: usize) -> String {
    let name = plain(&plan.name);
    let clock = zone.clock(plan.at);
    let plan = on_the_wall(zone, plan);
    let Some(axis) = Axis::of(&plan, columns) else {
        return format!("nothing is planned for {name}\n");
    };
    let mut out = axis.head(&clock);
    for (label, turns) in tasks(&plan) {
        let bars: String =
            axis.days.iter().map(|day| format!("│{}", axis.bars(*day, &turns))).collect();
        let is_promised = turns.iter().any(|turn| turn.what == TurnKind::Promised);
        let bars = paint(if is_promised { ACTIVE } else { DIM }, bars);
        out.push_str(&format!("{} {bars}{}\n", axis.label(&label), paint(DIM, "│")));
    }
    if axis.days_left > 0 {
        let left = count(axis.days_left, "day");
        out.push_str(&format!("{}\n", paint(DIM, format!("… and {left} after that"))));
    }
    out
}

/// The same plan in local time.
fn on_the_wall(zone: &Zone, plan: &Plan) -> Plan {
    let wall = |moment: Timestamp| Timestamp(zone.wall(moment));
    let turn = |turn: &Turn| Turn { from: wall(turn.from), to: wall(turn.to), ..turn.clone() };
    let turns = plan.turns.iter().map(turn).collect();
    Plan { at: wall(plan.at), turns, ..plan.clone() }
}

/// The turns of each task, the earliest task first; then what is offered and work without a promise, last regular work.
fn tasks(plan: &Plan) -> Vec<(String, Vec<&Turn>)> {
    let mut tasks: Vec<(String, Vec<&Turn>)> = Vec::new();
    let of = |what: TurnKind| plan.turns.iter().filter(move |turn| turn.what == what);
    for turn in of(TurnKind::Promised) {
        let label = label(turn);
        match tasks.iter_mut().find(|(known, _)| *known == label) {
            Some((_, turns)) => turns.push(turn),
            None => tasks.push((label, vec![turn])),
        }
    }
    tasks.sort_by_key(|(_, turns)| turns.iter().map(|turn| turn.from).min());
    let others =
        [(OFFERED, TurnKind::Offered), (OTHER, TurnKind::Other), (REGULAR, TurnKind::Regular)];
    for (label, what) in others {
        let turns: Vec<&Turn> = of(what).collect();
        tasks.extend((!turns.is_empty()).then(|| (label.to_owned(), turns)));
    }
    tasks
}

fn label(turn: &Turn) -> String {
    let Some(instance) = turn.instance else { return OTHER.to_owned() };
    let step = turn.step.as_deref().map(|step| tree::in_round(&plain(step), &turn.iteration));
    let step = step.map_or_else(String::new, |step| format!(":{step}"));
    format!("{}{step}", short(&instance.to_string()))
}

/// The days of the chart. All show the same hours.
struct Axis {
    label: usize,
    days: Vec<i64>,
    days_left: usize,
    /// From the beginning of a day.
    from: i64,
    to: i64,
    /// Of each day.
    columns: usize,
}

impl Axis {
    fn of(plan: &Plan, columns: usize) -> Option<Self> {
        let end = end(plan);
        let shown: Vec<&Turn> = plan.turns.iter().filter(|turn| turn.from.0 < end).collect();
        let (mut days, mut from, mut to) = (BTreeSet::new(), DAY, 0);
        for turn in &shown {
            for day in turn.from.0.div_euclid(DAY)..=(turn.to.0 - 1).div_euclid(DAY) {
                days.insert(day);
                from = from.min((turn.from.0 - day * DAY).max(0));
                to = to.max((turn.to.0 - day * DAY).min(DAY));
            }
        }
        let (from, to) = (from.div_euclid(HOUR) * HOUR, (to + HOUR - 1).div_euclid(HOUR) * HOUR);
        let label = tasks(plan).iter().map(|(label, _)| width(label)).max()?.min(LABEL_CHARS);
        // A space behind the label, a line behind the last day.
        let room = columns.saturating_sub(label + 2).max(COLUMNS_MIN + 1);
        let fit = (room / (COLUMNS_MIN + 1)).min(days.len());
        let hours = usize::try_from((to - from) / HOUR).unwrap_or(1).max(1);
        // No more than four columns an hour: plans are not read to the minute.
        let columns = (room / fit.max(1) - 1).clamp(COLUMNS_MIN, (4 * hours).max(COLUMNS_MIN));
        let days_left = days.len() - fit;
        let days = days.into_iter().take(fit).collect();
        Some(Self { label, days, days_left, from, to, columns })
    }

    /// As wide as the labels are.
    fn label(&self, text: &str) -> String {
        let text = shorten(text, self.label);
        let gap = self.label.saturating_sub(width(&text));
        format!("{text}{}", " ".repeat(gap))
    }

    /// Two lines: the days, and the hours they begin and end with.
    fn head(&self, clock: &str) -> String {
        let hours = |moment: i64| format!("{:02}", moment / HOUR);
        let (first, last) = (hours(self.from), hours(self.to));
        let gap = " ".repeat(self.columns.saturating_sub(first.len() + last.len()));
        let day = |day: &i64| format!("│{:<columns$}", day_name(*day), columns = self.columns);
        let days: String = self.days.iter().map(day).collect();
        let hours = format!("│{first}{gap}{last}").repeat(self.days.len());
        let line = |label: &str, text: String| {
            format!("{} {}\n", self.label(label), paint(DIM, format!("{text}│")))
        };
        line("", days) + &line(clock, hours)
    }

    /// The columns of a day in which a task is worked on.
    fn bars(&self, day: i64, turns: &[&Turn]) -> String {
        let length = self.to - self.from;
        let moment = |column: usize| {
            day * DAY + self.from + length * column as i64 / self.columns.max(1) as i64
        };
        let bar = |column: usize| {
            let (from, to) = (moment(column), moment(column + 1));
            let within = |turn: &&Turn| (turn.to.0.min(to) - turn.from.0.max(from)).max(0);
            let worked: i64 = turns.iter().map(within).sum();
            // A cell that is worked on for half of its time is full. Short work must be visible too.
            match worked {
                0 => ' ',
                worked if worked * 2 >= to - from => '█',
                _ => '▏',
            }
        };
        (0..self.columns).map(bar).collect()
    }
}

/// `Mon 16`
fn day_name(day: i64) -> String {
    const WEEK: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    // The epoch was a Thursday.
    let weekday = WEEK[day.rem_euclid(7) as usize];
    let date = Timestamp(day * DAY).to_string();
    format!("{weekday} {}", date.get(8..10).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use legwork_api::deadlines::PlanKind;

    use super::*;
    use crate::by::tests::at;

    const CASES: [&str; 2] = ["inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC", "inst_01KFZQ9Y5GB4D7T3N8XJ2M7ABC"];

    /// Turns as `16T08 16T11 0:check` or `0:check:1`, with the place of the case, `offered`, `other`, or nothing for
    /// regular work.
    fn plan(turns: &[&str]) -> Plan {
        let turn = |text: &&str| {
            let parts: Vec<&str> = text.split(' ').collect();
            let moment = |text: &str| at(&format!("2026-01-{text}:00:00Z"));
            let task = parts.get(2).and_then(|task| task.split_once(':'));
            let what = match (parts.get(2), task) {
                (None, _) => TurnKind::Regular,
                (Some(&"offered"), None) => TurnKind::Offered,
                (Some(_), None) => TurnKind::Other,
                (Some(_), Some(_)) => TurnKind::Promised,
            };
            let (from, to) = (moment(parts[0]), moment(parts[1]));
            let (step, round) =
                task.map(|(_, step)| step.split_once(':').unwrap_or((step, ""))).unzip();
            Turn {
                what,
                lane: 0,
                from,
                to,
                instance: task
                    .map(|(case, _)| CASES[case.parse::<usize>().unwrap()].parse().unwrap()),
                step: step.map(Into::into),
                iteration: round.iter().filter_map(|round| round.parse().ok()).collect(),
                due: None,
            }
        };
        let (name, at) = ("ann".into(), at("2026-01-16T08:00:00Z"));
        Plan { name, kind: PlanKind::Person, at, turns: turns.iter().map(turn).collect() }
    }

    fn chart(turns: &[&str], columns: usize) -> String {
        let text = anstream::adapter::strip_str(&render(&plan(turns), columns)).to_string();
        assert!(text.lines().all(|line| width(line) <= columns.max(40)), "{text}");
        text
    }

    #[test]
    fn nights_and_weekends_take_no_place() {
        let turns = [
            "16T08 16T11 0:check",
            "16T11 16T14 1:check",
            "16T14 16T16 0:approve",
            "16T15 16T16",
            "19T08 19T09 0:approve",
            "20T15 20T16",
        ];
        insta::assert_snapshot!(chart(&turns, 60), @r"
                       │Fri 16               │Mon 19               │
        UTC            │08                 16│08                 16│
        8XJ2M6:check   │████████             │                     │
        8XJ2M7:check   │       ▏████████     │                     │
        8XJ2M6:approve │               ▏█████│███                  │
        regular work   │                  ███│                     │
        ");
    }

    #[test]
    fn days_and_hours_are_those_of_the_reader() {
        let zone = Zone::named("Asia/Tokyo").unwrap();
        let turns = ["16T14 16T16 0:check", "16T00 16T02 0:file"];
        let text = anstream::adapter::strip_str(&render_by(&zone, &plan(&turns), 40)).to_string();
        insta::assert_snapshot!(text, @r"
                     │Fri 16      │Sat 17      │
        JST          │00        24│00        24│
        8XJ2M6:file  │    ██      │            │
        8XJ2M6:check │           █│█           │
        ");
    }

    #[test]
    fn each_round_of_a_loop_has_its_own_line() {
        let turns = ["16T08 16T09 0:check:0", "16T09 16T10 0:check:1", "16T10 16T11 0:file"];
        insta::assert_snapshot!(chart(&turns, 40), @r"
                       │Fri 16      │
        UTC            │08        11│
        8XJ2M6:check:0 │████        │
        8XJ2M6:check:1 │    ████    │
        8XJ2M6:file    │        ████│
        ");
    }

    #[test]
    fn what_nobody_promised_is_not_taken_for_regular_work() {
        let turns =
            ["16T08 16T09 other", "16T09 16T10 0:check", "16T08 16T09", "16T09 16T10 offered"];
        insta::assert_snapshot!(chart(&turns, 40), @r"
                     │Fri 16  │
        UTC          │08    10│
        8XJ2M6:check │    ████│
        offered      │    ████│
        other jobs   │████    │
        regular work │████    │
        ");
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let turns = ["16T08 16T09 0:check", "19T08 19T09 0:check", "20T08 20T09 0:check"];
        insta::assert_snapshot!(chart(&turns, 40), @r"
                     │Fri 16  │Mon 19  │
        UTC          │08    09│08    09│
        8XJ2M6:check │████████│████████│
        … and 1 day after that
        ");
    }

    #[test]
    fn what_is_done_regularly_is_told_as_far_as_it_is_drawn() {
        let left = |turns: &[&str]| {
            let mut plan = plan(turns);
            cut(&mut plan);
            plan.turns.iter().map(|turn| turn.to.to_string()[8..13].to_owned()).collect::<Vec<_>>()
        };
        let turns = ["16T08 16T09", "17T08 17T11 0:check", "17T11 17T12", "18T08 18T09"];
        assert_eq!(left(&turns), ["16T09", "17T11"]);
        assert_eq!(left(&["16T08 16T09", "25T08 25T09"]), ["16T09"]);
    }

    #[test]
    fn a_plan_of_nothing_says_so() {
        assert_eq!(chart(&[], 80), "nothing is planned for ann\n");
        insta::assert_snapshot!(chart(&["16T08 16T09", "25T08 25T09"], 80), @r"
                     │Fri 16  │
        UTC          │08    09│
        regular work │████████│
        ");
    }
}
