//! Random ids and secrets, and the hashes of idempotency keys.
//!
//! Invariant: ids of instances generated later by one server sort after earlier ones; the same key for the
//! same process always gives the same stream.

use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use legwork_api::Data;
use legwork_api::instances::StartRequest;
use legwork_model::event::RequestDigest;
use legwork_model::id::{ActivityId, AgentId, InstanceId, ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_placement::{Chain, Map, Sequence, Topology};
use rustc_hash::FxBuildHasher;

/// The number of sequences of spreads. Processes beyond that share one: they are divided evenly together,
/// each of them a little less so.
const SEQUENCES: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Ids {
    drawing: Mutex<Drawing>,
}

#[derive(Debug)]
struct Drawing {
    /// The moment and the counter of the last id.
    last: u128,
    /// The epoch of the last used topology, and the latest moment in it from which on weights apply.
    epoch: u32,
    after: u64,
    /// By a hash of the process; created on first use.
    sequences: Box<[Option<Sequence>]>,
}

/// The operating system gives no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("the system gives no random numbers: {0}; check that /dev/urandom can be read")]
pub(crate) struct NoRandomness(getrandom::Error);

impl Default for Ids {
    fn default() -> Self {
        let sequences = vec![None; SEQUENCES].into_boxed_slice();
        Self { drawing: Mutex::new(Drawing { last: 0, epoch: 0, after: 0, sequences }) }
    }
}

/// The server that generates ids, alone or in a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Front<'a> {
    pub(crate) here: ServerId,
    pub(crate) topology: Option<&'a Topology>,
}

impl Ids {
    /// An id for a new instance of a process. It determines the server at which the instance starts: this one
    /// or another of the same domain.
    pub(crate) fn draw(
        &self,
        now: Timestamp,
        front: Front<'_>,
        process: &str,
    ) -> Result<InstanceId, NoRandomness> {
        let mut drawing = self.drawing.lock().unwrap_or_else(PoisonError::into_inner);
        let spread = drawing.spread(process)?;
        drawing.id(now, front, spread)
    }

    /// An id with a given spread, which follows from the key of a start.
    pub(crate) fn draw_with(
        &self,
        now: Timestamp,
        front: Front<'_>,
        spread: u32,
    ) -> Result<InstanceId, NoRandomness> {
        self.drawing.lock().unwrap_or_else(PoisonError::into_inner).id(now, front, spread)
    }

    /// An id for an instance that starts at this very server of the domain; `None` if it has no weight.
    pub(crate) fn draw_at(
        &self,
        now: Timestamp,
        front: Front<'_>,
        process: &str,
        server: ServerId,
    ) -> Result<Option<InstanceId>, NoRandomness> {
        let Some(topology) = front.topology else { return Ok(None) };
        let mut drawing = self.drawing.lock().unwrap_or_else(PoisonError::into_inner);
        let position = drawing.spread(process)?;
        let created_ms = drawing.next_moment(now, Some(topology))?;
        let id = |spread| InstanceId::new(created_ms, drawing.last as u32, spread, server);
        let domain = topology.domain_of(front.here).and_then(|domain| topology.domain(domain));
        let layout = domain.map(|domain| &domain.chain.version(id(position)).layout);
        Ok(layout.and_then(|layout| layout.within(server, position)).map(id))
    }
}

impl Drawing {
    fn spread(&mut self, process: &str) -> Result<u32, NoRandomness> {
        let place = FxBuildHasher.hash_one(process) as usize % self.sequences.len();
        let sequence = &mut self.sequences[place];
        if let Some(sequence) = sequence {
            return Ok(sequence.draw());
        }
        let beginning = u32::from_le_bytes(random()?);
        Ok(sequence.insert(Sequence::new(beginning)).draw())
    }

