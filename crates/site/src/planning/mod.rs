//! Deadlines of cases: what was promised, by whom, and whether it is kept.
//!
//! Two servers have to do with a reservation. The one that starts a case searches for a promise, step by step (`admission`,
//! `starts`), and gives its steps new dates when the first ones cannot be kept (`cases`). The planner of a person or an
//! executor keeps their plan (`serving`), in a stream of its own (`journal`). The plans themselves are `legwork_plan`'s.
//!
//! Invariant: a promise is told only when everything it rests on is on its way to the disk.

mod admission;
mod alarms;
mod busy;
mod cases;
mod danger;
mod ends;
mod holders;
mod journal;
mod ledger;
mod overdue;
mod reach;
mod regular;
mod reserving;
mod resources;
mod serving;
mod starts;
mod steps;
mod updates;
mod views;
mod who;
mod word;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use legwork_model::event::TaskKey;
use legwork_model::id::{AgentId, InstanceId, NodeId, ServerId};
use legwork_model::time::Timestamp;
use legwork_plan::{Planner, TaskId};

use crate::Site;
use crate::message::{Deadline, Instance};
use admission::Admission;
pub(crate) use alarms::{Alarm, Alarms};
pub(crate) use busy::Turn;
use cases::steps_of;
pub(crate) use danger::in_danger_from;
pub use ends::BrokenAt;
use journal::Pending;
use ledger::Ledger;
pub(crate) use overdue::told as deadline_told;
pub use reserving::{Attempt, Reserving, Why};
use starts::Granted;
pub use starts::Wish;
use steps::Told;
pub(crate) use steps::{leg_of, promised_for};
pub(crate) use views::is_by_workers;
use word::News;

#[derive(Debug, Default)]
pub(crate) struct Planning {
    /// The plans that are kept here.
    planner: Planner,
    /// What was stored is in the plans. Before it is needed first nobody knows what time it is.
    is_awake: bool,
    watch: serving::Watch,
    /// What the stream of plans comes to.
    ledger: Ledger,
    /// Records in the stream of plans, and how many of them the last snapshot has.
    records: u64,
    stored: u64,
    /// What the input at hand has changed in it.
    pending: Pending,
    /// Searches for a promise that are under way.
    admissions: BTreeMap<InstanceId, Admission>,
    /// The number of the last question to a planner.
    attempt: u64,
    /// Cases whose reservations were displaced while others were sought.
    displaced: BTreeSet<InstanceId>,
    /// Promises for cases that are about to start.
    granted: BTreeMap<InstanceId, Granted>,
    /// What was offered just now, until when: planners that were asked twice may answer once more.
    offered: VecDeque<(Timestamp, InstanceId)>,
    /// Running cases that are to be replanned.
    anew: cases::Anew,
    /// When cases were planned last.
    planned_at: BTreeMap<InstanceId, Timestamp>,
    /// How far the steps are that were promised for cases started here, or are controlled here.
    stages: BTreeMap<TaskId, Told>,
    holders: holders::Holders,
    reach: reach::Reach,
    updates: updates::Updates,
    word: word::Word,
    counts: Counts,
    /// Where promises were broken, and how often.
    broken: BTreeMap<BrokenAt, u64>,
    /// Cases whose deadline has passed, and which may have ended elsewhere before: they are counted when that is known.
    unheard: BTreeMap<InstanceId, Timestamp>,
    /// Cases that are not over and whose promise was revoked.
    revoked: BTreeSet<InstanceId>,
    /// When people have last done something here.
    done_at: BTreeMap<AgentId, Timestamp>,
}

/// What became of deadlines, since the server was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub promised: u64,
    pub refused: u64,
    /// Accepted although nobody could promise it.
    pub unpromised: u64,
    pub kept: u64,
    pub broken: u64,
    /// Cases whose promise was revoked before it was broken.
    pub revoked: u64,
}

impl Planning {
    /// Whether there is something to plan for, and the plans are not made yet.
    fn is_asleep(&self) -> bool {
        !self.is_awake && !self.ledger.is_empty()
    }

    /// Whether something is waited for in an instance: its state stays in memory.
    pub(crate) fn concerns(&self, id: InstanceId) -> bool {
        self.word.is_awaited(id)
            || self.anew.concerns(id)
            || self.admissions.contains_key(&id)
            || self.stages.range(steps_of(id)).next().is_some()
    }

    /// An instance is over.
    fn forget(&mut self, id: InstanceId) {
        self.revoked.remove(&id);
        self.unheard.remove(&id);
        self.planned_at.remove(&id);
        self.updates.forget(id);
        self.holders.forget(id);
        self.stages.extract_if(steps_of(id), |_, _| true).for_each(drop);
    }
}

impl Planning {
    /// What became of deadlines that were asked for here.
    pub(crate) fn deadlines(&self) -> Counts {
        self.counts
    }

    /// An instance is over here, and not in memory any more.
    pub(crate) fn planning_over(&mut self, id: InstanceId) {
        self.word.forget_all(id);
    }
}

impl Site {
    /// What became of deadlines that were asked for here.
    pub fn deadlines(&self) -> Counts {
        self.planning.deadlines()
    }

    /// Puts what was stored into the plans.
    fn wake_planner(&mut self, now: Timestamp) {
        if std::mem::replace(&mut self.planning.is_awake, true) {
            return;
        }
        self.planning.note_refitted(now);
        // Others say first what was begun meanwhile.
        if self.cluster.other_servers().next().is_some() {
            self.planning.watch_later(now);
        }
        self.restore_plans(now);
        self.drop_unstarted(now);
    }

    /// What is due in planning.
    pub(crate) fn settle_plans(&mut self, now: Timestamp) {
        if self.planning.is_asleep() {
            self.wake_planner(now);
        }
        self.lose_unreached(now);
        self.settle_planner(now);
        self.ask_planners_again(now);
        self.follow_displaced(now);
        self.give_back_granted(now);
        self.replan_due(now);
        self.resend_plans(now);
        self.follow_recovered(now);
        self.resend_steps(now);
    }

    /// When something in planning is due.
    pub(crate) fn next_plan(&self) -> Option<Timestamp> {
        let planning = &self.planning;
        let asleep = planning.is_asleep().then_some(self.clock.latest);
        let asked = planning.admissions.values().filter_map(Admission::next_due).min();
        let granted = planning.granted.values().map(|granted| granted.until).min();
        let displaced = (!planning.displaced.is_empty()).then_some(self.clock.latest);
        let due = [
            asleep,
            asked,
            granted,
            displaced,
            self.next_planner(),
            self.planning.next_replanning(),
        ];
        let told = [self.planning.next_update(), self.next_word(), planning.reach.next_due()];
        due.into_iter().chain(told).flatten().min()
    }
}

/// The key under which a task is kept.
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
                let news = News { stage, since, holder, took_ms, number };
                self.on_step(from, task, news, now);
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
