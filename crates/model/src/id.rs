//! Ids and names: instances, streams, steps, data elements, people.
//!
//! Ids are inputs, never generated here: the server generates them, the simulator seeds them. Their text forms are
//! part of the public contract and round-trip exactly.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use minicbor::{Decode, Encode};

/// A running or ended case of a process. Displays as `inst_` and 26 Crockford base-32 digits.
///
/// Its bits are part of the persistent format, from the uppermost to the lowest:
///
/// | bits | what |
/// |---|---|
/// | 48 | the milliseconds of its creation; the uppermost bit is clear, and not all bits are: other streams have those ids |
/// | 32 | a counter within a millisecond: ids of one generator sort by age |
/// | 32 | its *spread*: a constant that determines which server of a domain controls it |
/// | 16 | the number of the server that started it, which can thus be found from the id |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u128);

/// An append-only sequence of records in a store: one for the site itself, one for its plans, one for periodic
/// starts, one for learned speeds of executors, one per instance, one per idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u128);

/// The kind of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    Site,
    Plans,
    Instance(InstanceId),
    Key,
    Mail,
    Schedules,
    Executors,
}

/// A node of one version of a process. Numbered in document order, which makes the number part of
/// the persistent format: see `schema`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct NodeId(#[n(0)] pub u32);

/// A data element of one version of a process, numbered in the order of its `data:` section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ElementId(#[n(0)] pub u32);

/// A person (or a program acting as one) of the organisation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct AgentId(#[cbor(n(0), with = "shared_text")] pub Arc<str>);

/// A logical server: it controls steps, whatever process it runs in. Numbered in the order in which servers joined
/// the topology; numbers are never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ServerId(#[n(0)] pub u16);

/// A domain: a site with its servers, people and machines. Numbered like servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct DomainId(#[n(0)] pub u16);

/// The counters of all loops around a node, outermost first; empty outside of loops. The first iteration is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Iteration(#[n(0)] pub Vec<u32>);

impl Iteration {
    /// Up to this depth of loops every counter below 255 has a number of its own.
    pub const NUMBERED_MAX: usize = 8;

    /// One number for all counters: later iterations have higher numbers. Each counter gets its part of the bits,
    /// and saturates.
    pub fn number(&self) -> u64 {
        let bits = Self::bits(self.0.len());
        let most = (1_u64 << bits) - 1;
        self.0.iter().fold(0, |number, count| (number << bits) | u64::from(*count).min(most))
    }

    /// The counters of nested loops, from their number.
    pub fn numbered(number: u64, loops: usize) -> Self {
        let bits = Self::bits(loops);
        let most = (1_u64 << bits) - 1;
        let counts = (0..loops as u32).rev().map(|place| (number >> (place * bits)) & most);
        Self(counts.map(|count| count as u32).collect())
    }

    fn bits(loops: usize) -> u32 {
        (64 / loops.clamp(2, 64)) as u32
    }
}

/// One execution of one step: the node and its iteration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Activity {
    #[n(0)]
    pub node: NodeId,
    #[n(1)]
    pub iteration: Iteration,
}

/// The public id of an activity, for work items and jobs. Displays as `inst_…:approve`, inside of loops as
/// `inst_…:give-drug:2.0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActivityId {
    pub instance: InstanceId,
    pub step: Arc<str>,
    pub iteration: Iteration,
}

/// A text that is not an id of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct ParseError {
    pub text: String,
    pub expected: &'static str,
}

impl StreamId {
    /// The site's own stream: definitions, organisations, tokens.
    pub const SITE: Self = Self(0);

    /// Sent mail.
    pub const MAIL: Self = Self(u128::MAX);

    /// The plans of the server.
    pub const PLANS: Self = Self(u128::MAX - 1);

    /// The outcomes of periodic starts.
    pub const SCHEDULES: Self = Self(u128::MAX - 2);

