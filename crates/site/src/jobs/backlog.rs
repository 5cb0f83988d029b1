//! The queue of jobs, and the order in which they are given out.
//!
//! Promised jobs come first, in order of their due times. If the executor that has promised a job cannot begin it yet,
//! the job is held for that executor. Workers and executors of a type are shared fairly by the processes that wait for
//! the type: the process that was served least, by size, is next, so that a flood of one process does not starve the
//! others. Workers of several types are shared by the types in the same way, task by task. Promised jobs are charged to
//! no share. Within a process jobs are ordered by priority and age: one step of priority weighs as much as a minute of
//! waiting, so that no job waits forever.
//!
//! Invariant: each waiting job is in exactly one place: among the promised, among the held, or in the lane of its type
//! and process.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::time::Timestamp;
use legwork_schedule::{ExecutorId, Waiting};

use super::JobKey;
use super::turns::Turns;

/// The waiting time that one step of priority weighs.
const STEP_MS: i64 = 60_000;

/// The position in a lane: by due time, then by order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(i64, u64);

/// Where a job waits.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) job: Arc<str>,
    pub(super) process: Arc<str>,
    pub(super) rank: Rank,
    pub(super) size: f64,
    pub(super) is_promised: bool,
}

#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Only types that have waiting jobs.
    types: BTreeMap<Arc<str>, OfType>,
    turns: Turns,
    /// By type; within a type by due time.
    promised: BTreeMap<Arc<str>, BTreeMap<Rank, JobKey>>,
    /// Promised jobs that their executor cannot begin yet.
    held: BTreeMap<Rank, Held>,
    last: u64,
    len: usize,
}

#[derive(Debug)]
struct Held {
    /// `None`: no executor accepts it.
    by: Option<ExecutorId>,
    job: Arc<str>,
    key: JobKey,
}

#[derive(Debug, Default)]
struct OfType {
    /// By process.
    lanes: BTreeMap<Arc<str>, BTreeMap<Rank, JobKey>>,
    turns: Turns,
    /// Number and total size of the waiting jobs.
    amount: Waiting,
}

impl OfType {
    /// The next job.
    fn first(&self) -> Option<&JobKey> {
        let (_, process) = self.turns.first()?;
        self.lanes.get(process)?.first_key_value().map(|(_, key)| key)
    }
}

impl Backlog {
    /// The rank of a job that is waiting since a moment.
    pub(super) fn rank(&mut self, since: Timestamp, priority: u32) -> Rank {
        self.last += 1;
        Rank(since.0.saturating_sub(i64::from(priority).saturating_mul(STEP_MS)), self.last)
    }

    /// The rank of a job promised for a moment.
    pub(super) fn rank_promised(&mut self, due: Timestamp) -> Rank {
        self.rank(due, 0)
    }

    pub(super) fn add(&mut self, place: &Place, key: JobKey) {
        let Place { job, process, rank, is_promised, .. } = place;
        self.len += 1;
        if *is_promised {
            self.promised.entry(job.clone()).or_default().insert(*rank, key);
            return;
        }
        if !self.types.contains_key(job) {
            self.turns.enter(job);
        }
        let of_type = self.types.entry(job.clone()).or_default();
        if !of_type.lanes.contains_key(process) {
            of_type.turns.enter(process);
        }
        of_type.lanes.entry(process.clone()).or_default().insert(*rank, key);
        of_type.amount.tasks += 1;
        of_type.amount.units += place.size;
    }

    fn remove_promised(&mut self, job: &Arc<str>, rank: &Rank) -> Option<JobKey> {
        let of_type = self.promised.get_mut(job)?;
        let key = of_type.remove(rank)?;
        if of_type.is_empty() {
            self.promised.remove(job);
        }
        Some(key)
    }

    /// The executor that has promised the job cannot begin it now: the job is not next until it is released.
    pub(super) fn hold(&mut self, place: &Place, by: Option<ExecutorId>) {
        if let Some(key) = self.remove_promised(&place.job, &place.rank) {
            self.held.insert(place.rank, Held { by, job: place.job.clone(), key });
        }
    }

    /// Returns jobs held for an executor, or for any if `None`, to the queue.
    pub(super) fn unhold(&mut self, by: Option<ExecutorId>) {
        let is_over =
            |_: &Rank, held: &mut Held| by.is_none() || held.by.is_none() || by == held.by;
        for (rank, Held { job, key, .. }) in self.held.extract_if(.., is_over) {
            self.promised.entry(job).or_default().insert(rank, key);
        }
    }

