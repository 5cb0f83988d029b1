//! Three nodes in virtual time, a network with latency, and the loss of one node.
//!
//! Invariant: all variants of a loss are the same run until then.

use std::collections::BTreeMap;

use legwork_plan::TaskId;

use super::apart::parts;
use super::ask::Strategy;
use super::drawn::{Arrival, HORIZON, NODES, UNIT};
use super::node::{DELAY, Message, Node, Out, Wake, number, part};

/// The delay until the loss of a node is noticed.
const NOTICED: i64 = 3 * UNIT;
/// The node that is lost, its deputy, and when it is lost.
const FAULTY: usize = 0;
const DEPUTY: usize = 1;
pub(super) const LOST_AT: i64 = HORIZON * 67 / 100;

/// The compared setting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) strategy: Strategy,
    /// Whether less important tasks may be displaced.
    pub(super) removes: bool,
    /// Whether the node that may be lost has a deputy.
    pub(super) has_deputy: bool,
}

/// What happens after the loss of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// The paper's deputy also places what the lost node knew, besides the requests that the requesting nodes place
    /// again, and gets the arrivals of that node.
    Deputy,
    /// The policy of a server: the requesting nodes place the lost node's reservations again, and callers go to the
    /// other nodes.
    Server,
    /// Only reservations are placed again; arrivals at the lost node are lost.
    Reservations,
    /// The others continue to ask the lost node.
    Ignored,
}

/// The outcome of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) reserved: bool,
    pub(super) kept: bool,
    /// It was refused or revoked, and the caller was told.
    told: bool,
}

impl Fate {
    pub(super) fn is_good(&self) -> bool {
        self.reserved && self.kept
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) fates: Vec<Fate>,
    pub(super) messages: u64,
}

#[derive(Clone, Debug)]
enum Event {
    /// A task arrives at a node.
    Arrives(usize, usize),
    Delivered {
        from: usize,
        to: usize,
        surplus: i64,
        message: Message,
    },
    Wake(usize, Wake),
    /// A node checks for finished work, unless it looked later.
    Look(usize, u64),
    Lost,
    Noticed,
}

#[derive(Clone, Debug)]
pub(super) struct World<'a> {
    arrivals: &'a [Arrival],
    nodes: Vec<Node<'a>>,
    loss: Option<Loss>,
    is_lost: bool,
    events: BTreeMap<(i64, u64), Event>,
    count: u64,
    /// The number of looks of each node.
    looks: [u64; NODES],
    outcome: Outcome,
    /// How many parts of a task are done, by attempt.
    parts_done: BTreeMap<(usize, u64), usize>,
}

/// The result without a loss.
pub(super) fn run(arrivals: &[Arrival], setting: Setting, seed: u64) -> Outcome {
    World::new(arrivals, setting, seed).finished()
}

/// The same, and the result after each of these losses.
pub(super) fn run_with<const N: usize>(
    arrivals: &[Arrival],
    setting: Setting,
    seed: u64,
    losses: [Loss; N],
) -> (Outcome, [Outcome; N]) {
    let mut world = World::new(arrivals, setting, seed);
    world.run_until(LOST_AT);
    let lost = losses.map(|loss| {
        let mut world = world.clone();
        world.loss = Some(loss);
        world.later(LOST_AT, Event::Lost);
        world.later(LOST_AT + NOTICED, Event::Noticed);
        world.finished()
    });
    (world.finished(), lost)
}

impl<'a> World<'a> {
    fn new(arrivals: &'a [Arrival], setting: Setting, seed: u64) -> Self {
        let nodes = (0..NODES).map(|node| Node::new(node, arrivals, setting, seed));
        let mut nodes: Vec<Node<'_>> = nodes.collect();
        nodes[FAULTY].deputy = setting.has_deputy.then_some(DEPUTY);
        let fates = vec![Fate::default(); arrivals.len()];
        let mut world = Self {
            arrivals,
            nodes,
            loss: None,
            is_lost: false,
            events: BTreeMap::new(),
            count: 0,
            looks: [0; NODES],
            outcome: Outcome { fates, messages: 0 },
            parts_done: BTreeMap::new(),
        };
        for (number, arrival) in arrivals.iter().enumerate() {
            world.later(arrival.at, Event::Arrives(number, arrival.node));
        }
        (0..NODES).for_each(|node| world.at(node, 0, |_| ()));
        world
    }

