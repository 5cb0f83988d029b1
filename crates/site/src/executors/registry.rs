//! The registered executors: addresses, types and limits.
//!
//! Invariant: an executor keeps its number when it is removed and registered again, so that what was learned of it
//! stays. Numbers of executors removed long ago are reused.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use legwork_model::event::{ExecutorRegistered, ExecutorType};
use legwork_model::rate::Rate;
use legwork_schedule::{ExecutorId, KindId, Limits};

/// How many removed executors keep their numbers.
const GONE_MAX: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Registry {
    numbers: BTreeMap<Arc<str>, ExecutorId>,
    /// By number; `None` while removed.
    all: Vec<Option<Known>>,
    /// Removed executors, the first one first.
    gone: VecDeque<Arc<str>>,
    kinds: BTreeMap<Arc<str>, KindId>,
    /// The executors of each type, by number.
    offering: Vec<Vec<ExecutorId>>,
    /// How often they have changed.
    revision: u64,
    /// Executors registered, changed or removed since the last call of `take_changed`.
    changed: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct Known {
    registered: Arc<ExecutorRegistered>,
    /// Limits by type, in order of the types.
    taken: Vec<Taken>,
}

/// The limits of an executor for a type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) kind: KindId,
    /// At a time.
    pub(crate) limit: u32,
    pub(crate) rate: Option<Rate>,
}

impl Known {
    fn of(&self, kind: KindId) -> Option<&Taken> {
        let place = self.taken.binary_search_by_key(&kind, |taken| taken.kind);
        place.ok().and_then(|place| self.taken.get(place))
    }
}

/// The number assigned to an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// The number that it had.
    Same(ExecutorId),
    New(ExecutorId),
    /// A number that another executor had.
    Reused(ExecutorId),
}

impl Number {
    pub(crate) fn id(self) -> ExecutorId {
        let (Self::Same(id) | Self::New(id) | Self::Reused(id)) = self;
        id
    }
}

impl Registry {
    pub(crate) fn register(&mut self, executor: ExecutorRegistered) -> Number {
        self.revision += 1;
        self.changed.insert(executor.name.clone());
        let number = self.number(&executor.name);
        let id = number.id();
        let mut taken = Vec::with_capacity(executor.types.len());
        for ExecutorType { job, limit, rate } in &executor.types {
            let (kind, limit) = (self.kind_or_new(job), limit.unwrap_or(executor.limit));
            taken.push(Taken { kind, limit, rate: *rate });
        }
        taken.sort_unstable_by_key(|taken| taken.kind);
        self.remove_offers(id);
        for Taken { kind, .. } in &taken {
            if let Some(ids) = self.offering.get_mut(kind.0 as usize)
                && let Err(place) = ids.binary_search(&id)
            {
                ids.insert(place, id);
            }
        }
        if let Some(place) = self.all.get_mut(id.0 as usize) {
            *place = Some(Known { registered: Arc::new(executor), taken });
        }
        number
    }

    /// The number of a type, which is assigned if it has none.
    pub(crate) fn kind_or_new(&mut self, job: &Arc<str>) -> KindId {
        let next = KindId(u32::try_from(self.offering.len()).unwrap_or(u32::MAX));
        let kind = *self.kinds.entry(job.clone()).or_insert(next);
        if kind == next {
            self.offering.push(Vec::new());
        }
        kind
    }

    fn number(&mut self, name: &Arc<str>) -> Number {
        if let Some(id) = self.numbers.get(name) {
            self.gone.retain(|gone| gone != name);
            return Number::Same(*id);
        }
        let longest = (self.gone.len() >= GONE_MAX).then(|| self.gone.pop_front()).flatten();
        let free = longest.and_then(|gone| self.numbers.remove(&gone));
        let number = free.map_or_else(|| Number::New(self.reserve()), Number::Reused);
        self.numbers.insert(name.clone(), number.id());
        number
    }

