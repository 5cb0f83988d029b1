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
use legwork_schedule::{Candidate, ExecutorId, KindId, Reason, Task};

use super::asking::Asking;
use super::distance::bytes_read;
use super::given::Gift;
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

/// How long an executor may take for what it has begun, if nothing else is said.
const USUAL: Duration = Duration::from_secs(60);
/// The longest an assignment lasts.
const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);
/// How often silent executors are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A silence that is shorter is never too long.
const SILENCE_MIN: Duration = Duration::from_secs(5);
/// How long a job waits whose failed attempt could not be recorded.
const UNRECORDED_REST: Duration = Duration::from_secs(10);
/// So many tasks are given to executors at a time: one round of a driver sends them.
const AT_ONCE: usize = 1_024;

/// Why an attempt has failed.
pub(super) enum Why {
    /// Nothing was heard.
    Silent(String),
    /// The executor says so. Without `retry` it would always fail.
    Failed { error: String, retry: bool },
}

impl Jobs {
    /// No executor takes the job now. If it was promised it is held, so that others of its type need not wait for it.
    fn wait_for_turn(&mut self, key: &JobKey, turn: Option<Turn>) {
        match turn {
            Some(Turn::After(id)) => self.hold(key, Some(id)),
            Some(Turn::Any { is_promised: true, .. } | Turn::Of(_)) => self.hold(key, None),
            Some(Turn::Any { is_promised: false, .. }) | None => {}
        }
    }
}

impl Executors {
    fn patience(&self, to: Candidate, task: &Task, usual: Duration, now: Timestamp) -> Duration {
        let usual_ms = i64::try_from(usual.as_millis()).unwrap_or(i64::MAX);
        let policy = self.policies.of(task.kind);
        let ms = policy.timeout_ms(&self.book, to, task, usual_ms, now);
        Duration::from_millis(u64::try_from(ms).unwrap_or_default()).min(LEASE_MAX)
    }

    /// No executor is given up for silence before `until`, and the time that passed unseen is no executor's silence.
    pub(crate) fn listen_to_executors(&mut self, unseen: Duration, until: Timestamp) {
        self.book.skip(unseen);
        self.judges_from = until;
    }
}

impl Cases {
    pub(super) fn activity_id(&self, key: &JobKey) -> Option<ActivityId> {
        let (schema, _) = self.instances.state(key.instance)?;
        Some(view::activity_id(schema, key.instance, &key.activity))
    }
}

impl Site {
    /// Gives out what waits, as far as executors take more or workers ask for it.
    pub(crate) fn assign_tasks(&mut self, now: Timestamp) {
        self.give_up_silent(now);
        for JobKey { instance, .. } in self.jobs.take_unleased() {
            self.follow_plan(instance, now);
        }
        self.note_occupied(now);
        let free = self.executors.find_room(now);
        self.let_go_of_promised(&free);
        let Executors { distances, registry, .. } = &mut self.executors;
        distances.measure(registry, self.cluster.seat.as_ref());
        self.executors.plan_ahead(&self.jobs, &free, now);
        let mut calls = AT_ONCE;
        while self.give_out_some(&mut calls, now) {}
    }

    /// At once, if something waits that executors do and nobody has been asked about: it came up after tasks
    /// were given out, or too many were to be given at a time.
    pub(crate) fn next_assignment(&self) -> Option<Timestamp> {
        let executors = &self.executors;
        let is_open = |(job, is_promised): (&Arc<str>, bool)| {
            executors.registry.offered(job).is_some_and(|kind| executors.is_open(kind, is_promised))
        };
        let is_due = executors.registry.len() > 0 && self.jobs.queued_of().any(is_open);
        is_due.then_some(self.clock.latest)
    }

    /// Gives out to those that ask now, and to executors, with so many calls; whether others may be
    /// waiting for more.
    fn give_out_some(&mut self, calls: &mut usize, now: Timestamp) -> bool {
        let mut asking = self.asking();
        let (is_asked, before) = (asking.room() > 0, self.jobs.queued());
        for _ in 0..*calls + asking.room() {
            let (executors, may_call) = (&self.executors, *calls > 0);
            // Promised jobs are not for workers that ask, as long as an executor does them.
            let is_wanted = |job: &Arc<str>, is_promised: bool| {
                let kind = executors.registry.offered(job);
                let is_taken = kind.is_some_and(|kind| executors.is_open(kind, is_promised));
                may_call && is_taken || asking.wants(job) && (kind.is_none() || !is_promised)
            };
            let Some((job, key)) = self.jobs.next(is_wanted) else { break };
            let (job, key) = (job.clone(), key.clone());
            match self.executors.registry.offered(&job) {
                Some(kind) => self.give_out((&job, kind), &key, (&mut asking, calls), now),
                None => self.hand_over(&job, &key, &mut asking, now),
            }
        }
        for (id, jobs) in asking.served() {
            self.waiting.take(id);
            self.answer(id, Ok(Answer::Jobs(jobs)));
        }
        is_asked && self.jobs.queued() < before
    }

    /// Gives a job that no executor does to the worker that has asked for it first.
    fn hand_over(&mut self, job: &Arc<str>, key: &JobKey, asking: &mut Asking, now: Timestamp) {
        let Some((id, poll)) = asking.first(job, None) else { return };
        if let Some(job) = self.lease_out(job, key, poll.lease, now) {
            asking.give(id, job);
        }
    }

