//! What servers gave to executors and nobody knows any more.
//!
//! A server that begins anew gives all its open jobs out anew, to whomever, each as another task; which of them executors
//! still have from before it does not know, nor how many copies of them: each time it begins anew there may be one more. Nor does
//! anybody know what a server has given that is not heard of. So whoever keeps the plan of an executor counts the most that can
//! be: as many jobs as the executor takes from one server, if any were open there, each as long as the longest of its types. Nothing
//! more is promised that would not be in time behind all that, and behind what is known (`legwork_promise::Desk::shade`).
//!
//! Invariant: a server that is heard of is taken at its word, and what was promised before is not touched.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::sync::Arc;

use legwork_engine::Here;
use legwork_model::event::ExecutorRegistered;
use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_promise::{Queue, ResourceId, TaskId, Work};

use super::occupied::Occupant;
use super::regular::{by_the_clock, lag};
use super::resources::{hands_for_any, taken_from_one};
use super::steps::leg_of;
use super::task_id;
use crate::Site;
use crate::executors::LIMIT_MAX;
use crate::message::{Forgot, Name, OpenJobs};

/// Drawn anew whenever a server begins.
type Life = u64;

#[derive(Debug, Default)]
pub(super) struct Forgotten {
    /// Jobs that were open when this server began, and how long the longest of each type was planned to take.
    open: BTreeMap<Arc<str>, i64>,
    /// When this server began, and what executors that there were then may have had from it.
    begun: Option<(Timestamp, BTreeMap<Arc<str>, OpenJobs>)>,
    /// What executors whose plans are here may have.
    executors: BTreeMap<Arc<str>, Shade>,
}

/// What an executor may have, and by when it is over.
#[derive(Debug, Default)]
struct Shade {
    from: BTreeMap<(ServerId, Source), Given>,
    /// With all that is known, in whatever order.
    queue: Queue,
    until: Option<Timestamp>,
    /// What was known when the last of that was over: it may have been behind it, and begun only then.
    behind: BTreeSet<TaskId>,
    is_over: bool,
    /// In which life servers have told it last: what they say again counts once.
    lives: BTreeMap<ServerId, Life>,
}

/// How it is known what a server may have given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// It was given before this life, and the server has said how much it can be.
    Said(Life),
    /// Nobody has heard of the server: it is the most that the executor takes.
    Guessed,
}

/// What a server may have given at some moment, at the most.
#[derive(Clone, Copy, Debug)]
struct Given {
    jobs: OpenJobs,
    since: Timestamp,
    /// By then it is over for certain, whatever the executor has been given since.
    over_at: Timestamp,
}

impl Given {
    fn new(jobs: OpenJobs, since: Timestamp) -> Self {
        // Nothing more is taken from anybody, whatever they say.
        let count = jobs.count.min(LIMIT_MAX.into());
        Self { jobs: OpenJobs { count, ..jobs }, since, over_at: since }
    }

    /// Both, of which the executor has no more than it takes from one server.
    fn or(self, other: Self) -> Self {
        let jobs = OpenJobs {
            count: self.jobs.count.max(other.jobs.count),
            longest_ms: self.jobs.longest_ms.max(other.jobs.longest_ms),
        };
        let (since, over_at) = (self.since.max(other.since), self.over_at.max(other.over_at));
        Self { jobs, since, over_at }
    }

    /// So many of them, each of which takes the executor so long by the clock.
    fn works(self, one: &ExecutorRegistered) -> impl Iterator<Item = Work> {
        let longest = i64::try_from(self.jobs.longest_ms).unwrap_or(i64::MAX);
        let takes = by_the_clock(one, longest.saturating_add(lag(one).0));
        std::iter::repeat_n(Work(takes), self.jobs.count as usize)
    }
}

