//! A process as its author wrote it: nested blocks, each with its span in the file.
//!
//! Blocks nest and never overlap, so every definition is block-structured. Whether it is *correct* is decided
//! by `check`; the engine runs the `schema` compiled from it.

use std::sync::Arc;
use std::time::Duration;

use crate::assignment::{Assignment, Place};
use crate::condition::Condition;
use crate::finding::{Span, Spanned};
use crate::rule::Rule;
use crate::value::ValueType;

#[derive(Clone, Debug)]
pub struct Definition {
    pub process: Spanned<Arc<str>>,
    pub title: Option<String>,
    /// What cases do when a server is down.
    pub availability: Option<Spanned<Availability>>,
    /// What happens when the deadline of a case passes.
    pub late: Option<Spanned<Late>>,
    /// The elements given when an instance starts: the writes of the start node.
    pub start: Vec<Use>,
    /// The elements that an ended instance returns: the reads of the end node.
    pub result: Vec<Use>,
    pub data: Vec<Element>,
    pub steps: Vec<Block>,
}

/// What cases do when the server that controls them is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Availability {
    /// They wait until it is back.
    #[default]
    Normal,
    /// Another server takes over. This requires a store that the servers of the domain share.
    High,
}

impl Availability {
    pub const ALL: [Self; 2] = [Self::Normal, Self::High];

    /// The word in a definition.
    pub fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

/// What happens when the deadline of a case passes before its end. People are told in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// People are told, and the case goes on.
    #[default]
    Tell,
    /// The case is aborted.
    Abort,
    /// The deadline is extended by this much.
    Extend(Duration),
}

impl Late {
    /// The variants that are one word in a definition.
    pub const WORDS: [(&str, Self); 2] = [("tell", Self::Tell), ("abort", Self::Abort)];
}

#[derive(Clone, Debug)]
pub struct Element {
    pub name: Spanned<Arc<str>>,
    pub kind: ValueType,
    pub title: Option<String>,
}

/// A read or a write of a data element; `amount?` in the file makes it optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    pub element: Spanned<Arc<str>>,
    pub optional: bool,
}

#[derive(Clone, Debug)]
pub enum Block {
    Step(Step),
    Parallel(Parallel),
    Choice(Choice),
    Loop(Loop),
}

#[derive(Clone, Debug)]
pub struct Step {
    pub name: Spanned<Arc<str>>,
    pub title: Option<String>,
    pub work: Work,
    pub reads: Vec<Use>,
    pub writes: Vec<Use>,
    /// Sync edges from steps of other branches of the same parallel block.
    pub after: Vec<Sync>,
    /// Where the step is controlled.
    pub at: Option<Spanned<Assignment>>,
    /// Its expected duration.
    pub takes: Option<Duration>,
    /// The inputs that a letter about it shows.
    pub mail: Vec<Spanned<Arc<str>>>,
    /// The step that undoes this one.
    pub undo: Option<Work>,
}

impl Step {
    /// Whether it is controlled at the home of its executor (`at: executor`), which the node before it finds.
    pub fn is_located(&self) -> bool {
        let is_executor = |at: &Spanned<Assignment>| at.value.place == Place::Executor;
        matches!(self.work, Work::Automatic { .. }) && self.at.as_ref().is_some_and(is_executor)
    }
}

/// What a step consists of.
#[derive(Clone, Debug)]
pub enum Work {
    /// For a person.
    Manual { who: Spanned<Rule> },
    /// For a program: a worker that polls jobs of this type, or an executor that is assigned them.
    Automatic { job: Spanned<Arc<str>>, retry: Retry, demand: Demand<Spanned<Arc<str>>> },
}

/// The demands of a job on its worker or executor. `E` names data elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand<E> {
    /// The size of the job, in the unit of the type.
    pub size: Measure<E>,
    /// Waiting jobs are ordered by priority and by how long they have waited.
    pub priority: Measure<E>,
    /// How long an executor may take, once it has begun, before another executor gets the task.
    pub timeout: Option<Duration>,
}

/// A constant, or a data element that the step reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure<E> {
    Number(u32),
    Element(E),
}