    pub(super) fn remove(&mut self, place: &Place) {
        let Place { job, process, rank, is_promised, .. } = place;
        if *is_promised {
            let held = self.held.remove(rank).map(|held| held.key);
            let was_here = held.or_else(|| self.remove_promised(job, rank)).is_some();
            self.len -= usize::from(was_here);
            return;
        }
        let Some(of_type) = self.types.get_mut(job) else { return };
        let Some(lane) = of_type.lanes.get_mut(process) else { return };
        if lane.remove(rank).is_some() {
            self.len -= 1;
            of_type.amount.tasks -= 1;
            of_type.amount.units = (of_type.amount.units - place.size).max(0.0);
        }
        if lane.is_empty() {
            of_type.lanes.remove(process);
            of_type.turns.leave(process);
        }
        if of_type.lanes.is_empty() {
            self.types.remove(job);
            self.turns.leave(job);
        }
    }

    /// A job is given out: its process and its type are charged.
    pub(super) fn take(&mut self, place: &Place) {
        if place.is_promised {
            return self.remove(place);
        }
        self.turns.charge(&place.job, 1.0);
        if let Some(of_type) = self.types.get_mut(&place.job) {
            of_type.turns.charge(&place.process, place.size);
        }
        self.remove(place);
    }

    /// A job is queued again without having been worked on: the charge is refunded.
    pub(super) fn requeue(&mut self, place: &Place, key: JobKey) {
        if place.is_promised {
            return self.add(place, key);
        }
        self.turns.refund(&place.job, 1.0);
        if let Some(of_type) = self.types.get_mut(&place.job) {
            of_type.turns.refund(&place.process, place.size);
        }
        self.add(place, key);
    }

    /// The next job of the wanted types, promised ones first.
    pub(super) fn next(
        &self,
        is_wanted: impl Fn(&Arc<str>, bool) -> bool,
    ) -> Option<(&Arc<str>, &JobKey)> {
        let promised = self.promised.iter().filter(|(job, _)| is_wanted(job, true));
        let promised =
            promised.filter_map(|(job, of_type)| Some((job, of_type.first_key_value()?)));
        if let Some((job, (_, key))) = promised.min_by_key(|(_, (rank, _))| **rank) {
            return Some((job, key));
        }
        let job = self.turns.iter().find(|job| is_wanted(job, false))?;
        Some((job, self.types.get(job)?.first()?))
    }

    /// The types with waiting jobs, and whether these are promised; a type may appear as both. Held jobs do not count.
    pub(super) fn types(&self) -> impl Iterator<Item = (&Arc<str>, bool)> {
        let promised = self.promised.keys().map(|job| (job, true));
        promised.chain(self.types.keys().map(|job| (job, false)))
    }

    /// Number and size of the waiting jobs of each type that are not promised.
    pub(super) fn amounts(&self) -> impl Iterator<Item = (&Arc<str>, Waiting)> {
        self.types.iter().map(|(job, of_type)| (job, of_type.amount))
    }

    /// Number of waiting jobs of each type.
    pub(super) fn counts(&self) -> BTreeMap<&Arc<str>, usize> {
        let rest = self.types.iter().map(|(job, of_type)| (job, of_type.amount.tasks));
        let promised = self.promised.iter().map(|(job, of_type)| (job, of_type.len()));
        let held = self.held.values().map(|held| (&held.job, 1));
        let mut counts = BTreeMap::new();
        for (job, count) in rest.chain(promised).chain(held) {
            *counts.entry(job).or_default() += count;
        }
        counts
    }

