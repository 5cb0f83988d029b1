//! One executor: its properties, its tasks, and its knowledge of verdicts.
//!
//! Invariant: it begins a task once, unless it was restarted since. It works on as many at a time as it
//! has slots, first in, first out, resends their outcomes until they are acknowledged, and a result
//! until it has a verdict; it is never told both verdicts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use legwork_model::event::{ExecutorType, Secret};
use legwork_model::time::Timestamp;
use legwork_site::{Ask, Job, JobLease, RegisterExecutor};

use crate::dice::Dice;

/// The back-off of resends, at first and at most; after an acknowledgement only a verdict is awaited.
const UNHEARD_MS: (i64, i64) = (2_000, 60_000);
const UNJUDGED_MS: (i64, i64) = (30_000, 600_000);

pub(crate) struct Executor {
    pub(crate) name: Arc<str>,
    /// Its properties at each type.
    skills: Vec<Skill>,
    /// Its concurrency; further tasks queue invisibly.
    hands: usize,
    /// Refused tasks in per cent.
    busy: u64,
    /// Turns in which it begins to hang, in per mille.
    flaps: u64,
    /// It does nothing and receives nothing until then.
    hangs_until: Timestamp,
    /// And is slow until then.
    slow_until: Timestamp,
    /// Its registration, and whether it registers.
    pub(crate) registration: RegisterExecutor,
    pub(crate) is_in: bool,
    pub(crate) tasks: BTreeMap<u64, Task>,
    waiting: VecDeque<u64>,
    working: BTreeSet<(Timestamp, u64)>,
}

#[derive(Clone, Copy)]
struct Skill {
    ms: i64,
    /// In per cent of the tasks.
    fails: u64,
}

pub(crate) struct Task {
    pub(crate) task: JobLease,
    kind: usize,
    pub(crate) state: State,
    say_at: Option<Timestamp>,
    pause_ms: i64,
    is_received: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// Done, without a verdict.
    Done,
    Acked,
    Nacked,
    Failed {
        retry: bool,
    },
    /// Cancelled, or lost in a restart.
    Dropped,
}

/// An executor's reply to a request.
pub(crate) enum Reply {
    Taken,
    Busy,
    /// It acknowledges the verdict.
    Confirms,
    Nothing,
}

impl Executor {
    pub(crate) fn draw(name: Arc<str>, kinds: &[&str], dice: &mut Dice) -> Self {
        let skill = |dice: &mut Dice| {
            let most = if dice.chance(20) { 20_000 } else { 900 };
            let ms = 20 + dice.below(most) as i64;
            // Some fail often at one type, some at this one always.
            let fails = match dice.below(10) {
                0 => 100,
                1 | 2 => dice.below(60) as u64,
                _ => 0,
            };
            Skill { ms, fails }
        };
        let skills = kinds.iter().map(|_| skill(dice)).collect();
        let registration = registration(&name, kinds, dice);
        Self {
            name,
            skills,
            hands: 1 + dice.below(4),
            busy: if dice.chance(50) { dice.below(30) as u64 } else { 0 },
            flaps: *dice.pick(&[0, 0, 5, 20, 60]).unwrap_or(&0),
            hangs_until: Timestamp(0),
            slow_until: Timestamp(0),
            registration,
            is_in: true,
            tasks: BTreeMap::new(),
            waiting: VecDeque::new(),
            working: BTreeSet::new(),
        }
    }

    /// Other types, other limits, with or without verdicts.
    pub(crate) fn change(&mut self, kinds: &[&str], dice: &mut Dice) {
        self.registration = registration(&self.name, kinds, dice);
    }

    /// From here on it is reliable.
    pub(crate) fn calm(&mut self) {
        (self.busy, self.flaps, self.hangs_until) = (0, 0, Timestamp(0));
        for skill in &mut self.skills {
            skill.fails = skill.fails.min(40);
        }
    }

    /// No task takes it very long.
    pub(crate) fn steady(&mut self) {
        for skill in &mut self.skills {
            *skill = Skill { ms: skill.ms.min(900), fails: 0 };
        }
    }

