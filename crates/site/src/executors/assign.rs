//! Dispatch of tasks: to which executor, with which lease, and the failure of unanswered attempts.
//!
//! Invariant: a job assigned to an executor is leased like that of a worker. When the lease expires, or the executor is
//! presumed dead, the attempt has failed and the history records it.

use std::sync::Arc;
use std::time::Duration;

use legwork_engine::{Command, Lifecycle};
use legwork_model::event::{Assigned, ExecutorRegistered, Performer};
use legwork_model::id::{ActivityId, ServerId};
use legwork_model::time::Timestamp;
use legwork_schedule::{Candidate, ExecutorId, KindId, Reason, Task};

use super::assignments::Assignment;
use super::distance::bytes_read;
use super::polls::OpenPolls;
use super::{Executors, Full};
use crate::Site;
use crate::answer::Answer;
use crate::cases::Cases;
use crate::cases::view;
use crate::input::JobLease;
use crate::jobs::JobKey;
use crate::jobs::Jobs;
use crate::jobs::demand::{Demanded, demanded};
use crate::output::{Ask, Call, Output};
use crate::planning::Turn;

/// The default lease of an executor.
const USUAL: Duration = Duration::from_secs(60);
/// The longest lease.
const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);
/// How often silent executors are checked.
const SILENCE_CHECK_EVERY: Duration = Duration::from_secs(1);
/// A shorter silence is never a failure.
const SILENCE_MIN: Duration = Duration::from_secs(5);
/// How long a job is delayed whose failed attempt could not be recorded.
const UNRECORDED_REST: Duration = Duration::from_secs(10);
/// How many tasks are sent to executors at a time: one round of the driver sends them.
const AT_ONCE: usize = 1_024;

/// Why an attempt has failed.
pub(super) enum Why {
    /// The executor has not answered.
    Silent(String),
    /// The executor reports a failure. Without `retry` every attempt would fail.
    Failed { error: String, retry: bool },
}

impl Jobs {
    /// No executor takes the job now. If it is promised it is held, so that others of its type need not wait for it.
    fn wait_for_turn(&mut self, key: &JobKey, turn: Option<Turn>) {
        match turn {
            Some(Turn::After(id)) => self.hold(key, Some(id)),
            Some(Turn::Any { is_promised: true, .. } | Turn::Of(_)) => self.hold(key, None),
            Some(Turn::Any { is_promised: false, .. }) | None => {}
        }
    }
}

impl Executors {
    fn lease_timeout(
        &self,
        to: Candidate,
        task: &Task,
        usual: Duration,
        now: Timestamp,
    ) -> Duration {
        let usual_ms = i64::try_from(usual.as_millis()).unwrap_or(i64::MAX);
        let policy = self.policies.of(task.kind);
        let ms = policy.timeout_ms(&self.book, to, task, usual_ms, now);
        Duration::from_millis(u64::try_from(ms).unwrap_or_default()).min(LEASE_MAX)
    }

    /// Grace period: no executor is presumed dead before `until`, and the unseen time does not count as silence.
    pub(crate) fn grant_grace(&mut self, unseen: Duration, until: Timestamp) {
        self.book.skip(unseen);
        self.grace_until = until;
    }
}

impl Cases {
    pub(super) fn activity_id(&self, key: &JobKey) -> Option<ActivityId> {
        let (schema, _) = self.instances.state(key.instance)?;
        Some(view::activity_id(schema, key.instance, &key.activity))
    }
}

impl Site {
    /// Dispatches waiting jobs to executors that have room and workers that ask.
    pub(crate) fn assign_tasks(&mut self, now: Timestamp) {
        self.fail_silent(now);
        for JobKey { instance, .. } in self.jobs.take_unleased() {
            self.follow_plan(instance, now);
        }
        self.note_occupied(now);
        let free = self.executors.find_room(now);
        self.unhold_promised(&free);
        let Executors { distances, registry, .. } = &mut self.executors;
        distances.measure(registry, self.cluster.seat.as_ref());
        self.executors.plan_ahead(&self.jobs, &free, now);
        let mut calls = AT_ONCE;
        while self.dispatch_some(&mut calls, now) {}
    }

