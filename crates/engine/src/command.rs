//! What can be asked of one instance.
//!
//! Whether the asker is allowed to ask is settled before: commands carry who it is, for the history
//! and for the rules of claiming alone.

use legwork_model::event::{
    Assigned, Channel, FetchedValue, Incident, Parcel, Performer, Received, Replanned,
    RequestDigest, Then,
};
use legwork_model::id::{Activity, AgentId, ElementId, ServerId};
use legwork_model::time::Timestamp;
use legwork_model::value::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reserve a work item for oneself.
    Claim {
        activity: Activity,
        by: AgentId,
    },
    /// Give a claimed work item back to all who may do it.
    Release {
        activity: Activity,
        by: AgentId,
    },
    /// Hand a work item to another person, who holds it from then on.
    Delegate {
        activity: Activity,
        by: AgentId,
        to: AgentId,
    },
    /// Take a work item from its holder, who is away, in their place.
    TakeOver {
        activity: Activity,
        by: AgentId,
    },
    /// A step, or a decision by a person, is done.
    Complete {
        activity: Activity,
        by: Performer,
        started_at: Timestamp,
        outputs: Vec<(ElementId, Value)>,
        /// The code of the answer, exactly where a person decides.
        answer: Option<u32>,
        /// The request, when it carried an idempotency key.
        request: Option<RequestDigest>,
        /// By which way it came.
        channel: Option<Channel>,
    },
    /// An executor has the result of a job. It counts, and the step is done when that is confirmed.
    Answer {
        activity: Activity,
        by: Performer,
        started_at: Timestamp,
        outputs: Vec<(ElementId, Value)>,
        /// The assignment that it is the result of.
        lease: u64,
    },
    /// An executor is given the activity; the history is to say why it.
    Assign(Box<Assigned>),
    /// The executor knows that its result counts.
    Confirm {
        activity: Activity,
    },
    /// An attempt at a job failed. Without `retry` it becomes an incident at once.
    Fail {
        activity: Activity,
        by: Performer,
        error: String,
        retry: bool,
    },
    /// An open activity cannot go on, for a reason that lies outside of the instance.
    Raise {
        activity: Activity,
        incident: Incident,
    },
    /// The way out of an incident.
    Resolve {
        activity: Activity,
        by: Performer,
        resolution: Resolution,
    },
    /// Offer nothing new until resumed.
    Suspend {
        by: Performer,
        reason: Option<String>,
    },
    Resume {
        by: Performer,
        reason: Option<String>,
    },
    /// End the instance where it stands.
    Abort {
        by: Performer,
        reason: String,
    },
    /// Send something about the instance to another server.
    Send {
        to: ServerId,
        parcel: Parcel,
    },
    /// The other server has it.
    Deliver {
        to: ServerId,
        number: u32,
    },
    /// Something came from another server.
    Receive(Box<Received>),
    /// Values came that had been written elsewhere.
    Fetch {
        values: Vec<FetchedValue>,
    },
    /// The end was reached, by an instance that several servers have controlled.
    Finish,
    /// Steps are planned otherwise.
    Replan(Box<Replanned>),
    /// The deadline has passed.
    PassDeadline {
        at: Timestamp,
        then: Then,
    },
    /// What no server has taken yet goes to another one of the domain.
    Redirect {
        from: ServerId,
        to: ServerId,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Try again: offer the step once more, evaluate the conditions once more.
    Retry,
    /// Decide by hand; fits decisions.
    Choose(u32),
    /// Supply the outputs by hand; fits steps.
    Complete(Vec<(ElementId, Value)>),
}
