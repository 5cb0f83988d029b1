//! One row of figures: a JSON object on a line, or a line of a table.
//!
//! Invariant: an unavailable figure is null, so that it is not compared as a zero.

use serde_json::{Value, json};

use crate::load::Measured;

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) struct Row {
    pub(crate) version: String,
    pub(crate) workload: &'static str,
    pub(crate) config: &'static str,
    /// How a waiting case waits; None for the other workloads.
    pub(crate) waiting: Option<&'static str>,
    pub(crate) clients: usize,
    pub(crate) steps_per_case: usize,
    pub(crate) measured: Measured,
    pub(crate) rss_bytes: Option<u64>,
    pub(crate) rss_idle_bytes: Option<u64>,
    pub(crate) disk_bytes_per_case: Option<f64>,
    pub(crate) written_bytes_per_case: Option<f64>,
    /// Cases whose handler has returned, a second; only where that is later than the answer.
    pub(crate) finished_per_s: Option<f64>,
    pub(crate) load_average: Option<f64>,
    pub(crate) best: bool,
}

impl Row {
    pub(crate) fn steps_per_s(&self) -> f64 {
        self.measured.per_second() * self.steps_per_case as f64
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "peer": "restate",
            "version": self.version,
            "workload": self.workload,
            "config": self.config,
            "waiting": self.waiting,
            "clients": self.clients,
            "cases": self.measured.cases(),
            "seconds": rounded(self.measured.seconds, 3),
            "cases_per_s": rounded(self.measured.per_second(), 1),
            "steps_per_s": rounded(self.steps_per_s(), 1),
            "finished_per_s": self.finished_per_s.map(|value| rounded(value, 1)),
            "p50_ms": rounded(self.measured.percentile_ms(50), 3),
            "p99_ms": rounded(self.measured.percentile_ms(99), 3),
            "rss_mib": mib(self.rss_bytes),
            "rss_idle_mib": mib(self.rss_idle_bytes),
            "disk_bytes_per_case": self.disk_bytes_per_case.map(f64::round),
            "written_bytes_per_case": self.written_bytes_per_case.map(f64::round),
            "load_average": self.load_average,
            "best": self.best,
        })
    }

    pub(crate) fn table_line(&self) -> String {
        let config = match self.waiting {
            Some(waiting) => format!("{} {waiting}", self.config),
            None => self.config.to_owned(),
        };
        format!(
            "{:<9} {:<22} {:>7} {:>10.0} {:>10.0} {:>9.2} {:>9.2} {:>8} {}",
            self.workload,
            config,
            self.clients,
            self.measured.per_second(),
            self.steps_per_s(),
            self.measured.percentile_ms(50),
            self.measured.percentile_ms(99),
            mib(self.rss_bytes).map_or_else(|| "-".to_owned(), |value| format!("{value:.0}")),
            if self.best { "best" } else { "" },
        )
    }
}

pub(crate) fn table_head() -> String {
    format!(
        "{:<9} {:<22} {:>7} {:>10} {:>10} {:>9} {:>9} {:>8}",
        "workload", "config", "clients", "cases/s", "steps/s", "p50 ms", "p99 ms", "RSS MiB"
    )
}

/// Marks the row with the most steps a second, the first of equals.
pub(crate) fn mark_best(rows: &mut [Row]) {
    let best = rows.iter().map(Row::steps_per_s).fold(f64::MIN, f64::max);
    if let Some(row) = rows.iter_mut().find(|row| row.steps_per_s() >= best) {
        row.best = true;
    }
}

fn mib(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| rounded(bytes as f64 / MIB, 1))
}

fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_row_is_the_one_with_most_steps() {
        let mut rows = [row("default", 20), row("partitions4", 30)];
        mark_best(&mut rows);
        assert_eq!(rows.each_ref().map(|row| row.best), [false, true]);
    }

    #[test]
    fn row_tells_what_it_could_not_measure_as_null() {
        let json = row("default", 20).json();
        assert_eq!(json["cases_per_s"], 10.0);
        assert_eq!(json["steps_per_s"], 100.0);
        assert_eq!(json["rss_mib"], 1.5);
        assert!(json["disk_bytes_per_case"].is_null(), "{json}");
    }

    fn row(config: &'static str, cases: u32) -> Row {
        let latencies = (0..cases).map(|_| std::time::Duration::from_millis(3)).collect();
        Row {
            version: "1.7.0".to_owned(),
            workload: "sequence",
            config,
            waiting: None,
            clients: 1,
            steps_per_case: 10,
            measured: Measured::new(2.0, latencies, 25).unwrap(),
            rss_bytes: Some(3 * 512 * 1024),
            rss_idle_bytes: None,
            disk_bytes_per_case: None,
            written_bytes_per_case: None,
            finished_per_s: None,
            load_average: None,
            best: false,
        }
    }
}
