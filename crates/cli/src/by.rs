//! Deadlines on the command line, and their plans as tables.
//!
//! Invariant: a moment is never guessed; without its zone it is refused.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, anyhow};
use legwork_api::deadlines::{Deadline, DeadlineRequest, DeadlineStep, Unpromised};
use legwork_api::instances::Performer;
use legwork_model::event;
use legwork_model::time::{Timestamp, format_duration, parse_duration};

use crate::style::{GOOD, STRONG, WARN, paint, plain};
use crate::table::{Cell, Table};
use crate::tree;
use crate::when;

/// A hundred years: a later date is a typing error.
const AHEAD_MAX: Duration = Duration::from_secs(36_500 * 86_400);

/// A moment, or a duration from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    At(Timestamp),
    In(Duration),
}

impl FromStr for By {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Ok(moment) = text.parse() {
            return Ok(Self::At(moment));
        }
        match parse_duration(text) {
            Ok(length) if length <= AHEAD_MAX => Ok(Self::In(length)),
            Ok(_) => Err(too_far()),
            Err(_) => Err(wrong(text)),
        }
    }
}

/// Why a text is neither a moment nor a time from now.
fn wrong(text: &str) -> anyhow::Error {
    let past = text.strip_prefix('-').is_some_and(|ago| parse_duration(ago).is_ok());
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let begins_with_a_digit = unit.len() < text.len();
    // The unit is valid: the number is too large.
    let is_large = begins_with_a_digit && parse_duration(&format!("1{unit}")).is_ok();
    let is_date =
        text.len() >= 8 && text.bytes().take(4).all(|c| c.is_ascii_digit()) && text.contains('-');
    let (_, clock) = text.split_once(['T', 't', ' ']).unwrap_or_default();
    let has_zone = clock.ends_with(['Z', 'z']) || clock.contains(['+', '-']);
    match (past, is_large, is_date, has_zone) {
        (true, ..) => anyhow!("it is in the past: write a time from now, such as 3d or 8h"),
        (false, true, ..) => too_far(),
        (false, false, true, true) => {
            anyhow!("there is no such date and time; it is written as 2026-11-20T17:00Z")
        }
        (false, false, true, false) => {
            anyhow!("a moment needs its zone: write 2026-11-20T17:00Z, or 2026-11-20T17:00+01:00")
        }
        (false, false, false, _) if begins_with_a_digit => anyhow!(
            "a time is one whole number with ms, s, m, h or d, such as 3d, 8h or 36h; a moment is \
             written as 2026-11-20T17:00Z"
        ),
        (false, false, false, _) => {
            anyhow!("write a moment such as 2026-11-20T17:00Z, or a time such as 3d or 8h")
        }
    }
}

fn too_far() -> anyhow::Error {
    let most = format_duration(AHEAD_MAX);
    anyhow!("it is too far ahead: at most {most}, and nothing is promised for more than 400d")
}

impl By {
    pub(crate) fn moment(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(moment) => moment,
            Self::In(length) => now + length,
        }
    }
}

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeadlineArgs {
    /// By when it is to be done: a moment with its zone, or a time from now such as 3d.
    /// It is promised or refused
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    pub(crate) by: Option<By>,
    /// Start it all the same if it cannot be promised
    #[arg(long, requires = "by")]
    unpromised: bool,
    /// From 0 to 9: a case that is promised can be displaced by a more important one
    #[arg(
        long, value_name = "N", requires = "by", default_value_t = event::Deadline::PRIORITY_DEFAULT,
        value_parser = clap::value_parser!(u8).range(0..=i64::from(event::Deadline::PRIORITY_MAX))
    )]
    priority: u8,
}

impl DeadlineArgs {
    pub(crate) fn request(&self, now: Timestamp) -> Option<DeadlineRequest> {
        let unpromised = if self.unpromised { Unpromised::Start } else { Unpromised::Refuse };
        let at = self.by?.moment(now);
        Some(DeadlineRequest { at, unpromised, priority: self.priority })
    }
}

/// The plan of a deadline.
pub(crate) fn planned(deadline: &Deadline) -> String {
    let at = paint(STRONG, when::minute(deadline.at));
    if !deadline.promised {
        let mark = paint(WARN, "!");
        return format!("{mark} not promised for {at}: whether it is done by then nobody knows\n");
    }
    format!("{} promised for {at}\n{}", paint(GOOD, "✔"), steps(&deadline.steps))
}

/// Its steps: performer, start and due date.
pub(crate) fn steps(steps: &[DeadlineStep]) -> String {
    let mut table = Table::new(&["STEP", "WHO", "PLANNED"]);
    for step in steps {
        let name = tree::in_round(&step.step, &step.iteration);
        table.row([Cell::from(name), Cell::from(who(step)), Cell::from(span(step))]);
    }
    table.render("  ")
}

