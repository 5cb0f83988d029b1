//! The origin of a figure: machine, commit, date.
//!
//! Invariant: unknown values are shown as such instead of being left out.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use crate::place::repository;

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_gib: Option<f64>,
    pub kernel: String,
}

impl Machine {
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let memory = crate::usage::number_after(&read("/proc/meminfo"), "MemTotal:");
        Self {
            cpu: cpu_model(&read("/proc/cpuinfo")).unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            memory_gib: memory.map(|kib| (kib as f64 / 1024.0 / 1024.0 * 10.0).round() / 10.0),
            kernel: Some(read("/proc/sys/kernel/osrelease").trim().to_owned())
                .filter(|kernel| !kernel.is_empty())
                .unwrap_or_else(unknown),
        }
    }
}

/// The sources that affect figures.
const SOURCES: [&str; 6] =
    ["crates", "bench", ":!bench/results.jsonl", "Cargo.toml", "Cargo.lock", ".cargo"];

/// The measured commit; with a plus unless the sources are known to be unchanged.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(repository()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return unknown() };
    let changed = git(&[&["status", "--porcelain", "--"], &SOURCES[..]].concat());
    let mark = if changed.is_some_and(|changed| changed.is_empty()) { "" } else { "+" };
    format!("{commit}{mark}")
}

/// The current time, to the second.
pub fn date() -> String {
    let now = jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// Flushes the writes of earlier runs, so that they do not affect this one.
pub async fn settle() {
    // Without the program the pause alone must suffice.
    drop(Command::new("sync").status());
    tokio::time::sleep(Duration::from_secs(2)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_model_is_the_first_one_named() {
        let text = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nprocessor\t: 1\nmodel name\t: B\n";
        assert_eq!(cpu_model(text).as_deref(), Some("A CPU @ 2 GHz"));
        assert_eq!(cpu_model(""), None);
    }
}
