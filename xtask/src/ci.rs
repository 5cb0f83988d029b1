//! The gate, the same on a desk and in CI: nothing lands that does not pass it.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::{cargo, prepare, program};

/// Seeds of the bounded simulation; fixed, so that a failure is never a matter of luck.
const SEEDS: &str = "200";
const SEEDS_LONG: &str = "20000";

pub(crate) fn run(long: bool) -> Result<()> {
    let begin = Instant::now();
    prepare::tools()?;
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
    // The end-to-end tests start the real program.
    stage("build", || cargo(&["build", "--quiet", "--workspace"]))?;
    stage("tests", || cargo(&["test", "--workspace", "--quiet", "--no-fail-fast"]))?;
    let seeds = if long { SEEDS_LONG } else { SEEDS };
    let arguments = ["--seeds".to_owned(), seeds.to_owned()];
    stage("simulation", || program("legwork-sim", "legwork-sim", &[], &arguments))?;
    println!("ci passed in {} s", begin.elapsed().as_secs());
    Ok(())
}

fn stage(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let begin = Instant::now();
    println!("== {name}");
    run().with_context(|| format!("{name} failed"))?;
    println!("== {name}: {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}
