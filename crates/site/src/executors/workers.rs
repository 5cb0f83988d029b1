//! Workers that ask for types that executors do as well, by the names they give.
//!
//! Invariant: the number of a worker is never that of an executor. At most `WORKERS_MAX` are remembered; beyond that
//! the worker that asked least recently is forgotten, with all that was learned of it.

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
    /// Least recent first.
    asked: BTreeMap<u64, Arc<str>>,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    id: ExecutorId,
    asked: u64,
}

impl Workers {
    /// The number of a worker that asks, which is assigned if it has none.
    pub(super) fn on_poll(
        &mut self,
        name: &Arc<str>,
        reserve: impl FnOnce() -> ExecutorId,
    ) -> Number {
        self.last += 1;
        let asked = self.last;
        let number = match self.all.get(name) {
            Some(known) => {
                self.asked.remove(&known.asked);
                Number::Same(known.id)
            }
            None => self.free_number().map_or_else(|| Number::New(reserve()), Number::Reused),
        };
        let id = number.id();
        self.all.insert(name.clone(), Known { id, asked });
        self.names.insert(id, name.clone());
        self.asked.insert(asked, name.clone());
        number
    }

    /// The number of the worker that asked least recently, if the limit is reached.
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

    /// Workers after a name, by name.
    pub(super) fn after(
        &self,
        name: Option<&str>,
    ) -> impl Iterator<Item = (ExecutorId, &Arc<str>)> {
        let later = self.all.iter().filter(move |(own, _)| name.is_none_or(|name| ***own > *name));
        later.map(|(name, known)| (known.id, name))
    }
}

/// A worker that asks is free: it begins the job at once.
pub(super) fn limits() -> Limits {
    Limits { at_once: u32::MAX, ..Limits::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_that_asked_least_recently_is_forgotten() {
        let mut workers = Workers::default();
        let mut next = 0;
        let mut ask = |name: &str| {
            let reserve = || {
                next += 1;
                ExecutorId(next)
            };
            workers.on_poll(&name.into(), reserve)
        };
        assert_eq!(ask("first"), Number::New(ExecutorId(1)));
        assert_eq!(ask("second"), Number::New(ExecutorId(2)));
        for number in 2..WORKERS_MAX {
            ask(&format!("worker-{number}"));
        }
        assert_eq!(ask("first"), Number::Same(ExecutorId(1)));
        assert_eq!(ask("another"), Number::Reused(ExecutorId(2)));
        assert_eq!(ask("first"), Number::Same(ExecutorId(1)));
        assert_eq!(ask("second"), Number::Reused(ExecutorId(3)));
        assert_eq!((workers.all.len(), workers.names.len()), (WORKERS_MAX, WORKERS_MAX));
        assert_eq!(workers.asked.len(), WORKERS_MAX);
    }
}
