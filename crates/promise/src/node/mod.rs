//! A planner among others: the preprocessor, the local and the global scheduler of one server.
//!
//! A task is promised here if somebody here has the time; if not, at the expense of less important ones;
//! if that does not help, by another planner. What is said to others are values, and what they say comes in as
//! values: whoever drives this carries them.
//!
//! Invariant: a task that was asked for ends with one answer, and so again after it was taken back or lost. With
//! `b` others who can do it (at most `bidders_max`), no more than `3 b + 3` messages are said until then while
//! none gets lost, for one in `p` parts at most `4 b + p` more, 3 more when room that is held is taken, and 3 more after
//! a promise was taken back. That room was taken is said again until it is known what comes of it, each time after twice
//! as long and at last every 33 delays, and each time it is answered: 2 more if it goes ahead within eight delays.

mod apart;
mod faults;
mod global;
mod held;
mod message;
mod room;
mod suspense;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

pub use held::Noted;
pub use message::{Message, Offer, Said};

use self::faults::Gone;
use crate::desk::{Desk, Reservation};
use crate::dice::Dice;
use crate::plan::Window;
use crate::supply::Work;
use crate::task::{Promise, ResourceId, Task, TaskId};

/// How many messages it takes to hear bids, with a moment to spare, and an answer.
const ASKED_AND_ANSWERED: i64 = 4;

/// Whom to ask when nobody here has the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Nobody.
    Local,
    /// Anybody.
    Random,
    /// The one who seemed to have the most time.
    Focused,
    /// All, and then the one who has the most time.
    Bidding,
    /// The one who seemed to have the most time, and meanwhile all: if that one has not, it goes on to
    /// whoever has.
    #[default]
    Flexible,
}

/// How a planner asks others.
#[derive(Clone, Debug)]
pub struct Policy {
    pub strategy: Strategy,
    /// How long a message takes, about, in milliseconds.
    pub delay_ms: i64,
    /// How many others are asked for bids.
    pub bidders_max: usize,
    /// Others are asked also when it is too late for them, to learn from when on it would not be.
    pub asks_late: bool,
    /// Whether less important tasks make way.
    pub removes: bool,
    /// A task that can wait for so many times its service time is not urgent.
    pub urgency: i64,
    /// Planners that are lost come back, with all they have promised: it is promised by others only when it can wait
    /// no longer. New tasks do not wait for them.
    pub comes_back: bool,
    /// What planning itself costs, and whom.
    pub overheads: Option<Overheads>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            delay_ms: 100,
            bidders_max: 8,
            asks_late: true,
            removes: true,
            urgency: 3,
            comes_back: true,
            overheads: None,
        }
    }
}

/// What planning costs whoever does it.
#[derive(Clone, Debug)]
pub struct Overheads {
    pub of: ResourceId,
    pub guarantee: Work,
    pub removal: Work,
    pub clustering: Work,
}

/// What a planner tells those it works for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Say this to another planner.
    Say(Said),
    /// The task will be done in time, at this server.
    Promised { at: ServerId, promise: Promise },
    /// It cannot be promised; from the earliest date on it could have been, as far as known.
    Refused { task: TaskId, earliest: Option<Timestamp> },
    /// What was promised here is taken back for something more important. It is tried elsewhere; what comes
    /// of it is told as for a new task.
    Removed { task: TaskId },
    /// Whoever had promised it is lost. It is tried elsewhere; what comes of it is told as for a new task.
    Lost { task: TaskId },
}

