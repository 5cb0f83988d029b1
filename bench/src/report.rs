//! A figure as a line: JSON for programs and `bench/results.jsonl`, a table for people.
//!
//! Invariant: a row has all measured values and no others; a goal is met or missed by the figures in
//! the same row.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::load::Measured;
use crate::machine::{self, Machine};
use crate::peer::PeerRow;
use crate::usage::{Both, Usage};

/// One line of results.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    pub workload: &'static str,
    /// The policy and the number of executors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executors: Option<usize>,
    /// The limit of an executor per server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Logical servers in one process, or servers that share executors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<usize>,
    /// Cases within the measured time.
    pub cases: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cases_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrations_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    /// The mean number of jobs in a batch of the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs_per_batch: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_s: Option<f64>,
    /// The longest request during the change of the weights, and before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_before_ms: Option<f64>,
    /// Cases that keep their server despite new weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excepted: Option<u64>,
    /// On all links, for one change of the weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_moved: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_per_step: Option<f64>,
    /// The lookup of an instance's server and address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_lookup: Option<f64>,
    /// Choices of the executor of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decisions_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_decision: Option<f64>,
    /// The kind of requests, the number of reservations, the rate, and the promised part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promised_pct: Option<f64>,
    /// Through executors, and the limit of plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_tasks_per_s: Option<f64>,
    /// The time until all work was done, and the bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub makespan_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_s: Option<f64>,
    /// Failed attempts in the histories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<usize>,
    /// Results with positive and with negative verdicts, by the executors' ledgers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acked: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nacked: Option<usize>,
    /// Completed steps that no executor has, or more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubled: Option<usize>,
    /// Of the answers: an optimisation must not change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_mib: Option<f64>,
    /// CPU time of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_step: Option<f64>,
    /// CPU time of the clients and the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_cpu_us_per_step: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes_per_case: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes_per_case_before_compaction: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_bytes_per_case: Option<f64>,
    #[serde(flatten)]
    pub peer: Option<PeerRow>,
    /// Legwork's steps/s divided by the peer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
    /// Of the machine, in the minute before.
    pub load_average: Option<f64>,
}

impl Row {
    /// The figures of a load: `steps` steps a call.
    pub fn loaded(
        workload: &'static str,
        clients: usize,
        steps: usize,
        measured: &Measured,
    ) -> Self {
        Self {
            workload,
            clients: Some(clients),
            cases: measured.calls(),
            seconds: Some(rounded(measured.seconds, 3)),
            cases_per_s: Some(rounded(measured.per_second(), 1)),
            steps_per_s: Some(rounded(measured.per_second() * steps as f64, 1)),
            p50_ms: Some(rounded(measured.percentile_ms(50), 3)),
            p99_ms: Some(rounded(measured.percentile_ms(99), 3)),
            ..Self::default()
        }
    }

    /// The resources used by the server and this process between two moments, for so many steps.
    pub fn used(mut self, before: Both, after: Both, steps: usize) -> Self {
        self.rss_mib = after.server.rss_mib.map(|mib| rounded(mib, 1));
        let spent = |before: Usage, after: Usage| {
            let seconds = after.cpu_seconds? - before.cpu_seconds?;
            Some(rounded(seconds * 1e6 / steps as f64, 1))
        };
        self.cpu_us_per_step = spent(before.server, after.server);
        self.load_cpu_us_per_step = spent(before.load, after.load);
        self
    }

    /// Adds the peer's figures of the same run.
    pub fn beside(mut self, peer: Option<PeerRow>) -> Self {
        let rates = self.steps_per_s.zip(peer.as_ref().map(|peer| peer.peer_steps_per_s));
        self.ratio = rates.map(|(ours, theirs)| rounded(ours / theirs.max(0.1), 2));
        self.peer = peer;
        self
    }

    /// At least this many times the peer's steps/s, with a lower p99 if `lower_p99`.
    pub fn goal_beside_peer(mut self, goal: &'static str, times: f64, lower_p99: bool) -> Self {
        self.goal = Some(goal);
        let p99s = self.p99_ms.zip(self.peer.as_ref().map(|peer| peer.peer_p99_ms));
        let lower = !lower_p99 || p99s.is_some_and(|(ours, theirs)| ours < theirs);
        self.met = self.ratio.map(|ratio| ratio >= times && lower);
        self
    }