    /// At once, if a job waits that executors do and that was not offered to them yet: it came after the last dispatch,
    /// or too many were to be sent at a time.
    pub(crate) fn next_assignment(&self) -> Option<Timestamp> {
        let executors = &self.executors;
        let is_open = |(job, is_promised): (&Arc<str>, bool)| {
            executors.registry.offered(job).is_some_and(|kind| executors.is_open(kind, is_promised))
        };
        let is_due = executors.registry.len() > 0 && self.jobs.queued_of().any(is_open);
        is_due.then_some(self.clock.latest)
    }

    /// Dispatches to the requests that wait now, and to executors with at most `calls` calls. Returns whether further
    /// requests may be served.
    fn dispatch_some(&mut self, calls: &mut usize, now: Timestamp) -> bool {
        let mut polls = self.open_polls();
        let (is_asked, before) = (polls.room() > 0, self.jobs.queued());
        for _ in 0..*calls + polls.room() {
            let (executors, may_call) = (&self.executors, *calls > 0);
            // Promised jobs are not for workers as long as an executor does their type.
            let is_wanted = |job: &Arc<str>, is_promised: bool| {
                let kind = executors.registry.offered(job);
                let is_taken = kind.is_some_and(|kind| executors.is_open(kind, is_promised));
                may_call && is_taken || polls.wants(job) && (kind.is_none() || !is_promised)
            };
            let Some((job, key)) = self.jobs.next(is_wanted) else { break };
            let (job, key) = (job.clone(), key.clone());
            match self.executors.registry.offered(&job) {
                Some(kind) => self.dispatch_task((&job, kind), &key, (&mut polls, calls), now),
                None => self.give_to_worker(&job, &key, &mut polls, now),
            }
        }
        for (id, jobs) in polls.served() {
            self.waiting.take(id);
            self.answer(id, Ok(Answer::Jobs(jobs)));
        }
        is_asked && self.jobs.queued() < before
    }

    /// Gives a job of a type that no executor does to the worker that has waited longest.
    fn give_to_worker(
        &mut self,
        job: &Arc<str>,
        key: &JobKey,
        polls: &mut OpenPolls,
        now: Timestamp,
    ) {
        let Some((id, poll)) = polls.first(job, None) else { return };
        if let Some(job) = self.lease_out(job, key, poll.lease, now) {
            polls.give(id, job);
        }
    }