    fn id(
        &mut self,
        now: Timestamp,
        front: Front<'_>,
        spread: u32,
    ) -> Result<InstanceId, NoRandomness> {
        let Front { here, topology } = front;
        let created_ms = self.next_moment(now, topology)?;
        let id = |server| InstanceId::new(created_ms, self.last as u32, spread, server);
        // The starter follows from the spread alone, not from the server number in the id.
        Ok(id(topology.and_then(|topology| topology.starter(here, id(here))).unwrap_or(here)))
    }

    /// Advances to the next id; returns its moment, in milliseconds.
    fn next_moment(
        &mut self,
        now: Timestamp,
        topology: Option<&Topology>,
    ) -> Result<u64, NoRandomness> {
        if let Some(topology) = topology.filter(|topology| topology.epoch != self.epoch) {
            let chains = topology.domains.iter().map(|domain| &domain.chain);
            // Where weights apply from a moment on, a new id counts as created after it, even if the clock of
            // this server is behind.
            self.after = chains.filter_map(Chain::latest_since).max().unwrap_or_default();
            self.epoch = topology.epoch;
        }
        let millis = u128::from(now.0.unsigned_abs().max(self.after.saturating_add(1)));
        // Within a millisecond ids count up: that keeps their order and saves random numbers.
        self.last = if millis <= self.last >> InstanceId::TIE_BITS {
            self.last + 1
        } else {
            // Half of the range is left for counting.
            millis << InstanceId::TIE_BITS | u128::from(u32::from_le_bytes(random()?) >> 1)
        };
        Ok((self.last >> InstanceId::TIE_BITS) as u64)
    }
}

/// The stream that records which instance of the process this key has started.
pub(crate) fn key_stream(process: &str, key: &str) -> StreamId {
    let hash = framed_hash(&[b"start", process.as_bytes(), key.as_bytes()]);
    let mut id = [0; 16];
    id.copy_from_slice(&hash.as_bytes()[..16]);
    StreamId::of_key(u128::from_be_bytes(id))
}

/// The spread of the instance that a key starts: the same servers are concerned, whichever server is asked.
pub(crate) fn key_spread(stream: StreamId) -> u32 {
    stream.0 as u32
}

/// Distinguishes a repeated start from another start under the same key, by its content, however it is
/// written. The caller's wait time does not count.
pub(crate) fn start_digest(start: &StartRequest) -> serde_json::Result<u64> {
    let StartRequest { process, version, data, agent, wait_ms: _, deadline } = start;
    // Objects are sorted by key. Digests are stored: that of a start without a deadline is the same as before
    // deadlines existed.
    let content = match deadline {
        None => serde_json::to_vec(&(process, version, data, agent))?,
        Some(deadline) => serde_json::to_vec(&(process, version, data, agent, deadline))?,
    };
    Ok(first_bytes(&blake3::hash(&content)))
}

/// The same for the completion of an activity.
pub(crate) fn completion_digest(
    key: &str,
    activity: &ActivityId,
    agent: &AgentId,
    data: &Data,
    answer: Option<&str>,
) -> serde_json::Result<RequestDigest> {
    let key = framed_hash(&[key.as_bytes(), activity.to_string().as_bytes()]);
    let content = blake3::hash(&serde_json::to_vec(&(agent.as_str(), data, answer))?);
    let half = |hash| (first_bytes(hash) >> 32) as u32;
    Ok(RequestDigest::new(half(&key), half(&content)))
}

fn first_bytes(hash: &blake3::Hash) -> u64 {
    let mut digest = [0; 8];
    digest.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_be_bytes(digest)
}

/// A number that no other incarnation of the site has.
pub(crate) fn draw_life() -> Result<u64, NoRandomness> {
    random().map(u64::from_le_bytes)
}

/// The prefix of every token, so that a leaked one is recognised.
const TOKEN_PREFIX: &str = "lw_";

