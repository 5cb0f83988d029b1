//! Deadlines of cases: promises, their performers, and whether they are kept.
//!
//! Two servers deal with a reservation. The one that starts a case searches for a promise, step by step (`admission`,
//! `starts`), and replans its steps when dates cannot be kept (`cases`). The planner of a person or an executor keeps
//! their plan (`serving`), in a stream of its own (`journal`). The plans themselves belong to `legwork_plan`.
//!
//! Invariant: a promise is announced only when everything it depends on is being committed.

mod admission;
mod alarms;
mod candidates;
mod cases;
mod danger;
mod holders;
mod journal;
mod ledger;
mod occupancy;
mod outcomes;
mod overdue;
mod reach;
mod regular;
mod reserving;
mod resources;
mod serving;
mod starts;
mod step_reports;
mod steps;
mod updates;
mod views;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use legwork_model::event::TaskKey;
use legwork_model::id::{AgentId, InstanceId, NodeId, ServerId};
use legwork_model::time::Timestamp;
use legwork_plan::{Planner, TaskId};

use crate::Site;
use crate::message::{Deadline, Instance};
use admission::Admission;
pub(crate) use alarms::{Alarm, Alarms};
use cases::steps_of;
pub(crate) use danger::in_danger_from;
use journal::Pending;
use ledger::Ledger;
pub(crate) use occupancy::Turn;
pub use outcomes::BrokenAt;
pub(crate) use overdue::describe as describe_deadline;
pub use reserving::{Attempt, Reserving, Why};
use starts::Granted;
pub use starts::Wish;
use step_reports::StepReport;
use steps::ReportedStep;
pub(crate) use steps::{leg_of, promised_for};
pub(crate) use views::is_by_workers;

#[derive(Debug, Default)]
pub(crate) struct Planning {
    /// The plans kept here.
    planner: Planner,
    /// Whether the stored reservations are restored. This waits for the first use, since the time is not known before.
    is_restored: bool,
    watch: serving::Watch,
    /// The fold of the stream of plans.
    ledger: Ledger,
    /// Number of records in the stream of plans, and at the last snapshot.
    records: u64,
    stored: u64,
    /// The net changes of the present input.
    pending: Pending,
    /// Admissions in progress.
    admissions: BTreeMap<InstanceId, Admission>,
    /// The number of the last question to a planner.
    attempt: u64,
    /// Cases whose reservations were displaced during an admission.
    displaced: BTreeSet<InstanceId>,
    /// Promises for cases that are about to start.
    granted: BTreeMap<InstanceId, Granted>,
    /// Recent offers, and until when planners that were asked twice may answer again.
    offered: VecDeque<(Timestamp, InstanceId)>,
    /// Running cases to replan.
    replans: cases::Replans,
    /// When cases were last planned.
    planned_at: BTreeMap<InstanceId, Timestamp>,
    /// Stages of steps that were promised for cases started here, or are controlled here.
    stages: BTreeMap<TaskId, ReportedStep>,
    holders: holders::Holders,
    reach: reach::Reach,
    updates: updates::Updates,
    step_reports: step_reports::StepReports,
    counts: Counts,
    /// Where promises were broken, and how often.
    broken: BTreeMap<BrokenAt, u64>,
    /// Cases whose deadline has passed, and which may have ended at another server before. They are counted when that
    /// is known.
    uncounted: BTreeMap<InstanceId, Timestamp>,
    /// Cases that are not over and whose promise was revoked.
    revoked: BTreeSet<InstanceId>,
    /// When each person last completed a step here.
    done_at: BTreeMap<AgentId, Timestamp>,
}

/// Outcomes of deadlines since the server was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub promised: u64,
    pub refused: u64,
    /// Accepted although it could not be promised.
    pub unpromised: u64,
    pub kept: u64,
    pub broken: u64,
    /// Cases whose promise was revoked before it was broken.
    pub revoked: u64,
}

impl Planning {
    /// Whether there are stored reservations that are not restored yet.
    fn is_restore_due(&self) -> bool {
        !self.is_restored && !self.ledger.is_empty()
    }