    /// Its concurrency at a type, limited by its registration.
    pub(crate) fn hands(&self, kind: &str) -> usize {
        let own = self.registration.types.iter().find(|own| self.is_in && *own.job == *kind);
        let limit = |most: Option<u32>| most.unwrap_or(u32::MAX).min(self.registration.limit);
        own.map_or(0, |own| self.hands.min(limit(own.limit) as usize))
    }

    /// It does every type, and never fails.
    pub(crate) fn make_able(&mut self, kinds: &[&str]) {
        self.calm();
        self.skills.iter_mut().for_each(|skill| skill.fails = 0);
        self.registration.types = kinds.iter().map(|kind| of_type(kind, None)).collect();
        self.is_in = true;
    }

    pub(crate) fn offers(&self, kind: &str) -> bool {
        self.is_in && self.registration.types.iter().any(|own| *own.job == *kind)
    }

    /// The service time of a type, if it does the type.
    pub(crate) fn pace_ms(&self, place: usize, kind: &str) -> Option<i64> {
        self.offers(kind).then(|| self.skills.get(place).map(|skill| skill.ms))?
    }

    pub(crate) fn wants_verdicts(&self) -> bool {
        self.is_in && self.registration.verdicts
    }

    /// It may begin to hang, or be restarted.
    pub(crate) fn live(&mut self, now: Timestamp, dice: &mut Dice) {
        if dice.below(1_000) as u64 >= self.flaps {
            return;
        }
        let most = if dice.chance(50) { 5_000 } else { 200_000 };
        self.hangs_until = Timestamp(now.0 + dice.below(most) as i64);
        self.slow_until = Timestamp(self.hangs_until.0 + dice.below(120_000) as i64);
        if dice.chance(30) {
            self.waiting.clear();
            self.working.clear();
            let open = self.tasks.values_mut().filter(|task| task.state == State::Open);
            open.for_each(|task| task.state = State::Dropped);
        }
    }

    pub(crate) fn hangs(&self, now: Timestamp) -> bool {
        self.hangs_until > now
    }

    pub(crate) fn on_ask(
        &mut self,
        ask: Ask,
        kinds: &[&str],
        now: Timestamp,
        dice: &mut Dice,
    ) -> Result<Reply, String> {
        match ask {
            Ask::Task(job) => Ok(self.take(job, kinds, now, dice)),
            Ask::Cancel(task) => {
                let is_open = |task: &&mut Task| task.state == State::Open;
                if let Some(known) = self.tasks.get_mut(&task.lease).filter(is_open) {
                    known.state = State::Dropped;
                    self.waiting.retain(|lease| *lease != task.lease);
                    self.working.retain(|(_, lease)| *lease != task.lease);
                }
                Ok(Reply::Nothing)
            }
            Ask::Verdict { task, counts } => {
                let verdict = if counts { State::Acked } else { State::Nacked };
                let known = self.tasks.get_mut(&task.lease).ok_or("a verdict about no task")?;
                if known.state != State::Done && known.state != verdict || known.task != task {
                    let was = known.state;
                    return Err(format!(
                        "{} at {}: {verdict:?} after {was:?}",
                        task.activity, self.name
                    ));
                }
                (known.state, known.say_at) = (verdict, None);
                Ok(Reply::Confirms)
            }
        }
    }

    fn take(&mut self, job: Job, kinds: &[&str], now: Timestamp, dice: &mut Dice) -> Reply {
        let is_known = |task: &Task| task.state != State::Dropped;
        if self.tasks.get(&job.lease).is_some_and(is_known) {
            return Reply::Taken;
        }
        if dice.chance(self.busy) {
            return Reply::Busy;
        }
        let task = Task {
            task: JobLease { activity: job.activity, lease: job.lease },
            kind: kinds.iter().position(|kind| **kind == *job.job).unwrap_or(0),
            state: State::Open,
            say_at: None,
            pause_ms: 0,
            is_received: false,
        };
        self.tasks.insert(job.lease, task);
        self.waiting.push_back(job.lease);
        self.work(now, dice);
        Reply::Taken
    }

