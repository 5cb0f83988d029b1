//! How fast is the store in PostgreSQL, how long does a restart take, how much disk does a case need?
//!
//! Invariant: same input as `store_bench`, and every number comes from the public contract. The
//! server is a private one in the folder for temporary files (`TMPDIR` names another disk), as Debian
//! sets it up. The measurements are in `docs/decisions/0019-postgresql-and-leases.md`.
//!
//! ```text
//! postgres_bench commits [COUNT]  durable commits/s of 1, 16, 128 and 1024 appends
//! postgres_bench restart STREAMS  seconds until STREAMS open streams are read
//! postgres_bench size STREAMS     bytes on disk of a closed stream of 11 records of 60 bytes
//! ```

use std::error::Error;
use std::ops::ControlFlow;
use std::time::Instant;

use legwork_model::id::StreamId;
use legwork_store::postgres::{LEASE, Postgres, Shared};
use legwork_store::{Append, Batch, EventStore, Version};
use legwork_testbed::{Cluster, Database};

type Outcome = Result<(), Box<dyn Error>>;

const RECORD_BYTES: usize = 120;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["commits"] => commits(4_000),
        ["commits", count] => commits(count.parse()?),
        ["restart", streams] => restart(streams.parse()?),
        ["size", streams] => size(streams.parse()?),
        _ => Err("usage: postgres_bench commits [COUNT] | restart STREAMS | size STREAMS".into()),
    }
}

/// A server on the disk, a database and a store in it.
fn fresh() -> Result<(Postgres, Database, Cluster), Box<dyn Error>> {
    let cluster = Cluster::start_in(&std::env::temp_dir(), &[("shared_buffers", "128MB")])?;
    let database = cluster.database("bench")?;
    let shared = Shared::connect(database.url())?;
    let store = shared.acquire("bench", "bench", LEASE)?.open()?;
    Ok((store, database, cluster))
}

fn commits(count_max: usize) -> Outcome {
    for appends in [1, 16, 128, 1_024] {
        let (store, _database, _cluster) = fresh()?;
        let count = (400_000 / appends).min(count_max);
        let mut latencies = Vec::with_capacity(count);
        let start = Instant::now();
        for round in 0..count {
            // Streams of 8 records: of 8 appends one starts a stream, 7 continue one.
            let batch = (0..appends).map(|lane| append(stream(round / 8, lane), round % 8));
            let batch = Batch { appends: batch.collect(), snapshots: Vec::new() };
            let begun = Instant::now();
            store.commit(batch)?;
            latencies.push(begun.elapsed().as_nanos() as f64 / 1e3);
        }
        let seconds = start.elapsed().as_secs_f64();
        latencies.sort_by(f64::total_cmp);
        println!(
            "commits appends={appends} commits_per_s={:.0} appends_per_s={:.0} p50_us={:.0} \
             p99_us={:.0}",
            count as f64 / seconds,
            (count * appends) as f64 / seconds,
            latencies[count / 2],
            latencies[count * 99 / 100],
        );
    }
    Ok(())
}

fn restart(streams: usize) -> Outcome {
    let (store, _database, _cluster) = fresh()?;
    for first in (0..streams).step_by(1_000) {
        let all = first..streams.min(first + 1_000);
        let appends = all.flat_map(|at| (0..3).map(move |version| append(stream(at, 0), version)));
        store.commit(Batch { appends: appends.collect(), snapshots: Vec::new() })?;
    }
    for _ in 0..3 {
        let start = Instant::now();
        let (mut found, mut records) = (0, 0);
        store.open_streams(None, &mut |open| {
            found += 1;
            records += open.records.len();
            ControlFlow::Continue(())
        })?;
        let seconds = start.elapsed().as_secs_f64();
        println!("restart streams={found} records={records} seconds={seconds:.2}");
    }
    Ok(())
}

fn size(streams: usize) -> Outcome {
    let (store, database, _cluster) = fresh()?;
    for first in (0..streams).step_by(1_000) {
        let all = first..streams.min(first + 1_000);
        for version in 0..11 {
            let appends = all.clone().map(|at| Append {
                record: vec![at as u8; 60],
                close: (version == 10).then(|| vec![1; 60]),
                ..append(stream(at, 0), version)
            });
            store.commit(Batch { appends: appends.collect(), snapshots: Vec::new() })?;
        }
    }
    database.ask("CHECKPOINT")?;
    println!("size streams={streams} bytes_per_stream={}", store.disk_use()? / streams as u64);
    Ok(())
}

fn append(stream: StreamId, version: usize) -> Append {
    let record = vec![version as u8; RECORD_BYTES];
    Append { stream, expected: Version(version as u64), record, close: None }
}

/// Ids that grow with time, like those of instances.
fn stream(round: usize, lane: usize) -> StreamId {
    StreamId(((round as u128) << 64) | lane as u128)
}