    /// Learned speeds of executors: a cache, in the snapshot of a stream of one record.
    pub const EXECUTORS: Self = Self(u128::MAX - 3);

    /// The least id of an idempotency key: all instances are below, all keys from here on.
    pub const KEYS: Self = Self(1 << 127);

    /// The stream of an idempotency key, by a hash of the key.
    pub fn of_key(hash: u128) -> Self {
        Self((hash | Self::KEYS.0).min(Self::EXECUTORS.0 - 1))
    }

    pub fn kind(self) -> StreamKind {
        if self == Self::SITE {
            StreamKind::Site
        } else if self == Self::PLANS {
            StreamKind::Plans
        } else if self == Self::MAIL {
            StreamKind::Mail
        } else if self == Self::SCHEDULES {
            StreamKind::Schedules
        } else if self == Self::EXECUTORS {
            StreamKind::Executors
        } else if self < Self::KEYS {
            StreamKind::Instance(InstanceId(self.0))
        } else {
            StreamKind::Key
        }
    }
}

impl From<InstanceId> for StreamId {
    fn from(id: InstanceId) -> Self {
        Self(id.0)
    }
}

impl From<&str> for AgentId {
    fn from(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

impl AgentId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Activity {
    pub fn once(node: NodeId) -> Self {
        Self { node, iteration: Iteration::default() }
    }
}

const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const DIGITS: usize = 26;
const PREFIX: &str = "inst_";

impl InstanceId {
    pub const SERVER_BITS: u32 = u16::BITS;
    pub const SPREAD_BITS: u32 = u32::BITS;
    pub const TIE_BITS: u32 = u32::BITS;

    /// Composes an id. The lower 47 bits of the moment count: they last for 4,400 years.
    pub fn new(created_ms: u64, tie: u32, spread: u32, server: ServerId) -> Self {
        let moment = u128::from(created_ms & (u64::MAX >> 17));
        let tied = moment << Self::TIE_BITS | u128::from(tie);
        let spread = tied << Self::SPREAD_BITS | u128::from(spread);
        Self(spread << Self::SERVER_BITS | u128::from(server.0))
    }

    /// When it was created, in milliseconds since 1970, by the clock of the server that generated the id.
    pub fn created_ms(self) -> u64 {
        (self.0 >> (Self::TIE_BITS + Self::SPREAD_BITS + Self::SERVER_BITS)) as u64
    }

    /// Determines which server of a domain controls it.
    pub fn spread(self) -> u32 {
        (self.0 >> Self::SERVER_BITS) as u32
    }

    /// The server that started it. Meaningless if its server was alone then.
    pub fn server(self) -> ServerId {
        ServerId((self.0 & u128::from(u16::MAX)) as u16)
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0_u8; PREFIX.len() + DIGITS];
        let (prefix, digits) = text.split_at_mut(PREFIX.len());
        prefix.copy_from_slice(PREFIX.as_bytes());
        for (place, digit) in digits.iter_mut().rev().enumerate() {
            *digit = CROCKFORD[((self.0 >> (place * 5)) & 31) as usize];
        }
        // In one write: ids are in nearly every answer.
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for InstanceId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError {
            text: text.chars().take(64).collect(),
            expected: "an instance id (inst_ and 26 letters or digits)",
        };
        let digits = text.strip_prefix(PREFIX).ok_or_else(wrong)?.as_bytes();
        if digits.len() != DIGITS || digits[0] > b'7' {
            return Err(wrong());
        }
        let id = digits.iter().try_fold(0_u128, |id, digit| {
            let value = CROCKFORD.iter().position(|c| c == &digit.to_ascii_uppercase())?;
            Some(id << 5 | value as u128)
        });
        // No text names a stream that is not an instance's.
        match id.map(|id| StreamId(id).kind()) {
            Some(StreamKind::Instance(id)) => Ok(id),
            Some(
                StreamKind::Site
                | StreamKind::Plans
                | StreamKind::Key
                | StreamKind::Mail
                | StreamKind::Schedules
                | StreamKind::Executors,
            )
            | None => Err(wrong()),
        }
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Iteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, count) in self.0.iter().enumerate() {
            write!(f, "{}{count}", if depth == 0 { "" } else { "." })?;
        }
        Ok(())
    }
}

