//! Workers that ask for jobs: how many different ones there were lately, by type.
//!
//! A worker promises nothing, and nobody knows when it stops. What workers do together is planned by how many asked.
//!
//! Invariant: at most `JOBS_MAX` types are remembered, and `WORKERS_MAX` workers of each, those that asked last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::time::Timestamp;

/// How long a worker is taken to be there after it asked.
pub(crate) const SEEN_FOR: Duration = Duration::from_mins(10);
/// The most workers of a type that are planned with.
pub(crate) const WORKERS_MAX: usize = 64;
const JOBS_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct Seen {
    jobs: BTreeMap<Arc<str>, Askers>,
}

/// Those that ask for jobs of one type.
#[derive(Debug, Default)]
struct Askers {
    /// When each has asked last.
    asked: BTreeMap<Arc<str>, Timestamp>,
    /// How many are taken to be there until a moment, asked or not: before a restart they were.
    expected: Option<(usize, Timestamp)>,
}

impl Askers {
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

impl Seen {
    /// A worker asks for jobs of a type. Answers whether nobody had asked for long.
    pub(crate) fn ask(&mut self, job: &Arc<str>, worker: &Arc<str>, now: Timestamp) -> bool {
        let Some(askers) = self.askers(job, now) else { return false };
        let is_first = askers.count(now) == 0;
        askers.note(worker, now);
        is_first
    }

    /// So many workers are taken to be there until a moment.
    pub(crate) fn expect(&mut self, job: &Arc<str>, count: usize, until: Timestamp) {
        let Some(askers) = self.askers(job, until) else { return };
        let before = askers.expected.map_or(0, |(count, _)| count);
        askers.expected = Some((count.max(before).min(WORKERS_MAX), until));
    }

    fn askers(&mut self, job: &Arc<str>, now: Timestamp) -> Option<&mut Askers> {
        if self.jobs.len() >= JOBS_MAX && !self.jobs.contains_key(job) {
            self.jobs.retain(|_, askers| askers.count(now) > 0);
            if self.jobs.len() >= JOBS_MAX {
                return None;
            }
        }
        Some(self.jobs.entry(job.clone()).or_default())
    }

    /// How many workers there are for jobs of a type.
    pub(crate) fn count(&self, job: &str, now: Timestamp) -> usize {
        self.jobs.get(job).map_or(0, |askers| askers.count(now))
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
        let mut seen = Seen::default();
        let job: Arc<str> = "score".into();
        assert!(seen.ask(&job, &"w1".into(), minute(0)));
        assert!(
            !seen.ask(&job, &"w1".into(), minute(1)) && !seen.ask(&job, &"w2".into(), minute(5))
        );
        let counts = [5, 10, 11, 14, 15].map(|at| seen.count("score", minute(at)));
        assert_eq!(counts, [2, 2, 1, 1, 0]);
        assert_eq!(seen.count("mail", minute(5)), 0);
        assert!(seen.ask(&job, &"w1".into(), minute(20)), "nobody had asked for long");
    }

    #[test]
    fn who_was_there_before_a_restart_is_expected_for_a_while() {
        let mut seen = Seen::default();
        let job: Arc<str> = "score".into();
        seen.expect(&job, 3, minute(10));
        seen.expect(&job, 2, minute(10));
        assert!(!seen.ask(&job, &"w1".into(), minute(1)));
        assert_eq!([1, 9, 10].map(|at| seen.count("score", minute(at))), [3, 3, 1]);
    }

    #[test]
    fn so_many_types_and_workers_are_remembered() {
        let mut seen = Seen::default();
        for worker in 0..1_000 {
            seen.ask(&"score".into(), &format!("w{worker}").into(), Timestamp(worker));
        }
        assert_eq!(seen.count("score", Timestamp(1_000)), WORKERS_MAX);
        for job in 0..2 * JOBS_MAX {
            seen.ask(&format!("job-{job}").into(), &"w".into(), Timestamp(1_000));
        }
        assert_eq!(seen.jobs.len(), JOBS_MAX);
        assert!(
            seen.ask(&"late".into(), &"w".into(), minute(20)),
            "those that ask no more make room"
        );
    }
}
