//! What executors have written down themselves, held against the histories of all cases.
//!
//! Invariant: a line is in the file before its content is sent, so a killed executor has sent nothing that
//! is missing in its ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// What has happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Did {
    Begun,
    Done,
    Failed,
    Cancelled,
    Acked,
    Nacked,
}

/// A line of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub did: Did,
    pub task: String,
    /// Of the step; an executor that was started anew does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Where an executor writes.
#[derive(Debug)]
pub struct Ledger {
    file: File,
}

impl Ledger {
    /// What is there already stays.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self { file: file.with_context(|| format!("cannot open {}", path.display()))? })
    }

    /// Written whole and at once: what the system has, no kill takes back.
    pub fn write(&self, did: Did, task: &str, key: Option<&str>) -> Result<()> {
        let line = Line { did, task: task.to_owned(), key: key.map(str::to_owned) };
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        Ok((&self.file).write_all(text.as_bytes())?)
    }

    /// All that was written, in its order.
    pub fn read(path: &Path) -> Result<Vec<Line>> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let lines = text.lines().map(|line| {
            serde_json::from_str(line).with_context(|| format!("no line of a ledger: {line}"))
        });
        lines.collect()
    }
}

/// A step that is completed, as its history says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The same as that of its tasks.
    pub key: String,
    pub by: String,
}

/// What was found in all ledgers together.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Of how many tasks each was written.
    pub tasks: BTreeMap<Did, usize>,
    /// Completed steps of which no executor knows that its result counts.
    pub lost: usize,
    /// Results that more than one executor, or one more than once, was told to count.
    pub doubled: usize,
    /// In words, those that are lost or doubled among them.
    pub faults: Vec<String>,
}

impl Audit {
    /// How many tasks something has happened to.
    pub fn count(&self, did: Did) -> usize {
        self.tasks.get(&did).copied().unwrap_or_default()
    }
}

/// Holds the ledgers, by the names of their executors, against what histories say was completed.
pub fn audit(ledgers: &BTreeMap<String, Vec<Line>>, completed: &[Step]) -> Audit {
    let mut audit = Audit::default();
    // Who was told that its result for a step counts.
    let mut counted: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (executor, lines) in ledgers {
        let own = Own::new(lines);
        for (did, tasks) in &own.tasks {
            *audit.tasks.entry(*did).or_default() += tasks.len();
        }
        audit.faults.extend(own.faults.iter().map(|fault| format!("{executor}: {fault}")));
        for key in own.counted {
            counted.entry(key).or_default().push(executor);
        }
    }
    let steps: BTreeMap<&str, &Step> = completed.iter().map(|step| (&*step.key, step)).collect();
    if steps.len() < completed.len() {
        audit.faults.push("a step is completed twice in the histories".to_owned());
    }
    for Step { key, by } in steps.values() {
        match counted.get(&**key).map(Vec::as_slice) {
            None | Some([]) => {
                audit.lost += 1;
                audit.faults.push(format!("{key}: completed by {by}, and nobody was told"));
            }
            Some([one]) if one == by => {}
            Some([other]) => {
                audit.lost += 1;
                audit.faults.push(format!("{key}: completed by {by}, and {other} was told"));
            }
            Some(several) => {
                audit.doubled += 1;
                let all = several.join(", ");
                audit.faults.push(format!("{key}: the results of {all} were said to count"));
            }
        }
    }
    for (key, who) in counted.iter().filter(|(key, _)| !steps.contains_key(**key)) {
        let who = who.join(", ");
        audit.faults.push(format!("{key}: {who} was told to count, and it is not completed"));
    }
    audit
}

/// What one executor has written.
#[derive(Debug, Default)]
struct Own<'l> {
    tasks: BTreeMap<Did, BTreeSet<&'l str>>,
    /// The steps of the tasks that it was told to count.
    counted: Vec<&'l str>,
    faults: Vec<String>,
}

