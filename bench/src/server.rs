//! A real `legwork` process with its own data directory.
//!
//! Invariant: it listens on loopback alone, and however this value goes out of scope the process is
//! gone before its directory is removed.

use std::fs::{self, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use legwork_api::Client;
use tempfile::TempDir;

use crate::place::Place;
use crate::usage::{self, Both, Usage};

const STARTS_MAX: u32 = 3;
const READY_TIME_MAX: Duration = Duration::from_secs(60);
const READY_POLL: Duration = Duration::from_millis(2);
const STOP_TIME_MAX: Duration = Duration::from_secs(60);
const STOP_POLL: Duration = Duration::from_millis(20);
const LOG_LINES_QUOTED: usize = 20;

/// The people of all workloads.
pub const ORGANISATION: &str = include_str!("../processes/organisation.yaml");

pub struct Server {
    process: Option<Child>,
    binary: PathBuf,
    address: SocketAddr,
    directory: TempDir,
    /// Further arguments of `up`.
    args: Vec<String>,
}

impl Server {
    /// Starts a server on an empty store and waits until it is ready.
    pub async fn start(place: &Place) -> Result<Self> {
        Self::start_with(place, &[]).await
    }

    /// The same, with further arguments of `up`.
    pub async fn start_with(place: &Place, args: &[&str]) -> Result<Self> {
        let mut start = 1;
        loop {
            // The free port is chosen before the server binds it: another process may be faster,
            // hence more than one try.
            let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
            let mut server = Self::new(place, address, args)?;
            match server.up(READY_TIME_MAX).await {
                Ok(_) => return Ok(server),
                Err(error) if start == STARTS_MAX => return Err(error),
                Err(error) => eprintln!("start {start} of {STARTS_MAX} failed: {error:#}"),
            }
            start += 1;
        }
    }

    /// A server with this organisation and definition deployed.
    pub async fn with(place: &Place, definition: &str) -> Result<Self> {
        Self::with_args(place, definition, &[]).await
    }

    /// The same, with further arguments of `up`.
    pub async fn with_args(place: &Place, definition: &str, args: &[&str]) -> Result<Self> {
        let server = Self::start_with(place, args).await?;
        let client = server.client()?;
        client.publish_organisation(ORGANISATION).await?;
        client.deploy(definition).await?;
        Ok(server)
    }

    /// A process at a published address; not started yet.
    pub(crate) fn new(place: &Place, address: SocketAddr, args: &[&str]) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("legwork-")
            .tempdir_in(&place.data)
            .with_context(|| format!("cannot create a directory in {}", place.data.display()))?;
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Ok(Self { process: None, binary: place.binary.clone(), address, directory, args })
    }

    /// Starts the process on its data directory; returns the seconds until it was ready.
    pub async fn up(&mut self, patience: Duration) -> Result<f64> {
        self.spawn()?;
        self.until_ready(patience).await
    }

    /// Starts the process without waiting.
    pub fn spawn(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "the server runs already");
        let log = OpenOptions::new().create(true).append(true).open(self.log())?;
        let mut command = Command::new(&self.binary);
        command.args(["up", "--listen", &self.address.to_string()]).args(&self.args);
        // In its directory, unless a database is configured.
        if !self.args.iter().any(|arg| arg == "--store") {
            command.arg("--data").arg(self.data());
        }
        let process = command
            // No setting of the caller may leak in.
            .env_clear()
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        self.process = Some(process);
        Ok(())
    }

    /// Returns the seconds since the call.
    pub async fn until_ready(&mut self, patience: Duration) -> Result<f64> {
        let since = Instant::now();
        let client = self.client()?;
        loop {
            let process = self.process.as_mut().context("the server does not run")?;
            if let Some(status) = process.try_wait()? {
                self.process = None;
                bail!("the server ended with {status}; its last words:\n{}", self.log_tail());
            }
            match client.ready().await {
                Ok(answer) if answer.ready => return Ok(since.elapsed().as_secs_f64()),
                Ok(_) | Err(_) if since.elapsed() < patience => {}
                Ok(_) => bail!("the server is not ready after {patience:?}"),
                Err(error) => bail!(
                    "the server is not ready after {patience:?} ({error}):\n{}",
                    self.log_tail()
                ),
            }
            tokio::time::sleep(READY_POLL).await;
        }
    }

    /// A client with its own connections.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::new(&self.url(), None)?)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The directory of its store.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub fn usage(&self) -> Usage {
        self.process.as_ref().map_or_else(Usage::default, |process| Usage::of(process.id()))
    }

    /// Of the server and of this process.
    pub fn usages(&self) -> Both {
        Both { server: self.usage(), load: Usage::of(std::process::id()) }
    }

    pub fn disk_bytes(&self) -> Result<u64> {
        usage::occupied_bytes(&self.data())
    }

    /// Whether it was started and neither killed nor stopped.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// SIGKILL: without a shutdown.
    pub fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().context("the server does not run")?;
        process.kill()?;
        process.wait()?;
        Ok(())
    }

    /// SIGTERM: it finishes the work in progress.
    pub async fn stop(&mut self) -> Result<()> {
        let process = self.process.as_mut().context("the server does not run")?;
        terminate(process.id())?;
        let since = Instant::now();
        let status = loop {
            if let Some(status) = process.try_wait()? {
                break status;
            }
            ensure!(since.elapsed() < STOP_TIME_MAX, "it did not stop within {STOP_TIME_MAX:?}");
            tokio::time::sleep(STOP_POLL).await;
        };
        self.process = None;
        ensure!(status.success(), "it stopped with {status}; its last words:\n{}", self.log_tail());
        Ok(())
    }

    /// Sends its process a signal, such as STOP.
    pub fn signal(&self, name: &str) -> Result<()> {
        let process = self.process.as_ref().context("the server does not run")?;
        signal(name, process.id())
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    pub fn log_tail(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_QUOTED)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Both fail only if the process is gone already, as intended.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Asks a process to end. The shell's builtin `kill` is on every machine.
pub(crate) fn terminate(pid: u32) -> Result<()> {
    signal("TERM", pid)
}

fn signal(name: &str, pid: u32) -> Result<()> {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status()?;
    ensure!(status.success(), "process {pid} cannot be sent {name}");
    Ok(())
}