impl fmt::Display for ActivityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.instance, self.step)?;
        if self.iteration.0.is_empty() { Ok(()) } else { write!(f, ":{}", self.iteration) }
    }
}

impl FromStr for ActivityId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError {
            text: text.chars().take(96).collect(),
            expected: "an activity id (inst_…:step, inside of loops inst_…:step:0)",
        };
        let mut parts = text.splitn(3, ':');
        let instance = parts.next().ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
        let step = parts.next().filter(|step| !step.is_empty()).ok_or_else(wrong)?;
        let iteration = match parts.next() {
            None => Iteration::default(),
            Some(counts) => Iteration(
                counts.split('.').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?,
            ),
        };
        Ok(Self { instance, step: Arc::from(step), iteration })
    }
}

/// An instance as the 16 bytes of its id, for `#[cbor(with = "…")]`.
pub mod instance_bytes {
    use minicbor::bytes::ByteArray;
    use minicbor::{Decoder, Encoder};

    use super::InstanceId;

    pub fn encode<C, W: minicbor::encode::Write>(
        id: &InstanceId,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.bytes(&id.0.to_be_bytes())?.ok()
    }

    pub fn decode<C>(
        d: &mut Decoder<'_>,
        _: &mut C,
    ) -> Result<InstanceId, minicbor::decode::Error> {
        let bytes: ByteArray<16> = d.decode()?;
        Ok(InstanceId(u128::from_be_bytes(*bytes)))
    }
}

/// A stream as the 16 bytes of its id, for `#[cbor(with = "…")]`.
pub mod stream_bytes {
    use minicbor::{Decoder, Encoder};

    use super::{InstanceId, StreamId, instance_bytes};

    pub fn encode<C, W: minicbor::encode::Write>(
        id: &StreamId,
        e: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        instance_bytes::encode(&InstanceId(id.0), e, context)
    }

    pub fn decode<C>(
        d: &mut Decoder<'_>,
        context: &mut C,
    ) -> Result<StreamId, minicbor::decode::Error> {
        instance_bytes::decode(d, context).map(|InstanceId(id)| StreamId(id))
    }
}

/// Instances as one byte string, 16 bytes for each, for `#[cbor(with = "…")]`.
pub mod instance_list {
    use minicbor::{Decoder, Encoder};

    use super::InstanceId;

    pub fn encode<C, W: minicbor::encode::Write>(
        ids: &[InstanceId],
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.0.to_be_bytes()).collect();
        e.bytes(&bytes)?.ok()
    }

    pub fn decode<C>(
        d: &mut Decoder<'_>,
        _: &mut C,
    ) -> Result<Vec<InstanceId>, minicbor::decode::Error> {
        let (ids, rest) = d.bytes()?.as_chunks::<16>();
        if rest.is_empty() {
            Ok(ids.iter().map(|id| InstanceId(u128::from_be_bytes(*id))).collect())
        } else {
            Err(minicbor::decode::Error::message("not a whole number of ids"))
        }
    }
}

/// Shared text as a CBOR string, for `#[cbor(with = "…")]`.
pub mod shared_text {
    use std::sync::Arc;

    use minicbor::{Decoder, Encoder};

    pub fn encode<C, W: minicbor::encode::Write>(
        text: &Arc<str>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.str(text)?.ok()
    }