    /// Gives a job to an executor, or to a worker that asks, if one takes it.
    fn give_out(
        &mut self,
        (job, kind): (&Arc<str>, KindId),
        key: &JobKey,
        (asking, calls): (&mut Asking, &mut usize),
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
        let workers = asking.workers(job);
        let turn = (*calls > 0).then(|| self.turn_of(key, &task, now));
        let executors = &mut self.executors;
        let chosen = executors.choose(key, (&task, bytes), &workers, turn.as_ref(), now);
        let Some((to, why)) = chosen else { return self.jobs.wait_for_turn(key, turn) };
        let Some((schema, state)) = self.cases.instances.state(key.instance) else { return };
        let takes = self.executors.takes(schema, state, key, (to.executor, &task));
        let poll = asking.first(job, Some(to.executor));
        let poll = poll.map(|(id, poll)| (id, poll.worker.clone(), poll.lease));
        let registered = self.executors.registry.get(to.executor).cloned();
        let (name, lease_for) = match (&poll, &registered) {
            (Some((_, worker, lease)), _) => (worker.clone(), *lease),
            (None, Some(registered)) => {
                let usual =
                    timeout.unwrap_or_else(|| USUAL.max(takes.said.unwrap_or_default() * 2));
                let patience = self.executors.patience(to, &task, usual, now);
                (registered.name.clone(), patience)
            }
            (None, None) => return,
        };
        let here = self.cluster.seat.as_ref().map_or(ServerId::default(), |seat| seat.here);
        let Some((lease, until)) = self.jobs.take(key, lease_for, here, now) else { return };
        let Some(task_of) = self.cases.job(key, job.clone(), lease, until) else { return };
        self.note_given(key, (to, task), (lease, takes.ms()), now);
        self.begin_promised(key, now);
        if self.executors.policies.is_recorded(kind) {
            self.record_assignment(key, &name, (lease, &why), now);
        }
        match (poll, registered) {
            (Some((id, ..)), _) => asking.give(id, task_of),
            (None, Some(executor)) => {
                *calls -= 1;
                let (ask, why) = (Ask::Task(task_of), Some(why));
                self.out.push(Output::Call(Box::new(Call { executor, ask, why })));
            }
            (None, None) => {}
        }
    }

    /// Lets go of jobs that were held for the executors that are free now; of all when plans have changed.
    fn let_go_of_promised(&mut self, free: &[ExecutorId]) {
        if std::mem::take(&mut self.executors.has_other_plans) {
            self.executors.full.retain(|_, full| *full == Full::ForAll);
            return self.jobs.unhold(None);
        }
        free.iter().for_each(|id| self.jobs.unhold(Some(*id)));
    }

    /// Notes an assignment.
    fn note_given(
        &mut self,
        key: &JobKey,
        (to, task): (Candidate, Task),
        (lease, takes_ms): (u64, i64),
        now: Timestamp,
    ) {
        let (executor, kind) = (to.executor, task.kind);
        let Executors { book, plan, given, rests, registry, .. } = &mut self.executors;
        let assignment = book.assigned(to, task, now);
        if self.jobs.is_promised(key) == Some(false) {
            plan.take(executor, kind);
        }
        let gift = Gift { lease, executor, kind, assignment, at: now, takes_ms };
        given.give(key.clone(), gift);
        rests.gave(executor, kind, registry.rates(executor, kind), now);
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
        // A history without room for reasons has none for results either, and that is refused then.
        drop(recorded);
    }

    /// Jobs whose leases have run out: executors have failed with theirs, workers may have forgotten them.
    pub(crate) fn ran_out(&mut self, keys: Vec<JobKey>, now: Timestamp) {
        for key in keys {
            let Some(gift) = self.executors.given.get(&key).copied() else {
                self.withdraw_if_suspended(&key);
                continue;
            };
            if self.executors.workers.knows(gift.executor) {
                self.executors.worker_ran_out(&key, now);
                self.withdraw_if_suspended(&key);
            } else {
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
        // A half-open probe may be due by now.
        executors.reconsider();
        executors.has_other_plans = true;
        if now < executors.judges_from {
            return;
        }
        let is_lost = |gift: &Gift| {
            // A worker has what it took for as long as it asked for.
            if executors.workers.knows(gift.executor) {
                return false;
            }
            // How long is too long is not known of a type that it has never done.
            let is_known = executors.book.seen(gift.executor, gift.kind).pace_ms.is_some();
            if !is_known || now.since(gift.at) < SILENCE_MIN {
                return false;
            }
            let entry = executors.book.entry(gift.assignment);
            entry.is_some_and(|entry| {
                executors.policies.of(gift.kind).is_abandoned(&executors.book, entry, now)
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
        if let Some(activity) = self.cases.activity_id(key) {
            self.call(&registered, Ask::Cancel(JobLease { activity, lease: gift.lease }));
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

    /// A job that was taken back is not given out while its case is suspended.
    pub(crate) fn withdraw_if_suspended(&mut self, key: &JobKey) {
        let state = self.cases.instances.state(key.instance);
        if state.is_some_and(|(_, state)| state.lifecycle() == Lifecycle::Suspended) {
            self.close_job(key);
        }
    }

    /// The job is done or withdrawn: the executor that has it is told to cancel it.
    pub(crate) fn job_closed(&mut self, key: &JobKey) {
        self.executors.given.forget(key);
        let Some(gift) = self.executors.given.take(key) else { return };
        self.executors.book.withdrawn(gift.assignment, self.clock.latest);
        let registered = self.executors.registry.get(gift.executor).cloned();
        if let (Some(registered), Some(activity)) = (registered, self.cases.activity_id(key)) {
            self.call(&registered, Ask::Cancel(JobLease { activity, lease: gift.lease }));
        }
    }

    pub(super) fn call(&mut self, executor: &Arc<ExecutorRegistered>, ask: Ask) {
        let executor = executor.clone();
        self.out.push(Output::Call(Box::new(Call { executor, ask, why: None })));
    }
}
