//! All inputs of a site.
//!
//! This file and `output.rs` define the system: a driver only turns the world into inputs, and outputs into effects.

mod executors;
mod mailing;
mod recurring;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::{Method, RequestDigest};
use legwork_model::id::{ActivityId, AgentId, InstanceId, ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_plan::ResourceId;
use serde_json::Value as Json;

use crate::catalog::access::Scope;
use crate::message::Message;
use crate::output::ClosedStream;
use crate::planning::Wish;
pub use executors::{Concern, Outcome, RegisterExecutor, TaskReport};
pub use mailing::{Mailing, Notice};
pub use recurring::{PutSchedule, Recurring};

/// Data by element name, as received over the wire.
pub type Data = BTreeMap<String, Json>;

#[derive(Debug)]
pub enum Input {
    /// At start: a stream that is not closed. The site's own stream comes first, in portions.
    Recovered(Stream),
    /// The site's own stream is complete.
    SiteRecovered,
    /// A request of a client. Answered exactly once.
    Request { id: RequestId, credential: Credential, request: Request },
    /// The reply to `Output::Load`.
    Loaded(Stream),
    /// The reply to `Output::ReadHistory`.
    HistoryRead {
        id: RequestId,
        instance: InstanceId,
        first: Option<Vec<u8>>,
        records: Vec<Vec<u8>>,
    },
    /// The reply to `Output::ReadClosed`.
    ClosedRead { id: RequestId, streams: Vec<ClosedStream> },
    /// The reply to `Output::ReadOwn`.
    OwnRead { id: RequestId, record: Option<Vec<u8>> },
    /// A message of another server.
    Message { from: ServerId, message: Message },
    /// Another server can be reached now, or cannot any more.
    Link { to: ServerId, is_up: bool },
    /// The reply to `Output::ReadEntries`.
    EntriesRead {
        instance: InstanceId,
        to: ServerId,
        number: u32,
        from: u64,
        records: Vec<Vec<u8>>,
    },
    /// The reply to `Output::FetchFiles`: these contents are stored here.
    FilesHere { instance: InstanceId, blobs: Vec<[u8; 32]> },
    /// The reply to `Output::ReadCatalog`.
    CatalogRead { to: ServerId, from: u64, records: Vec<Vec<u8>> },
    /// A server was moved: its store has arrived completely at this host, in this change of the topology. Given to any
    /// server of this host, which reports it to the registrar, and to the moved server when it is opened here; again
    /// after each restart, before anything but stored streams. A registrar that moves has to be opened for that: it
    /// reports to itself.
    Moved { change: u32, server: ServerId },
    /// The store of this server is about to leave for another host: from now on only records of the catalog are
    /// appended. Given again after each restart, likewise.
    GivenAway { change: u32 },
    /// The client of a waiting request has disconnected.
    Cancelled { id: RequestId },
    /// Time passed unseen: a clock set forward, a suspended machine. Messages of that time come after this.
    Jumped { by: Duration },
    /// These jobs were given out, and the answer did not reach the worker, who has disconnected: they are queued again.
    Unheard { jobs: Vec<JobLease> },
    /// The process is about to stop in good order.
    Stopping,
    /// The end of a batch of inputs: waiting requests are served. Given once for each batch, so that a busy site
    /// answers in batches and an idle one at once.
    Settle,
}

/// The records of one stream, from a snapshot on if there is one.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub id: u128,
    pub snapshot: Option<(u64, Vec<u8>)>,
    /// The records after the snapshot, oldest first.
    pub records: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The credential of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// None; enough only while no token exists.
    None,
    /// The hash of a bearer token.
    Token([u8; 32]),
    /// None: for requests that everybody may make.
    Anybody,
    /// The verified signature of a registered executor.
    Executor(Arc<str>),
    /// The verified token of a letter to this agent: acts like a token of the agent.
    Reply(AgentId),
    /// The sender of mail for this server.
    Mailer,
    /// The driver, on behalf of this schedule.
    Schedule(Arc<str>),
}

#[derive(Debug)]
pub enum Request {
    Deploy {
        source: String,
    },
    /// The latest versions, by name; only processes after the given one.
    Definitions {
        after: Option<Arc<str>>,
        limit: usize,
    },
    /// Oldest first; only versions after the given one.
    DefinitionVersions {
        process: Arc<str>,
        after: u32,
        limit: usize,
    },
    Definition {
        process: Arc<str>,
        version: Option<u32>,
    },
    PublishOrganisation {
        source: String,
    },
    /// The given version, or the one in force.
    Organisation {
        version: Option<u32>,
    },
    /// Oldest first; only versions after the given one.
    OrganisationVersions {
        after: u32,
        limit: usize,
    },

    /// A topology that moves instances or servers is locked first; see `Reconfiguration`.
    PublishTopology(PublishTopology),
    /// The progress of the change of the topology under way, or the outcome of the last one.
    Reconfiguration,
    /// Undoes the change under way.
    Undo {
        why: Option<String>,
    },
    /// The given epoch, or the one in force.
    Topology {
        epoch: Option<u32>,
    },
    /// Oldest first; only epochs after the given one.
    TopologyVersions {
        after: u32,
        limit: usize,
    },

