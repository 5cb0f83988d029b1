//! What servers gave to executors and nobody knows any more.
//!
//! A server that begins anew gives all its open jobs out anew, to whomever; which of them executors still have from
//! before it does not know. Nor does anybody know what a server has given that is not heard of. So whoever keeps the plan
//! of an executor counts the most that can be: as many jobs as were open there, or as the executor takes from one server,
//! each as long as the longest of them. Nothing more is promised that would not be in time behind all that, and behind what
//! is known (`legwork_promise::Desk::shade`).
//!
//! Invariant: a server that is heard of is taken at its word, and what was promised before is not touched.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_promise::{Queue, ResourceId, Work};

use super::occupied::Occupant;
use super::regular::{by_the_clock, lag};
use super::resources::hands;
use super::task_id;
use crate::Site;
use crate::message::{Forgot, Name, OpenJobs};

/// Drawn anew whenever a server begins.
type Life = u64;

#[derive(Debug, Default)]
pub(super) struct Forgotten {
    /// When jobs were first given out here, and which were open then.
    begun: Option<(Timestamp, BTreeMap<Arc<str>, OpenJobs>)>,
    /// What executors whose plans are here may have.
    executors: BTreeMap<Arc<str>, Shade>,
}

/// What an executor may have, and by when it is over.
#[derive(Debug, Default)]
struct Shade {
    from: BTreeMap<(ServerId, Source), OpenJobs>,
    /// With all that is known, in whatever order.
    queue: Queue,
    until: Option<Timestamp>,
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
}

impl Shade {
    /// Time has passed; whether all is over by now.
    fn pass(&mut self, now: Timestamp) -> bool {
        let is_over = self.until.is_some_and(|until| until <= now);
        if is_over {
            self.from.clear();
            (self.queue, self.until) = (Queue::default(), None);
        }
        is_over
    }
}

impl Forgotten {
    /// An executor is not there any more.
    pub(super) fn forget(&mut self, executor: &Arc<str>) {
        self.executors.remove(executor);
    }
}

impl Site {
    /// Jobs are given out from now on: what is open now executors may have from before.
    pub(super) fn recall_open_jobs(&mut self, now: Timestamp) {
        let open = self.jobs.waiting().map(|(job, count)| {
            let longest_ms = self.longest_in_use_ms(job).unsigned_abs();
            (job.clone(), OpenJobs { count: count as u64, longest_ms })
        });
        self.planning.forgotten.begun = Some((now, open.collect()));
    }

    /// What an executor may have from here that was given before this server began anew.
    fn forgotten_here(&self, name: &str) -> OpenJobs {
        let (Some((_, one)), Some((_, open))) =
            (self.executors.registry.named(name), &self.planning.forgotten.begun)
        else {
            return OpenJobs::default();
        };
        let own = one.types.iter().filter_map(|own| open.get(&own.job));
        own.fold(OpenJobs::default(), |all, of| OpenJobs {
            count: all.count.saturating_add(of.count).min(one.limit.into()),
            longest_ms: all.longest_ms.max(of.longest_ms),
        })
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
                self.may_have(name, (from, Source::Said(forgot.life)), Given { jobs, since }, now);
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
        let jobs = OpenJobs { count: one.limit.into(), longest_ms };
        for from in unheard {
            // Since then it may have given nothing.
            let since = self.planning.reach.down_since(from).unwrap_or(now);
            self.may_have(name, (from, Source::Guessed), Given { jobs, since }, now);
        }
    }

    /// Somebody's plan is made here: it is looked what it may have from here.
    pub(super) fn recall_forgotten(&mut self, resource: &ResourceId, now: Timestamp) {
        let ResourceId::Executor(name) = resource else { return };
        let jobs = self.forgotten_here(name);
        if let Some((since, _)) = self.planning.forgotten.begun.as_ref().filter(|_| jobs.count > 0)
        {
            let (since, of) = (*since, (self.server_here(), Source::Said(self.config.life)));
            self.may_have(name, of, Given { jobs, since }, now);
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
        if self.over_at(name, given) <= now {
            return;
        }
        if let Some(shade) = self.planning.forgotten.executors.get_mut(name) {
            shade.pass(now);
            shade.from.insert(of, given.jobs);
        }
        self.look_behind(name, now);
    }

    /// When it is over for certain what was given at some moment: all servers may have given as much before.
    fn over_at(&mut self, name: &Arc<str>, Given { jobs, since }: Given) -> Timestamp {
        let Some((_, one)) = self.executors.registry.named(name) else { return since };
        let one = one.clone();
        let servers = self.other_servers().count() + 1;
        let longest = self.longest_of_ms(&one).max(millis_of(jobs));
        let count = (one.limit as usize).saturating_mul(servers);
        let all = vec![Work(by_the_clock(&one, longest.saturating_add(lag(&one).0))); count];
        Queue::default().note(BTreeMap::new(), &all, hands(&one) as usize, since)
    }

    /// Finds out anew by when all is over that an executor has or may have: more of it is known.
    pub(super) fn look_behind(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some((id, _)) = self.executors.registry.named(name) else { return };
        let Some(shade) = self.planning.forgotten.executors.get_mut(name) else { return };
        shade.pass(now);
        (shade.queue, shade.until) = (Queue::default(), None);
        let lanes = self.hands_of(id).map_or(0, |(lanes, _)| lanes);
        let known = self.occupants(id, &ResourceId::Executor(name.clone()), lanes);
        self.note_shade(name, &known, now);
    }

    /// What an executor is given while it may have something else comes behind that.
    pub(super) fn note_shade(&mut self, name: &Arc<str>, known: &[Occupant], now: Timestamp) {
        let Some((_, one)) = self.executors.registry.named(name) else { return };
        let one = one.clone();
        let Some(shade) = self.planning.forgotten.executors.get_mut(name) else { return };
        if shade.pass(now) || shade.from.is_empty() && shade.until.take().is_some() {
            // Who had to wait for that may begin.
            self.executors.plans_changed();
            self.cast_shade(name);
        }
        let Some(shade) = self.planning.forgotten.executors.get_mut(name) else { return };
        if shade.from.is_empty() {
            return;
        }
        // It takes no more of one server, whatever that says.
        let works = shade.from.values().flat_map(|jobs| {
            let count = jobs.count.min(one.limit.into()) as usize;
            let takes = by_the_clock(&one, millis_of(*jobs).saturating_add(lag(&one).0));
            std::iter::repeat_n(Work(takes), count)
        });
        let works: Vec<Work> = works.collect();
        let known = known.iter().map(|one| (task_id(one.task()), Work(one.takes_ms())));
        shade.until = Some(shade.queue.note(known.collect(), &works, hands(&one) as usize, now));
        self.cast_shade(name);
    }

    fn cast_shade(&mut self, name: &Arc<str>) {
        let until = self.planning.forgotten.executors.get(name).and_then(|shade| shade.until);
        if let Some(until) = until {
            self.planning.busy_until = self.planning.busy_until.min(until);
        }
        if let Some(node) = &mut self.planning.node {
            node.desk.shade(&ResourceId::Executor(name.clone()), until);
        }
    }
}

fn millis_of(jobs: OpenJobs) -> i64 {
    i64::try_from(jobs.longest_ms).unwrap_or(i64::MAX)
}