    pub(super) fn has(&self, job: &str) -> bool {
        self.types.contains_key(job) || self.promised.contains_key(job)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::id::{Activity, InstanceId, NodeId};

    use super::*;

    /// A backlog, and the places of the jobs in it.
    #[derive(Default)]
    struct Waiting {
        backlog: Backlog,
        places: BTreeMap<JobKey, Place>,
        last: u128,
    }

    impl Waiting {
        /// Adds `count` jobs of a process, one millisecond apart.
        fn add(&mut self, job: &str, process: &str, (priority, since): (u32, i64), count: i64) {
            for number in 0..count {
                self.last += 1;
                let rank = self.backlog.rank(Timestamp(since + number), priority);
                let (job, process) = (job.into(), process.into());
                self.put(Place { job, process, rank, size: 1.0, is_promised: false });
            }
        }

        /// Adds a job of a process that is promised for a moment.
        fn promise(&mut self, job: &str, process: &str, due: i64) {
            self.last += 1;
            let rank = self.backlog.rank_promised(Timestamp(due));
            let (job, process) = (job.into(), process.into());
            self.put(Place { job, process, rank, size: 1.0, is_promised: true });
        }

        fn put(&mut self, place: Place) {
            let activity = Activity::once(NodeId(1));
            let key = JobKey { instance: InstanceId(self.last), activity };
            self.backlog.add(&place, key.clone());
            self.places.insert(key, place);
        }

        /// Takes the next `count` jobs of these types; returns their processes.
        fn take(&mut self, wanted: &[&str], count: usize) -> Vec<String> {
            let mut taken = Vec::new();
            for _ in 0..count {
                let Some((_, key)) = self.backlog.next(|job, _| wanted.contains(&&**job)) else {
                    break;
                };
                let place = self.places.remove(&key.clone()).unwrap();
                self.backlog.take(&place);
                taken.push(place.process.to_string());
            }
            taken
        }
    }

    fn of(taken: &[String], process: &str) -> usize {
        taken.iter().filter(|own| *own == process).count()
    }

    #[test]
    fn a_flood_of_one_process_does_not_starve_another() {
        let mut waiting = Waiting::default();
        waiting.add("mail", "flood", (5, 0), 1_000);
        assert_eq!(of(&waiting.take(&["mail"], 100), "flood"), 100);
        waiting.add("mail", "late", (5, 1_000), 10);
        assert_eq!(of(&waiting.take(&["mail"], 20), "late"), 10);
    }

    #[test]
    fn jobs_of_one_type_do_not_delay_a_process_at_another_type() {
        let mut waiting = Waiting::default();
        waiting.add("mail", "newsletter", (5, 0), 10_000);
        waiting.add("mail", "loan", (5, 1_000), 100);
        waiting.add("score", "loan", (5, 0), 10_000);
        let mut mails = Vec::new();
        for _ in 0..100 {
            // Four are scored for each mail that is sent.
            waiting.take(&["score"], 4);
            mails.extend(waiting.take(&["mail"], 1));
        }
        assert_eq!(of(&mails, "loan"), 50, "{mails:?}");
    }

    #[test]
    fn workers_of_several_types_do_them_in_turns() {
        let mut waiting = Waiting::default();
        waiting.add("mail", "claim", (5, 0), 1_000);
        waiting.add("print", "claim", (5, 500), 10);
        waiting.take(&["mail"], 100);
        waiting.take(&["mail", "print"], 22);
        assert!(!waiting.backlog.has("print"), "not after all mails");
    }

    #[test]
    fn a_returned_job_is_refunded_to_its_process() {
        let mut waiting = Waiting::default();
        waiting.add("mail", "refused", (5, 0), 10);
        waiting.add("mail", "other", (5, 0), 1_000);
        for _ in 0..20 {
            let (_, key) = waiting.backlog.next(|_, _| true).unwrap();
            let key = key.clone();
            let place = waiting.places[&key].clone();
            waiting.backlog.take(&place);
            match &*place.process {
                "refused" => waiting.backlog.requeue(&place, key),
                _ => drop(waiting.places.remove(&key)),
            }
        }
        let next = waiting.take(&["mail"], 20);
        assert!(of(&next, "refused") >= 9, "{next:?}");
    }

    #[test]
    fn priority_goes_first_until_others_have_waited_long_enough() {
        let mut waiting = Waiting::default();
        waiting.add("mail", "claim", (5, 0), 2);
        waiting.add("mail", "claim", (7, 60_000), 1);
        waiting.add("mail", "claim", (7, 120_001), 1);
        let mut order = Vec::new();
        while let Some((_, key)) = waiting.backlog.next(|_, _| true) {
            order.push(key.instance.0);
            let place = waiting.places[&key.clone()].clone();
            waiting.backlog.take(&place);
        }
        assert_eq!(order, [3, 1, 2, 4]);
        assert_eq!((waiting.backlog.len(), waiting.backlog.types().count()), (0, 0));
    }

    #[test]
    fn promised_jobs_come_first_by_due_time_and_are_charged_to_no_share() {
        let mut waiting = Waiting::default();
        waiting.add("mail", "flood", (9, 0), 10);
        waiting.add("print", "flood", (9, 0), 10);
        waiting.add("mail", "own", (5, 0), 10);
        waiting.promise("mail", "own", 900_000);
        waiting.promise("print", "other", 700_000);
        waiting.promise("mail", "own", 800_000);
        assert_eq!(waiting.take(&["mail", "print"], 3), ["other", "own", "own"]);
        assert_eq!(of(&waiting.take(&["mail"], 10), "own"), 5, "and then as if nothing had been");
    }

    #[test]
    fn a_held_job_is_not_next_until_it_is_released() {
        let mut waiting = Waiting::default();
        waiting.promise("mail", "promised", 900_000);
        waiting.add("mail", "rest", (5, 0), 2);
        let place = waiting.places.values().find(|place| place.is_promised).unwrap().clone();
        waiting.backlog.hold(&place, Some(ExecutorId(3)));
        assert_eq!(waiting.take(&["mail"], 1), ["rest"]);
        assert_eq!((waiting.backlog.len(), waiting.backlog.counts().into_values().sum()), (2, 2));
        waiting.backlog.unhold(Some(ExecutorId(4)));
        assert_eq!(waiting.take(&["mail"], 1), ["rest"]);
        assert!(!waiting.backlog.has("mail"));
        waiting.backlog.unhold(Some(ExecutorId(3)));
        assert_eq!(waiting.take(&["mail"], 1), ["promised"]);
        assert_eq!(waiting.backlog.len(), 0);
    }
}
