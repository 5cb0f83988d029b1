//! Answers of a site: plain values, turned into JSON by the server.

mod deadlines;

use std::sync::Arc;
use std::time::Duration;

use legwork_engine::{Failure, Lifecycle, NodeState};
use legwork_mail::{About, Passing, Turn};
use legwork_model::event::{Channel, ExecutorRegistered, Fired, Method, Performer, Period, Within};
use legwork_model::finding::Finding;
use legwork_model::id::{ActivityId, AgentId, InstanceId, ServerId};
use legwork_model::schema::Branch;
use legwork_model::time::Timestamp;
use legwork_model::value::{Value, ValueType};
use legwork_model::zone::Zone;
use legwork_placement::Topology;

use crate::catalog::access::Scope;
use crate::input::{Data, Notice};
use crate::refusal::Refusal;
pub use deadlines::{DeadlineView, LegView, PlanView, PlannedTurn, Revoked};

#[derive(Debug)]
pub enum Answer {
    Done,
    Deployed {
        process: Arc<str>,
        version: u32,
        unchanged: bool,
        warnings: Vec<Finding>,
    },
    Published {
        version: u32,
        unchanged: bool,
        warnings: Vec<Finding>,
    },
    Definitions {
        definitions: Vec<DefinitionInfo>,
        more: bool,
    },
    Definition {
        info: DefinitionInfo,
        source: Arc<str>,
    },
    Organisation {
        version: u32,
        source: Arc<str>,
        agents: Vec<AgentInfo>,
    },
    /// A version that is no longer in force.
    OrganisationText {
        version: u32,
        source: Arc<str>,
    },
    Topology {
        topology: Arc<Topology>,
        source: Arc<str>,
        /// The server that answers.
        here: Option<ServerId>,
    },
    /// An epoch that is no longer in force.
    TopologyText {
        epoch: u32,
        source: Arc<str>,
    },
    Versions {
        versions: Vec<VersionInfo>,
        more: bool,
    },
    Reconfiguration(Box<Reconfiguration>),
    DryRun(Box<DryRun>),
    /// `repeated`: an earlier, identical request had started it.
    Started {
        instance: Box<InstanceInfo>,
        repeated: bool,
    },
    Instance(Box<InstanceView>),
    /// Whether a deadline could be promised, and how.
    Deadline(Box<DeadlineView>),
    Plan(Box<PlanView>),
    /// `next`: where the next page begins.
    Instances {
        instances: Vec<InstanceInfo>,
        next: Option<InstanceId>,
    },
    History {
        entries: Vec<HistoryEntry>,
        next: Option<u64>,
    },
    Incidents {
        incidents: Vec<IncidentView>,
        more: bool,
    },
    Worklist(WorklistView),
    Item(Box<ItemDetail>),
    Jobs(Vec<Job>),
    /// One result for each job, in order.
    JobResults(Vec<Result<(), Refusal>>),
    /// `unchanged`: the same registration was known.
    ExecutorRegistered {
        unchanged: bool,
    },
    /// By type.
    Policies(Vec<PolicyInfo>),
    /// Whether a periodic start has to be carried out.
    Wanted(bool),
    /// `unchanged`: the same schedule was known.
    SchedulePut {
        unchanged: bool,
        next: Option<Timestamp>,
    },
    Schedule(Box<ScheduleInfo>),
    Schedules {
        schedules: Vec<ScheduleInfo>,
        more: bool,
    },
    Executors {
        executors: Vec<ExecutorInfo>,
        more: bool,
    },
    /// Metrics of executors, by name; the first page also has the number of waiting jobs of each type.
    Figures {
        executors: Vec<ExecutorInfo>,
        more: bool,
        waiting: Vec<(Arc<str>, usize)>,
    },
    Tokens {
        tokens: Vec<TokenInfo>,
        more: bool,
    },
    Caller {
        name: Option<String>,
        scopes: Vec<Scope>,
    },
    /// The letter that is due next. Without a letter, `more` says whether further items have to be checked.
    Letter {
        letter: Option<Box<Letter>>,
        more: bool,
    },
    /// The mail address of an agent.
    Address(Option<Arc<str>>),
    /// The agent with an address, and the address as written in the organisation.
    Person(Option<(AgentId, Arc<str>)>),
}

