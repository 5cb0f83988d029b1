//! Reports of executors: results, failures, busy; and the verdicts about results.
//!
//! Invariant: a result counts once. The history knows which one, so that the verdict about a result is always the same,
//! before and after a restart.

use std::sync::Arc;
use std::time::Duration;

use legwork_engine::{self as engine, Command};
use legwork_model::event::{Performer, RequestDigest};
use legwork_model::id::{ActivityId, InstanceId};
use legwork_model::time::Timestamp;
use legwork_schedule::Feedback;

use super::Executors;
use super::assign::Why;
use crate::Site;
use crate::answer::Answer;
use crate::cases::Cases;
use crate::cases::step::broken;
use crate::catalog::access::Caller;
use crate::input::{Data, JobLease, Outcome, TaskReport};
use crate::jobs::JobKey;
use crate::output::Ask;
use crate::refusal::Refusal;

/// How long a busy executor rests if it gives no duration.
const REST: Duration = Duration::from_secs(1);
const REST_MIN: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(600);

/// How many verdicts are sent at a time.
const VERDICTS_AT_ONCE: usize = 1_024;

/// Whether a result counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worth {
    /// It is the first one, of the current assignment.
    Accepted {
        since: Timestamp,
    },
    /// It was accepted before.
    Counted,
    Nothing,
}

impl Executors {
    /// Notes the feedback in a report, also in a late one.
    fn note_feedback(
        &mut self,
        key: Option<&JobKey>,
        lease: u64,
        (feedback, is_over): (Feedback, bool),
        now: Timestamp,
    ) {
        let Executors { assignments, book, .. } = self;
        let current = key.and_then(|key| assignments.get(key)).map(|assignment| assignment.id);
        if let Some(id) = current.or_else(|| assignments.late(lease)) {
            book.note_feedback(id, feedback, is_over, now);
        }
    }

    /// Whether an assignment is current and belongs to this executor.
    fn is_current(&self, key: &JobKey, executor: &str, lease: u64) -> bool {
        let own = self.registry.named(executor).map(|(id, _)| id);
        let assignment = self.assignments.get(key);
        assignment
            .is_some_and(|assignment| assignment.lease == lease && Some(assignment.executor) == own)
    }

    fn wants_verdict(&self, executor: &str) -> bool {
        self.registry.named(executor).is_some_and(|(_, registered)| registered.verdicts)
    }

    fn queue_verdict(
        &mut self,
        executor: &Arc<str>,
        task: &JobLease,
        counts: bool,
        now: Timestamp,
    ) {
        if self.wants_verdict(executor) {
            let to = (executor.clone(), task.activity.clone());
            self.verdicts.add(task.lease, to, counts, now);
        }
    }
}

impl Cases {
    pub(super) fn key_of(&self, task: &JobLease) -> Option<JobKey> {
        let (_, activity) = self.activity(&task.activity).ok()?;
        Some(JobKey { instance: task.activity.instance, activity })
    }

    fn is_answered_by(&self, key: &JobKey, executor: &str, lease: u64) -> bool {
        let state = self.instances.state(key.instance).map(|(_, state)| state);
        let answer = state.and_then(|state| state.answer(key.activity.node));
        answer.is_some_and(|answer| {
            let is_own = answer.by.program().is_some_and(|name| **name == *executor);
            answer.lease == lease && is_own
        })
    }
}

impl Site {
    pub(super) fn on_task_report(
        &mut self,
        caller: &Caller,
        TaskReport { executor, task, outcome, feedback, holds }: TaskReport,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_executor(&executor)?;
        // The history knows whether the result counts, and cannot be read: the executor retries.
        let instance = task.activity.instance;
        if let Some(reason) = self.cases.instances.broken(instance) {
            return Err(broken(instance, reason));
        }
        let key = self.cases.key_of(&task);
        let is_current =
            key.as_ref().is_some_and(|key| self.executors.is_current(key, &executor, task.lease));
        let is_over = match outcome {
            Outcome::Done(_) | Outcome::Failed { .. } | Outcome::Busy { .. } => true,
            Outcome::Taken => false,
        };
        let own = key.as_ref().filter(|_| is_current);
        self.executors.note_feedback(own, task.lease, (feedback, is_over), now);
        if let Some(mut holds) = holds {
            holds.retain(|held| !is_over || held.lease != task.lease);
            self.note_holds(&executor, &holds, now);
        }
        match outcome {
            Outcome::Taken => {}
            Outcome::Busy { rest } => {
                if let Some(key) = key.filter(|_| is_current) {
                    self.on_busy(&key, rest, now);
                }
            }
            Outcome::Failed { error, retry } => {
                if let Some(key) = key.filter(|_| is_current) {
                    self.fail_attempt(&key, Why::Failed { error, retry }, now);
                }
            }
            Outcome::Done(data) => self.on_result(&executor, &task, key, &data, now)?,
        }
        Ok(Answer::Done)
    }

    /// An executor confirms a verdict.
    pub(super) fn on_task_confirm(
        &mut self,
        caller: &Caller,
        executor: &str,
        task: &JobLease,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_executor(executor)?;
        let counted = |key: &JobKey| self.cases.is_answered_by(key, executor, task.lease);
        if let Some(key) = self.cases.key_of(task).filter(counted) {
            self.require_room()?;
            let command = Command::Confirm { activity: key.activity };
            self.command(key.instance, command, now)?;
        }
        // Only now: a confirmation that could not be recorded is sent again.
        self.executors.verdicts.confirmed(task.lease);
        Ok(Answer::Done)
    }

