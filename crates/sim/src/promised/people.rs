//! People who work by their lists, in the hours of their calendars: of the steps planned for them they do the one
//! due first, and put aside later ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use legwork_model::id::{ActivityId, AgentId, ServerId};
use legwork_model::time::Timestamp;
use legwork_site::{Answer, Complete, Data, ItemInfo, Request, RequestId, Worklist};

use super::Office;
use super::material::decision;
use crate::dice::Dice;
use crate::world::Reply;

/// How often a request is passed on, and the pause between two looks at a list.
const HOPS_MAX: u32 = 4;
const LOOKS_EVERY: i64 = 2_000;
/// Nobody takes longer than planned, and messages take a moment: from half of the duration to nearly all, in per
/// cent.
const SHARE_MORE: usize = 48;
/// The time after which an unanswered request is repeated.
const PATIENCE: i64 = 20_000;

pub(super) struct Person {
    pub(super) agent: AgentId,
    /// The server whose list they read.
    place: usize,
    pub(super) is_gone: bool,
    pub(super) is_on_duty: bool,
    /// Items on the list, and the last known state of their own.
    offered: BTreeSet<ActivityId>,
    shown: BTreeMap<ActivityId, Shown>,
    /// Their claimed items, with the remaining work.
    taken: BTreeMap<ActivityId, i64>,
    /// The current item.
    current: Option<ActivityId>,
    looked_at: i64,
    asked: BTreeMap<(usize, RequestId), Asked>,
}

/// A list's description of an item: duration, due date, and performer.
struct Shown {
    takes: i64,
    due: Option<Timestamp>,
    by: Option<AgentId>,
}

struct Asked {
    deed: Deed,
    hops: u32,
    at: i64,
}

#[derive(Clone, PartialEq, Eq)]
enum Deed {
    Look,
    Claim(ActivityId, i64),
    Release(ActivityId),
    Complete(ActivityId),
}

impl Deed {
    fn activity(&self) -> Option<&ActivityId> {
        match self {
            Self::Look => None,
            Self::Claim(activity, _) | Self::Release(activity) | Self::Complete(activity) => {
                Some(activity)
            }
        }
    }
}

impl Person {
    pub(super) fn new(agent: AgentId, place: usize) -> Self {
        Self {
            agent,
            place,
            is_gone: false,
            is_on_duty: true,
            offered: BTreeSet::new(),
            shown: BTreeMap::new(),
            taken: BTreeMap::new(),
            current: None,
            looked_at: 0,
            asked: BTreeMap::new(),
        }
    }

    /// When they are done with the current item.
    pub(super) fn next_due(&self) -> Option<i64> {
        if self.asked.values().any(|asked| asked.deed != Deed::Look) {
            return Some(0);
        }
        self.current.as_ref().and_then(|current| self.taken.get(current)).copied()
    }

    /// They have worked for so long.
    pub(super) fn work(&mut self, passed: i64) {
        if !self.is_on_duty {
            return;
        }
        if let Some(left) = self.current.as_ref().and_then(|current| self.taken.get_mut(current)) {
            *left -= passed;
        }
    }

    pub(super) fn act(&mut self, office: &mut Office, dice: &mut Dice) {
        let now = office.now.0;
        self.asked.retain(|_, asked| now - asked.at < PATIENCE);
        if self.is_gone {
            return self.give_back_all(office);
        }
        if now - self.looked_at >= LOOKS_EVERY && !self.is_asked(&Deed::Look) {
            self.looked_at = now;
            if office.worlds[self.place].is_down() {
                self.place = dice.below(office.worlds.len());
            }
            self.ask(office, self.place, Deed::Look, 0);
        }
        self.taken.retain(|activity, _| !office.is_aborted(activity));
        let done: Vec<ActivityId> =
            self.taken.iter().filter(|(_, left)| **left <= 0).map(|(it, _)| it.clone()).collect();
        for activity in done {
            let at = self.place;
            self.ask_once(office, at, Deed::Complete(activity));
        }
        if self.is_on_duty {
            self.give_back_others(office);
            self.choose(office, dice);
        }
    }

    /// A person who leaves releases their items.
    fn give_back_all(&mut self, office: &mut Office) {
        self.current = None;
        for activity in self.taken.keys().cloned().collect::<Vec<_>>() {
            let at = office.any_up().unwrap_or(self.place);
            self.ask_once(office, at, Deed::Release(activity));
        }
    }

    /// Items that are now planned for another person are released.
    fn give_back_others(&mut self, office: &mut Office) {
        let of_others = |activity: &&ActivityId| {
            let shown = self.shown.get(activity);
            let by = shown.and_then(|shown| Some((shown.by.as_ref()?, shown.due?)));
            by.is_some_and(|(by, due)| *by != self.agent && office.is_left_to(by, due))
        };
        let taken = self.taken.iter().filter(|(_, left)| **left > 0).map(|(it, _)| it);
        let others: Vec<ActivityId> = taken.filter(of_others).cloned().collect();
        for activity in others {
            let at = self.place;
            self.ask_once(office, at, Deed::Release(activity));
        }
    }

