//! The peers in the same run: builds `bench/restate` or `bench/dbos`, runs it, takes its best row.
//!
//! Invariant: the peer program is terminated, not killed: only then it stops its own server.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::place::{Place, cargo};
use crate::server::terminate;

const MANIFEST: &str = "bench/restate/Cargo.toml";
const PROGRAM: &str = "legwork-bench-restate";
const DATABASE_MANIFEST: &str = "bench/dbos/Cargo.toml";
const DATABASE_PROGRAM: &str = "legwork-bench-dbos";
/// Four rows of `waiting` on a loaded machine take minutes.
const RUN_TIME_MAX: Duration = Duration::from_secs(1_800);
const END_TIME_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// The peer, built and ready to be measured.
pub struct Peer {
    program: PathBuf,
    cache: PathBuf,
    data: PathBuf,
}

/// The peer's part of a row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PeerRow {
    pub peer: String,
    pub peer_version: String,
    pub peer_config: String,
    pub peer_steps_per_s: f64,
    pub peer_p50_ms: f64,
    pub peer_p99_ms: f64,
    pub peer_rss_mib: Option<f64>,
    pub peer_disk_bytes_per_case: Option<f64>,
    pub peer_load_average: Option<f64>,
}

/// The parameters of a run.
pub struct Wanted<'a> {
    pub workload: &'a str,
    pub clients: usize,
    pub seconds: u64,
    pub warm_up: u64,
    /// Only for `waiting`.
    pub cases: Option<usize>,
}

impl Peer {
    /// Builds it in a target folder of its own, as its dependencies differ.
    pub fn build(place: &Place, cache: Option<PathBuf>) -> Result<Self> {
        let target = place.target.join("restate");
        eprintln!("building the peer; the first time this takes minutes");
        cargo(&["build", "--release", "--manifest-path", MANIFEST], &target)
            .context("the peer cannot be built; leave it out with --no-peer")?;
        let program = target.join("release").join(PROGRAM);
        let cache = cache.unwrap_or_else(|| target.join("server"));
        Ok(Self { program, cache, data: place.data.clone() })
    }

    /// Runs it in both its configurations; returns the better row.
    pub async fn run(&self, wanted: &Wanted<'_>) -> Result<PeerRow> {
        let directory = tempfile::tempdir()?;
        let rows = directory.path().join("rows");
        let mut command = Command::new(&self.program);
        command
            .args(["--workload", wanted.workload, "--config", "both", "--json"])
            .args(["--clients", &wanted.clients.to_string()])
            .args(["--seconds", &wanted.seconds.to_string()])
            .args(["--warm-up", &wanted.warm_up.to_string()])
            .arg("--cache")
            .arg(&self.cache)
            .arg("--data")
            .arg(&self.data)
            .stdin(Stdio::null())
            .stdout(File::create(&rows)?);
        if let Some(cases) = wanted.cases {
            command.args(["--cases", &cases.to_string()]);
        }
        let program = self.program.display();
        let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        Running(child).finished().await?;
        best(&rows)
    }
}

/// The peer on a PostgreSQL, built and ready to be measured.
pub struct DatabasePeer {
    program: PathBuf,
}

impl DatabasePeer {
    pub fn build(place: &Place) -> Result<Self> {
        let target = place.target.join("dbos");
        eprintln!("building the peer; the first time this takes minutes");
        cargo(&["build", "--release", "--manifest-path", DATABASE_MANIFEST], &target)
            .context("the peer cannot be built; leave it out with --no-peer")?;
        Ok(Self { program: target.join("release").join(DATABASE_PROGRAM) })
    }

    /// Runs it in all its configurations on an empty database; returns the best row.
    pub async fn run(&self, database: &str, wanted: &Wanted<'_>) -> Result<PeerRow> {
        let directory = tempfile::tempdir()?;
        let rows = directory.path().join("rows");
        let child = Command::new(&self.program)
            .args(["--database", database, "--json"])
            .args(["--clients", &wanted.clients.to_string()])
            .args(["--seconds", &wanted.seconds.to_string()])
            .args(["--warm-up", &wanted.warm_up.to_string()])
            .stdin(Stdio::null())
            .stdout(File::create(&rows)?)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        Running(child).finished().await?;
        best(&rows)
    }
}

struct Running(Child);

impl Running {
    async fn finished(mut self) -> Result<()> {
        let since = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait()? {
                ensure!(
                    status.success(),
                    "the peer ended with {status}; leave it out by --no-peer"
                );
                return Ok(());
            }
            ensure!(since.elapsed() < RUN_TIME_MAX, "the peer has run for {RUN_TIME_MAX:?}");
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) || terminate(self.0.id()).is_err() {
            return;
        }
        let since = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && since.elapsed() < END_TIME_MAX {
            std::thread::sleep(POLL);
        }
    }
}

fn best(rows: &Path) -> Result<PeerRow> {
    let text = std::fs::read_to_string(rows)?;
    let rows = text.lines().map(serde_json::from_str::<Printed>).collect::<Result<Vec<_>, _>>()?;
    let best = rows.into_iter().find(|row| row.best);
    best.map(PeerRow::from).context("the peer marked no row as its best")
}

/// A row as the peer prints it.
#[derive(Deserialize)]
struct Printed {
    peer: String,
    version: String,
    config: String,
    waiting: Option<String>,
    steps_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    rss_mib: Option<f64>,
    disk_bytes_per_case: Option<f64>,
    load_average: Option<f64>,
    best: bool,
}

impl From<Printed> for PeerRow {
    fn from(row: Printed) -> Self {
        Self {
            peer: row.peer,
            peer_version: row.version,
            peer_config: match row.waiting {
                Some(waiting) => format!("{}, {waiting}", row.config),
                None => row.config,
            },
            peer_steps_per_s: row.steps_per_s,
            peer_p50_ms: row.p50_ms,
            peer_p99_ms: row.p99_ms,
            peer_rss_mib: row.rss_mib,
            peer_disk_bytes_per_case: row.disk_bytes_per_case,
            peer_load_average: row.load_average,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"
{"peer":"restate","version":"1.7.12","workload":"waiting","config":"default","waiting":"suspended","clients":64,"cases":10,"seconds":1.0,"cases_per_s":868.6,"steps_per_s":868.6,"finished_per_s":868.1,"p50_ms":61.8,"p99_ms":207.4,"rss_mib":334.5,"rss_idle_mib":146.8,"disk_bytes_per_case":346.0,"written_bytes_per_case":1355.0,"load_average":16.53,"best":false}
{"peer":"restate","version":"1.7.12","workload":"waiting","config":"partitions4","waiting":"attached","clients":64,"cases":10,"seconds":1.0,"cases_per_s":1327.7,"steps_per_s":1327.7,"finished_per_s":1325.6,"p50_ms":39.1,"p99_ms":137.1,"rss_mib":null,"rss_idle_mib":150.0,"disk_bytes_per_case":220.0,"written_bytes_per_case":816.0,"load_average":21.53,"best":true}
"#;

    #[test]
    fn best_row_is_the_one_marked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), ROWS.trim()).unwrap();
        let row = best(file.path()).unwrap();
        assert_eq!(row.peer_config, "partitions4, attached");
        assert_eq!((row.peer_steps_per_s, row.peer_rss_mib), (1327.7, None));
    }
}
