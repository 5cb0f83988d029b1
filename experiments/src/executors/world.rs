//! Two engines and six executors in steps: the assignments, and when the last process ended.
//!
//! Invariant: an engine knows only when it assigned a task and when an answer came. An executor does one
//! task at a time, first in, first out; its tasks are lost when it dies, and so are all later ones.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use legwork_model::time::Timestamp;
use legwork_schedule::{
    AssignmentId, Book, Candidate, Dice, ExecutorId, KindId, Policy, Random, Task,
};

use super::drawn::{Drawn, ENGINES, INTERVAL};
use super::{EXECUTORS, KINDS};

/// How long policies that need a warm-up assign at random.
const WARM_UP: f64 = 1_000.0;
/// Milliseconds in a step.
const STEP_MS: f64 = 1_000.0;
/// The interval of checks for abandoned tasks.
const LOOK_EVERY: f64 = 10.0;
/// The interval of samples.
const SAMPLE_EVERY: f64 = 100.0;
/// A run that takes longer never ends.
const STEPS_MAX: f64 = 1_000_000.0;
/// Nor does one with so many attempts per task, on average.
const ATTEMPTS_MAX: usize = 50;

/// The faults of executors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setting {
    /// Answers time out, and this executor dies.
    pub(super) failure: Option<Failure>,
    /// This executor is missing.
    pub(super) without: Option<usize>,
    /// Executors drop tasks that were reassigned.
    pub(super) cancels: bool,
    /// Whether samples are recorded.
    pub(super) is_sampled: bool,
}

/// An executor dies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub(super) executor: usize,
    pub(super) at: f64,
    /// The usual time-out of an answer.
    pub(super) timeout: f64,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) steps: f64,
    pub(super) is_finished: bool,
    pub(super) samples: Vec<Sample>,
}

/// The queue of each executor, and the number of its timed-out tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) step: f64,
    pub(super) queues: [u32; EXECUTORS],
    pub(super) retries: [u32; EXECUTORS],
}

/// A policy, whether it begins at random, and whether it abandons assignments before their time-out.
pub(super) struct Chooser {
    pub(super) policy: Box<dyn Policy>,
    pub(super) warms_up: bool,
    pub(super) gives_up: bool,
}

/// Runs until all processes have ended.
pub(super) fn run(drawn: &Drawn, setting: Setting, chooser: impl Fn(u64) -> Chooser) -> Outcome {
    let mut world = World::new(drawn, setting, chooser);
    let (mut steps, mut samples) = (0.0, Vec::new());
    let tasks = world.left * KINDS;
    while world.left > 0
        && let Some(Event { at, engine, happening, .. }) = world.events.pop()
        && at < STEPS_MAX
        && world.assigned < ATTEMPTS_MAX * tasks
    {
        while setting.is_sampled && world.now.step <= at {
            samples.push(world.now);
            world.now.step += SAMPLE_EVERY;
        }
        steps = at;
        match happening {
            Happening::Arrival(process) => world.begin(engine, process, 0, at),
            Happening::Answer(id, executor) => world.answered(engine, id, executor, at),
            Happening::TimeOut(id) => world.timed_out(engine, id, at),
            Happening::Look => world.look(engine, at),
        }
    }
    Outcome { steps, is_finished: world.left == 0, samples }
}

struct Engine {
    chooser: Chooser,
    book: Book,
    tasks: Vec<Pending>,
    /// The task of each awaited assignment.
    awaited: BTreeMap<AssignmentId, usize>,
    random: Random,
}

/// A task that is not done.
struct Pending {
    process: usize,
    task: Task,
    tried: Vec<ExecutorId>,
}

#[derive(Clone, Copy)]
enum Happening {
    Arrival(usize),
    Answer(AssignmentId, ExecutorId),
    TimeOut(AssignmentId),
    Look,
}

struct Event {
    at: f64,
    number: u64,
    engine: usize,
    happening: Happening,
}

struct World<'a> {
    drawn: &'a Drawn,
    setting: Setting,
    engines: Vec<Engine>,
    events: BinaryHeap<Event>,
    events_made: u64,
    /// When each executor will have done its tasks.
    free_at: [f64; EXECUTORS],
    /// The queue of each, if tasks can be cancelled.
    queues: [Queue; EXECUTORS],
    left: usize,
    assigned: usize,
    now: Sample,
}

