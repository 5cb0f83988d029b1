//! What happened: the only vocabulary that is ever stored.
//!
//! State is a fold over these. A record holds all events of one command and is appended whole.
//! Numbers in `#[n(…)]` are the persistent format: new fields and variants get new numbers, old
//! ones are never reused or given another meaning. Golden bytes in the tests hold this in place.

use std::sync::Arc;

use minicbor::{Decode, Encode};

use crate::id::{Activity, AgentId, ElementId, shared_text};
use crate::time::Timestamp;
use crate::value::Value;

/// The events of one command on one instance, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Record<E> {
    #[n(0)]
    pub at: Timestamp,
    #[n(1)]
    pub events: Vec<E>,
}

/// What happened in one instance: its execution history.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Event {
    /// The instance began; its inputs are the writes of the start node.
    #[n(0)]
    Created(#[n(0)] Box<Created>),
    /// A person reserved the activity for themselves.
    #[n(1)]
    Claimed {
        #[n(0)]
        activity: Activity,
        #[n(1)]
        by: AgentId,
    },
    /// The activity went back to all who may do it.
    #[n(2)]
    Released {
        #[n(0)]
        activity: Activity,
        #[n(1)]
        by: AgentId,
    },
    /// The activity was handed to another person, who holds it now.
    #[n(3)]
    Delegated {
        #[n(0)]
        activity: Activity,
        #[n(1)]
        by: AgentId,
        #[n(2)]
        to: AgentId,
    },
    /// A step, or a decision by a person, ended well. One entry stands for start and end.
    #[n(4)]
    Completed(#[n(0)] Completed),
    /// A condition was evaluated at a choice or at the end of a loop. Recorded, so that replay
    /// never depends on the evaluator.
    #[n(5)]
    Decided {
        #[n(0)]
        activity: Activity,
        /// The branch taken; at the end of a loop 0 repeats and 1 leaves.
        #[n(1)]
        code: u32,
    },
    /// An attempt failed; the next one is due at `retry_at`. Without one an incident follows.
    #[n(6)]
    Failed {
        #[n(0)]
        activity: Activity,
        #[n(1)]
        by: Performer,
        #[n(2)]
        error: String,
        #[n(3)]
        retry_at: Option<Timestamp>,
    },
    /// The activity cannot go on without somebody's decision.
    #[n(7)]
    IncidentRaised {
        #[n(0)]
        activity: Activity,
        #[n(1)]
        incident: Incident,
    },
    /// Somebody decided to try again. Other ways out of an incident are told by the `Completed`
    /// or `Decided` that follows.
    #[n(8)]
    IncidentResolved {
        #[n(0)]
        activity: Activity,
        #[n(1)]
        by: Performer,
    },
    #[n(9)]
    Suspended {
        #[n(0)]
        by: Performer,
    },
    #[n(10)]
    Resumed {
        #[n(0)]
        by: Performer,
    },
    #[n(11)]
    Aborted {
        #[n(0)]
        by: Performer,
        #[n(1)]
        reason: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Created {
    #[cbor(n(0), with = "shared_text")]
    pub process: Arc<str>,
    #[n(1)]
    pub version: u32,
    #[n(2)]
    pub by: Performer,
    #[n(3)]
    pub inputs: Vec<(ElementId, Value)>,
    /// Digest of the request that carried an idempotency key, to tell a repetition from a clash.
    #[n(4)]
    pub request: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Completed {
    #[n(0)]
    pub activity: Activity,
    #[n(1)]
    pub by: Performer,
    #[n(2)]
    pub started_at: Timestamp,
    #[n(3)]
    pub writes: Vec<(ElementId, Value)>,
    /// The branch a person chose, at a choice; at the end of a loop 0 repeats and 1 leaves.
    #[n(4)]
    pub code: Option<u32>,
    /// Digest of the request that carried an idempotency key.
    #[n(5)]
    pub request: Option<u64>,
}

/// Who did it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Performer {
    /// Nobody in particular: the server itself, or a caller without an agent's name.
    #[n(0)]
    System,
    #[n(1)]
    Agent(#[n(0)] AgentId),
    #[n(2)]
    Worker(#[cbor(n(0), with = "shared_text")] Arc<str>),
}

/// Why an activity cannot go on by itself.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Incident {
    /// The rule yields no agent of the present organisation.
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
    /// The loop went round as often as its definition allows.
    #[n(5)]
    TooManyIterations {
        #[n(0)]
        limit: u32,
    },
}

/// What happened to the site itself, in the site's own stream.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum SiteEvent {
    #[n(0)]
    DefinitionDeployed {
        #[cbor(n(0), with = "shared_text")]
        process: Arc<str>,
        #[n(1)]
        version: u32,
        /// The YAML as it was deployed; compiled anew at every start.
        #[n(2)]
        source: String,
        #[n(3)]
        by: Performer,
    },
    #[n(1)]
    OrganisationPublished {
        #[n(0)]
        version: u32,
        #[n(1)]
        source: String,
        #[n(2)]
        by: Performer,
    },
    #[n(2)]
    TokenIssued(#[n(0)] TokenIssued),
    #[n(3)]
    TokenRevoked {
        #[n(0)]
        name: String,
        #[n(1)]
        by: Performer,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TokenIssued {
    #[n(0)]
    pub name: String,
    /// Hash of the secret; the secret itself is shown once and never kept.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub hash: [u8; 32],
    /// In their text form, e.g. `admin`, `work:ann`.
    #[n(2)]
    pub scopes: Vec<String>,
    #[n(3)]
    pub by: Performer,
}

/// Bytes that are not a record of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored record cannot be read: {reason}")]
pub struct Unreadable {
    pub reason: String,
}

impl<E: Encode<()>> Record<E> {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        // Writing to memory cannot fail; the type is Infallible.
        match minicbor::encode(self, &mut bytes) {
            Ok(()) => bytes,
            Err(_) => unreachable!("encoding into memory cannot fail"),
        }
    }
}

impl<'b, E: Decode<'b, ()>> Record<E> {
    pub fn from_bytes(bytes: &'b [u8]) -> Result<Self, Unreadable> {
        let mut decoder = minicbor::Decoder::new(bytes);
        let record = decoder.decode().map_err(|e| Unreadable { reason: e.to_string() })?;
        if decoder.position() != bytes.len() {
            return Err(Unreadable { reason: "it is followed by foreign bytes".to_owned() });
        }
        Ok(record)
    }
}
