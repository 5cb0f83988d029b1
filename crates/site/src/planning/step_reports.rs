//! Stages of steps: reported to the planner of a step and to the server that started the instance, and resent with
//! back-off until acknowledged.
//!
//! The server that controls a step numbers each report; the server that started the instance forwards it unchanged. A
//! report that is older than the last known one of a step is ignored, and each counts once. That a step is over always
//! counts: nothing comes after it, and several servers may report it, by different clocks.
//!
//! Invariant: nothing here is stored. After a restart the stage of every step is reported again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use legwork_engine::{Here, NodeState};
use legwork_model::event::{Leg, TaskKey};
use legwork_model::id::{AgentId, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_plan::TaskId;

use super::cases::steps_of;
use super::steps::{ReportedStep, is_now, task_of};
use super::{key, task_id};
use crate::Site;
use crate::cases::Cases;
use crate::message::{self, Message, Stage};
use crate::output::Output;
use crate::planning::Planning;
use crate::retries::{Backoff, Retries};

/// Back-off before a report is resent.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// How many reports are sent at a time, and for how many instances after a restart: there may be many.
const SENT_AT_ONCE: usize = 256;
const FOLLOWED_AT_ONCE: usize = 64;

#[derive(Debug)]
pub(super) struct StepReports {
    /// Reports that were not acknowledged.
    unacked: Retries<(TaskId, ServerId), StepReport>,
    /// The last known report of steps that are planned here, or of instances started here.
    received: BTreeMap<TaskId, (u64, Stage)>,
    /// Instances from before a restart whose steps were not reported since.
    recovered: BTreeSet<InstanceId>,
    last: u64,
}

/// The stage of a step, since when, its holder, and its duration if it is over.
#[derive(Clone, Debug)]
pub(super) struct StepReport {
    pub(super) stage: Stage,
    pub(super) since: Timestamp,
    pub(super) holder: Option<AgentId>,
    pub(super) took_ms: Option<u64>,
    /// 0: assigned when it is sent.
    pub(super) number: u64,
}

impl StepReport {
    pub(super) fn new(stage: Stage, since: Timestamp) -> Self {
        Self { stage, since, holder: None, took_ms: None, number: 0 }
    }
}

impl Default for StepReports {
    fn default() -> Self {
        Self {
            unacked: Retries::new(BACKOFF),
            received: BTreeMap::new(),
            recovered: BTreeSet::new(),
            last: 0,
        }
    }
}

impl StepReports {
    /// Whether the steps of an instance have to be reported again after a restart.
    pub(super) fn is_recovering(&self, id: InstanceId) -> bool {
        self.recovered.contains(&id)
    }

    /// The stage of a step as reported by another server.
    pub(super) fn stage(&self, task: TaskId) -> Option<Stage> {
        self.received.get(&task).map(|(_, stage)| *stage)
    }

    pub(super) fn recover(&mut self, id: InstanceId) {
        self.recovered.insert(id);
    }

    /// No further report of a step matters here.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.received.remove(&task);
    }

    /// An instance is not here any more.
    pub(super) fn forget_all(&mut self, id: InstanceId) {
        self.received.extract_if(steps_of(id), |_, _| true).for_each(drop);
    }

    /// Notes a report. Returns whether it is newer than the known one.
    fn note_if_newer(&mut self, task: TaskId, report: &StepReport) -> bool {
        let StepReport { stage, number, .. } = *report;
        let is_over = |stage: Stage| stage == Stage::Over;
        let is_known = self.received.get(&task).is_some_and(|(last, before)| {
            number != 0 && number <= *last && (!is_over(stage) || is_over(*before))
        });
        if !is_known {
            self.received.insert(task, (number, stage));
        }
        !is_known
    }

    /// A number higher than all before, including those from before a restart.
    fn numbered(&mut self, report: StepReport, now: Timestamp) -> StepReport {
        if report.number != 0 {
            return report;
        }
        self.last = (self.last + 1).max(now.0.unsigned_abs());
        StepReport { number: self.last, ..report }
    }
}

impl Planning {
    /// Another server acknowledges a report.
    pub(crate) fn on_step_ack(&mut self, from: ServerId, task: TaskKey, number: u64) {
        let (reports, at) = (&mut self.step_reports, (task_id(task), from));
        if reports.unacked.get(&at).is_some_and(|report| report.number == number) {
            reports.unacked.remove(&at);
        }
    }
}

impl Cases {
    /// The planner of a step of an instance that was started here.
    fn planner_now(&self, task: TaskKey) -> Option<ServerId> {
        let (_, state) = self.instances.state(task.instance)?;
        let deadline = state.deadline().filter(|_| state.started_elsewhere().is_none())?;
        let mut legs = deadline.legs.iter();
        let leg = legs.find(|leg| (leg.node, leg.round) == (task.node, task.round))?;
        leg.planned.as_ref().map(|planned| planned.planner)
    }
}

impl Site {
    /// Reports the stage of a step to its planner and to the server that started the instance.
    pub(super) fn report_step(
        &mut self,
        task: TaskId,
        report: StepReport,
        others: [Option<ServerId>; 2],
        now: Timestamp,
    ) {
        let here = self.cluster.server_here();
        let others: BTreeSet<ServerId> = others.into_iter().flatten().collect();
        let reports = &mut self.planning.step_reports;
        let report = reports.numbered(report, now);
        for to in others.into_iter().filter(|to| *to != here) {
            self.out.push(Output::Send { to, message: step_message(task, &report, now) });
            reports.unacked.insert_sent((task, to), report.clone(), now);
        }
    }

