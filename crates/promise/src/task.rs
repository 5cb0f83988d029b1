//! What is to be promised: a task, and who can do it.

use std::fmt;
use std::sync::Arc;

use legwork_model::id::{AgentId, InstanceId, instance_bytes, shared_text};
use legwork_model::time::Timestamp;
use minicbor::{Decode, Encode};

use crate::plan::{Times, Window};
use crate::supply::Work;

/// A step of an instance, in one round of its loops; of a step that was taken apart, one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct TaskId {
    #[cbor(n(0), with = "instance_bytes")]
    pub instance: InstanceId,
    #[n(1)]
    pub step: u32,
    /// The number of its iteration.
    #[n(2)]
    pub round: u64,
    /// 0 is the step as a whole.
    #[n(3)]
    pub part: u16,
}

impl TaskId {
    pub fn new(instance: InstanceId, step: u32) -> Self {
        Self { instance, step, round: 0, part: 0 }
    }
}

/// Who can do something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(flat)]
pub enum ResourceId {
    #[n(0)]
    Person(#[n(0)] AgentId),
    #[n(1)]
    Executor(#[cbor(n(0), with = "shared_text")] Arc<str>),
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person(agent) => write!(f, "{agent}"),
            Self::Executor(name) => write!(f, "executor {name}"),
        }
    }
}

/// Whether less important tasks make way for one that nobody has the time for otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Displaces {
    #[n(0)]
    Never,
    #[n(1)]
    #[default]
    AtOnce,
    /// Room is held, and they make way when whoever asked says so: it needs room for more than this task.
    #[n(2)]
    WhenTold,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Task {
    #[n(0)]
    pub id: TaskId,
    /// The higher, the more important.
    #[n(1)]
    pub priority: u8,
    #[n(2)]
    pub window: Window,
    /// How much work it is.
    #[n(3)]
    pub service: Work,
    /// Those who can do it.
    #[n(4)]
    pub who: Vec<ResourceId>,
    /// Those who do it if none of them can any more.
    #[n(5)]
    pub deputies: Vec<ResourceId>,
    /// Into what it can be taken apart, if at all.
    #[n(6)]
    pub parts: Vec<Part>,
    /// The promise may be taken back for something more important.
    #[n(7)]
    pub may_abort: bool,
    /// Whether less important ones make way for it.
    #[n(8)]
    pub displaces: Displaces,
    /// Who of them can do it only at times: whoever stands in for somebody, while that one is away. Of one of them in
    /// the order of these times.
    #[n(9)]
    pub only: Vec<Only>,
    /// What the step is called, for those who look at plans. Empty if nobody said so.
    #[cbor(n(10), with = "shared_text", skip_if = "is_unnamed")]
    pub step: Arc<str>,
}

fn is_unnamed(step: &Arc<str>) -> bool {
    step.is_empty()
}

/// When somebody can do a task.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Only {
    #[n(0)]
    pub who: ResourceId,
    #[n(1)]
    pub within: Window,
}

impl Task {
    /// A step like most: whoever can do it, without parts, never taken back.
    pub fn new(id: TaskId, window: Window, service: Work, who: Vec<ResourceId>) -> Self {
        Self {
            id,
            priority: 0,
            window,
            service,
            who,
            deputies: Vec::new(),
            parts: Vec::new(),
            may_abort: false,
            displaces: Displaces::AtOnce,
            only: Vec::new(),
            step: Arc::default(),
        }
    }

    /// When somebody can do it, one time after the other, also later than it is wanted.
    pub fn times_for(&self, who: &ResourceId) -> Vec<Window> {
        let begin = self.window.release;
        let only = self.only.iter().filter(|only| only.who == *who).map(|only| only.within);
        let times = only.map(|within| Window { release: begin.max(within.release), ..within });
        let times: Vec<Window> = times.collect();
        if times.is_empty() {
            return vec![Window { release: begin, deadline: Timestamp(i64::MAX) }];
        }
        times
    }

    /// The windows for somebody who does it in one of them. There is at least one; it ends before it begins if they
    /// cannot do it then.
    pub fn windows_for(&self, who: &ResourceId) -> Vec<Window> {
        let end = self.window.deadline;
        let times = self.times_for(who).into_iter();
        times.map(|time| Window { deadline: end.min(time.deadline), ..time }).collect()
    }

    /// The one of these windows that has the most in common with another, or is nearest to it.
    pub fn window_near(&self, who: &ResourceId, other: Window) -> Window {
        let windows = self.windows_for(who).into_iter();
        windows.max_by_key(|window| window.common(other)).unwrap_or(self.window)
    }

    /// The same for its deputies, if it has any.
    pub fn for_deputies(mut self) -> Option<Self> {
        if self.deputies.is_empty() {
            return None;
        }
        self.who = std::mem::take(&mut self.deputies);
        Some(self)
    }

    /// How long it could wait; negative if it is too late for it. In time of the clock, as a measure.
    pub fn slack(&self, now: Timestamp) -> i64 {
        self.window.deadline.0.saturating_sub(now.0).saturating_sub(self.service.0)
    }
}

/// A part of a task that can be taken apart.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Part {
    #[n(0)]
    pub service: Work,
    /// The parts that have to be done before, by their places, which are smaller than its own.
    #[n(1)]
    pub after: Vec<u16>,
    /// What it costs to bring its result to a part that is done elsewhere.
    #[n(2)]
    pub carry: Work,
}

/// A deadline that will be kept, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Promise {
    #[n(0)]
    pub task: TaskId,
    #[n(1)]
    pub by: ResourceId,
    #[n(2)]
    pub times: Times,
}
