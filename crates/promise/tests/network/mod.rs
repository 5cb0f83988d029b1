//! Planners with a network that delays, reorders, loses and doubles what they say, and workers that work by
//! the plans. Whatever happens, everybody who asked is answered once, and what is promised is kept.

#![expect(clippy::expect_used, reason = "a wrong assumption is a failed test")]

mod faults;
mod taking;
mod wanted;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_promise::{
    Desk, Discipline, Displaces, Effect, Message, Node, Part, Policy, Promise, ResourceId, Said,
    Setup, Strategy, Task, TaskId, Window, Work,
};

use self::wanted::{State, Wanted};
use crate::works::always;

/// How long a message is said to take, and after how long it is noticed that somebody is gone.
pub(crate) const DELAY: i64 = 2;
const NOTICED: i64 = 6;
/// Up to here tasks come and things go wrong; then all has time to end.
pub(crate) const BUSY: i64 = 200;
const END: i64 = 6_000;

#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    pub(crate) tasks: usize,
    pub(crate) strategy: Strategy,
    pub(crate) removes: bool,
    /// Who can put work aside does one thing at a time, who cannot two.
    pub(crate) can_put_aside: bool,
    /// In per cent.
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) delay_max: u64,
    /// Who is gone comes back with what it has promised.
    pub(crate) comes_back: bool,
    /// When who is gone, and for how long.
    pub(crate) faults: Vec<(i64, usize, i64)>,
    /// Others make way only for what takes its room when it has all it needs.
    pub(crate) asks_first: bool,
    /// In how many cases of a hundred what takes its room goes ahead.
    pub(crate) goes_ahead: u64,
}

/// What has happened, to see that it does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Happened {
    pub(crate) removed: usize,
    pub(crate) lost: usize,
    pub(crate) in_parts: usize,
    pub(crate) elsewhere: usize,
    pub(crate) refused: usize,
}

pub(crate) struct Net {
    setting: Setting,
    pub(crate) nodes: Vec<Node>,
    gone: BTreeSet<usize>,
    wanted: BTreeMap<TaskId, Wanted>,
    on_the_way: BTreeMap<(i64, u64), (usize, Said)>,
    count: u64,
    random: u64,
    now: i64,
    pub(crate) happened: Happened,
}

fn server(node: usize) -> ServerId {
    ServerId(node as u16)
}

fn resource(node: usize) -> ResourceId {
    ResourceId::Executor(format!("node-{node}").into())
}

fn setup(setting: &Setting) -> Setup {
    match setting.can_put_aside {
        true => always(Discipline::Preemptive),
        false => Setup { at_once: 2, ..always(Discipline::NonPreemptive) },
    }
}

fn whole(id: TaskId) -> TaskId {
    TaskId { part: 0, ..id }
}

impl Net {
    pub(crate) fn new(setting: Setting) -> Self {
        let node = |number: usize| {
            let mut desk = Desk::default();
            assert!(desk.add(resource(number), &setup(&setting), Timestamp(0)));
            let policy = Policy {
                strategy: setting.strategy,
                delay_ms: DELAY,
                removes: setting.removes,
                comes_back: setting.comes_back,
                ..Policy::default()
            };
            let mut node = Node::new(server(number), desk, policy, setting.seed);
            (0..setting.nodes).for_each(|other| node.know(resource(other), server(other)));
            node
        };
        Self {
            nodes: (0..setting.nodes).map(node).collect(),
            random: setting.seed,
            setting,
            gone: BTreeSet::new(),
            wanted: BTreeMap::new(),
            on_the_way: BTreeMap::new(),
            count: 0,
            now: 0,
            happened: Happened::default(),
        }
    }

    fn below(&mut self, count: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % count
    }

    /// Everything, to its end.
    pub(crate) fn run(&mut self) {
        let mut asked: Vec<i64> =
            (0..self.setting.tasks).map(|_| self.below(BUSY as u64) as i64).collect();
        asked.sort_unstable();
        let mut asked = asked.into_iter().enumerate().peekable();
        while self.now < END && !(self.now > 2 * BUSY && self.is_quiet()) {
            while let Some((number, _)) = asked.next_if(|(_, at)| *at <= self.now) {
                self.ask(number);
            }
            self.go_and_come();
            self.decide();
            self.go_ahead_or_not();
            while let Some(first) =
                self.on_the_way.first_entry().filter(|it| it.key().0 <= self.now)
            {
                let (from, said) = first.remove();
                self.deliver(from, said);
            }
            for node in
                (0..self.nodes.len()).filter(|node| !self.gone.contains(node)).collect::<Vec<_>>()
            {
                self.nodes[node].desk.pass(Timestamp(self.now));
                if self.nodes[node].next_due().is_some_and(|due| due.0 <= self.now) {
                    let effects = self.nodes[node].tick(Timestamp(self.now));
                    self.carry_out(node, effects);
                    self.make_up_for_waiting(node);
                }
            }
            self.work();
            self.wait_in_suspense();
            self.now += 1;
            self.check();
        }
    }

