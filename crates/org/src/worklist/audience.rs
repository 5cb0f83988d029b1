//! Visibility of items: queues of items with the same audience, and a list for every holder.
//!
//! An item is in the list of its queue's group (all queues whose sets have the same base) or, once
//! claimed, in the list of its holder; never in both. Nothing is stored per item and agent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use legwork_model::id::AgentId;
use rustc_hash::FxHashMap;

use super::list::{List, Retention};
use crate::resolve::Resolved;
use crate::set::{Members, Roster};

#[derive(Debug)]
pub(super) struct Audiences {
    pub(super) roster: Arc<Roster>,
    retention: Retention,
    groups: Vec<Option<Group>>,
    groups_free: Vec<u32>,
    group_of: FxHashMap<Arc<Members>, u32>,
    queues: Vec<Option<Queue>>,
    queues_free: Vec<u32>,
    queue_of: FxHashMap<QueueKey, u32>,
    /// The agents of the roster by number, then the strangers.
    people: Vec<Person>,
    strangers: BTreeMap<AgentId, u32>,
    stranger_names: Vec<AgentId>,
    /// Lists that were empty at some time, longest ago first; each at most once.
    idle: VecDeque<ListNo>,
    /// Lists changed since the last call of `take_touched`.
    touched: BTreeSet<ListNo>,
    /// Whether all lists count as changed.
    afresh: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListNo {
    Group(u32),
    Held(u32),
}

#[derive(Debug)]
struct Group {
    members: Arc<Members>,
    list: List,
    /// The number of its queues.
    queues: u32,
    /// Whether one of its queues ever barred an agent.
    bars: bool,
    idle: bool,
}

#[derive(Debug)]
struct Queue {
    /// Shared with the remembered removals.
    resolved: Arc<Resolved>,
    group: u32,
    /// The number of its items, held ones included.
    items: u32,
}

#[derive(PartialEq, Eq, Hash, Debug)]
struct QueueKey {
    actors: Arc<Members>,
    less: Box<[u32]>,
    barred: Arc<Members>,
    barred_less: Box<[u32]>,
}

#[derive(Debug, Default)]
struct Person {
    groups: Vec<u32>,
    held: Option<Box<List>>,
    idle: bool,
    /// Removals of dropped lists up to this revision are forgotten.
    horizon: u64,
}

impl Audiences {
    pub(super) fn new(roster: Arc<Roster>, retention: Retention) -> Self {
        let people = (0..roster.len()).map(|_| Person::default()).collect();
        Self {
            roster,
            retention,
            groups: Vec::new(),
            groups_free: Vec::new(),
            group_of: FxHashMap::default(),
            queues: Vec::new(),
            queues_free: Vec::new(),
            queue_of: FxHashMap::default(),
            people,
            strangers: BTreeMap::new(),
            stranger_names: Vec::new(),
            idle: VecDeque::new(),
            touched: BTreeSet::new(),
            afresh: true,
        }
    }

    pub(super) fn retention(&self) -> Retention {
        self.retention
    }

    /// Adds an item to the queue of these actors.
    pub(super) fn join(&mut self, resolved: &Resolved) -> u32 {
        let actors = resolved.actors.on(&self.roster);
        let barred = resolved.barred.on(&self.roster);
        let key = QueueKey {
            actors: actors.base().clone(),
            less: actors.less().into(),
            barred: barred.base().clone(),
            barred_less: barred.less().into(),
        };
        if let Some(&number) = self.queue_of.get(&key)
            && let Some(queue) = &mut self.queues[number as usize]
        {
            queue.items += 1;
            return number;
        }
        let group = self.group(&key.actors);
        if let Some(group) = &mut self.groups[group as usize] {
            group.bars |= !barred.is_empty();
        }
        let resolved = Arc::new(Resolved { actors, barred });
        let queue = Queue { resolved, group, items: 1 };
        let number = put(&mut self.queues, &mut self.queues_free, queue);
        self.queue_of.insert(key, number);
        number
    }

    /// Removes an item from its queue; called after the item has left its list.
    pub(super) fn part(&mut self, number: u32) {
        let Some(queue) = &mut self.queues[number as usize] else { return };
        queue.items -= 1;
        if queue.items > 0 {
            return;
        }
        let Some(queue) = self.queues[number as usize].take() else { return };
        self.queues_free.push(number);
        let Resolved { actors, barred } = &*queue.resolved;
        self.queue_of.remove(&QueueKey {
            actors: actors.base().clone(),
            less: actors.less().into(),
            barred: barred.base().clone(),
            barred_less: barred.less().into(),
        });
        if let Some(group) = &mut self.groups[queue.group as usize] {
            group.queues -= 1;
        }
        self.rest(ListNo::Group(queue.group));
    }

    pub(super) fn resolved(&self, queue: u32) -> Option<&Arc<Resolved>> {
        self.queues[queue as usize].as_ref().map(|queue| &queue.resolved)
    }

    pub(super) fn list_of_queue(&self, queue: u32) -> ListNo {
        ListNo::Group(self.queues[queue as usize].as_ref().map_or(0, |queue| queue.group))
    }

    pub(super) fn list(&self, number: ListNo) -> Option<&List> {
        match number {
            ListNo::Group(group) => self.groups[group as usize].as_ref().map(|group| &group.list),
            ListNo::Held(person) => self.people[person as usize].held.as_deref(),
        }
    }

    /// Whether a list may hold, or have held, an item from which an agent is barred.
    pub(super) fn bars(&self, number: ListNo) -> bool {
        match number {
            ListNo::Group(group) => {
                self.groups[group as usize].as_ref().is_some_and(|group| group.bars)
            }
            ListNo::Held(_) => true,
        }
    }

