//! The executors there are: where they are, what they do, how much at a time.
//!
//! Invariant: an executor keeps its number as long as the server runs, also when it is taken out and
//! comes back, so that what was learned of it stays.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::event::{ExecutorRegistered, ExecutorType};
use legwork_schedule::{ExecutorId, KindId, Limits};

#[derive(Debug, Default)]
pub(crate) struct Registry {
    numbers: BTreeMap<Arc<str>, ExecutorId>,
    /// By number; `None` while it is taken out.
    all: Vec<Option<Arc<ExecutorRegistered>>>,
    kinds: BTreeMap<Arc<str>, KindId>,
    /// Who does a type, by its number.
    offering: Vec<Vec<ExecutorId>>,
    /// How often they have changed.
    revision: u64,
}

impl Registry {
    pub(crate) fn register(&mut self, executor: ExecutorRegistered) -> ExecutorId {
        self.revision += 1;
        let next = ExecutorId(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        let id = *self.numbers.entry(executor.name.clone()).or_insert(next);
        for ExecutorType { job, .. } in &executor.types {
            if !self.kinds.contains_key(job) {
                let kind = KindId(u32::try_from(self.offering.len()).unwrap_or(u32::MAX));
                self.kinds.insert(job.clone(), kind);
                self.offering.push(Vec::new());
            }
        }
        if id == next {
            self.all.push(None);
        }
        if let Some(place) = self.all.get_mut(id.0 as usize) {
            *place = Some(Arc::new(executor));
        }
        self.list_offers();
        id
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<ExecutorId> {
        let id = *self.numbers.get(name)?;
        let was_there = self.all.get_mut(id.0 as usize)?.take().is_some();
        self.revision += 1;
        self.list_offers();
        was_there.then_some(id)
    }

    fn list_offers(&mut self) {
        let Self { all, kinds, offering, .. } = self;
        for (job, kind) in kinds {
            let does = |one: &ExecutorRegistered| one.types.iter().any(|own| own.job == *job);
            let ids = (0..).map(ExecutorId).zip(all.iter());
            let able = ids.filter(|(_, one)| one.as_deref().is_some_and(does)).map(|(id, _)| id);
            if let Some(place) = offering.get_mut(kind.0 as usize) {
                *place = able.collect();
            }
        }
    }

    pub(crate) fn get(&self, id: ExecutorId) -> Option<&Arc<ExecutorRegistered>> {
        self.all.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn named(&self, name: &str) -> Option<(ExecutorId, &Arc<ExecutorRegistered>)> {
        let id = *self.numbers.get(name)?;
        Some((id, self.get(id)?))
    }

    /// All that are registered, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (ExecutorId, &Arc<ExecutorRegistered>)> {
        self.numbers.values().filter_map(|id| Some((*id, self.get(*id)?)))
    }

    pub(crate) fn len(&self) -> usize {
        self.all().count()
    }

    /// How many numbers were given: of executors, and of types.
    pub(crate) fn numbers(&self) -> (usize, usize) {
        (self.all.len(), self.offering.len())
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// What an executor takes at a time, as the book is to know it: it works on all of it.
    pub(crate) fn limits(&self, id: ExecutorId) -> Limits {
        let at_once = self.get(id).map_or(1, |one| one.limit);
        Limits { at_once, ..Limits::default() }
    }

    /// How many tasks of a type an executor takes at a time, and how many in all.
    pub(crate) fn room(&self, id: ExecutorId, kind: KindId) -> (u32, u32) {
        let Some(one) = self.get(id) else { return (0, 0) };
        let is_it = |of_type: &&ExecutorType| self.kind(&of_type.job) == Some(kind);
        let own = one.types.iter().find(is_it).and_then(|of_type| of_type.limit);
        (own.unwrap_or(one.limit), one.limit)
    }

    pub(crate) fn kind(&self, job: &str) -> Option<KindId> {
        self.kinds.get(job).copied()
    }

    /// Who does a type of jobs.
    pub(crate) fn offering(&self, kind: KindId) -> &[ExecutorId] {
        self.offering.get(kind.0 as usize).map_or(&[], |ids| ids)
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::event::{Performer, Secret};

    use super::*;

    fn executor(name: &str, types: &[&str]) -> ExecutorRegistered {
        let types = types.iter().map(|job| ExecutorType { job: (*job).into(), limit: None });
        ExecutorRegistered {
            name: name.into(),
            url: "http://crm.example".into(),
            secret: Secret("s".repeat(32)),
            types: types.collect(),
            limit: 1,
            domain: None,
            verdicts: true,
            by: Performer::System,
        }
    }

    #[test]
    fn an_executor_keeps_its_number_and_is_found_by_what_it_does() {
        let mut all = Registry::default();
        let crm = all.register(executor("crm", &["mail", "score"]));
        let erp = all.register(executor("erp", &["mail"]));
        let who = |all: &Registry, job| all.offering(all.kind(job).unwrap()).to_vec();
        assert_eq!((who(&all, "mail"), who(&all, "score")), (vec![crm, erp], vec![crm]));
        assert_eq!(all.remove("crm"), Some(crm));
        assert_eq!(all.remove("crm"), None);
        assert_eq!((who(&all, "mail"), who(&all, "score")), (vec![erp], vec![]));
        assert_eq!(all.register(executor("crm", &["score"])), crm);
        assert_eq!((who(&all, "mail"), who(&all, "score")), (vec![erp], vec![crm]));
        assert_eq!((all.len(), all.numbers()), (2, (2, 2)));
    }
}
