//! Sent mail: the events of the mail stream.

use minicbor::{Decode, Encode};

use super::record::{RecordedAt, compact_activity, relative};
use crate::id::{Activity, AgentId, InstanceId, instance_bytes};
use crate::time::Timestamp;

/// Sent mail.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat, context_bound = "AsRef<RecordedAt>")]
pub enum MailEvent {
    /// A letter was sent. Letters of one moment to one person were one mail.
    #[n(0)]
    Told {
        #[cbor(n(0), with = "instance_bytes")]
        instance: InstanceId,
        #[cbor(n(1), with = "compact_activity")]
        activity: Activity,
        #[n(2)]
        agent: AgentId,
        /// Its reason: 0 assignment, 1 reminder, 2 escalation; of a case, whose activity is its start: 3 promise
        /// revoked, 4 promised again, 5 late, 6 in danger.
        #[n(3)]
        kind: u8,
        /// The moment of the record; a different one in snapshots.
        #[cbor(n(4), with = "relative")]
        at: Timestamp,
    },
    /// A letter about an ended case is due. Once sent, it is recorded with the start of the case, as kind 5.
    #[n(1)]
    Owed(#[n(0)] Box<Owed>),
}

/// A letter about a case that was aborted because its deadline had passed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Owed {
    #[cbor(n(0), with = "instance_bytes")]
    pub instance: InstanceId,
    #[n(1)]
    pub agent: AgentId,
    /// The title of the process.
    #[n(2)]
    pub process: String,
    /// The titles of the steps that were open.
    #[n(3)]
    pub steps: Vec<String>,
    #[n(4)]
    pub deadline: Timestamp,
    /// Whether the agent had started it.
    #[n(5)]
    pub is_own: bool,
}
