//! Work for executors: cases of two processes, one of which comes in floods, and administrative orders on
//! them. Polling workers take some of the same types.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::compile::compile;
use legwork_model::id::{ActivityId, InstanceId};
use legwork_model::schema::Schema;
use legwork_model::yaml::parse;
use legwork_site::{
    Activate, Answer, Data, JobFailure, JobLease, JobResult, Request, RequestId, Resolution, Start,
};
use serde_json::json;

use super::staff::Kinds;
use crate::dice::Dice;
use crate::world::World;

pub(crate) const KINDS: Kinds = ["pack", "send", "bill"];
const CASES_MAX: usize = 60;
/// The most loop iterations of a case.
const ROUNDS_MAX: u128 = 4;
const WORKERS: [&str; 2] = ["robot", "drone"];

/// Sequential steps, then two parallel ones.
const ORDER: &str = "
process: order
data: { packed: string, sent: string, billed: string }
result: [packed, sent, billed]
steps:
  - step: pack
    job: pack
    retry: { times: TIMES, pause: 1s }
    writes: [packed]
  - parallel: both
    branches:
      - steps: [{ step: send, job: send, retry: { times: TIMES, pause: 1s }, writes: [sent] }]
      - steps: [{ step: bill, job: bill, retry: { times: TIMES, pause: 1s }, writes: [billed] }]
";

/// The same steps repeatedly.
const CLAIM: &str = "
process: claim
data: { packed: string, billed: string, left: int }
result: [packed, billed]
steps:
  - loop: rounds
    steps:
      - step: pack
        job: pack
        retry: { times: TIMES, pause: 1s }
        writes: [packed, left]
      - step: bill
        job: bill
        retry: { times: TIMES, pause: 1s }
        writes: [billed]
    until: left == 0
    max: 10
";

/// A single step.
const NOTE: &str = "
process: note
data: { sent: string }
result: [sent]
steps:
  - step: send
    job: send
    retry: { times: TIMES, pause: 1s }
    writes: [sent]
";

pub(crate) struct Cases {
    schemas: Vec<Arc<Schema>>,
    /// The process of each case.
    pub(crate) started: BTreeMap<InstanceId, usize>,
    /// The index of the process that comes in floods.
    flood: usize,
    /// The chance of a start in a turn by process, in per cent.
    chances: [u64; 2],
    /// Unanswered polls, with their workers.
    polls: Vec<(RequestId, &'static str)>,
    /// Whether there are polling workers.
    has_worker: bool,
}

impl Cases {
    /// The process of a single step.
    pub(crate) const NOTE: usize = 2;

    pub(crate) fn new(world: &mut World, dice: &mut Dice) -> Result<Self, String> {
        let times = dice.below(6).to_string();
        let mut schemas = Vec::new();
        for text in [ORDER, CLAIM, NOTE] {
            let source = text.replace("TIMES", &times);
            let definition = parse(&source).0.ok_or("the process cannot be read")?;
            let schema = compile(&definition, 1).map_err(|error| error.to_string())?;
            schemas.push(Arc::new(schema));
            let deployed = world.ask_calmly(Request::Deploy { source })?;
            deployed.map_err(|refusal| format!("{refusal}: {:?}", refusal.findings))?;
        }
        let flood = dice.below(2);
        let mut chances = [5, 5];
        chances[flood] = *dice.pick(&[5, 20, 50]).unwrap_or(&5);
        let has_worker = dice.chance(40);
        let (started, polls) = (BTreeMap::new(), Vec::new());
        Ok(Self { schemas, started, flood, chances, polls, has_worker })
    }

    pub(crate) fn schema(&self, case: InstanceId) -> Arc<Schema> {
        self.schemas[self.started.get(&case).copied().unwrap_or_default()].clone()
    }

    /// The most tasks of each type in the open cases.
    pub(crate) fn tasks_left(&self, world: &World) -> Result<[i64; 3], String> {
        let mut left = [0; 3];
        for case in world.open_instances()? {
            let claim = [ROUNDS_MAX as i64, 0, ROUNDS_MAX as i64];
            let own = match self.started.get(&case) {
                Some(0) => [1, 1, 1],
                Some(&Self::NOTE) => [0, 1, 0],
                Some(_) | None => claim,
            };
            left.iter_mut().zip(own).for_each(|(left, own)| *left += own);
        }
        Ok(left)
    }

    /// Cases start, sometimes many at once.
    pub(crate) fn come(&mut self, world: &mut World, dice: &mut Dice) {
        for process in 0..self.chances.len() {
            if dice.chance(self.chances[process]) && self.started.len() < CASES_MAX {
                self.start(process, world);
            }
        }
        if dice.chance(2) {
            for _ in 0..dice.below(30).min(CASES_MAX - self.started.len()) {
                self.start(self.flood, world);
            }
        }
    }

