//! Deadlines of instances: what was promised, by whom, and whether it is kept.
//!
//! Two servers have to do with a promise. The one that starts an instance asks for it, step by step
//! (`routing`), and tells what becomes of the steps (`steps`). The planner of a person keeps their plan, in a
//! stream of its own (`journal`). Both are the same machine, `legwork_promise::Node`; here it gets its people
//! (`resources`) and a place in the store.
//!
//! Invariant: a promise is told only when everything it rests on is on its way to the disk.

mod again;
mod alarms;
mod busy;
mod danger;
mod doubts;
mod ends;
mod forgotten;
mod holders;
mod homes;
mod hours;
mod journal;
mod kept;
mod ledger;
mod lending;
mod lent;
mod longest;
mod occupied;
mod opening;
mod overdue;
mod reach;
mod regular;
mod resources;
mod retold;
mod routing;
mod search;
mod steps;
mod together;
mod views;
mod who;
mod word;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::TaskKey;
use legwork_model::id::{AgentId, InstanceId, NodeId, ServerId};
use legwork_model::time::Timestamp;
use legwork_promise::{Desk, Effect, Leeway, Node, Policy, Promise, Queue, Said, Task, TaskId};
use legwork_schedule::ExecutorId;

use crate::Site;
use crate::input::RequestId;
use crate::message::Message;
use crate::output::Output;
pub(crate) use alarms::{Alarm, Alarms};
pub(crate) use busy::Turn;
pub(crate) use danger::in_danger_from;
pub use ends::BrokenAt;
use journal::Pending;
use ledger::Ledger;
use lending::Lending;
use opening::Opening;
pub(crate) use overdue::told as deadline_told;
use search::Routing;
pub use search::Wish;
use steps::Told;
pub(crate) use steps::{leg_of, promised_for};

#[derive(Debug, Default)]
pub(crate) struct Planning {
    /// Made when it is needed first: before, nobody knows what time it is.
    node: Option<Box<Node>>,
    /// What the stream of plans comes to.
    ledger: Ledger,
    /// Records in the stream of plans, and how many of them the last snapshot has.
    records: u64,
    stored: u64,
    /// What the input at hand has changed in it.
    pending: Pending,
    /// Starts whose deadline is being looked at.
    routes: BTreeMap<InstanceId, Routing>,
    /// Promises for instances that are about to start, and until when they are held.
    granted: BTreeMap<InstanceId, Granted>,
    /// How far the steps are that were promised for instances started here.
    stages: BTreeMap<TaskId, Told>,
    holders: holders::Holders,
    /// What was asked for before the server went down.
    expected: Vec<Expected>,
    /// When it was looked last whether all promises can be kept, and how people work.
    watched_at: Timestamp,
    refitted_at: Timestamp,
    /// Before that nobody is judged by what the plans have them do by now: time has jumped.
    judges_from: Timestamp,
    reach: reach::Reach,
    /// When somebody is taken to be busy for longer than was thought.
    busy_until: Timestamp,
    /// What queues at executors, in whatever order.
    queues: BTreeMap<Arc<str>, Queue>,
    /// Executors that may have begun something else than their plans have it.
    doubted: BTreeSet<ExecutorId>,
    kept: kept::KeptElsewhere,
    lending: Lending,
    opening: Opening,
    forgotten: forgotten::Forgotten,
    longest: longest::Longest,
    hours: hours::Known,
    /// The epoch and the change of executors up to which it is known where everybody is at home.
    homes: (u32, u64),
    /// When it is looked who is at home elsewhere now.
    moves_at: Option<Timestamp>,
    retold: retold::Retold,
    word: word::Word,
    again: again::Again,
    counts: Counts,
    /// Where promises were broken, and how often.
    broken: BTreeMap<BrokenAt, u64>,
    /// Cases whose deadline has passed, and which may have ended elsewhere before: they are counted when that is known.
    unheard: BTreeMap<InstanceId, Timestamp>,
    /// Cases that are not over and whose promise was withdrawn.
    withdrawn: BTreeSet<InstanceId>,
    /// When people have last done something here.
    done_at: BTreeMap<AgentId, Timestamp>,
}

