//! How fast is the embedded store, how long does a restart take, how much disk does a case need?
//!
//! Invariant: same input on every run (no clock, no randomness in the data), and every number comes
//! from the public contract. The baseline is the disk: a bare append and `fdatasync` of the same
//! bytes, measured beside it. The measurements are in `docs/decisions/0003-embedded-store.md`.
//!
//! ```text
//! store_bench commits [COUNT]  durable commits/s of 1, 16 and 128 appends, and their lookups
//! store_bench restart STREAMS  kill -9 after STREAMS open streams, then seconds until all are read
//! store_bench crash KILLS      kill -9 under load, with tables and journals on the move
//! store_bench size STREAMS     bytes on disk of a closed stream of 11 records of 60 bytes
//! ```

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use legwork_model::id::StreamId;
use legwork_store::embedded::Embedded;
use legwork_store::{Append, Batch, EventStore, Version};

type Outcome = Result<(), Box<dyn Error>>;

const RECORD_BYTES: usize = 120;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["commits"] => commits(8_000),
        ["commits", count] => commits(count.parse()?),
        ["restart", streams] => restart(streams.parse()?),
        ["size", streams] => size(streams.parse()?),
        ["crash", kills] => crash(kills.parse()?),
        ["rounds", dir] => rounds(Path::new(dir)),
        ["fill", dir, streams] => fill(Path::new(dir), streams.parse()?),
        _ => {
            Err("usage: store_bench commits [COUNT] | restart STREAMS | size STREAMS | crash KILLS"
                .into())
        }
    }
}

fn commits(count_max: usize) -> Outcome {
    for appends in [1, 16, 128] {
        let dir = scratch()?;
        let bare = bare_syncs(&dir, appends)?;
        let count = (2_000_000 / appends).min(count_max);
        let store = Embedded::open(&dir.join("store"))?;
        let mut latencies = Vec::with_capacity(count);
        let (start, cpu) = (Instant::now(), cpu_seconds()?);
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
        let (p50, p99) = (latencies[count / 2], latencies[count * 99 / 100]);
        println!(
            "commits appends={appends} commits_per_s={:.0} appends_per_s={:.0} p50_us={p50:.0} \
             p99_us={p99:.0} bare_fdatasync_p50_us={bare:.0} cpu_us_per_append={:.2} rss_mib={:.0}",
            count as f64 / seconds,
            (count * appends) as f64 / seconds,
            (cpu_seconds()? - cpu) * 1e6 / (count * appends) as f64,
            memory("VmRSS")?,
        );
        drop(store);
        lookups(&dir.join("store"), count / 8 * appends, appends)?;
        fs::remove_dir_all(dir)?;
    }
    Ok(())
}

/// After reopening no head is remembered: each append to an old stream looks its head up.
fn lookups(dir: &Path, streams: usize, lanes: usize) -> Outcome {
    let store = Embedded::open(dir)?;
    let count = streams.min(50_000);
    let mut appends = Vec::new();
    for place in 0..count {
        let place = place * streams / count;
        appends.push(append(stream(place / lanes, place % lanes), 8));
    }
    let (begun, cpu) = (Instant::now(), cpu_seconds()?);
    store.commit(Batch { appends, snapshots: Vec::new() })?;
    let each = begun.elapsed().as_nanos() as f64 / 1e3 / count as f64;
    let cpu = (cpu_seconds()? - cpu) * 1e6 / count as f64;
    println!("lookups streams={count} us_per_append={each:.2} cpu_us_per_append={cpu:.2}");
    Ok(())
}

fn bare_syncs(dir: &Path, appends: usize) -> Result<f64, Box<dyn Error>> {
    let mut file = File::create(dir.join("bare"))?;
    file.set_len(64 << 20)?;
    let bytes = vec![7; appends * (RECORD_BYTES + 41)];
    let mut latencies = Vec::new();
    for _ in 0..1000 {
        let begun = Instant::now();
        file.write_all(&bytes)?;
        file.sync_data()?;
        latencies.push(begun.elapsed().as_nanos() as f64 / 1e3);
    }
    latencies.sort_by(f64::total_cmp);
    Ok(latencies[latencies.len() / 2])
}

