//! Workers that ask for jobs of types that executors do as well: told apart by the names they give.
//!
//! Invariant: a worker's number is never an executor's. So many are remembered; of the others, those that
//! have not asked for longest are forgotten, with all that was learned of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_schedule::{ExecutorId, Limits};

use super::registry::Number;

/// How many workers are remembered.
pub(super) const WORKERS_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct Workers {
    all: BTreeMap<Arc<str>, Known>,
    names: BTreeMap<ExecutorId, Arc<str>>,
    /// The one that has not asked for longest first.
    asked: BTreeMap<u64, Arc<str>>,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    id: ExecutorId,
    asked: u64,
}

impl Workers {
    /// The number of one that asks, from now on if it had none.
    pub(super) fn ask(&mut self, name: &Arc<str>, reserve: impl FnOnce() -> ExecutorId) -> Number {
        self.last += 1;
        let asked = self.last;
        let number = match self.all.get(name) {
            Some(known) => {
                self.asked.remove(&known.asked);
                Number::Same(known.id)
            }
            None => self.free_number().map_or_else(|| Number::New(reserve()), Number::Again),
        };
        let id = number.id();
        self.all.insert(name.clone(), Known { id, asked });
        self.names.insert(id, name.clone());
        self.asked.insert(asked, name.clone());
        number
    }

    /// The number of the one that has not asked for longest, if there are enough.
    fn free_number(&mut self) -> Option<ExecutorId> {
        if self.all.len() < WORKERS_MAX {
            return None;
        }
        let (_, longest) = self.asked.pop_first()?;
        Some(self.all.remove(&longest)?.id)
    }

    pub(super) fn knows(&self, id: ExecutorId) -> bool {
        self.names.contains_key(&id)
    }

    /// Those after a name, in the order of their names.
    pub(super) fn after(
        &self,
        name: Option<&str>,
    ) -> impl Iterator<Item = (ExecutorId, &Arc<str>)> {
        let later = self.all.iter().filter(move |(own, _)| name.is_none_or(|name| ***own > *name));
        later.map(|(name, known)| (known.id, name))
    }
}

/// A worker that asks has a hand free: it begins with what it is given at once.
pub(super) fn limits() -> Limits {
    Limits { at_once: u32::MAX, ..Limits::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_not_asked_for_longest_is_forgotten() {
        let mut workers = Workers::default();
        let mut next = 0;
        let mut ask = |name: &str| {
            let reserve = || {
                next += 1;
                ExecutorId(next)
            };
            workers.ask(&name.into(), reserve)
        };
        assert_eq!(ask("first"), Number::New(ExecutorId(1)));
        assert_eq!(ask("second"), Number::New(ExecutorId(2)));
        for number in 2..WORKERS_MAX {
            ask(&format!("worker-{number}"));
        }
        assert_eq!(ask("first"), Number::Same(ExecutorId(1)));
        assert_eq!(ask("another"), Number::Again(ExecutorId(2)));
        assert_eq!(ask("first"), Number::Same(ExecutorId(1)));
        assert_eq!(ask("second"), Number::Again(ExecutorId(3)));
        assert_eq!((workers.all.len(), workers.names.len()), (WORKERS_MAX, WORKERS_MAX));
        assert_eq!(workers.asked.len(), WORKERS_MAX);
    }
}