/// A task that was asked for, who has promised it, and for when.
#[derive(Debug)]
struct Expected {
    task: Task,
    at: ServerId,
    start: Timestamp,
    is_begun: bool,
}

#[derive(Debug)]
struct Granted {
    tasks: Vec<TaskId>,
    until: Timestamp,
    /// Who wants it started.
    request: RequestId,
}

/// What became of deadlines, since the server was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub promised: u64,
    pub refused: u64,
    /// Accepted although nobody could promise it.
    pub unpromised: u64,
    pub kept: u64,
    pub broken: u64,
    /// Cases whose promise was taken back before it was broken.
    pub withdrawn: u64,
}

impl Planning {
    /// Whether there is something to hold, or to wait for, and nobody does yet.
    fn is_asleep(&self) -> bool {
        self.node.is_none() && !(self.ledger.is_empty() && self.expected.is_empty())
    }

    /// Whether promises are waited for in an instance: its state stays in memory.
    pub(crate) fn concerns(&self, id: InstanceId) -> bool {
        self.word.is_awaited(id)
            || self.again.concerns(id)
            || self.stages.range(steps_of(id)).next().is_some()
    }

    /// An instance is over.
    fn forget(&mut self, id: InstanceId) {
        self.withdrawn.remove(&id);
        self.unheard.remove(&id);
        self.retold.forget(id);
        self.holders.forget(id);
        let steps: Vec<TaskId> = self.stages.range(steps_of(id)).map(|(task, _)| *task).collect();
        for task in steps {
            self.stages.remove(&task);
        }
    }
}

impl Site {
    /// What became of deadlines that were asked for here.
    pub fn deadlines(&self) -> Counts {
        self.planning.counts
    }

    /// An instance is over here, and not in memory any more.
    pub(crate) fn planning_over(&mut self, id: InstanceId) {
        self.planning.word.forget_all(id);
    }

    /// This server's number; of one that is alone any will do.
    pub(crate) fn server_here(&self) -> ServerId {
        self.seat.as_ref().map_or(ServerId(0), |seat| seat.here)
    }

    /// Has something done by the planner here, keeps what changes by it, and tells whoever it concerns.
    fn plan(&mut self, now: Timestamp, act: impl FnOnce(&mut Node) -> Vec<Effect>) {
        self.wake_planner(now);
        self.note_busy(now);
        let Some(node) = &mut self.planning.node else { return };
        let effects = act(node);
        self.keep_plans(now);
        for effect in effects {
            self.follow_effect(effect, now);
        }
    }

    fn wake_planner(&mut self, now: Timestamp) {
        if self.planning.node.is_some() {
            return;
        }
        let desk = Desk::with_leeway(LEEWAY);
        let node = Node::new(self.server_here(), desk, Policy::default(), self.config.life);
        self.planning.node = Some(Box::new(node));
        self.planning.refitted_at = now;
        // Others say first what was begun meanwhile.
        if self.other_servers().next().is_some() {
            self.planning.watched_at = now;
        }
        self.restore_plans(now);
        self.expect_all(now);
        self.drop_unstarted(now);
        self.take_back_strays(now);
    }

    /// Takes in what was asked for before the server went down. Should it be taken back, all who can do it are asked.
    fn expect_all(&mut self, now: Timestamp) {
        let here = self.server_here();
        for Expected { task, at, start, is_begun } in std::mem::take(&mut self.planning.expected) {
            task.who.iter().for_each(|one| self.prepare(one, now));
            if let Some(node) = self.planning.node.as_mut().filter(|_| at != here) {
                let id = task.id;
                node.expect(task, at, start, now);
                if is_begun {
                    node.begin(id);
                }
                self.planning.reach.needs(at, now);
                self.look_again_who_could(id, now);
            }
        }
    }

