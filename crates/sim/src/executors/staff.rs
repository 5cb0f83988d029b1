//! All executors, and the messages between them and the servers that share them: lost, repeated and late.
//!
//! Results are sent to any server, which passes them on to the one that assigned the task; replies to
//! tasks and verdicts go back to the sender. Executors come, go, and come back with other types, limits
//! and settings.

use std::collections::BTreeMap;
use std::time::Duration;

use legwork_model::id::ActivityId;
use legwork_model::time::Timestamp;
use legwork_model::value::{Value, unhex};
use legwork_site::{
    Ask, Call, Concern, Credential, Data, Feedback, JobLease, Kind, Outcome, Request, RequestId,
    TaskReport,
};

use super::executor::{Executor, Reply, State};
use crate::dice::Dice;
use crate::world::World;

pub(crate) type Kinds = [&'static str; 3];

const POLICIES: [&str; 6] =
    ["random", "round-robin", "weighted", "least-outstanding", "two-choices", "oxthas-3"];
const LEARNING: &str = "adaptive";
const EXECUTORS_MAX: usize = 7;
/// The type with few tasks.
pub(crate) const NOTED: usize = 1;

pub(crate) struct Staff {
    pub(crate) executors: Vec<Executor>,
    kinds: Kinds,
    /// The home domains of some.
    domains: Vec<&'static str>,
    /// By the moment of arrival and a number that orders equal ones.
    letters: BTreeMap<(Timestamp, u64), Letter>,
    sent: u64,
    /// The executor and task of each report to a server.
    said: BTreeMap<(usize, RequestId), (usize, u64)>,
    /// The pending request for the first unregistered change.
    errand: Option<RequestId>,
    /// Executors whose registration has changed, and is not known to the servers.
    untold: Vec<usize>,
    /// The server that has assigned each step.
    offered: BTreeMap<ActivityId, usize>,
    /// When the last lease ends of the tasks that may be lost.
    leased_until: Timestamp,
    is_calm: bool,
}

/// Messages in transit.
#[derive(Clone)]
enum Letter {
    /// From a server to an executor.
    Ask(usize, usize, Ask),
    /// A reply of an executor to the requesting server.
    Answer(usize, usize, JobLease, Outcome),
    Confirm(usize, usize, JobLease),
    /// A result for the server that assigned the task, sent to any server.
    Result(usize, usize, JobLease, Outcome),
    /// The acknowledgement of a result.
    Receipt(usize, u64),
}

/// The environment of executors.
pub(crate) struct Field<'f> {
    pub(crate) worlds: &'f mut [World],
    pub(crate) now: Timestamp,
    /// The outputs of an activity.
    pub(crate) data: &'f dyn Fn(&ActivityId) -> Data,
    pub(crate) is_cut: &'f dyn Fn(usize, usize) -> bool,
}

