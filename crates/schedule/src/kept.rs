//! What of the book is worth keeping over a restart: how fast executors are, and what they have done.
//!
//! Invariant: it says nothing of assignments, silence or recent failures. Those are of one run of the engine: after a
//! restart every executor gets a new chance, with the pace that was learned before.

use crate::{Book, ExecutorId, KindId};

/// How long tasks usually take, in milliseconds, and the largest size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usual {
    pub service_ms: Option<f64>,
    pub size_max: f64,
}

/// What was learned of one executor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptExecutor {
    /// How long answers took, and how long they were expected to: the rest went to others.
    pub taken_ms: f64,
    pub expected_ms: f64,
    pub kinds: Vec<KeptKind>,
}

/// What was learned of an executor at a type.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptKind {
    pub kind: KindId,
    /// The last observations, the oldest first, in milliseconds per unit.
    pub recent: Vec<f64>,
    /// Sum and number of `size / time`, queueing included.
    pub rate_sum: f64,
    pub rates: u32,
    pub answers: u64,
    pub timeouts: u64,
    pub failures: u64,
}

impl Book {
    /// How often something was learned: whoever stores it sees by that whether there is anything new.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn usual(&self) -> Usual {
        Usual { service_ms: self.service_ms, size_max: self.size_max }
    }

    /// What was learned of an executor; `None` if nothing was.
    pub fn kept(&self, id: ExecutorId) -> Option<KeptExecutor> {
        let one = self.executor(id)?;
        let kinds: Vec<KeptKind> = one.kinds().filter_map(|(kind, seen)| seen.kept(kind)).collect();
        let (taken_ms, expected_ms) = one.compared();
        (!kinds.is_empty()).then_some(KeptExecutor { taken_ms, expected_ms, kinds })
    }

    /// Before anything is learned anew.
    pub fn restore_usual(&mut self, usual: Usual) {
        self.service_ms = usual.service_ms.filter(|ms| is_time(*ms));
        self.size_max = if usual.size_max.is_finite() { usual.size_max.max(0.0) } else { 0.0 };
    }

    /// What was learned of an executor before a restart. Values that nobody can have observed are left out.
    pub fn restore(&mut self, id: ExecutorId, kept: KeptExecutor) {
        let Some(one) = self.executors.get_mut(id.0 as usize) else { return };
        if is_time(kept.taken_ms) && is_time(kept.expected_ms) {
            one.restore_compared(kept.taken_ms, kept.expected_ms);
        }
        for mut own in kept.kinds {
            own.recent.retain(|ms| is_time(*ms));
            one.kind_mut(own.kind).restore(own);
        }
    }
}

fn is_time(ms: f64) -> bool {
    ms.is_finite() && ms > 0.0
}