    pub fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Arc<str>, minicbor::decode::Error> {
        d.str().map(Arc::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_through_their_text() {
        for id in [1, u128::MAX >> 1, 0x0192_3456_789A_BCDE_F012_3456_789A_BCDE] {
            let text = InstanceId(id).to_string();
            assert_eq!(text.parse(), Ok(InstanceId(id)), "{text}");
            for iteration in [vec![], vec![0], vec![3, 0, 12]] {
                let activity = ActivityId {
                    instance: InstanceId(id),
                    step: "give-drug".into(),
                    iteration: Iteration(iteration),
                };
                assert_eq!(activity.to_string().parse(), Ok(activity));
            }
        }
    }

    #[test]
    fn every_round_has_a_number_of_its_own_and_later_ones_have_higher_ones() {
        assert_eq!(Iteration(vec![]).number(), 0);
        assert_eq!(Iteration(vec![7]).number(), 7);
        let mut before = None;
        for rounds in (0..1_000_u32).map(|it| vec![it / 100, it / 10 % 10, it % 10]) {
            let round = Iteration(rounds);
            assert_eq!(Iteration::numbered(round.number(), 3), round);
            assert!(before < Some(round.number()), "{round:?}");
            before = Some(round.number());
        }
        let deep = Iteration(vec![254; Iteration::NUMBERED_MAX]);
        assert_eq!(Iteration::numbered(deep.number(), Iteration::NUMBERED_MAX), deep);
        // A saturated counter is still later than an unsaturated one.
        let (last, first) = (Iteration(vec![3, u32::MAX, 9, 9, 9]), Iteration(vec![4, 0, 0, 0, 0]));
        assert!(last.number() < first.number());
    }

    #[test]
    fn the_bits_of_an_id_stay_where_they_are() {
        let id = InstanceId(0x0192_3456_789A_BCDE_F012_3456_789A_BCDE);
        assert_eq!(id.created_ms(), 0x0192_3456_789A);
        assert_eq!(id.spread(), 0x3456_789A);
        assert_eq!(id.server(), ServerId(0xBCDE));
        assert_eq!(InstanceId::new(0x0192_3456_789A, 0xBCDE_F012, 0x3456_789A, id.server()), id);
        assert_eq!(id.to_string(), "inst_01J8T5CY4TQKFF04HMASW9NF6Y");
        // No moment gives an id outside the range of instances.
        let last = InstanceId::new(u64::MAX, u32::MAX, u32::MAX, ServerId(u16::MAX));
        assert_eq!(StreamId::from(last).kind(), StreamKind::Instance(last));
    }

    #[test]
    fn a_stream_is_of_the_site_or_of_an_instance_or_of_a_key_or_of_mail() {
        assert_eq!(StreamId::SITE.kind(), StreamKind::Site);
        assert_eq!(StreamId::PLANS.kind(), StreamKind::Plans);
        assert_eq!(StreamId::MAIL.kind(), StreamKind::Mail);
        assert_eq!(StreamId::SCHEDULES.kind(), StreamKind::Schedules);
        assert_eq!(StreamId::EXECUTORS.kind(), StreamKind::Executors);
        for id in [1, u128::MAX >> 1] {
            assert_eq!(StreamId(id).kind(), StreamKind::Instance(InstanceId(id)));
        }
        for hash in [0, 1, u128::MAX] {
            let stream = StreamId::of_key(hash);
            assert_eq!(stream.kind(), StreamKind::Key);
            let text = InstanceId(stream.0).to_string();
            assert!(text.parse::<InstanceId>().is_err(), "{text}");
        }
        assert!("inst_00000000000000000000000000".parse::<InstanceId>().is_err());
    }

    #[test]
    fn foreign_texts_are_refused() {
        for text in ["", "inst_", "inst_8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "inst_0", "01234", "inst_U"] {
            assert!(text.parse::<InstanceId>().is_err(), "{text}");
        }
        for text in
            ["x:y", "inst_00000000000000000000000001:", "inst_00000000000000000000000001:a:b"]
        {
            assert!(text.parse::<ActivityId>().is_err(), "{text}");
        }
    }
}