#[derive(Clone, Debug)]
pub struct Node {
    me: ServerId,
    pub desk: Desk,
    policy: Policy,
    /// Where everybody is at home, here and elsewhere.
    homes: BTreeMap<ResourceId, ServerId>,
    /// How much time others have left, as last heard.
    surplus: BTreeMap<ServerId, global::Heard>,
    lost: BTreeSet<ServerId>,
    /// Who stands in for this planner.
    deputy: Option<ServerId>,
    /// Tasks asked for here that others are to promise, or have promised.
    asked: BTreeMap<TaskId, Asked>,
    /// For whom tasks were promised here.
    held: BTreeMap<TaskId, held::Held>,
    /// Room that is held for tasks at the expense of others.
    rooms: BTreeMap<TaskId, room::Room>,
    /// What was promised for others and taken back, until they know.
    untold: BTreeMap<TaskId, held::Untold>,
    noted: Vec<Noted>,
    /// The number of the last attempt to have something promised by others.
    attempt: u64,
    /// Tasks that wait for bids.
    passing: BTreeMap<TaskId, global::Passing>,
    /// Bids that came before the task they are for.
    early: BTreeMap<TaskId, global::Bids>,
    /// What was bid for, and until when it counts.
    bids_out: BTreeMap<TaskId, (Work, Timestamp)>,
    apart: apart::Apart,
    /// Tasks of planners that this one stands in for.
    kept: BTreeMap<TaskId, (ServerId, Task)>,
    /// Tasks that wait whether those who are lost come back.
    waiting: BTreeMap<TaskId, Task>,
    /// What is still promised by planners that were lost, and not wanted of them any more.
    moved: BTreeMap<ServerId, VecDeque<(TaskId, u64)>>,
    dice: Dice,
}

#[derive(Clone, Debug)]
struct Asked {
    task: Task,
    /// Who has promised it.
    at: Option<ServerId>,
    /// When it is given up if nobody answers.
    until: Timestamp,
    attempt: u64,
    /// It was asked for before a restart, in an attempt before this one.
    is_restored: bool,
    /// When whoever has promised it is to begin; that they have begun.
    start: Option<Timestamp>,
    is_begun: bool,
    /// Who was told to take room for it, and has not answered.
    taking: Option<ServerId>,
    /// It is confirmed when what it is for goes ahead, which it has not.
    is_confirmed_later: bool,
}

impl Asked {
    /// Nobody has answered yet.
    fn new(task: Task, until: Timestamp, attempt: u64) -> Self {
        Self {
            task,
            at: None,
            until,
            attempt,
            is_restored: false,
            start: None,
            is_begun: false,
            taking: None,
            is_confirmed_later: false,
        }
    }
}

impl Node {
    pub fn new(me: ServerId, desk: Desk, policy: Policy, seed: u64) -> Self {
        let homes = desk.resources().map(|id| (id.clone(), me)).collect();
        Self {
            me,
            desk,
            policy,
            homes,
            surplus: BTreeMap::new(),
            lost: BTreeSet::new(),
            deputy: None,
            asked: BTreeMap::new(),
            held: BTreeMap::new(),
            rooms: BTreeMap::new(),
            untold: BTreeMap::new(),
            noted: Vec::new(),
            attempt: 0,
            passing: BTreeMap::new(),
            early: BTreeMap::new(),
            bids_out: BTreeMap::new(),
            apart: apart::Apart::default(),
            kept: BTreeMap::new(),
            waiting: BTreeMap::new(),
            moved: BTreeMap::new(),
            dice: Dice::new(seed),
        }
    }

    /// Where a resource is at home.
    pub fn know(&mut self, resource: ResourceId, home: ServerId) {
        self.homes.insert(resource, home);
    }

    /// All of whom it is known where they are at home.
    pub fn known(&self) -> impl Iterator<Item = &ResourceId> {
        self.homes.keys()
    }

    /// Takes in what was promised here before, for whom, and in which attempt of theirs.
    pub fn restore(
        &mut self,
        reservation: Reservation,
        asker: (ServerId, u64),
        begun: Option<Timestamp>,
    ) {
        self.hold_again(&reservation.task, asker);
        self.desk.restore(reservation, begun);
    }

    /// Who asked for a task that is promised here.
    pub fn asker(&self, id: TaskId) -> Option<ServerId> {
        self.held.get(&id).map(|held| held.asker)
    }

    /// The same with the attempt of theirs in which it is promised.
    pub fn asker_and_attempt(&self, id: TaskId) -> Option<(ServerId, u64)> {
        self.held.get(&id).map(|held| (held.asker, held.attempt))
    }

    /// Takes in what was asked for here before, who has promised it, and for when. In which attempt is not known: what
    /// is said about it counts for that one, and not for those to come.
    pub fn expect(&mut self, task: Task, at: ServerId, start: Timestamp, now: Timestamp) {
        let (id, until) = (task.id, task.window.deadline);
        let asked = Asked::new(task, until, self.next_attempt(now));
        let (at, start) = (Some(at), Some(start));
        self.asked.insert(id, Asked { at, start, is_restored: true, ..asked });
    }

