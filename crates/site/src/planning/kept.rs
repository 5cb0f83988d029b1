//! Which executors other servers keep: whoever gives them work asks those first (`lending`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_promise::ResourceId;
use legwork_schedule::ExecutorId;

use super::lending::{Asked, Leave, task_key};
use crate::Site;
use crate::jobs::JobKey;
use crate::message::{Message, Name, Stage, TurnOf};
use crate::output::Output;

/// How long a server that begins anew waits to hear which executors are kept.
const UNHEARD: Duration = Duration::from_secs(2);
/// How long is believed what a planner has told.
const KEPT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct KeptElsewhere {
    /// Which executors are kept, by who keeps their plans, and when that was told.
    by: BTreeMap<ServerId, (BTreeSet<Arc<str>>, Timestamp)>,
    /// When jobs were first given out here, and who has told since which executors are kept.
    begun_at: Option<Timestamp>,
    heard: BTreeSet<ServerId>,
    /// It is not waited any longer for those who have not.
    is_settled: bool,
}

impl KeptElsewhere {
    /// When something that was told does not count any more, or it is waited for it no longer.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let settled = self.begun_at.filter(|_| !self.is_settled).map(|at| at + UNHEARD);
        self.by.values().map(|(_, at)| *at + KEPT).chain(settled).min()
    }
}

impl Site {
    /// Who keeps an executor, if that is another server.
    pub(super) fn kept_elsewhere(&self, id: ExecutorId, now: Timestamp) -> Option<ServerId> {
        if self.planning.kept.by.is_empty() {
            return None;
        }
        let name = &self.executors.registry.get(id)?.name;
        let planner = self.planner_of(&ResourceId::Executor(name.clone()));
        let (kept, at) = self.planning.kept.by.get(&planner)?;
        let is_kept = planner != self.server_here() && kept.contains(name);
        (is_kept && now.since(*at) < KEPT).then_some(planner)
    }

    /// Whether leave for a job was asked for so long of somebody who is not heard of that it is not waited for any more.
    pub(super) fn is_asked_in_vain(&self, key: &JobKey, id: ExecutorId, now: Timestamp) -> bool {
        let asked = self.planning.lending.asked.get(&task_key(key));
        let is_long = asked.is_some_and(|asked| now.since(asked.since) >= KEPT);
        is_long && self.kept_elsewhere(id, now).is_none()
    }

    /// Whether others keep executors, as far as is known.
    pub(super) fn knows_kept(&self) -> bool {
        !self.planning.kept.by.is_empty() || self.has_just_begun()
    }

    /// Whether another server keeps an executor, or its planner has not told yet whether it does.
    pub(super) fn may_be_kept_elsewhere(&self, id: ExecutorId, now: Timestamp) -> bool {
        self.kept_elsewhere(id, now).is_some() || self.has_just_begun() && self.is_unheard(id)
    }

    /// Jobs are given out since a moment ago. It may have been a restart: whatever was known before is not any more.
    fn has_just_begun(&self) -> bool {
        !self.planning.kept.is_settled
    }

    fn is_unheard(&self, id: ExecutorId) -> bool {
        let Some(one) = self.executors.registry.get(id) else { return false };
        let planner = self.planner_of(&ResourceId::Executor(one.name.clone()));
        planner != self.server_here() && !self.planning.kept.heard.contains(&planner)
    }

    /// Jobs are given out from now on; after a moment also those that waited to hear who is kept.
    pub(super) fn note_begun(&mut self, now: Timestamp) {
        if self.other_servers().next().is_none() {
            self.planning.kept.is_settled = true;
        }
        let Some(begun_at) = self.planning.kept.begun_at else {
            self.planning.kept.begun_at = Some(now);
            return;
        };
        if now.since(begun_at) >= UNHEARD && !self.planning.kept.is_settled {
            self.planning.kept.is_settled = true;
            self.executors.plans_changed();
        }
    }

    /// What a planner has told long ago does not count any more: whoever waited for its leave goes on.
    pub(super) fn forget_kept(&mut self, now: Timestamp) {
        let kept = &mut self.planning.kept.by;
        let before = kept.len();
        kept.retain(|_, (_, at)| now.since(*at) < KEPT);
        if kept.len() < before {
            self.executors.plans_changed();
        }
    }

    /// A planner tells which executors it keeps: it is told what they have from here without its leave.
    pub(crate) fn hear_kept(&mut self, from: ServerId, executors: Vec<Name>, now: Timestamp) {
        self.note_begun(now);
        let mut busy = Vec::new();
        for Name(name) in &executors {
            let Some((id, _)) = self.executors.registry.named(name) else { continue };
            for (key, gift) in self.executors.given.at(id) {
                let task = task_key(&key);
                // Nobody knows here whether it was begun: it may queue behind what others have given.
                let (executor, takes_ms) = (name.clone(), gift.takes_ms.unsigned_abs());
                let (stage, ago_ms) = (Stage::Begun, now.since(gift.at).as_millis() as u64);
                let turn = TurnOf { task, executor, takes_ms, stage, ago_ms };
                busy.push(turn.clone());
                let (executor, planner, leave) = (id, from, Leave::Used);
                let asked = Asked { key, executor, turn, planner, since: now, at: now, leave };
                self.planning.lending.asked.entry(task).or_insert(asked);
            }
        }
        let kept: BTreeSet<Arc<str>> = executors.iter().map(|name| name.0.clone()).collect();
        match kept.is_empty() {
            true => drop(self.planning.kept.by.remove(&from)),
            false => drop(self.planning.kept.by.insert(from, (kept, now))),
        }
        let forgot = self.forgot(&executors, now);
        let message = Message::Heard { executors, busy, forgot };
        self.out.push(Output::Send { to: from, message });
        if self.planning.kept.heard.insert(from) && self.has_just_begun() {
            self.executors.plans_changed();
        }
    }
}
