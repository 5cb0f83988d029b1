//! The settings of the storage engine, and their reasons.
//!
//! Invariant: memory is bounded whatever the store holds: the block cache, and for each keyspace
//! one active and at most two waiting memtables.

use std::path::Path;
use std::sync::Arc;

use fjall::compaction::Leveled;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    PinningPolicy, RestartIntervalPolicy,
};
use fjall::{CompressionType, Database, DatabaseBuilder, KeyspaceCreateOptions};

const MIB: u64 = 1 << 20;

/// The memtable sizes of `records`, `open` and `closed`. In memory a memtable takes about twice as
/// much, and there may be three of each while the worker is busy.
pub(super) const MEMTABLE_BYTES_MAX: [u64; 3] = [8 * MIB, 4 * MIB, 2 * MIB];

/// Where the engine would flush by itself; the store does so before, see `Embedded::make_room`.
const ENGINE_MEMTABLE_BYTES_MAX: u64 = 1024 * MIB;

/// Journals are kept until every keyspace has flushed their contents: this bounds both their disk
/// use and what a restart replays.
const JOURNAL_BYTES_MAX: u64 = 64 * MIB;

pub(super) fn database(data: &Path, cache_bytes: u64) -> DatabaseBuilder<Database> {
    Database::builder(data)
        .cache_size(cache_bytes)
        .max_journaling_size(JOURNAL_BYTES_MAX)
        // A compressed entry is compressed again when it is replayed, to check its checksum: a
        // later version of the compressor could make the store unreadable.
        .journal_compression(CompressionType::None)
        // Every commit is flushed and synced by itself, explicitly.
        .manual_journal_persist(true)
        .worker_threads(WORKERS)
}

/// Of several workers the engine reserves the first for flushing, and that one spins for as long
/// as a compaction waits: a whole core of a small machine. One worker flushes and compacts in turn.
const WORKERS: usize = 1;

/// The records: by far the most bytes; read in order, hardly ever by key.
pub(super) fn records() -> KeyspaceCreateOptions {
    common()
        // Larger blocks compress better, and histories are read whole.
        .data_block_size_policy(BlockSizePolicy::new([4 << 10, 16 << 10]))
        // A lookup by key happens on the first append to an existing stream after a restart.
        .expect_point_read_hits(true)
}

/// The open streams and their snapshots: small, short-lived, asked for by key.
pub(super) fn open() -> KeyspaceCreateOptions {
    common()
}

/// The summaries of closed streams: written once, listed by page.
pub(super) fn closed() -> KeyspaceCreateOptions {
    common()
        .data_block_size_policy(BlockSizePolicy::new([4 << 10, 16 << 10]))
        .expect_point_read_hits(true)
}

fn common() -> KeyspaceCreateOptions {
    let filter = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0));
    KeyspaceCreateOptions::default()
        .manual_journal_persist(true)
        .max_memtable_size(ENGINE_MEMTABLE_BYTES_MAX)
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
        .data_block_restart_interval_policy(RestartIntervalPolicy::all(16))
        .filter_policy(FilterPolicy::all(filter))
        // Below the first level, indexes and filters live in the block cache and nowhere else.
        .index_block_pinning_policy(PinningPolicy::new([true, false]))
        .filter_block_pinning_policy(PinningPolicy::new([true, false]))
        .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(16 * MIB)))
}
