//! Workers that asked for jobs recently, by type.
//!
//! A worker promises nothing, and can stop without notice. Planning takes the number of recent workers as the capacity
//! of workers.
//!
//! Invariant: at most `JOBS_MAX` types are remembered, and of each the `WORKERS_MAX` workers that asked last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::time::Timestamp;

/// How long a worker counts as present after it asked.
pub(crate) const SEEN_FOR: Duration = Duration::from_mins(10);
/// The most workers of a type that planning counts.
pub(crate) const WORKERS_MAX: usize = 64;
const JOBS_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct RecentWorkers {
    jobs: BTreeMap<Arc<str>, Recent>,
}

/// Workers that ask for jobs of one type.
#[derive(Debug, Default)]
struct Recent {
    /// When each one asked last.
    asked: BTreeMap<Arc<str>, Timestamp>,
    /// How many workers count as present until a moment, since they were present before a restart.
    expected: Option<(usize, Timestamp)>,
}

impl Recent {
    fn count(&self, now: Timestamp) -> usize {
        let asked = self.asked.values().filter(|at| now.since(**at) < SEEN_FOR).count();
        let expected =
            self.expected.filter(|(_, until)| now < *until).map_or(0, |(count, _)| count);
        asked.max(expected)
    }

    fn note(&mut self, worker: &Arc<str>, now: Timestamp) {
        if self.asked.len() >= WORKERS_MAX && !self.asked.contains_key(worker) {
            let oldest = self.asked.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(worker, _)| worker.clone()) {
                self.asked.remove(&oldest);
            }
        }
        self.asked.insert(worker.clone(), now);
    }
}

impl RecentWorkers {
    /// A worker asks for jobs of a type. Returns whether none was present before.
    pub(crate) fn on_poll(&mut self, job: &Arc<str>, worker: &Arc<str>, now: Timestamp) -> bool {
        let Some(recent) = self.recent(job, now) else { return false };
        let is_first = recent.count(now) == 0;
        recent.note(worker, now);
        is_first
    }

    /// Counts this many workers as present until a moment.
    pub(crate) fn expect(&mut self, job: &Arc<str>, count: usize, until: Timestamp) {
        let Some(recent) = self.recent(job, until) else { return };
        let before = recent.expected.map_or(0, |(count, _)| count);
        recent.expected = Some((count.max(before).min(WORKERS_MAX), until));
    }

    fn recent(&mut self, job: &Arc<str>, now: Timestamp) -> Option<&mut Recent> {
        if self.jobs.len() >= JOBS_MAX && !self.jobs.contains_key(job) {
            self.jobs.retain(|_, recent| recent.count(now) > 0);
            if self.jobs.len() >= JOBS_MAX {
                return None;
            }
        }
        Some(self.jobs.entry(job.clone()).or_default())
    }

    /// The number of workers present for a type.
    pub(crate) fn count(&self, job: &str, now: Timestamp) -> usize {
        self.jobs.get(job).map_or(0, |recent| recent.count(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(number: i64) -> Timestamp {
        Timestamp(number * 60_000)
    }

    #[test]
    fn workers_count_for_ten_minutes_after_they_asked() {
        let mut workers = RecentWorkers::default();
        let job: Arc<str> = "score".into();
        assert!(workers.on_poll(&job, &"w1".into(), minute(0)));
        assert!(
            !workers.on_poll(&job, &"w1".into(), minute(1))
                && !workers.on_poll(&job, &"w2".into(), minute(5))
        );
        let counts = [5, 10, 11, 14, 15].map(|at| workers.count("score", minute(at)));
        assert_eq!(counts, [2, 2, 1, 1, 0]);
        assert_eq!(workers.count("mail", minute(5)), 0);
        assert!(workers.on_poll(&job, &"w1".into(), minute(20)), "nobody had asked for long");
    }

    #[test]
    fn workers_present_before_a_restart_count_for_some_time() {
        let mut workers = RecentWorkers::default();
        let job: Arc<str> = "score".into();
        workers.expect(&job, 3, minute(10));
        workers.expect(&job, 2, minute(10));
        assert!(!workers.on_poll(&job, &"w1".into(), minute(1)));
        assert_eq!([1, 9, 10].map(|at| workers.count("score", minute(at))), [3, 3, 1]);
    }

    #[test]
    fn so_many_types_and_workers_are_remembered() {
        let mut workers = RecentWorkers::default();
        for worker in 0..1_000 {
            workers.on_poll(&"score".into(), &format!("w{worker}").into(), Timestamp(worker));
        }
        assert_eq!(workers.count("score", Timestamp(1_000)), WORKERS_MAX);
        for job in 0..2 * JOBS_MAX {
            workers.on_poll(&format!("job-{job}").into(), &"w".into(), Timestamp(1_000));
        }
        assert_eq!(workers.jobs.len(), JOBS_MAX);
        assert!(
            workers.on_poll(&"late".into(), &"w".into(), minute(20)),
            "those that ask no more make room"
        );
    }
}