/// A letter by mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    pub address: Arc<str>,
    /// The time zone of the recipient.
    pub zone: Zone,
    /// To be reported when the letter was sent.
    pub notice: Notice,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// About one item, which can be answered by mail until that moment if there are words for that.
    Item { about: About, expires_at: Timestamp },
    /// About the promise of a case.
    Case(Turn),
    /// About the deadline of a case.
    Deadline(Passing),
    /// About everything in its notice, with the last moment at which one of its promises was revoked or renewed.
    Digest { turned_at: Option<Timestamp> },
}

/// An executor as seen by this server, or a worker that asks for types of executors.
#[derive(Clone, Debug)]
pub struct ExecutorInfo {
    pub name: Arc<str>,
    /// `None` for a worker.
    pub registered: Option<Arc<ExecutorRegistered>>,
    pub types: Vec<ExecutorTypeInfo>,
    /// Until when it wants no tasks, as it reported.
    pub resting_until: Option<Timestamp>,
    /// It was silent for so long that it is presumed dead.
    pub is_silent: bool,
    /// Verdicts that it has not confirmed.
    pub unconfirmed: usize,
}

impl ExecutorInfo {
    /// Where a listing continues after this one. No executor's name begins like that of a worker.
    pub fn cursor(&self) -> String {
        match self.registered {
            Some(_) => self.name.to_string(),
            None => format!("{WORKER_CURSOR}{}", self.name),
        }
    }
}

/// Begins the cursor of a worker.
pub(crate) const WORKER_CURSOR: char = ':';

/// Observations of an executor for one type of jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutorTypeInfo {
    pub job: Arc<str>,
    /// `None` for a worker: it gets as many jobs as it asks for.
    pub limit: Option<u32>,
    pub outstanding: u32,
    /// The expected duration of a task of size 1, once it is begun.
    pub pace_ms: Option<f64>,
    pub answers: u64,
    pub timeouts: u64,
    pub failures: u64,
    /// It has failed so often that its circuit for this type is open.
    pub is_failing: bool,
}