    /// A number that no executor ever had.
    pub(crate) fn reserve(&mut self) -> ExecutorId {
        let next = ExecutorId(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        self.all.push(None);
        next
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<ExecutorId> {
        let (name, id) = self.numbers.get_key_value(name)?;
        let (name, id) = (name.clone(), *id);
        self.get(id)?;
        self.revision += 1;
        self.remove_offers(id);
        *self.all.get_mut(id.0 as usize)? = None;
        self.changed.insert(name.clone());
        self.gone.push_back(name);
        Some(id)
    }

    /// Removes an executor from the lists of its types.
    fn remove_offers(&mut self, id: ExecutorId) {
        let Self { all, offering, .. } = self;
        let Some(Some(known)) = all.get(id.0 as usize) else { return };
        for Taken { kind, .. } in &known.taken {
            if let Some(ids) = offering.get_mut(kind.0 as usize) {
                ids.retain(|other| *other != id);
            }
        }
    }

    pub(crate) fn get(&self, id: ExecutorId) -> Option<&Arc<ExecutorRegistered>> {
        Some(&self.known(id)?.registered)
    }

    fn known(&self, id: ExecutorId) -> Option<&Known> {
        self.all.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn named(&self, name: &str) -> Option<(ExecutorId, &Arc<ExecutorRegistered>)> {
        let id = *self.numbers.get(name)?;
        Some((id, self.get(id)?))
    }

    /// All registered executors, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (ExecutorId, &Arc<ExecutorRegistered>)> {
        self.numbers.values().filter_map(|id| Some((*id, self.get(*id)?)))
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len() - self.gone.len()
    }

    /// Number of numbers ever assigned.
    pub(crate) fn numbers(&self) -> usize {
        self.all.len()
    }

    /// Number of types.
    pub(crate) fn kinds(&self) -> usize {
        self.offering.len()
    }

    /// The names of executors that have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The limits of an executor for the book. By default it works on all its tasks at once.
    pub(crate) fn limits(&self, id: ExecutorId) -> Limits {
        let Some(one) = self.get(id) else { return Limits::default() };
        let weight = f64::from(one.weight.unwrap_or(1));
        Limits { at_once: one.at_once.unwrap_or(one.limit), weight }
    }

    /// The types that an executor does, with their limits.
    pub(crate) fn taken(&self, id: ExecutorId) -> &[Taken] {
        self.known(id).map_or(&[], |known| &known.taken)
    }

    /// How many tasks of a type an executor takes at a time, and how many in all.
    pub(crate) fn room(&self, id: ExecutorId, kind: KindId) -> (u32, u32) {
        let Some(known) = self.known(id) else { return (0, 0) };
        let in_all = known.registered.limit;
        (known.of(kind).map_or(in_all, |taken| taken.limit), in_all)
    }

    /// The rate limits of an executor: in all, and for a type.
    pub(crate) fn rates(&self, id: ExecutorId, kind: KindId) -> (Option<Rate>, Option<Rate>) {
        let Some(known) = self.known(id) else { return (None, None) };
        (known.registered.rate, known.of(kind).and_then(|taken| taken.rate))
    }

    pub(crate) fn kind(&self, job: &str) -> Option<KindId> {
        self.kinds.get(job).copied()
    }

    /// The number of a type, if any executor does it.
    pub(crate) fn offered(&self, job: &str) -> Option<KindId> {
        self.kind(job).filter(|kind| !self.offering(*kind).is_empty())
    }

    /// All types, by name.
    pub(crate) fn types(&self) -> impl Iterator<Item = (&Arc<str>, KindId)> {
        self.kinds.iter().map(|(job, kind)| (job, *kind))
    }

    /// The executors of a type of jobs.
    pub(crate) fn offering(&self, kind: KindId) -> &[ExecutorId] {
        self.offering.get(kind.0 as usize).map_or(&[], |ids| ids)
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::event::{Performer, Secret};

    use super::*;

    fn executor(name: &str, types: &[&str]) -> ExecutorRegistered {
        let types =
            types.iter().map(|job| ExecutorType { job: (*job).into(), limit: None, rate: None });
        ExecutorRegistered {
            name: name.into(),
            url: "http://crm.example".into(),
            secret: Secret("s".repeat(32)),
            types: types.collect(),
            limit: 1,
            domain: None,
            verdicts: true,
            by: Performer::System,
            rate: None,
            weight: None,
            at_once: None,
            regularly: Vec::new(),
            reserve: None,
        }
    }

    #[test]
    fn an_executor_keeps_its_number_and_is_found_by_what_it_does() {
        let mut all = Registry::default();
        let (crm, erp) = (ExecutorId(0), ExecutorId(1));
        assert_eq!(all.register(executor("crm", &["mail", "score"])), Number::New(crm));
        assert_eq!(all.register(executor("erp", &["mail"])), Number::New(erp));
        let who = |all: &Registry, job| all.offering(all.kind(job).unwrap()).to_vec();
        assert_eq!((who(&all, "mail"), who(&all, "score")), (vec![crm, erp], vec![crm]));
        assert_eq!(all.remove("crm"), Some(crm));
        assert_eq!(all.remove("crm"), None);
        assert_eq!((who(&all, "mail"), who(&all, "score")), (vec![erp], vec![]));
        assert_eq!(all.register(executor("crm", &["score"])), Number::Same(crm));
        assert_eq!((who(&all, "mail"), who(&all, "score")), (vec![erp], vec![crm]));
        assert_eq!(all.register(executor("erp", &["score", "mail"])), Number::Same(erp));
        assert_eq!((who(&all, "mail"), who(&all, "score")), (vec![erp], vec![crm, erp]));
        assert_eq!((all.len(), all.kinds()), (2, 2));
    }

    #[test]
    fn an_executor_that_works_on_fewer_tasks_than_it_takes_has_a_queue() {
        let mut all = Registry::default();
        let own =
            |limit, at_once| ExecutorRegistered { limit, at_once, ..executor("crm", &["mail"]) };
        all.register(own(16, None));
        assert_eq!(all.limits(ExecutorId(0)).at_once, 16);
        all.register(own(16, Some(1)));
        assert_eq!(all.limits(ExecutorId(0)).at_once, 1);
        assert_eq!(all.room(ExecutorId(0), KindId(0)), (16, 16));
    }

    #[test]
    fn limits_are_those_of_the_type_or_of_the_executor() {
        let mut all = Registry::default();
        let types = [("mail", Some(3)), ("score", None)].map(|(job, limit)| ExecutorType {
            job: job.into(),
            limit,
            rate: None,
        });
        let crm = ExecutorRegistered { types: types.into(), limit: 7, ..executor("crm", &[]) };
        all.register(executor("erp", &["score"]));
        all.register(crm);
        let room = |job| all.room(ExecutorId(1), all.kind(job).unwrap());
        assert_eq!((room("mail"), room("score")), ((3, 7), (7, 7)));
    }

    #[test]
    fn numbers_of_executors_removed_long_ago_are_reused() {
        let mut all = Registry::default();
        for number in 0..5_000 {
            all.register(executor(&format!("pod-{number}"), &["mail"]));
            all.remove(&format!("pod-{number}"));
        }
        assert_eq!((all.len(), all.all.len(), all.numbers.len()), (0, GONE_MAX, GONE_MAX));
        let back = all.register(executor("pod-4990", &["mail"]));
        assert!(matches!(back, Number::Same(_)), "{back:?}");
        let mail = all.kind("mail").unwrap();
        assert_eq!((all.len(), all.offering(mail).len()), (1, 1));
    }
}
