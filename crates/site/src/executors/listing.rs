//! The list of executors as seen by this server, followed by the workers that do their types.

use std::sync::Arc;

use legwork_model::event::ExecutorRegistered;
use legwork_schedule::{ExecutorId, KindId};

use crate::Site;
use crate::answer::{Answer, ExecutorInfo, ExecutorTypeInfo, WORKER_CURSOR};
use crate::catalog::access::Caller;
use crate::executors::Executors;
use crate::page;
use crate::refusal::Refusal;

impl Executors {
    fn type_info(&self, id: ExecutorId, job: &Arc<str>, kind: KindId) -> ExecutorTypeInfo {
        let seen = self.book.seen(id, kind);
        ExecutorTypeInfo {
            job: job.clone(),
            limit: None,
            outstanding: self.assignments.count(id, kind),
            pace_ms: seen.pace_ms,
            answers: seen.answers,
            timeouts: seen.timeouts,
            failures: seen.failures,
            is_failing: seen.is_failing,
        }
    }
}

impl Site {
    /// Executors by name, then workers by name.
    pub(super) fn list_executors(
        &self,
        caller: &Caller,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Answer, Refusal> {
        caller.require_any()?;
        let worker = after.and_then(|after| after.strip_prefix(WORKER_CURSOR));
        let executors =
            self.executors.registry.all().filter(|(_, one)| {
                worker.is_none() && after.is_none_or(|after| &*one.name > after)
            });
        let executors = executors.map(|(id, one)| self.executor_info(id, one));
        let workers = self.executors.workers.after(worker);
        let workers = workers.filter_map(|(id, name)| self.worker_info(id, name));
        let (executors, more) = page(executors.chain(workers), limit);
        Ok(Answer::Executors { executors, more })
    }

    pub(super) fn executor_info(
        &self,
        id: ExecutorId,
        one: &Arc<ExecutorRegistered>,
    ) -> ExecutorInfo {
        let types = one.types.iter().filter_map(|own| {
            let kind = self.executors.registry.kind(&own.job)?;
            let limit = Some(own.limit.unwrap_or(one.limit));
            Some(ExecutorTypeInfo { limit, ..self.executors.type_info(id, &own.job, kind) })
        });
        ExecutorInfo {
            name: one.name.clone(),
            registered: Some(one.clone()),
            types: types.collect(),
            resting_until: self.executors.rests.busy_until(id),
            is_silent: self.executors.book.is_silent(id, self.clock.latest),
            unconfirmed: self.executors.verdicts.count(&one.name),
        }
    }

    /// A worker, if it has ever had a job of a type that executors do.
    fn worker_info(&self, id: ExecutorId, name: &Arc<str>) -> Option<ExecutorInfo> {
        let all = self.executors.registry.types();
        let all = all.map(|(job, kind)| self.executors.type_info(id, job, kind));
        let had = all.filter(|seen| {
            u64::from(seen.outstanding) + seen.answers + seen.timeouts + seen.failures > 0
        });
        let types: Vec<ExecutorTypeInfo> = had.collect();
        (!types.is_empty()).then(|| ExecutorInfo {
            name: name.clone(),
            registered: None,
            types,
            resting_until: None,
            is_silent: self.executors.book.is_silent(id, self.clock.latest),
            unconfirmed: 0,
        })
    }
}
