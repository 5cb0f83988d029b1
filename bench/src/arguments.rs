//! The command line of the program.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use legwork_bench::executors;

/// Benchmarks and the crash test of a real Legwork server.
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) chore: Chore,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Chore {
    /// Ten automatic steps one after the other.
    Sequence(Options),
    /// Ten automatic steps side by side.
    Fanout(Options),
    /// Cases that wait for a person: completions a second, and memory.
    Waiting(Options),
    /// Seconds until a killed server with many waiting cases is ready again.
    Restart(Options),
    /// Bytes on disk of a completed case.
    Disk(Options),
    /// Cases that move between two servers with every step.
    Migrate(Options),
    /// The weights of a site with many open cases changed under load: the longest pause.
    Reweigh(Options),
    /// `sequence` with 1, 2 and 4 logical servers in one process, on folders and on PostgreSQL.
    Scale(Options),
    /// The engine alone: steps a second, instructions a step.
    Engine(Options),
    /// To find the server of an instance: nanoseconds with 1, 16 and 1,000 servers and 10 versions.
    Place(Options),
    /// To choose the executor of a task: decisions a second of each policy with 6, 100 and 10,000.
    Dispatch(Options),
    /// Deadlines promised or refused a second with 100, 1,000 and 10,000 reservations standing.
    Guarantee(Options),
    /// Two servers and six executors, each a process of its own: how soon all work is done, by policy.
    Executors(ExecutorsOptions),
    /// All of them.
    All(Options),
    /// Write the newest figures into docs/benchmarks.md; measures nothing.
    Table,
    /// Kills a server under load repeatedly and checks that it keeps its acknowledgements.
    Crash(CrashOptions),
    /// An executor, as others start it.
    #[command(hide = true)]
    Executor(executors::service::Options),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Numbers of clients, each with one call in flight [default: 1,16,128; waiting: 64]
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u16).range(1..=1024))]
    pub(crate) clients: Vec<u16>,

    /// Seconds measured for each number of clients
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u16).range(1..=600))]
    pub(crate) seconds: u16,

    /// Seconds of load before the measurement
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u16).range(0..=60))]
    pub(crate) warm_up: u16,

    /// How many cases, where the workload counts cases instead of seconds
    #[arg(long, value_parser = value_parser!(u32).range(1..=10_000_000))]
    pub(crate) cases: Option<u32>,

    /// Do not measure the peer
    #[arg(long)]
    pub(crate) no_peer: bool,

    /// Folder the peer's server is installed into [default: in the target folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) peer_cache: Option<PathBuf>,

    /// Folder for the data of all servers; its file system is part of what is measured
    /// [default: in the target folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Do not append the figures to bench/results.jsonl
    #[arg(long)]
    pub(crate) no_record: bool,

    /// Recorded with the figures: what else is to be known of the run
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,

    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExecutorsOptions {
    #[command(flatten)]
    pub(crate) options: Options,

    /// Only this one [default: all]
    #[arg(long, value_parser = executors::POLICIES)]
    pub(crate) policy: Option<String>,

    /// Only while executors are killed, stopped and fail [default: without, then with]
    #[arg(long)]
    pub(crate) disturbed: bool,

    /// Only while nothing happens to them
    #[arg(long, conflicts_with = "disturbed")]
    pub(crate) undisturbed: bool,

    /// Only four specialists under limits, with one server and with two
    #[arg(long, conflicts_with_all = ["policy", "disturbed", "undisturbed"])]
    pub(crate) limits: bool,

    /// Decides speeds and sizes
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct CrashOptions {
    /// How often the server is killed
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u32).range(1..=100_000))]
    pub(crate) kills: u32,

    /// Where the server keeps everything; PostgreSQL is killed too
    #[arg(long, value_enum, default_value = "embedded", conflicts_with = "shared")]
    pub(crate) store: CrashStore,

    /// Three servers on one PostgreSQL, of which the busiest is killed each time
    #[arg(long)]
    pub(crate) shared: bool,

    /// A site on embedded stores goes from 1 server to 3 and to 2, is reweighed, and one is replaced
    #[arg(long, conflicts_with_all = ["shared", "store", "kills"])]
    pub(crate) grow: bool,

    /// Decides the moments of the kills, and whom they meet
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Folder for the data of the server [default: in the target folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// One JSON object instead of a line of words
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CrashStore {
    Embedded,
    Postgres,
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
    fn command_lines_of_the_chores_are_understood() {
        for line in [
            "bench sequence --json",
            "bench fanout --clients 1,16,128 --seconds 5 --no-peer",
            "bench waiting --peer-cache cache --data d --no-record",
            "bench restart --cases 1000",
            "bench migrate --json",
            "bench scale --json --no-peer",
            "bench place --json",
            "bench dispatch --json",
            "bench guarantee --json",
            "bench executors --json --policy oxthas-3 --cases 20 --disturbed",
            "bench executors --limits --json",
            "bench all",
            "bench table",
            "bench crash --kills 5 --seed 7",
            "bench crash --store postgres",
            "bench crash --grow --seed 3 --json",
        ] {
            let parsed = Arguments::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
        for line in ["bench", "bench sequence --clients 0", "bench crash --kills none"] {
            assert!(Arguments::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