impl<'l> Own<'l> {
    fn new(lines: &'l [Line]) -> Self {
        let mut own = Self::default();
        let mut keys: BTreeMap<&str, &str> = BTreeMap::new();
        for Line { did, task, key } in lines {
            if let Some(key) = key {
                keys.insert(task, key);
            }
            let is_first = own.tasks.entry(*did).or_default().insert(task);
            match did {
                Did::Begun if !is_first => own.faults.push(format!("{task} was begun twice")),
                Did::Acked if is_first => match keys.get(&**task) {
                    Some(key) if own.has(Did::Done, task) => own.counted.push(key),
                    Some(_) | None => {
                        own.faults.push(format!("{task} is to count and was never done"));
                    }
                },
                Did::Begun
                | Did::Done
                | Did::Failed
                | Did::Cancelled
                | Did::Acked
                | Did::Nacked => {}
            }
        }
        let both = own.tasks.get(&Did::Acked).into_iter().flatten();
        let both = both.filter(|task| own.has(Did::Nacked, task));
        let both: Vec<String> = both.map(|task| format!("{task} was told both")).collect();
        own.faults.extend(both);
        own
    }

    fn has(&self, did: Did, task: &str) -> bool {
        self.tasks.get(&did).is_some_and(|tasks| tasks.contains(task))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;

    /// `begun t1 k1` and so on, a line each.
    fn lines(text: &str) -> Vec<Line> {
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let did = format!("\"{}\"", words.next().unwrap());
            Line {
                did: serde_json::from_str(&did).unwrap(),
                task: words.next().unwrap().to_owned(),
                key: words.next().map(str::to_owned),
            }
        };
        text.split(';').filter(|text| !text.trim().is_empty()).map(line).collect()
    }

    fn check(crane: &str, lift: &str, completed: &[(&str, &str)]) -> Audit {
        let ledgers = [("crane".to_owned(), lines(crane)), ("lift".to_owned(), lines(lift))].into();
        let step = |(key, by): &(&str, &str)| Step { key: (*key).into(), by: (*by).into() };
        audit(&ledgers, &completed.iter().map(step).collect::<Vec<_>>())
    }

    const GOOD: &str = "begun t1 k1; done t1 k1; acked t1 k1";

    #[test]
    fn a_step_that_one_did_and_knows_to_count_is_in_order() {
        let late = "begun t2 k1; done t2 k1; nacked t2 k1; begun t3 k1; cancelled t3 k1";
        let found = check(GOOD, late, &[("k1", "crane")]);
        assert!(found.faults.is_empty(), "{:?}", found.faults);
        assert_eq!((found.count(Did::Done), found.count(Did::Nacked)), (2, 1));
        // Told twice, the second time to one that was started anew.
        let again = format!("{GOOD}; acked t1");
        assert!(check(&again, "", &[("k1", "crane")]).faults.is_empty());
    }

    #[test]
    fn whatever_does_not_fit_is_found() {
        let fault = |crane: &str, lift: &str, completed: &[(&str, &str)]| {
            let found = check(crane, lift, completed);
            (found.faults.join("; "), found.lost, found.doubled)
        };
        let completed = [("k1", "crane")];
        let (text, lost, _) = fault("begun t1 k1; done t1 k1", "", &completed);
        assert!(text.contains("nobody was told") && lost == 1, "{text}");
        let (text, lost, _) = fault("", GOOD, &completed);
        assert!(text.contains("lift was told") && lost == 1, "{text}");
        let other = "begun t2 k1; done t2 k1; acked t2 k1";
        let (text, _, doubled) = fault(GOOD, other, &completed);
        assert!(text.contains("crane, lift") && doubled == 1, "{text}");
        let twice = format!("{GOOD}; {other}");
        let (text, _, doubled) = fault(&twice, "", &completed);
        assert!(text.contains("crane, crane") && doubled == 1, "{text}");
        assert!(fault(GOOD, "", &[]).0.contains("not completed"));
        let both = format!("{GOOD}; nacked t1");
        assert!(fault(&both, "", &completed).0.contains("told both"));
        let undone = "begun t1 k1; acked t1 k1";
        assert!(fault(undone, "", &completed).0.contains("never done"));
        let begun = format!("begun t1 k1; {GOOD}");
        assert!(fault(&begun, "", &completed).0.contains("begun twice"));
        assert!(fault(GOOD, "", &[completed[0], completed[0]]).0.contains("completed twice"));
    }

    #[test]
    fn what_is_written_is_read_and_what_was_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        Ledger::open(&path).unwrap().write(Did::Begun, "t1", Some("k1")).unwrap();
        Ledger::open(&path).unwrap().write(Did::Acked, "t1", None).unwrap();
        assert_eq!(Ledger::read(&path).unwrap(), lines("begun t1 k1; acked t1"));
    }
}