    /// A goal of its own.
    pub fn goal(mut self, goal: &'static str, met: Option<bool>) -> Self {
        (self.goal, self.met) = (Some(goal), met);
        self
    }

    fn verdict(&self) -> &'static str {
        match (self.goal, self.met) {
            (Some(_), Some(true)) => "met",
            (Some(_), Some(false)) => "MISSED",
            (Some(_), None) => "not measured",
            (None, _) => "",
        }
    }
}

/// The output of rows.
pub struct Report {
    json: bool,
    /// The file to append to, if figures are recorded.
    record: Option<std::path::PathBuf>,
    /// Added to every recorded or printed row.
    origin: Origin,
    headed: bool,
}

#[derive(Clone, Serialize)]
struct Origin {
    commit: String,
    date: String,
    machine: Machine,
    /// The note of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    row: &'a Row,
    #[serde(flatten)]
    origin: &'a Origin,
}

impl Report {
    pub fn new(json: bool, record: Option<&Path>, note: Option<String>) -> Self {
        let origin = Origin {
            commit: machine::commit(),
            date: machine::date(),
            machine: Machine::here(),
            note,
        };
        Self { json, record: record.map(Path::to_path_buf), origin, headed: false }
    }

    pub fn add(&mut self, row: &Row) -> Result<()> {
        self.origin.date = machine::date();
        let line = serde_json::to_string(&Line { row, origin: &self.origin })?;
        if let Some(path) = &self.record {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let mut file = file.with_context(|| format!("cannot open {}", path.display()))?;
            writeln!(file, "{line}")?;
        }
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{line}")?;
        } else {
            if !std::mem::replace(&mut self.headed, true) {
                let Machine { cpu, cores, kernel, .. } = &self.origin.machine;
                writeln!(out, "{cpu}, {cores} cores, Linux {kernel}, {}", self.origin.commit)?;
                writeln!(out, "{}", table_head())?;
            }
            writeln!(out, "{}", table_line(row))?;
        }
        out.flush()?;
        Ok(())
    }
}

const WIDTHS: [usize; 9] = [16, 7, 9, 9, 9, 10, 9, 6, 5];
const HEADS: [&str; 9] = [
    "workload",
    "clients",
    "steps/s",
    "p50 ms",
    "p99 ms",
    "peer st/s",
    "peer p99",
    "ratio",
    "load",
];

fn table_head() -> String {
    aligned(&HEADS.map(str::to_owned)) + "  figure, goal and verdict"
}

fn table_line(row: &Row) -> String {
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let peer = row.peer.as_ref();
    let cells = [
        row.workload.to_owned(),
        row.clients.map_or_else(|| "-".to_owned(), |clients| clients.to_string()),
        number(row.steps_per_s, 0),
        number(row.p50_ms, 2),
        number(row.p99_ms, 2),
        number(peer.map(|peer| peer.peer_steps_per_s), 0),
        number(peer.map(|peer| peer.peer_p99_ms), 1),
        number(row.ratio, 2),
        number(row.load_average, 1),
    ];
    let figures = figures(row);
    let verdict = match row.goal {
        Some(goal) => format!("{goal}: {}", row.verdict()),
        None => String::new(),
    };
    let rest = [figures, verdict].into_iter().filter(|text| !text.is_empty());
    let line = format!("{}  {}", aligned(&cells), rest.collect::<Vec<_>>().join("; "));
    line.trim_end().to_owned()
}

