//! Giving tasks out: which executor, for how long, and what becomes of those that are not answered.
//!
//! Invariant: a job that an executor has is leased like one that a worker has. When its time is over,
//! or nothing is expected of its executor any more, the attempt has failed and the history says so.

use std::sync::Arc;
use std::time::Duration;

use legwork_engine::{Command, Lifecycle};
use legwork_model::event::{Assigned, ExecutorRegistered, Performer};
use legwork_model::id::{ActivityId, ServerId};
use legwork_model::time::Timestamp;
use legwork_schedule::{Candidate, ExecutorId, Reason, Task};

use super::Executors;
use super::distance::bytes_read;
use super::given::Gift;
use crate::Site;
use crate::demand::{Demanded, demanded};
use crate::input::JobLease;
use crate::jobs::JobKey;
use crate::output::{Ask, Call, Output};
use crate::view;

/// How long an executor may take for what it has begun, if nothing else is said.
const USUAL: Duration = Duration::from_secs(60);
/// The longest an assignment lasts.
const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);
/// How often it is looked who is given up.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Before that nobody is given up for being silent.
const SILENCE_MIN: Duration = Duration::from_secs(5);
/// How long a job waits whose failed attempt could not be recorded.
const UNRECORDED_REST: Duration = Duration::from_secs(10);
/// So many tasks are given out at a time: one round of a driver sends them.
const AT_ONCE: usize = 1_024;

/// Why an attempt has failed.
pub(super) enum Why {
    /// Nothing was heard.
    Silent(String),
    /// The executor says so. Without `retry` it would always fail.
    Failed { error: String, retry: bool },
}

impl Site {
    /// Gives out what waits, as far as executors take more.
    pub(crate) fn assign_tasks(&mut self, now: Timestamp) {
        self.give_up_silent(now);
        self.executors.find_room(now);
        let Executors { distances, registry, .. } = &mut self.executors;
        distances.measure(registry, self.seat.as_ref());
        for _ in 0..AT_ONCE {
            let executors = &self.executors;
            let is_wanted = |job: &Arc<str>| {
                executors.registry.kind(job).is_some_and(|kind| !executors.full.contains(&kind))
            };
            let Some((job, key)) = self.jobs.next(is_wanted) else { break };
            let (job, key) = (job.clone(), key.clone());
            self.give_out(&job, &key, now);
        }
        self.say_verdicts(now);
    }

    /// Gives out a job, if anybody takes it.
    fn give_out(&mut self, job: &Arc<str>, key: &JobKey, now: Timestamp) {
        let Some(kind) = self.executors.registry.kind(job) else { return };
        let Some((schema, state)) = self.instances.state(key.instance) else {
            return self.close_job(key);
        };
        let Demanded { size, timeout, .. } = demanded(schema, state, &key.activity);
        let attempt = state.open_at(schema, key.activity.node).map_or(0, |open| open.attempts);
        let task = Task { kind, size, attempt };
        let bytes = match self.executors.distances.is_all_near() {
            true => 0.0,
            false => bytes_read(schema, state, &key.activity),
        };
        let Some((to, why)) = self.choose(key, (&task, bytes), now) else {
            self.executors.full.insert(kind);
            return;
        };
        let executor = to.executor;
        let Some(registered) = self.executors.registry.get(executor).cloned() else { return };
        let patience = self.patience(to, &task, timeout.unwrap_or(USUAL));
        let here = self.seat.as_ref().map_or(ServerId::default(), |seat| seat.here);
        let Some((lease, until)) = self.jobs.take(key, patience, here, now) else { return };
        let Some(task_of) = self.job(key, job.clone(), lease, until) else { return };
        let assignment = self.executors.book.assigned(to, task, now);
        let Executors { given, rests, registry, .. } = &mut self.executors;
        given.give(key.clone(), Gift { lease, executor, kind, assignment, at: now });
        rests.gave(executor, kind, registry.rates(executor, kind), now);
        if self.executors.policies.is_recorded(kind) {
            self.record_assignment(key, &registered.name, (lease, &why), now);
        }
        self.out.push(Output::Call(Box::new(Call {
            executor: registered,
            ask: Ask::Task(task_of),
            why: Some(why),
        })));
    }

