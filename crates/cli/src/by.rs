//! By when: deadlines on the command line, and what was planned for one as a table.
//!
//! Invariant: a moment is never guessed; without its zone it is refused.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, anyhow};
use legwork_api::deadlines::{Deadline, DeadlineRequest, DeadlineStep, Unpromised};
use legwork_model::event;
use legwork_model::time::{Timestamp, parse_duration};

use crate::style::{GOOD, STRONG, WARN, paint};
use crate::table::{Cell, Table};
use crate::tree;

/// A moment, or so long from now.
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
        if let Ok(length) = parse_duration(text) {
            return Ok(Self::In(length));
        }
        let looks_like_a_date = text.len() >= 8
            && text.bytes().take(4).all(|c| c.is_ascii_digit())
            && text.contains('-');
        Err(match looks_like_a_date {
            true => anyhow!(
                "a moment needs its zone: write 2026-11-20T17:00Z, or 2026-11-20T17:00+01:00"
            ),
            false => {
                anyhow!("write a moment such as 2026-11-20T17:00Z, or a time such as 3d or 8h")
            }
        })
    }
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
    #[arg(long, value_name = "WHEN")]
    pub(crate) by: Option<By>,
    /// Start it all the same if it cannot be promised
    #[arg(long, requires = "by")]
    unpromised: bool,
    /// From 0 to 9: what is promised may make way for what is more important
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

/// What was planned for a deadline.
pub(crate) fn planned(deadline: &Deadline) -> String {
    let at = paint(STRONG, tree::moment(deadline.at));
    if !deadline.promised {
        let mark = paint(WARN, "!");
        return format!("{mark} not promised for {at}: whether it is done by then nobody knows\n");
    }
    format!("{} promised for {at}\n{}", paint(GOOD, "✔"), steps(&deadline.steps))
}

/// The steps on the way to it: who, from when, until when.
pub(crate) fn steps(steps: &[DeadlineStep]) -> String {
    let mut table = Table::new(&["STEP", "WHO", "FROM", "UNTIL"]);
    let moment =
        |moment: Option<Timestamp>| Cell::from(moment.map_or_else(String::new, tree::moment));
    for step in steps {
        let who = step.by.as_ref().map_or_else(|| "nobody".to_owned(), tree::performer);
        let name = tree::in_round(&step.step, &step.iteration);
        table.row([Cell::from(name), Cell::from(who), moment(step.start), moment(step.end)]);
    }
    table.render("  ")
}

#[cfg(test)]
pub(crate) mod tests {
    use legwork_api::instances::Performer;

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
            start: Some(at(start)),
            end: Some(at(end)),
            due: at(due),
        };
        let ann = Performer::Agent("ann".into());
        let (from, until) = ("2026-03-01T08:00:00Z", "2026-03-01T11:00:00Z");
        let crm = Performer::Worker("crm".into());
        Deadline {
            at: at("2026-03-02T16:00:00Z"),
            promised: true,
            steps: vec![
                step("check", ann, from, until, "2026-03-01T14:00:00Z"),
                step("book", crm, until, "2026-03-01T11:00:30Z", "2026-03-01T15:00:00Z"),
            ],
        }
    }

    fn shown(deadline: &Deadline) -> String {
        anstream::adapter::strip_str(&planned(deadline)).to_string()
    }

    #[test]
    fn a_promise_tells_who_does_what_when() {
        insta::assert_snapshot!(shown(&deadline()), @r"
        ✔ promised for 2026-03-02 16:00:00Z
          STEP   WHO         FROM                  UNTIL
          check  ann         2026-03-01 08:00:00Z  2026-03-01 11:00:00Z
          book   worker crm  2026-03-01 11:00:00Z  2026-03-01 11:00:30Z
        ");
        let unpromised = Deadline { promised: false, steps: Vec::new(), ..deadline() };
        insta::assert_snapshot!(shown(&unpromised), @"! not promised for 2026-03-02 16:00:00Z: whether it is done by then nobody knows");
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
        for text in ["friday", "", "3", "-3d"] {
            assert!(refused(text).contains("3d"), "{text}");
        }
    }
}