fn restart(streams: usize) -> Outcome {
    let dir = scratch()?;
    let store = dir.join("store");
    let begun = Instant::now();
    let mut child = Command::new(std::env::current_exe()?)
        .arg("fill")
        .arg(&store)
        .arg(streams.to_string())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    child.kill()?;
    child.wait()?;
    print!("{line}");
    println!("filled_and_killed_s={:.2}", begun.elapsed().as_secs_f64());
    let (begun, cpu) = (Instant::now(), cpu_seconds()?);
    let opened = Embedded::open(&store)?;
    let (open_s, open_cpu_s) = (begun.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    let (mut count, mut records, mut hash) = (0, 0, 0_u64);
    opened.open_streams(None, &mut |open| {
        count += 1;
        records += open.records.len();
        hash = hash.rotate_left(5) ^ (open.stream.0 as u64) ^ open.records.len() as u64;
        ControlFlow::Continue(())
    })?;
    let total_s = begun.elapsed().as_secs_f64();
    println!(
        "restart streams={count} records={records} open_s={open_s:.2} open_cpu_s={open_cpu_s:.2} \
         total_s={total_s:.2} cpu_s={:.2} rss_mib={:.0} rss_max_mib={:.0} hash={hash:016x}",
        cpu_seconds()? - cpu,
        memory("VmRSS")?,
        memory("VmHWM")?,
    );
    drop(opened);
    fs::remove_dir_all(dir)?;
    Ok(())
}

/// Streams of 1 to 3 records; between them, one in ten is longer and closed.
fn fill(dir: &Path, streams: usize) -> Outcome {
    let store = Embedded::open(dir)?;
    let begun = Instant::now();
    for first in (0..streams).step_by(1000) {
        for version in 0..3 {
            let mut appends = Vec::new();
            for place in first..(first + 1000).min(streams) {
                if version <= place % 3 {
                    appends.push(append(stream(place, 0), version));
                }
                if place % 10 == 0 {
                    appends.push(append(stream(place, 1), version));
                    if version == 2 {
                        appends.last_mut().ok_or("no append")?.close = Some(vec![1; 40]);
                    }
                }
            }
            store.commit(Batch { appends, snapshots: Vec::new() })?;
        }
    }
    println!(
        "filled streams={streams} seconds={:.2} cpu_s={:.2} rss_mib={:.0} rss_max_mib={:.0} {:?}",
        begun.elapsed().as_secs_f64(),
        cpu_seconds()?,
        memory("VmRSS")?,
        memory("VmHWM")?,
        store.disk_use()?,
    );
    std::io::stdout().flush()?;
    std::thread::park();
    Ok(())
}

fn size(streams: usize) -> Outcome {
    let dir = scratch()?;
    let store = Embedded::open(&dir.join("store"))?;
    for first in (0..streams).step_by(100) {
        for version in 0..11 {
            let appends = (first..(first + 100).min(streams)).map(|place| {
                let record = bytes(place * 11 + version, 60);
                let close = (version == 10).then(|| bytes(place, 60));
                let expected = Version(version as u64);
                Append { stream: stream(place, 0), expected, record, close }
            });
            let appends = appends.collect();
            store.commit(Batch { appends, snapshots: Vec::new() })?;
        }
    }
    let before = store.disk_use()?;
    let begun = Instant::now();
    store.compact()?;
    let after = store.disk_use()?;
    println!(
        "size streams={streams} tables_before={} tables_after={} journals={} \
         bytes_per_stream={} compact_s={:.2} rss_max_mib={:.0}",
        before.tables,
        after.tables,
        after.journals,
        after.tables / streams as u64,
        begun.elapsed().as_secs_f64(),
        memory("VmHWM")?,
    );
    drop(store);
    fs::remove_dir_all(dir)?;
    Ok(())
}

/// Each round appends to one of these groups, in turn.
const GROUPS: usize = 40;
const GROUP_STREAMS: usize = 150;

/// Unlike the test of the same name this one writes enough for the engine to flush, compact and
/// begin new journals all the time, so that kills hit those too.
fn crash(kills: usize) -> Outcome {
    let dir = scratch()?;
    let store = dir.join("store");
    let (mut acknowledged, mut seed) = (0, 1);
    for kill in 1..=kills {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("rounds")
            .arg(&store)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        seed = scatter(seed);
        for _ in 0..seed % 800 {
            acknowledged = lines.next().ok_or("the child died")??.parse()?;
        }
        child.kill()?;
        child.wait()?;
        // The last line may be cut off: then its commit counts as not acknowledged.
        for line in lines {
            acknowledged = acknowledged.max(line?.parse()?);
        }
        let there = count_rounds(&Embedded::open(&store)?)?;
        if there < acknowledged || there > acknowledged + 1 {
            return Err(format!("acknowledged={acknowledged} there={there}").into());
        }
        acknowledged = there;
        eprintln!("kill {kill}: acknowledged={acknowledged}");
    }
    let tables = Embedded::open(&store)?.disk_use()?.tables;
    println!("crash kills={kills} acknowledged={acknowledged} lost=0 duplicated=0 tables={tables}");
    fs::remove_dir_all(dir)?;
    Ok(())
}

fn rounds(dir: &Path) -> Outcome {
    let store = Embedded::open(dir)?;
    for round in count_rounds(&store)?.. {
        let group = (0..GROUP_STREAMS).map(|lane| Append {
            record: bytes(round ^ lane, 700),
            ..append(stream(round % GROUPS, lane), round / GROUPS)
        });
        store.commit(Batch { appends: group.collect(), snapshots: Vec::new() })?;
        println!("{}", round + 1);
    }
    Ok(())
}

/// The number of rounds that are stored completely.
fn count_rounds(store: &Embedded) -> Result<usize, Box<dyn Error>> {
    let mut versions = [const { Vec::new() }; GROUPS];
    store.open_streams(None, &mut |open| {
        let time = (open.stream.0 >> 80) - 1_700_000_000_000;
        versions[time as usize].push(open.records.len());
        ControlFlow::Continue(())
    })?;
    let mut rounds = 0;
    for group in &versions {
        if group.iter().any(|count| *count != group[0])
            || !(group.is_empty() || group.len() == GROUP_STREAMS)
        {
            return Err(format!("a commit is there in part: {group:?}").into());
        }
        rounds += group.first().unwrap_or(&0);
    }
    // Whole rounds in turn: groups before the next one are one ahead of those after.
    for (place, group) in versions.iter().enumerate() {
        let expected = rounds / GROUPS + usize::from(place < rounds % GROUPS);
        if group.first().unwrap_or(&0) != &expected {
            return Err(format!("group {place} should have {expected} rounds").into());
        }
    }
    Ok(rounds)
}

fn append(stream: StreamId, version: usize) -> Append {
    let record = bytes(stream.0 as usize ^ version, RECORD_BYTES);
    Append { stream, expected: Version(version as u64), record, close: None }
}

/// Like an instance id: the time in the upper bits, the rest scattered.
fn stream(time: usize, lane: usize) -> StreamId {
    let scattered = scatter((time as u64) << 20 | lane as u64);
    StreamId(((1_700_000_000_000 + time as u128) << 80) | u128::from(scattered))
}

/// Half of it compresses, half of it does not.
fn bytes(seed: usize, length: usize) -> Vec<u8> {
    let mut state = seed as u64;
    let noise = (0..length).map(|place| {
        state = scatter(state);
        if place % 2 == 0 { b'a' } else { state as u8 }
    });
    noise.collect()
}

fn scatter(seed: u64) -> u64 {
    let mixed = (seed ^ (seed >> 31)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB)
}

/// The CPU time of the process, which does not depend on the load of the machine.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("no name")?.1.split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).map(|ticks| ticks.parse().unwrap_or(0)).sum();
    Ok(ticks as f64 / 100.0)
}

fn memory(field: &str) -> Result<f64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).ok_or("no such field")?;
    let kib = line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB");
    Ok(kib.parse::<f64>()? / 1024.0)
}

fn scratch() -> Result<PathBuf, Box<dyn Error>> {
    let dir = std::env::current_dir()?.join(format!("store-bench-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    Ok(dir)
}
