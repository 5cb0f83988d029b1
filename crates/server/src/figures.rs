//! Metrics with a changing set of series: executors, and types of waiting jobs.
//!
//! Invariant: they are gathered per request and not kept, so that a removed executor leaves no series.
//! The answer is bounded, whatever the number of executors.

use std::sync::Arc;

use legwork_api::executors::{ExecutorCondition, ExecutorState, ExecutorTypeState};
use legwork_site::{Answer, Concern, Credential, Request};
use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, SharedString};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use crate::convert;
use crate::gate::Gate;

/// The most executors per server, first by name.
const EXECUTORS_MAX: usize = 1_000;
/// The most pairs of executor and type, each with all its series.
const TYPES_MAX: usize = 10_000;
/// Small enough not to delay the drive thread.
const PAGE: usize = 100;

const METADATA: Metadata<'static> = Metadata::new("legwork", Level::INFO, Some("legwork_server"));
const JOBS_WAITING: &str = "legwork_jobs_waiting";
const STATE: &str = "legwork_executor_state";
const UNCONFIRMED: &str = "legwork_executor_verdicts_unconfirmed";
const OUTSTANDING: &str = "legwork_executor_tasks_outstanding";
pub(crate) const PACE: &str = "legwork_executor_pace_seconds";
const ANSWERS: &str = "legwork_executor_answers_total";
const TIMEOUTS: &str = "legwork_executor_timeouts_total";
const FAILURES: &str = "legwork_executor_failures_total";

/// The series of one answer.
pub(crate) struct Figures {
    recorder: PrometheusRecorder,
}

impl Figures {
    pub(crate) fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        let text = SharedString::const_str;
        for (name, about) in [
            (JOBS_WAITING, "Jobs that wait for a worker or an executor, by type."),
            (STATE, "1 for the state that an executor is in."),
            (UNCONFIRMED, "Verdicts that an executor has not confirmed."),
            (OUTSTANDING, "Tasks that an executor has."),
            (PACE, "How long a task of size 1 takes an executor once begun, as learned."),
        ] {
            recorder.describe_gauge(KeyName::from_const_str(name), None, text(about));
        }
        for (name, about) in [
            (ANSWERS, "Tasks that an executor has done."),
            (TIMEOUTS, "Tasks that an executor was given and did not answer in time."),
            (FAILURES, "Tasks that failed at an executor."),
        ] {
            recorder.describe_counter(KeyName::from_const_str(name), None, text(about));
        }
        Self { recorder }
    }

    /// Gathers the series of one server; `own` are the labels that name it. Unanswered requests are left
    /// out.
    pub(crate) async fn gather(&self, gate: &Gate, own: &[Label]) {
        let (mut after, mut executors_left, mut types_left) = (None, EXECUTORS_MAX, TYPES_MAX);
        while executors_left > 0 && types_left > 0 {
            let limit = executors_left.min(PAGE);
            let asked = Request::Executor(Concern::Figures { after, limit });
            let answer = gate.ask(Credential::Anybody, asked).await;
            let Ok(Answer::Figures { executors, more, waiting }) = answer else { return };
            for (job, count) in waiting {
                self.gauge(JOBS_WAITING, &[own, &[of_type(&job)]], count as f64);
            }
            for info in &executors {
                self.show(&convert::executor(info), own, &mut types_left);
            }
            executors_left -= executors.len();
            after = executors.last().filter(|_| more).map(|last| Arc::clone(&last.name));
            if after.is_none() {
                return;
            }
        }
    }

    fn show(&self, executor: &ExecutorState, own: &[Label], types_left: &mut usize) {
        let name = [Label::new("executor", executor.name.clone())];
        for (state, condition) in [
            ("ready", ExecutorCondition::Ready),
            ("resting", ExecutorCondition::Resting),
            ("silent", ExecutorCondition::Suspected),
        ] {
            let is = f64::from(u8::from(executor.condition == condition));
            self.gauge(STATE, &[own, &name, &[Label::new("state", state)]], is);
        }
        self.gauge(UNCONFIRMED, &[own, &name], executor.unconfirmed as f64);
        for one in executor.types.iter().filter(|one| is_used(one)).take(*types_left) {
            *types_left -= 1;
            let labels: [&[Label]; 3] = [own, &name, &[of_type(&one.kind)]];
            self.gauge(OUTSTANDING, &labels, f64::from(one.outstanding));
            if let Some(pace_ms) = one.pace_ms {
                self.gauge(PACE, &labels, pace_ms / 1_000.0);
            }
            for (name, count) in
                [(ANSWERS, one.answers), (TIMEOUTS, one.timeouts), (FAILURES, one.failures)]
            {
                let key = Key::from_parts(name, labels.concat());
                self.recorder.register_counter(&key, &METADATA).absolute(count);
            }
        }
    }

    fn gauge(&self, name: &'static str, labels: &[&[Label]], value: f64) {
        let key = Key::from_parts(name, labels.concat());
        self.recorder.register_gauge(&key, &METADATA).set(value);
    }

    pub(crate) fn render(&self) -> String {
        self.recorder.handle().render()
    }
}

fn of_type(job: &str) -> Label {
    Label::new("type", job.to_owned())
}

/// Whether an executor has been involved with a type: one that could do a hundred types and does one has
/// one series.
fn is_used(one: &ExecutorTypeState) -> bool {
    one.outstanding > 0 || one.answers > 0 || one.timeouts > 0 || one.failures > 0
}
