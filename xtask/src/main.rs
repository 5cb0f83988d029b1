//! The one way to run the project's chores: `cargo xtask ci`, `dist`, `sim`, `figure`, `crash`, `bench`.
//!
//! Thin on purpose: it builds in seconds and starts the real programs.

mod ci;
mod dist;
mod prepare;

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Chores of the Legwork project")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// The gate: formatting, lints, all tests, a bounded simulation.
    Ci {
        /// Go on for longer: 20000 seeds, 78 times the cases of random tests (PROPTEST_CASES),
        /// 200 kills of a real server.
        #[arg(long)]
        long: bool,
    },
    /// The program as it is handed on, stripped, and its debug info beside it: `legwork` and
    /// `legwork.debug` in `target/dist/package`.
    Dist,
    /// Whole sites in virtual time: `--seeds N`, `--seed K` to repeat one.
    Sim {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Kills a real server repeatedly under load, sometimes stops it: `--kills N`; with
    /// `--store postgres` its database too.
    Crash {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// A figure of a paper, made anew by the production code: `001-4` to `001-9`, `002-4`, `002-5`,
    /// `002-6`, `003-6`, `004-7`, `004-8`, `004-x`, `004-share`; `--json`.
    Figure {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Benchmarks: sequence, fanout, waiting, restart, disk, migrate, reweigh, scale, engine, place,
    /// dispatch, guarantee, executors; `--json`. `table` writes the newest figures into docs/benchmarks.md.
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Ci { long } => ci::run(long),
        Chore::Dist => dist::run(),
        Chore::Sim { arguments } => program("legwork-sim", "legwork-sim", &[], &arguments),
        Chore::Figure { arguments } => {
            program("legwork-experiments", "legwork-experiments", &[], &arguments)
        }
        Chore::Crash { arguments } => measured(&["crash"], &arguments),
        Chore::Bench { arguments } if arguments.first().is_some_and(|name| name == "table") => {
            program("legwork-bench", "legwork-bench", &[], &arguments)
        }
        Chore::Bench { arguments } => {
            prepare::benchmark(&arguments).and_then(|()| measured(&[], &arguments))
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The benchmark program drives the released server, so that one is built too.
fn measured(first: &[&str], arguments: &[String]) -> Result<()> {
    prepare::tools()?;
    cargo(&["build", "--release", "--quiet", "--package", "legwork-cli"])?;
    program("legwork-bench", "legwork-bench", first, arguments)
}

/// Builds and runs a workspace program, optimised.
fn program(package: &str, binary: &str, first: &[&str], arguments: &[String]) -> Result<()> {
    let mut all = vec!["run", "--release", "--quiet", "--package", package, "--bin", binary, "--"];
    all.extend(first);
    all.extend(arguments.iter().map(String::as_str));
    cargo(&all)
}

/// Runs cargo in the project's folder; fails if cargo fails.
fn cargo(arguments: &[&str]) -> Result<()> {
    cargo_with(arguments, &[])
}

/// The cargo that runs this program.
fn cargo_program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

fn cargo_with(arguments: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    let status = Command::new(cargo_program())
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .status()
        .context("cargo cannot be started")?;
    if !status.success() {
        bail!("`cargo {}` failed", arguments.join(" "));
    }
    Ok(())
}