impl<E> Demand<E> {
    pub const SIZE_DEFAULT: u32 = 1;
    pub const PRIORITY_DEFAULT: u32 = 5;
    pub const PRIORITY_MAX: u32 = 9;

    /// Renames the elements.
    pub fn map<F, X>(self, mut name: impl FnMut(E) -> Result<F, X>) -> Result<Demand<F>, X> {
        let mut measure = |measure| {
            Ok(match measure {
                Measure::Number(number) => Measure::Number(number),
                Measure::Element(element) => Measure::Element(name(element)?),
            })
        };
        let (size, priority) = (measure(self.size)?, measure(self.priority)?);
        Ok(Demand { size, priority, timeout: self.timeout })
    }
}

impl<E> Default for Demand<E> {
    fn default() -> Self {
        Self {
            size: Measure::Number(Self::SIZE_DEFAULT),
            priority: Measure::Number(Self::PRIORITY_DEFAULT),
            timeout: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How often a failed attempt is repeated before it becomes an incident.
    pub times: u32,
    /// The pause before the first repetition; it doubles with each further one, up to an hour.
    pub pause: Duration,
}

/// `to` (the step it is written at) waits for `from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sync {
    pub from: Spanned<Arc<str>>,
    /// Strict (`requires:`): if `from` is skipped, so is the step. Soft (`after:`): it goes ahead.
    pub strict: bool,
}

#[derive(Clone, Debug)]
pub struct Parallel {
    pub name: Spanned<Arc<str>>,
    pub title: Option<String>,
    pub branches: Vec<Branch>,
}

#[derive(Clone, Debug)]
pub struct Choice {
    pub name: Spanned<Arc<str>>,
    pub title: Option<String>,
    pub by: ChoiceBy,
    pub branches: Vec<Branch>,
}

#[derive(Clone, Debug)]
pub enum ChoiceBy {
    /// The branches' own conditions.
    Conditions,
    /// A person picks a branch by its name.
    Person(Decider),
}

/// The person who decides at a choice or at the end of a loop, and the inputs shown to them.
#[derive(Clone, Debug)]
pub struct Decider {
    pub who: Spanned<Rule>,
    pub reads: Vec<Use>,
    pub at: Option<Spanned<Assignment>>,
    pub takes: Option<Duration>,
    /// The inputs that a letter to them shows.
    pub mail: Vec<Spanned<Arc<str>>>,
}

#[derive(Clone, Debug)]
pub struct Branch {
    pub name: Spanned<Arc<str>>,
    pub title: Option<String>,
    pub guard: Guard,
    pub steps: Vec<Block>,
}

#[derive(Clone, Debug)]
pub enum Guard {
    /// For a parallel branch, or one that a person picks.
    None,
    When(Spanned<Condition>),
    /// Taken when no other branch's condition is true.
    Otherwise(Span),
}

#[derive(Clone, Debug)]
pub struct Loop {
    pub name: Spanned<Arc<str>>,
    pub title: Option<String>,
    pub body: Vec<Block>,
    pub until: Until,
    /// More repetitions than this are an incident.
    pub times_max: u32,
    /// How many iterations a promised deadline reserves time for.
    pub rounds: u32,
}

#[derive(Clone, Debug)]
pub enum Until {
    Condition(Spanned<Condition>),
    /// A person decides between `repeat` and `leave`.
    Person(Decider),
}

impl Retry {
    pub const DEFAULT: Self = Self { times: 3, pause: Duration::from_secs(1) };
    const PAUSE_MAX: Duration = Duration::from_secs(3600);

    /// The pause after the given number of failed attempts, the first being 1.
    pub fn pause_after(self, attempt: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
        self.pause.saturating_mul(doubled).min(Self::PAUSE_MAX.max(self.pause))
    }
}

impl Block {
    pub fn name(&self) -> &Spanned<Arc<str>> {
        match self {
            Self::Step(step) => &step.name,
            Self::Parallel(parallel) => &parallel.name,
            Self::Choice(choice) => &choice.name,
            Self::Loop(l) => &l.name,
        }
    }
}
