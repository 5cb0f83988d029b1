//! The part of the book that is stored: learned speeds survive a restart.
//!
//! Invariant: it contains no assignments, no silence and no recent failures. Those belong to one incarnation of the
//! engine: after a restart every executor gets a new chance, with the pace that was learned before.

use crate::{Book, ExecutorId, KindId};

/// The usual service time, in milliseconds, and the largest size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usual {
    pub service_ms: Option<f64>,
    pub size_max: f64,
}

/// What was learned of one executor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExecutorSnapshot {
    /// The actual and the expected total time of its answers.
    pub taken_ms: f64,
    pub expected_ms: f64,
    pub kinds: Vec<KindSnapshot>,
}

/// What was learned of an executor at a type.
#[derive(Clone, Debug, PartialEq)]
pub struct KindSnapshot {
    pub kind: KindId,
    /// Recent paces, oldest first, in milliseconds per unit.
    pub recent: Vec<f64>,
    /// Sum and number of `size / time`, queueing included.
    pub rate_sum: f64,
    pub rates: u32,
    pub answers: u64,
    pub timeouts: u64,
    pub failures: u64,
}

impl Book {
    /// The number of observations so far. A changed number means that there is something new to store.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn usual(&self) -> Usual {
        Usual { service_ms: self.service_ms, size_max: self.size_max }
    }

    /// What was learned of an executor; `None` if nothing was.
    pub fn snapshot(&self, id: ExecutorId) -> Option<ExecutorSnapshot> {
        let one = self.executor(id)?;
        let kinds: Vec<KindSnapshot> =
            one.kinds().filter_map(|(kind, seen)| seen.snapshot(kind)).collect();
        let (taken_ms, expected_ms) = one.compared();
        (!kinds.is_empty()).then_some(ExecutorSnapshot { taken_ms, expected_ms, kinds })
    }

    /// Called before any observation.
    pub fn restore_usual(&mut self, usual: Usual) {
        self.service_ms = usual.service_ms.filter(|ms| is_time(*ms));
        self.size_max = if usual.size_max.is_finite() { usual.size_max.max(0.0) } else { 0.0 };
    }

    /// Restores what was learned of an executor before a restart. Impossible values are left out.
    pub fn restore(&mut self, id: ExecutorId, snapshot: ExecutorSnapshot) {
        let Some(one) = self.executors.get_mut(id.0 as usize) else { return };
        if is_time(snapshot.taken_ms) && is_time(snapshot.expected_ms) {
            one.restore_compared(snapshot.taken_ms, snapshot.expected_ms);
        }
        for mut own in snapshot.kinds {
            own.recent.retain(|ms| is_time(*ms));
            one.kind_mut(own.kind).restore(own);
        }
    }
}

fn is_time(ms: f64) -> bool {
    ms.is_finite() && ms > 0.0
}