    /// Takes down in the history who was given what, and why.
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
        // Whoever has no room for reasons has none for results either, and says so then.
        drop(recorded);
    }

    /// Who gets it: one that has not had it yet, if there is one.
    fn choose(
        &mut self,
        key: &JobKey,
        (task, bytes): (&Task, f64),
        now: Timestamp,
    ) -> Option<(Candidate, Reason)> {
        let executors = &mut self.executors;
        let all = executors.registry.offering(task.kind);
        // Not what the book says: there an executor still has what was cancelled, and may never have
        // got it.
        let has_room = |id: &ExecutorId| {
            let (of_kind, in_all) = executors.registry.room(*id, task.kind);
            executors.given.count(*id, task.kind) < of_kind
                && executors.given.total(*id) < in_all
                && !executors.rests.is_resting(*id, task.kind)
        };
        let is_doubted = |id: &ExecutorId| {
            executors.policies.of(task.kind).is_doubted(&executors.book, *id, task.kind, now)
        };
        let (free, full): (Vec<ExecutorId>, Vec<ExecutorId>) =
            all.iter().copied().partition(has_room);
        // What waits for somebody who will do it is not wasted on those who will not.
        if free.iter().all(is_doubted) && !full.iter().all(is_doubted) {
            return None;
        }
        let is_new = |id: &ExecutorId| !executors.given.has_tried(key, *id);
        // When all have had it, it begins anew.
        let has_new = free.iter().any(is_new);
        let among = free.into_iter().filter(|id| is_new(id) || !has_new);
        let among: Vec<Candidate> =
            among.map(|id| executors.distances.candidate(id, bytes)).collect();
        let policy = executors.policies.of_mut(task.kind);
        let chosen = policy.choose(&executors.book, task, &among, now)?;
        let name = executors.policies.name(task.kind);
        let policy = (name, executors.policies.of(task.kind));
        let to = executors.distances.candidate(chosen, bytes);
        Some((to, Reason::of(&executors.book, policy, (task, to), among.len(), now)))
    }

    fn patience(&self, to: Candidate, task: &Task, usual: Duration) -> Duration {
        let usual_ms = i64::try_from(usual.as_millis()).unwrap_or(i64::MAX);
        let executors = &self.executors;
        let ms = executors.policies.of(task.kind).patience_ms(&executors.book, to, task, usual_ms);
        Duration::from_millis(u64::try_from(ms).unwrap_or_default()).min(LEASE_MAX)
    }

    /// Jobs whose leases have run out: executors have failed with theirs.
    pub(crate) fn ran_out(&mut self, keys: Vec<JobKey>, now: Timestamp) {
        for key in keys {
            if let Some(gift) = self.executors.given.get(&key).copied() {
                let waited = now.since(gift.at).as_millis();
                let why = Why::Silent(format!("no answer within {waited} ms"));
                self.fail_attempt(&key, why, now);
            }
        }
    }

    /// Gives up what was given to those of whom nothing is expected any more.
    fn give_up_silent(&mut self, now: Timestamp) {
        let executors = &mut self.executors;
        if executors.look_due > now || executors.given.is_empty() {
            return;
        }
        executors.look_due = now.plus(LOOK_EVERY);
        // Whoever was doubted may be tried by now.
        executors.full.clear();
        let is_lost = |gift: &Gift| {
            // How long is too long is not known of a type that it has never done.
            let is_known = executors.book.seen(gift.executor, gift.kind).pace_ms.is_some();
            if !is_known || now.since(gift.at) < SILENCE_MIN {
                return false;
            }
            let entry = executors.book.entry(gift.assignment);
            entry.is_some_and(|entry| {
                executors.policies.of(gift.kind).is_given_up(&executors.book, entry, now)
            })
        };
        let lost = executors.given.iter().filter(|(_, gift)| is_lost(gift));
        for key in lost.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let why = Why::Silent("its executor has been silent for too long".to_owned());
            self.fail_attempt(&key, why, now);
        }
    }

    /// An attempt has failed; what is left of it is taken back.
    pub(super) fn fail_attempt(&mut self, key: &JobKey, why: Why, now: Timestamp) {
        let Some((gift, forgotten)) = self.executors.given.give_up(key) else { return };
        if let Some(forgotten) = forgotten {
            self.executors.book.withdrawn(forgotten, now);
        }
        let (error, retry) = match why {
            Why::Silent(error) => {
                self.executors.book.timed_out(gift.assignment, now);
                (error, true)
            }
            Why::Failed { error, retry } => {
                self.executors.book.failed(gift.assignment, now);
                (error, retry)
            }
        };
        let Some(registered) = self.executors.registry.get(gift.executor).cloned() else { return };
        if let Some(activity) = self.activity_id(key) {
            self.call(&registered, Ask::Cancel(JobLease { activity, lease: gift.lease }));
        }
        let by = Performer::Worker(registered.name.clone());
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

    /// What nobody has any more is offered to nobody while its case is suspended.
    pub(super) fn withdraw_if_suspended(&mut self, key: &JobKey) {
        let state = self.instances.state(key.instance);
        if state.is_some_and(|(_, state)| state.lifecycle() == Lifecycle::Suspended) {
            self.close_job(key);
        }
    }

    /// The job is done or withdrawn: whoever has it need not go on.
    pub(crate) fn job_closed(&mut self, key: &JobKey) {
        self.executors.given.forget(key);
        let Some(gift) = self.executors.given.take(key) else { return };
        self.executors.book.withdrawn(gift.assignment, self.latest);
        let registered = self.executors.registry.get(gift.executor).cloned();
        if let (Some(registered), Some(activity)) = (registered, self.activity_id(key)) {
            self.call(&registered, Ask::Cancel(JobLease { activity, lease: gift.lease }));
        }
    }

    pub(super) fn activity_id(&self, key: &JobKey) -> Option<ActivityId> {
        let (schema, _) = self.instances.state(key.instance)?;
        Some(view::activity_id(schema, key.instance, &key.activity))
    }

    pub(super) fn call(&mut self, executor: &Arc<ExecutorRegistered>, ask: Ask) {
        let executor = executor.clone();
        self.out.push(Output::Call(Box::new(Call { executor, ask, why: None })));
    }
}
