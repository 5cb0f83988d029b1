//! Abbreviations of long ids: any unique suffix, or `last`. The digits of the server at the end of
//! an instance's id may be left out: they are the same for all instances that it started.
//!
//! Invariant: an abbreviation stands for exactly one candidate or for none; it is never guessed.

use anyhow::{Result, anyhow, bail};
use legwork_model::id::InstanceId;

/// The abbreviation of the newest candidate.
pub(crate) const LAST: &str = "last";
/// The name of worklist items in messages.
pub(crate) const ITEM: &str = "work item";
/// The number of characters of an instance's id in lists.
const SHORT_CHARS: usize = 6;
/// The number of characters at its end that tell the server, and are not shown.
const SERVER_CHARS: usize = InstanceId::SERVER_BITS as usize / 5;
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
    let best = candidates.iter().filter_map(|candidate| fit(&candidate)).max();
    let wanted = |candidate: &&T| best.is_some() && fit(candidate) == best;
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
            let number = fitting.len();
            match best {
                Some(Fit::Instance) if what == ITEM => {
                    bail!("`{text}` has {number} items for you; name one:{list}")
                }
                Some(Fit::Instance) => bail!("`{text}` has {number} {what}s; name one:{list}"),
                _ => bail!("`{text}` fits {number} of them, write more of one:{list}"),
            }
        }
    }
}

/// How well an abbreviation matches, best last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// It matches the instance of an activity: enough if the instance has no other.
    Instance,
    Part,
    /// It matches a whole part of the id, such as the name of a step: preferred to longer names with
    /// this suffix.
    Whole,
}

/// Whether the id has this suffix; the digits of the server at the end of an instance may be left
/// out, and the loop counters at the end of an activity.
fn fit(id: &str, text: &str) -> Option<Fit> {
    let shortened = without_server(id);
    let ids = [Some(id), shortened.as_deref()];
    ids.into_iter().flatten().filter_map(|id| fit_as_written(id, text)).max()
}

fn fit_as_written(id: &str, text: &str) -> Option<Fit> {
    let counters = id.rsplit_once(':').filter(|(before, _)| before.contains(':'));
    let without = counters.and_then(|(activity, _)| ends(activity, text));
    let instance = id.split_once(':').and_then(|(instance, _)| ends(instance, text));
    ends(id, text).max(without).max(instance.map(|_| Fit::Instance))
}

/// The id of an instance, or of an activity of it, without the digits of the server.
fn without_server(id: &str) -> Option<String> {
    let (instance, step) = id.split_at(id.find(':').unwrap_or(id.len()));
    let digits = instance.strip_prefix("inst_")?;
    let shown = digits.get(..digits.len().checked_sub(SERVER_CHARS)?)?;
    Some(format!("inst_{shown}{step}"))
}

fn ends(id: &str, text: &str) -> Option<Fit> {
    let from = id.len().checked_sub(text.len()).filter(|_| !text.is_empty())?;
    let (before, end) = id.as_bytes().split_at(from);
    // The digits of an instance are case-insensitive; names of steps are not.
    let digits = id.find(':').unwrap_or(id.len()).saturating_sub(from);
    let (end_digits, end_step) = end.split_at(digits);
    let (digits, step) = text.as_bytes().split_at(digits);
    let same = end_digits.eq_ignore_ascii_case(digits) && end_step == step;
    let boundary = before.last().is_none_or(|last| matches!(last, b':' | b'_'));
    same.then_some(if boundary { Fit::Whole } else { Fit::Part })
}

/// The distinguishing characters of an id of an instance or an activity.
pub(crate) fn short(id: &str) -> String {
    let id = without_server(id).unwrap_or_else(|| id.to_owned());
    let digits = id.find(':').unwrap_or(id.len());
    id.get(digits.saturating_sub(SHORT_CHARS)..).unwrap_or(&id).to_owned()
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
    fn instances_are_shown_by_letters_that_differ_and_found_by_them() {
        assert_eq!(short("inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC"), "8XJ2M6");
        assert_eq!(short(IDS[0]), "8XJ2M6:approve");
        for id in [IDS[0], IDS[1], IDS[2], IDS[3]] {
            assert_eq!(check(&short(id)), id);
        }
        // All instances of one server end alike.
        let cases = ["inst_01KFZQ9Y5GB4D7T3N8XJ240Y000", "inst_01KFZQ9Y5GB4D7T3N81K240Y000"];
        for case in cases {
            let found = find(&short(case), "instance", &cases, |id| (*id).to_owned());
            assert_eq!(found.unwrap(), &case);
        }
    }

    #[test]
    fn an_instance_stands_for_its_only_item() {
        let items = [IDS[0], IDS[3]];
        let find = |text| find(text, "work item", &items, |id| (*id).to_owned());
        assert_eq!(*find("8xj2m6").unwrap(), IDS[0]);
        assert_eq!(*find("inst_01KFZQ9Y5GB4D7T3N8XJ2M7ABC").unwrap(), IDS[3]);
        let several = check("8XJ2M7");
        assert!(several.starts_with("`8XJ2M7` has 4 items for you; name one:\n"), "{several}");
    }
}
