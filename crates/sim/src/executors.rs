//! Executors that are slow, fail, hang and forget, over a network that loses and repeats what is
//! said, and a site that crashes.
//!
//! Invariant: whatever happens, one result counts for every step, the executor that gave it knows that
//! it does, everybody else knows that theirs does not, and everything comes to an end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::compile::compile;
use legwork_model::event::{Event, Performer, Record, Secret};
use legwork_model::id::{InstanceId, StreamKind};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_model::yaml::parse;
use legwork_site::{
    Answer, Ask, Call, Concern, Credential, Data, JobLease, Outcome, RegisterExecutor, Request,
    Resolution, Start, TaskReport,
};
use serde_json::json;

use crate::Report;
use crate::dice::Dice;
use crate::world::World;

const TURNS: u32 = 200;
const TURNS_TO_FINISH_MAX: u32 = 20_000;
const KINDS: [&str; 3] = ["pack", "send", "bill"];
/// An executor that hears no verdict says its result again after so long.
const AGAIN_MS: i64 = 30_000;

/// The steps of a case: one after the other, and two at the same time.
const PROCESS: &str = "
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

/// One executor: what it is like, and what it has.
struct Executor {
    name: Arc<str>,
    /// How long it takes for each type, in milliseconds.
    speeds: [i64; 3],
    /// Of a hundred.
    fails: u64,
    verdicts: bool,
    /// It does nothing and hears nothing until then.
    hangs_until: Timestamp,
    tasks: BTreeMap<u64, Task>,
}

struct Task {
    task: JobLease,
    ready_at: Timestamp,
    say_at: Timestamp,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Working,
    /// Done, and not judged.
    Done,
    Acked,
    Nacked,
    Failed,
}

/// What is on its way.
enum Letter {
    ToExecutor(usize, Ask),
    Report(usize, JobLease, Outcome),
    Confirm(usize, JobLease),
}

struct Scenery {
    executors: Vec<Executor>,
    letters: Vec<(Timestamp, Letter)>,
    started: BTreeSet<InstanceId>,
    is_calm: bool,
    schema: Schema,
}

pub(crate) fn simulate(seed: u64) -> Result<Report, String> {
    let mut dice = Dice::new(seed ^ 0x0EC5);
    let mut world = World::new(&mut dice);
    let mut scenery = Scenery::new(&mut world, &mut dice)?;
    for _ in 0..TURNS {
        if dice.chance(25) {
            scenery.start(&mut world);
        }
        scenery.turn(&mut world, &mut dice)?;
    }
    world.calm();
    scenery.is_calm = true;
    let mut turns = 0;
    while !scenery.is_over(&mut world)? {
        scenery.resolve(&mut world)?;
        scenery.turn(&mut world, &mut dice)?;
        turns += 1;
        if turns > TURNS_TO_FINISH_MAX {
            return Err(format!("still waiting after {turns} calm turns: {}", world.describe()));
        }
    }
    let completions = scenery.check(&world)?;
    Ok(Report {
        instances: scenery.started.len(),
        completions,
        crashes: world.crashes,
        digest: world.digest()?,
        ..Report::default()
    })
}

impl Scenery {
    fn new(world: &mut World, dice: &mut Dice) -> Result<Self, String> {
        let source = PROCESS.replace("TIMES", &dice.below(6).to_string());
        let definition = parse(&source).0.ok_or("the process cannot be read")?;
        let schema = compile(&definition, 1).map_err(|error| error.to_string())?;
        let refused = |refusal: legwork_site::Refusal| refusal.to_string();
        world.ask_calmly(Request::Deploy { source })?.map_err(refused)?;
        let mut executors = Vec::new();
        for number in 0..1 + dice.below(5) {
            let speed = |dice: &mut Dice| {
                let most = if dice.chance(20) { 60_000 } else { 900 };
                20 + dice.below(most)
            };
            let executor = Executor {
                name: format!("executor-{number}").into(),
                speeds: std::array::from_fn(|_| speed(dice) as i64),
                fails: if dice.chance(30) { dice.below(60) as u64 } else { 0 },
                verdicts: dice.chance(80),
                hangs_until: Timestamp(0),
                tasks: BTreeMap::new(),
            };
            let asked = executor.registration(dice);
            world.ask_calmly(Request::Executor(Concern::Register(asked)))?.map_err(refused)?;
            executors.push(executor);
        }
        let (letters, started) = (Vec::new(), BTreeSet::new());
        Ok(Self { executors, letters, started, is_calm: false, schema })
    }

