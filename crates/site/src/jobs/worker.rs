//! Work of programs: giving jobs to workers and accepting results.

use std::sync::Arc;
use std::time::Duration;

use legwork_engine::{self as engine, Command};
use legwork_model::event::Performer;
use legwork_model::id::{ActivityId, ServerId};
use legwork_model::time::Timestamp;

use crate::Site;
use crate::answer::{Answer, Job};
use crate::cases::Cases;
use crate::cases::control::{bounded, too_many_waiting};
use crate::cases::view;
use crate::catalog::access::Caller;
use crate::input::{Activate, JobFailure, JobLease, JobResult, RequestId};
use crate::jobs::demand::demanded;
use crate::jobs::{JobKey, LeaseError};
use crate::refusal::{Kind, Refusal};
use crate::waiting::Waiting;

/// The most jobs of one batch.
const BATCH_MAX: usize = 1_000;
const TYPES_MAX: usize = 100;
const LEASE_MIN: Duration = Duration::from_millis(100);
const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);

impl Cases {
    pub(crate) fn job(
        &self,
        key: &JobKey,
        job: Arc<str>,
        lease: u64,
        expires_at: Timestamp,
    ) -> Option<Job> {
        let (schema, state) = self.instances.state(key.instance)?;
        Some(Job {
            activity: view::activity_id(schema, key.instance, &key.activity),
            job,
            process: schema.process.clone(),
            lease,
            expires_at,
            attempt: state.open_at(schema, key.activity.node).map_or(0, |open| open.attempts) + 1,
            size: demanded(schema, state, &key.activity).size,
            inputs: view::named(schema, state.inputs(schema, &key.activity)),
        })
    }
}

impl Site {
    pub(crate) fn activate(
        &mut self,
        id: RequestId,
        caller: &Caller,
        activate: Activate,
        now: Timestamp,
    ) {
        if let Err(refusal) = check_poll(caller, &activate) {
            return self.answer(id, Err(refusal));
        }
        let Activate { worker, types, .. } = &activate;
        let mut is_first = false;
        for job in types {
            is_first |= self.executors.recent_workers.on_poll(job, worker, now);
        }
        if is_first {
            self.planning.hurry_revoked(now);
        }
        // Served at the end of the batch, together with the jobs the batch has opened.
        let until = activate.wait_until.unwrap_or(now);
        if self.waiting.len() >= self.config.waiting_max {
            return self.answer(id, Err(too_many_waiting()));
        }
        self.waiting.park(id, until, Waiting::Jobs(activate));
    }

    /// Serves requests for types that no executor does; for others see `assign_tasks`.
    pub(crate) fn serve_polls(&mut self, now: Timestamp) {
        for job in self.jobs.types_queued() {
            while self.jobs.has_queued(&job)
                && let Some(id) = self.waiting.poll_for(&job)
                && !self.competes(id)
            {
                self.serve_poll(id, now);
            }
        }
    }

    /// Whether executors do some of the types a request waits for.
    fn competes(&self, id: RequestId) -> bool {
        let Some(Waiting::Jobs(Activate { types, .. })) = self.waiting.peek(id) else {
            return false;
        };
        self.executors.offers_any(types)
    }

    /// Gives a request as many jobs as it wants and as there are.
    fn serve_poll(&mut self, id: RequestId, now: Timestamp) {
        let Some(Waiting::Jobs(activate)) = self.waiting.peek(id) else { return };
        let (types, max, lease) = (activate.types.clone(), activate.max, activate.lease);
        let mut jobs = Vec::new();
        while jobs.len() < max
            && let Some((job, key)) = self.jobs.next(|job, _| types.contains(job))
        {
            let (job, key) = (job.clone(), key.clone());
            let Some(job) = self.lease_out(&job, &key, lease, now) else { break };
            jobs.push(job);
        }
        if !jobs.is_empty() {
            self.waiting.take(id);
            self.answer(id, Ok(Answer::Jobs(jobs)));
        }
    }

    /// Leases a queued job to a worker.
    pub(crate) fn lease_out(
        &mut self,
        job: &Arc<str>,
        key: &JobKey,
        lease: Duration,
        now: Timestamp,
    ) -> Option<Job> {
        let here = self.cluster.seat.as_ref().map_or(ServerId::default(), |seat| seat.here);
        let (lease, expires_at) = self.jobs.take(key, lease, here, now)?;
        self.begin_promised(key, now);
        self.cases.job(key, job.clone(), lease, expires_at)
    }

    pub(crate) fn complete_jobs(
        &mut self,
        caller: &Caller,
        worker: &Arc<str>,
        jobs: Vec<JobResult>,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_worker()?;
        check_batch(jobs.len())?;
        let results = jobs
            .into_iter()
            .map(|JobResult { job, data }| {
                self.require_room()?;
                let leased = self.leased(&job);
                if leased.is_err() {
                    // The result is not accepted, but shows the speed of the worker.
                    self.executors.on_worker_done(None, job.lease, now);
                }
                let (key, started) = leased?;
                let activity = key.activity.clone();
                let (schema, _) = self.cases.activity(&job.activity)?;
                let outputs = engine::data::typed(&schema, activity.node, &data)
                    .map_err(|rejection| Refusal::from(&rejection))?;
                let command = Command::Complete {
                    activity,
                    by: Performer::Worker(worker.clone()),
                    started_at: started.unwrap_or(now),
                    outputs,
                    answer: None,
                    request: None,
                    channel: None,
                };
                let assignment = self.executors.take_from_worker(&key, job.lease);
                let done = self.command(job.activity.instance, command, now);
                match &done {
                    Ok(()) => self.executors.on_worker_done(assignment, job.lease, now),
                    Err(_) => self.put_back(&key, assignment, now),
                }
                done
            })
            .collect();
        Ok(Answer::JobResults(results))
    }

