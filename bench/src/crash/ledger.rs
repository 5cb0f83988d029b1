//! Requests and acknowledgements, recorded outside of the server.
//!
//! Invariant: an acknowledgement is recorded only after the server has given it, and an attempt
//! before it is sent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use legwork_model::id::{ActivityId, InstanceId};

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Acknowledged, and missing.
    Lost(String),
    /// Present, or acknowledged, more than once.
    Duplicated(String),
}

/// A step of a case: the attempts to complete it, and the acknowledged one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Deed {
    /// Every text of an attempt.
    pub(super) tried: Vec<String>,
    /// The text whose completion was acknowledged.
    pub(super) done: Option<String>,
    /// The person whose claim was acknowledged.
    pub(super) claimed_by: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Acknowledged starts, by their idempotency key.
    pub(super) cases: BTreeMap<String, InstanceId>,
    pub(super) deeds: BTreeMap<ActivityId, Deed>,
    pub(super) faults: Vec<Fault>,
    /// The number of acknowledgements.
    pub(super) acknowledged: usize,
    /// The number of missing answers.
    pub(super) unanswered: usize,
    /// The longest duration of a request, with all its repetitions, since the last reset.
    pub(super) longest: Duration,
}

/// The numbers of losses and of duplicates.
pub(super) fn counted(faults: &[Fault]) -> (usize, usize) {
    let lost = faults.iter().filter(|fault| fault.is_loss()).count();
    (lost, faults.len() - lost)
}

impl Ledger {
    /// A start was acknowledged. `asked_before`: the same key had been sent before, with or without
    /// an answer.
    pub(super) fn started(&mut self, key: &str, instance: InstanceId, repeated: bool, asked: u32) {
        match self.cases.insert(key.to_owned(), instance) {
            None => {
                self.acknowledged += 1;
                if repeated && asked == 1 {
                    let text = format!("start {key}: there before it was asked for");
                    self.faults.push(Fault::Duplicated(text));
                }
            }
            Some(first) if first != instance => {
                let text = format!("start {key}: {first} and {instance}");
                self.faults.push(Fault::Duplicated(text));
            }
            Some(_) if !repeated => {
                let text = format!("start {key}: acknowledged, and then started anew");
                self.faults.push(Fault::Lost(text));
            }
            Some(_) => {}
        }
    }

    pub(super) fn tried(&mut self, activity: &ActivityId, text: &str) {
        self.deeds.entry(activity.clone()).or_default().tried.push(text.to_owned());
    }

    pub(super) fn done(&mut self, activity: &ActivityId, text: &str) {
        self.acknowledged += 1;
        let deed = self.deeds.entry(activity.clone()).or_default();
        if let Some(first) = deed.done.replace(text.to_owned()) {
            let text = format!("{activity}: acknowledged for {first} and for {text}");
            self.faults.push(Fault::Duplicated(text));
        }
    }

    pub(super) fn claimed(&mut self, activity: &ActivityId, agent: &str) {
        self.acknowledged += 1;
        let deed = self.deeds.entry(activity.clone()).or_default();
        if let Some(first) = deed.claimed_by.replace(agent.to_owned()) {
            let text = format!("{activity}: claimed by {first} and by {agent}");
            self.faults.push(Fault::Duplicated(text));
        }
    }

    pub(super) fn lost(&mut self, text: String) {
        self.faults.push(Fault::Lost(text));
    }

    pub(super) fn duplicated(&mut self, text: String) {
        self.faults.push(Fault::Duplicated(text));
    }
}

/// The ledger, shared by all actors.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<Ledger>);

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fault {
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Lost(_))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(text) => write!(f, "lost: {text}"),
            Self::Duplicated(text) => write!(f, "duplicated: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity() -> ActivityId {
        "inst_00000000000000000000000001:pack".parse().unwrap()
    }

    #[test]
    fn start_that_comes_out_differently_is_noticed() {
        let mut ledger = Ledger::default();
        ledger.started("a", InstanceId(1), false, 1);
        ledger.started("a", InstanceId(1), true, 2);
        ledger.started("b", InstanceId(2), true, 2);
        assert!(ledger.faults.is_empty(), "{:?}", ledger.faults);
        ledger.started("a", InstanceId(1), false, 3);
        ledger.started("a", InstanceId(3), true, 3);
        ledger.started("c", InstanceId(4), true, 1);
        let losses: Vec<bool> = ledger.faults.iter().map(Fault::is_loss).collect();
        assert_eq!(losses, [true, false, false]);
    }

    #[test]
    fn second_acknowledgement_of_one_step_is_a_duplicate() {
        let mut ledger = Ledger::default();
        ledger.claimed(&activity(), "ann");
        ledger.done(&activity(), "x");
        assert!(ledger.faults.is_empty() && ledger.acknowledged == 2);
        ledger.done(&activity(), "y");
        ledger.claimed(&activity(), "bob");
        assert_eq!(ledger.faults.iter().filter(|fault| !fault.is_loss()).count(), 2);
    }
}
