//! A site that gives its work to executors, and what they are told, in short.

use std::time::Duration;

use legwork_model::event::{ExecutorType, Secret};
use legwork_model::id::InstanceId;
use legwork_site::*;
use serde_json::json;

use super::{Harness, data_of, start};

pub(crate) const PACK: &str = "
process: loan
data: { amount: int, packed: string }
start: [amount]
result: [packed]
steps:
  - step: pack
    job: pack
    retry: { times: 3, pause: 1s }
    reads: [amount]
    writes: [packed]
";
pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn registration(name: &str) -> RegisterExecutor {
    RegisterExecutor {
        name: name.into(),
        url: format!("http://{name}.example:7001").into(),
        secret: Secret("s".repeat(32)),
        types: vec![ExecutorType { job: "pack".into(), limit: None, rate: None }],
        rate: None,
        weight: None,
        limit: 2,
        at_once: None,
        regularly: Vec::new(),
        reserve: None,
        domain: None,
        verdicts: true,
        holds: None,
    }
}

pub(crate) struct Depot {
    pub(crate) site: Harness,
}

impl Depot {
    pub(crate) fn with(executors: &[&str]) -> Self {
        Self::at(Harness::new(), PACK, executors)
    }

    /// At this site, with this process.
    pub(crate) fn at(mut site: Harness, source: &str, executors: &[&str]) -> Self {
        site.ask(Request::Deploy { source: source.to_owned() }).unwrap();
        for name in executors {
            site.ask(Request::Executor(Concern::Register(registration(name)))).unwrap();
        }
        Self { site }
    }

    pub(crate) fn start(&mut self, number: u128) -> InstanceId {
        self.site.ask(start(InstanceId(number), json!({ "amount": 3 }), None)).unwrap();
        InstanceId(number)
    }

    /// What was said since this was asked last, in short, and the tasks that were given.
    pub(crate) fn said(&mut self) -> (Vec<String>, Vec<(String, JobLease)>) {
        let (mut said, mut tasks) = (Vec::new(), Vec::new());
        for Call { executor, ask, .. } in std::mem::take(&mut self.site.calls) {
            let name = &executor.name;
            match ask {
                Ask::Task(job) => {
                    said.push(format!("{name} do {} attempt {}", job.activity.step, job.attempt));
                    let task = JobLease { activity: job.activity, lease: job.lease };
                    tasks.push((name.to_string(), task));
                }
                Ask::Verdict { counts: true, .. } => said.push(format!("{name} ack")),
                Ask::Verdict { counts: false, .. } => said.push(format!("{name} nack")),
                Ask::Cancel(_) => said.push(format!("{name} cancel")),
            }
        }
        (said, tasks)
    }

    /// The task that was given out last.
    pub(crate) fn task(&mut self) -> (String, JobLease) {
        self.said().1.pop().unwrap()
    }

    pub(crate) fn speak(&mut self, name: &str, request: Request) -> Result<Answer, Refusal> {
        self.site.credential = Credential::Executor(name.into());
        let answer = self.site.ask(request);
        self.site.credential = Credential::None;
        answer
    }

    pub(crate) fn report(&mut self, name: &str, task: &JobLease, outcome: Outcome) {
        self.report_with(name, task, outcome, None);
    }

    /// The executor says also which tasks it has.
    pub(crate) fn report_with(
        &mut self,
        name: &str,
        task: &JobLease,
        outcome: Outcome,
        holds: Option<Vec<JobLease>>,
    ) {
        let (executor, task) = (name.into(), task.clone());
        self.speak(
            name,
            Request::Executor(Concern::Report(TaskReport {
                executor,
                task,
                outcome,
                feedback: Feedback::default(),
                holds,
            })),
        )
        .unwrap();
    }

    pub(crate) fn done(&mut self, name: &str, task: &JobLease) {
        self.report(name, task, Outcome::Done(data_of(json!({ "packed": name }))));
    }

    pub(crate) fn confirm(&mut self, name: &str, task: &JobLease) {
        let (executor, task) = (name.into(), task.clone());
        self.speak(name, Request::Executor(Concern::Confirm { executor, task })).unwrap();
    }

    pub(crate) fn packed(&mut self, instance: InstanceId) -> Option<String> {
        match self.site.ask(Request::Show { instance, wait_until: None }).unwrap() {
            Answer::Instance(view) if view.info.lifecycle == Lifecycle::Completed => {
                Some(format!("{:?}", view.data))
            }
            Answer::Instance(_) => None,
            other => panic!("{other:?}"),
        }
    }
}