impl<'a> World<'a> {
    fn new(drawn: &'a Drawn, setting: Setting, chooser: impl Fn(u64) -> Chooser) -> Self {
        let engine = |number: u64| Engine {
            chooser: chooser(drawn.seed << 1 | number),
            book: super::policies::book(drawn),
            tasks: Vec::new(),
            awaited: BTreeMap::new(),
            random: Random(Dice::new(!drawn.seed ^ number)),
        };
        let mut world = Self {
            drawn,
            setting,
            engines: (0..ENGINES as u64).map(engine).collect(),
            events: BinaryHeap::new(),
            events_made: 0,
            free_at: [0.0; EXECUTORS],
            queues: Default::default(),
            left: drawn.sizes.iter().map(Vec::len).sum(),
            assigned: 0,
            now: Sample::default(),
        };
        for (engine, sizes) in drawn.sizes.iter().enumerate() {
            for process in 0..sizes.len() {
                world.put(process as f64 * INTERVAL, engine, Happening::Arrival(process));
            }
            if setting.failure.is_some() && world.engines[engine].chooser.gives_up {
                world.put(1.0, engine, Happening::Look);
            }
        }
        world
    }

    fn put(&mut self, at: f64, engine: usize, happening: Happening) {
        self.events_made += 1;
        self.events.push(Event { at, number: self.events_made, engine, happening });
    }

    fn is_alive(&self, executor: ExecutorId, at: f64) -> bool {
        let died = |failure: &Failure| failure.executor == executor.0 as usize && failure.at <= at;
        !self.setting.failure.as_ref().is_some_and(died)
    }

    /// The next activity of a process.
    fn begin(&mut self, engine: usize, process: usize, kind: usize, at: f64) {
        let size = self.drawn.sizes[engine][process][kind];
        let task = Task { kind: KindId(kind as u32), size, attempt: 0 };
        let tasks = &mut self.engines[engine].tasks;
        tasks.push(Pending { process, task, tried: Vec::new() });
        let task = tasks.len() - 1;
        self.assign(engine, task, at);
    }

    fn assign(&mut self, number: usize, task: usize, at: f64) {
        let now = moment(at);
        let engine = &mut self.engines[number];
        let pending = &mut engine.tasks[task];
        let all = || (0..EXECUTORS).filter(|place| self.setting.without != Some(*place));
        let all = || all().map(|place| Candidate::near(ExecutorId(place as u32)));
        let is_new = |to: &Candidate| !pending.tried.contains(&to.executor);
        let mut among: Vec<Candidate> = all().filter(is_new).collect();
        if among.is_empty() {
            pending.tried.clear();
            among.extend(all());
        }
        let Chooser { policy, warms_up, .. } = &mut engine.chooser;
        let chosen = if *warms_up && at < WARM_UP {
            engine.random.choose(&engine.book, &pending.task, &among, now)
        } else {
            policy.choose(&engine.book, &pending.task, &among, now)
        };
        let Some(executor) = chosen else { return };
        let to = Candidate::near(executor);
        let patience = self.setting.failure.map(|failure| {
            let usual = (failure.timeout * STEP_MS) as i64;
            policy.timeout_ms(&engine.book, to, &pending.task, usual, now) as f64 / STEP_MS
        });
        let id = engine.book.assigned(to, pending.task, now);
        pending.tried.push(executor);
        pending.task.attempt += 1;
        let Task { kind, size, .. } = pending.task;
        engine.awaited.insert(id, task);
        let place = executor.0 as usize;
        let begun = self.free_at[place].max(at);
        let done = begun + size / self.drawn.speeds[kind.0 as usize][place];
        self.free_at[place] = done;
        self.now.queues[place] += 1;
        self.assigned += 1;
        if self.setting.cancels {
            let takes = done - begun;
            self.queues[place].tasks.push_back(Queued { engine: number, id, begun, takes });
        }
        self.put(done, number, Happening::Answer(id, executor));
        if let Some(patience) = patience {
            self.put(at + patience, number, Happening::TimeOut(id));
        }
    }

