//! The commands on one instance.
//!
//! Authorisation is checked before: commands carry the caller only for the history and for the
//! rules of claiming.

use legwork_model::event::{
    Assigned, Channel, FetchedValue, Incident, Parcel, Performer, Received, Replanned,
    RequestDigest, Then,
};
use legwork_model::id::{Activity, AgentId, ElementId, ServerId};
use legwork_model::time::Timestamp;
use legwork_model::value::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Claim a work item for oneself.
    Claim {
        activity: Activity,
        by: AgentId,
    },
    /// Release a claimed work item: it is offered to all its actors again.
    Release {
        activity: Activity,
        by: AgentId,
    },
    /// Delegate a work item to another person, who becomes its holder.
    Delegate {
        activity: Activity,
        by: AgentId,
        to: AgentId,
    },
    /// Take over a work item from its absent holder, as a substitute.
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
        /// The code of the answer, only for a decision by a person.
        answer: Option<u32>,
        /// The request, if it carried an idempotency key.
        request: Option<RequestDigest>,
        /// The channel of the request.
        channel: Option<Channel>,
    },
    /// An executor has the result of a job. It counts, and the step is done when the executor has
    /// acknowledged that.
    Answer {
        activity: Activity,
        by: Performer,
        started_at: Timestamp,
        outputs: Vec<(ElementId, Value)>,
        /// The assignment that produced the result.
        lease: u64,
    },
    /// The activity is assigned to an executor; the history records the reason.
    Assign(Box<Assigned>),
    /// The executor has acknowledged that its result counts.
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
    /// An open activity cannot go on, for a reason outside of the instance.
    Raise {
        activity: Activity,
        incident: Incident,
    },
    /// The resolution of an incident.
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
    /// Abort the instance.
    Abort {
        by: Performer,
        reason: String,
    },
    /// Send a transfer about the instance to another server.
    Send {
        to: ServerId,
        parcel: Parcel,
    },
    /// The other server has acknowledged the transfer.
    Deliver {
        to: ServerId,
        number: u32,
    },
    /// A transfer came from another server.
    Receive(Box<Received>),
    /// Values arrived that were written at another server.
    Fetch {
        values: Vec<FetchedValue>,
    },
    /// The end was reached by an instance that several servers have controlled.
    Finish,
    /// The plans of steps have changed.
    Replan(Box<Replanned>),
    /// The deadline has passed.
    PassDeadline {
        at: Timestamp,
        then: Then,
    },
    /// Transfers that a server has not acknowledged are redirected to another one of the domain.
    Redirect {
        from: ServerId,
        to: ServerId,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Retry: offer the step again, evaluate the conditions again.
    Retry,
    /// Choose a branch by hand; for decisions.
    Choose(u32),
    /// Supply the outputs by hand; for steps.
    Complete(Vec<(ElementId, Value)>),
}