    fn follow_effect(&mut self, effect: Effect, now: Timestamp) {
        match effect {
            Effect::Say(said) => {
                let (to, message) = (said.to, Message::Plan(Box::new(said)));
                self.out.push(Output::Send { to, message });
            }
            Effect::Promised { at, promise } => self.was_promised(at, promise, now),
            Effect::Refused { task, earliest } => self.was_refused(task, earliest, now),
            Effect::Removed { task } => self.taken_back(task, WHY_REMOVED, now),
            Effect::Lost { task } => {
                let is_taken = self.is_taken_by_another(task);
                self.taken_back(task, if is_taken { WHY_TAKEN } else { WHY_LOST }, now);
            }
        }
    }

    /// What another planner says.
    pub(crate) fn hear_planner(&mut self, from: ServerId, said: Said, now: Timestamp) {
        self.planner_speaks(from, now);
        self.hear_said(from, said, now);
    }

    /// What another planner has said, just now or a moment ago.
    fn hear_said(&mut self, from: ServerId, said: Said, now: Timestamp) {
        if self.is_too_early(&said.message) || self.defers(from, &said, now) {
            return;
        }
        self.prepare_for(&said, now);
        self.plan(now, |node| node.hear(from, said, now));
        self.go_on_with_all(now);
    }

