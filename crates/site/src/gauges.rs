//! Metrics of a site.
//!
//! Invariant: each is available at once: metrics are read after every batch, and must not scan all instances.

use crate::Site;
use crate::migration::outbox::Sent;
use crate::planning::Counts as DeadlineCounts;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    pub instances_open: usize,
    pub instances_resident: usize,
    pub instances_broken: usize,
    /// Open incidents.
    pub incidents_open: usize,
    pub items_open: usize,
    pub jobs_queued: usize,
    pub jobs_leased: usize,
    pub requests_waiting: usize,
    pub executors: usize,
    pub schedules: usize,
    /// Periodic starts that were retried until the next ones were due.
    pub schedules_missed: u64,
    pub sent: Sent,
    pub deadlines: DeadlineCounts,
}

impl Site {
    pub fn gauges(&self) -> Gauges {
        Gauges {
            instances_open: self.cases.instances.len(),
            instances_resident: self.cases.instances.resident(),
            instances_broken: self.cases.instances.broken_len(),
            incidents_open: self.cases.instances.incidents(),
            items_open: self.work.worklists.len(),
            jobs_queued: self.jobs.queued(),
            jobs_leased: self.jobs.leased(),
            requests_waiting: self.waiting.len(),
            executors: self.executors.registry.len(),
            schedules: self.schedules.len(),
            schedules_missed: self.schedules.missed(),
            sent: self.migration.outbox.sent(),
            deadlines: self.planning.deadlines(),
        }
    }
}