/// A new secret and its hash.
pub(crate) fn draw_token() -> Result<(String, [u8; 32]), NoRandomness> {
    let mut token = TOKEN_PREFIX.to_owned();
    for byte in random::<32>()? {
        for digit in [byte >> 4, byte & 15] {
            token.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    let hash = hash_token(&token);
    Ok((token, hash))
}

/// A plain hash suffices: the secret has 256 random bits and cannot be guessed.
pub(crate) fn hash_token(token: &str) -> [u8; 32] {
    *blake3::hash(token.as_bytes()).as_bytes()
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(NoRandomness)?;
    Ok(bytes)
}

/// Each part is preceded by its length: no two lists of parts give the same bytes.
fn framed_hash(parts: &[&[u8]]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use legwork_placement::Rule;

    use super::*;

    const ALONE: Front<'_> = Front { here: ServerId(7), topology: None };

    fn topology(weights: &str) -> Topology {
        let servers = weights.split(' ').enumerate().map(|(number, weight)| {
            format!(
                "s{number}: {{ address: \"s{number}:1\", api: \"http://s{number}\", weight: {weight} }}"
            )
        });
        let servers = servers.collect::<Vec<_>>().join(", ");
        let text = format!("topology: t\ndomains: {{ ulm: {{ servers: {{ {servers} }} }} }}\n");
        Topology::parse(&text).0.unwrap()
    }

    #[test]
    fn ids_sort_in_the_order_they_were_drawn_even_when_the_clock_stands_still() {
        let ids = Ids::default();
        let drawn: Vec<_> = [1_000, 1_000, 1_001, 1_000, 1_001, 1_002]
            .map(|millis| ids.draw(Timestamp(millis), ALONE, "loan").unwrap())
            .into();
        assert!(drawn.is_sorted_by(|a, b| a < b), "{drawn:?}");
        let moments: Vec<u64> = drawn.iter().map(|id| id.created_ms()).collect();
        assert_eq!(moments, [1_000, 1_000, 1_001, 1_001, 1_001, 1_002]);
        assert!(drawn.iter().all(|id| id.server() == ServerId(7)), "{drawn:?}");
    }

    #[test]
    fn instances_of_each_process_are_divided_evenly_however_those_of_others_come_between() {
        let (ids, topology) = (Ids::default(), topology("20 30 50"));
        let front = Front { here: ServerId(1), topology: Some(&topology) };
        let draw = |process| ids.draw(Timestamp(1), front, process).unwrap();
        let (mut loans, mut claims) = ([0_usize; 3], [0_usize; 3]);
        for number in 0..3_000 {
            let id = draw("loan");
            assert_eq!(topology.server_in(Default::default(), id), Some(id.server()));
            loans[usize::from(id.server().0)] += 1;
            if number % 3 == 0 {
                claims[usize::from(draw("claim").server().0)] += 1;
            }
        }
        for (place, share) in [2, 3, 5].into_iter().enumerate() {
            assert!(loans[place].abs_diff(share * 300) < 5, "{loans:?}");
            assert!(claims[place].abs_diff(share * 100) < 5, "{claims:?}");
        }
    }

    #[test]
    fn an_id_for_a_server_is_for_that_one_however_small_its_weight() {
        let (ids, topology) = (Ids::default(), topology("1000 1 0"));
        let front = Front { here: ServerId(2), topology: Some(&topology) };
        for server in [0, 1].map(ServerId) {
            for _ in 0..100 {
                let id = ids.draw_at(Timestamp(1), front, "loan", server).unwrap().unwrap();
                assert_eq!(id.server(), server);
                assert_eq!(topology.server_in(Default::default(), id), Some(server));
            }
        }
        assert_eq!(ids.draw_at(Timestamp(1), front, "loan", ServerId(2)).unwrap(), None);
    }

    #[test]
    fn what_begins_now_has_the_weights_that_count_now_though_the_clock_is_behind() {
        let (ids, before) = (Ids::default(), topology("1 1"));
        let mut after = before.clone();
        let chain = &before.domains[0].chain;
        let layout = chain.newest().next(&[(ServerId(1), 1)]).unwrap();
        after.domains[0].chain = chain.then(layout, Rule::Since(5_000));
        after.epoch += 1;
        let front = |topology| Front { here: ServerId(0), topology: Some(topology) };
        assert_eq!(ids.draw(Timestamp(1_000), front(&before), "loan").unwrap().created_ms(), 1_000);
        for _ in 0..10 {
            let id = ids.draw(Timestamp(1_001), front(&after), "loan").unwrap();
            assert_eq!((id.created_ms(), id.server()), (5_001, ServerId(1)));
        }
    }

    #[test]
    fn a_key_decides_where_its_instance_belongs() {
        let (ids, topology, stream) = (Ids::default(), topology("1 1"), key_stream("loan", "k1"));
        for here in [0, 1] {
            let front = Front { here: ServerId(here), topology: Some(&topology) };
            let id = ids.draw_with(Timestamp(1), front, key_spread(stream)).unwrap();
            assert_eq!((id.spread(), id.server()), (key_spread(stream), ServerId(1)));
        }
        // The servers along the chain of a key are asked in turn: it must never change.
        assert_eq!(key_spread(stream), 0xF491_C9DC);
    }

    #[test]
    fn a_key_has_one_stream_per_process() {
        let stream = key_stream("loan", "k1");
        assert_eq!(stream, key_stream("loan", "k1"));
        assert_ne!(stream, key_stream("loan", "k2"));
        assert_ne!(stream, key_stream("claim", "k1"));
        assert_ne!(key_stream("ab", "c"), key_stream("a", "bc"));
    }

    #[test]
    fn a_start_is_the_same_in_any_notation_and_with_any_wait() {
        let digest = |text: &str| start_digest(&serde_json::from_str(text).unwrap()).unwrap();
        let start = digest(r#"{"process": "loan", "data": {"a": 1, "b": {"c": 2, "d": 3}}}"#);
        for same in [
            r#"{"data":{"b":{"d":3,"c":2},"a":1},"process":"loan"}"#,
            r#"{"process": "loan", "data": {"a": 1, "b": {"c": 2, "d": 3}}, "wait_ms": 5000}"#,
        ] {
            assert_eq!(digest(same), start, "{same}");
        }
        for other in [
            r#"{"process": "loan", "data": {"a": 2, "b": {"c": 2, "d": 3}}}"#,
            r#"{"process": "loan", "data": {"a": 1, "b": {"c": 2, "d": 3}}, "version": 1}"#,
            r#"{"process": "loan", "data": {"a": 1, "b": {"c": 2, "d": 3}}, "agent": "ann"}"#,
            r#"{"process": "claim", "data": {"a": 1, "b": {"c": 2, "d": 3}}}"#,
            r#"{"process": "loan", "data": {"a": 1, "b": {"c": 2, "d": 3}}, "deadline": {"at": "2026-03-01T09:30:00Z"}}"#,
        ] {
            assert_ne!(digest(other), start, "{other}");
        }
    }

    #[test]
    fn completions_differ_by_key_or_by_content() {
        let activity: ActivityId = "inst_00000000000000000000000001:a".parse().unwrap();
        let digest = |key, agent, answer| {
            let agent = AgentId::from(agent);
            completion_digest(key, &activity, &agent, &Data::new(), answer).unwrap()
        };
        let first = digest("k", "ann", None);
        assert_eq!(first, digest("k", "ann", None));
        for other in [digest("k", "ben", None), digest("k", "ann", Some("yes"))] {
            assert!(other != first && other.has_key_of(first));
        }
        assert!(!digest("l", "ann", None).has_key_of(first));
    }

    #[test]
    fn two_lives_are_never_the_same() {
        assert_ne!(draw_life().unwrap(), draw_life().unwrap());
    }

    #[test]
    fn tokens_are_recognisable_and_never_the_same() {
        let (token, hash) = draw_token().unwrap();
        assert!(token.starts_with("lw_") && token.len() == 67, "{}", token.len());
        assert_eq!(hash, hash_token(&token));
        assert_ne!(draw_token().unwrap().0, token);
    }
}