    /// The item planned for them that is due first; otherwise one that is planned for nobody.
    fn choose(&mut self, office: &mut Office, dice: &mut Dice) {
        let taken = self.taken.iter().filter(|(_, left)| **left > 0).map(|(it, _)| it);
        let best = taken
            .chain(&self.offered)
            .filter_map(|activity| Some((self.rank(office, activity)?, activity)))
            .min()
            .map(|(_, activity)| activity.clone());
        let Some(best) = best else {
            self.current = None;
            return;
        };
        if !self.taken.contains_key(&best) && !self.is_asked_about(&best) {
            let said = self.shown.get(&best).map_or(0, |shown| shown.takes);
            let said = office.slot(&best).map_or(said, |slot| slot.takes);
            let takes = said * (50 + dice.below(SHARE_MORE) as i64) / 100;
            let at = self.place;
            self.ask(office, at, Deed::Claim(best.clone(), takes), 0);
        }
        self.current = Some(best);
    }

    /// The order of items; not those of other people, as long as those are present and not late.
    fn rank(&self, office: &Office, activity: &ActivityId) -> Option<(u8, Timestamp)> {
        if self.is_asked(&Deed::Release(activity.clone())) || office.is_aborted(activity) {
            return None;
        }
        let shown = self.shown.get(activity);
        let due = shown.and_then(|shown| shown.due).unwrap_or(Timestamp(i64::MAX));
        match shown.and_then(|shown| shown.by.as_ref()) {
            Some(by) if *by == self.agent => Some((0, due)),
            Some(by) if office.is_left_to(by, due) => None,
            Some(_) | None => Some((1, due)),
        }
    }

    fn is_asked(&self, deed: &Deed) -> bool {
        self.asked.values().any(|asked| asked.deed == *deed)
    }

    fn is_asked_about(&self, activity: &ActivityId) -> bool {
        self.asked.values().any(|asked| asked.deed.activity() == Some(activity))
    }

    fn ask_once(&mut self, office: &mut Office, place: usize, deed: Deed) {
        if deed.activity().is_none_or(|activity| !self.is_asked_about(activity)) {
            self.ask(office, place, deed, 0);
        }
    }

    fn ask(&mut self, office: &mut Office, place: usize, deed: Deed, hops: u32) {
        let agent = self.agent.clone();
        let request = match deed.clone() {
            Deed::Look => {
                Request::Worklist(Worklist { agent, since: None, limit: 100, wait_until: None })
            }
            Deed::Claim(activity, _) => Request::Claim { agent, activity },
            Deed::Release(activity) => Request::Release { agent, activity },
            Deed::Complete(activity) => Request::Complete(Complete {
                agent,
                answer: decision(&activity).map(str::to_owned),
                activity,
                data: Data::new(),
                request: None,
            }),
        };
        let id = office.worlds[place].ask(request);
        self.asked.insert((place, id), Asked { deed, hops, at: office.now.0 });
    }

    /// Handles answers.
    pub(super) fn listen(&mut self, office: &mut Office) {
        for key in self.asked.keys().copied().collect::<Vec<_>>() {
            let (place, id) = key;
            let Some(reply) = office.worlds[place].reply(id) else {
                if !office.worlds[place].is_asked(id) {
                    self.asked.remove(&key);
                }
                continue;
            };
            if let Some(Asked { deed, hops, .. }) = self.asked.remove(&key) {
                self.answered(office, deed, hops, reply);
            }
        }
    }

    fn answered(&mut self, office: &mut Office, deed: Deed, hops: u32, reply: Reply) {
        match (deed, reply) {
            (Deed::Look, Ok(Answer::Worklist(list))) => {
                let is_free = |by: &Option<AgentId>| by.as_ref().is_none_or(|by| *by == self.agent);
                let free = list.items.into_iter().filter(|item| is_free(&item.claimed_by));
                self.offered.clear();
                self.shown.retain(|activity, _| self.taken.contains_key(activity));
                for ItemInfo { activity, takes, due, planned_for: by, .. } in free {
                    let takes = takes.map_or(0, |takes| takes.as_millis() as i64);
                    self.offered.insert(activity.clone());
                    self.shown.insert(activity, Shown { takes, due, by });
                }
            }
            (Deed::Claim(activity, takes), Ok(_)) => drop(self.taken.insert(activity, takes)),
            (Deed::Release(activity), Ok(_)) => self.forget(&activity),
            (Deed::Complete(activity), Ok(_)) => {
                office.completions += 1;
                self.forget(&activity);
            }
            (Deed::Look, _) => {}
            (deed, Err(refusal)) => match refusal.at.filter(|_| hops < HOPS_MAX) {
                Some(ServerId(at)) => self.ask(office, usize::from(at), deed, hops + 1),
                // Another person has it, it is done, or it does not exist yet.
                None => deed.activity().into_iter().for_each(|activity| self.forget(activity)),
            },
        }
    }

    fn forget(&mut self, activity: &ActivityId) {
        self.taken.remove(activity);
        self.offered.remove(activity);
    }

    pub(super) fn describe(&self) -> Arc<str> {
        let (offered, taken) = (self.offered.len(), &self.taken);
        format!("{} gone {} offered {offered} taken {taken:?}", self.agent, self.is_gone).into()
    }
}
