//! Figures of the papers, made anew by the production code: `cargo xtask figure <id> [--json]`.
//!
//! Each figure has a folder with what the paper says, what comes out here and what differs.

mod division;
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
}

fn main() -> Result<()> {
    let Arguments { figure, json } = Arguments::parse();
    match figure {
        Figure::Change => division::change(json),
        Figure::Shares => division::shares(json),
        Figure::Types => division::types(json),
        Figure::Migrations => migrations::run(json),
    }
}
