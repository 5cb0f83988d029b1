//! Executors that several servers give work to: none of them promises anything before its planner knows what it
//! has from all others.
//!
//! When somebody wants something promised by an executor, its planner tells all servers that it keeps the
//! executor; each tells what it has given to it, and asks from then on (`lending`). What was asked meanwhile waits.
//! A server that does not answer in time does not count: that is a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_promise::{Message as Told, ResourceId, Said, Task};

use crate::Site;
use crate::message::{Message, Name, TurnOf};
use crate::output::Output;

/// How long is waited for those that say nothing.
const OPENING_MAX: Duration = Duration::from_secs(1);
/// How often those are told again that say nothing meanwhile.
const HURRIED: Duration = Duration::from_millis(250);
/// How often all are told again who is kept.
const TOLD: Duration = Duration::from_secs(5);
/// How long an executor is kept after somebody wanted something of it and nothing is promised.
const KEPT: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Opening {
    /// The executors that are kept here.
    kept: BTreeMap<Arc<str>, Kept>,
    /// Those of which it is not known yet what they have.
    unopened: BTreeSet<Arc<str>>,
    told_at: Timestamp,
    hurried_at: Timestamp,
    has_changed: bool,
    /// Who can be reached again, and may have begun anew.
    greeted: BTreeSet<ServerId>,
    /// What waits until it is known what executors have.
    deferred: Vec<Deferred>,
}

impl Opening {
    pub(super) fn keeps(&self, executor: &Arc<str>) -> bool {
        self.kept.contains_key(executor)
    }

    fn unopened(&self) -> impl Iterator<Item = &Kept> {
        self.unopened.iter().filter_map(|name| self.kept.get(name))
    }

    /// An executor is not there any more.
    pub(super) fn forget(&mut self, executor: &Arc<str>) {
        self.has_changed |= self.kept.remove(executor).is_some();
    }

    /// Somebody who can be reached again may not know who is kept, and waits to hear it, also if nobody is.
    pub(super) fn greet(&mut self, server: ServerId) {
        self.greeted.insert(server);
    }

    /// Who is told now which executors are kept: all, or those that may not know it, or have not answered and are waited for.
    fn untold(&mut self, others: BTreeSet<ServerId>, now: Timestamp) -> BTreeSet<ServerId> {
        let greeted = std::mem::take(&mut self.greeted);
        let is_due = !self.kept.is_empty() && now.since(self.told_at) >= TOLD;
        if std::mem::take(&mut self.has_changed) || is_due {
            (self.told_at, self.hurried_at) = (now, now);
            return others;
        }
        if now.since(self.hurried_at) < HURRIED {
            return &greeted & &others;
        }
        self.hurried_at = now;
        let opening = self.unopened().filter(|kept| !kept.is_open(now));
        let missing: BTreeSet<ServerId> = opening.flat_map(|kept| &kept.missing).copied().collect();
        &(&missing | &greeted) & &others
    }
}

#[derive(Debug)]
struct Kept {
    since: Timestamp,
    /// When somebody wanted something of it.
    used: Timestamp,
    /// Who has not told what it has from them, and is waited for.
    missing: BTreeSet<ServerId>,
    /// The same, waited for or not.
    unheard: BTreeSet<ServerId>,
}

impl Kept {
    fn is_open(&self, now: Timestamp) -> bool {
        self.missing.is_empty() || now.since(self.since) >= OPENING_MAX
    }
}

#[derive(Debug)]
enum Deferred {
    Submit(Box<Task>),
    Said(ServerId, Box<Said>),
}

impl Deferred {
    fn who(&self) -> Vec<ResourceId> {
        match self {
            Self::Submit(task) => task.who.clone(),
            Self::Said(_, said) => wanted(said),
        }
    }
}

/// Whom another planner wants something of.
pub(super) fn wanted(said: &Said) -> Vec<ResourceId> {
    match &said.message {
        Told::Offer(offer) => offer.tasks.iter().flat_map(|task| &task.who).cloned().collect(),
        Told::Request { task, .. } => task.who.clone(),
        Told::Bid { .. }
        | Told::Answer { .. }
        | Told::Cancel { .. }
        | Told::Confirm { .. }
        | Told::TakenBack { .. }
        | Told::Take { .. }
        | Told::Keep { .. }
        | Told::Done { .. } => Vec::new(),
    }
}

impl Site {
    /// Has a task promised, as soon as it is known what its executors have.
    pub(super) fn submit_when_open(&mut self, task: Task, now: Timestamp) {
        if self.are_open(&task.who, now) {
            return self.plan(now, |node| node.submit(task, now));
        }
        self.planning.opening.deferred.push(Deferred::Submit(Box::new(task)));
    }

    /// Whether what another planner says has to wait; it is heard later then.
    pub(super) fn defers(&mut self, from: ServerId, said: &Said, now: Timestamp) -> bool {
        let is_open = self.are_open(&wanted(said), now);
        if !is_open {
            let said = Box::new(said.clone());
            self.planning.opening.deferred.push(Deferred::Said(from, said));
        }
        !is_open
    }

    /// Whether it is known what all these executors have; from now on they are kept.
    pub(super) fn are_open(&mut self, who: &[ResourceId], now: Timestamp) -> bool {
        if self.other_servers().next().is_none() {
            return true;
        }
        let mut are_open = true;
        for id in who {
            let ResourceId::Executor(name) = id else { continue };
            if self.planner_of(id) == self.server_here() {
                let kept = self.keep_executor(name, now);
                kept.used = now;
                are_open &= kept.is_open(now);
            }
        }
        // What they may have is known before anything is promised.
        self.note_opened(now);
        are_open
    }

