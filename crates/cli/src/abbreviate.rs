//! Short names for long ids: any end of an id that only one has, or `last`.
//!
//! Invariant: an abbreviation stands for exactly one thing or for none; it is never guessed.

use anyhow::{Result, anyhow, bail};

/// What stands for the newest.
pub(crate) const LAST: &str = "last";
/// How many letters of an instance's id are shown in lists.
pub(crate) const SHORT_CHARS: usize = 6;
/// How many candidates are listed when an abbreviation fits several.
const CANDIDATES_MAX: usize = 10;

/// The one candidate that `text` abbreviates. Candidates are given newest first.
pub(crate) fn find<'c, T>(
    text: &str,
    what: &str,
    candidates: &'c [T],
    id: impl Fn(&T) -> String,
) -> Result<&'c T> {
    if text == LAST {
        return candidates.first().ok_or_else(|| anyhow!("there is no {what} yet"));
    }
    let fit = |candidate: &&T| fit(&id(candidate), text);
    let whole = candidates.iter().any(|candidate| fit(&candidate) == Some(Fit::Whole));
    let wanted = |candidate: &&T| match fit(candidate) {
        Some(Fit::Whole) => true,
        Some(Fit::Part) => !whole,
        None => false,
    };
    let fitting: Vec<&T> = candidates.iter().filter(wanted).collect();
    match fitting[..] {
        [only] => Ok(only),
        [] => bail!("no {what} ends in `{text}`"),
        [..] => {
            let more = fitting.len().saturating_sub(CANDIDATES_MAX);
            let shown = fitting.iter().take(CANDIDATES_MAX).map(|one| format!("\n  {}", id(one)));
            let mut list: String = shown.collect();
            if more > 0 {
                list.push_str(&format!("\n  … and {more} more"));
            }
            bail!("`{text}` fits {} of them, write more of one:{list}", fitting.len());
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// A whole part of the id, such as the name of a step: it wins over longer names that end so.
    Whole,
    Part,
}

/// Whether the id ends so; the counters of loops at the end of an activity may be left out.
fn fit(id: &str, text: &str) -> Option<Fit> {
    let counters = id.rsplit_once(':').filter(|(before, _)| before.contains(':'));
    let without = counters.and_then(|(activity, _)| ends(activity, text));
    match (ends(id, text), without) {
        (Some(Fit::Whole), _) | (_, Some(Fit::Whole)) => Some(Fit::Whole),
        (with, without) => with.or(without),
    }
}

fn ends(id: &str, text: &str) -> Option<Fit> {
    let from = id.len().checked_sub(text.len()).filter(|_| !text.is_empty())?;
    let (before, end) = id.as_bytes().split_at(from);
    // The digits of an instance may be written small; names of steps are as they are.
    let digits = id.find(':').unwrap_or(id.len()).saturating_sub(from);
    let (end_digits, end_step) = end.split_at(digits);
    let (digits, step) = text.as_bytes().split_at(digits);
    let same = end_digits.eq_ignore_ascii_case(digits) && end_step == step;
    let boundary = before.last().is_none_or(|last| matches!(last, b':' | b'_'));
    same.then_some(if boundary { Fit::Whole } else { Fit::Part })
}

/// An id without the beginning that people need not read.
pub(crate) fn short(id: &str) -> &str {
    let digits = id.find(':').unwrap_or(id.len());
    id.get(digits.saturating_sub(SHORT_CHARS)..).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [&str; 6] = [
        "inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC:approve",
        "inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC:Capture",
        "inst_01KFZQ9Y5GB4D7T3N8XJ2M7ABC:approve",
        "inst_01KFZQ9Y5GB4D7T3N8XJ2M7ABC:give-drug:2.0",
        "inst_01KFZQ9Y5GB4D7T3N8XJ2M7ABC:give-drug:1.0",
        "inst_01KFZQ9Y5GB4D7T3N8XJ2M7ABC:re-Capture",
    ];

    fn check(text: &str) -> String {
        match find(text, "work item", &IDS, |id| (*id).to_owned()) {
            Ok(id) => (*id).to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn an_end_that_only_one_has_stands_for_it() {
        assert_eq!(check("Capture"), IDS[1]);
        assert_eq!(check("rvc:approve"), IDS[0]);
        assert_eq!(check("give-drug:1.0"), IDS[4]);
        assert_eq!(check("last"), IDS[0]);
        assert_eq!(check(IDS[3]), IDS[3]);
        assert_eq!(check("e-Capture"), IDS[5]);
    }

    #[test]
    fn an_end_that_several_have_lists_them() {
        insta::assert_snapshot!(check("give-drug"), @r"
        `give-drug` fits 2 of them, write more of one:
          inst_01KFZQ9Y5GB4D7T3N8XJ2M7ABC:give-drug:2.0
          inst_01KFZQ9Y5GB4D7T3N8XJ2M7ABC:give-drug:1.0
        ");
    }

    #[test]
    fn an_end_that_none_has_says_so() {
        assert_eq!(check("reject"), "no work item ends in `reject`");
        assert_eq!(check("capture"), "no work item ends in `capture`");
        assert_eq!(check(""), "no work item ends in ``");
        assert!(find("last", "instance", &[] as &[&str], |id| (*id).to_owned()).is_err());
    }

    #[test]
    fn instances_are_shown_by_their_last_letters() {
        assert_eq!(short("inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC"), "2M6RVC");
        assert_eq!(short(IDS[0]), "2M6RVC:approve");
    }
}