    /// The executor rejects the job, and rests.
    fn on_busy(&mut self, key: &JobKey, rest: Option<Duration>, now: Timestamp) {
        let Some(assignment) = self.executors.assignments.take(key) else { return };
        self.executors.book.withdrawn(assignment.id, now);
        let rest = rest.unwrap_or(REST).clamp(REST_MIN, REST_MAX);
        self.executors.rests.set_busy(assignment.executor, now.plus(rest));
        self.executors.is_plan_outdated = true;
        // If its lease is not current any more, it has lost the job already, which is what it wants.
        let _ = self.jobs.give_back(key, assignment.lease);
        self.withdraw_if_suspended(key);
    }

    fn on_result(
        &mut self,
        executor: &Arc<str>,
        task: &JobLease,
        key: Option<JobKey>,
        data: &Data,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        if let Some(late) = self.executors.assignments.take_late(task.lease) {
            self.executors.book.answered(late, now);
            // The executor is alive again, and may be given tasks that others have no room for.
            self.executors.invalidate_plan();
        }
        let worth = |key: &JobKey| self.worth(key, executor, task.lease);
        let worth = key.as_ref().map_or(Worth::Nothing, worth);
        let counts = match (worth, key) {
            (Worth::Accepted { since }, Some(key)) => {
                self.require_room()?;
                self.accept(executor, task, &key, (data, since), now)?
            }
            (Worth::Counted, _) => true,
            (Worth::Nothing | Worth::Accepted { .. }, _) => false,
        };
        self.executors.queue_verdict(executor, task, counts, now);
        Ok(())
    }

    fn worth(&self, key: &JobKey, executor: &Arc<str>, lease: u64) -> Worth {
        // Only the current assignment: an earlier one may already have got a NACK.
        if let Some(assignment) = self.executors.assignments.get(key)
            && self.executors.is_current(key, executor, lease)
        {
            return Worth::Accepted { since: assignment.at };
        }
        let Some((_, state)) = self.cases.instances.state(key.instance) else {
            return Worth::Nothing;
        };
        let is_done = state.has_counted(key.activity.node, executor, lease);
        let has_counted = is_done || self.cases.is_answered_by(key, executor, lease);
        if has_counted { Worth::Counted } else { Worth::Nothing }
    }

    /// Accepts a result. Returns whether it counts: it may not fit the outputs of the step.
    fn accept(
        &mut self,
        executor: &Arc<str>,
        task: &JobLease,
        key: &JobKey,
        (data, started_at): (&Data, Timestamp),
        now: Timestamp,
    ) -> Result<bool, Refusal> {
        let (schema, _) = self.cases.activity(&task.activity)?;
        let activity = key.activity.clone();
        let by = Performer::Executor(executor.clone());
        let checked = engine::data::typed(&schema, activity.node, data);
        let checked = checked.map_err(|rejection| Refusal::from(&rejection));
        // A completed assignment is not cancelled.
        let taken = self.executors.assignments.take(key);
        let done = checked.and_then(|outputs| {
            let (lease, request) = (task.lease, Some(RequestDigest(task.lease)));
            let (step, doer, values) = (activity.clone(), by.clone(), outputs.clone());
            let answer = Command::Answer { activity, by, started_at, outputs, lease };
            let complete = Command::Complete {
                activity: step,
                by: doer,
                started_at,
                outputs: values,
                answer: None,
                request,
                channel: None,
            };
            if !self.executors.wants_verdict(executor) {
                return self.command(key.instance, complete, now);
            }
            // After the confirmation of the executor it would be too late to find that the result does not fit.
            self.require_fit(key.instance, complete, now)?;
            self.command(key.instance, answer, now)
        });
        let Some(assignment) = taken else { return Ok(done.is_ok()) };
        let Err(refusal) = done else {
            self.executors.book.answered(assignment.id, now);
            self.executors.assignments.forget(key);
            return Ok(true);
        };
        self.put_back(key, Some(assignment), now);
        let error = format!("its result does not fit: {refusal}");
        self.fail_attempt(key, Why::Failed { error, retry: true }, now);
        Ok(false)
    }

    /// Sends the verdicts that are due, a batch at a time.
    pub(crate) fn resend_verdicts(&mut self, now: Timestamp) {
        for _ in 0..VERDICTS_AT_ONCE {
            if self.entailed.is_enough() {
                return;
            }
            let Some((lease, verdict)) = self.executors.verdicts.resend_next(now) else { return };
            let registered = self.executors.registry.named(&verdict.executor);
            let registered = registered.map(|(_, registered)| registered.clone());
            // An executor that was removed, or does not want verdicts any more, does not confirm.
            let Some(registered) = registered.filter(|registered| registered.verdicts) else {
                self.confirm_orphan(lease, now);
                continue;
            };
            let task = JobLease { activity: verdict.activity, lease };
            self.call(&registered, Ask::Verdict { task, counts: verdict.counts });
        }
    }

    /// An instance is in memory: queues the verdicts about results that count and are not confirmed.
    pub(crate) fn requeue_verdicts(&mut self, id: InstanceId, now: Timestamp) {
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let answers = state.answers(schema).map(|(activity, answer)| {
            let activity: ActivityId = crate::cases::view::activity_id(schema, id, &activity);
            (activity, answer.by.clone(), answer.lease)
        });
        for (activity, by, lease) in answers.collect::<Vec<_>>() {
            if let Some(executor) = by.program().cloned() {
                self.executors.verdicts.add(lease, (executor, activity), true, now);
            }
        }
    }
}