    /// Whether it is known here what an executor has, from whomever.
    pub(super) fn is_open(&self, executor: &Arc<str>, now: Timestamp) -> bool {
        let kept = self.planning.opening.kept.get(executor);
        kept.is_some_and(|kept| kept.is_open(now)) || self.other_servers().next().is_none()
    }

    /// Whoever had to wait until it is known what an executor has may begin now.
    pub(super) fn note_opened(&mut self, now: Timestamp) {
        let Opening { kept, unopened, .. } = &mut self.planning.opening;
        let mut opened = Vec::new();
        unopened.retain(|name| {
            // It may not be kept any more.
            let Some(own) = kept.get(name) else { return false };
            if own.is_open(now) {
                opened.push((name.clone(), own.unheard.clone()));
            }
            !own.is_open(now)
        });
        if !opened.is_empty() {
            self.executors.plans_changed();
        }
        for (name, unheard) in opened {
            self.look_behind(&name, now);
            self.guess_forgotten(&name, unheard.into_iter(), now);
        }
    }

    fn keep_executor(&mut self, name: &Arc<str>, now: Timestamp) -> &mut Kept {
        let unheard: BTreeSet<ServerId> = match self.planning.opening.kept.contains_key(name) {
            true => BTreeSet::new(),
            false => self.other_servers().collect(),
        };
        // Whoever is lost is not waited for.
        let is_lost = |server: &&ServerId| self.planning.reach.is_lost(**server);
        let missing = unheard.iter().filter(|server| !is_lost(server)).copied().collect();
        let opening = &mut self.planning.opening;
        opening.kept.entry(name.clone()).or_insert_with(|| {
            opening.has_changed = true;
            opening.unopened.insert(name.clone());
            Kept { since: now, used: now, missing, unheard }
        })
    }

    /// Tells all others which executors are kept here, and goes on with what has waited for their answers.
    pub(super) fn settle_openings(&mut self, now: Timestamp) {
        self.keep_those_with_promises(now);
        let others: BTreeSet<ServerId> = self.other_servers().collect();
        for to in self.planning.opening.untold(others, now) {
            let kept = self.planning.opening.kept.keys();
            let message = Message::Kept { executors: kept.cloned().map(Name).collect() };
            self.out.push(Output::Send { to, message });
        }
        for deferred in std::mem::take(&mut self.planning.opening.deferred) {
            if !self.are_open(&deferred.who(), now) {
                self.planning.opening.deferred.push(deferred);
                continue;
            }
            match deferred {
                // Whoever wanted it may have gone.
                Deferred::Submit(task) => {
                    let is_again = self.planning.again.is_trying(task.id);
                    if is_again || self.planning.routes.contains_key(&task.id.instance) {
                        self.plan(now, |node| node.submit(*task, now));
                        self.go_on_with_all(now);
                    }
                }
                Deferred::Said(from, said) => self.hear_said(from, *said, now),
            }
        }
    }

    /// What has promises is kept, also after a restart; what nobody wants anything of is kept no longer.
    fn keep_those_with_promises(&mut self, now: Timestamp) {
        if !std::mem::take(&mut self.planning.lending.has_other_plans)
            && self.planning.opening.kept.is_empty()
        {
            return;
        }
        let Some(node) = &self.planning.node else { return };
        let promised = node.desk.resources().filter_map(|id| match id {
            ResourceId::Executor(name) => node.desk.has_promised(id).then(|| name.clone()),
            ResourceId::Person(_) => None,
        });
        let promised: BTreeSet<Arc<str>> = promised.collect();
        if self.other_servers().next().is_some() {
            promised.iter().for_each(|name| self.keep_executor(name, now).used = now);
        }
        let opening = &mut self.planning.opening;
        let before = opening.kept.len();
        opening.kept.retain(|name, kept| promised.contains(name) || now.since(kept.used) < KEPT);
        opening.has_changed |= opening.kept.len() < before;
    }

    /// Another server knows which executors are kept here, and tells what they have from it.
    pub(crate) fn hear_heard(
        &mut self,
        from: ServerId,
        executors: &[Name],
        busy: Vec<TurnOf>,
        now: Timestamp,
    ) {
        self.compare_lent(from, executors, &busy, now);
        busy.into_iter().for_each(|turn| self.hear_turn(from, turn, now));
        for Name(name) in executors {
            if let Some(kept) = self.planning.opening.kept.get_mut(name) {
                kept.missing.remove(&from);
                kept.unheard.remove(&from);
            }
        }
    }

    /// When somebody is told again, or waited for no longer.
    pub(super) fn next_opening(&self) -> Option<Timestamp> {
        let opening = &self.planning.opening;
        let Opening { kept, told_at, hurried_at, greeted, .. } = opening;
        let greeted = (!greeted.is_empty()).then_some(self.latest);
        let told = (!kept.is_empty()).then(|| *told_at + TOLD);
        let opening = opening.unopened().filter(|kept| !kept.is_open(self.latest));
        let opening =
            opening.map(|kept| (kept.since + OPENING_MAX).min(*hurried_at + HURRIED)).min();
        [told, opening, greeted].into_iter().flatten().min()
    }
}
