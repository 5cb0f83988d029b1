//! Servers that assign work to four specialists, each of which does one task at a time.
//!
//! Invariant: servers know only what messages tell. They assign as the site does: an executor takes tasks of the
//! types of which it has a share, round-robin, if it needs more and has room.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use legwork_model::time::Timestamp;
use legwork_schedule::{
    AssignmentId, Book, Candidate, ExecutorId, Feedback, KindId, Plan, Task, Waiting,
};

const KINDS: usize = 4;
/// The service time at the executor that is good at the type, and at the others.
pub(crate) const OWN_MS: i64 = 50;
const OTHERS_MS: i64 = 500;
/// The latency of a message.
const WAY_MS: i64 = 2;
const PLAN_EVERY_MS: i64 = 1_000;
/// A run that takes longer never ends.
const END_MS: i64 = 1_000_000;

/// How the steps of a case follow each other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Shape {
    Sequence,
    Parallel,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) shape: Shape,
    pub(crate) servers: usize,
    /// Of each executor, per server.
    pub(crate) limit: usize,
    /// Per server.
    pub(crate) cases: usize,
    /// Whether executors report their number of tasks and service times.
    pub(crate) tells: bool,
}

/// A task at an executor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Given {
    server: usize,
    executor: usize,
    kind: usize,
    assignment: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives(Given),
    Done(usize),
    Answered(Given, usize),
    Replan(usize),
}

struct Server {
    book: Book,
    plan: Plan,
    /// The number of waiting and of assigned tasks by type.
    waiting: [usize; KINDS],
    given: [usize; KINDS],
    /// The number of tasks at each executor.
    has: [usize; KINDS],
}

struct World {
    setting: Setting,
    servers: Vec<Server>,
    executors: [VecDeque<Given>; KINDS],
    events: BinaryHeap<Reverse<(i64, u64, Event)>>,
    last: u64,
    now: i64,
    left: usize,
}

/// The makespan, or `None` if the run does not end.
pub(crate) fn makespan_ms(setting: Setting) -> Option<i64> {
    let mut waiting = [setting.cases; KINDS];
    if setting.shape == Shape::Sequence {
        waiting[1..].fill(0);
    }
    let server = |_| Server {
        book: Book::new(KINDS),
        plan: Plan::default(),
        waiting,
        given: [0; KINDS],
        has: [0; KINDS],
    };
    let mut world = World {
        setting,
        servers: (0..setting.servers).map(server).collect(),
        executors: Default::default(),
        events: BinaryHeap::new(),
        last: 0,
        now: 0,
        left: setting.cases * setting.servers * KINDS,
    };
    for server in 0..setting.servers {
        world.put(PLAN_EVERY_MS, Event::Replan(server));
        world.settle(server);
    }
    while world.left > 0 {
        let Reverse((now, _, event)) = world.events.pop()?;
        world.now = (now < END_MS).then_some(now)?;
        world.happen(event);
    }
    Some(world.now)
}

fn all() -> Vec<Candidate> {
    (0..KINDS as u32).map(|id| Candidate::near(ExecutorId(id))).collect()
}

fn takes_ms(Given { executor, kind, .. }: Given) -> i64 {
    if executor == kind { OWN_MS } else { OTHERS_MS }
}

fn task(kind: usize) -> Task {
    Task { kind: KindId(kind as u32), size: 1.0, attempt: 0 }
}

impl World {
    fn put(&mut self, after: i64, event: Event) {
        self.last += 1;
        self.events.push(Reverse((self.now + after, self.last, event)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrives(given) => {
                let queue = &mut self.executors[given.executor];
                queue.push_back(given);
                if queue.len() == 1 {
                    self.put(takes_ms(given), Event::Done(given.executor));
                }
            }
            Event::Done(executor) => {
                let queue = &mut self.executors[executor];
                let Some(done) = queue.pop_front() else { return };
                let (has, next) = (queue.len(), queue.front().copied());
                self.put(WAY_MS, Event::Answered(done, has));
                if let Some(next) = next {
                    self.put(takes_ms(next), Event::Done(executor));
                }
            }
            Event::Answered(done, has) => self.answered(done, has),
            Event::Replan(server) => {
                let one = &mut self.servers[server];
                let waiting: Vec<_> = (0..KINDS).map(|kind| one.waiting(kind)).collect();
                let waiting = waiting.into_iter().map(|(kind, waiting)| (kind, waiting, all()));
                one.plan.anew(&one.book, &waiting.collect::<Vec<_>>(), Timestamp(self.now));
                self.settle(server);
                self.put(PLAN_EVERY_MS, Event::Replan(server));
            }
        }
    }

    fn answered(&mut self, done: Given, has: usize) {
        let Given { server, executor, kind, assignment } = done;
        let (now, assignment) = (Timestamp(self.now), AssignmentId(assignment));
        let one = &mut self.servers[server];
        if self.setting.tells {
            let took_ms = Some(takes_ms(done) as u64);
            let feedback = Feedback { has: Some(has as u32), took_ms };
            one.book.note_feedback(assignment, feedback, true, now);
        }
        one.book.answered(assignment, now);
        one.has[executor] -= 1;
        self.left -= 1;
        if self.setting.shape == Shape::Sequence && kind + 1 < KINDS {
            one.waiting[kind + 1] += 1;
        }
        self.settle(server);
    }

    /// Assigns what can be assigned.
    fn settle(&mut self, server: usize) {
        let now = Timestamp(self.now);
        let one = &mut self.servers[server];
        for kind in 0..KINDS {
            let waiting = one.waiting(kind);
            one.plan.follow(&one.book, waiting, &all(), now);
        }
        let mut is_over = false;
        while !is_over {
            is_over = true;
            for executor in 0..KINDS {
                let one = &mut self.servers[server];
                let Some(kind) = one.next_for(executor, self.setting.limit, now) else { continue };
                let assignment = one.give(executor, kind, now).0;
                is_over = false;
                self.put(WAY_MS, Event::Arrives(Given { server, executor, kind, assignment }));
            }
        }
    }
}

impl Server {
    fn waiting(&self, kind: usize) -> (KindId, Waiting) {
        let tasks = self.waiting[kind];
        (KindId(kind as u32), Waiting { tasks, units: tasks as f64 })
    }

    /// The type of which an executor gets the next task.
    fn next_for(&mut self, executor: usize, limit: usize, now: Timestamp) -> Option<usize> {
        let id = ExecutorId(executor as u32);
        if self.has[executor] >= limit || !self.book.needs_more(id) {
            return None;
        }
        let mut kinds: Vec<usize> = (0..KINDS).filter(|kind| self.waiting[*kind] > 0).collect();
        kinds.sort_by_key(|kind| self.given[*kind]);
        let own = kinds.iter().find(|kind| self.plan.is_for(id, KindId(**kind as u32)));
        if own.is_some() || !self.book.has_free_slot(id) {
            return own.copied();
        }
        let Self { plan, book, .. } = self;
        let to = Candidate::near(id);
        kinds.into_iter().find(|kind| plan.help(book, (to, &task(*kind)), &all(), now))
    }

    fn give(&mut self, executor: usize, kind: usize, now: Timestamp) -> AssignmentId {
        let id = ExecutorId(executor as u32);
        self.waiting[kind] -= 1;
        self.given[kind] += 1;
        self.has[executor] += 1;
        self.plan.take(id, KindId(kind as u32));
        self.book.assigned(Candidate::near(id), task(kind), now)
    }
}