    Start(Start),
    /// The instance as it is; with `wait_until`, when it has ended or that moment has come.
    Show {
        instance: InstanceId,
        wait_until: Option<Timestamp>,
    },
    History {
        instance: InstanceId,
        from: u64,
        limit: usize,
    },
    List(List),
    Suspend {
        instance: InstanceId,
        reason: Option<String>,
    },
    Resume {
        instance: InstanceId,
        reason: Option<String>,
    },
    Abort {
        instance: InstanceId,
        reason: String,
    },
    Incidents {
        limit: usize,
        after: Option<InstanceId>,
    },
    Resolve {
        activity: ActivityId,
        resolution: Resolution,
    },

    Worklist(Worklist),
    Item {
        agent: AgentId,
        activity: ActivityId,
    },
    Claim {
        agent: AgentId,
        activity: ActivityId,
    },
    Release {
        agent: AgentId,
        activity: ActivityId,
    },
    Delegate {
        agent: AgentId,
        activity: ActivityId,
        to: AgentId,
    },
    Complete(Complete),

    Activate(Activate),
    CompleteJobs {
        worker: Arc<str>,
        jobs: Vec<JobResult>,
    },
    FailJobs {
        worker: Arc<str>,
        jobs: Vec<JobFailure>,
    },
    ExtendJobs {
        worker: Arc<str>,
        jobs: Vec<JobLease>,
        lease: Duration,
    },
    /// Jobs that their worker will not do: they are queued again.
    ReturnJobs {
        jobs: Vec<JobLease>,
    },

    /// About executors, or by one.
    Executor(Concern),
    /// The plan of a performer.
    Plan {
        resource: ResourceId,
    },
    /// About letters, by the sender of mail.
    Mail(Mailing),
    /// About periodic starts.
    Schedule(Recurring),

    IssueToken {
        name: String,
        hash: [u8; 32],
        scopes: Vec<Scope>,
    },
    RevokeToken {
        name: String,
    },
    /// By name; only those after the given one.
    Tokens {
        after: Option<String>,
        limit: usize,
    },
    /// Name and scopes of the caller.
    WhoAmI,
    /// Whether the caller may read and change everything. Asked by handlers beside the site, as for backup.
    RequireAdmin,
    /// Whether the caller may store and fetch files.
    RequireFiles,
    /// Whether an activity is controlled here. Names its agent, if it is an item on a worklist.
    RequireControl(ActivityId, Option<AgentId>),
}

/// The subject of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject<'a> {
    /// An instance to read.
    Instance(InstanceId),
    /// A command for an instance as a whole.
    Order(InstanceId),
    /// An instance that an executor reports on, to the server that assigned the task.
    Task(InstanceId),
    /// An activity, and its agent, if it is an item on a worklist.
    Activity(&'a ActivityId, Option<&'a AgentId>),
    /// No instance, or many, or one whose state does not matter.
    Other,
}

impl Request {
    /// Whether a server without a catalog can answer the request: requests about the server itself, and requests for
    /// the registrar, which it knows.
    pub(crate) fn needs_no_catalog(&self) -> bool {
        matches!(
            self,
            Self::Deploy { .. }
                | Self::PublishOrganisation { .. }
                | Self::PublishTopology(_)
                | Self::Undo { .. }
                | Self::Executor(
                    Concern::Register(_)
                        | Concern::Remove { .. }
                        | Concern::SetPolicy { .. }
                        | Concern::Figures { .. }
                )
                | Self::Schedule(_)
                | Self::IssueToken { .. }
                | Self::RevokeToken { .. }
                | Self::Reconfiguration
                | Self::Topology { .. }
                | Self::TopologyVersions { .. }
                | Self::WhoAmI
                | Self::RequireAdmin
                | Self::RequireFiles
        )
    }