    fn start(&mut self, world: &mut World) {
        let instance = InstanceId((self.started.len() as u128 + 1) << 16);
        self.started.insert(instance);
        world.ask(Request::Start(Start {
            instance,
            process: "order".into(),
            version: None,
            data: Data::new(),
            agent: None,
            key: None,
            wait_until: None,
        }));
    }

    /// What is said comes late, twice, or not at all.
    fn post(&mut self, letter: impl Fn() -> Letter, now: Timestamp, dice: &mut Dice) {
        let copies = match dice.below(100) {
            _ if self.is_calm => 1,
            0..10 => 0,
            10..20 => 2,
            20.. => 1,
        };
        for _ in 0..copies {
            let most = if dice.chance(10) { 90_000 } else { 200 };
            let delay = dice.below(most);
            self.letters.push((Timestamp(now.0 + delay as i64), letter()));
        }
    }

    fn turn(&mut self, world: &mut World, dice: &mut Dice) -> Result<(), String> {
        world.turn(dice)?;
        let now = world.now();
        for Call { executor, ask, .. } in world.take_calls() {
            let Some(to) = self.executors.iter().position(|one| one.name == executor.name) else {
                return Err(format!("{} was called and is not known", executor.name));
            };
            self.post(|| Letter::ToExecutor(to, ask.clone()), now, dice);
        }
        if !self.is_calm && dice.chance(5) {
            let one = dice.below(self.executors.len());
            self.executors[one].hangs_until = Timestamp(now.0 + dice.below(200_000) as i64);
        }
        let (due, later) =
            std::mem::take(&mut self.letters).into_iter().partition(|(at, _)| *at <= now);
        self.letters = later;
        let due: Vec<(Timestamp, Letter)> = due;
        for (_, letter) in due {
            self.deliver(letter, world, now, dice)?;
        }
        for place in 0..self.executors.len() {
            for (task, outcome) in self.executors[place].work(now, dice) {
                self.post(|| Letter::Report(place, task.clone(), outcome.clone()), now, dice);
            }
        }
        Ok(())
    }

    fn deliver(
        &mut self,
        letter: Letter,
        world: &mut World,
        now: Timestamp,
        dice: &mut Dice,
    ) -> Result<(), String> {
        match letter {
            Letter::ToExecutor(to, ask) => {
                // What comes to one that hangs is lost.
                let is_up = self.executors[to].hangs_until <= now;
                if let Ask::Task(job) = &ask
                    && is_up
                    && !self.is_calm
                    && dice.chance(15)
                {
                    let task = JobLease { activity: job.activity.clone(), lease: job.lease };
                    let rest =
                        dice.chance(50).then(|| Duration::from_millis(dice.below(9_000) as u64));
                    let busy = || Outcome::Busy { rest };
                    // One that has it already says so.
                    let has_it = self.executors[to].tasks.contains_key(&job.lease);
                    let said = || if has_it { Outcome::Taken } else { busy() };
                    self.post(|| Letter::Report(to, task.clone(), said()), now, dice);
                } else if is_up && let Some(task) = self.executors[to].hear(ask, now, dice)? {
                    self.post(|| Letter::Confirm(to, task.clone()), now, dice);
                }
            }
            Letter::Report(from, task, outcome) => {
                let executor = self.executors[from].name.clone();
                let report = TaskReport { executor: executor.clone(), task, outcome };
                world.ask_as(
                    Credential::Executor(executor),
                    Request::Executor(Concern::Report(report)),
                );
            }
            Letter::Confirm(from, task) => {
                let executor = self.executors[from].name.clone();
                let request =
                    Request::Executor(Concern::Confirm { executor: executor.clone(), task });
                world.ask_as(Credential::Executor(executor), request);
            }
        }
        Ok(())
    }

    /// Somebody has what could not be done tried again.
    fn resolve(&mut self, world: &mut World) -> Result<(), String> {
        let listed = world.ask_calmly(Request::Incidents { limit: 1_000, after: None })?;
        let Ok(Answer::Incidents { incidents, .. }) = listed else {
            return Err(format!("no list of incidents: {listed:?}"));
        };
        for incident in incidents {
            let (activity, resolution) = (incident.activity, Resolution::Retry);
            world.ask(Request::Resolve { activity, resolution });
        }
        Ok(())
    }

    fn is_over(&self, world: &mut World) -> Result<bool, String> {
        let is_judged = |task: &Task| task.state != State::Done;
        let mut all = self.executors.iter();
        let all_judged = all.all(|one| !one.verdicts || one.tasks.values().all(is_judged));
        Ok(all_judged && world.open_instances()?.is_empty())
    }

