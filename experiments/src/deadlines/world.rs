//! Three nodes with the production planner each, a network that takes time, and clocks that only go on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_promise::{
    Desk, Discipline, Effect, Load, Node, Overheads, Part, Policy, ResourceId, Said, Setup,
    Strategy, Supply, Task, TaskId, Ticket, Window, Work,
};

use super::drawn::{Arrival, HORIZON, NODES, REGULAR, UNIT};

/// How long a message takes, and after how long it is noticed that a node is gone.
const DELAY: i64 = UNIT;
const NOTICED: i64 = 3 * UNIT;
/// What planning costs the node that does it.
const GUARANTEE: i64 = UNIT / 10;
const REMOVAL: i64 = 3 * UNIT / 10;
const CLUSTERING: i64 = UNIT / 2;
/// A task can wait for so many times its service time before it is urgent: for longer than any here.
const URGENCY: i64 = 10;
/// The node that is lost, who stands in for it, and when.
pub(super) const FAULTY: usize = 0;
const DEPUTY: usize = 1;
pub(super) const LOST_AT: i64 = HORIZON * 67 / 100;

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) strategy: Strategy,
    pub(super) removes: bool,
    pub(super) fault: Fault,
    /// Somebody stands in for the node that may be lost.
    pub(super) has_deputy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Others notice, promise anew what was lost and stand in.
    Tolerated,
    /// Others notice, and ask the lost node for nothing any more.
    Noticed,
    /// Nobody notices: of whom nothing is heard is taken to have all their time, and is asked.
    Ignored,
}

/// What became of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) promised: bool,
    pub(super) kept: bool,
    /// It was promised, and whoever wanted it was told that it is not any more.
    pub(super) told: bool,
}

enum Event {
    Arrives(usize),
    /// What arrives at a lost node reaches its deputy.
    Redirected(usize),
    Heard {
        from: ServerId,
        said: Said,
    },
    /// What a node works on is done if it still is at it.
    Done {
        node: usize,
        work: u64,
    },
    /// Whoever asked for a task hears that it is done.
    Told {
        node: usize,
        task: TaskId,
    },
    /// A node has something to look at.
    Due(usize),
    Lost,
    Noticed,
}

struct Machine {
    node: Node,
    resource: ResourceId,
    /// Counts what was begun, to tell an event about earlier work.
    work: u64,
    at_work: Option<(Ticket, u64)>,
    /// When it looks next at what is due.
    looks_at: i64,
    is_lost: bool,
}

pub(super) struct World<'a> {
    arrivals: &'a [Arrival],
    setting: Setting,
    machines: Vec<Machine>,
    events: BinaryHeap<Reverse<(i64, u64, usize)>>,
    details: BTreeMap<usize, Event>,
    count: usize,
    fates: Vec<Fate>,
    /// At which node each task was asked for, and whether another one has promised it as a whole.
    askers: Vec<usize>,
    elsewhere: Vec<bool>,
    /// Parts that are done, of tasks that were taken apart.
    parts_done: BTreeMap<TaskId, usize>,
    pub(super) messages: u64,
}

fn server(node: usize) -> ServerId {
    ServerId(node as u16)
}

fn resource(node: usize) -> ResourceId {
    ResourceId::Executor(format!("node-{node}").into())
}

/// Runs it to the end; answers what became of every task, and how many messages were said.
pub(super) fn run(arrivals: &[Arrival], setting: Setting, seed: u64) -> (Vec<Fate>, u64) {
    let mut world = World::new(arrivals, setting, seed);
    while let Some(Reverse((now, _, number))) = world.events.pop() {
        if now > 2 * HORIZON {
            break;
        }
        if let Some(event) = world.details.remove(&number) {
            world.happens(event, now);
        }
    }
    world.check();
    (world.fates, world.messages)
}

impl<'a> World<'a> {
    fn new(arrivals: &'a [Arrival], setting: Setting, seed: u64) -> Self {
        let machines = (0..NODES).map(|node| machine(node, setting, seed)).collect();
        let mut world = Self {
            arrivals,
            setting,
            machines,
            events: BinaryHeap::new(),
            details: BTreeMap::new(),
            count: 0,
            fates: vec![Fate::default(); arrivals.len()],
            askers: arrivals.iter().map(|arrival| arrival.node).collect(),
            elsewhere: vec![false; arrivals.len()],
            parts_done: BTreeMap::new(),
            messages: 0,
        };
        for (number, arrival) in arrivals.iter().enumerate() {
            world.later(arrival.at, Event::Arrives(number));
        }
        if setting.fault != Fault::None {
            world.later(LOST_AT, Event::Lost);
        }
        if setting.fault == Fault::Tolerated {
            world.later(LOST_AT + NOTICED, Event::Noticed);
        }
        (0..NODES).for_each(|node| world.attend(node, 0));
        world
    }

