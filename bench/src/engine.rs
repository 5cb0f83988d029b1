//! `engine`: how fast is the engine alone, without encoding and without I/O?
//!
//! Runs `crates/engine/examples/speed.rs`: steps/s of one core, and under callgrind the instructions
//! per step, which are the same on an idle machine and on a busy one. Invariant: instructions are
//! the difference between two runs, so that reading the definition is not counted.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::place::Place;
use crate::report::{Row, rounded};
use crate::usage::{load_average, number_after};

const STEPS_PER_CASE: usize = 10;

/// Counts the instructions of `cases_counted` cases, if any, which needs valgrind.
pub fn measure(place: &Place, cases: usize, cases_counted: Option<usize>) -> Result<Row> {
    let load_average = load_average();
    let program = place.example("legwork-engine", "speed")?;
    let (steps_per_s, hash) = speed(&program, cases)?;
    Ok(Row {
        workload: "engine",
        cases,
        steps_per_s: Some(steps_per_s),
        hash: Some(hash),
        instructions_per_step: cases_counted
            .map(|cases| instructions_per_step(&program, cases))
            .transpose()?,
        load_average,
        ..Row::default()
    })
}

/// Steps a second, and a hash of the results.
fn speed(program: &Path, cases: usize) -> Result<(f64, String)> {
    let output = Command::new(program).arg(cases.to_string()).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(output.status.success(), "{} failed: {}", program.display(), output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let said = |name: &str| {
        let word = text.split_whitespace().find_map(|word| word.strip_prefix(name));
        word.with_context(|| format!("{} said {text:?}", program.display()))
    };
    Ok((said("steps_per_s=")?.parse()?, said("hash=")?.to_owned()))
}

fn instructions_per_step(program: &Path, cases: usize) -> Result<f64> {
    let few = instructions(program, cases)?;
    let many = instructions(program, 2 * cases)?;
    let steps = (cases * STEPS_PER_CASE) as f64;
    Ok(rounded(many.saturating_sub(few) as f64 / steps, 1))
}

fn instructions(program: &Path, cases: usize) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .arg(cases.to_string())
        .output()
        .context("cannot run valgrind; run `apt-get install valgrind` as root and try again")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind failed: {text}");
    collected(&text).with_context(|| format!("valgrind said no number of instructions: {text}"))
}

/// From a line such as `==123== Collected : 456`.
fn collected(text: &str) -> Option<u64> {
    let behind_pid = |line: &str| line.rsplit_once("== ").map(|(_, rest)| rest.to_owned());
    let lines: Vec<String> = text.lines().filter_map(behind_pid).collect();
    number_after(&lines.join("\n"), "Collected :")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read_from_what_valgrind_says() {
        let text = "==7== Callgrind, a tool\n==7== \n==7== Events    : Ir\n==7== Collected : 123\n";
        assert_eq!(collected(text), Some(123));
        assert_eq!(collected("==7== nothing\n"), None);
    }
}