    /// Somebody works on a task that is promised here, or was asked for here.
    pub fn begin(&mut self, id: TaskId) {
        self.desk.begin(id);
        self.begin_in_room(id);
        if let Some(asked) = self.asked.get_mut(&id) {
            asked.is_begun = true;
        }
    }

    /// Whoever had begun a task has left it.
    pub fn leave(&mut self, id: TaskId) {
        self.desk.leave(id);
        // Others make way for it all the same, for it had gone ahead.
        if let Some(room) = self.rooms.get_mut(&id) {
            room.is_begun = false;
        }
        if let Some(asked) = self.asked.get_mut(&id) {
            asked.is_begun = false;
        }
    }

    /// Whether a planner is lost.
    pub fn is_lost(&self, server: ServerId) -> bool {
        self.lost.contains(&server)
    }

    /// Who stands in for this planner when it is lost.
    pub fn deputise(&mut self, deputy: ServerId) {
        self.deputy = Some(deputy);
    }

    /// Somebody wants a task promised.
    pub fn submit(&mut self, task: Task, now: Timestamp) -> Vec<Effect> {
        self.desk.pass(now);
        let mut effects = Vec::new();
        if let Some(task) = self.prepare(task, now) {
            self.promise_or_pass(task, now, &mut effects);
        }
        effects
    }

    /// What another planner has said.
    pub fn hear(&mut self, from: ServerId, said: Said, now: Timestamp) -> Vec<Effect> {
        self.desk.pass(now);
        self.surplus.insert(from, global::Heard { surplus: said.surplus, at: now });
        let mut effects = Vec::new();
        match said.message {
            Message::Offer(offer) => self.offered(offer, now, &mut effects),
            Message::Request { task, reply_to, until } => {
                self.requested(&task, reply_to, until, now, &mut effects);
            }
            Message::Bid { task, bid, until, earliest, makes_room } => {
                let bid = global::Bid { from, bid, makes_room, earliest };
                self.heard_bid(task, bid, until, now, &mut effects);
            }
            Message::Answer { tasks, attempt, promises: Some(promises), .. } => {
                self.promised_by(from, (&tasks, attempt), promises, &mut effects);
            }
            Message::Answer { tasks, attempt, promises: None, earliest } => {
                self.refused_by_all(&tasks, attempt, earliest, now, &mut effects);
            }
            Message::Confirm { tasks, attempt } => {
                self.confirmed(from, &tasks, attempt, now, &mut effects);
            }
            Message::Cancel { task, attempt } => self.cancelled(from, task, attempt, &mut effects),
            Message::TakenBack { task, attempt, is_lost, goes_on } => {
                let gone = match (goes_on, is_lost) {
                    (true, _) => Gone::Late,
                    (false, true) => Gone::Lost,
                    (false, false) => Gone::MadeWayElsewhere,
                };
                self.taken_back(from, (task, attempt), gone, now, &mut effects);
            }
            Message::Take { task, earlier, attempt } if earlier == attempt => {
                self.is_being_decided(task, (from, attempt), now);
            }
            Message::Take { task, earlier, attempt } => {
                self.told_to_take(from, task, (earlier, attempt), now, &mut effects);
            }
            Message::Keep { task } => drop(self.kept.insert(task.id, (from, *task))),
            Message::Done { task } => drop(self.kept.remove(&task)),
        }
        effects
    }

    /// How many tasks are under way: asked for, promised to others, or not known to be over.
    pub fn open(&self) -> usize {
        let others = self.passing.len() + self.untold.len() + self.waiting.len() + self.rooms.len();
        let moved: usize = self.moved.values().map(VecDeque::len).sum();
        self.asked.len() + self.held.len() + self.apart.len() + others + moved
    }