    fn later(&mut self, at: i64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, self.count as u64, self.count)));
        self.details.insert(self.count, event);
    }

    fn happens(&mut self, event: Event, now: i64) {
        match event {
            Event::Arrives(number) => self.arrives(number, now),
            Event::Redirected(number) => self.submitted(number, DEPUTY, now),
            Event::Heard { from, said } => {
                let to = usize::from(said.to.0);
                if !self.machines[to].is_lost {
                    let effects = self.machines[to].node.hear(from, said, Timestamp(now));
                    self.carry_out(to, effects, now);
                }
            }
            Event::Done { node, work } => self.done(node, work, now),
            Event::Told { node, task } => {
                if !self.machines[node].is_lost {
                    let effects = self.machines[node].node.finish(task);
                    self.carry_out(node, effects, now);
                }
            }
            Event::Due(node) => {
                if !self.machines[node].is_lost {
                    let effects = self.machines[node].node.tick(Timestamp(now));
                    self.carry_out(node, effects, now);
                }
            }
            Event::Lost => self.machines[FAULTY].is_lost = true,
            Event::Noticed => {
                for node in (0..NODES).filter(|node| *node != FAULTY) {
                    let effects = self.machines[node].node.lose(server(FAULTY), Timestamp(now));
                    self.carry_out(node, effects, now);
                }
            }
        }
    }

    fn arrives(&mut self, number: usize, now: i64) {
        let Arrival { node, .. } = self.arrivals[number];
        match (self.machines[node].is_lost, self.setting.fault) {
            (false, _) => self.submitted(number, node, now),
            (true, Fault::Tolerated) => {
                let known = now.max(LOST_AT + NOTICED);
                self.later(known + DELAY, Event::Redirected(number));
            }
            (true, Fault::None | Fault::Noticed | Fault::Ignored) => {}
        }
    }

    fn submitted(&mut self, number: usize, node: usize, now: i64) {
        self.askers[number] = node;
        let task = self.task(number, now);
        let effects = self.machines[node].node.submit(task, Timestamp(now));
        self.carry_out(node, effects, now);
    }

    fn task(&self, number: usize, now: i64) -> Task {
        let arrival = &self.arrivals[number];
        let is_avoided = self.setting.fault == Fault::Noticed && now >= LOST_AT + NOTICED;
        let who = if arrival.is_global {
            let could = (0..NODES).filter(|node| !is_avoided || *node != FAULTY);
            could.map(resource).collect()
        } else {
            vec![resource(arrival.node)]
        };
        let window =
            Window { release: Timestamp(arrival.at), deadline: Timestamp(arrival.deadline) };
        let id = TaskId::new(InstanceId(number as u128), 0);
        let mut task = Task::new(id, window, Work(arrival.service), who);
        task.priority = arrival.priority;
        task.may_abort = true;
        if arrival.node == FAULTY && !arrival.is_global && self.setting.has_deputy {
            task.deputies = vec![resource(DEPUTY)];
        }
        task.parts = parts(arrival);
        task
    }

    fn done(&mut self, node: usize, work: u64, now: i64) {
        let machine = &mut self.machines[node];
        let Some((ticket, _)) = machine.at_work.take_if(|(_, at)| *at == work) else { return };
        if machine.is_lost {
            return;
        }
        machine.node.desk.pass(Timestamp(now));
        let id = machine.node.desk.task_of(&machine.resource, 0, ticket);
        let mut effects = Vec::new();
        match id {
            Some(id) => {
                drop(machine.node.end(id, &mut effects));
                self.kept(id, node, now);
            }
            None => {
                let plan = machine.node.desk.plan_mut(&machine.resource, 0);
                plan.map(|plan| plan.end(ticket));
            }
        }
        self.carry_out(node, effects, now);
    }

    fn kept(&mut self, id: TaskId, node: usize, now: i64) {
        let number = id.instance.0 as usize;
        let arrival = &self.arrivals[number];
        if id.part > 0 {
            let whole = TaskId { part: 0, ..id };
            let done = self.parts_done.entry(whole).or_default();
            *done += 1;
            if *done < parts(arrival).len() {
                return;
            }
        }
        assert!(now <= arrival.deadline, "task {number}: {now} is later than promised");
        self.fates[number].kept = true;
        let asker = self.askers[number];
        let way = if asker == node { 0 } else { DELAY };
        self.later(now + way, Event::Told { node: asker, task: TaskId { part: 0, ..id } });
    }

    /// Whatever was promised was kept, or whoever wanted it was told. Where the fault is tolerated, only those may not have
    /// been who asked the lost node itself: what was due before it was noticed, and what another node had promised for it
    /// and took back, of which nobody but the lost one knows.
    fn check(&self) {
        for (number, fate) in self.fates.iter().enumerate() {
            let is_silent = fate.promised && !fate.kept && !fate.told;
            let is_excused = match self.setting.fault {
                Fault::None => false,
                Fault::Tolerated => {
                    let is_soon = self.arrivals[number].deadline <= LOST_AT + NOTICED;
                    self.askers[number] == FAULTY && (is_soon || self.elsewhere[number])
                }
                Fault::Noticed | Fault::Ignored => true,
            };
            assert!(!is_silent || is_excused, "task {number}: broken, and nobody was told");
        }
    }

    fn carry_out(&mut self, node: usize, effects: Vec<Effect>, now: i64) {
        for effect in effects {
            match effect {
                Effect::Say(said) => {
                    self.messages += 1;
                    self.later(now + DELAY, Event::Heard { from: server(node), said });
                }
                Effect::Promised { at, promise } => {
                    let number = promise.task.instance.0 as usize;
                    let there = &self.machines[usize::from(at.0)].node.desk;
                    self.elsewhere[number] =
                        at != server(node) && there.task(promise.task).is_some();
                    let fate = &mut self.fates[number];
                    (fate.promised, fate.told) = (true, false);
                }
                Effect::Removed { task } | Effect::Lost { task } | Effect::Refused { task, .. } => {
                    self.parts_done.remove(&task);
                    self.fates[task.instance.0 as usize].told = true;
                }
            }
        }
        self.attend(node, now);
    }

    /// The node works on what is first, and looks again when it has to.
    fn attend(&mut self, number: usize, now: i64) {
        let machine = &mut self.machines[number];
        if machine.is_lost {
            return;
        }
        let Some(plan) = machine.node.desk.plan_mut(&machine.resource, 0) else { return };
        plan.pass(Timestamp(now));
        let (next, release) = (plan.next(), plan.next_release());
        if plan.running() != next || machine.at_work.map(|(ticket, _)| ticket) != next {
            plan.stop();
            machine.at_work = None;
            if let Some(ticket) = next {
                plan.begin_with(ticket);
                machine.work += 1;
                machine.at_work = Some((ticket, machine.work));
                let left = plan.left(ticket).unwrap_or_default().0;
                let work = machine.work;
                self.later(now + left, Event::Done { node: number, work });
            }
        }
        let due = self.machines[number].node.next_due();
        let looks = [due, release].into_iter().flatten().map(|at| at.0.max(now + 1)).min();
        let machine = &mut self.machines[number];
        if let Some(at) = looks.filter(|at| machine.looks_at <= now || *at < machine.looks_at) {
            machine.looks_at = at;
            self.later(at, Event::Due(number));
        }
    }
}

