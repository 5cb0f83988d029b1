//! Resource use of the process, by the standard names of Prometheus.
//!
//! Invariant: read from `/proc` for each request. Only the start time is kept. Without `/proc` nothing is shown.

use std::fmt::Write;
use std::fs;
use std::sync::OnceLock;

/// The unit of times in `/proc`: fixed by the kernel's ABI.
const TICKS_PER_SECOND: f64 = 100.0;

/// Computed once: the kernel derives the time of boot from the clock, so it changes when the clock is set
/// or slewed, and the process would seem to have been restarted.
static STARTED: OnceLock<Option<f64>> = OnceLock::new();

/// The texts in `/proc`.
#[derive(Debug, Default)]
struct Seen {
    /// Of the process: `stat`, `status`, `limits`, and the number of open files.
    stat: String,
    status: String,
    limits: String,
    open: Option<usize>,
    /// Of the machine.
    machine: String,
}

impl Seen {
    /// A time in `stat`, by field number.
    fn seconds(&self, field: usize) -> Option<f64> {
        // `pid (name) state ...`, and the name may contain anything. The state is the third field.
        let (_, fields) = self.stat.rsplit_once(") ")?;
        let ticks = fields.split(' ').nth(field - 3)?.parse::<f64>().ok()?;
        Some(ticks / TICKS_PER_SECOND)
    }

    /// The start time of the process, in seconds since 1970.
    fn started(&self) -> Option<f64> {
        Some(value(&self.machine, "btime ")? + self.seconds(22)?)
    }
}

/// In the text format of Prometheus.
pub(crate) fn figures() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    // One of them is the folder being read.
    let open = fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1));
    let seen = Seen {
        stat: read("/proc/self/stat"),
        status: read("/proc/self/status"),
        limits: read("/proc/self/limits"),
        open,
        machine: read("/proc/stat"),
    };
    shown(&seen, &STARTED)
}

fn shown(seen: &Seen, started: &OnceLock<Option<f64>>) -> String {
    let cpu = seen.seconds(14).zip(seen.seconds(15)).map(|(user, system)| user + system);
    let started = *started.get_or_init(|| seen.started());
    let kilobytes = |name| value(&seen.status, name).map(|size| size * 1024.0);
    let mut text = String::new();
    for (name, kind, about, value) in [
        ("cpu_seconds_total", "counter", "Processor time, of programs and of the system.", cpu),
        ("resident_memory_bytes", "gauge", "Memory that is held.", kilobytes("VmRSS:")),
        ("virtual_memory_bytes", "gauge", "Address space that is held.", kilobytes("VmSize:")),
        ("open_fds", "gauge", "Files and connections that are open.", seen.open.map(|n| n as f64)),
        ("max_fds", "gauge", "How many may be.", value(&seen.limits, "Max open files")),
        ("threads", "gauge", "Threads.", value(&seen.status, "Threads:")),
        ("start_time_seconds", "gauge", "When it was started, since 1970.", started),
    ] {
        if let Some(value) = value {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "# HELP process_{name} {about}\n# TYPE process_{name} {kind}\nprocess_{name} {value}\n"
            );
        }
    }
    text
}

/// The first number after a name at the beginning of a line.
fn value(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_is_shown_by_the_names_that_prometheus_has() {
        let mut seen = Seen {
            stat: "7 (leg) work) S 1 7 7 0 -1 4194560 99 0 0 0 250 150 0 0 20 0 9 0 4200 1 2"
                .to_owned(),
            status: "Name:\tlegwork\nVmSize:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t9\n".to_owned(),
            limits: "Limit     Soft Limit  Hard Limit  Units\nMax open files     1024     4096     files\n"
                .to_owned(),
            open: Some(12),
            machine: "cpu 1 2 3\nbtime 1700000000\n".to_owned(),
        };
        let started = OnceLock::new();
        let text = shown(&seen, &started);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("process_")).collect();
        let expected = [
            "process_cpu_seconds_total 4",
            "process_resident_memory_bytes 1048576",
            "process_virtual_memory_bytes 2097152",
            "process_open_fds 12",
            "process_max_fds 1024",
            "process_threads 9",
            "process_start_time_seconds 1700000042",
        ];
        assert_eq!(lines, expected);
        seen.machine = seen.machine.replace("1700000000", "1700000003");
        assert_eq!(shown(&seen, &started), text, "the clock was slewed");
        assert_eq!(shown(&Seen::default(), &OnceLock::new()), "", "elsewhere");
    }
}