    /// A list to be changed.
    pub(super) fn list_mut(&mut self, number: ListNo) -> Option<&mut List> {
        self.touched.insert(number);
        match number {
            ListNo::Group(group) => {
                self.groups[group as usize].as_mut().map(|group| &mut group.list)
            }
            ListNo::Held(person) => {
                Some(&mut **self.people[person as usize].held.get_or_insert_default())
            }
        }
    }

    /// The lists changed since the last call; `None` if that may be all.
    pub(super) fn take_touched(&mut self) -> Option<BTreeSet<ListNo>> {
        let touched = std::mem::take(&mut self.touched);
        (!std::mem::take(&mut self.afresh)).then_some(touched)
    }

    /// The agents who can see items of a list: the members of its group, or its holder.
    pub(super) fn readers(&self, number: ListNo) -> (&[u32], Option<u32>) {
        match number {
            ListNo::Group(group) => {
                let group = self.groups[group as usize].as_ref();
                (group.map_or(&[], |group| group.members.numbers()), None)
            }
            // Strangers see nothing.
            ListNo::Held(person) => (&[], (!self.is_stranger(person)).then_some(person)),
        }
    }

    /// Drops what only readers with a cursor need.
    pub(super) fn forget(&mut self) {
        self.afresh = true;
        self.groups.iter_mut().flatten().for_each(|group| group.list.forget());
        self.people.iter_mut().filter_map(|person| person.held.as_mut()).for_each(|l| l.forget());
    }

    /// The lists that this agent can see items of, and the revision up to which removals from such
    /// lists are forgotten.
    pub(super) fn lists_of(&self, person: u32) -> (impl Iterator<Item = ListNo> + '_, u64) {
        let Person { groups, held, horizon, .. } = &self.people[person as usize];
        let held = held.is_some().then_some(ListNo::Held(person));
        (groups.iter().map(|&group| ListNo::Group(group)).chain(held), *horizon)
    }

    /// The number of an agent, who need not be in the organisation.
    pub(super) fn person(&mut self, agent: &AgentId) -> u32 {
        if let Some(number) = self.roster.number(agent) {
            return number;
        }
        if let Some(&number) = self.strangers.get(agent) {
            return number;
        }
        let number = self.people.len() as u32;
        self.people.push(Person::default());
        self.strangers.insert(agent.clone(), number);
        self.stranger_names.push(agent.clone());
        number
    }

    pub(super) fn is_stranger(&self, person: u32) -> bool {
        person as usize >= self.roster.len()
    }

    pub(super) fn name(&self, person: u32) -> &AgentId {
        match (person as usize).checked_sub(self.roster.len()) {
            None => self.roster.agent(person),
            Some(stranger) => &self.stranger_names[stranger],
        }
    }

    /// Notes that a list may be empty now, and drops the lists that have been empty for the
    /// longest.
    pub(super) fn rest(&mut self, number: ListNo) {
        if !self.is_idle(number) {
            return;
        }
        let noted = self.noted_mut(number);
        if noted.is_none_or(|noted| std::mem::replace(noted, true)) {
            return;
        }
        self.idle.push_back(number);
        while self.idle.len() > self.retention.idle_lists_max
            && let Some(number) = self.idle.pop_front()
        {
            if let Some(noted) = self.noted_mut(number) {
                *noted = false;
            }
            if self.is_idle(number) {
                self.drop_list(number);
            }
        }
    }

    fn is_idle(&self, number: ListNo) -> bool {
        let unused = match number {
            ListNo::Group(group) => {
                self.groups[group as usize].as_ref().is_some_and(|group| group.queues == 0)
            }
            ListNo::Held(_) => true,
        };
        unused && self.list(number).is_some_and(List::is_empty)
    }

    fn noted_mut(&mut self, number: ListNo) -> Option<&mut bool> {
        match number {
            ListNo::Group(group) => {
                self.groups[group as usize].as_mut().map(|group| &mut group.idle)
            }
            ListNo::Held(person) => Some(&mut self.people[person as usize].idle),
        }
    }

    fn drop_list(&mut self, number: ListNo) {
        match number {
            ListNo::Held(person) => {
                let person = &mut self.people[person as usize];
                let left = person.held.take().map_or(0, |list| list.left_last());
                person.horizon = person.horizon.max(left);
            }
            ListNo::Group(number) => {
                let Some(group) = self.groups[number as usize].take() else { return };
                // Its number may be reused before `take_concerned` runs.
                self.afresh |= self.touched.remove(&ListNo::Group(number));
                self.groups_free.push(number);
                self.group_of.remove(&group.members);
                for &member in group.members.numbers() {
                    let person = &mut self.people[member as usize];
                    person.groups.retain(|&group| group != number);
                    person.horizon = person.horizon.max(group.list.left_last());
                }
            }
        }
    }

    fn group(&mut self, members: &Arc<Members>) -> u32 {
        if let Some(&number) = self.group_of.get(members)
            && let Some(group) = &mut self.groups[number as usize]
        {
            group.queues += 1;
            return number;
        }
        let group = Group {
            members: members.clone(),
            list: List::default(),
            queues: 1,
            bars: false,
            idle: false,
        };
        let number = put(&mut self.groups, &mut self.groups_free, group);
        self.group_of.insert(members.clone(), number);
        for &member in members.numbers() {
            self.people[member as usize].groups.push(number);
        }
        number
    }
}

fn put<T>(all: &mut Vec<Option<T>>, free: &mut Vec<u32>, new: T) -> u32 {
    if let Some(number) = free.pop() {
        all[number as usize] = Some(new);
        return number;
    }
    all.push(Some(new));
    (all.len() - 1) as u32
}