    /// Gives a job to an executor, or to a worker that waits, if one takes it.
    fn dispatch_task(
        &mut self,
        (job, kind): (&Arc<str>, KindId),
        key: &JobKey,
        (polls, calls): (&mut OpenPolls, &mut usize),
        now: Timestamp,
    ) {
        let Some((schema, state)) = self.cases.instances.state(key.instance) else {
            return self.close_job(key);
        };
        let Demanded { size, timeout, .. } = demanded(schema, state, &key.activity);
        let attempt = state.open_at(schema, key.activity.node).map_or(0, |open| open.attempts);
        let task = Task { kind, size, attempt };
        let bytes = match self.executors.distances.is_all_near() {
            true => 0.0,
            false => bytes_read(schema, state, &key.activity),
        };
        let workers = polls.workers(job);
        let turn = (*calls > 0).then(|| self.turn_of(key, &task, now));
        let executors = &mut self.executors;
        let chosen = executors.choose(key, (&task, bytes), &workers, turn.as_ref(), now);
        let Some((to, why)) = chosen else { return self.jobs.wait_for_turn(key, turn) };
        let Some((schema, state)) = self.cases.instances.state(key.instance) else { return };
        let takes = self.executors.takes(schema, state, key, (to.executor, &task));
        let poll = polls.first(job, Some(to.executor));
        let poll = poll.map(|(id, poll)| (id, poll.worker.clone(), poll.lease));
        let registered = self.executors.registry.get(to.executor).cloned();
        let (name, lease_for) = match (&poll, &registered) {
            (Some((_, worker, lease)), _) => (worker.clone(), *lease),
            (None, Some(registered)) => {
                let usual =
                    timeout.unwrap_or_else(|| USUAL.max(takes.defined.unwrap_or_default() * 2));
                let lease_timeout = self.executors.lease_timeout(to, &task, usual, now);
                (registered.name.clone(), lease_timeout)
            }
            (None, None) => return,
        };
        let here = self.cluster.seat.as_ref().map_or(ServerId::default(), |seat| seat.here);
        let Some((lease, until)) = self.jobs.take(key, lease_for, here, now) else { return };
        let Some(task_of) = self.cases.job(key, job.clone(), lease, until) else { return };
        self.note_assigned(key, (to, task), (lease, takes.ms()), now);
        self.begin_promised(key, now);
        if self.executors.policies.is_recorded(kind) {
            self.record_assignment(key, &name, (lease, &why), now);
        }
        match (poll, registered) {
            (Some((id, ..)), _) => polls.give(id, task_of),
            (None, Some(executor)) => {
                *calls -= 1;
                let (ask, why) = (Ask::Task(task_of), Some(why));
                self.out.push(Output::Call(Box::new(Call { executor, ask, why })));
            }
            (None, None) => {}
        }
    }

    /// Releases jobs held for executors that are free now; all held jobs if plans have changed.
    fn unhold_promised(&mut self, free: &[ExecutorId]) {
        if std::mem::take(&mut self.executors.have_plans_changed) {
            self.executors.full.retain(|_, full| *full == Full::ForAll);
            return self.jobs.unhold(None);
        }
        free.iter().for_each(|id| self.jobs.unhold(Some(*id)));
    }

    /// Notes an assignment.
    fn note_assigned(
        &mut self,
        key: &JobKey,
        (to, task): (Candidate, Task),
        (lease, takes_ms): (u64, i64),
        now: Timestamp,
    ) {
        let (executor, kind) = (to.executor, task.kind);
        let Executors { book, plan, assignments, rests, registry, .. } = &mut self.executors;
        let id = book.assigned(to, task, now);
        if self.jobs.is_promised(key) == Some(false) {
            plan.take(executor, kind);
        }
        let assignment = Assignment { lease, executor, kind, id, at: now, takes_ms };
        assignments.assign(key.clone(), assignment);
        rests.on_assigned(executor, kind, registry.rates(executor, kind), now);
    }

    /// Records an assignment and its reason in the history.
    fn record_assignment(
        &mut self,
        key: &JobKey,
        to: &Arc<str>,
        (lease, why): (u64, &Reason),
        now: Timestamp,
    ) {
        let (activity, to, why) = (key.activity.clone(), to.clone(), why.to_string());
        let command = Command::Assign(Box::new(Assigned { activity, to, lease, why }));
        let recorded = self.require_room().and_then(|()| self.command(key.instance, command, now));
        // A history without room for reasons has none for results either; the result will be refused.
        drop(recorded);
    }

    /// Leases have expired: executors have failed with their jobs, and workers may have forgotten theirs.
    pub(crate) fn on_leases_expired(&mut self, keys: Vec<JobKey>, now: Timestamp) {
        for key in keys {
            let Some(assignment) = self.executors.assignments.get(&key).copied() else {
                self.withdraw_if_suspended(&key);
                continue;
            };
            if self.executors.workers.knows(assignment.executor) {
                self.executors.on_worker_lease_expired(&key, now);
                self.withdraw_if_suspended(&key);
            } else {
                let waited = now.since(assignment.at).as_millis();
                let why = Why::Silent(format!("no answer within {waited} ms"));
                self.fail_attempt(&key, why, now);
            }
        }
    }