    /// Nobody has anything to do, or waits for anything.
    fn is_quiet(&self) -> bool {
        let is_quiet = |node: &Node| node.desk.is_empty() && node.next_due().is_none();
        self.on_the_way.is_empty() && self.nodes.iter().all(is_quiet)
    }

    fn ask(&mut self, number: usize) {
        let count = self.nodes.len() as u64;
        let owner = self.below(count) as usize;
        if self.gone.contains(&owner) {
            return;
        }
        let is_global = self.below(10) < 7;
        let who = if is_global {
            (0..self.nodes.len()).map(resource).collect()
        } else {
            vec![resource(self.below(count) as usize)]
        };
        let services: Vec<i64> = (0..4).map(|_| 1 + self.below(4) as i64).collect();
        let is_separable = is_global && self.below(10) < 4;
        let service = if is_separable { services.iter().sum() } else { 1 + self.below(8) as i64 };
        let release = self.now + self.below(8) as i64;
        let deadline = release + service * (1 + self.below(5) as i64) + self.below(9) as i64;
        let window = Window { release: Timestamp(release), deadline: Timestamp(deadline) };
        let id = TaskId::new(InstanceId(number as u128), 0);
        let mut task = Task::new(id, window, Work(service), who);
        task.priority = self.below(4) as u8;
        task.may_abort = self.below(10) < 8;
        if !is_separable && self.below(3) == 0 {
            task.displaces = Displaces::WhenTold;
        } else if self.setting.asks_first {
            task.displaces = Displaces::Never;
        }
        if is_separable {
            let after: [&[u16]; 4] = [&[], &[0], &[0], &[1, 2]];
            let part = |(service, after): (&i64, &[u16])| Part {
                service: Work(*service),
                after: after.to_vec(),
                carry: Work(1),
            };
            task.parts = services.iter().zip(after).map(part).collect();
        }
        self.wanted.insert(id, Wanted::new(task.clone(), owner));
        let effects = self.nodes[owner].submit(task, Timestamp(self.now));
        self.carry_out(owner, effects);
    }

    fn deliver(&mut self, from: usize, said: Said) {
        let to = usize::from(said.to.0);
        if !self.gone.contains(&to) {
            let confirms = matches!(said.message, Message::Confirm { .. });
            let effects = self.nodes[to].hear(server(from), said, Timestamp(self.now));
            self.carry_out(to, effects);
            if confirms {
                self.make_up_for_waiting(to);
            }
        }
    }

    fn carry_out(&mut self, node: usize, effects: Vec<Effect>) {
        self.note_promised(node);
        let gone = effects.iter().filter_map(|effect| match effect {
            Effect::Removed { task } | Effect::Lost { task } => Some(*task),
            Effect::Say(_) | Effect::Promised { .. } | Effect::Refused { .. } => None,
        });
        let gone: BTreeSet<TaskId> = gone.collect();
        // It is looked at anew, which here means that nobody wants it any more.
        let is_shaken = |id: &TaskId| self.wanted[id].is_taking();
        let shaken: BTreeSet<TaskId> = gone.iter().filter(|id| is_shaken(id)).copied().collect();
        for effect in effects {
            match effect {
                Effect::Say(said) => self.say(node, said),
                Effect::Promised { promise: Promise { task, .. }, .. }
                | Effect::Refused { task, .. }
                | Effect::Removed { task }
                | Effect::Lost { task }
                    if shaken.contains(&task) => {}
                Effect::Promised { promise, .. } if !self.wanted[&promise.task].has_decided => {
                    let at = self.now + self.below(9) as i64;
                    self.wanted.get_mut(&promise.task).expect("it is there").decides = Some(at);
                }
                // Nobody counts on it yet.
                Effect::Removed { task } | Effect::Lost { task }
                    if !self.wanted[&task].has_decided =>
                {
                    let wanted = self.wanted.get_mut(&task).expect("it is there");
                    wanted.decides = None;
                    wanted.begin_round();
                }
                Effect::Promised { at, promise } => {
                    let is_excused = !self.is_held(promise.task, at);
                    // Of one in parts somebody else may have taken one back.
                    let is_elsewhere =
                        at != server(node) || !self.wanted[&promise.task].task.parts.is_empty();
                    let is_known = is_elsewhere || gone.contains(&promise.task);
                    assert!(!is_excused || is_known, "{promise:?}: nobody has promised it here");
                    let is_whole = self.nodes.iter().any(|it| it.desk.task(promise.task).is_some());
                    self.happened.in_parts += usize::from(!is_whole);
                    self.happened.elsewhere += usize::from(at != server(node));
                    let wanted = self.told(node, promise.task, State::Asked, State::Promised);
                    assert!(promise.times.end <= wanted.task.window.deadline, "{promise:?}");
                    (wanted.at, wanted.is_excused) = (Some(at), is_excused);
                    if !wanted.has_gone_ahead {
                        let at = self.now + self.below(9) as i64;
                        self.wanted.get_mut(&promise.task).expect("it is there").goes_ahead =
                            Some(at);
                    }
                }
                Effect::Refused { task, .. } => {
                    self.happened.refused += 1;
                    self.told(node, task, State::Asked, State::Refused);
                }
                Effect::Removed { task } | Effect::Lost { task } => {
                    let is_removed = matches!(effect, Effect::Removed { .. });
                    assert!(!is_removed || self.may_be_removed(task), "{task:?}: for nothing");
                    self.happened.removed += usize::from(is_removed);
                    self.happened.lost += usize::from(!is_removed);
                    let wanted = self.told(node, task, State::Promised, State::Asked);
                    wanted.parts_done.clear();
                    wanted.is_unheard = false;
                    wanted.begin_round();
                }
            }
        }
        shaken.into_iter().for_each(|id| self.hang_up(id));
    }

