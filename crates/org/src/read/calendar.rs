//! Reads calendars and regular tasks of agents.
//!
//! The limits are generous for people and small for machines: working time is computed quickly,
//! whatever the file says.

use std::time::Duration;

use legwork_model::finding::{Rule, Spanned};
use legwork_model::time::{Timestamp, format_duration, parse_duration};
use legwork_model::yaml::fields::{self, EXPRESSION_LEN_MAX, Fields, NAME_LEN_MAX, quote};
use legwork_model::yaml::tree::{Content, Node};

use super::Reading;
use crate::calendar::{
    Calendar, Cron, Draft, Mistake, Regular, Week, When, Zone, days, hours, short,
};

/// The most calendars of an organisation.
pub const CALENDARS_MAX: usize = 1_000;
/// The most entries of `closed` in one calendar.
pub const CLOSED_MAX: usize = 1_000;
/// The most regular tasks of one agent.
pub const REGULAR_MAX: usize = 20;
/// The most occurrences a day of all regular tasks of one agent together.
const TIMES_A_DAY_MAX: usize = 96;
/// The longest appointment.
const APPOINTMENT_MAX: Duration = Duration::from_secs(24 * 3600);
/// The longest period of a regular task.
const PERIOD_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// The shortest period, and the shortest regular task.
const REGULAR_MIN: Duration = Duration::from_secs(60);
/// Periods without a beginning are counted from a Monday.
const MONDAY: i64 = 4;

pub(crate) const CALENDAR_FIELDS: [&str; 3] = ["zone", "hours", "closed"];
pub(crate) const REGULAR_FIELDS: [&str; 5] = ["task", "at", "every", "takes", "from"];

impl Reading {
    pub(super) fn calendar(&mut self, name: &str, node: &Node) -> Option<Calendar> {
        let what = format!("calendar `{name}`");
        let fields = self.entry(node, &what, &CALENDAR_FIELDS)?;
        let hint = "write `zone: ` and the name of a time zone, such as Europe/Berlin";
        let zone = fields.required("zone", hint, &mut self.report);
        let zone = zone.and_then(|node| self.zone(node, &what));
        let week = match fields.value("hours") {
            None => Some(Week::whole()),
            Some(node) => self.week(node, &what),
        };
        let closed = self.closed(&fields);
        Some(Calendar::new(zone?, week?, closed))
    }

    fn zone(&mut self, node: &Node, what: &str) -> Option<Zone> {
        let what = format!("`zone` of {what}");
        let name = fields::text(node, &what, NAME_LEN_MAX, &mut self.report)?;
        let zone = Zone::named(name.value);
        if zone.is_none() {
            self.guesses += 1;
            let near = (self.guesses <= super::GUESSES_MAX).then(|| Zone::guess(name.value));
            let hint = match near.flatten() {
                Some(near) => format!("did you mean `{near}`?"),
                None => "write the name of a time zone, such as Europe/Berlin or UTC".to_owned(),
            };
            let message = format!("there is no time zone {}", quote(name.value));
            self.report.error(name.span, Rule::Z1, message, hint);
        }
        zone
    }

    fn week(&mut self, node: &Node, what: &str) -> Option<Week> {
        let what = format!("`hours` of {what}");
        let entries = Fields::of(node, &what, &mut self.report)?;
        let mut draft = Draft::default();
        let mut named: Vec<u32> = Vec::new();
        let mut whole = true;
        for (key, value) in entries.iter() {
            whole &= self.hours_of(&what, key, value, &mut named, &mut draft).is_some();
        }
        let week = draft.finish();
        if whole && week.is_none() {
            let hint = "write hours such as `mon-fri: 08:00-16:30`, or leave `hours` out: then any \
                        hour will do";
            self.report.error(node.span, Rule::Y2, format!("{what} name no hours"), hint);
        }
        week.filter(|_| whole)
    }