/// The progress of the change of the topology under way, and the outcome of the last one.
#[derive(Clone, Debug)]
pub struct Reconfiguration {
    /// The epoch of the topology in force.
    pub epoch: u32,
    pub change: Option<ChangeView>,
    pub last: Option<LastChange>,
    /// Other weights proposed by the watch-dog, in words, for each domain.
    pub proposals: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct ChangeView {
    pub number: u32,
    pub phase: Phase,
    pub method: Method,
    pub since: Timestamp,
    /// The domains that are locked: they get no instances they do not have.
    pub domains: Vec<Arc<str>>,
    /// The servers being moved to another host.
    pub servers: Vec<Arc<str>>,
    /// The servers declared down for good: the change does not wait for them.
    pub without: Vec<Arc<str>>,
    /// The servers that have stored the beginning of the change, besides the registrar.
    pub acknowledged: Vec<Arc<str>>,
    pub reported: Vec<Arc<str>>,
    /// The servers whose reports are missing.
    pub missing: Vec<Arc<str>>,
    /// How many instances were reported to be in the locked domains, and how many of them are exceptions.
    pub open: u64,
    pub excepted: u64,
    /// The expected duration of the change, if known.
    pub estimate: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Servers of locked domains have to report.
    Locking,
    /// Servers are being moved to other hosts.
    Moving,
    /// All reports have arrived; the change ends.
    Ending,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastChange {
    pub number: u32,
    /// The epoch that it has led to; `None` if it was undone.
    pub epoch: Option<u32>,
    /// Why it was undone.
    pub why: Option<Arc<str>>,
}

/// What another topology would change for what is at this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRun {
    /// Domains that would be locked, anywhere.
    pub domains: Vec<Arc<str>>,
    /// Servers that would move, anywhere.
    pub servers: Vec<Arc<str>>,
    /// Open instances that were started here.
    pub open: u64,
    /// Instances with a part here that would move, with this server.
    pub moved: u64,
    /// Instances with a part here that would stay as exceptions.
    pub excepted: u64,
    /// What the exceptions would take at every server.
    pub bytes: u64,
}

#[derive(Clone, Debug)]
pub struct DefinitionInfo {
    pub process: Arc<str>,
    pub version: u32,
    pub title: Arc<str>,
    pub deployed_at: Timestamp,
}

/// A version of a process or of the organisation, and when it was published.
#[derive(Clone, Copy, Debug)]
pub struct VersionInfo {
    pub version: u32,
    pub at: Timestamp,
}

#[derive(Clone, Debug)]
pub struct AgentInfo {
    pub agent: AgentId,
    pub name: String,
}

/// An instance in a list.
#[derive(Clone, Debug)]
pub struct InstanceInfo {
    pub instance: InstanceId,
    pub process: Arc<str>,
    pub version: u32,
    pub lifecycle: Lifecycle,
    pub incidents: u32,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// The result elements; only if it has ended and was requested by its id.
    pub result: Vec<(Arc<str>, Value)>,
    pub deadline: Option<DeadlineView>,
}

/// An instance as a whole.
#[derive(Debug)]
pub struct InstanceView {
    pub info: InstanceInfo,
    pub title: Arc<str>,
    pub started_by: Performer,
    pub data: Vec<DataView>,
    pub nodes: Vec<NodeView>,
    /// The servers that control was handed over to from here, or received from.
    pub elsewhere: Vec<ElsewhereView>,
}

/// Another server that has a part of the instance.
#[derive(Debug)]
pub struct ElsewhereView {
    pub server: Arc<str>,
    /// Transfers that are not acknowledged yet.
    pub waiting: usize,
}

#[derive(Debug)]
pub struct DataView {
    pub element: Arc<str>,
    pub kind: ValueType,
    /// The latest version; `None` if nothing was written yet.
    pub value: Option<Value>,
    pub versions: u32,
}

/// A step or a block, in document order; `depth` is its nesting.
#[derive(Debug)]
pub struct NodeView {
    pub name: Arc<str>,
    pub title: Arc<str>,
    pub kind: &'static str,
    pub depth: u32,
    /// The branch it begins, if it is the first node of one.
    pub branch: Option<Arc<str>>,
    /// The branches of the block, including empty ones.
    pub branches: Vec<Branch>,
    pub state: StepState,
    pub activity: ActivityId,
    pub holder: Option<AgentId>,
    pub performer: Option<Performer>,
    pub attempts: u32,
    pub retry_at: Option<Timestamp>,
    pub incident: Option<(&'static str, String)>,
    /// The latest failed attempts, oldest first.
    pub failures: Vec<Failure>,
    /// The server that controls it; `None` if unknown yet, or for a single server.
    pub server: Option<Arc<str>>,
}

/// The state of a step or a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepState {
    NotActivated,
    Activated,
    Selected,
    /// An executor's result counts, and the executor has not confirmed the verdict.
    Answered,
    /// Of blocks: begun and not ended.
    Running,
    Completed,
    Skipped,
    Failed,
}

impl From<NodeState> for StepState {
    fn from(state: NodeState) -> Self {
        match state {
            NodeState::NotActivated => Self::NotActivated,
            NodeState::Activated => Self::Activated,
            NodeState::Selected => Self::Selected,
            NodeState::Completed => Self::Completed,
            NodeState::Skipped => Self::Skipped,
            NodeState::Failed => Self::Failed,
        }
    }
}

#[derive(Debug)]
pub struct HistoryEntry {
    /// Number of the record, from 0; entries of one command share it.
    pub record: u64,
    pub at: Timestamp,
    pub kind: &'static str,
    pub step: Option<Arc<str>>,
    pub iteration: Vec<u32>,
    pub by: Performer,
    pub started_at: Option<Timestamp>,
    pub writes: Vec<(Arc<str>, Value)>,
    /// Decision, error, reason, incident or recipient, in words.
    pub detail: Option<String>,
    /// The channel of the request, if known.
    pub channel: Option<Channel>,
    /// The server where it happened, if there are several.
    pub server: Option<Arc<str>>,
    /// The sender and the receiver of a transfer.
    pub from: Option<Arc<str>>,
    pub to: Option<Arc<str>>,
    /// The number of a transfer between two servers.
    pub number: Option<u32>,
}

#[derive(Debug)]
pub struct IncidentView {
    pub activity: ActivityId,
    pub process: Arc<str>,
    /// The stable code of its kind.
    pub kind: &'static str,
    pub message: String,
    pub at: Timestamp,
    /// The latest failed attempts that led to it, oldest first.
    pub failures: Vec<Failure>,
}

#[derive(Debug)]
pub struct WorklistView {
    pub cursor: String,
    /// The list begins anew: drop all previous items.
    pub reset: bool,
    pub items: Vec<ItemInfo>,
    pub removed: Vec<ActivityId>,
    /// Ask again with the cursor for the rest.
    pub more: bool,
    /// Servers that cannot be reached: their last known items are shown.
    pub unreachable: Vec<Unreachable>,
}

/// A server that cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    pub server: Arc<str>,
    pub since: Timestamp,
}

