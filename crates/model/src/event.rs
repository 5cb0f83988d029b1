//! What happened: the only vocabulary that is ever stored.
//!
//! State is a fold over these. A record holds all events of one command and is appended whole.
//! Numbers in `#[n(…)]` are the persistent format: new fields and variants get new numbers, old
//! ones are never reused or given another meaning. Golden bytes in the tests hold this in place.
//! A new field must be optional: older records lack it, and older programs skip it.

use std::sync::Arc;

use minicbor::{Decode, Decoder, Encode, Encoder};

use crate::id::{Activity, AgentId, ElementId, InstanceId, instance_bytes, shared_text};
use crate::time::Timestamp;
use crate::value::Value;

/// The events of one command on one instance, at one moment. Stored as an array of the moment and
/// the array of the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<E> {
    pub at: Timestamp,
    pub events: Vec<E>,
}

/// The moment of the record around an event. Other moments are stored as their distance from it:
/// one or two bytes instead of nine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedAt(pub Timestamp);

/// What happened in one instance: its execution history.
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
    /// The activity went back to all who may do it.
    #[n(2)]
    Released {
        #[cbor(n(0), with = "compact_activity")]
        activity: Activity,
        #[n(1)]
        by: AgentId,
    },
    /// The activity was handed to another person, who holds it now.
    #[n(3)]
    Delegated {
        #[cbor(n(0), with = "compact_activity")]
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
    /// The activity cannot go on without somebody's decision.
    #[n(7)]
    IncidentRaised {
        #[cbor(n(0), with = "compact_activity")]
        activity: Activity,
        #[n(1)]
        incident: Incident,
    },
    /// Somebody decided to try again. Other ways out of an incident are told by the `Completed`
    /// or `Decided` that follows.
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
}

/// What a request with an idempotency key asked for, in short: the upper half stands for the key, the
/// lower one for the content. It is compared with the one completion of an activity alone, so 32
/// bits are enough of each.
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

/// Who did it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(flat)]
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
#[cbor(flat)]
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

/// What an idempotency key was used for: the only event of the key's own stream.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum KeyEvent {
    #[n(0)]
    Started {
        #[cbor(n(0), with = "instance_bytes")]
        instance: InstanceId,
        /// Digest of what was asked for, to tell a repetition from another request.
        #[n(1)]
        request: u64,
    },
}

/// What happened to the site itself, in the site's own stream.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
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

impl<E: Encode<RecordedAt>> Record<E> {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut encoder = Encoder::new(Vec::with_capacity(64));
        match self.encode(&mut encoder) {
            Ok(()) => encoder.into_writer(),
            // Writing to memory cannot fail; the type is Infallible.
            Err(_) => unreachable!("encoding into memory cannot fail"),
        }
    }

    fn encode(
        &self,
        e: &mut Encoder<Vec<u8>>,
    ) -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
        e.array(2)?.i64(self.at.0)?;
        self.events.encode(e, &mut RecordedAt(self.at))
    }
}

impl<'b, E: Decode<'b, RecordedAt>> Record<E> {
    pub fn from_bytes(bytes: &'b [u8]) -> Result<Self, Unreadable> {
        let mut decoder = Decoder::new(bytes);
        let record =
            Self::decode(&mut decoder).map_err(|e| Unreadable { reason: e.to_string() })?;
        if decoder.position() != bytes.len() {
            return Err(Unreadable { reason: "it is followed by foreign bytes".to_owned() });
        }
        Ok(record)
    }

    fn decode(d: &mut Decoder<'b>) -> Result<Self, minicbor::decode::Error> {
        let Some(fields @ 2..) = d.array()? else {
            return Err(minicbor::decode::Error::message("not a record"));
        };
        let at = Timestamp(d.i64()?);
        let events = d.decode_with(&mut RecordedAt(at))?;
        // Fields of a later program.
        for _ in 2..fields {
            d.skip()?;
        }
        Ok(Self { at, events })
    }
}

impl AsRef<Self> for RecordedAt {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// A moment as the milliseconds that lie between it and the record.
mod relative {
    use super::{Decoder, Encoder, RecordedAt, Timestamp};

    pub(super) fn encode<C: AsRef<RecordedAt>, W: minicbor::encode::Write>(
        moment: &Timestamp,
        e: &mut Encoder<W>,
        around: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        // Wrapping loses nothing: reading wraps back.
        e.i64(around.as_ref().0.0.wrapping_sub(moment.0))?.ok()
    }

    pub(super) fn decode<C: AsRef<RecordedAt>>(
        d: &mut Decoder<'_>,
        around: &mut C,
    ) -> Result<Timestamp, minicbor::decode::Error> {
        Ok(Timestamp(around.as_ref().0.0.wrapping_sub(d.i64()?)))
    }
}

mod relative_if_any {
    use super::{Decoder, Encoder, RecordedAt, Timestamp, relative};

    pub(super) fn encode<C: AsRef<RecordedAt>, W: minicbor::encode::Write>(
        moment: &Option<Timestamp>,
        e: &mut Encoder<W>,
        around: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        match moment {
            Some(moment) => relative::encode(moment, e, around),
            None => e.null()?.ok(),
        }
    }

    pub(super) fn decode<C: AsRef<RecordedAt>>(
        d: &mut Decoder<'_>,
        around: &mut C,
    ) -> Result<Option<Timestamp>, minicbor::decode::Error> {
        if d.datatype()? == minicbor::data::Type::Null {
            return d.null().map(|()| None);
        }
        relative::decode(d, around).map(Some)
    }

    pub(super) fn nil() -> Option<Option<Timestamp>> {
        Some(None)
    }

    pub(super) fn is_nil(moment: &Option<Timestamp>) -> bool {
        moment.is_none()
    }
}

/// An activity outside of loops as the number of its node alone, inside as an array of the number
/// and the counters.
mod compact_activity {
    use super::{Activity, Decoder, Encoder};
    use crate::id::{Iteration, NodeId};

    pub(super) fn encode<C, W: minicbor::encode::Write>(
        activity: &Activity,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        let Activity { node: NodeId(node), iteration: Iteration(counts) } = activity;
        if counts.is_empty() {
            return e.u32(*node)?.ok();
        }
        e.array(1 + counts.len() as u64)?.u32(*node)?;
        counts.iter().try_for_each(|count| e.u32(*count)?.ok())
    }

    pub(super) fn decode<C>(
        d: &mut Decoder<'_>,
        _: &mut C,
    ) -> Result<Activity, minicbor::decode::Error> {
        if d.datatype()? != minicbor::data::Type::Array {
            return Ok(Activity::once(NodeId(d.u32()?)));
        }
        let mut numbers = d.array_iter::<u32>()?;
        let node = numbers
            .next()
            .ok_or_else(|| minicbor::decode::Error::message("an activity without a node"))??;
        let counts = numbers.collect::<Result<_, _>>()?;
        Ok(Activity { node: NodeId(node), iteration: Iteration(counts) })
    }
}