    /// Whether what was said to be promised still is: somebody may be gone, or have taken it back, and the word of
    /// it is on its way.
    fn is_held(&self, id: TaskId, at: ServerId) -> bool {
        let there = (0..self.nodes.len()).filter(|node| !self.gone.contains(node));
        let is_held = |id: TaskId, at: Option<ServerId>| {
            let mut places = there.clone().filter(|node| at.is_none_or(|at| at == server(*node)));
            places.any(|node| self.nodes[node].desk.task(id).is_some())
        };
        let Wanted { task, parts_done, .. } = &self.wanted[&id];
        let mut parts = (1..=task.parts.len() as u16).filter(|part| !parts_done.contains(part));
        is_held(id, Some(at))
            || !task.parts.is_empty() && parts.all(|part| is_held(TaskId { part, ..id }, None))
    }

    /// Whoever wants a task is told something, which has to make sense.
    fn told(&mut self, node: usize, id: TaskId, from: State, to: State) -> &mut Wanted {
        let wanted = self.wanted.get_mut(&id).expect("somebody wants it");
        assert_eq!(wanted.owner, node, "{id:?}: told at another planner");
        assert_eq!(wanted.state, from, "{id:?}: told {to:?} at {}", self.now);
        wanted.state = to;
        wanted
    }

    fn say(&mut self, from: usize, said: Said) {
        for id in tasks_of(&said.message) {
            let wanted = self.wanted.get_mut(&id).expect("somebody wants it");
            // It was answered, and is tried again, whichever of the two is heard first.
            if matches!(said.message, Message::TakenBack { .. }) {
                wanted.begin_round();
                wanted.is_excused = true;
            }
            wanted.messages += 1;
        }
        if self.gone.contains(&from) {
            return;
        }
        let goes_wrong = self.now < BUSY;
        let (lost, doubled) = (self.setting.lost, self.setting.doubled);
        let copies = match (self.below(100) < lost, self.below(100) < doubled) {
            (true, _) if goes_wrong => 0,
            (_, true) if goes_wrong => 2,
            (_, _) => 1,
        };
        for _ in 0..copies {
            let at = self.now + 1 + self.below(self.setting.delay_max) as i64;
            self.count += 1;
            self.on_the_way.insert((at, self.count), (from, said.clone()));
        }
    }

    /// The most messages that were said for a task as a whole, and for one that can be taken apart.
    pub(crate) fn messages(&self) -> [usize; 2] {
        let most = |in_parts: bool| {
            let own = self.wanted.values().filter(|it| it.task.parts.is_empty() != in_parts);
            own.map(|wanted| wanted.messages_max.max(wanted.messages)).max().unwrap_or(0)
        };
        [most(false), most(true)]
    }
}

/// Of the tasks as a whole, each once.
fn tasks_of(message: &Message) -> BTreeSet<TaskId> {
    let ids = match message {
        Message::Offer(offer) => offer.tasks.iter().map(|task| task.id).collect(),
        Message::Request { task, .. } | Message::Keep { task } => vec![task.id],
        Message::Bid { task, .. }
        | Message::Cancel { task, .. }
        | Message::TakenBack { task, .. }
        | Message::Take { task, .. }
        | Message::Done { task } => vec![*task],
        Message::Answer { tasks, .. } | Message::Confirm { tasks, .. } => tasks.clone(),
    };
    ids.into_iter().map(whole).collect()
}
