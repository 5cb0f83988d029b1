//! What waits to be given out, and whose turn it is.
//!
//! Turns are shared between processes: whichever has had least work done is next, so that however much
//! of one is waiting, the others are served as well. Within a process it goes by priority and age: a step
//! of priority counts for as much as a minute of waiting, so that nothing waits for ever.
//!
//! Invariant: what waits stands once in the lane of its type and process. A lane has its turn by what its
//! process has had so far; one that had nothing to do meanwhile has no claim to what others got.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use legwork_model::time::Timestamp;
use rustc_hash::FxHashMap;

use super::JobKey;

/// What a step of priority counts for.
const STEP_MS: i64 = 60_000;
/// So many processes that wait for nothing are remembered before it is looked which can be forgotten.
const IDLE_MAX: usize = 64;

/// The place in a lane: what was due first, and what came first of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(i64, u64);

/// How much work was done for a process, in a unit that is the same for all.
type Share = u64;

#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// The types of which something waits, and no other.
    types: BTreeMap<Arc<str>, OfType>,
    shares: FxHashMap<Arc<str>, Share>,
    /// What the process that was served last had had before; when nothing has waited since, the most
    /// that any has had.
    reached: Share,
    most: Share,
    last: u64,
    len: usize,
}

#[derive(Debug, Default)]
struct OfType {
    lanes: BTreeMap<Arc<str>, BTreeMap<Rank, JobKey>>,
    /// One for each lane.
    turns: BTreeSet<(Share, Arc<str>)>,
}

impl OfType {
    /// Whose turn it is, and what is its next.
    fn first(&self) -> Option<((Share, Rank), &JobKey)> {
        let (share, process) = self.turns.first()?;
        let (rank, key) = self.lanes.get(process)?.first_key_value()?;
        Some(((*share, *rank), key))
    }
}

impl Backlog {
    /// The rank of something that is due since then.
    pub(super) fn rank(&mut self, since: Timestamp, priority: u32) -> Rank {
        self.last += 1;
        Rank(since.0.saturating_sub(i64::from(priority).saturating_mul(STEP_MS)), self.last)
    }

    pub(super) fn add(&mut self, job: &Arc<str>, process: &Arc<str>, rank: Rank, key: JobKey) {
        if self.len == 0 {
            self.reached = self.most;
        }
        let share = *self.shares.entry(process.clone()).or_insert(self.reached);
        // What it did not ask for then it has no claim to now.
        let share = if self.waits(process) { share } else { share.max(self.reached) };
        self.shares.insert(process.clone(), share);
        let of_type = self.types.entry(job.clone()).or_default();
        of_type.turns.insert((share, process.clone()));
        of_type.lanes.entry(process.clone()).or_default().insert(rank, key);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, job: &Arc<str>, process: &Arc<str>, rank: Rank) {
        let Some(of_type) = self.types.get_mut(job) else { return };
        let Some(lane) = of_type.lanes.get_mut(process) else { return };
        self.len -= usize::from(lane.remove(&rank).is_some());
        if lane.is_empty() {
            of_type.lanes.remove(process);
            if let Some(share) = self.shares.get(process) {
                of_type.turns.remove(&(*share, process.clone()));
            }
        }
        if of_type.lanes.is_empty() {
            self.types.remove(job);
        }
    }

    /// So much work is done for a process.
    pub(super) fn charge(&mut self, process: &Arc<str>, work: u64) {
        let had = self.shares.get(process).copied().unwrap_or(self.reached);
        // Whoever could not be served for a while is first once, and no more than that.
        let begun = had.max(self.reached);
        self.reached = begun;
        let has = begun.saturating_add(work.max(1));
        self.most = self.most.max(has);
        for of_type in self.types.values_mut() {
            if of_type.turns.remove(&(had, process.clone())) {
                of_type.turns.insert((has, process.clone()));
            }
        }
        self.shares.insert(process.clone(), has);
        if self.shares.len() > IDLE_MAX + 2 * self.lanes() {
            let Self { shares, types, reached, .. } = self;
            let waits = |process: &Arc<str>| {
                types.values().any(|of_type| of_type.lanes.contains_key(process))
            };
            shares.retain(|process, share| *share > *reached || waits(process));
        }
    }

    /// What is next of those types that are wanted.
    pub(super) fn next(
        &self,
        is_wanted: impl Fn(&Arc<str>) -> bool,
    ) -> Option<(&Arc<str>, &JobKey)> {
        let wanted = self.types.iter().filter(|(job, _)| is_wanted(job));
        let firsts = wanted.filter_map(|(job, of_type)| Some((job, of_type.first()?)));
        let (job, (_, key)) = firsts.min_by_key(|(_, (turn, _))| *turn)?;
        Some((job, key))
    }

    /// The types of which something waits.
    pub(super) fn types(&self) -> impl Iterator<Item = &Arc<str>> {
        self.types.keys()
    }

