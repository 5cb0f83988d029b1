//! Events: the only vocabulary that is ever stored.
//!
//! State is a fold over events. A record holds all events of one command and is appended whole. Numbers in
//! `#[n(…)]` are the persistent format: new fields and variants get new numbers, old ones are never reused or
//! given another meaning. Golden bytes in the tests hold this in place. A new field must be optional: older
//! records lack it, and older programs skip it.

mod deadline;
mod mail;
mod plan;
mod record;
mod schedule;
mod site;
mod travel;

use std::sync::Arc;

use minicbor::{Decode, Encode};

use crate::id::{
    Activity, AgentId, DomainId, ElementId, InstanceId, ServerId, instance_bytes, shared_text,
};
use crate::schema::Schema;
use crate::time::Timestamp;
use crate::value::Value;
pub use deadline::{Deadline, Leg, Passed, Planned, Replanned, Then, Turned};
pub use mail::{MailEvent, Owed};
pub use plan::{PlanEvent, Reserved, StandsIn, TaskKey};
pub use record::{Record, RecordedAt, Unreadable, relative};
use record::{compact_activity, relative_if_any};
pub use schedule::{Fired, Period, ScheduleEvent, SchedulePut, Within};
pub use site::{
    ExecutorRegistered, ExecutorType, Method, PolicySet, RegularWork, Secret, SiteEvent,
    TokenIssued, Validity,
};
pub use travel::{Entry, FetchedValue, Order, Orders, Parcel, Passage, Received};