impl Shade {
    /// Time has passed: what is over by now does not count any more.
    fn pass(&mut self, now: Timestamp) {
        if self.until.is_some_and(|until| until <= now) {
            self.from.clear();
            self.behind.clear();
            self.queue = Queue::default();
        }
        let was_any = !self.from.is_empty();
        self.from.retain(|_, given| given.over_at > now);
        self.is_over |= was_any && self.from.is_empty();
    }

    /// Finds out by when all is over, with what is known.
    fn note(&mut self, one: &ExecutorRegistered, known: BTreeMap<TaskId, Work>, now: Timestamp) {
        self.pass(now);
        let mut known = known;
        if std::mem::take(&mut self.is_over) {
            self.behind = known.keys().copied().collect();
        }
        if self.from.is_empty() {
            self.behind.retain(|task| known.contains_key(task));
            known.retain(|task, _| self.behind.contains(task));
        }
        let works: Vec<Work> = self.from.values().flat_map(|given| given.works(one)).collect();
        let is_any = !works.is_empty() || !known.is_empty();
        let hands = hands_for_any(one) as usize;
        self.until = is_any.then(|| self.queue.note(known, &works, hands, now));
    }

    /// What a server has said of an earlier life is among what it says of its last.
    fn put(&mut self, (from, source): (ServerId, Source), given: Given) {
        let is_earlier = |of: &(ServerId, Source), _: &mut Given| {
            of.0 == from && discriminant(&of.1) == discriminant(&source)
        };
        let given = self.from.extract_if(.., is_earlier).fold(given, |all, (_, it)| all.or(it));
        self.from.insert((from, source), given);
        self.is_over = false;
    }
}

impl Forgotten {
    /// Until when an executor may be busy with something that nobody knows of.
    pub(super) fn shade_until(&self, executor: &Arc<str>) -> Option<Timestamp> {
        self.executors.get(executor)?.until
    }

    /// An executor is not there any more.
    pub(super) fn forget(&mut self, executor: &Arc<str>) {
        self.executors.remove(executor);
    }
}

impl Site {
    /// A case was read when this server began. What is open of it executors may have, also if it is suspended by now or lacks
    /// something to be given out again.
    pub(crate) fn recall_open_jobs_of(&mut self, id: InstanceId) {
        let Some((schema, state)) = self.instances.state(id) else { return };
        let standing = self.standing(id);
        let jobs = state.open(schema).filter_map(|open| {
            let node = schema.node(open.activity.node);
            let job = node.job().filter(|_| standing.controls(schema, state, node.id))?;
            let leg = leg_of(schema, state, &open.activity);
            let takes = leg.map_or(0, |leg| i64::try_from(leg.takes_ms).unwrap_or(i64::MAX));
            Some((job.clone(), takes))
        });
        for (job, takes) in jobs.collect::<Vec<_>>() {
            let longest = self.planning.forgotten.open.entry(job).or_default();
            *longest = takes.max(*longest);
        }
    }

    /// This server begins, for the first time or anew: where something is open now executors may have it from before, as often
    /// as they take it.
    pub(crate) fn recall_open_jobs(&mut self, now: Timestamp) {
        let open = std::mem::take(&mut self.planning.forgotten.open);
        // What is open in a case that is still to be read nobody knows.
        let is_unread = !self.unread.is_empty();
        let is_any = |one: &ExecutorRegistered| {
            is_unread || one.types.iter().any(|own| open.contains_key(&own.job))
        };
        let all = self.executors.registry.all().map(|(_, one)| one.clone());
        let all: Vec<Arc<ExecutorRegistered>> = all.filter(|one| is_any(one)).collect();
        let lengths = if all.is_empty() { BTreeMap::new() } else { self.longest_in_use(&open) };
        let mut forgotten = BTreeMap::new();
        for one in all {
            let longest_ms = self.longest_by_ms(&one, |job| lengths.get(job).copied());
            let read_ms = if is_unread { self.longest_of_ms(&one) } else { 0 };
            let longest_ms = longest_ms.max(read_ms).unsigned_abs();
            let count = taken_from_one(&one).into();
            forgotten.insert(one.name.clone(), OpenJobs { count, longest_ms });
        }
        self.planning.forgotten.begun = Some((now, forgotten));
    }