/// The performer who has promised a step.
pub(crate) fn who(step: &DeadlineStep) -> String {
    match &step.by {
        Some(Performer::Worker(job)) if step.best_effort => {
            format!("workers for {} (best effort)", plain(job))
        }
        Some(by) => tree::performer(by),
        None => "nobody".to_owned(),
    }
}

/// The planned interval of a step; empty if it is not promised.
pub(crate) fn span(step: &DeadlineStep) -> String {
    step.start.zip(step.end).map_or_else(String::new, |(from, to)| when::span(from, to))
}

#[cfg(test)]
pub(crate) mod tests {
    use legwork_api::deadlines::Revoked;

    use super::*;

    pub(crate) fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    pub(crate) fn deadline() -> Deadline {
        let step = |step: &str, by: Performer, start: &str, end: &str, due: &str| DeadlineStep {
            step: step.into(),
            iteration: Vec::new(),
            given_back: false,
            by: Some(by),
            best_effort: false,
            start: Some(at(start)),
            end: Some(at(end)),
            due: at(due),
        };
        let ann = Performer::Agent("ann".into());
        let (from, until) = ("2026-03-01T08:00:00Z", "2026-03-01T11:00:00Z");
        let crm = Performer::Executor("crm".into());
        Deadline {
            at: at("2026-03-02T16:00:00Z"),
            promised: true,
            best_effort: false,
            passed: None,
            in_danger_from: None,
            revoked: None,
            steps: vec![
                step("check", ann, from, until, "2026-03-01T14:00:00Z"),
                step("book", crm, until, "2026-03-01T11:00:30Z", "2026-03-01T15:00:00Z"),
            ],
        }
    }

    /// The same after the promise of its second step was revoked.
    pub(crate) fn revoked() -> Deadline {
        let mut deadline = deadline();
        let book = &mut deadline.steps[1];
        (book.by, book.start, book.end) = (None, None, None);
        let reason = "could not be done in time as planned".to_owned();
        let why = Revoked { at: at("2026-03-01T12:00:00Z"), step: "book".into(), reason };
        Deadline { promised: false, revoked: Some(why), ..deadline }
    }

    fn shown(deadline: &Deadline) -> String {
        anstream::adapter::strip_str(&planned(deadline)).to_string()
    }

    #[test]
    fn a_promise_tells_who_does_what_when() {
        insta::assert_snapshot!(shown(&deadline()), @r"
        ✔ promised for 2026-03-02 16:00Z
          STEP   WHO           PLANNED
          check  ann           2026-03-01 08:00–11:00Z
          book   executor crm  2026-03-01 11:00Z
        ");
        let unpromised = Deadline { promised: false, steps: Vec::new(), ..deadline() };
        insta::assert_snapshot!(shown(&unpromised), @"! not promised for 2026-03-02 16:00Z: whether it is done by then nobody knows");
    }

    #[test]
    fn what_workers_promise_is_best_effort() {
        let mut deadline = deadline();
        let book = &mut deadline.steps[1];
        (book.by, book.best_effort) = (Some(Performer::Worker("score".into())), true);
        insta::assert_snapshot!(shown(&deadline), @r"
        ✔ promised for 2026-03-02 16:00Z
          STEP   WHO                              PLANNED
          check  ann                              2026-03-01 08:00–11:00Z
          book   workers for score (best effort)  2026-03-01 11:00Z
        ");
    }

    #[test]
    fn moments_have_a_zone_or_count_from_now() {
        let now = at("2026-11-16T09:00:00Z");
        for (text, moment) in [
            ("2026-11-20T17:00Z", "2026-11-20T17:00:00.000Z"),
            ("2026-11-20T17:00+01:00", "2026-11-20T16:00:00.000Z"),
            ("3d", "2026-11-19T09:00:00.000Z"),
            ("90m", "2026-11-16T10:30:00.000Z"),
        ] {
            assert_eq!(text.parse::<By>().unwrap().moment(now).to_string(), moment);
        }
        let refused = |text: &str| text.parse::<By>().unwrap_err().to_string();
        for text in ["2026-11-20", "2026-11-20T17:00", "2026-11-20 17:00"] {
            assert!(refused(text).contains("zone"), "{text}");
        }
        for text in ["friday", "", "3", "--unpromised"] {
            assert!(refused(text).contains("3d"), "{text}");
        }
        for text in ["2026-13-40T10:00Z", "2026-02-30 10:00+01:00"] {
            assert!(refused(text).contains("no such date"), "{text}");
        }
        for text in ["99999999999d", "99999999999999999999999s", "36501d"] {
            assert!(refused(text).contains("too far ahead: at most 36500d"), "{text}");
        }
        for text in ["-1h", "-3d"] {
            assert!(refused(text).contains("in the past"), "{text}");
        }
        for text in ["1w", "1d12h", "1.5d"] {
            assert!(refused(text).contains("ms, s, m, h or d"), "{text}: {}", refused(text));
        }
    }
}