    pub(crate) fn fail_jobs(
        &mut self,
        caller: &Caller,
        worker: &Arc<str>,
        jobs: Vec<JobFailure>,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_worker()?;
        check_batch(jobs.len())?;
        let results = jobs
            .into_iter()
            .map(|JobFailure { job, error, retry }| {
                self.require_room()?;
                let (key, _) = self.leased(&job)?;
                let error = bounded(error, "error")?;
                let by = Performer::Worker(worker.clone());
                let command = Command::Fail { activity: key.activity.clone(), by, error, retry };
                let assignment = self.executors.take_from_worker(&key, job.lease);
                let done = self.command(job.activity.instance, command, now);
                if done.is_ok() {
                    self.withdraw_if_suspended(&key);
                }
                let is_open = self.jobs.contains(&key);
                match &done {
                    Ok(()) => {
                        self.executors.on_worker_failed(
                            (&key, job.lease),
                            assignment,
                            is_open,
                            now,
                        );
                    }
                    Err(_) => self.put_back(&key, assignment, now),
                }
                done
            })
            .collect();
        Ok(Answer::JobResults(results))
    }

    pub(crate) fn extend_jobs(
        &mut self,
        caller: &Caller,
        jobs: &[JobLease],
        lease: Duration,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_worker()?;
        check_batch(jobs.len())?;
        check_lease(lease)?;
        let results = jobs
            .iter()
            .map(|job| {
                let key = self.job_key(&job.activity)?;
                self.jobs
                    .extend(&key, job.lease, lease, now)
                    .map_err(|error| lease_refusal(error, &job.activity))
            })
            .collect();
        Ok(Answer::JobResults(results))
    }

    pub(crate) fn return_jobs(
        &mut self,
        caller: &Caller,
        jobs: &[JobLease],
    ) -> Result<Answer, Refusal> {
        caller.require_worker()?;
        check_batch(jobs.len())?;
        let results = jobs
            .iter()
            .map(|job| {
                let key = self.job_key(&job.activity)?;
                self.give_back(&key, job.lease).map_err(|error| lease_refusal(error, &job.activity))
            })
            .collect();
        Ok(Answer::JobResults(results))
    }

    /// Jobs in an answer that did not reach the worker. A job with another lease by now is left alone.
    pub(crate) fn on_unheard(&mut self, jobs: &[JobLease]) {
        for job in jobs {
            if let Ok(key) = self.job_key(&job.activity) {
                let _ = self.give_back(&key, job.lease);
            }
        }
    }

    fn give_back(&mut self, key: &JobKey, lease: u64) -> Result<(), LeaseError> {
        self.jobs.give_back(key, lease)?;
        self.executors.on_worker_returned(key, lease, self.clock.latest);
        self.withdraw_if_suspended(key);
        Ok(())
    }

    /// A job whose lease is valid, and when the work on it began.
    fn leased(&self, job: &JobLease) -> Result<(JobKey, Option<Timestamp>), Refusal> {
        let key = self.job_key(&job.activity)?;
        let started = self
            .jobs
            .verify(&key, job.lease)
            .map_err(|error| lease_refusal(error, &job.activity))?;
        Ok((key, started))
    }

    fn job_key(&self, id: &ActivityId) -> Result<JobKey, Refusal> {
        // An instance with open jobs is always in memory; without it the job is not open.
        let (_, activity) =
            self.cases.activity(id).map_err(|_| lease_refusal(LeaseError::NotOpen, id))?;
        let key = JobKey { instance: id.instance, activity };
        // A job given to an executor is reported by that executor.
        match self.executors.is_with_executor(&key) {
            true => Err(lease_refusal(LeaseError::Lost, id)),
            false => Ok(key),
        }
    }
}

fn check_poll(caller: &Caller, activate: &Activate) -> Result<(), Refusal> {
    caller.require_worker()?;
    check_batch(activate.max)?;
    check_lease(activate.lease)?;
    if activate.types.is_empty() || activate.types.len() > TYPES_MAX {
        let message = format!("name 1 to {TYPES_MAX} types of jobs to wait for");
        return Err(Refusal::new(Kind::Invalid, "bad_job_types", message));
    }
    Ok(())
}

fn check_lease(lease: Duration) -> Result<(), Refusal> {
    if (LEASE_MIN..=LEASE_MAX).contains(&lease) {
        return Ok(());
    }
    let message = format!(
        "a lease lasts {} to {} ms, not {}; take a fitting one and extend it while you work",
        LEASE_MIN.as_millis(),
        LEASE_MAX.as_millis(),
        lease.as_millis()
    );
    Err(Refusal::new(Kind::Invalid, "bad_lease", message))
}

fn check_batch(len: usize) -> Result<(), Refusal> {
    if (1..=BATCH_MAX).contains(&len) {
        return Ok(());
    }
    let message = format!("a batch has 1 to {BATCH_MAX} jobs, not {len}");
    Err(Refusal::new(Kind::Invalid, "bad_batch_size", message))
}

fn lease_refusal(error: LeaseError, id: &ActivityId) -> Refusal {
    match error {
        LeaseError::NotOpen => Refusal::new(
            Kind::Conflict,
            "job_not_open",
            format!("{id} is not open: it was completed, withdrawn, or never there; drop it"),
        ),
        LeaseError::Lost => Refusal::new(
            Kind::Conflict,
            "lease_lost",
            format!("the lease of {id} ran out and the job was offered again; drop it"),
        ),
    }
}