#[derive(Debug)]
pub struct ItemInfo {
    pub activity: ActivityId,
    pub process: Arc<str>,
    pub title: Arc<str>,
    pub offered_at: Timestamp,
    pub claimed_by: Option<AgentId>,
    pub takes: Option<Duration>,
    /// By when it has to be done for the deadline of its instance.
    pub due: Option<Timestamp>,
    /// The agent it is planned for.
    pub planned_for: Option<AgentId>,
    /// The absent person it is seen for, if not for oneself.
    pub on_behalf_of: Option<AgentId>,
    /// The server that has it; `None` for a single server.
    pub server: Option<Arc<str>>,
    /// Its server cannot be reached: the last known state is shown.
    pub stale: bool,
}

/// An item with what is needed to work on it.
#[derive(Debug)]
pub struct ItemDetail {
    pub info: ItemInfo,
    pub inputs: Vec<(Arc<str>, Value)>,
    pub outputs: Vec<OutputInfo>,
    /// At decisions: the possible answers.
    pub answers: Vec<(Arc<str>, Arc<str>)>,
}

#[derive(Debug)]
pub struct OutputInfo {
    pub element: Arc<str>,
    pub kind: ValueType,
    pub optional: bool,
    pub title: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Job {
    pub activity: ActivityId,
    pub job: Arc<str>,
    pub process: Arc<str>,
    pub lease: u64,
    pub expires_at: Timestamp,
    /// Counts from 1.
    pub attempt: u32,
    /// Amount of work, in the unit of the type.
    pub size: f64,
    pub inputs: Vec<(Arc<str>, Value)>,
}

#[derive(Clone, Debug)]
pub struct TokenInfo {
    pub name: String,
    pub scopes: Vec<Scope>,
    pub issued_at: Timestamp,
}

/// A process that is started periodically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleInfo {
    pub name: Arc<str>,
    pub process: Arc<str>,
    pub period: Period,
    pub data: Data,
    pub agent: Option<AgentId>,
    pub within: Option<Within>,
    pub by: Performer,
    pub put_at: Timestamp,
    pub is_paused: bool,
    /// `None` while it is paused.
    pub next: Option<Timestamp>,
    /// The last moment with an outcome, and the outcome.
    pub last: Option<(Timestamp, Fired)>,
}

/// The policy of a type of jobs.
#[derive(Clone, Debug)]
pub struct PolicyInfo {
    pub job: Arc<str>,
    pub policy: Arc<str>,
    /// The reason of each assignment is recorded in the history.
    pub recorded: bool,
    pub by: Performer,
}
