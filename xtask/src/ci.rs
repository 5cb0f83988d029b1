//! The gate, the same on a desk and in CI: nothing lands that does not pass it.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{cargo, cargo_with, measured, prepare, program};

/// Seeds of the bounded simulation; fixed, so that a failure is never a matter of luck.
const SEEDS: &str = "200";
const SEEDS_LONG: &str = "20000";
/// Cases of each random test that has no number of its own; the others go up in proportion.
const CASES_LONG: &str = "20000";
/// How often a real server under load is killed.
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

/// The tests of `sdk/python`, with nothing but the standard library; a warning is a failure.
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

fn stage(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let begin = Instant::now();
    println!("== {name}");
    run().with_context(|| format!("{name} failed"))?;
    println!("== {name}: {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}