    /// Whether an instance has an admission, a replan or open reports, which keeps its state in memory.
    pub(crate) fn concerns(&self, id: InstanceId) -> bool {
        self.step_reports.is_recovering(id)
            || self.replans.concerns(id)
            || self.admissions.contains_key(&id)
            || self.stages.range(steps_of(id)).next().is_some()
    }

    /// An instance is over.
    fn forget(&mut self, id: InstanceId) {
        self.revoked.remove(&id);
        self.uncounted.remove(&id);
        self.planned_at.remove(&id);
        self.updates.forget(id);
        self.holders.forget(id);
        self.stages.extract_if(steps_of(id), |_, _| true).for_each(drop);
    }
}

impl Planning {
    /// Outcomes of deadlines requested here.
    pub(crate) fn deadlines(&self) -> Counts {
        self.counts
    }

    /// An instance is over here, and not in memory any more.
    pub(crate) fn forget_ended(&mut self, id: InstanceId) {
        self.step_reports.forget_all(id);
    }
}

impl Site {
    /// Outcomes of deadlines requested here.
    pub fn deadlines(&self) -> Counts {
        self.planning.deadlines()
    }

    /// Restores the stored reservations, once.
    fn restore_plans_once(&mut self, now: Timestamp) {
        if std::mem::replace(&mut self.planning.is_restored, true) {
            return;
        }
        self.planning.note_refitted(now);
        // Other servers first report which steps were begun meanwhile.
        if self.cluster.other_servers().next().is_some() {
            self.planning.check_later(now);
        }
        self.restore_plans(now);
        self.drop_unstarted(now);
    }

    /// Handles everything that is due in planning.
    pub(crate) fn settle_plans(&mut self, now: Timestamp) {
        if self.planning.is_restore_due() {
            self.restore_plans_once(now);
        }
        self.presume_dead(now);
        self.settle_planner(now);
        self.resend_questions(now);
        self.follow_displaced(now);
        self.release_expired_grants(now);
        self.replan_due(now);
        self.resend_plans(now);
        self.resend_recovered(now);
        self.resend_steps(now);
    }

    /// When something in planning is due.
    pub(crate) fn next_plan(&self) -> Option<Timestamp> {
        let planning = &self.planning;
        let restore = planning.is_restore_due().then_some(self.clock.latest);
        let asked = planning.admissions.values().filter_map(Admission::next_due).min();
        let granted = planning.granted.values().map(|granted| granted.until).min();
        let displaced = (!planning.displaced.is_empty()).then_some(self.clock.latest);
        let due = [
            restore,
            asked,
            granted,
            displaced,
            self.next_planner(),
            self.planning.next_replanning(),
        ];
        let reports =
            [self.planning.next_update(), self.next_step_report(), planning.reach.next_due()];
        due.into_iter().chain(reports).flatten().min()
    }
}

/// The stored key of a task.
fn key(task: TaskId) -> TaskKey {
    let TaskId { instance, step, round } = task;
    TaskKey { instance, node: NodeId(step), round, part: 0 }
}

fn task_id(key: TaskKey) -> TaskId {
    let TaskKey { instance, node, round, part: _ } = key;
    TaskId { instance, step: node.0, round }
}

impl Site {
    pub(crate) fn on_deadline(&mut self, from: ServerId, message: Deadline, now: Timestamp) {
        match message {
            Deadline::Step { task, stage, took_ms, number, ago_ms, holder } => {
                let since = Timestamp(now.0.saturating_sub_unsigned(ago_ms));
                let report = StepReport { stage, since, holder, took_ms, number };
                self.on_step(from, task, report, now);
            }
            Deadline::StepAck { task, number } => self.planning.on_step_ack(from, task, number),
            Deadline::Replanned { instance: Instance(id), replanned, number } => {
                self.on_replanned(from, id, (*replanned, number), now);
            }
            Deadline::ReplannedAck { instance: Instance(id), number } => {
                self.planning.on_replanned_ack(from, id, number);
            }
            Deadline::Reserve(what) => self.on_reserve(from, *what, now),
        }
    }
}
