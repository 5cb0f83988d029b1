//! The peer's server as a child process with its data in a temporary directory.
//!
//! Invariant: it listens on loopback alone, and however this value goes out of scope the process is
//! gone before its directory is removed.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::Client;
use crate::usage::Usage;

const STARTS_MAX: u32 = 3;
const READY_TIME_MAX: Duration = Duration::from_secs(60);
const READY_POLL: Duration = Duration::from_millis(50);
const LOG_LINES_QUOTED: usize = 20;

/// The differences between the compared configurations.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    /// None leaves the peer's own default.
    pub(crate) partitions: Option<u16>,
    /// None leaves the peer's own default, which is per partition.
    pub(crate) concurrent_invocations: Option<usize>,
}

pub(crate) struct Server {
    child: Child,
    pub(crate) ingress: SocketAddr,
    pub(crate) admin: SocketAddr,
    directory: TempDir,
}

impl Server {
    /// Starts a server and waits until it answers.
    pub(crate) async fn start(binary: &Path, parent: &Path, setup: Setup) -> Result<Self> {
        let mut start = 1;
        loop {
            // The free ports are chosen before the server binds them: another process may be
            // faster, hence more than one try.
            let mut server = Self::spawn(binary, parent, setup)?;
            match server.ready().await {
                Ok(()) => return Ok(server),
                Err(error) if start == STARTS_MAX => return Err(error),
                Err(error) => eprintln!("start {start} of {STARTS_MAX} failed: {error:#}"),
            }
            start += 1;
        }
    }

    /// Makes the service behind `endpoint` known to the server.
    pub(crate) async fn register(&self, endpoint: SocketAddr) -> Result<()> {
        let body = json!({ "uri": format!("http://{endpoint}"), "force": true });
        let mut admin = Client::connect(self.admin).await?;
        admin.post("/deployments", Bytes::from(body.to_string())).await?;
        Ok(())
    }

    /// The number in the first row and column of an introspection query.
    pub(crate) async fn count(&self, query: &str) -> Result<u64> {
        let mut admin = Client::connect(self.admin).await?;
        let body = Bytes::from(json!({ "query": query }).to_string());
        let answer: Value = serde_json::from_slice(&admin.post("/query", body).await?)?;
        let row = answer["rows"][0].as_object();
        let number = row.and_then(|row| row.values().next()).and_then(Value::as_u64);
        number.with_context(|| format!("{query} answered {answer}"))
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        Usage::of(self.child.id(), &self.directory.path().join("data"))
    }

    fn spawn(binary: &Path, parent: &Path, setup: Setup) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("legwork-bench-restate-")
            .tempdir_in(parent)
            .with_context(|| format!("cannot create a directory in {}", parent.display()))?;
        let [node, ingress, admin] = free_ports()?;
        let config = directory.path().join("restate.toml");
        fs::write(&config, configuration(directory.path(), [node, ingress, admin], setup))?;
        let log = File::create(directory.path().join("log"))?;
        let child = Command::new(binary)
            .arg("--no-logo")
            .arg("--config-file")
            .arg(&config)
            // No proxy and no RESTATE_ setting of the caller may leak in.
            .env_clear()
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        Ok(Self { child, ingress, admin, directory })
    }

    async fn ready(&mut self) -> Result<()> {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status}; its last words:\n{}", self.log_tail());
            }
            match self.healthy().await {
                Ok(()) => return Ok(()),
                Err(error) => ensure!(
                    since.elapsed() < READY_TIME_MAX,
                    "the server is not ready after {READY_TIME_MAX:?} ({error:#}):\n{}",
                    self.log_tail()
                ),
            }
            tokio::time::sleep(READY_POLL).await;
        }
    }

    async fn healthy(&self) -> Result<()> {
        Client::connect(self.admin).await?.get("/health").await?;
        Client::connect(self.ingress).await?.get("/restate/health").await?;
        Ok(())
    }

    fn log_tail(&self) -> String {
        let log = fs::read(self.directory.path().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_QUOTED)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process is gone already, as intended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All are held until all are chosen, so that they differ.
fn free_ports() -> Result<[SocketAddr; 3]> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let held = [bind()?, bind()?, bind()?];
    Ok([held[0].local_addr()?, held[1].local_addr()?, held[2].local_addr()?])
}

/// Everything else stays at the server's default, fsync of its log included.
fn configuration(directory: &Path, addresses: [SocketAddr; 3], setup: Setup) -> String {
    let [node, ingress, admin] = addresses;
    let data = directory.join("data");
    let partitions = setup
        .partitions
        .map_or_else(String::new, |number| format!("default-num-partitions = {number}\n"));
    let invocations = setup.concurrent_invocations.map_or_else(String::new, |number| {
        format!("[worker.invoker]\nconcurrent-invocations-limit = {number}\n")
    });
    format!(
        r#"base-dir = {data:?}
node-name = "bench"
listen-mode = "tcp"
bind-address = "{node}"
advertised-address = "http://{node}/"
disable-telemetry = true
log-filter = "warn"
log-disable-ansi-codes = true
{partitions}
[ingress]
bind-address = "{ingress}"
[admin]
bind-address = "{admin}"
disable-web-ui = true
{invocations}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_configuration_names_neither_partitions_nor_limits() {
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let setup = Setup { partitions: None, concurrent_invocations: None };
        let text = configuration(Path::new("/d"), [address; 3], setup);
        assert!(!text.contains("num-partitions") && !text.contains("limit"), "{text}");
        assert!(!text.contains("0.0.0.0"), "{text}");
    }

    #[test]
    fn chosen_ports_are_distinct_and_on_loopback() {
        let [a, b, c] = free_ports().unwrap();
        assert!(a != b && b != c && a != c);
        assert!([a, b, c].iter().all(|address| address.ip().is_loopback()));
    }
}
