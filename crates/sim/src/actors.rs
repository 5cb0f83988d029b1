//! People, workers and an administrator with random behaviour, and their memory.
//!
//! Invariant: they know only the answers of the site: after a lost answer they repeat the request
//! with its key, or give it up. Some are impatient and repeat answered requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::arbitrary::JOBS;
use legwork_model::compile::compile;
use legwork_model::event::RequestDigest;
use legwork_model::id::{ActivityId, AgentId, InstanceId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_model::yaml;
use legwork_site::{
    Activate, Answer, Complete, Data, Job, JobFailure, JobLease, JobResult, Key, Kind, Refusal,
    Request, RequestId, Resolution, Start, Worklist,
};

use crate::dice::Dice;
use crate::material::{AGENTS, definition, key_stream, organisation, outputs};
use crate::watchers::Watchers;
use crate::world::{Reply, World};

const PROCESS: &str = "random";
const WORKER: &str = "robot";

/// What the site has acknowledged.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) started: BTreeMap<InstanceId, ()>,
    /// All ids generated for the starts under one key, and the answered one.
    pub(crate) keyed: BTreeMap<u64, Keyed>,
    pub(crate) completed: BTreeMap<ActivityId, AgentId>,
    pub(crate) aborted: BTreeMap<InstanceId, ()>,
}

#[derive(Default)]
pub(crate) struct Keyed {
    pub(crate) drawn: BTreeSet<InstanceId>,
    pub(crate) answered: Option<InstanceId>,
}

/// A request without an answer yet.
#[derive(Clone)]
enum Intent {
    Start {
        instance: InstanceId,
        version: u32,
        data: Data,
        key: Option<u64>,
        /// A hash of the request: the same key with another hash is another request.
        request: u64,
    },
    Complete {
        agent: AgentId,
        activity: ActivityId,
        data: Data,
        answer: Option<String>,
        key: Option<u64>,
    },
    List(AgentId),
    Poll,
    Report(Vec<ActivityId>),
    Abort(InstanceId),
    Other,
}

pub(crate) struct Crowd {
    agents: Vec<AgentId>,
    schemas: Vec<Arc<Schema>>,
    /// The version with which each instance was requested.
    versions: BTreeMap<InstanceId, u32>,
    pending: BTreeMap<RequestId, Intent>,
    cursors: BTreeMap<AgentId, String>,
    /// Items that each agent has seen recently.
    seen: BTreeMap<AgentId, Vec<ActivityId>>,
    jobs: Vec<Job>,
    watchers: Watchers,
    ledger: Ledger,
    last_key: u64,
    last_instance: u128,
    pub(crate) refusals: u32,
}

impl Crowd {
    pub(crate) fn new(world: &mut World, dice: &mut Dice) -> Result<Self, String> {
        let agents: Vec<AgentId> = AGENTS.into_iter().map(AgentId::from).collect();
        expect(world.ask_calmly(Request::PublishOrganisation { source: organisation(dice) })?)?;
        let mut schemas = Vec::new();
        for version in 1..=1 + dice.below(2) as u32 {
            let definition = definition(dice);
            let source = yaml::write(&definition);
            expect(world.ask_calmly(Request::Deploy { source })?)?;
            let schema = compile(&definition, version).map_err(|error| error.to_string())?;
            schemas.push(Arc::new(schema));
        }
        Ok(Self {
            agents,
            schemas,
            versions: BTreeMap::new(),
            pending: BTreeMap::new(),
            cursors: BTreeMap::new(),
            seen: BTreeMap::new(),
            jobs: Vec::new(),
            watchers: Watchers::default(),
            ledger: Ledger::default(),
            last_key: 0,
            last_instance: 0,
            refusals: 0,
        })
    }

