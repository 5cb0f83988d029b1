//! Figures of the papers, made anew by the production code: `cargo xtask figure <id> [--json]`.
//!
//! Each figure has a folder with what the paper says, what comes out here and what differs.

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
    /// What ten migrations into a loop send: section 6 of the paper on instance data.
    #[value(name = "003-6")]
    Migrations,
}

fn main() -> Result<()> {
    let Arguments { figure, json } = Arguments::parse();
    match figure {
        Figure::Migrations => migrations::run(json),
    }
}
