//! The gate, the same locally and in CI: every commit must pass it.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{cargo, cargo_with, measured, prepare, program};

/// Seeds of the bounded simulation that are the same for every commit.
const SEEDS: &str = "200";
const SEEDS_LONG: &str = "20000";
/// Seeds that differ from commit to commit, so that the gate also runs new ones.
const SEEDS_FRESH: &str = "50";
/// The first fresh seed in a folder that is no git checkout.
const FRESH_WITHOUT_COMMIT: u64 = 1_000_000;
/// Cases of each random test without a number of its own; the others are scaled.
const CASES_LONG: &str = "20000";
/// The number of kills of a real server under load.
const KILLS_LONG: &str = "200";
const KILLS_SHARED: &str = "50";

pub(crate) fn run(long: bool) -> Result<()> {
    let begin = Instant::now();
    prepare::tools()?;
    prepare::components()?;
    stage("formatting", || cargo(&["fmt", "--all", "--check"]))?;
    stage("lints", || {
        cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--quiet",
            "--",
            "--deny",
            "warnings",
        ])
    })?;
    stage("build", || cargo(&["test", "--quiet", "--workspace", "--no-run"]))?;
    let tests = ["test", "--workspace", "--quiet", "--no-fail-fast"];
    let more: &[(&str, &str)] = if long { &[("PROPTEST_CASES", CASES_LONG)] } else { &[] };
    stage("tests", || cargo_with(&tests, more))?;
    stage("executor in Python", python)?;
    let seeds = if long { SEEDS_LONG } else { SEEDS };
    let arguments = ["--seeds".to_owned(), seeds.to_owned()];
    stage("simulation", || program("legwork-sim", "legwork-sim", &[], &arguments))?;
    stage("simulation with fresh seeds", fresh_seeds)?;
    if long {
        let arguments = ["--kills".to_owned(), KILLS_LONG.to_owned()];
        stage("kills", || measured(&["crash"], &arguments))?;
        stage("kills on PostgreSQL", || measured(&["crash", "--store", "postgres"], &arguments))?;
        stage("kills of servers on one PostgreSQL", || {
            measured(&["crash", "--shared"], &["--kills".to_owned(), KILLS_SHARED.to_owned()])
        })?;
        stage("growth", || measured(&["crash", "--grow"], &[]))?;
    }
    println!("ci passed in {} s", begin.elapsed().as_secs());
    Ok(())
}

/// The tests of `sdk/python`, with only the standard library; a warning is a failure.
fn python() -> Result<()> {
    let status = Command::new("python3")
        .args(["-W", "error", "-m", "unittest", "discover", "--quiet"])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../sdk/python"))
        .status()
        .context("python3 cannot be started; install Python 3.9 or later, and try again")?;
    if !status.success() {
        bail!("`python3 -m unittest discover` failed in sdk/python");
    }
    Ok(())
}

/// Seeds that follow from the commit: new ones for every change, the same ones when it is repeated.
fn fresh_seeds() -> Result<()> {
    let from = commit().as_deref().map_or(FRESH_WITHOUT_COMMIT, first_fresh_seed).to_string();
    println!("repeat with: cargo xtask sim --from {from} --seeds {SEEDS_FRESH}");
    let arguments = ["--from", &from, "--seeds", SEEDS_FRESH].map(str::to_owned);
    program("legwork-sim", "legwork-sim", &[], &arguments)
}

/// The hash of the checked-out commit, if this is a git checkout.
fn commit() -> Option<String> {
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .ok()?;
    let hash = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    output.status.success().then_some(hash)
}

/// A number beyond the fixed seeds, from the first digits of a commit's hash.
fn first_fresh_seed(hash: &str) -> u64 {
    let digits = hash.get(..10).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    digits.map_or(FRESH_WITHOUT_COMMIT, |number| FRESH_WITHOUT_COMMIT + number)
}

fn stage(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let begin = Instant::now();
    println!("== {name}");
    run().with_context(|| format!("{name} failed"))?;
    println!("== {name}: {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_seeds_differ_from_commit_to_commit_and_from_those_of_every_run() {
        let one = first_fresh_seed("394a788c0d4e0000000000000000000000000000");
        let other = first_fresh_seed("ed95439f104e0000000000000000000000000000");
        assert_ne!(one, other);
        assert!(one > 20_000 && other > 20_000);
        assert_eq!(first_fresh_seed("no hash"), FRESH_WITHOUT_COMMIT);
    }
}
