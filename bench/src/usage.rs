//! Memory, CPU and disk use of a process, read from outside.
//!
//! Invariant: a figure that the operating system does not give is absent, never zero.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Result;

const MIB: f64 = 1024.0 * 1024.0;
/// The unit of CPU time in `/proc`; the same on every current Linux.
const TICKS_PER_S: f64 = 100.0;
const BLOCK_BYTES: u64 = 512;

#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub rss_mib: Option<f64>,
    /// User and system time of all threads so far.
    pub cpu_seconds: Option<f64>,
    /// Everything the process ever wrote to the disk.
    pub written_bytes: Option<u64>,
}

impl Usage {
    pub fn of(pid: u32) -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        let rss_kib = read("status").and_then(|text| number_after(&text, "VmRSS:"));
        Self {
            rss_mib: rss_kib.map(|kib| kib as f64 * 1024.0 / MIB),
            cpu_seconds: read("stat").and_then(|text| cpu_seconds(&text)),
            written_bytes: read("io").and_then(|text| number_after(&text, "write_bytes:")),
        }
    }
}

/// The server and this process, which makes the load, at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Both {
    pub server: Usage,
    pub load: Usage,
}

/// The load of the last minute, to be read beside every figure.
pub fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// The disk use of the files below a directory. Blocks, not lengths: reserved space is used, too.
pub fn occupied_bytes(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    let mut pending = vec![directory.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // The server removes files during the count.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                pending.push(entry.path());
            } else {
                bytes += metadata.blocks() * BLOCK_BYTES;
            }
        }
    }
    Ok(bytes)
}

pub(crate) fn number_after(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Fields 14 and 15; the name in field 2 may contain anything, so counting begins after it.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11).map(str::parse::<u64>);
    let (user, system) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some((user + system) as f64 / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_read_behind_its_key() {
        assert_eq!(number_after("VmHWM:\t 7 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(number_after("VmHWM:\t 7 kB\n", "VmRSS:"), None);
    }

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 5 0 100";
        assert_eq!(cpu_seconds(stat), Some(3.0));
    }

    #[test]
    fn this_process_uses_memory_and_an_empty_directory_no_disk() {
        assert!(Usage::of(std::process::id()).rss_mib.is_some_and(|mib| mib > 0.0));
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(occupied_bytes(directory.path()).unwrap(), 0);
        fs::write(directory.path().join("file"), [1; 10_000]).unwrap();
        assert!(occupied_bytes(directory.path()).unwrap() >= 10_000);
    }
}
