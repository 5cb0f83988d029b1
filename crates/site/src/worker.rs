//! Work of programs: giving jobs out, taking results in.

use std::sync::Arc;
use std::time::Duration;

use legwork_engine::{self as engine, Command};
use legwork_model::event::Performer;
use legwork_model::id::{Activity, ActivityId, ServerId};
use legwork_model::time::Timestamp;

use crate::Site;
use crate::access::Caller;
use crate::answer::{Answer, Job};
use crate::control::{bounded, too_many_waiting};
use crate::demand::demanded;
use crate::input::{Activate, JobFailure, JobLease, JobResult, RequestId};
use crate::jobs::{JobKey, LeaseError};
use crate::refusal::{Kind, Refusal};
use crate::view;
use crate::waiting::Waiting;

/// The most jobs of one batch.
const BATCH_MAX: usize = 1_000;
const TYPES_MAX: usize = 100;
const LEASE_MIN: Duration = Duration::from_millis(100);
const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);

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
        // Served at the end of the batch of inputs, together with what the batch has brought up.
        let until = activate.wait_until.unwrap_or(now);
        if self.waiting.len() >= self.config.waiting_max {
            return self.answer(id, Err(too_many_waiting()));
        }
        self.waiting.park(id, until, Waiting::Jobs(activate));
    }

    pub(crate) fn serve_polls(&mut self, now: Timestamp) {
        for job in self.jobs.types_queued() {
            while self.jobs.has_queued(&job)
                && let Some(id) = self.waiting.poll_for(&job)
            {
                self.serve_poll(id, now);
            }
        }
    }

    /// Gives a request as many jobs as it wants and as there are.
    fn serve_poll(&mut self, id: RequestId, now: Timestamp) {
        let Some(Waiting::Jobs(activate)) = self.waiting.peek(id) else { return };
        let (types, max, lease) = (activate.types.clone(), activate.max, activate.lease);
        let here = self.seat.as_ref().map_or(ServerId::default(), |seat| seat.here);
        let mut jobs = Vec::new();
        while jobs.len() < max
            && let Some((job, key)) = self.jobs.next(|job| types.contains(job))
        {
            let (job, key) = (job.clone(), key.clone());
            let Some((lease, expires_at)) = self.jobs.take(&key, lease, here, now) else { break };
            jobs.extend(self.job(&key, job, lease, expires_at));
        }
        if !jobs.is_empty() {
            self.waiting.take(id);
            self.answer(id, Ok(Answer::Jobs(jobs)));
        }
    }

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
                let (activity, started) = self.leased(&job)?;
                let (schema, _) = self.activity(&job.activity)?;
                let outputs = engine::data::typed(&schema, activity.node, &data)
                    .map_err(|rejection| Refusal::from(&rejection))?;
                let command = Command::Complete {
                    activity,
                    by: Performer::Worker(worker.clone()),
                    started_at: started.unwrap_or(now),
                    outputs,
                    answer: None,
                    request: None,
                };
                self.command(job.activity.instance, command, now)
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
                let (activity, _) = self.leased(&job)?;
                let error = bounded(error, "error")?;
                let by = Performer::Worker(worker.clone());
                let command = Command::Fail { activity, by, error, retry };
                self.command(job.activity.instance, command, now)
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
                self.jobs
                    .give_back(&key, job.lease)
                    .map_err(|error| lease_refusal(error, &job.activity))
            })
            .collect();
        Ok(Answer::JobResults(results))
    }

    /// Jobs that nobody got. What is no longer leased like that is somebody else's.
    pub(crate) fn unheard(&mut self, jobs: &[JobLease]) {
        for job in jobs {
            if let Ok(key) = self.job_key(&job.activity) {
                let _ = self.jobs.give_back(&key, job.lease);
            }
        }
    }

    /// The activity of a job whose lease still counts, and when the work on it began.
    fn leased(&self, job: &JobLease) -> Result<(Activity, Option<Timestamp>), Refusal> {
        let key = self.job_key(&job.activity)?;
        let started = self
            .jobs
            .verify(&key, job.lease)
            .map_err(|error| lease_refusal(error, &job.activity))?;
        Ok((key.activity, started))
    }

    fn job_key(&self, id: &ActivityId) -> Result<JobKey, Refusal> {
        // An instance with open jobs is always in memory; without it the job is not open.
        let (_, activity) =
            self.activity(id).map_err(|_| lease_refusal(LeaseError::NotOpen, id))?;
        Ok(JobKey { instance: id.instance, activity })
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