    /// When `tick` is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        let bids = self.passing.values().map(|passing| passing.until);
        let answers = self.asked.values().filter(|asked| asked.at.is_none()).map(|it| it.until);
        let waiting = self.waiting.values().map(|task| self.urgent_from(task));
        let others = self.rooms_due().into_iter().chain(self.lost_due());
        bids.chain(answers).chain(waiting).chain(others).chain(self.said_again()).min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Timestamp) -> Vec<Effect> {
        self.desk.pass(now);
        let mut effects = Vec::new();
        self.bids_out.retain(|_, (_, until)| *until > now);
        self.early.retain(|_, bids| bids.until > now);
        // What is too late for anybody need not be kept.
        self.kept.retain(|_, (_, task)| task.window.deadline > now);
        let ready = self.passing.iter().filter(|(_, passing)| passing.until <= now);
        for id in ready.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.choose_bidder(id, now, &mut effects);
        }
        let silent = self.asked.iter().filter(|(_, it)| it.at.is_none() && it.until <= now);
        for id in silent.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.give_up(&[id], None, now, &mut effects);
        }
        self.settle_old_rooms(now, &mut effects);
        self.wake_urgent(now, &mut effects);
        self.move_urgent(now, &mut effects);
        self.say_again(now, &mut effects);
        effects
    }

    /// The task is done, or nobody wants it any more.
    pub fn finish(&mut self, id: TaskId) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.waiting.remove(&id);
        self.passing.remove(&id);
        self.end_parts(id, &mut effects);
        if let Some(asked) = self.asked.remove(&id) {
            let attempt = asked.attempt;
            self.not_taken(&asked, &mut effects);
            if let Some(at) = asked.at.filter(|at| *at != self.me) {
                effects.push(self.say(at, Message::Cancel { task: id, attempt }));
            }
        }
        self.drop_room(id, self.me, u64::MAX);
        self.end(id, &mut effects);
        effects
    }

    /// A reservation here is over.
    pub fn end(&mut self, id: TaskId, effects: &mut Vec<Effect>) -> Option<Task> {
        self.let_go(id, effects);
        self.desk.end(id)
    }

    /// Here if possible; else with others.
    fn promise_or_pass(&mut self, task: Task, now: Timestamp, effects: &mut Vec<Effect>) {
        match self.promise_here(std::slice::from_ref(&task), (self.me, 0), now, effects) {
            Some(promises) => self.settle(self.me, promises, effects),
            None => self.pass_on(task, now, effects),
        }
    }

    /// Promises tasks here, all or none, at the expense of others if need be and allowed. For whom, and in
    /// which attempt of theirs.
    fn promise_here(
        &mut self,
        tasks: &[Task],
        (asker, attempt): (ServerId, u64),
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> Option<Vec<Promise>> {
        let is_mine = |task: &Task| task.who.iter().any(|id| self.desk.has(id));
        if !tasks.iter().all(is_mine) || !self.spend(now, |overheads| overheads.guarantee) {
            return None;
        }
        tasks.iter().for_each(|task| self.drop_earlier_room(task.id, effects));
        let Some(promises) = self.desk.guarantee_all(tasks) else {
            let [only] = tasks else { return None };
            let promise = self.at_the_expense_of_others(only, (asker, attempt), now, effects)?;
            return Some(vec![promise]);
        };
        for task in tasks {
            self.hold_for(task, (asker, attempt), now, effects);
        }
        Some(promises)
    }

    /// A task is promised here: for whom is remembered, and its deputy keeps it as well.
    fn hold_for(
        &mut self,
        task: &Task,
        (asker, attempt): (ServerId, u64),
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        self.hold(task, asker, attempt, now);
        // A part is of no use by itself: the whole is kept when all its parts are promised.
        if asker == self.me && task.id.part == 0 {
            self.have_kept(task, effects);
        }
    }

    /// Takes the time that planning costs; false if there is none, for that would break a promise.
    fn spend(&mut self, now: Timestamp, cost: impl Fn(&Overheads) -> Work) -> bool {
        let Some(overheads) = &self.policy.overheads else { return true };
        // Soon, one after the other.
        let all = overheads.guarantee.plus(overheads.removal).plus(overheads.clustering);
        let cost = cost(overheads);
        let window = Window { release: now, deadline: Timestamp(now.0 + all.0) };
        cost.0 == 0 || self.desk.spend(&overheads.of, window, cost)
    }

    /// Until when an answer of others is waited for: bids come back, all who bid may get the offer one after the other,
    /// and the last of them answers.
    fn answer_due(&self, now: Timestamp) -> Timestamp {
        let messages = i64::try_from(self.policy.bidders_max).unwrap_or(i64::MAX);
        let messages = messages.saturating_add(ASKED_AND_ANSWERED);
        Timestamp(now.0.saturating_add(messages.saturating_mul(self.policy.delay_ms)))
    }

    fn say(&self, to: ServerId, message: Message) -> Effect {
        Effect::Say(Said { to, surplus: self.desk.factor(), message })
    }
}