    /// Fails the attempts of executors that are presumed dead.
    fn fail_silent(&mut self, now: Timestamp) {
        let executors = &mut self.executors;
        if executors.silence_check_due > now || executors.assignments.is_empty() {
            return;
        }
        executors.silence_check_due = now.plus(SILENCE_CHECK_EVERY);
        // A half-open probe may be due by now.
        executors.invalidate_plan();
        executors.have_plans_changed = true;
        if now < executors.grace_until {
            return;
        }
        let is_lost = |assignment: &Assignment| {
            // A worker keeps its job for the lease it has asked for.
            if executors.workers.knows(assignment.executor) {
                return false;
            }
            // For a type that an executor has never done there is no limit for silence.
            let is_known =
                executors.book.seen(assignment.executor, assignment.kind).pace_ms.is_some();
            if !is_known || now.since(assignment.at) < SILENCE_MIN {
                return false;
            }
            let entry = executors.book.entry(assignment.id);
            entry.is_some_and(|entry| {
                executors.policies.of(assignment.kind).is_abandoned(&executors.book, entry, now)
            })
        };
        let lost = executors.assignments.iter().filter(|(_, assignment)| is_lost(assignment));
        for key in lost.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let why = Why::Silent("its executor has been silent for too long".to_owned());
            self.fail_attempt(&key, why, now);
        }
    }

    /// Records a failed attempt, and cancels it at the executor.
    pub(super) fn fail_attempt(&mut self, key: &JobKey, why: Why, now: Timestamp) {
        let Some((assignment, forgotten)) = self.executors.assignments.give_up(key) else { return };
        if let Some(forgotten) = forgotten {
            self.executors.book.withdrawn(forgotten, now);
        }
        let (error, retry) = match why {
            Why::Silent(error) => {
                self.executors.book.timed_out(assignment.id, now);
                (error, true)
            }
            Why::Failed { error, retry } => {
                self.executors.book.failed(assignment.id, now);
                (error, retry)
            }
        };
        let Some(registered) = self.executors.registry.get(assignment.executor).cloned() else {
            return;
        };
        if let Some(activity) = self.cases.activity_id(key) {
            self.call(&registered, Ask::Cancel(JobLease { activity, lease: assignment.lease }));
        }
        let by = Performer::Executor(registered.name.clone());
        let command = Command::Fail { activity: key.activity.clone(), by, error, retry };
        if let Err(refusal) =
            self.require_room().and_then(|()| self.command(key.instance, command, now))
        {
            self.out
                .push(Output::Notice { text: format!("an attempt is not recorded: {refusal}") });
            self.jobs.delay(key, now.plus(UNRECORDED_REST));
        }
        self.withdraw_if_suspended(key);
    }

    /// A job that is queued again is not given out while its case is suspended.
    pub(crate) fn withdraw_if_suspended(&mut self, key: &JobKey) {
        let state = self.cases.instances.state(key.instance);
        if state.is_some_and(|(_, state)| state.lifecycle() == Lifecycle::Suspended) {
            self.close_job(key);
        }
    }

    /// The job is done or withdrawn: its executor is told to cancel it.
    pub(crate) fn on_job_closed(&mut self, key: &JobKey) {
        self.executors.assignments.forget(key);
        let Some(assignment) = self.executors.assignments.take(key) else { return };
        self.executors.book.withdrawn(assignment.id, self.clock.latest);
        let registered = self.executors.registry.get(assignment.executor).cloned();
        if let (Some(registered), Some(activity)) = (registered, self.cases.activity_id(key)) {
            self.call(&registered, Ask::Cancel(JobLease { activity, lease: assignment.lease }));
        }
    }

    pub(super) fn call(&mut self, executor: &Arc<ExecutorRegistered>, ask: Ask) {
        let executor = executor.clone();
        self.out.push(Output::Call(Box::new(Call { executor, ask, why: None })));
    }
}
