//! What servers gave to executors and nobody knows any more.
//!
//! A server that begins anew gives all its open jobs out anew, to whomever; which of them executors still have from
//! before it does not know. Nor does anybody know what a server has given that is not heard of. So whoever keeps the plan
//! of an executor counts the most that can be: as many jobs as were open there, or as the executor takes from one server,
//! each as long as the longest of its types takes by any definition. Nothing more is promised that would not be in time
//! behind all that (`legwork_promise::Desk::shade`).
//!
//! Invariant: a server that is heard of is taken at its word, and what was promised before is not touched.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_promise::{Queue, ResourceId, Work};
use legwork_schedule::ExecutorId;

use super::busy::{USUAL, millis};
use super::regular::{by_the_clock, lag};
use super::resources::hands;
use crate::Site;
use crate::message::{Forgot, Name};

#[derive(Debug, Default)]
pub(super) struct Forgotten {
    /// When jobs were first given out here, and how many were open then, by their type.
    begun: Option<(Timestamp, BTreeMap<Arc<str>, usize>)>,
    /// What executors whose plans are here may have.
    executors: BTreeMap<Arc<str>, Shade>,
}

/// What an executor may have, and by when it is over.
#[derive(Debug, Default)]
struct Shade {
    /// How many jobs, by who may have given them and before which life; `None`: nobody has heard of that server.
    counts: BTreeMap<(ServerId, Option<u64>), usize>,
    until: Option<Timestamp>,
    /// In which life servers have told it last: what they say again counts once.
    lives: BTreeMap<ServerId, u64>,
}

impl Forgotten {
    /// Jobs are given out from now on.
    pub(super) fn begin<'j>(
        &mut self,
        open: impl Iterator<Item = (&'j Arc<str>, usize)>,
        now: Timestamp,
    ) {
        self.begun = Some((now, open.map(|(job, count)| (job.clone(), count)).collect()));
    }

    /// Executors whose plans may not be kept here any more are forgotten as well.
    pub(super) fn forget(&mut self, executor: &Arc<str>) {
        self.executors.remove(executor);
    }
}

impl Site {
    /// How many jobs an executor may have from here that were given before this server began anew.
    fn forgotten_here(&self, id: ExecutorId) -> usize {
        let (Some(one), Some((_, open))) =
            (self.executors.registry.get(id), &self.planning.forgotten.begun)
        else {
            return 0;
        };
        let own = one.types.iter().filter_map(|own| open.get(&own.job));
        own.sum::<usize>().min(one.limit as usize)
    }

    /// What another server is told that keeps these executors.
    pub(super) fn forgot(&self, executors: &[Name], now: Timestamp) -> Option<Box<Forgot>> {
        let (begun_at, _) = self.planning.forgotten.begun.as_ref()?;
        let named = |Name(name): &Name| self.executors.registry.named(name).map(|(id, _)| id);
        let count = |id| self.forgotten_here(id) as u64;
        let counts: Vec<u64> = executors.iter().map(|name| named(name).map_or(0, count)).collect();
        let ago_ms = now.since(*begun_at).as_millis() as u64;
        let is_any = counts.iter().any(|count| *count > 0);
        is_any.then(|| Box::new(Forgot { life: self.config.life, ago_ms, counts }))
    }

    /// Another server has told what it knows of some executors, and what it may have given to them before.
    pub(crate) fn hear_forgot(
        &mut self,
        from: ServerId,
        executors: &[Name],
        forgot: Option<&Forgot>,
        now: Timestamp,
    ) {
        for (place, Name(name)) in executors.iter().enumerate() {
            let count = forgot.and_then(|it| it.counts.get(place)).copied().unwrap_or(0);
            let shade = self.planning.forgotten.executors.entry(name.clone()).or_default();
            // It is not guessed any more.
            if shade.counts.remove(&(from, None)).is_some() && shade.counts.is_empty() {
                shade.until = None;
                self.cast_shade(name);
            }
            if let Some(forgot) = forgot.filter(|_| count > 0) {
                let since = Timestamp(now.0.saturating_sub_unsigned(forgot.ago_ms));
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                self.may_have(name, ((from, Some(forgot.life)), count), since, now);
            }
        }
    }

