//! The peer side of `bench scale`: DBOS Transact 0.5 on the PostgreSQL it is given.
//!
//! Question: how many durable steps a second does the peer do on the same database server, in the
//! same run as Legwork? Invariant: nothing but the library's own writes; its tables are left to the
//! owner of the database.

mod load;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, value_parser};
use dbos::{Config, DBOS};
use serde_json::{Value, json};

use crate::load::Measured;

/// The measured pool sizes; the library's default first.
const CONNECTIONS: [u32; 3] = [10, 32, 96];
const VERSION: &str = "0.5";

/// Measures DBOS Transact on a PostgreSQL.
#[derive(Parser)]
struct Arguments {
    /// An empty database, which it makes its tables in.
    #[arg(long, value_name = "URL")]
    database: String,

    /// Clients, each with one case under way.
    #[arg(long, default_value_t = 128, value_parser = value_parser!(u16).range(1..=1024))]
    clients: u16,

    /// Seconds measured.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u16).range(1..=600))]
    seconds: u16,

    /// Seconds of load before the measurement.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u16).range(0..=60))]
    warm_up: u16,

    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut rows = Vec::new();
    for connections in CONNECTIONS {
        rows.push((connections, measure(&arguments, connections).await?));
    }
    let best = rows.iter().map(|(_, row)| row.steps_per_s()).fold(0.0, f64::max);
    let mut output = std::io::stdout().lock();
    for (connections, row) in &rows {
        let is_best = row.steps_per_s() >= best;
        match arguments.json {
            true => writeln!(output, "{}", line(&arguments, *connections, row, is_best))?,
            false => writeln!(
                output,
                "{connections:>3} connections {:>8.0} steps/s  p50 {:>8.2} ms  p99 {:>8.2} ms{}",
                row.steps_per_s(),
                row.percentile_ms(50),
                row.percentile_ms(99),
                if is_best { "  best" } else { "" },
            )?,
        }
    }
    Ok(())
}

async fn measure(arguments: &Arguments, connections: u32) -> Result<Measured> {
    let dbos = DBOS::new(Config {
        max_connections: connections,
        app_version: Some("1".to_owned()),
        ..Config::new("legwork-bench", &arguments.database)
    });
    let sequence = load::register(&dbos)?;
    dbos.launch().await.context("the peer cannot use the database")?;
    let seconds = |seconds: u16| Duration::from_secs(seconds.into());
    let (warm_up, window) = (seconds(arguments.warm_up), seconds(arguments.seconds));
    let measured = load::closed_loop(&sequence, arguments.clients.into(), warm_up, window).await;
    dbos.shutdown().await;
    measured
}

fn line(arguments: &Arguments, connections: u32, row: &Measured, is_best: bool) -> Value {
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    json!({
        "peer": "dbos",
        "version": VERSION,
        "workload": "sequence",
        "config": format!("{connections} connections"),
        "clients": arguments.clients,
        "cases": row.cases(),
        "seconds": row.seconds,
        "steps_per_s": rounded(row.steps_per_s()),
        "p50_ms": rounded(row.percentile_ms(50)),
        "p99_ms": rounded(row.percentile_ms(99)),
        "load_average": load_average(),
        "best": is_best,
    })
}

fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }
}