    /// How many of each type wait.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.types
            .iter()
            .map(|(job, of_type)| (job, of_type.lanes.values().map(BTreeMap::len).sum()))
    }

    pub(super) fn has(&self, job: &str) -> bool {
        self.types.contains_key(job)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn waits(&self, process: &str) -> bool {
        self.types.values().any(|of_type| of_type.lanes.contains_key(process))
    }

    fn lanes(&self) -> usize {
        self.types.values().map(|of_type| of_type.lanes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::id::{Activity, InstanceId, NodeId};

    use super::*;

    /// Adds so many of a process, due one millisecond after the other.
    fn add(
        backlog: &mut Backlog,
        job: &str,
        process: &str,
        priority: u32,
        numbers: std::ops::Range<u128>,
    ) {
        for number in numbers {
            let rank = backlog.rank(Timestamp(number as i64), priority);
            let activity = Activity::once(NodeId(1));
            backlog.add(
                &job.into(),
                &process.into(),
                rank,
                JobKey { instance: InstanceId(number), activity },
            );
        }
    }

    /// Takes what is next, and charges for it; answers process and number.
    fn take(backlog: &mut Backlog, wanted: &[&str], work: u64) -> Option<(String, u128)> {
        let (job, key) = backlog.next(|job| wanted.contains(&&**job))?;
        let (job, key) = (job.clone(), key.clone());
        let lanes = &backlog.types[&job].lanes;
        let (process, rank) = lanes
            .iter()
            .find_map(|(process, lane)| {
                lane.iter().find(|(_, own)| **own == key).map(|(rank, _)| (process.clone(), *rank))
            })
            .unwrap();
        backlog.remove(&job, &process, rank);
        backlog.charge(&process, work);
        Some((process.to_string(), key.instance.0))
    }

    fn taken(
        backlog: &mut Backlog,
        wanted: &[&str],
        work: u64,
        count: usize,
    ) -> Vec<(String, u128)> {
        (0..count).filter_map(|_| take(backlog, wanted, work)).collect()
    }

    fn of(taken: &[(String, u128)], process: &str) -> usize {
        taken.iter().filter(|(own, _)| own == process).count()
    }

    #[test]
    fn a_flood_of_one_process_does_not_starve_another() {
        let mut backlog = Backlog::default();
        add(&mut backlog, "mail", "flood", 5, 0..1_000);
        assert_eq!(of(&taken(&mut backlog, &["mail"], 10, 100), "flood"), 100);
        add(&mut backlog, "mail", "late", 5, 1_000..1_010);
        let next = taken(&mut backlog, &["mail"], 10, 20);
        assert_eq!(of(&next, "late"), 10, "turn by turn from the moment it is there: {next:?}");
    }

    #[test]
    fn shares_are_of_work_and_over_all_types() {
        let mut backlog = Backlog::default();
        add(&mut backlog, "mail", "broad", 5, 0..500);
        add(&mut backlog, "print", "broad", 5, 500..1_000);
        add(&mut backlog, "scan", "broad", 5, 1_000..1_500);
        add(&mut backlog, "mail", "narrow", 5, 1_500..2_000);
        let next = taken(&mut backlog, &["mail", "print", "scan"], 10, 100);
        assert_eq!(of(&next, "narrow"), 50);
    }

    #[test]
    fn who_had_nothing_to_do_or_could_not_be_served_catches_up_by_one() {
        let mut backlog = Backlog::default();
        add(&mut backlog, "mail", "steady", 5, 0..1_000);
        add(&mut backlog, "scan", "blocked", 5, 1_000..2_000);
        taken(&mut backlog, &["mail"], 10, 100);
        let next = taken(&mut backlog, &["mail", "scan"], 10, 20);
        assert!((9..=11).contains(&of(&next, "blocked")), "{next:?}");
        taken(&mut backlog, &["mail"], 10, 100);
        add(&mut backlog, "mail", "idle", 5, 3_000..4_000);
        let next = taken(&mut backlog, &["mail"], 10, 20);
        assert!((9..=11).contains(&of(&next, "idle")), "{next:?}");
    }

    #[test]
    fn priority_goes_first_until_others_have_waited_long_enough() {
        let mut backlog = Backlog::default();
        add(&mut backlog, "mail", "claim", 5, 0..2);
        add(&mut backlog, "mail", "claim", 7, 60_000..60_001);
        add(&mut backlog, "mail", "claim", 7, 120_001..120_002);
        let order: Vec<u128> =
            taken(&mut backlog, &["mail"], 1, 9).into_iter().map(|(_, number)| number).collect();
        assert_eq!(order, [60_000, 0, 1, 120_001]);
        assert_eq!((backlog.len(), backlog.types().count()), (0, 0));
    }

    #[test]
    fn processes_that_wait_for_nothing_are_forgotten() {
        let mut backlog = Backlog::default();
        for number in 0..10_000 {
            add(&mut backlog, "mail", &format!("process-{number}"), 5, number..number + 1);
            take(&mut backlog, &["mail"], 10);
        }
        assert!(backlog.shares.len() <= IDLE_MAX + 2, "{}", backlog.shares.len());
    }
}
