//! Figures of the papers, reproduced by the production code: `cargo xtask figure <id> [--json]`.
//!
//! Each figure has a folder with the paper's claim, the result here, and the differences.

mod deadlines;
mod division;
mod executors;
mod migrations;
mod plot;

use anyhow::Result;
use clap::{Parser, ValueEnum};

#[derive(Parser)]
#[command(about = "Figures of the papers, made anew")]
struct Arguments {
    figure: Figure,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Figure {
    /// How sizes are divided among executors: figure 4 of the paper on OXTHAS.
    #[value(name = "001-4")]
    Partitions,
    /// How long processes take on shared executors.
    #[value(name = "001-5")]
    Totals,
    /// The same with more and fewer processes.
    #[value(name = "001-6")]
    Counts,
    /// How long they take when an executor dies.
    #[value(name = "001-7")]
    Failing,
    /// What executors have when one dies.
    #[value(name = "001-8")]
    Queues,
    /// How often tasks are taken from the dead one.
    #[value(name = "001-9")]
    Retries,
    /// What a change of weights moves, and how soon it shows: section 4.2 of the paper on servers.
    #[value(name = "002-4")]
    Change,
    /// The load of the servers of a domain over a year.
    #[value(name = "002-5")]
    Shares,
    /// The same for every single type.
    #[value(name = "002-6")]
    Types,
    /// What ten migrations into a loop send: section 6 of the paper on instance data.
    #[value(name = "003-6")]
    Migrations,
    /// How many deadlines are promised and kept when a node is lost: figure 7 of the paper on task allocation.
    #[value(name = "004-7")]
    Faults,
    /// The same with and without the removal of less important tasks: its figure 8.
    #[value(name = "004-8")]
    Removal,
    /// The same by whom other nodes are asked.
    #[value(name = "004-x")]
    Strategies,
    /// Not of the paper: for how much of their hours people are planned who begin every step late.
    #[value(name = "004-share")]
    Share,
}

fn main() -> Result<()> {
    let Arguments { figure, json } = Arguments::parse();
    match figure {
        Figure::Partitions => executors::partitions(json),
        Figure::Totals => executors::totals(json),
        Figure::Counts => executors::counts(json),
        Figure::Failing => executors::failing(json),
        Figure::Queues => executors::queues(json),
        Figure::Retries => executors::retries(json),
        Figure::Change => division::change(json),
        Figure::Shares => division::shares(json),
        Figure::Types => division::types(json),
        Figure::Migrations => migrations::run(json),
        Figure::Faults => deadlines::faults(json),
        Figure::Removal => deadlines::removal(json),
        Figure::Strategies => deadlines::strategies(json),
        Figure::Share => deadlines::share(json),
    }
}
