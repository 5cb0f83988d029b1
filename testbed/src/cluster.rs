//! A private PostgreSQL server: made, started, killed, started again; gone with its user.
//!
//! Invariant: it listens on a socket in its own folder, and on nothing else unless told to. A shell
//! that waits for the end of this process stops it and removes the folder.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::database::{Database, ask};

/// The user of the database, who may do everything there.
const USER: &str = "legwork";
/// Where Debian and others put the programs of a server, newest last.
const PLACES: [&str; 3] = ["/usr/lib/postgresql", "/usr/pgsql", "/usr/local/pgsql"];
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

pub struct Cluster {
    folder: PathBuf,
    programs: PathBuf,
    owner: Option<Owner>,
    settings: Vec<(String, String)>,
    postmaster: Option<Child>,
    /// Waits for our end: its standard input is closed then, whatever becomes of us.
    janitor: Child,
}

/// Who runs the server: it refuses to be run by root.
#[derive(Clone, Copy)]
struct Owner {
    user: u32,
    group: u32,
}

impl Cluster {
    /// In memory where there is such a place: what tests ask for does not depend on the disk.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// The same, with settings of one's own.
    pub fn start_with(settings: &[(&str, &str)]) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        Self::start_in(&parent, settings)
    }

    /// The same, in a new folder below this one.
    pub fn start_in(parent: &Path, settings: &[(&str, &str)]) -> Result<Self> {
        let programs = programs()?;
        let owner = owner()?;
        check_passable(parent, owner)?;
        let folder = tempfile::Builder::new().prefix("legwork-pg-").tempdir_in(parent)?.keep();
        let janitor = janitor(&folder)?;
        if let Some(owner) = owner {
            chown(&folder, Some(owner.user), Some(owner.group))?;
        }
        let settings =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let settings = settings.collect();
        let mut cluster = Self { folder, programs, owner, settings, postmaster: None, janitor };
        cluster.make()?;
        cluster.run()?;
        Ok(cluster)
    }

    /// Where its data is, and files for it may be put.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Puts a file into its folder that the server alone may read.
    pub fn file(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.folder.join(name);
        let mut options = File::options();
        options
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&path)?
            .write_all(content)?;
        if let Some(owner) = self.owner {
            chown(&path, Some(owner.user), Some(owner.group))?;
        }
        Ok(path)
    }

    /// Changes a setting from the next start on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.push((name.to_owned(), value.to_owned()));
    }

    /// The address of a database on it, by its socket.
    pub fn url(&self, database: &str) -> String {
        let folder = self.folder.display().to_string().replace('/', "%2F");
        let port = self.settings.iter().rfind(|(name, _)| name == "port");
        let port = port.map_or_else(String::new, |(_, port)| format!(":{port}"));
        format!("postgres://{USER}@{folder}{port}/{database}")
    }

    /// A new, empty database.
    pub fn database(&self, name: &str) -> Result<Database> {
        Database::create(&self.url("postgres"), self.url(name), name)
    }

    /// Every process of it at once, like a machine that loses its power, but for the disk.
    pub fn kill(&mut self) -> Result<()> {
        let Some(mut postmaster) = self.postmaster.take() else { return Ok(()) };
        let parent = postmaster.id();
        // Held first: it would end the others in its own way, and begin new ones. When it is dead
        // nobody knows any more whose they were, and they go on for a while.
        signal("STOP", parent)?;
        wait_until("the server cannot be held", || Ok(state(parent).starts_with('T')))?;
        let children = children(parent)?;
        postmaster.kill()?;
        for child in &children {
            let _ = signal("KILL", *child);
        }
        postmaster.wait()?;
        wait_until("the server's processes do not end", || {
            Ok(!children.iter().any(|child| is_there(*child)))
        })
    }

    /// Shuts it down cleanly, also with open connections.
    pub fn stop(&mut self) -> Result<()> {
        let Some(mut postmaster) = self.postmaster.take() else { return Ok(()) };
        signal("INT", postmaster.id())?;
        postmaster.wait()?;
        Ok(())
    }

    /// Starts it, and waits until it answers.
    pub fn run(&mut self) -> Result<()> {
        let since = Instant::now();
        loop {
            let mut child = self.spawn()?;
            while child.try_wait()?.is_none() {
                if ask(&self.url("postgres"), "SELECT 1").is_ok() {
                    self.postmaster = Some(child);
                    return Ok(());
                }
                if since.elapsed() > PATIENCE {
                    child.kill()?;
                    bail!("PostgreSQL does not answer within {PATIENCE:?}: {}", self.log());
                }
                thread::sleep(POLL);
            }
            // Killed before, its last processes may hold the shared memory for a moment.
            ensure!(since.elapsed() < PATIENCE, "PostgreSQL does not start: {}", self.log());
            thread::sleep(POLL);
        }
    }

    fn make(&self) -> Result<()> {
        let data = self.folder.join("data");
        let mut initdb = self.program("initdb");
        initdb.args(["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "-U", USER]);
        let made = initdb.arg("-D").arg(&data).output().context("initdb cannot be started")?;
        let said = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "initdb failed: {said}");
        Ok(())
    }

    fn spawn(&self) -> Result<Child> {
        let log = File::options().create(true).append(true).open(self.folder.join("log"))?;
        let mut postgres = self.program("postgres");
        postgres.arg("-D").arg(self.folder.join("data")).arg("-k").arg(&self.folder);
        for (name, value) in [("listen_addresses", ""), ("shared_buffers", "64MB")] {
            postgres.arg("-c").arg(format!("{name}={value}"));
        }
        for (name, value) in &self.settings {
            postgres.arg("-c").arg(format!("{name}={value}"));
        }
        let postgres = postgres.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        postgres.spawn().context("postgres cannot be started")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir("/").env("LC_ALL", "C");
        if let Some(Owner { user, group }) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(10).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
        if let Some(postmaster) = &mut self.postmaster {
            let _ = postmaster.wait();
        }
    }
}