    pub(crate) fn agents(&self) -> &[AgentId] {
        &self.agents
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Several requests at once.
    pub(crate) fn act(&mut self, world: &mut World, dice: &mut Dice) -> Result<(), String> {
        self.watchers.act(world, dice, &self.cursors);
        for _ in 0..dice.below(6) {
            match dice.below(20) {
                0..3 => self.start(world, dice),
                3..8 => self.work(world, dice),
                8..11 => self.list(world, dice),
                11..14 => self.poll(world, dice),
                14..18 => self.report(world, dice),
                18 => self.administer(world, dice),
                19.. => self.reorganise(world, dice),
            }
        }
        Ok(())
    }

    fn key(&mut self, dice: &mut Dice) -> Option<u64> {
        self.last_key += 1;
        dice.chance(60).then_some(self.last_key)
    }

    fn start(&mut self, world: &mut World, dice: &mut Dice) {
        let Some(schema) = dice.pick(&self.schemas).cloned() else { return };
        let data = outputs(&schema, "start", dice);
        let (key, version) = (self.key(dice), schema.version);
        let start = Intent::Start { instance: InstanceId(0), version, data, key, request: 1 };
        let times = if key.is_some() && dice.chance(40) { 2 + dice.below(3) } else { 1 };
        for _ in 0..times {
            self.send(world, start.clone());
        }
        if dice.chance(20) {
            self.send(world, another(start));
        }
    }

    /// Later ids are larger, as those of the server are, whatever the clock does.
    fn draw(&mut self, now: Timestamp) -> InstanceId {
        let moment = u128::from(now.0.unsigned_abs()) << 80;
        self.last_instance = moment.max(self.last_instance + 1);
        InstanceId(self.last_instance)
    }

    fn list(&mut self, world: &mut World, dice: &mut Dice) {
        if let Some(agent) = dice.pick(&self.agents).cloned() {
            self.send(world, Intent::List(agent));
        }
    }

    fn work(&mut self, world: &mut World, dice: &mut Dice) {
        let Some(agent) = dice.pick(&self.agents).cloned() else { return };
        let items = self.seen.get(&agent).map(Vec::as_slice).unwrap_or_default();
        let Some(activity) = dice.pick(items).cloned() else { return };
        let other = || Intent::Other;
        match dice.below(8) {
            0..2 => {
                let id = world.ask(Request::Claim { agent, activity });
                self.pending.insert(id, other());
            }
            2 => {
                let id = world.ask(Request::Release { agent, activity });
                self.pending.insert(id, other());
            }
            3 => {
                let to = dice.pick(&self.agents).cloned().unwrap_or_else(|| agent.clone());
                let id = world.ask(Request::Delegate { agent, activity, to });
                self.pending.insert(id, other());
            }
            4.. => {
                let complete = self.completion(agent, activity, dice);
                self.send(world, complete);
            }
        }
    }

    fn completion(&mut self, agent: AgentId, activity: ActivityId, dice: &mut Dice) -> Intent {
        let schema = self.schema_of(&activity);
        let data = outputs(&schema, &activity.step, dice);
        let answers = schema.node_named(&activity.step).map(|node| node.answers());
        let answer = answers.and_then(|all| dice.pick(&all).map(|answer| (*answer).to_owned()));
        let key = self.key(dice);
        Intent::Complete { agent, activity, data, answer, key }
    }

    fn schema_of(&self, activity: &ActivityId) -> Arc<Schema> {
        let version = self.versions.get(&activity.instance).copied().unwrap_or(1);
        self.schemas[version as usize - 1].clone()
    }

    fn poll(&mut self, world: &mut World, dice: &mut Dice) {
        let lease = Duration::from_millis(200 + dice.below(20_000) as u64);
        let wait = Timestamp(world.now().0 + dice.below(3_000) as i64);
        let activate = Activate {
            worker: Arc::from(WORKER),
            types: JOBS.into_iter().map(Arc::from).collect(),
            max: 1 + dice.below(4),
            lease,
            wait_until: dice.chance(50).then_some(wait),
        };
        let id = world.ask(Request::Activate(activate));
        self.pending.insert(id, Intent::Poll);
    }

    fn report(&mut self, world: &mut World, dice: &mut Dice) {
        if self.jobs.is_empty() {
            return;
        }
        let job = self.jobs.swap_remove(dice.below(self.jobs.len()));
        let lease = JobLease { activity: job.activity.clone(), lease: job.lease };
        let worker: Arc<str> = Arc::from(WORKER);
        match dice.below(10) {
            0..2 => {
                let error = "paper jam".to_owned();
                let jobs = vec![JobFailure { job: lease, error, retry: dice.chance(90) }];
                let id = world.ask(Request::FailJobs { worker, jobs });
                self.pending.insert(id, Intent::Other);
            }
            2 => {
                let lease_for = Duration::from_secs(5);
                let jobs = vec![lease];
                let id = world.ask(Request::ExtendJobs { worker, jobs, lease: lease_for });
                self.pending.insert(id, Intent::Other);
                self.jobs.push(job);
            }
            // Abandoned: the lease has to expire.
            3 => {}
            4.. => {
                let data = outputs(&self.schema_of(&job.activity), &job.activity.step, dice);
                let jobs = vec![JobResult { job: lease, data }];
                let id = world.ask(Request::CompleteJobs { worker, jobs });
                self.pending.insert(id, Intent::Report(vec![job.activity]));
            }
        }
    }

    fn administer(&mut self, world: &mut World, dice: &mut Dice) {
        let ids: Vec<InstanceId> = self.ledger.started.keys().copied().collect();
        let Some(&instance) = dice.pick(&ids) else { return };
        let (request, intent) = match dice.below(6) {
            0..2 => (Request::Suspend { instance, reason: None }, Intent::Other),
            2..5 => (Request::Resume { instance, reason: None }, Intent::Other),
            5.. => {
                (Request::Abort { instance, reason: "test".to_owned() }, Intent::Abort(instance))
            }
        };
        let id = world.ask(request);
        self.pending.insert(id, intent);
    }

    fn reorganise(&mut self, world: &mut World, dice: &mut Dice) {
        let id = world.ask(Request::PublishOrganisation { source: organisation(dice) });
        self.pending.insert(id, Intent::Other);
    }

    fn send(&mut self, world: &mut World, mut intent: Intent) {
        // Generated for each attempt, as the server does.
        if let Intent::Start { instance, version, key, .. } = &mut intent {
            *instance = self.draw(world.now());
            self.versions.insert(*instance, *version);
            if let Some(key) = key {
                self.ledger.keyed.entry(*key).or_default().drawn.insert(*instance);
            }
        }
        let request = match intent.clone() {
            Intent::Start { instance, version, data, key, request } => Request::Start(Start {
                instance,
                process: Arc::from(PROCESS),
                version: Some(version),
                data,
                agent: None,
                key: key.map(|key| Box::new(Key { stream: key_stream(key), request })),
                wait_until: None,
                deadline: None,
            }),
            Intent::Complete { agent, activity, data, answer, key } => {
                let request = key.map(|key| RequestDigest::new(key as u32, 1));
                Request::Complete(Complete { agent, activity, data, answer, request })
            }
            Intent::List(agent) => Request::Worklist(Worklist {
                since: self.cursors.get(&agent).cloned(),
                agent,
                limit: 100,
                wait_until: None,
            }),
            Intent::Poll | Intent::Report(_) | Intent::Abort(_) | Intent::Other => return,
        };
        let id = world.ask(request);
        self.pending.insert(id, intent);
    }

    /// Handles answers; repeats lost requests with a key.
    pub(crate) fn listen(&mut self, world: &mut World) -> Result<(), String> {
        for id in world.take_lost() {
            self.watchers.lost(id);
            match self.pending.remove(&id) {
                Some(
                    intent @ (Intent::Start { key: Some(_), .. }
                    | Intent::Complete { key: Some(_), .. }),
                ) => self.send(world, intent),
                Some(Intent::List(agent)) => drop(self.cursors.remove(&agent)),
                Some(_) | None => {}
            }
        }
        self.watchers.listen(world)?;
        let answered: Vec<RequestId> = self.pending.keys().copied().collect();
        for id in answered {
            if let Some(reply) = world.reply(id)
                && let Some(intent) = self.pending.remove(&id)
            {
                self.on_reply(intent, reply)?;
            }
        }
        Ok(())
    }

    fn on_reply(&mut self, intent: Intent, reply: Reply) -> Result<(), String> {
        let answer = match reply {
            Ok(answer) => answer,
            Err(refusal) => return self.refused(&intent, &refusal),
        };
        match (intent, answer) {
            (Intent::Start { instance, key, .. }, Answer::Started { instance: info, repeated }) => {
                self.note_start(instance, key, info.instance, repeated)?;
            }
            (Intent::Complete { agent, activity, .. }, Answer::Done) => {
                self.note(activity, agent)?;
            }
            (Intent::List(agent), Answer::Worklist(view)) => {
                let seen = self.seen.entry(agent.clone()).or_default();
                if view.reset {
                    seen.clear();
                }
                seen.retain(|item| !view.removed.contains(item));
                for item in view.items {
                    if !seen.contains(&item.activity) {
                        seen.push(item.activity);
                    }
                }
                self.cursors.insert(agent, view.cursor);
            }
            (Intent::Poll, Answer::Jobs(jobs)) => self.jobs.extend(jobs),
            (Intent::Report(activities), Answer::JobResults(results)) => {
                for (activity, result) in activities.into_iter().zip(results) {
                    match result {
                        Ok(()) => self.note(activity, AgentId::from(WORKER))?,
                        Err(_) => self.refusals += 1,
                    }
                }
            }
            (Intent::Abort(instance), Answer::Done) => {
                self.ledger.aborted.insert(instance, ());
            }
            (Intent::Other, _) => {}
            (_, other) => return Err(format!("an answer to another question: {other:?}")),
        }
        Ok(())
    }

    /// Refusals are normal; broken instances and internal errors are not.
    fn refused(&mut self, intent: &Intent, refusal: &Refusal) -> Result<(), String> {
        self.refusals += 1;
        if let Intent::List(agent) = intent {
            self.cursors.remove(agent);
        }
        match refusal.kind {
            Kind::Broken | Kind::Exhausted | Kind::Unauthenticated | Kind::Forbidden => {
                Err(format!("refused: {refusal}"))
            }
            Kind::Invalid | Kind::NotFound | Kind::Conflict => Ok(()),
        }
    }

    /// Without a key it is the requested instance; under a key always the same one.
    fn note_start(
        &mut self,
        drawn: InstanceId,
        key: Option<u64>,
        answered: InstanceId,
        repeated: bool,
    ) -> Result<(), String> {
        let expected = match key.and_then(|key| self.ledger.keyed.get_mut(&key)) {
            None => drawn,
            Some(keyed) if keyed.drawn.contains(&answered) => {
                *keyed.answered.get_or_insert(answered)
            }
            Some(_) => return Err(format!("{answered} was never asked for under {key:?}")),
        };
        if answered != expected || repeated != (answered != drawn) {
            return Err(format!("{answered} was answered to the start of {drawn} under {key:?}"));
        }
        self.ledger.started.insert(answered, ());
        Ok(())
    }

    fn note(&mut self, activity: ActivityId, by: AgentId) -> Result<(), String> {
        match self.ledger.completed.insert(activity.clone(), by) {
            None => Ok(()),
            Some(_) => Err(format!("{activity} was acknowledged twice")),
        }
    }

    /// Whether no request and no activity is open.
    pub(crate) fn has_finished(&mut self, world: &mut World) -> Result<bool, String> {
        Ok(self.pending.is_empty() && world.describe().contains("instances_open: 0,"))
    }

    /// Brings all instances to their end: resumes, resolves, completes.
    pub(crate) fn finish(&mut self, world: &mut World, dice: &mut Dice) -> Result<(), String> {
        for instance in self.versions.keys().copied().collect::<Vec<_>>() {
            let id = world.ask(Request::Resume { instance, reason: None });
            self.pending.insert(id, Intent::Other);
        }
        if let Answer::Incidents { incidents, .. } =
            expect(world.ask_calmly(Request::Incidents { limit: 100, after: None })?)?
        {
            for incident in incidents {
                let resolution = self.way_out(&incident.activity, dice);
                let request = Request::Resolve { activity: incident.activity, resolution };
                let id = world.ask(request);
                self.pending.insert(id, Intent::Other);
            }
        }
        for agent in self.agents.clone() {
            self.cursors.remove(&agent);
            self.send(world, Intent::List(agent.clone()));
            let items = self.seen.get(&agent).cloned().unwrap_or_default();
            for activity in items {
                if !self.ledger.completed.contains_key(&activity) {
                    let complete = self.completion(agent.clone(), activity, dice);
                    self.send(world, complete);
                }
            }
        }
        self.poll(world, dice);
        while !self.jobs.is_empty() {
            self.report(world, dice);
        }
        Ok(())
    }

    fn way_out(&self, activity: &ActivityId, dice: &mut Dice) -> Resolution {
        let schema = self.schema_of(activity);
        let Some(node) = schema.node_named(&activity.step) else { return Resolution::Retry };
        if !node.is_decision() {
            return Resolution::Complete(outputs(&schema, &activity.step, dice));
        }
        let answer = node.answers().last().map(|answer| (*answer).to_owned());
        Resolution::Choose(answer.unwrap_or_default())
    }
}

/// Another request under the same key.
fn another(start: Intent) -> Intent {
    match start {
        Intent::Start { instance, version, data, key, request } => {
            Intent::Start { instance, version, data, key, request: request + 1 }
        }
        other @ (Intent::Complete { .. }
        | Intent::List(_)
        | Intent::Poll
        | Intent::Report(_)
        | Intent::Abort(_)
        | Intent::Other) => other,
    }
}

fn expect(reply: Reply) -> Result<Answer, String> {
    reply.map_err(|refusal| format!("refused: {refusal} {:?}", refusal.findings))
}