    /// Only the answer to the last assignment counts; all are learned from.
    fn answered(&mut self, number: usize, id: AssignmentId, executor: ExecutorId, at: f64) {
        if !self.is_alive(executor, at)
            || self.setting.cancels && !self.queues[executor.0 as usize].take(number, id, at)
        {
            return;
        }
        self.now.queues[executor.0 as usize] -= 1;
        let engine = &mut self.engines[number];
        engine.book.answered(id, moment(at));
        let Some(task) = engine.awaited.remove(&id) else { return };
        let Pending { process, task, .. } = &engine.tasks[task];
        let (process, next) = (*process, task.kind.0 as usize + 1);
        if next < KINDS {
            self.begin(number, process, next, at);
        } else {
            self.left -= 1;
        }
    }

    fn timed_out(&mut self, number: usize, id: AssignmentId, at: f64) {
        let engine = &mut self.engines[number];
        let Some(task) = engine.awaited.remove(&id) else { return };
        let executor = engine.book.entry(id).map(|entry| entry.executor);
        if let Some(executor) = executor {
            self.now.retries[executor.0 as usize] += 1;
        }
        engine.book.timed_out(id, moment(at));
        if let Some(executor) = executor.filter(|_| self.setting.cancels) {
            self.cancel(number, id, executor, at);
        }
        self.assign(number, task, at);
    }

    /// A living executor drops the task, and those queued behind it come earlier.
    fn cancel(&mut self, engine: usize, id: AssignmentId, executor: ExecutorId, at: f64) {
        let place = executor.0 as usize;
        if !self.is_alive(executor, at) {
            return;
        }
        let Some(later) = self.queues[place].cancel(engine, id, at) else { return };
        self.now.queues[place] -= 1;
        self.free_at[place] = self.queues[place].free_at(at);
        for Queued { engine, id, begun, takes } in later {
            self.put(begun + takes, engine, Happening::Answer(id, executor));
        }
    }

    /// Abandoned tasks are assigned again.
    fn look(&mut self, number: usize, at: f64) {
        let Engine { chooser, book, awaited, .. } = &self.engines[number];
        let is_given_up = |id: &AssignmentId| {
            let entry = book.entry(*id);
            entry.is_some_and(|entry| chooser.policy.is_abandoned(book, entry, moment(at)))
        };
        let given_up: Vec<AssignmentId> = awaited.keys().copied().filter(is_given_up).collect();
        given_up.into_iter().for_each(|id| self.timed_out(number, id, at));
        self.put(at + LOOK_EVERY, number, Happening::Look);
    }
}

/// The queue of an executor, in order of arrival.
#[derive(Default)]
struct Queue {
    tasks: VecDeque<Queued>,
}

#[derive(Clone, Copy)]
struct Queued {
    engine: usize,
    id: AssignmentId,
    begun: f64,
    takes: f64,
}

impl Queue {
    /// A task is done at this time, unless that was planned before a cancellation.
    fn take(&mut self, engine: usize, id: AssignmentId, at: f64) -> bool {
        let is_done = |task: &&Queued| (task.engine, task.id) == (engine, id);
        let is_due = |task: &Queued| task.begun + task.takes <= at;
        let found = self.tasks.front().filter(is_done).is_some_and(is_due);
        if found {
            self.tasks.pop_front();
        }
        found
    }

    /// Drops an unfinished task; returns those that come earlier for that.
    fn cancel(&mut self, engine: usize, id: AssignmentId, at: f64) -> Option<Vec<Queued>> {
        let place = self.tasks.iter().position(|task| (task.engine, task.id) == (engine, id))?;
        self.tasks.remove(place);
        let before = place.checked_sub(1).and_then(|before| self.tasks.get(before));
        let mut free_at = before.map_or(at, |task| task.begun + task.takes);
        let mut later = Vec::new();
        for task in self.tasks.iter_mut().skip(place) {
            task.begun = free_at;
            free_at += task.takes;
            later.push(*task);
        }
        Some(later)
    }

    fn free_at(&self, at: f64) -> f64 {
        self.tasks.back().map_or(at, |task| task.begun + task.takes)
    }
}

fn moment(at: f64) -> Timestamp {
    Timestamp((at * STEP_MS) as i64)
}

impl Ord for Event {
    /// The earliest is the greatest; of those at the same moment the one created first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}
