//! The peer side of the benchmark: Restate 1.7 on this machine, closed loop, loopback only.
//!
//! Question: how many durable steps a second, with which latency, memory and disk, does the peer do
//! in the same run as Legwork? Invariant: however the program ends (success, an error, Ctrl-C,
//! SIGTERM), the server it started is gone and so is its directory.

mod http;
mod install;
mod load;
mod report;
mod server;
mod service;
mod usage;
mod workload;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum, value_parser};
use tokio::signal::unix::{SignalKind, signal};

use crate::install::Installed;
use crate::workload::{Config, Scale, Workload};

const CLIENTS_DEFAULT: [u16; 3] = [1, 16, 128];
const CLIENTS_WAITING_DEFAULT: [u16; 1] = [64];

const DEFAULT: Config = Config { name: "default", partitions: None };
const PARTITIONS4: Config = Config { name: "partitions4", partitions: Some(4) };

/// Measures Restate 1.7 on this machine.
#[derive(Parser)]
struct Arguments {
    /// What to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "sequence")]
    workload: Vec<WorkloadName>,

    /// Numbers of clients, each with one call in flight [default: 1,16,128; waiting: 64].
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u16).range(1..=1024))]
    clients: Vec<u16>,

    /// Seconds measured for each number of clients.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u16).range(1..=600))]
    seconds: u16,

    /// Seconds of load before the measurement.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u16).range(0..=60))]
    warm_up: u16,

    /// The server's own default, 4 partitions, or both with the better one marked.
    #[arg(long, value_enum, default_value = "both")]
    config: ConfigName,

    /// How the cases of `waiting` wait: attached to the service, suspended, or both.
    #[arg(long, value_enum, default_value = "both")]
    waiting: WaitingName,

    /// How many cases of `waiting` wait at the same time.
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=100_000))]
    cases: u32,

    /// Folder the server is installed into, unless it is there already.
    #[arg(long, value_name = "DIR")]
    cache: PathBuf,

    /// Folder the server's temporary data goes to; its file system is part of what is measured
    /// [default: the system's temporary folder].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum WorkloadName {
    Sequence,
    Fanout,
    Waiting,
}

#[derive(Clone, Copy, ValueEnum)]
enum ConfigName {
    Default,
    Partitions4,
    Both,
}

#[derive(Clone, Copy, ValueEnum)]
enum WaitingName {
    Attached,
    Suspended,
    Both,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    // Before the signals are caught: while npm runs nothing needs cleaning up.
    let installed = install::installed(&arguments.cache)?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    // Leaving the select drops the run, and with it the server and its directory.
    tokio::select! {
        result = run(&arguments, &installed) => result,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
        _ = hang_up.recv() => bail!("hung up"),
    }
}

async fn run(arguments: &Arguments, installed: &Installed) -> Result<()> {
    if !arguments.json {
        println!("Restate {}", installed.version);
        println!("{}", report::table_head());
    }
    for &name in &arguments.workload {
        for clients in clients(arguments, name) {
            rows(arguments, installed, name, clients.into()).await?;
        }
    }
    Ok(())
}

/// All variants at one number of clients; the best of them is known only when all are measured.
async fn rows(
    arguments: &Arguments,
    installed: &Installed,
    name: WorkloadName,
    clients: usize,
) -> Result<()> {
    let scale = Scale {
        clients,
        warm_up: Duration::from_secs(arguments.warm_up.into()),
        window: Duration::from_secs(arguments.seconds.into()),
        waiting_cases: arguments.cases.try_into()?,
    };
    let data = arguments.data.clone().unwrap_or_else(std::env::temp_dir);
    let mut rows = Vec::new();
    for &config in configs(arguments.config) {
        for &workload in workloads(name, arguments.waiting) {
            rows.push(workload::run(workload, config, scale, installed, &data).await?);
        }
    }
    report::mark_best(&mut rows);
    let mut output = std::io::stdout().lock();
    for row in &rows {
        let line = if arguments.json { row.json().to_string() } else { row.table_line() };
        writeln!(output, "{line}")?;
    }
    output.flush()?;
    Ok(())
}

fn clients(arguments: &Arguments, name: WorkloadName) -> Vec<u16> {
    match name {
        _ if !arguments.clients.is_empty() => arguments.clients.clone(),
        WorkloadName::Sequence | WorkloadName::Fanout => CLIENTS_DEFAULT.to_vec(),
        WorkloadName::Waiting => CLIENTS_WAITING_DEFAULT.to_vec(),
    }
}

fn configs(name: ConfigName) -> &'static [Config] {
    match name {
        ConfigName::Default => &[DEFAULT],
        ConfigName::Partitions4 => &[PARTITIONS4],
        ConfigName::Both => &[DEFAULT, PARTITIONS4],
    }
}

fn workloads(name: WorkloadName, waiting: WaitingName) -> &'static [Workload] {
    match (name, waiting) {
        (WorkloadName::Sequence, _) => &[Workload::Sequence],
        (WorkloadName::Fanout, _) => &[Workload::Fanout],
        (WorkloadName::Waiting, WaitingName::Attached) => &[Workload::WaitingAttached],
        (WorkloadName::Waiting, WaitingName::Suspended) => &[Workload::WaitingSuspended],
        (WorkloadName::Waiting, WaitingName::Both) => {
            &[Workload::WaitingAttached, Workload::WaitingSuspended]
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn clients_fit_the_workload_unless_given() {
        let parse = |line: &str| Arguments::parse_from(line.split(' '));
        let none = parse("bench --cache c");
        assert_eq!(clients(&none, WorkloadName::Fanout), [1, 16, 128]);
        assert_eq!(clients(&none, WorkloadName::Waiting), [64]);
        let given = parse("bench --cache c --clients 2,3");
        assert_eq!(clients(&given, WorkloadName::Waiting), [2, 3]);
    }
}