    /// What an executor may have from here that was given before this server began anew.
    fn forgotten_here(&self, name: &str) -> OpenJobs {
        let begun = self.planning.forgotten.begun.as_ref();
        begun.and_then(|(_, had)| had.get(name)).copied().unwrap_or_default()
    }

    /// What another server is told that keeps these executors.
    pub(super) fn forgot(&self, executors: &[Name], now: Timestamp) -> Option<Box<Forgot>> {
        let (begun_at, _) = self.planning.forgotten.begun.as_ref()?;
        let jobs: Vec<OpenJobs> =
            executors.iter().map(|Name(name)| self.forgotten_here(name)).collect();
        let ago_ms = now.since(*begun_at).as_millis() as u64;
        let is_any = jobs.iter().any(|jobs| jobs.count > 0);
        is_any.then(|| Box::new(Forgot { life: self.config.life, ago_ms, jobs }))
    }

    /// Another server has told what executors that are kept here have from it, and what they may have from before.
    pub(crate) fn hear_forgot(
        &mut self,
        from: ServerId,
        executors: &[Name],
        forgot: Option<&Forgot>,
        now: Timestamp,
    ) {
        for (place, Name(name)) in executors.iter().enumerate() {
            if !self.planning.opening.keeps(name) {
                continue;
            }
            self.guess_no_more(name, from, now);
            let jobs = forgot.and_then(|forgot| forgot.jobs.get(place)).copied();
            let jobs = jobs.filter(|jobs| jobs.count > 0);
            if let (Some(forgot), Some(jobs)) = (forgot, jobs) {
                let since = Timestamp(now.0.saturating_sub_unsigned(forgot.ago_ms));
                let of = (from, Source::Said(forgot.life));
                self.may_have(name, of, Given::new(jobs, since), now);
            }
        }
    }

    /// A server was heard of. With less than was taken to be there, all is over no later.
    fn guess_no_more(&mut self, name: &Arc<str>, from: ServerId, now: Timestamp) {
        let shade = self.planning.forgotten.executors.entry(name.clone()).or_default();
        let before = shade.until;
        if shade.from.remove(&(from, Source::Guessed)).is_none() {
            return;
        }
        self.look_behind(name, now);
        if let Some(shade) = self.planning.forgotten.executors.get_mut(name)
            && let Some((before, until)) = before.zip(shade.until)
        {
            shade.until = Some(until.min(before));
            shade.queue.put_off(until.min(before));
        }
        self.cast_shade(name);
        self.executors.plans_changed();
    }

    /// Of these servers nobody has heard what they have given to an executor.
    pub(super) fn guess_forgotten(
        &mut self,
        name: &Arc<str>,
        unheard: impl Iterator<Item = ServerId>,
        now: Timestamp,
    ) {
        let Some((_, one)) = self.executors.registry.named(name) else { return };
        let one = one.clone();
        let longest_ms = self.longest_of_ms(&one).unsigned_abs();
        let jobs = OpenJobs { count: taken_from_one(&one).into(), longest_ms };
        for from in unheard {
            // Since then it may have given nothing.
            let since = self.planning.reach.down_since(from).unwrap_or(now);
            self.may_have(name, (from, Source::Guessed), Given::new(jobs, since), now);
        }
    }

    /// Somebody's plan is made here: it is looked what it may have from here.
    pub(super) fn recall_forgotten(&mut self, resource: &ResourceId, now: Timestamp) {
        let ResourceId::Executor(name) = resource else { return };
        let jobs = self.forgotten_here(name);
        if let Some((since, _)) = self.planning.forgotten.begun.as_ref().filter(|_| jobs.count > 0)
        {
            let (since, of) = (*since, (self.server_here(), Source::Said(self.config.life)));
            self.may_have(name, of, Given::new(jobs, since), now);
        }
        self.cast_shade(name);
    }

