//! A server process on a free port and in a temporary folder.
//!
//! Invariant: a value of this type answers: it is returned only once its server is ready.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use legwork_api::Client;
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::command::{self, Outcome};

/// The longest anything may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// A folder for stores, files and logs; removed on drop.
pub struct Folder {
    dir: TempDir,
}

pub struct Server {
    child: Child,
    url: String,
    token: Option<String>,
    folder: PathBuf,
    log: PathBuf,
    /// Its namespace, if it has a separate network.
    namespace: Option<String>,
}

impl Folder {
    pub fn new() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("legwork-e2e-").tempdir()?;
        Ok(Self { dir })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file and returns its path as text.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> Result<String> {
        let path = self.path().join(name);
        std::fs::write(&path, content)?;
        Ok(path.display().to_string())
    }

    /// A server on the store `name` of this folder, with further arguments.
    pub async fn server(&self, name: &str, args: &[&str]) -> Result<Server> {
        self.server_with(name, args, None).await
    }

    /// The same, called with a token.
    pub async fn server_with(
        &self,
        name: &str,
        args: &[&str],
        token: Option<&str>,
    ) -> Result<Server> {
        Server::start(self.path(), &self.path().join(name), args, token).await
    }

    /// A server in a separate network: its API can only be reached by commands in that network.
    pub async fn server_in(&self, namespace: &str, name: &str, args: &[&str]) -> Result<Server> {
        let data = self.path().join(name);
        Server::start_in(Some(namespace), self.path(), &data, args, None).await
    }

    /// A server that must not start; returns its error.
    pub fn server_refused(&self, name: &str) -> Result<String> {
        let data = self.path().join(name);
        let data = data.to_string_lossy();
        let args = ["up", "--data", &data, "--listen", "127.0.0.1:0"];
        let mut child = command::prepared()?
            .args(args)
            .current_dir(self.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let Ok(status) = ended(&mut child, PATIENCE) else {
            child.kill()?;
            child.wait()?;
            bail!("a server started on {name}, which it should have refused");
        };
        let mut said = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            std::io::Read::read_to_string(&mut stderr, &mut said)?;
        }
        Outcome { code: status.code(), stdout: String::new(), stderr: said }.refused()
    }
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub async fn start(
        folder: &Path,
        data: &Path,
        args: &[&str],
        token: Option<&str>,
    ) -> Result<Self> {
        Self::start_in(None, folder, data, args, token).await
    }

    async fn start_in(
        namespace: Option<&str>,
        folder: &Path,
        data: &Path,
        args: &[&str],
        token: Option<&str>,
    ) -> Result<Self> {
        let name = data.file_name().context("a store needs a name")?.to_string_lossy();
        let log = folder.join(format!("{name}.log"));
        let to_log = File::options().create(true).append(true).open(&log)?;
        let mut command: Command = command::prepared_in(namespace)?;
        command.args(["--json", "up"]).args(args);
        // In the folder, unless a database is configured.
        if !args.contains(&"--store") {
            command.arg("--data").arg(data);
        }
        // Variables, so that an argument can override them.
        command.env("LEGWORK_LISTEN", "127.0.0.1:0").env("LEGWORK_LOG", "info");
        command.current_dir(folder);
        let mut child = command.stdout(Stdio::piped()).stderr(to_log).spawn()?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut server = Self {
            child,
            url: String::new(),
            token: token.map(str::to_owned),
            folder: folder.to_owned(),
            log,
            namespace: namespace.map(str::to_owned),
        };
        // Blocks until the line is there, or the process is gone.
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let banner: Json = serde_json::from_str(&line)
            .with_context(|| format!("the server did not start: {}", server.log()))?;
        server.url = banner["url"].as_str().context("the banner has no url")?.to_owned();
        // After the banner it must be ready.
        if namespace.is_none() {
            let ready = server.client()?.ready().await;
            ready.with_context(|| format!("it is up and not ready: {}", server.log()))?;
        }
        Ok(server)
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// `127.0.0.1:PORT`
    pub fn authority(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn client(&self) -> Result<Client> {
        Ok(Client::new(&self.url, self.token.as_deref())?)
    }

    pub fn client_with(&self, token: &str) -> Result<Client> {
        Ok(Client::new(&self.url, Some(token))?)
    }

    /// Runs a command against this server.
    pub fn run(&self, args: &[&str]) -> Result<Outcome> {
        let mut all = vec!["--server", &self.url];
        all.extend(self.token.as_deref().map(|token| ["--token", token]).into_iter().flatten());
        all.extend(args);
        command::legwork_in(self.namespace.as_deref(), &self.folder, &all)
    }

    /// Its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Like a power failure.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM; returns the exit status.
    pub fn terminate(mut self) -> Result<ExitStatus> {
        self.signal("TERM")?;
        ended(&mut self.child, PATIENCE)
    }

    pub fn signal(&self, name: &str) -> Result<()> {
        send_signal(name, &self.child.id().to_string())
    }
}

/// To a process, or with a minus sign to a group. The shell's builtin `kill` is on every machine,
/// the program of that name is not.
pub fn send_signal(name: &str, to: &str) -> Result<()> {
    let script = format!("kill -s {name} -- {to}");
    let status = Command::new("sh").args(["-c", &script]).status()?;
    anyhow::ensure!(status.success(), "cannot send SIG{name} to {to}");
    Ok(())
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the end of a process.
fn ended(child: &mut Child, patience: Duration) -> Result<ExitStatus> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(POLL);
    }
    bail!("the process {} does not end", child.id())
}