    /// Goes on with all starts that have got an answer.
    fn go_on_with_all(&mut self, now: Timestamp) {
        let answered = self.planning.routes.iter().filter(|(_, routing)| routing.is_answered());
        for id in answered.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.go_on_with(id, now);
        }
    }

    fn was_promised(&mut self, at: ServerId, promise: Promise, now: Timestamp) {
        let id = promise.task.instance;
        if let Some(routing) = self.planning.routes.get_mut(&id) {
            let task = promise.task;
            if let Some(near) = routing.promised(at, promise) {
                self.ask_all_next_time(task, near, now);
            }
        } else if self.planning.again.is_trying(promise.task) {
            self.promised_again(at, promise, now);
        } else if self.is_instance(id) {
            self.replanned(at, promise, now);
        } else {
            // It was to start, and did not: nobody wants it any more.
            self.plan(now, |node| node.finish(promise.task));
        }
    }

    /// A promise is not kept where it was given; it is tried again, and what comes of it is told.
    fn taken_back(&mut self, task: TaskId, why: &str, now: Timestamp) {
        if let Some(routing) = self.planning.routes.get_mut(&task.instance) {
            routing.withdrawn(task);
        } else if self.planning.granted.contains_key(&task.instance) {
            // It has not started yet: it is looked at anew then.
            self.give_promise_back(task.instance, now);
        } else {
            self.was_withdrawn(task, why, now);
        }
    }

    fn was_refused(&mut self, task: TaskId, earliest: Option<Timestamp>, now: Timestamp) {
        if let Some(routing) = self.planning.routes.get_mut(&task.instance) {
            routing.refused(task, earliest);
        } else if self.planning.again.is_trying(task) {
            self.refused_again(task, now);
        } else if self.is_instance(task.instance) {
            self.not_promised_any_more(task, now);
        }
    }

    /// What is due in planning.
    pub(crate) fn settle_plans(&mut self, now: Timestamp) {
        if self.planning.is_asleep() {
            self.wake_planner(now);
        }
        self.follow_homes(now);
        if self.may_judge(now) {
            self.judge_plans(now);
        }
        // Those who made way for a start may have been about to start themselves.
        self.go_on_with_all(now);
        self.ask_whether_wanted(now);
        self.settle_openings(now);
        self.say_plans(now);
        self.follow_recovered(now);
        self.try_withdrawn(now);
        self.say_steps(now);
    }

    /// Nobody is judged by the plans until then; before that is done they are made anew.
    pub(crate) fn listen_to_planners(&mut self, until: Timestamp) {
        self.planning.judges_from = until;
        self.planning.refitted_at = Timestamp::default();
    }

    fn may_judge(&self, now: Timestamp) -> bool {
        now >= self.planning.judges_from
    }

    /// What was not done, said or asked for in time.
    fn judge_plans(&mut self, now: Timestamp) {
        self.watch_plans(now);
        self.lose_unreached(now);
        let due = self.planning.node.as_ref().and_then(|node| node.next_due());
        if due.is_some_and(|due| due <= now) {
            self.plan(now, |node| node.tick(now));
        }
        let over = self.planning.granted.iter().filter(|(_, granted)| granted.until <= now);
        for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.give_promise_back(id, now);
        }
    }

    /// Looks whether all that was promised here can still be kept, now and then.
    fn watch_plans(&mut self, now: Timestamp) {
        let holds = self.planning.node.as_ref().is_some_and(|node| !node.desk.is_empty());
        if !holds || now.since(self.planning.watched_at) < WATCHED {
            return;
        }
        self.planning.watched_at = now;
        if now.since(self.planning.refitted_at) >= REFITTED {
            self.refit(now);
        }
        self.give_up_endangered(now);
    }

    /// Executors were registered, have changed or are gone. What these had promised is promised anew before its jobs
    /// are given to others.
    pub(crate) fn follow_executors(&mut self, now: Timestamp) {
        let changed = self.executors.registry.take_changed();
        if !changed.is_empty() {
            self.refit_executors(&changed, now);
        }
    }

    /// Promises for an instance that did not start are given back.
    fn give_promise_back(&mut self, id: InstanceId, now: Timestamp) {
        let Some(granted) = self.planning.granted.remove(&id) else { return };
        for task in granted.tasks {
            self.plan(now, |node| node.finish(task));
        }
    }

    /// When something in planning is due.
    pub(crate) fn next_plan(&self) -> Option<Timestamp> {
        let granted = self.planning.granted.values().map(|granted| granted.until).min();
        let is_answered = self.planning.routes.values().any(Routing::is_answered);
        let is_awaited =
            is_answered || self.planning.is_asleep() || self.planning.reach.is_somebody_back();
        let stored = is_awaited.then_some(self.latest);
        let holds = self.planning.node.as_ref().is_some_and(|node| !node.desk.is_empty());
        let watch = holds.then(|| self.planning.watched_at + WATCHED);
        let node = self.planning.node.as_ref().and_then(|node| node.next_due());
        let lost = self.planning.node.as_ref().and_then(|_| self.planning.reach.next_due());
        let turns =
            [self.next_turn(), self.next_opening(), self.planning.moves_at, self.next_retold()];
        let turns = turns.into_iter().chain([self.next_word(), self.next_try()]);
        let judged = [granted, node, watch, lost].into_iter().flatten().min();
        let judged = judged.map(|due| due.max(self.planning.judges_from));
        [judged, stored].into_iter().chain(turns).flatten().min()
    }
}

/// How often it is looked whether promises can be kept, and how people work from now on: their calendars are
/// known for some time ahead only.
const WATCHED: Duration = Duration::from_secs(5);
const REFITTED: Duration = Duration::from_secs(24 * 3600);

/// Nobody begins in the very moment in which they could: without it what is promised just so would be lost
/// at once.
const LEEWAY: Leeway = Leeway { part: 16, most: 60_000 };

const WHY_REMOVED: &str = "something more important came";
const WHY_LOST: &str = "whoever was to do it cannot do it in time any more";
const WHY_TAKEN: &str = "somebody else has taken it";

/// All steps of an instance.
fn steps_of(instance: InstanceId) -> RangeInclusive<TaskId> {
    let first = TaskId { instance, step: 0, round: 0, part: 0 };
    first..=TaskId { instance, step: u32::MAX, round: u64::MAX, part: u16::MAX }
}

/// The key under which a task is kept.
fn key(task: TaskId) -> TaskKey {
    let TaskId { instance, step, round, part } = task;
    TaskKey { instance, node: NodeId(step), round, part }
}

fn task_id(key: TaskKey) -> TaskId {
    let TaskKey { instance, node, round, part } = key;
    TaskId { instance, step: node.0, round, part }
}
