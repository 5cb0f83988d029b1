//! The traffic of ten migrations into a loop: section 6 of "Effiziente Übertragung von
//! Prozessinstanzdaten in verteilten Workflow-Management-Systemen".

mod counted;
mod scenario;
mod wire;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use legwork_placement::Transfer;
use serde::Serialize;

use crate::plot::{self, Curve, SeriesLabelPosition};
use counted::{Counted, count};

/// The paper's sizes of an entry, and of an activity's id.
const ENTRY_BYTES: u32 = 200;
const ID_BYTES: u32 = 8;
const MB: u64 = 1_000_000;

/// The figures of the paper, as reproduced here.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Figure {
    entries_full: u32,
    entries_optimised: u32,
    /// The beginning and the decisions of the loop, which the paper does not count.
    others_full: u32,
    others_optimised: u32,
    /// One with each migration, as the paper charges.
    ids: u32,
    /// Those really sent: in the first round the target knows nothing.
    ids_told: u32,
    bytes_full: u32,
    bytes_optimised: u32,
    large_mb_full: u64,
    large_mb_optimised: u64,
}

/// The traffic on the sockets between real servers.
#[derive(Debug, Serialize)]
struct Wired {
    #[serde(flatten)]
    figure: Figure,
    /// All ten migrations together: frames, TLS and acknowledgements included.
    wire_bytes_full: u64,
    wire_bytes_optimised: u64,
    /// Large elements sent to server 3. Each version differs from the one before by a tenth.
    wire_large_mb: f64,
}

/// A conventional run and one by request.
struct Runs {
    full: Counted,
    asked: Counted,
}

pub(crate) fn run(json: bool) -> Result<()> {
    let runs = runs()?;
    let wired = Wired {
        figure: runs.figure(),
        wire_bytes_full: wire::case_bytes(Transfer::Full)?,
        wire_bytes_optimised: wire::case_bytes(Transfer::Proven)?,
        wire_large_mb: (wire::large_bytes(Transfer::Proven)? / 10_000) as f64 / 100.0,
    };
    if json {
        println!("{}", serde_json::to_string(&wired)?);
        return Ok(());
    }
    let folder = folder();
    std::fs::write(folder.join("rounds.csv"), runs.csv()).context("rounds.csv")?;
    runs.draw(&folder.join("entries.svg"))?;
    println!("{wired:#?}\nwritten: {}", folder.display());
    Ok(())
}

fn runs() -> Result<Runs> {
    Ok(Runs { full: count(Transfer::Full)?, asked: count(Transfer::Requested)? })
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("003-6")
}

impl Runs {
    fn figure(&self) -> Figure {
        let Self { full, asked } = self;
        let entries = |counted: &Counted| counted.entries.iter().sum::<u32>();
        let (entries_full, entries_optimised) = (entries(full), entries(asked));
        let ids = asked.entries.len() as u32;
        Figure {
            entries_full,
            entries_optimised,
            others_full: full.others,
            others_optimised: asked.others,
            ids,
            ids_told: asked.ids,
            bytes_full: entries_full * ENTRY_BYTES,
            bytes_optimised: entries_optimised * ENTRY_BYTES + ids * ID_BYTES,
            large_mb_full: full.large_whole.iter().sum::<u64>() / MB,
            large_mb_optimised: asked.large.iter().sum::<u64>() / MB,
        }
    }

    /// The traffic of each round.
    fn csv(&self) -> String {
        let mut text =
            String::from("round,entries_full,entries_optimised,large_mb_full,large_mb_optimised\n");
        let Self { full, asked } = self;
        let entries = full.entries.iter().zip(&asked.entries);
        let large = full.large_whole.iter().zip(&asked.large);
        for (round, ((all, some), (whole, part))) in entries.zip(large).enumerate() {
            let (round, whole, part) = (round + 1, whole / MB, part / MB);
            let _ = writeln!(text, "{round},{all},{some},{whole},{part}");
        }
        text
    }

    fn draw(&self, path: &Path) -> Result<()> {
        let up_to = |entries: &[u32]| {
            let sum = entries.iter().scan(0, |sum, entries| {
                *sum += entries;
                Some(f64::from(*sum))
            });
            sum.collect()
        };
        let curves = [
            Curve { name: "whole history", values: up_to(&self.full.entries) },
            Curve { name: "what the target lacks", values: up_to(&self.asked.entries) },
        ];
        let title = "Entries sent to server 3, all rounds so far";
        let legend = SeriesLabelPosition::UpperLeft;
        plot::draw(path, title, ["round of the loop", "entries"], legend, &curves)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;

    #[test]
    fn a3_6_a3_7_and_a3_9_come_out_as_in_the_paper() {
        let expected = Figure {
            entries_full: 1_025,
            entries_optimised: 125,
            others_full: 55,
            others_optimised: 10,
            ids: 10,
            ids_told: 9,
            bytes_full: 205_000,
            bytes_optimised: 25_080,
            large_mb_full: 250,
            large_mb_optimised: 105,
        };
        assert_eq!(runs().unwrap().figure(), expected);
    }

    #[test]
    fn a3_8_values_that_go_along_save_as_much_without_the_ids() {
        let Figure { entries_full, entries_optimised, bytes_full, bytes_optimised, .. } =
            runs().unwrap().figure();
        let saved = |less: u32, of: u32| 10_000 - less * 10_000 / of;
        assert_eq!(saved(entries_optimised, entries_full), 8_781);
        assert_eq!(saved(bytes_optimised, bytes_full), 8_777);
    }

    #[test]
    fn the_written_rounds_are_those_that_come_out() {
        let written = std::fs::read_to_string(folder().join("rounds.csv")).unwrap();
        assert_eq!(written, runs().unwrap().csv(), "run `cargo xtask figure 003-6`");
    }
}
