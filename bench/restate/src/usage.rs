//! Memory and disk use of the peer's process, read from outside.
//!
//! Invariant: a figure the operating system does not tell is absent, never zero.

use std::fs;
use std::path::Path;

use anyhow::Result;

#[derive(Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) rss_bytes: Option<u64>,
    /// Everything the process ever wrote to the disk.
    pub(crate) written_bytes: Option<u64>,
    /// The current size of the files in its directory.
    pub(crate) disk_bytes: u64,
}

impl Usage {
    pub(crate) fn of(pid: u32, directory: &Path) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok();
        let io = fs::read_to_string(format!("/proc/{pid}/io")).ok();
        Ok(Self {
            rss_bytes: status.and_then(|text| number_after(&text, "VmRSS:")).map(|kib| kib * 1024),
            written_bytes: io.and_then(|text| number_after(&text, "write_bytes:")),
            disk_bytes: length_of_files(directory)?,
        })
    }
}

/// The load of the last minute, to be read beside every figure.
pub(crate) fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

fn number_after(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Lengths, not blocks: the peer reserves some 200 MiB of blocks before the first case.
fn length_of_files(directory: &Path) -> Result<u64> {
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
                bytes += metadata.len();
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_read_behind_its_key() {
        assert_eq!(number_after("VmHWM:\t 7 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(number_after("VmHWM:\t 7 kB\n", "VmRSS:"), None);
    }
}
