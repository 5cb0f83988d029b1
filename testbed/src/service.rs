//! An executor as a process of its own, which can be killed, stopped and started again.
//!
//! Invariant: it keeps its address and its ledger for as long as this value lives. It ends when its
//! standard input does, so it never outlives its starter.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::ledger::{Ledger, Line};

/// Where it listens before it has an address.
const ANYWHERE: &str = "127.0.0.1:0";

pub struct Service {
    name: String,
    program: PathBuf,
    folder: PathBuf,
    args: Vec<String>,
    address: String,
    process: Option<Child>,
}

impl Service {
    /// Starts `PROGRAM executor` under a name for a Legwork at these addresses, with more arguments; what
    /// it writes is in the folder.
    pub fn start(
        program: &Path,
        folder: &Path,
        (name, legwork): (&str, &str),
        more: &[String],
    ) -> Result<Self> {
        let mut args = vec!["--name".to_owned(), name.to_owned()];
        args.extend(["--legwork".to_owned(), legwork.to_owned()]);
        args.extend_from_slice(more);
        let mut service = Self {
            name: name.to_owned(),
            program: program.to_owned(),
            folder: folder.to_owned(),
            args,
            address: ANYWHERE.to_owned(),
            process: None,
        };
        service.run()?;
        Ok(service)
    }

    /// Starts the process, at its address if it has been there before.
    pub fn run(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "{} runs already", self.name);
        let log = self.folder.join(format!("{}.log", self.name));
        let log = File::options().create(true).append(true).open(log)?;
        let process = Command::new(&self.program)
            .args(["executor", "--listen", &self.address, "--ledger"])
            .arg(self.path())
            .args(&self.args)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let said = self.process.insert(process).stdout.take().context("no standard output")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        ensure!(!line.is_empty(), "{} has ended at once; see its log", self.name);
        self.address = line.trim().to_owned();
        Ok(())
    }

    /// SIGKILL: it gets no chance to say good-bye.
    pub fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().with_context(|| format!("{} is gone", self.name))?;
        process.kill()?;
        process.wait()?;
        Ok(())
    }

    /// Such as STOP and CONT.
    pub fn signal(&self, name: &str) -> Result<()> {
        let process = self.process.as_ref().with_context(|| format!("{} is gone", self.name))?;
        let script = format!("kill -s {name} -- {}", process.id());
        let status = Command::new("sh").args(["-c", &script]).status()?;
        ensure!(status.success(), "{} cannot be sent SIG{name}", self.name);
        Ok(())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where Legwork reaches it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All that it has written down, in all its lives.
    pub fn ledger(&self) -> Result<Vec<Line>> {
        Ledger::read(&self.path())
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.ledger", self.name))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Both fail only if the process is gone already, which is what is wanted.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
