//! Reads absences.
//!
//! A day is a day of the agent's calendar, or a day in UTC without a calendar.

use legwork_model::finding::Rule;
use legwork_model::time::Timestamp;
use legwork_model::yaml::fields::{self, Fields, NAME_LEN_MAX, quote};
use legwork_model::yaml::tree::Node;

use super::{NAMES_MAX, Reading};
use crate::calendar::Zone;
use crate::organisation::Absence;

pub(crate) const ABSENCE_FIELDS: [&str; 2] = ["from", "to"];

pub(super) const DAY_MS: i64 = 86_400_000;

impl Reading {
    pub(super) fn absences(&mut self, fields: &Fields<'_>, zone: &Zone) -> Vec<Absence> {
        let Some(node) = fields.value("absent") else { return Vec::new() };
        let what = format!("`absent` of {}", fields.what());
        let hint = "write `- { from: 2026-12-20, to: 2027-01-06 }`, one on each line";
        let Some(items) = fields::items(node, &what, hint, &mut self.report) else {
            return Vec::new();
        };
        if !self.admit_count(items, NAMES_MAX, &what) {
            return Vec::new();
        }
        items.iter().filter_map(|item| self.absence(item, fields.what(), zone)).collect()
    }

    fn absence(&mut self, node: &Node, whose: &str, zone: &Zone) -> Option<Absence> {
        let what = format!("an absence of {whose}");
        let fields = self.entry(node, &what, &ABSENCE_FIELDS)?;
        if fields.value("from").is_none() {
            let message = format!("{what} needs `from`");
            self.report.error(node.span, Rule::Y2, message, "write `from: ` and the first day");
        }
        let from = self.moment(fields.value("from")?, &format!("`from` of {what}"), 0, zone);
        let Some(end) = fields.value("to") else { return Some(Absence { from: from?, to: None }) };
        // The last day is part of the absence.
        let to = self.moment(end, &format!("`to` of {what}"), 1, zone);
        let (from, to) = (from?, to?);
        if from >= to {
            let message = format!("{what} ends before it begins");
            self.report.error(end.span, Rule::Y2, message, "let `to` be later than `from`");
            return None;
        }
        Some(Absence { from, to: Some(to) })
    }

    /// A moment, or the beginning of the day so many days later.
    pub(super) fn moment(
        &mut self,
        node: &Node,
        what: &str,
        days_after: i64,
        zone: &Zone,
    ) -> Option<Timestamp> {
        let text = fields::text(node, what, NAME_LEN_MAX, &mut self.report)?;
        let moment = match is_day(text.value) {
            true => day_number(text.value).and_then(|day| zone.midnight(day + days_after)),
            false => text.value.parse().ok(),
        };
        if moment.is_none() {
            let message = format!("{what} cannot be {}", quote(text.value));
            let hint = "write a day such as 2026-12-20, or a moment such as 2026-12-20T08:00:00Z";
            self.report.error(text.span, Rule::Y2, message, hint);
        }
        moment
    }
}

/// The day number since 1970.
pub(super) fn day_number(text: &str) -> Option<i64> {
    let midnight = is_day(text).then(|| format!("{text}T00:00:00Z").parse())?;
    midnight.ok().map(|Timestamp(ms)| ms.div_euclid(DAY_MS))
}

fn is_day(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}