    fn hours_of(
        &mut self,
        what: &str,
        key: Spanned<&str>,
        value: &Node,
        named: &mut Vec<u32>,
        draft: &mut Draft,
    ) -> Option<()> {
        let days = days(key.value).map_err(|mistake| {
            mistake.tell_at(key.span, Some(0), what, &mut self.report);
        });
        let what = format!("{what} on {}", quote(key.value));
        let hours = self.parsed(value, &what, hours);
        let (days, hours) = (days.ok()?, hours?);
        for day in days {
            if named.contains(&day) {
                let message = format!("{what}: `{}` is named twice", short(day));
                self.report.error(key.span, Rule::Y2, message, "write all hours of a day together");
                return None;
            }
            named.push(day);
            for &own in &hours {
                if let Err((other, others)) = draft.add(day, own) {
                    let message = format!(
                        "{what}: `{own}` on {} lies across `{others}` on {}",
                        short(day),
                        short(other)
                    );
                    let hint = "let one end before the other begins";
                    self.report.error(value.span, Rule::Y2, message, hint);
                    return None;
                }
            }
        }
        Some(())
    }

    /// Days from the first until the second, exclusive.
    fn closed(&mut self, fields: &Fields<'_>) -> Vec<std::ops::Range<i64>> {
        let Some(node) = fields.value("closed") else { return Vec::new() };
        let what = format!("`closed` of {}", fields.what());
        let hint = "write `closed: [2026-12-25, { from: 2026-12-31, to: 2027-01-01 }]`";
        let Some(items) = fields::items(node, &what, hint, &mut self.report) else {
            return Vec::new();
        };
        if !self.admit_count(items, CLOSED_MAX, &what) {
            return Vec::new();
        }
        items.iter().filter_map(|item| self.closed_days(item, &what)).collect()
    }

    fn closed_days(&mut self, node: &Node, what: &str) -> Option<std::ops::Range<i64>> {
        if !matches!(node.content, Content::Mapping(_)) {
            let day = self.day(node, &format!("a day in {what}"))?;
            return Some(day..day + 1);
        }
        let what = format!("an entry of {what}");
        let fields = self.entry(node, &what, &super::absence::ABSENCE_FIELDS)?;
        let hint = "write both `from` and `to`, or a single day";
        let first = fields.required("from", hint, &mut self.report);
        let last = fields.required("to", hint, &mut self.report);
        let first = first.and_then(|node| self.day(node, &format!("`from` of {what}")));
        let end = last.and_then(|node| self.day(node, &format!("`to` of {what}")));
        let (first, end) = (first?, end?);
        if end < first {
            let message = format!("{what} ends before it begins");
            self.report.error(last?.span, Rule::Y2, message, "let `to` be no earlier than `from`");
            return None;
        }
        Some(first..end + 1)
    }

    pub(super) fn regularly(&mut self, fields: &Fields<'_>, zone: &Zone) -> Vec<Regular> {
        let Some(node) = fields.value("regularly") else { return Vec::new() };
        let what = format!("`regularly` of {}", fields.what());
        let hint =
            "write `- { task: ward round, at: \"0 8 * * mon-fri\", takes: 1h }`, one on each line";
        let Some(items) = fields::items(node, &what, hint, &mut self.report) else {
            return Vec::new();
        };
        if !self.admit_count(items, REGULAR_MAX, &what) {
            return Vec::new();
        }
        let all: Vec<Regular> =
            items.iter().filter_map(|item| self.regular(item, fields.what(), zone)).collect();
        let times: usize = all.iter().map(Regular::times_a_day).sum();
        if times > TIMES_A_DAY_MAX {
            let message = format!(
                "{what} comes up {times} times a day, and may {TIMES_A_DAY_MAX} times at most"
            );
            let hint = "put what is done all the time into `share`";
            self.report.error(node.span, Rule::Y3, message, hint);
            return Vec::new();
        }
        all
    }