    /// Holds the history against what the executors know.
    fn check(&self, world: &World) -> Result<usize, String> {
        let mut completions = 0;
        let mut acked: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for one in &self.executors {
            for task in one.tasks.values().filter(|task| task.state == State::Acked) {
                acked.entry(task.task.activity.to_string()).or_default().push(&one.name);
            }
        }
        for (stream, records) in world.streams()? {
            let StreamKind::Instance(id) = stream.kind() else { continue };
            let mut done = BTreeSet::new();
            for record in records {
                let record: Record<Event> =
                    Record::from_bytes(&record).map_err(|error| error.to_string())?;
                for event in record.events {
                    let Event::Completed(completed) = event else { continue };
                    completions += 1;
                    let step = &self.schema.node(completed.activity.node).name;
                    let Performer::Worker(by) = &completed.by else {
                        return Err(format!("{id}:{step} was done by nobody"));
                    };
                    if !done.insert(step.clone()) {
                        return Err(format!("{id}:{step} was completed twice"));
                    }
                    let knows = acked.remove(&format!("{id}:{step}")).unwrap_or_default();
                    let one = self.executors.iter().find(|one| one.name == *by);
                    let has_verdicts = one.is_some_and(|one| one.verdicts);
                    let wanted: &[&str] = if has_verdicts { &[by] } else { &[] };
                    if knows != wanted {
                        return Err(format!(
                            "{id}:{step} was done by {by}, and {knows:?} think so"
                        ));
                    }
                }
            }
        }
        match acked.into_iter().next() {
            Some((activity, by)) => {
                Err(format!("{by:?} think that {activity} counts; it does not"))
            }
            None => Ok(completions),
        }
    }
}

impl Executor {
    fn registration(&self, dice: &mut Dice) -> RegisterExecutor {
        let limit = 1 + dice.below(6) as u32;
        let types = KINDS.iter().map(|kind| ((*kind).into(), None));
        RegisterExecutor {
            name: self.name.clone(),
            url: format!("http://{}", self.name).into(),
            secret: Secret("a secret that nobody else can know".to_owned()),
            types: types.collect(),
            limit,
            domain: None,
            verdicts: self.verdicts,
        }
    }

    /// Hears what it is asked; answers the task of a verdict that it confirms.
    fn hear(
        &mut self,
        ask: Ask,
        now: Timestamp,
        dice: &mut Dice,
    ) -> Result<Option<JobLease>, String> {
        match ask {
            Ask::Task(job) => {
                let kind = KINDS.iter().position(|kind| **kind == *job.job).unwrap_or(0);
                let ready_at = Timestamp(now.0 + self.speeds[kind] + dice.below(50) as i64);
                let task = JobLease { activity: job.activity, lease: job.lease };
                let state = State::Working;
                self.tasks.entry(job.lease).or_insert(Task {
                    task,
                    ready_at,
                    say_at: ready_at,
                    state,
                });
            }
            Ask::Cancel(task) => {
                let is_working = |task: &&mut Task| task.state == State::Working;
                if let Some(task) = self.tasks.get_mut(&task.lease).filter(is_working) {
                    task.state = State::Failed;
                }
            }
            Ask::Verdict { task, counts } => {
                let verdict = if counts { State::Acked } else { State::Nacked };
                let known = self.tasks.get_mut(&task.lease).ok_or("a verdict about no task")?;
                let judged = matches!(known.state, State::Acked | State::Nacked);
                if judged && known.state != verdict || known.state == State::Working {
                    let was = known.state;
                    return Err(format!("{}: {:?} after {was:?}", task.activity, verdict));
                }
                known.state = verdict;
                return Ok(Some(task));
            }
        }
        Ok(None)
    }

    /// What it has to say now.
    fn work(&mut self, now: Timestamp, dice: &mut Dice) -> Vec<(JobLease, Outcome)> {
        let mut said = Vec::new();
        if self.hangs_until > now {
            return said;
        }
        for task in self.tasks.values_mut() {
            let is_new = task.state == State::Working && task.ready_at <= now;
            if is_new && dice.chance(self.fails) {
                task.state = State::Failed;
                let error = "paper jam".to_owned();
                said.push((task.task.clone(), Outcome::Failed { error, retry: true }));
            } else if is_new || task.state == State::Done && self.verdicts && task.say_at <= now {
                (task.state, task.say_at) = (State::Done, Timestamp(now.0 + AGAIN_MS));
                said.push((task.task.clone(), Outcome::Done(result(&task.task, &self.name))));
            }
        }
        said
    }
}

fn result(task: &JobLease, name: &str) -> Data {
    let element = match &*task.activity.step {
        "pack" => "packed",
        "send" => "sent",
        _ => "billed",
    };
    Data::from([(element.to_owned(), json!(name))])
}