    pub(crate) fn start(&mut self, process: usize, world: &mut World) -> InstanceId {
        let instance = InstanceId((self.started.len() as u128 + 1) << 16);
        self.started.insert(instance, process);
        world.ask(Request::Start(Start {
            instance,
            process: self.schemas[process].process.clone(),
            version: None,
            data: Data::new(),
            agent: None,
            key: None,
            wait_until: None,
            deadline: None,
        }));
        instance
    }

    /// Administrative orders.
    pub(crate) fn order(&self, world: &mut World, dice: &mut Dice) {
        let all: Vec<InstanceId> = self.started.keys().copied().collect();
        let Some(&instance) = dice.pick(&all) else { return };
        match dice.below(100) {
            0..4 => drop(world.ask(Request::Suspend { instance, reason: None })),
            4..9 => drop(world.ask(Request::Resume { instance, reason: None })),
            9..11 => {
                let reason = "changed plans".to_owned();
                world.ask(Request::Abort { instance, reason });
            }
            11.. => {}
        }
    }

    /// Resumes all suspended cases.
    pub(crate) fn resume_all(&self, world: &mut World) {
        for &instance in self.started.keys() {
            world.ask(Request::Resume { instance, reason: None });
        }
    }

    /// Resolves incidents: retried, or completed by hand.
    pub(crate) fn resolve(&self, world: &mut World, dice: &mut Dice) -> Result<(), String> {
        let listed = world.ask_calmly(Request::Incidents { limit: 1_000, after: None })?;
        let Ok(Answer::Incidents { incidents, .. }) = listed else {
            return Err(format!("no list of incidents: {listed:?}"));
        };
        for incident in incidents {
            let activity = incident.activity;
            let resolution = match dice.chance(70) {
                true => Resolution::Retry,
                false => Resolution::Complete(outcome(&activity)),
            };
            world.ask(Request::Resolve { activity, resolution });
        }
        Ok(())
    }

    /// Workers poll jobs, sometimes wait for them, do some of them, fail at some, release some, and forget
    /// some.
    pub(crate) fn poll(&mut self, world: &mut World, dice: &mut Dice) {
        for (id, worker) in std::mem::take(&mut self.polls) {
            let Some(reply) = world.reply(id) else {
                // Requests to a crashed server are not answered any more.
                if world.is_asked(id) {
                    self.polls.push((id, worker));
                }
                continue;
            };
            let Ok(Answer::Jobs(jobs)) = reply else { continue };
            for job in jobs {
                let job = JobLease { activity: job.activity, lease: job.lease };
                report(worker, job, world, dice);
            }
        }
        if self.has_worker && dice.chance(10) {
            let worker = *dice.pick(&WORKERS).unwrap_or(&"robot");
            let wait = Duration::from_millis(dice.below(30_000) as u64);
            let activate = Activate {
                worker: worker.into(),
                types: vec![Arc::from(*dice.pick(&KINDS).unwrap_or(&"pack"))],
                max: 1 + dice.below(2),
                lease: Duration::from_millis(200 + dice.below(20_000) as u64),
                wait_until: dice.chance(50).then(|| world.now().plus(wait)),
            };
            self.polls.push((world.ask(Request::Activate(activate)), worker));
        }
    }
}

/// A worker reports the outcome of a job, or does not.
fn report(worker: &str, job: JobLease, world: &mut World, dice: &mut Dice) {
    let worker = worker.into();
    match dice.below(10) {
        0 => {}
        1 => {
            let error = "no paper".to_owned();
            let jobs = vec![JobFailure { job, error, retry: true }];
            world.ask(Request::FailJobs { worker, jobs });
        }
        2 => drop(world.ask(Request::ReturnJobs { jobs: vec![job] })),
        3.. => {
            let data = outcome(&job.activity);
            let jobs = vec![JobResult { job, data }];
            world.ask(Request::CompleteJobs { worker, jobs });
        }
    }
}

/// The outputs of a step, whatever its performer: the case determines its loop iterations.
pub(crate) fn outcome(activity: &ActivityId) -> Data {
    let written = |name: &str| (name.to_owned(), json!(activity.to_string()));
    match (&*activity.step, activity.iteration.0.last()) {
        ("pack", None) => Data::from([written("packed")]),
        ("pack", Some(&round)) => {
            let rounds = (activity.instance.0 >> 16) % ROUNDS_MAX;
            let left = rounds.saturating_sub(u128::from(round)) as u64;
            Data::from([written("packed"), ("left".to_owned(), json!(left))])
        }
        ("send", _) => Data::from([written("sent")]),
        (_, _) => Data::from([written("billed")]),
    }
}