/// Figures without a column.
fn figures(row: &Row) -> String {
    let parts = [
        row.migrations_per_s.map(|value| format!("{value:.0} migrations/s")),
        row.ns_per_lookup.map(|value| format!("{value:.1} ns")),
        row.policy.zip(row.executors).map(|(policy, count)| format!("{policy} of {count}")),
        row.limit.zip(row.servers).map(|(limit, count)| format!("limit {limit}, {count} servers")),
        row.ns_per_decision.map(|value| format!("{value:.1} ns")),
        row.kind.zip(row.reservations).map(|(kind, count)| format!("{kind} with {count}")),
        row.per_second.map(|value| format!("{value:.0}/s")),
        row.promised_pct.map(|value| format!("{value:.0} % promised")),
        row.tasks_per_s
            .zip(row.limit_tasks_per_s)
            .map(|(tasks, limit)| format!("{tasks:.0} tasks/s, of {limit:.0} by HTTP alone")),
        row.makespan_s.zip(row.bound_s).map(|(took, bound)| {
            format!("{took:.1} s, {:.2} times the bound", took / bound.max(0.001))
        }),
        row.failures.map(|count| format!("{count} failed attempts")),
        row.acked.zip(row.nacked).map(|(yes, no)| format!("{yes} ACK, {no} NACK")),
        row.lost.zip(row.doubled).map(|(lost, doubled)| format!("{lost} lost, {doubled} doubled")),
        row.ready_s.map(|value| format!("ready after {value:.2} s")),
        row.instructions_per_step.map(|value| format!("{value:.0} instructions/step")),
        row.disk_bytes_per_case.map(|value| format!("{value:.0} B/case on disk")),
        row.rss_mib.map(|value| format!("{value:.0} MiB RSS")),
        row.cpu_us_per_step.map(|value| format!("{value:.1} µs CPU/step")),
        row.load_cpu_us_per_step.map(|value| format!("load {value:.1} µs")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn aligned(cells: &[String; 9]) -> String {
    let mut line = format!("{:<width$}", cells[0], width = WIDTHS[0]);
    for (cell, width) in cells.iter().zip(WIDTHS).skip(1) {
        line += &format!(" {cell:>width$}");
    }
    line
}

pub(crate) fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: f64, our_p99: f64) -> Row {
        let row = Row { workload: "sequence", clients: Some(128), ..Row::default() };
        let peer = PeerRow {
            peer: "restate".to_owned(),
            peer_version: "1.7.0".to_owned(),
            peer_config: "default".to_owned(),
            peer_steps_per_s: 100.0,
            peer_p99_ms: 50.0,
            ..PeerRow::default()
        };
        Row { steps_per_s: Some(ours), p50_ms: Some(1.0), p99_ms: Some(our_p99), ..row }
            .beside(Some(peer))
    }

    #[test]
    fn goal_needs_both_the_throughput_and_the_lower_p99() {
        let met = |ours, p99| row(ours, p99).goal_beside_peer("goal", 5.0, true).met;
        assert_eq!(met(500.0, 49.0), Some(true));
        assert_eq!(met(499.0, 49.0), Some(false));
        assert_eq!(met(500.0, 50.0), Some(false));
        assert_eq!(row(500.0, 50.0).goal_beside_peer("goal", 5.0, false).met, Some(true));
    }

    #[test]
    fn goal_without_a_peer_is_neither_met_nor_missed() {
        let row = Row { steps_per_s: Some(1.0), ..Row::default() };
        assert_eq!(row.beside(None).goal_beside_peer("goal", 5.0, true).verdict(), "not measured");
    }

    #[test]
    fn line_has_the_promised_fields() {
        let line = serde_json::to_value(row(500.0, 49.0)).unwrap();
        for field in [
            "workload",
            "clients",
            "steps_per_s",
            "p50_ms",
            "p99_ms",
            "peer",
            "peer_steps_per_s",
            "peer_p99_ms",
            "ratio",
        ] {
            assert!(!line[field].is_null(), "{field} in {line}");
        }
        assert_eq!(line["ratio"], 5.0);
    }

    #[test]
    fn table_is_aligned() {
        let head = table_head();
        let line = table_line(&row(500.0, 49.0).goal_beside_peer("5 times", 5.0, true));
        assert_eq!(
            line,
            "sequence             128       500      1.00     49.00        100      50.0   5.00     -  5 times: met"
        );
        assert_eq!(head.find("figure"), line.find("5 times"));
    }
}