    /// An executor may have something from a server.
    fn may_have(&mut self, name: &Arc<str>, of: (ServerId, Source), given: Given, now: Timestamp) {
        let shade = self.planning.forgotten.executors.entry(name.clone()).or_default();
        if let (from, Source::Said(life)) = of
            && shade.lives.insert(from, life) == Some(life)
        {
            return;
        }
        let over_at = self.over_at(name, given);
        if over_at <= now {
            return;
        }
        if let Some(shade) = self.planning.forgotten.executors.get_mut(name) {
            shade.pass(now);
            shade.put(of, Given { over_at, ..given });
        }
        self.look_behind(name, now);
    }

    /// When it is over for certain what was given at some moment: all servers may have given as much before, and what
    /// came later was begun later.
    fn over_at(&mut self, name: &Arc<str>, given: Given) -> Timestamp {
        let since = given.since;
        let Some((_, one)) = self.executors.registry.named(name) else { return since };
        let one = one.clone();
        let servers = self.other_servers().count() + 1;
        let (longest_ms, count) = (self.longest_of_ms(&one).unsigned_abs(), taken_from_one(&one));
        let most = given.or(Given::new(OpenJobs { count: count.into(), longest_ms }, since));
        let all: Vec<Work> = (0..servers).flat_map(|_| most.works(&one)).collect();
        Queue::default().note(BTreeMap::new(), &all, hands_for_any(&one) as usize, since)
    }

    /// An executor is not what it was: what it may have may be over later than was thought.
    pub(super) fn look_anew(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(shade) = self.planning.forgotten.executors.get(name) else { return };
        for (of, given) in shade.from.clone() {
            let over_at = self.over_at(name, given).max(given.over_at);
            let shade = self.planning.forgotten.executors.get_mut(name);
            shade.into_iter().for_each(|shade| shade.put(of, Given { over_at, ..given }));
        }
        self.look_behind(name, now);
    }

    /// Finds out anew by when all is over that an executor has or may have: more of it is known.
    pub(super) fn look_behind(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some((id, _)) = self.executors.registry.named(name) else { return };
        let Some(shade) = self.planning.forgotten.executors.get_mut(name) else { return };
        shade.pass(now);
        shade.queue = Queue::default();
        let lanes = self.hands_of(id).map_or(0, |(lanes, _)| lanes);
        let known = self.occupants(id, &ResourceId::Executor(name.clone()), lanes);
        self.note_shade(name, &known, now);
    }

    /// What an executor is given while it may have something else comes behind that.
    pub(super) fn note_shade(&mut self, name: &Arc<str>, known: &[Occupant], now: Timestamp) {
        let Some((_, one)) = self.executors.registry.named(name) else { return };
        let Some(shade) = self.planning.forgotten.executors.get_mut(name) else { return };
        let before = shade.until;
        let known = known.iter().map(|one| (task_id(one.task()), Work(one.takes_ms())));
        shade.note(one, known.collect(), now);
        if shade.until < before {
            // Who had to wait for that may begin.
            self.executors.plans_changed();
        }
        if before.is_some() || shade.until.is_some() {
            self.cast_shade(name);
        }
    }

    fn cast_shade(&mut self, name: &Arc<str>) {
        let shade = self.planning.forgotten.executors.get(name);
        let until = shade.and_then(|shade| shade.until);
        let over = shade.into_iter().flat_map(|shade| shade.from.values().map(|it| it.over_at));
        let next = over.chain(until).min();
        self.planning.busy_until =
            next.map_or(self.planning.busy_until, |next| self.planning.busy_until.min(next));
        if let Some(node) = &mut self.planning.node {
            node.desk.shade(&ResourceId::Executor(name.clone()), until);
        }
    }
}