/// Stops the server and removes the folder when its standard input ends.
fn janitor(folder: &Path) -> Result<Child> {
    const SCRIPT: &str = r#"
        trap '' INT TERM HUP
        read -r _
        if pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null); then
            kill -QUIT "$pid" 2>/dev/null
            while kill -0 "$pid" 2>/dev/null && [ "$(cut -d' ' -f3 "/proc/$pid/stat" 2>/dev/null)" != Z ]
            do sleep 0.02; done
        fi
        rm -rf "$1""#;
    let mut shell = Command::new("sh");
    shell.args(["-c", SCRIPT, "janitor"]).arg(folder);
    // A group of its own: who ends a test from the terminal means the test.
    shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().context("sh cannot be started")
}

/// The folder of the newest server installed here.
fn programs() -> Result<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for place in PLACES {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let programs = entry.path().join("bin");
            if programs.join("postgres").is_file() && programs.join("initdb").is_file() {
                let version = entry.file_name().to_string_lossy().parse().unwrap_or(0);
                found.push((version, programs));
            }
        }
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&paths).find(|place| place.join("initdb").is_file());
    let newest = found.into_iter().max().map(|(_, programs)| programs).or(on_path);
    newest.context(
        "there is no PostgreSQL server here; install it (`apt-get install postgresql`), or name \
         one that runs in LEGWORK_TEST_POSTGRES",
    )
}

/// Root gives the server to the user that Debian has made for it, or to nobody.
fn owner() -> Result<Option<Owner>> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let named = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        let (user, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Owner { user, group })
    };
    let owner = named("postgres").or_else(|| named("nobody"));
    owner.map(Some).context("there is no user `postgres` and no user `nobody` to run PostgreSQL")
}

/// Another user must be able to get there.
fn check_passable(folder: &Path, owner: Option<Owner>) -> Result<()> {
    let Some(owner) = owner else { return Ok(()) };
    for folder in fs::canonicalize(folder)?.ancestors() {
        let about = fs::metadata(folder)?;
        let is_passable = match about.uid() == owner.user {
            true => about.mode() & 0o100 != 0,
            false => about.mode() & 0o001 != 0,
        };
        let folder = folder.display();
        ensure!(
            is_passable,
            "PostgreSQL does not run as root, and its user cannot enter {folder}; choose another folder"
        );
    }
    Ok(())
}

fn is_there(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

fn children(parent: u32) -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(process) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        if state(process).split(' ').nth(1).and_then(|text| text.parse().ok()) == Some(parent) {
            children.push(process);
        }
    }
    Ok(children)
}

/// `state parent ...`; empty if there is no such process.
fn state(process: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // `pid (name) state parent ...`, and the name may hold anything.
    stat.rsplit_once(") ").map_or_else(String::new, |(_, after)| after.to_owned())
}

fn signal(name: &str, process: u32) -> Result<()> {
    let process = process.to_string();
    let sent = Command::new("sh")
        .args(["-c", "kill -s \"$1\" \"$2\"", "kill", name, &process])
        .stderr(Stdio::null())
        .status()?;
    ensure!(sent.success(), "process {process} cannot be sent {name}");
    Ok(())
}

fn wait_until(otherwise: &str, done: impl Fn() -> Result<bool>) -> Result<()> {
    let since = Instant::now();
    while !done()? {
        ensure!(since.elapsed() < PATIENCE, "{otherwise} within {PATIENCE:?}");
        thread::sleep(POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_goes_on_writing_when_the_server_was_killed() -> Result<()> {
        let mut cluster = Cluster::start()?;
        let database = cluster.database("kept")?;
        for _ in 0..5 {
            let postmaster = cluster.postmaster.as_ref().map(Child::id);
            let session = database.session()?;
            let processes = children(postmaster.context("it does not run")?)?;
            assert!(processes.len() > 1, "{processes:?}");
            cluster.kill()?;
            let left = processes.iter().filter(|one| is_there(**one)).count();
            assert_eq!(left, 0, "processes are left of {}", processes.len());
            drop(session);
            cluster.run()?;
        }
        Ok(())
    }
}