impl Staff {
    pub(crate) fn draw(kinds: Kinds, domains: &[&'static str], dice: &mut Dice) -> Self {
        let mut staff = Self {
            executors: Vec::new(),
            kinds,
            domains: domains.to_vec(),
            letters: BTreeMap::new(),
            sent: 0,
            said: BTreeMap::new(),
            errand: None,
            untold: Vec::new(),
            offered: BTreeMap::new(),
            leased_until: Timestamp(0),
            is_calm: false,
        };
        for _ in 0..1 + dice.below(5) {
            staff.hire(dice);
        }
        staff
    }

    /// Sets policies for some types, recorded in some cases.
    pub(crate) fn set_policies(&self, world: &mut World, dice: &mut Dice) -> Result<(), String> {
        for kind in self.kinds.iter().filter(|_| dice.chance(30)).collect::<Vec<_>>() {
            let policy = (*dice.pick(&POLICIES).unwrap_or(&"random")).into();
            let concern =
                Concern::SetPolicy { job: (*kind).into(), policy, recorded: dice.chance(50) };
            let said = world.ask_calmly(Request::Executor(concern))?;
            said.map_err(|refusal| refusal.to_string())?;
        }
        Ok(())
    }

    /// A policy that learns nothing gives up tasks that wait at an executor for longer than its fixed timeout, again
    /// and again: it need not come to an end.
    pub(crate) fn unset_policies(&self, world: &mut World) -> Result<(), String> {
        for kind in self.kinds {
            let (job, policy) = (kind.into(), LEARNING.into());
            let concern = Concern::SetPolicy { job, policy, recorded: false };
            let reply = world.ask_calmly(Request::Executor(concern))?;
            reply.map_err(|refusal| refusal.to_string())?;
        }
        Ok(())
    }

    fn hire(&mut self, dice: &mut Dice) {
        let name = format!("executor-{}", self.executors.len());
        self.untold.push(self.executors.len());
        let mut one = Executor::draw(name.into(), &self.kinds, dice);
        one.registration.domain = self.draw_home(dice);
        self.executors.push(one);
    }

    /// From here on nothing is lost, failures are temporary, and each type has an executor.
    pub(crate) fn calm(&mut self) {
        self.is_calm = true;
        self.executors.iter_mut().for_each(Executor::calm);
        let is_done = |kind: &&str| self.executors.iter().any(|one| one.offers(kind));
        if !self.kinds.iter().all(is_done)
            && let Some(first) = self.executors.first_mut()
        {
            first.make_able(&self.kinds);
            self.untold.push(0);
        }
    }

    /// Until when a server may wait for tasks lost before the calm.
    pub(crate) fn leased_until(&self) -> Timestamp {
        self.leased_until
    }

    /// What is still awaited: a registration, or a verdict.
    pub(crate) fn awaits(&self) -> Option<String> {
        if let Some(place) = self.untold.first() {
            return Some(format!("{} to be registered or not", self.executors[*place].name));
        }
        let waiting = self.executors.iter().filter(|one| one.wants_verdicts());
        let mut unjudged = waiting.flat_map(|one| one.unjudged().map(|task| (&one.name, task)));
        let (name, task) = unjudged.next()?;
        Some(format!("{name} to know of {}", task.activity))
    }

    /// From here on all are reliable, not very slow, and constant.
    pub(crate) fn steady(&mut self) {
        self.executors.iter_mut().for_each(Executor::steady);
        self.calm();
    }

    /// How long the slowest executor takes for so many tasks of any type and all assigned ones.
    pub(crate) fn turn_ms(&self, waiting: usize) -> i64 {
        let slowest = self.longest_ms([1, 0, 0]).max(self.longest_ms([0, 1, 0]));
        let slowest = slowest.max(self.longest_ms([0, 0, 1]));
        let hands: usize = self.executors.iter().map(|one| one.hands(self.kinds[NOTED])).sum();
        let limits: u32 = self.executors.iter().map(|one| one.registration.limit).sum();
        let tasks = (waiting + limits as usize) / hands.max(1) + 2;
        slowest * tasks as i64
    }

    /// The worst case for so many tasks of each type: one after the other, each done by the slowest
    /// executor of the type.
    pub(crate) fn longest_ms(&self, tasks: [i64; 3]) -> i64 {
        let of_kind = |(place, tasks)| {
            let paces =
                self.executors.iter().filter_map(|one| one.pace_ms(place, self.kinds[place]));
            paces.max().unwrap_or(0) * tasks
        };
        tasks.into_iter().enumerate().map(of_kind).sum()
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let letter = self.letters.keys().next().map(|(at, _)| *at);
        self.executors.iter().filter_map(Executor::next_due).chain(letter).min()
    }

    /// All act; the registrar is the first server.
    pub(crate) fn turn(&mut self, field: &mut Field<'_>, dice: &mut Dice) -> Result<(), String> {
        self.collect(field, dice)?;
        self.take_receipts(field, dice)?;
        self.register(field, dice)?;
        let later = self.letters.split_off(&(Timestamp(field.now.0 + 1), 0));
        for letter in std::mem::replace(&mut self.letters, later).into_values() {
            self.deliver(letter, field, dice)?;
        }
        for place in 0..self.executors.len() {
            if !self.is_calm {
                self.executors[place].live(field.now, dice);
            }
            self.executors[place].work(field.now, dice);
            for (task, state) in self.executors[place].say(field.now) {
                self.say(place, task, state, field, dice);
            }
        }
        Ok(())
    }

    /// Messages come late, twice, or not at all.
    fn post(&mut self, letter: &Letter, now: Timestamp, dice: &mut Dice) {
        let copies = match dice.below(100) {
            _ if self.is_calm => 1,
            0..10 => 0,
            10..20 => 2,
            20.. => 1,
        };
        for _ in 0..copies {
            let most = if !self.is_calm && dice.chance(10) { 90_000 } else { 200 };
            self.sent += 1;
            let at = Timestamp(now.0 + dice.below(most) as i64);
            self.letters.insert((at, self.sent), letter.clone());
        }
    }

    /// Takes the messages of servers to executors.
    fn collect(&mut self, field: &mut Field<'_>, dice: &mut Dice) -> Result<(), String> {
        for place in 0..field.worlds.len() {
            for Call { executor, ask, .. } in field.worlds[place].take_calls() {
                let Some(to) = self.executors.iter().position(|one| one.name == executor.name)
                else {
                    return Err(format!("{} was called and is not known", executor.name));
                };
                if let Ask::Task(job) = &ask {
                    if !self.is_calm {
                        self.leased_until = self.leased_until.max(job.expires_at);
                    }
                    let other = self.offered.insert(job.activity.clone(), place).unwrap_or(place);
                    if other != place {
                        let activity = &job.activity;
                        return Err(format!("{activity} is given out at {place} and at {other}"));
                    }
                    let is_missing = |value: &Value| matches!(value, Value::File(file) if !field.worlds[place].has_blob(&file.blob));
                    if job.inputs.iter().any(|(_, value)| is_missing(value)) {
                        return Err(format!("{} is given out without its files", job.activity));
                    }
                }
                self.post(&Letter::Ask(place, to, ask), field.now, dice);
            }
        }
        Ok(())
    }

    /// An executor reports the outcome of a task.
    fn say(
        &mut self,
        from: usize,
        task: JobLease,
        state: State,
        field: &Field<'_>,
        dice: &mut Dice,
    ) {
        let outcome = match state {
            State::Failed { retry } => Outcome::Failed { error: "paper jam".to_owned(), retry },
            State::Done | State::Open | State::Acked | State::Nacked | State::Dropped => {
                Outcome::Done((field.data)(&task.activity))
            }
        };
        // As the reply to the task, if that is still awaited: it is not acknowledged.
        let giver = usize::from(JobLease::server(task.lease).0);
        if dice.chance(20) {
            self.executors[from].received(task.lease, field.now);
            self.post(&Letter::Answer(from, giver, task, outcome), field.now, dice);
        } else {
            let at = dice.below(field.worlds.len());
            self.post(&Letter::Result(from, at, task, outcome), field.now, dice);
        }
    }

    fn deliver(
        &mut self,
        letter: Letter,
        field: &mut Field<'_>,
        dice: &mut Dice,
    ) -> Result<(), String> {
        let now = field.now;
        match letter {
            // Messages to a hanging executor are lost.
            Letter::Ask(_, to, _) if self.executors[to].hangs(now) => {}
            Letter::Ask(from, to, ask) => {
                let task = task_of(&ask);
                let reply = self.executors[to].on_ask(ask, &self.kinds, now, dice)?;
                let letter = match reply {
                    Reply::Taken => Letter::Answer(to, from, task, Outcome::Taken),
                    Reply::Busy => {
                        let rest = dice.below(9_000) as u64;
                        let rest = dice.chance(50).then(|| Duration::from_millis(rest));
                        Letter::Answer(to, from, task, Outcome::Busy { rest })
                    }
                    Reply::Confirms => Letter::Confirm(to, from, task),
                    Reply::Nothing => return Ok(()),
                };
                self.post(&letter, now, dice);
            }
            Letter::Answer(from, to, task, outcome) => {
                self.report(from, to, task, outcome, field);
            }
            Letter::Confirm(from, to, task) => {
                let executor = self.executors[from].name.clone();
                let concern = Concern::Confirm { executor: executor.clone(), task };
                let credential = Credential::Executor(executor);
                field.worlds[to].ask_as(credential, Request::Executor(concern));
            }
            Letter::Result(from, at, task, outcome) => {
                let knows = |world: &World| {
                    let name = &self.executors[from].name;
                    world.site().executors().any(|one| one.name == *name)
                };
                let giver = JobLease::server(task.lease);
                let world = &field.worlds[at];
                let known = world.topology().and_then(|topology| topology.server(giver));
                let to = known.map_or(at, |_| usize::from(giver.0));
                if knows(world) && (to == at || !(field.is_cut)(at, to)) {
                    let lease = task.lease;
                    let id = self.report(from, to, task, outcome, field);
                    self.said.insert((to, id), (from, lease));
                }
            }
            Letter::Receipt(to, lease) => self.executors[to].received(lease, now),
        }
        Ok(())
    }

    fn report(
        &self,
        from: usize,
        to: usize,
        task: JobLease,
        outcome: Outcome,
        field: &mut Field<'_>,
    ) -> RequestId {
        let executor = self.executors[from].name.clone();
        if let Outcome::Done(data) = &outcome {
            for blob in data.values().filter_map(|value| unhex(value.get("blob")?.as_str()?)) {
                field.worlds[to].upload(blob);
            }
        }
        let feedback = Feedback::default();
        let report =
            TaskReport { executor: executor.clone(), task, outcome, feedback, holds: None };
        let request = Request::Executor(Concern::Report(report));
        field.worlds[to].ask_as(Credential::Executor(executor), request)
    }

    /// Senders get acknowledgements.
    fn take_receipts(&mut self, field: &mut Field<'_>, dice: &mut Dice) -> Result<(), String> {
        for (place, id) in self.said.keys().copied().collect::<Vec<_>>() {
            let Some(reply) = field.worlds[place].reply(id) else { continue };
            let Some((from, lease)) = self.said.remove(&(place, id)) else { continue };
            match reply {
                Ok(_) => self.post(&Letter::Receipt(from, lease), field.now, dice),
                Err(refusal) if refusal.kind == Kind::Broken || refusal.kind == Kind::Forbidden => {
                    return Err(format!("a result was refused: {refusal}"));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn draw_home(&self, dice: &mut Dice) -> Option<String> {
        let home = dice.pick(&self.domains).map(|home| (*home).to_owned());
        home.filter(|_| dice.chance(50))
    }

    fn change_one(&mut self, dice: &mut Dice) {
        let kind = dice.below(10);
        if kind < 3 && self.executors.len() < EXECUTORS_MAX {
            return self.hire(dice);
        }
        let home = self.draw_home(dice);
        let place = dice.below(self.executors.len());
        let one = &mut self.executors[place];
        if kind < 6 {
            one.is_in = !one.is_in;
        } else {
            one.change(&self.kinds, dice);
            one.registration.domain = home;
            one.is_in = true;
        }
        self.untold.push(place);
    }

    /// Executors come, go and change; unanswered requests are repeated.
    fn register(&mut self, field: &mut Field<'_>, dice: &mut Dice) -> Result<(), String> {
        if !self.is_calm && dice.chance(2) && self.untold.is_empty() {
            self.change_one(dice);
        }
        if let Some(id) = self.errand {
            match field.worlds[0].reply(id) {
                Some(Ok(_)) => drop(self.untold.remove(0)),
                Some(Err(refusal)) if refusal.code == "no_such_executor" => {
                    self.untold.remove(0);
                }
                // It has just been started, or is moving.
                Some(Err(refusal)) if refusal.kind == Kind::Exhausted || refusal.at.is_some() => {}
                Some(reply) => return Err(format!("a registration is answered with {reply:?}")),
                None if field.worlds[0].is_asked(id) => return Ok(()),
                None => {}
            }
        }
        self.errand = None;
        let Some(&place) = self.untold.first() else { return Ok(()) };
        let one = &self.executors[place];
        let concern = match one.is_in {
            true => Concern::Register(one.registration.clone()),
            false => Concern::Remove { name: one.name.clone() },
        };
        self.errand = Some(field.worlds[0].ask(Request::Executor(concern)));
        Ok(())
    }
}

fn task_of(ask: &Ask) -> JobLease {
    match ask {
        Ask::Task(job) => JobLease { activity: job.activity.clone(), lease: job.lease },
        Ask::Cancel(task) | Ask::Verdict { task, .. } => task.clone(),
    }
}