    /// Of these servers nobody has heard what they have given to an executor.
    pub(super) fn guess_forgotten(
        &mut self,
        name: &Arc<str>,
        unheard: impl Iterator<Item = ServerId>,
        now: Timestamp,
    ) {
        let Some((_, one)) = self.executors.registry.named(name) else { return };
        let limit = one.limit as usize;
        for from in unheard {
            // What it gave before is over the sooner.
            let since = self.planning.reach.down_since(from).unwrap_or(now);
            self.may_have(name, ((from, None), limit), since, now);
        }
    }

    /// Somebody's plan is made here: it is looked what it may have from here.
    pub(super) fn recall_forgotten(&mut self, resource: &ResourceId, now: Timestamp) {
        let ResourceId::Executor(name) = resource else { return };
        let Some((id, _)) = self.executors.registry.named(name) else { return };
        let count = self.forgotten_here(id);
        if let Some((since, _)) = self.planning.forgotten.begun.as_ref().filter(|_| count > 0) {
            let (since, life) = (*since, self.config.life);
            let of = (self.server_here(), Some(life));
            self.may_have(name, (of, count), since, now);
        }
        self.cast_shade(name);
    }

    /// It is known from all servers what an executor has: what it may have besides may be behind that.
    pub(super) fn look_behind(&mut self, name: &Arc<str>, now: Timestamp) {
        let shade = self.planning.forgotten.executors.get(name);
        if shade.is_some_and(|shade| shade.until.is_some_and(|until| until > now)) {
            self.shade_anew(name, now, now);
        }
    }

    /// An executor may have so many jobs since then.
    fn may_have(
        &mut self,
        name: &Arc<str>,
        (of, count): ((ServerId, Option<u64>), usize),
        since: Timestamp,
        now: Timestamp,
    ) {
        let shade = self.planning.forgotten.executors.entry(name.clone()).or_default();
        if shade.until.is_none_or(|until| until <= now) {
            // All that was counted before is over.
            shade.counts.clear();
        }
        if let (from, Some(life)) = of
            && shade.lives.insert(from, life) == Some(life)
        {
            return;
        }
        shade.counts.insert(of, count);
        self.shade_anew(name, since, now);
    }

    /// Finds out by when all is over that an executor has or may have, in whatever order.
    fn shade_anew(&mut self, name: &Arc<str>, since: Timestamp, now: Timestamp) {
        let Some((id, one)) = self.executors.registry.named(name) else { return };
        let (one, resource) = (one.clone(), ResourceId::Executor(name.clone()));
        let longest = by_the_clock(&one, self.longest_ms(id)).saturating_add(lag(&one).0);
        let lanes = self.hands_of(id).map_or(0, |(lanes, _)| lanes);
        let known = self.occupants(id, &resource, lanes);
        let Some(shade) = self.planning.forgotten.executors.get_mut(name) else { return };
        // It takes no more of one server, whatever that says.
        let most = one.limit as usize;
        let count = shade.counts.values().map(|count| (*count).min(most)).sum();
        let known = known.iter().map(|one| Work(one.takes_ms()));
        let all: Vec<Work> = std::iter::repeat_n(Work(longest), count).chain(known).collect();
        let until = Queue::default().note(BTreeMap::new(), &all, hands(&one) as usize, since);
        // No sooner than was said before.
        shade.until = shade.until.max(Some(until)).filter(|until| *until > now);
        self.cast_shade(name);
    }

    fn cast_shade(&mut self, name: &Arc<str>) {
        let until = self.planning.forgotten.executors.get(name).and_then(|shade| shade.until);
        if let Some(node) = &mut self.planning.node {
            node.desk.shade(&ResourceId::Executor(name.clone()), until);
        }
        self.executors.plans_changed();
    }

    /// How long the longest job takes that an executor may get, as far as definitions say it.
    fn longest_ms(&self, id: ExecutorId) -> i64 {
        let Some(one) = self.executors.registry.get(id) else { return 0 };
        let does = |job: &Arc<str>| one.types.iter().any(|own| own.job == *job);
        let mut longest = 0;
        for schema in self.catalog.schemas() {
            for node in schema.nodes.iter().filter(|node| node.job().is_some_and(does)) {
                let said = node.takes.map(|takes| Work(millis(takes)));
                let step = (schema.process.clone(), node.name.clone());
                let seen = self.planning.ledger.seen.get(&step);
                let refined =
                    said.map(|said| seen.map_or(said, |seen| seen.refine(said)).max(said));
                let timeout = || node.demand().and_then(|demand| demand.timeout);
                let takes = refined.unwrap_or_else(|| Work(millis(timeout().unwrap_or(USUAL))));
                longest = longest.max(takes.0);
            }
        }
        longest
    }
}