    pub(crate) fn subject(&self) -> Subject<'_> {
        match self {
            Self::Show { instance, .. } => Subject::Instance(*instance),
            Self::Suspend { instance, .. }
            | Self::Resume { instance, .. }
            | Self::Abort { instance, .. } => Subject::Order(*instance),
            Self::Executor(
                Concern::Report(TaskReport { task, .. }) | Concern::Confirm { task, .. },
            ) => Subject::Task(task.activity.instance),
            Self::Resolve { activity, .. } => Subject::Activity(activity, None),
            Self::RequireControl(activity, agent) => Subject::Activity(activity, agent.as_ref()),
            Self::Item { agent, activity }
            | Self::Claim { agent, activity }
            | Self::Release { agent, activity }
            | Self::Delegate { agent, activity, .. }
            | Self::Complete(Complete { agent, activity, .. }) => {
                Subject::Activity(activity, Some(agent))
            }
            Self::Deploy { .. }
            | Self::Definitions { .. }
            | Self::DefinitionVersions { .. }
            | Self::Definition { .. }
            | Self::PublishOrganisation { .. }
            | Self::Organisation { .. }
            | Self::OrganisationVersions { .. }
            | Self::PublishTopology(_)
            | Self::Reconfiguration
            | Self::Undo { .. }
            | Self::Topology { .. }
            | Self::TopologyVersions { .. }
            | Self::Start(_)
            | Self::History { .. }
            | Self::List(_)
            | Self::Incidents { .. }
            | Self::Worklist(_)
            | Self::Activate(_)
            // Instances with open jobs stay in memory: a job of another one is not open.
            | Self::CompleteJobs { .. }
            | Self::FailJobs { .. }
            | Self::ExtendJobs { .. }
            | Self::ReturnJobs { .. }
            | Self::Executor(
                Concern::Register(_)
                | Concern::Remove { .. }
                | Concern::SetPolicy { .. }
                | Concern::Policies
                | Concern::List { .. }
                | Concern::Figures { .. },
            )
            | Self::Plan { .. }
            | Self::Mail(_)
            | Self::Schedule(_)
            | Self::IssueToken { .. }
            | Self::RevokeToken { .. }
            | Self::Tokens { .. }
            | Self::WhoAmI
            | Self::RequireAdmin
            | Self::RequireFiles => Subject::Other,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct PublishTopology {
    pub source: String,
    /// How new weights take effect; by time stamp if `None`.
    pub method: Option<Method>,
    /// Only show what would change for what is at this server; each server is asked.
    pub dry_run: bool,
    /// Names of servers that are down for good: the change does not wait for them.
    pub without: Vec<Arc<str>>,
}

#[derive(Debug)]
pub struct Start {
    /// Drawn by the driver: larger than earlier ones, and controlled by this server in its domain. A repetition does
    /// not use it.
    pub instance: InstanceId,
    pub process: Arc<str>,
    pub version: Option<u32>,
    pub data: Data,
    pub agent: Option<AgentId>,
    /// A start with a key happens once, however often it is requested. Boxed: most have none.
    pub key: Option<Box<Key>>,
    /// Answer only when the instance has ended or this moment has come.
    pub wait_until: Option<Timestamp>,
    /// The wanted deadline. Boxed: most have none.
    pub deadline: Option<Box<Wish>>,
}

/// What to do with a start that cannot be promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unpromised {
    #[default]
    Refuse,
    /// Start it without a promise.
    Start,
}

/// The idempotency key of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key's own stream.
    pub stream: StreamId,
    /// Digest of the request, which tells a repetition from another request.
    pub request: u64,
}

#[derive(Debug, Default)]
pub struct List {
    pub process: Option<Arc<str>>,
    /// Running and suspended instances, or those that have ended.
    pub ended: bool,
    /// Only those with a deadline.
    pub deadline: bool,
    pub limit: usize,
    /// Newest first; only instances with smaller ids.
    pub before: Option<InstanceId>,
}

#[derive(Debug)]
pub struct Worklist {
    pub agent: AgentId,
    /// A cursor from an earlier answer; `None` for the whole list.
    pub since: Option<String>,
    pub limit: usize,
    /// Answer only when something has changed or this moment has come.
    pub wait_until: Option<Timestamp>,
}

#[derive(Debug)]
pub struct Complete {
    pub agent: AgentId,
    pub activity: ActivityId,
    pub data: Data,
    /// At decisions: the name of the branch, at the end of a loop `repeat` or `leave`.
    pub answer: Option<String>,
    /// If it carries an idempotency key.
    pub request: Option<RequestDigest>,
}

#[derive(Debug)]
pub struct Activate {
    pub worker: Arc<str>,
    pub types: Vec<Arc<str>>,
    pub max: usize,
    pub lease: Duration,
    /// Answer only when there is a job or this moment has come.
    pub wait_until: Option<Timestamp>,
}

/// The right to work on a job for some time. The highest bits of its number are those of the server that issued it, so
/// that a report finds that server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLease {
    pub activity: ActivityId,
    pub lease: u64,
}

impl JobLease {
    pub(crate) const SERVER_BITS: u32 = 16;
    const COUNTER_BITS: u32 = u64::BITS - Self::SERVER_BITS;

    /// The number of a lease issued by a server.
    pub(crate) fn number(server: ServerId, counter: u64) -> u64 {
        u64::from(server.0) << Self::COUNTER_BITS | counter & (u64::MAX >> Self::SERVER_BITS)
    }

    /// The server that issued a lease of this number.
    pub fn server(lease: u64) -> ServerId {
        ServerId((lease >> Self::COUNTER_BITS) as u16)
    }
}

#[derive(Debug)]
pub struct JobResult {
    pub job: JobLease,
    pub data: Data,
}

#[derive(Debug)]
pub struct JobFailure {
    pub job: JobLease,
    pub error: String,
    /// Without it the failure becomes an incident at once.
    pub retry: bool,
}

/// The resolution of an incident.
#[derive(Debug)]
pub enum Resolution {
    Retry,
    /// At a decision that failed: take this branch.
    Choose(String),
    /// At a step that failed: these are its outputs.
    Complete(Data),
}
