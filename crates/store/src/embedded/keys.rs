//! The keys and values of the embedded store, byte for byte.
//!
//! Invariant: keys sort like the pairs they stand for, so that one pass in key order meets all
//! records of a stream in order, and streams in the order of their ids. All numbers are big-endian.
//!
//! | keyspace  | key                           | value                                      |
//! |-----------|-------------------------------|--------------------------------------------|
//! | `records` | stream (16), version (4)      | the record                                 |
//! | `open`    | `00`                          | [`Commit`]: 16 bytes                       |
//! | `open`    | stream (16)                   | empty, or version (4) and the snapshot     |
//! | `closed`  | stream (16)                   | the summary                                |

use std::ops::RangeFrom;

use legwork_model::id::StreamId;

use crate::{Snapshot, Version};

/// Sorts before all streams; every commit overwrites it. It is in the keyspace of the open streams
/// because those are few: a table with it spans all keys, and must be merged with every other
/// table. New records go into tables that overlap no other.
pub(super) const COMMIT_KEY: [u8; 1] = [0];

pub(super) const STREAM_BYTES: usize = 16;
pub(super) const RECORD_KEY_BYTES: usize = STREAM_BYTES + 4;

/// The first item of every batch, and so of every entry of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Commit {
    /// The sequence number of the commit, without gaps: a missing entry shows.
    pub(super) sequence: u64,
    /// A lower bound of the number the journal gives to the entry: the journal does not protect
    /// that number by its checksum, and a flipped bit in it can hide the entry.
    pub(super) entry_number_min: u64,
}

impl Commit {
    pub(super) fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..].copy_from_slice(&self.entry_number_min.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (sequence, rest) = bytes.split_first_chunk()?;
        Some(Self {
            sequence: u64::from_be_bytes(*sequence),
            entry_number_min: u64::from_be_bytes(rest.try_into().ok()?),
        })
    }
}

/// The key of the record that follows `version` records. Versions are admitted below 2^32.
pub(super) fn record(stream: StreamId, version: Version) -> [u8; RECORD_KEY_BYTES] {
    let version = u32::try_from(version.0).unwrap_or(u32::MAX);
    let mut key = [0; RECORD_KEY_BYTES];
    key[..STREAM_BYTES].copy_from_slice(&stream.0.to_be_bytes());
    key[STREAM_BYTES..].copy_from_slice(&version.to_be_bytes());
    key
}

pub(super) fn parse_record(key: &[u8]) -> Option<(StreamId, Version)> {
    let (stream, version) = key.split_first_chunk()?;
    let version = u32::from_be_bytes(version.try_into().ok()?);
    Some((StreamId(u128::from_be_bytes(*stream)), Version(version.into())))
}

/// Below all keys of streams.
pub(super) const STREAMS: RangeFrom<[u8; STREAM_BYTES]> = [0; STREAM_BYTES]..;

pub(super) fn stream(stream: StreamId) -> [u8; STREAM_BYTES] {
    stream.0.to_be_bytes()
}

pub(super) fn parse_stream(key: &[u8]) -> Option<StreamId> {
    Some(StreamId(u128::from_be_bytes(key.try_into().ok()?)))
}

pub(super) fn snapshot_value(snapshot: &Snapshot) -> Vec<u8> {
    let version = u32::try_from(snapshot.version.0).unwrap_or(u32::MAX);
    [&version.to_be_bytes(), snapshot.bytes.as_slice()].concat()
}

/// `Ok(None)` for a stream without a snapshot, `Err` for bytes that this module never wrote.
pub(super) fn parse_snapshot(stream: StreamId, value: &[u8]) -> Result<Option<Snapshot>, ()> {
    if value.is_empty() {
        return Ok(None);
    }
    let (version, bytes) = value.split_first_chunk().ok_or(())?;
    let version = Version(u32::from_be_bytes(*version).into());
    Ok(Some(Snapshot { stream, version, bytes: bytes.to_vec() }))
}