/// The events of one instance: its execution history.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat, context_bound = "AsRef<RecordedAt>")]
pub enum Event {
    /// The instance began; its inputs are the writes of the start node.
    #[n(0)]
    Created(#[n(0)] Box<Created>),
    /// A person reserved the activity for themselves.
    #[n(1)]
    Claimed {
        #[cbor(n(0), with = "compact_activity")]
        activity: Activity,
        #[n(1)]
        by: AgentId,
    },
    /// The activity is offered again to all its actors.
    #[n(2)]
    Released {
        #[cbor(n(0), with = "compact_activity")]
        activity: Activity,
        #[n(1)]
        by: AgentId,
    },
    /// The activity was handed to another person, who is now its holder.
    #[n(3)]
    Delegated {
        #[cbor(n(0), with = "compact_activity")]
        activity: Activity,
        #[n(1)]
        by: AgentId,
        #[n(2)]
        to: AgentId,
    },
    /// A step, or a decision by a person, was completed. One entry stands for start and end.
    #[n(4)]
    Completed(#[n(0)] Completed),
    /// A condition was evaluated at a choice or at the end of a loop. Recorded, so that replay
    /// never depends on the evaluator.
    #[n(5)]
    Decided {
        #[cbor(n(0), with = "compact_activity")]
        activity: Activity,
        /// The branch taken; at the end of a loop 0 repeats and 1 leaves.
        #[n(1)]
        code: u32,
    },
    /// An attempt failed; the next one is due at `retry_at`. Without one an incident follows.
    #[n(6)]
    Failed {
        #[cbor(n(0), with = "compact_activity")]
        activity: Activity,
        #[n(1)]
        by: Performer,
        #[n(2)]
        error: String,
        #[cbor(n(3), with = "relative_if_any", has_nil)]
        retry_at: Option<Timestamp>,
    },
    /// The activity cannot go on without a person's decision.
    #[n(7)]
    IncidentRaised {
        #[cbor(n(0), with = "compact_activity")]
        activity: Activity,
        #[n(1)]
        incident: Incident,
    },
    /// A person decided to retry. Other resolutions are recorded by the following `Completed` or `Decided`.
    #[n(8)]
    IncidentResolved {
        #[cbor(n(0), with = "compact_activity")]
        activity: Activity,
        #[n(1)]
        by: Performer,
    },
    #[n(9)]
    Suspended {
        #[n(0)]
        by: Performer,
        #[n(1)]
        reason: Option<String>,
    },
    #[n(10)]
    Resumed {
        #[n(0)]
        by: Performer,
        #[n(1)]
        reason: Option<String>,
    },
    #[n(11)]
    Aborted {
        #[n(0)]
        by: Performer,
        #[n(1)]
        reason: String,
    },
    /// A transfer about the instance to another server. It is resent until it is `Delivered`.
    #[n(12)]
    Sent {
        #[n(0)]
        to: ServerId,
        /// The sequence number of transfers to this server, from 1.
        #[n(1)]
        number: u32,
        #[n(2)]
        parcel: Parcel,
    },
    /// The other server has acknowledged the transfer.
    #[n(13)]
    Delivered {
        #[n(0)]
        to: ServerId,
        #[n(1)]
        number: u32,
    },
    /// A transfer came from another server, with the entries of the history before it that were unknown here.
    #[n(14)]
    Received(#[n(0)] Box<Received>),
    /// Values arrived that were written at another server.
    #[n(15)]
    Fetched {
        #[n(0)]
        values: Vec<FetchedValue>,
    },
    /// The end was reached by an instance that several servers controlled.
    #[n(16)]
    Finished,
    /// Transfers to a server are redirected to another one of its domain, in the same order, with the
    /// following sequence numbers: the weights of the domain have changed before any of them was
    /// acknowledged. Without a new target they are no longer needed, and dropped.
    #[n(17)]
    Redirected {
        #[n(0)]
        from: ServerId,
        #[n(1)]
        to: Option<ServerId>,
    },
    /// The result of an executor counts. The step is done with the `Completed` that follows when the executor
    /// has acknowledged the verdict.
    #[n(18)]
    Answered(#[n(0)] Box<Answered>),
    /// The activity was assigned to an executor. Recorded only on request.
    #[n(19)]
    Assigned(#[n(0)] Box<Assigned>),
    /// The promises of steps have changed: other performers, or none any more.
    #[n(20)]
    Replanned(#[n(0)] Box<Replanned>),
    /// The deadline passed before the case ended. Recorded where the case was started.
    #[n(21)]
    DeadlinePassed {
        /// The passed deadline; the record has the moment at which that was noticed.
        #[n(0)]
        at: Timestamp,
        /// The reaction of the process.
        #[n(1)]
        then: Then,
    },
}

impl Event {
    /// The start of the instance, if a history begins with this event: here or at another server.
    pub fn beginning(&self) -> Option<&Created> {
        match self {
            Self::Created(created) => Some(created),
            Self::Received(received) => received.entries.first()?.event.beginning(),
            Self::Claimed { .. }
            | Self::Released { .. }
            | Self::Delegated { .. }
            | Self::Completed(_)
            | Self::Decided { .. }
            | Self::Failed { .. }
            | Self::IncidentRaised { .. }
            | Self::IncidentResolved { .. }
            | Self::Suspended { .. }
            | Self::Resumed { .. }
            | Self::Aborted { .. }
            | Self::Sent { .. }
            | Self::Delivered { .. }
            | Self::Fetched { .. }
            | Self::Finished
            | Self::Redirected { .. }
            | Self::Answered(_)
            | Self::Assigned(_)
            | Self::Replanned(_)
            | Self::DeadlinePassed { .. } => None,
        }
    }

    /// The activity that this event ends; the start for `Created`, `None` for other events.
    pub fn ends(&self) -> Option<Activity> {
        match self {
            Self::Created(_) => Some(Activity::once(Schema::START)),
            Self::Completed(done) => Some(done.activity.clone()),
            Self::Decided { activity, .. } => Some(activity.clone()),
            Self::Claimed { .. }
            | Self::Released { .. }
            | Self::Delegated { .. }
            | Self::Failed { .. }
            | Self::IncidentRaised { .. }
            | Self::IncidentResolved { .. }
            | Self::Suspended { .. }
            | Self::Resumed { .. }
            | Self::Aborted { .. }
            | Self::Sent { .. }
            | Self::Delivered { .. }
            | Self::Received(_)
            | Self::Fetched { .. }
            | Self::Finished
            | Self::Redirected { .. }
            | Self::Answered(_)
            | Self::Assigned(_)
            | Self::Replanned(_)
            | Self::DeadlinePassed { .. } => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Created {
    #[cbor(n(0), with = "shared_text")]
    pub process: Arc<str>,
    #[n(1)]
    pub version: u32,
    #[n(2)]
    pub by: Performer,
    #[cbor(n(3), skip_if = "Vec::is_empty")]
    pub inputs: Vec<(ElementId, Value)>,
    #[n(4)]
    pub deadline: Option<Box<Deadline>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(context_bound = "AsRef<RecordedAt>")]
pub struct Completed {
    #[cbor(n(0), with = "compact_activity")]
    pub activity: Activity,
    #[n(1)]
    pub by: Performer,
    #[cbor(n(2), with = "relative")]
    pub started_at: Timestamp,
    #[cbor(n(3), skip_if = "Vec::is_empty")]
    pub writes: Vec<(ElementId, Value)>,
    /// The branch a person chose, at a choice; at the end of a loop 0 repeats and 1 leaves.
    #[n(4)]
    pub code: Option<u32>,
    /// The request that carried an idempotency key.
    #[n(5)]
    pub request: Option<RequestDigest>,
    /// The home of the performer, if not where the step is controlled.
    #[n(6)]
    pub home: Option<DomainId>,
    /// The channel of the request, if known.
    #[n(7)]
    pub channel: Option<Channel>,
}

/// The channel of a request. A number and no enum: an earlier release passes on values it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Channel(#[n(0)] pub u8);

impl Channel {
    /// A reply by mail.
    pub const MAIL: Self = Self(0);

    pub fn name(self) -> String {
        match self {
            Self::MAIL => "mail".to_owned(),
            Self(number) => format!("channel {number}"),
        }
    }
}

/// The result of an executor that counts.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(context_bound = "AsRef<RecordedAt>")]
pub struct Answered {
    #[cbor(n(0), with = "compact_activity")]
    pub activity: Activity,
    #[n(1)]
    pub by: Performer,
    #[cbor(n(2), with = "relative")]
    pub started_at: Timestamp,
    #[cbor(n(3), skip_if = "Vec::is_empty")]
    pub writes: Vec<(ElementId, Value)>,
    /// The assignment that produced it.
    #[n(4)]
    pub lease: u64,
}

/// An assignment to an executor, and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(context_bound = "AsRef<RecordedAt>")]
pub struct Assigned {
    #[cbor(n(0), with = "compact_activity")]
    pub activity: Activity,
    #[cbor(n(1), with = "shared_text")]
    pub to: Arc<str>,
    #[n(2)]
    pub lease: u64,
    #[n(3)]
    pub why: String,
}

/// A digest of a request with an idempotency key: the upper half of the key, the lower one of the content. It
/// is compared only with the one completion of an activity, so 32 bits of each suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct RequestDigest(#[n(0)] pub u64);

impl RequestDigest {
    pub fn new(key: u32, content: u32) -> Self {
        Self(u64::from(key) << 32 | u64::from(content))
    }

    pub fn has_key_of(self, other: Self) -> bool {
        self.0 >> 32 == other.0 >> 32
    }
}

/// The performer of an action.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(flat)]
pub enum Performer {
    /// The server itself, or a caller without an agent's name.
    #[n(0)]
    System,
    #[n(1)]
    Agent(#[n(0)] AgentId),
    /// A program that polled the job. Older records also have executors as workers: compare by name
    /// ([`Performer::program`]) where either is possible.
    #[n(2)]
    Worker(#[cbor(n(0), with = "shared_text")] Arc<str>),
    /// A service that was called.
    #[n(3)]
    Executor(#[cbor(n(0), with = "shared_text")] Arc<str>),
}

impl Performer {
    /// The name of a worker or an executor.
    pub fn program(&self) -> Option<&Arc<str>> {
        match self {
            Self::Worker(name) | Self::Executor(name) => Some(name),
            Self::System | Self::Agent(_) => None,
        }
    }
}

/// Why an activity cannot go on by itself.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Incident {
    /// The rule yields no agent of the current organisation.
    #[n(0)]
    NobodyCanDoIt {
        #[n(0)]
        rule: String,
    },
    /// No branch's condition is true.
    #[n(1)]
    NoBranchMatches {
        #[n(0)]
        values: String,
    },
    /// More than one branch's condition is true.
    #[n(2)]
    SeveralBranchesMatch {
        #[n(0)]
        branches: Vec<String>,
    },
    #[n(3)]
    ConditionFailed {
        #[n(0)]
        condition: String,
        #[n(1)]
        error: String,
    },
    #[n(4)]
    RetriesExhausted {
        #[n(0)]
        attempts: u32,
        #[n(1)]
        error: String,
    },
    /// The loop repeated as often as its definition allows.
    #[n(5)]
    TooManyIterations {
        #[n(0)]
        limit: u32,
    },
}

/// The use of an idempotency key: the only event of the key's stream.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum KeyEvent {
    #[n(0)]
    Started {
        #[cbor(n(0), with = "instance_bytes")]
        instance: InstanceId,
        /// Digest of the request, to tell a repetition from another request.
        #[n(1)]
        request: u64,
    },
}