    /// Works on its tasks.
    pub(crate) fn work(&mut self, now: Timestamp, dice: &mut Dice) {
        if self.hangs(now) {
            return;
        }
        let mut since = now;
        loop {
            while self.working.len() < self.hands
                && let Some(lease) = self.waiting.pop_front()
            {
                let kind = self.tasks.get(&lease).map_or(0, |task| task.kind);
                let mut ms = self.skills.get(kind).map_or(0, |skill| skill.ms);
                if self.slow_until > since {
                    ms *= 4;
                }
                self.working.insert((Timestamp(since.0 + ms + dice.below(50) as i64), lease));
            }
            let Some(&(ready, lease)) = self.working.first().filter(|(at, _)| *at <= now) else {
                return;
            };
            self.working.remove(&(ready, lease));
            self.finish(lease, ready, dice);
            since = ready;
        }
    }

    fn finish(&mut self, lease: u64, at: Timestamp, dice: &mut Dice) {
        let Some(task) = self.tasks.get_mut(&lease) else { return };
        let fails = self.skills.get(task.kind).map_or(0, |skill| skill.fails);
        task.state = match dice.chance(fails) {
            true => State::Failed { retry: dice.chance(90) },
            false => State::Done,
        };
        (task.say_at, task.pause_ms) = (Some(at), UNHEARD_MS.0);
    }

    /// Its due messages.
    pub(crate) fn say(&mut self, now: Timestamp) -> Vec<(JobLease, State)> {
        let mut said = Vec::new();
        if self.hangs(now) {
            return said;
        }
        let wants_verdicts = self.wants_verdicts();
        for task in self.tasks.values_mut() {
            // An executor that begins to want verdicts asks about all results without one.
            if wants_verdicts && task.state == State::Done && task.say_at.is_none() {
                (task.say_at, task.pause_ms) = (Some(now), UNJUDGED_MS.0);
            }
            if task.say_at.is_none_or(|at| at > now) {
                continue;
            }
            said.push((task.task.clone(), task.state));
            let most = if task.is_received { UNJUDGED_MS.1 } else { UNHEARD_MS.1 };
            task.say_at = Some(Timestamp(now.0 + task.pause_ms));
            task.pause_ms = (2 * task.pause_ms).min(most);
        }
        said
    }

    /// A report was acknowledged.
    pub(crate) fn received(&mut self, lease: u64, now: Timestamp) {
        let wants_verdict = self.wants_verdicts();
        let Some(task) = self.tasks.get_mut(&lease).filter(|task| !task.is_received) else {
            return;
        };
        task.is_received = true;
        let is_over = !wants_verdict || task.state != State::Done;
        task.say_at = (!is_over).then_some(Timestamp(now.0 + UNJUDGED_MS.0));
        task.pause_ms = 2 * UNJUDGED_MS.0;
    }

    /// Results without a verdict.
    pub(crate) fn unjudged(&self) -> impl Iterator<Item = &JobLease> {
        let unjudged = self.tasks.values().filter(|task| task.state == State::Done);
        unjudged.map(|task| &task.task)
    }

    /// Its next event.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let said = self.tasks.values().filter_map(|task| task.say_at).min();
        let ready = self.working.first().map(|(at, _)| *at);
        let due = said.into_iter().chain(ready).min()?;
        Some(due.max(self.hangs_until))
    }
}

/// At least one type, with any limits.
fn registration(name: &Arc<str>, kinds: &[&str], dice: &mut Dice) -> RegisterExecutor {
    let limit = 1 + dice.below(6) as u32;
    let mut types = Vec::new();
    let must = dice.below(kinds.len());
    for (place, kind) in kinds.iter().enumerate() {
        if place == must || dice.chance(70) {
            types.push(of_type(kind, dice.chance(30).then(|| 1 + dice.below(3) as u32)));
        }
    }
    RegisterExecutor {
        name: name.clone(),
        url: format!("http://{name}").into(),
        secret: Secret("a secret that nobody else can know".to_owned()),
        types,
        rate: None,
        weight: None,
        limit,
        at_once: None,
        regularly: Vec::new(),
        reserve: None,
        domain: None,
        verdicts: dice.chance(80),
        holds: None,
    }
}

fn of_type(kind: &str, limit: Option<u32>) -> ExecutorType {
    ExecutorType { job: kind.into(), limit, rate: None }
}