    /// Resends reports that are due.
    pub(super) fn resend_steps(&mut self, now: Timestamp) {
        let servers: BTreeSet<ServerId> = self.cluster.other_servers().collect();
        let reports = &mut self.planning.step_reports;
        for _ in 0..SENT_AT_ONCE {
            let Some(((task, to), report)) = reports.unacked.attempt_next(now) else { return };
            let message = step_message(task, report, now);
            // A server that has left the topology gets no reports.
            match servers.contains(&to) {
                true => self.out.push(Output::Send { to, message }),
                false => drop(reports.unacked.remove(&(task, to))),
            }
        }
    }

    /// When a report is resent.
    pub(super) fn next_step_report(&self) -> Option<Timestamp> {
        let StepReports { unacked, recovered, .. } = &self.planning.step_reports;
        let recovered = (!recovered.is_empty()).then_some(self.clock.latest);
        unacked.next_due().into_iter().chain(recovered).min()
    }

    /// Another server reports the stage of a step. It may not know the present planner.
    pub(super) fn on_step(
        &mut self,
        from: ServerId,
        task: TaskKey,
        report: StepReport,
        now: Timestamp,
    ) {
        let StepReport { stage, since, took_ms, number, .. } = report;
        // The instance is not loaded yet: without an acknowledgement the report is resent.
        if self.cases.unread.contains(&task.instance) {
            return;
        }
        // The server that started it may have received the end before, by another route.
        let reported = self.planning.stages.get(&task_id(task));
        let is_past = stage != Stage::Over && reported.is_some_and(|it| it.stage == Stage::Over);
        if !is_past && self.planning.step_reports.note_if_newer(task_id(task), &report) {
            self.on_stage(task, (stage, since), now);
            self.note_duration(task, took_ms, now);
            let planner = self.cases.planner_now(task).filter(|planner| *planner != from);
            let has_changed = self.note_holder(task_id(task), report.holder.clone());
            self.report_step(task_id(task), report, [planner, None], now);
            self.replan_for_holder(task_id(task), has_changed, now);
        }
        if self.cases.instances.get(task.instance).is_none() && !self.planning.ledger.holds(task) {
            self.planning.step_reports.forget(task_id(task));
        }
        // Earlier versions send a report once, without a number, and expect no acknowledgement.
        if number != 0 {
            self.out.push(Output::Send {
                to: from,
                message: Message::Deadline(message::Deadline::StepAck { task, number }),
            });
        }
    }

    /// A server that can be reached again may have restarted, and it keeps only in memory which steps are begun.
    pub(super) fn report_begun_to(&mut self, server: ServerId, now: Timestamp) {
        let is_begun =
            |reported: &ReportedStep| reported.stage == Stage::Begun || reported.holder.is_some();
        let begun = self.planning.stages.iter().filter(|(_, reported)| is_begun(reported));
        let is_starter = |id: InstanceId| {
            let starter = self.cases.instances.state(id).and_then(|(_, it)| it.started_elsewhere());
            starter == Some(server)
        };
        let own = begun
            .filter(|(id, reported)| reported.planner == Some(server) || is_starter(id.instance));
        let own: Vec<(TaskId, StepReport)> = own
            .map(|(id, reported)| {
                let holder = reported.holder.clone();
                (*id, StepReport { holder, ..StepReport::new(reported.stage, reported.since) })
            })
            .collect();
        let reports = &mut self.planning.step_reports;
        for (task, report) in own {
            let report = reports.numbered(report, now);
            reports.unacked.insert((task, server), report, now);
        }
    }

    /// After a restart acknowledgements are unknown: reports the stages again, some instances at a time.
    pub(super) fn resend_recovered(&mut self, now: Timestamp) {
        for _ in 0..FOLLOWED_AT_ONCE {
            let Some(id) = self.planning.step_reports.recovered.pop_first() else { return };
            self.follow_plan(id, now);
            self.report_waiting(id, now);
        }
    }

    /// A step may have been released just before the restart.
    fn report_waiting(&mut self, id: InstanceId, now: Timestamp) {
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let Some(deadline) = state.deadline() else { return };
        let starter = state.started_elsewhere();
        let waiting = deadline.legs.iter().filter(|leg| {
            let is_open = is_now(schema, state, leg)
                && matches!(state.node_state(leg.node), NodeState::Activated | NodeState::Failed);
            let is_a_persons = || schema.node(leg.node).who().is_some();
            is_open && is_a_persons() && self.standing(id).controls(schema, state, leg.node)
        });
        // A starter that replans a step may still count it as held.
        let planner = |leg: &Leg| leg.planned.as_ref().map(|planned| planned.planner);
        let waiting: Vec<(TaskId, Option<ServerId>)> =
            waiting.map(|leg| (task_of(id, leg), planner(leg))).collect();
        for (task, planner) in waiting {
            self.report_step(task, StepReport::new(Stage::Waiting, now), [planner, starter], now);
            self.on_stage(key(task), (Stage::Waiting, now), now);
        }
    }
}

fn step_message(task: TaskId, report: &StepReport, now: Timestamp) -> Message {
    let StepReport { stage, since, holder, took_ms, number } = report.clone();
    let ago_ms = u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX);
    Message::Deadline(message::Deadline::Step {
        task: key(task),
        stage,
        took_ms,
        number,
        ago_ms,
        holder,
    })
}
