//! Ids and secrets, drawn at random, and the hashes of idempotency keys.
//!
//! Invariant: ids of instances drawn later by one server sort after those drawn before; the same key
//! for the same process always gives the same stream.

use std::sync::{Mutex, PoisonError};

use legwork_model::id::{InstanceId, StreamId};
use legwork_model::time::Timestamp;

/// The lower bits of an id are random, the upper ones the moment it was drawn.
const RANDOM_BITS: u32 = 80;

#[derive(Debug, Default)]
pub(crate) struct Ids {
    last: Mutex<u128>,
}

/// There is no randomness to be had from the system.
#[derive(Debug, thiserror::Error)]
#[error("the system gives no random numbers: {0}; check that /dev/urandom can be read")]
pub(crate) struct NoRandomness(getrandom::Error);

impl Ids {
    pub(crate) fn draw(&self, now: Timestamp) -> Result<InstanceId, NoRandomness> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let moment = u128::from(now.0.unsigned_abs()) << RANDOM_BITS;
        // Within a millisecond ids count up: that keeps their order and saves the random numbers.
        let next = if moment >> RANDOM_BITS <= *last >> RANDOM_BITS {
            *last + 1
        } else {
            moment | u128::from_le_bytes(random()?) >> (128 - RANDOM_BITS)
        };
        *last = next;
        Ok(InstanceId(next))
    }
}

/// The stream that tells which instance of the process this key has started.
pub(crate) fn key_stream(process: &str, key: &str) -> StreamId {
    let hash = framed_hash(&[b"start", process.as_bytes(), key.as_bytes()]);
    let mut id = [0; 16];
    id.copy_from_slice(&hash.as_bytes()[..16]);
    StreamId::of_key(u128::from_be_bytes(id))
}

/// Tells a repetition of a request from another request under the same key.
pub(crate) fn request_digest(key: &str, body: &[u8]) -> u64 {
    let hash = framed_hash(&[key.as_bytes(), body]);
    let mut digest = [0; 8];
    digest.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_be_bytes(digest)
}

/// What every token begins with, so that one is recognised where it has leaked to.
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

/// A plain hash is enough: the secret has 256 random bits, nobody guesses it.
pub(crate) fn hash_token(token: &str) -> [u8; 32] {
    *blake3::hash(token.as_bytes()).as_bytes()
}

fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(NoRandomness)?;
    Ok(bytes)
}

/// Each part with its length: no two lists of parts give the same bytes.
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
    use super::*;

    #[test]
    fn ids_sort_in_the_order_they_were_drawn_even_when_the_clock_stands_still() {
        let ids = Ids::default();
        let drawn: Vec<_> = [1_000, 1_000, 1_001, 1_000, 1_001, 1_002]
            .map(|millis| ids.draw(Timestamp(millis)).unwrap())
            .into();
        assert!(drawn.is_sorted_by(|a, b| a < b), "{drawn:?}");
        assert_eq!(drawn[0].0 >> RANDOM_BITS, 1_000);
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
    fn tokens_are_recognisable_and_never_the_same() {
        let (token, hash) = draw_token().unwrap();
        assert!(token.starts_with("lw_") && token.len() == 67, "{}", token.len());
        assert_eq!(hash, hash_token(&token));
        assert_ne!(draw_token().unwrap().0, token);
    }
}
