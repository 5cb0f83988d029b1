//! Runs one `legwork` command to its end.
//!
//! Invariant: no variable of the caller's environment that `legwork` reads gets through.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value as Json;

use crate::binary;

/// The variables that `legwork` reads.
const VARIABLES: [&str; 12] = [
    "LEGWORK_SERVER",
    "LEGWORK_TOKEN",
    "LEGWORK_AGENT",
    "LEGWORK_DATA",
    "LEGWORK_LISTEN",
    "LEGWORK_CLUSTER",
    "LEGWORK_LOG",
    "LEGWORK_MAIL",
    "NO_COLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "RUST_BACKTRACE",
];

/// The output of a command, and its exit code.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A `legwork` command without arguments.
pub fn prepared() -> Result<Command> {
    prepared_in(None)
}

/// The same, in a network namespace.
pub(crate) fn prepared_in(namespace: Option<&str>) -> Result<Command> {
    let binary = binary::legwork()?;
    let mut command = match namespace {
        None => Command::new(binary),
        Some(namespace) => {
            // `ip` replaces itself by the program: signals reach the program.
            let mut command = Command::new("ip");
            command.args(["netns", "exec", namespace]).arg(binary);
            command
        }
    };
    VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    // Times are shown in the reader's zone: the same on every machine.
    command.env("TZ", "UTC").stdin(Stdio::null());
    Ok(command)
}

/// Runs `legwork` with these arguments in a folder.
pub fn legwork(folder: &Path, args: &[&str]) -> Result<Outcome> {
    legwork_in(None, folder, args)
}

pub(crate) fn legwork_in(namespace: Option<&str>, folder: &Path, args: &[&str]) -> Result<Outcome> {
    let output = prepared_in(namespace)?.args(args).current_dir(folder).output();
    let output = output.with_context(|| format!("cannot run legwork {}", args.join(" ")))?;
    Ok(Outcome {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

impl Outcome {
    /// Its output, if it succeeded.
    pub fn succeeded(self) -> Result<String> {
        ensure!(self.code == Some(0), "ended with {:?}: {}", self.code, self.stderr);
        Ok(self.stdout)
    }

    /// Its error output, if it was refused.
    pub fn refused(self) -> Result<String> {
        ensure!(self.code == Some(1), "ended with {:?}: {}", self.code, self.stdout);
        Ok(self.stderr)
    }

    /// Its JSON document, if it succeeded.
    pub fn json(self) -> Result<Json> {
        let text = self.succeeded()?;
        serde_json::from_str(&text).with_context(|| format!("not one JSON document: {text}"))
    }

    /// Its problem document, if it was refused with `--json`.
    pub fn problem(self) -> Result<Json> {
        let text = self.refused()?;
        serde_json::from_str(&text).with_context(|| format!("not one problem: {text}"))
    }
}