    fn later(&mut self, at: i64, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    fn run_until(&mut self, end: i64) {
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 < end
        {
            let ((now, _), event) = entry.remove_entry();
            self.happens(event, now);
        }
    }

    /// Nothing is due later than six times a service time of ten units after the last arrival.
    fn finished(mut self) -> Outcome {
        self.run_until(HORIZON + HORIZON / 10);
        self.check();
        self.outcome
    }

    /// A node acts, works by due date, and its messages are delivered.
    fn at(&mut self, node: usize, now: i64, act: impl FnOnce(&mut Node<'a>)) {
        if self.is_lost && node == FAULTY {
            return;
        }
        let own = &mut self.nodes[node];
        own.hand.pass(now);
        act(own);
        let (done, next) = own.hand.work(now);
        if let Some(reservation) = done {
            own.did(&reservation, now);
            self.done(reservation.task, reservation.attempt, now);
        }
        self.looks[node] += 1;
        if let Some(next) = next {
            self.later(next, Event::Look(node, self.looks[node]));
        }
        for out in self.nodes[node].take_out() {
            self.carry_out(node, out, now);
        }
    }

    fn happens(&mut self, event: Event, now: i64) {
        match event {
            Event::Arrives(number, node) => self.arrives(number, node, now),
            Event::Delivered { from, to, surplus, message } => {
                self.at(to, now, |node| node.on_message(from, surplus, message, now));
            }
            Event::Wake(node, wake) => self.at(node, now, |node| node.wake(wake, now)),
            Event::Look(node, count) if self.looks[node] == count => self.at(node, now, |_| ()),
            Event::Look(..) => {}
            Event::Lost => self.is_lost = true,
            Event::Noticed => self.noticed(now),
        }
    }

    fn noticed(&mut self, now: i64) {
        let loss = self.loss.filter(|loss| *loss != Loss::Ignored);
        for node in (0..NODES).filter(|node| loss.is_some() && *node != FAULTY) {
            self.at(node, now, |node| {
                node.stands_in = loss == Some(Loss::Deputy) && node.me == DEPUTY;
                node.lose(FAULTY, now);
            });
        }
    }

    fn arrives(&mut self, number: usize, node: usize, now: i64) {
        if !self.is_lost || node != FAULTY {
            return self.at(node, now, |node| node.submit(part(number, 0), now));
        }
        let at = now.max(LOST_AT + NOTICED) + DELAY;
        match self.loss {
            Some(Loss::Deputy) => self.later(at, Event::Arrives(number, DEPUTY)),
            // The others in turn; tasks that only the lost node could do are refused.
            Some(Loss::Server) if self.arrivals[number].is_global => {
                let to = (FAULTY + 1 + number % (NODES - 1)) % NODES;
                self.later(at, Event::Arrives(number, to));
            }
            Some(Loss::Server | Loss::Reservations | Loss::Ignored) | None => {}
        }
    }

    fn carry_out(&mut self, node: usize, out: Out, now: i64) {
        match out {
            Out::Say { to, surplus, message } => {
                self.outcome.messages += 1;
                self.later(now + DELAY, Event::Delivered { from: node, to, surplus, message });
            }
            Out::Wake { at, wake } => self.later(at, Event::Wake(node, wake)),
            Out::Reserved(id) => {
                let fate = &mut self.outcome.fates[number(id)];
                (fate.reserved, fate.told) = (true, false);
            }
            Out::Revoked(id) => self.outcome.fates[number(id)].told = true,
        }
    }

    /// A task is done, or a part of one.
    fn done(&mut self, id: TaskId, attempt: u64, now: i64) {
        let arrival = &self.arrivals[number(id)];
        assert!(now <= arrival.deadline, "task {}: {now} is later than reserved", number(id));
        if id.step > 0 {
            let done = self.parts_done.entry((number(id), attempt)).or_default();
            *done += 1;
            if *done < parts(arrival).len() {
                return;
            }
        }
        self.outcome.fates[number(id)].kept = true;
    }

    /// Reserved tasks are done, or the caller was told. After a loss this need not hold for requests to the lost
    /// node, nor for requests of others to it if they never learn of the loss.
    fn check(&self) {
        for (arrival, fate) in self.arrivals.iter().zip(&self.outcome.fates) {
            let is_silent = fate.reserved && !fate.kept && !fate.told;
            let is_excused = match self.loss {
                None => false,
                Some(Loss::Server | Loss::Deputy | Loss::Reservations) => {
                    arrival.node == FAULTY && arrival.at < LOST_AT
                }
                Some(Loss::Ignored) => true,
            };
            assert!(!is_silent || is_excused, "not done, and its caller not told: {arrival:?}");
        }
    }
}