fn machine(number: usize, setting: Setting, seed: u64) -> Machine {
    let resource_id = resource(number);
    let (period, cost) = REGULAR[number];
    let setup = Setup {
        supply: Supply::always(Timestamp(0)),
        discipline: Discipline::Preemptive,
        at_once: 1,
        loads: vec![Load { period: Work(period), cost: Work(cost), is_attended: true }],
        jobs: Vec::new(),
        lag: Work(0),
    };
    let mut desk = Desk::default();
    assert!(desk.add(resource_id.clone(), &setup, Timestamp(0)), "regular work leaves time");
    let overheads = Overheads {
        of: resource_id.clone(),
        guarantee: Work(GUARANTEE),
        removal: Work(REMOVAL),
        clustering: Work(CLUSTERING),
    };
    let policy = Policy {
        comes_back: false,
        strategy: setting.strategy,
        delay_ms: DELAY,
        asks_late: false,
        removes: setting.removes,
        urgency: URGENCY,
        overheads: Some(overheads),
        ..Policy::default()
    };
    let mut node = Node::new(server(number), desk, policy, seed * NODES as u64 + number as u64);
    (0..NODES).for_each(|other| node.know(resource(other), server(other)));
    if number == FAULTY && setting.has_deputy {
        node.deputise(server(DEPUTY));
    }
    Machine { node, resource: resource_id, work: 0, at_work: None, looks_at: 0, is_lost: false }
}

fn parts(arrival: &Arrival) -> Vec<Part> {
    if arrival.middle.is_empty() || !arrival.is_global {
        return Vec::new();
    }
    let ends = (arrival.service - arrival.middle.iter().sum::<i64>()) / 2;
    let part = |service, after| Part { service: Work(service), after, carry: Work(UNIT / 2) };
    let count = arrival.middle.len() as u16;
    let middle = arrival.middle.iter().map(|service| part(*service, vec![0]));
    std::iter::once(part(ends, Vec::new()))
        .chain(middle)
        .chain([part(ends, (1..=count).collect())])
        .collect()
}