    fn regular(&mut self, node: &Node, whose: &str, zone: &Zone) -> Option<Regular> {
        let mut fields =
            self.entry(node, &format!("a regular task of {whose}"), &REGULAR_FIELDS)?;
        let hint = "write `task: ` and what is done";
        let task = fields.required("task", hint, &mut self.report).is_some();
        let task = if task { self.title(&fields, "task") } else { None };
        if let Some(task) = &task {
            fields.describe(format!("{} of {whose}", quote(task)));
        }
        let hint = "write `takes: ` and how long it lasts, such as 30m";
        let takes = fields.required("takes", hint, &mut self.report);
        let takes = takes.and_then(|node| self.length(node, &fields, "takes"));
        let when = self.when(node, &fields, zone);
        let (task, takes, when) = (task?, takes?, when?);
        let most = match &when {
            When::At(_) => APPOINTMENT_MAX,
            When::Every { period, .. } => *period,
        };
        if takes > most {
            let message = format!(
                "{} takes {}, and may take {} at most",
                fields.what(),
                format_duration(takes),
                format_duration(most)
            );
            let span = fields.value("takes").map_or(node.span, |node| node.span);
            self.report.error(span, Rule::Y3, message, "let it be done in the time there is");
            return None;
        }
        Some(Regular { task: task.into(), takes, when })
    }

    fn when(&mut self, node: &Node, fields: &Fields<'_>, zone: &Zone) -> Option<When> {
        let what = fields.what();
        match (fields.value("at"), fields.value("every")) {
            (Some(at), None) => {
                if let Some((span, _)) = fields.get("from") {
                    let message = format!("`from` of {what} goes with `every` only");
                    self.report.error(span, Rule::Y2, message, "leave it out: `at` tells the days");
                }
                self.parsed(at, &format!("`at` of {what}"), Cron::parse).map(When::At)
            }
            (None, Some(every)) => {
                let period = self.length(every, fields, "every");
                let from = match fields.value("from") {
                    None => zone.midnight(MONDAY),
                    Some(from) => self.moment(from, &format!("`from` of {what}"), 0, zone),
                };
                let period = period?;
                if period > PERIOD_MAX {
                    let message = format!("`every` of {what} is longer than 366d");
                    self.report.error(every.span, Rule::Y3, message, "use `at` for rarer tasks");
                    return None;
                }
                Some(When::Every { period, from: from? })
            }
            (Some(_), Some(_)) => {
                let message = format!("{what} has both `at` and `every`");
                self.report.error(node.span, Rule::Y2, message, "keep one of them");
                None
            }
            (None, None) => {
                let message = format!("{what} needs `at` or `every`");
                let hint = "write `at: \"0 8 * * mon-fri\"` for an appointment, or `every: 2d`";
                self.report.error(node.span, Rule::Y2, message, hint);
                None
            }
        }
    }

    fn length(&mut self, node: &Node, fields: &Fields<'_>, key: &str) -> Option<Duration> {
        let what = format!("`{key}` of {}", fields.what());
        let text = fields::text(node, &what, NAME_LEN_MAX, &mut self.report)?;
        let length = parse_duration(text.value).ok().filter(|length| *length >= REGULAR_MIN);
        if length.is_none() {
            let message = format!("{what} cannot be {}", quote(text.value));
            let hint = "write a length of time such as 30m, 8h or 2d; a minute at least";
            self.report.error(text.span, Rule::Y2, message, hint);
        }
        length
    }

    /// A text with its own grammar; mistakes are reported at their columns.
    fn parsed<T>(
        &mut self,
        node: &Node,
        what: &str,
        parse: impl Fn(&str) -> Result<T, Mistake>,
    ) -> Option<T> {
        fields::text(node, what, EXPRESSION_LEN_MAX, &mut self.report)?;
        let parsed = parse(&node.scalar()?.text);
        parsed.map_err(|mistake| mistake.tell(node, what, &mut self.report)).ok()
    }

    fn day(&mut self, node: &Node, what: &str) -> Option<i64> {
        let text = fields::text(node, what, NAME_LEN_MAX, &mut self.report)?;
        let day = super::absence::day_number(text.value);
        if day.is_none() {
            let message = format!("{what} cannot be {}", quote(text.value));
            self.report.error(text.span, Rule::Y2, message, "write a day such as 2026-12-25");
        }
        day
    }
}

impl Zone {
    /// The first moment of a day.
    pub(super) fn midnight(&self, day: i64) -> Option<Timestamp> {
        let wall = day.checked_mul(super::absence::DAY_MS)?;
        self.moment(wall).map(Timestamp)
    }
}
