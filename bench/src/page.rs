//! The figures on `docs/benchmarks.md`, written from `bench/results.jsonl`.
//!
//! Invariant: the newest row of each workload and number of clients is what the page shows, so page
//! and data never disagree; the text outside of the marks is kept.

use anyhow::{Context, Result};
use serde_json::Value as Json;

use crate::guarantee;

const BEGIN: &str = "<!-- figures: written by `cargo xtask bench table` -->\n";
const END: &str = "<!-- end of the figures -->\n";

const BESIDE_HEAD: &str = "\
| workload | clients | steps/s | p50 ms | p99 ms | peer steps/s | peer p99 ms | ratio | goal | commit | load |
|---|---|---|---|---|---|---|---|---|---|---|
";
const ALONE_HEAD: &str = "\
| workload | cases | figure | goal | commit | load |
|---|---|---|---|---|---|
";

/// The page with these results.
pub fn updated(page: &str, results: &str) -> Result<String> {
    let (before, rest) = page.split_once(BEGIN).context("the page has no mark to begin at")?;
    let (_, after) = rest.split_once(END).context("the page has no mark to end at")?;
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", tables(results)?))
}

/// Rows measured beside a peer with steps a second, then all others.
fn tables(results: &str) -> Result<String> {
    let newest = newest(results)?;
    let (beside, alone): (Vec<_>, Vec<_>) =
        newest.iter().partition(|row| row["steps_per_s"].is_number() && row["p99_ms"].is_number());
    let mut text = BESIDE_HEAD.to_owned();
    text.extend(beside.into_iter().map(beside_line));
    text.push('\n');
    text.push_str(ALONE_HEAD);
    text.extend(alone.into_iter().map(alone_line));
    Ok(text)
}

/// The last row of each workload and number of clients, policy and number of executors, kind and
/// number of reservations, in the order of the first.
fn newest(results: &str) -> Result<Vec<Json>> {
    let mut rows: Vec<Json> = Vec::new();
    for (number, line) in results.lines().enumerate() {
        let row: Json = serde_json::from_str(line)
            .with_context(|| format!("line {} of the results is no JSON", number + 1))?;
        if !is_measured(&row) {
            continue;
        }
        let key = |row: &Json| {
            let names =
                ["workload", "clients", "policy", "executors", "limit", "kind", "reservations"];
            // Rows without a limit have one number of servers.
            let servers = row["limit"].as_u64().and(row["servers"].as_u64());
            (names.map(|name| row[name].clone()), servers)
        };
        match rows.iter_mut().find(|other| key(other) == key(&row)) {
            Some(older) => *older = row,
            None => rows.push(row),
        }
    }
    Ok(rows)
}

/// Workloads that are no longer measured are not shown.
fn is_measured(row: &Json) -> bool {
    let is_its = |kind: &guarantee::Kind| row["kind"].as_str() == Some(kind.name);
    row["workload"].as_str() != Some("guarantee") || guarantee::KINDS.iter().any(is_its)
}

fn beside_line(row: &Json) -> String {
    let cells = [
        text(row, "workload"),
        number(&row["clients"], 0),
        number(&row["steps_per_s"], 0),
        number(&row["p50_ms"], 1),
        number(&row["p99_ms"], 1),
        number(&row["peer_steps_per_s"], 0),
        number(&row["peer_p99_ms"], 1),
        number(&row["ratio"], 1),
        goal(row),
        text(row, "commit"),
        number(&row["load_average"], 1),
    ];
    format!("| {} |\n", cells.join(" | "))
}

fn alone_line(row: &Json) -> String {
    let figure = |name: &str, digits, unit: &str| {
        row[name].is_number().then(|| format!("{} {unit}", number(&row[name], digits)))
    };
    let figures = [
        figure("migrations_per_s", 0, "migrations/s"),
        figure("p50_ms", 1, "ms p50"),
        figure("p99_ms", 1, "ms p99"),
        figure("ready_s", 1, "s until ready"),
        figure("seconds", 3, "s").filter(|_| row["pause_ms"].is_number()),
        figure("pause_ms", 1, "ms longest command"),
        figure("pause_before_ms", 1, "ms before"),
        figure("excepted", 0, "exceptions"),
        figure("bytes_moved", 0, "bytes on the wire"),
        figure("disk_bytes_per_case", 0, "bytes a case on disk"),
        figure("steps_per_s", 0, "steps/s"),
        figure("instructions_per_step", 0, "instructions a step"),
        figure("ns_per_lookup", 1, "ns"),
        figure("ns_per_decision", 0, "ns"),
        figure("decisions_per_s", 0, "decisions/s"),
        figure("per_second", 0, "/s"),
        figure("promised_pct", 0, "% promised"),
        figure("tasks_per_s", 0, "tasks/s"),
        figure("limit_tasks_per_s", 0, "tasks/s by HTTP alone"),
        figure("makespan_s", 1, "s"),
        figure("bound_s", 1, "s at least"),
        figure("failures", 0, "failed attempts"),
        figure("acked", 0, "ACK"),
        figure("nacked", 0, "NACK"),
        figure("lost", 0, "lost"),
        figure("doubled", 0, "doubled"),
        figure("rss_mib", 0, "MiB of memory"),
    ];
    let chosen = row["policy"].as_str().zip(row["executors"].as_u64());
    let chosen = chosen.map(|(policy, count)| format!(" {policy} of {count}")).unwrap_or_default();
    let limited = row["limit"].as_u64().zip(row["servers"].as_u64());
    let limited = limited.map(|(limit, servers)| format!(", limit {limit}, {servers} servers"));
    let limited = limited.unwrap_or_default().replace("1 servers", "1 server");
    let asked = row["kind"].as_str().zip(row["reservations"].as_u64());
    let asked = asked.map(|(kind, count)| format!(" {kind} with {count}")).unwrap_or_default();
    let cells = [
        text(row, "workload") + &chosen + &limited + &asked,
        number(&row["cases"], 0),
        figures.into_iter().flatten().collect::<Vec<_>>().join(", "),
        goal(row),
        text(row, "commit"),
        number(&row["load_average"], 1),
    ];
    format!("| {} |\n", cells.join(" | "))
}

/// The goal, whether it was met, and the note of the run.
fn goal(row: &Json) -> String {
    let verdict = match (row["goal"].as_str(), row["met"].as_bool()) {
        (Some(goal), Some(true)) => format!("{goal}: met"),
        (Some(goal), Some(false)) => format!("{goal}: **missed**"),
        (Some(goal), None) => format!("{goal}: not measured"),
        (None, _) => String::new(),
    };
    let note = row["note"].as_str().map(|note| format!("({note})"));
    [Some(verdict), note]
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn text(row: &Json, name: &str) -> String {
    row[name].as_str().unwrap_or_default().to_owned()
}

/// With thousands separators.
fn number(value: &Json, digits: usize) -> String {
    let Some(value) = value.as_f64() else { return "-".to_owned() };
    let plain = format!("{value:.digits$}");
    let (whole, rest) = plain.split_once('.').map_or((&*plain, None), |(a, b)| (a, Some(b)));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    rest.map_or(grouped.clone(), |rest| format!("{grouped}.{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::repository;

    #[test]
    fn the_page_shows_the_newest_figures() {
        let read = |path: &str| std::fs::read_to_string(repository().join(path)).unwrap();
        let page = read("docs/benchmarks.md");
        let updated = updated(&page, &read("bench/results.jsonl")).unwrap();
        assert!(page == updated, "run `cargo xtask bench table` and commit docs/benchmarks.md");
    }

    #[test]
    fn the_newest_row_counts_and_the_rest_of_the_page_is_left_alone() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        let results = r#"
{"workload":"sequence","clients":1,"cases":5,"steps_per_s":10.0,"p50_ms":1.0,"p99_ms":2.0,"commit":"a","load_average":1.0}
{"workload":"restart","cases":1000000,"ready_s":3.59,"rss_mib":429.5,"goal":"20 s","met":true,"commit":"b","load_average":0.56}
{"workload":"sequence","clients":1,"cases":5,"steps_per_s":53900.0,"p50_ms":1.0,"p99_ms":80.02,"peer_steps_per_s":10579.0,"peer_p99_ms":99.9,"ratio":5.09,"goal":"5 times","met":false,"note":"busy","commit":"c","load_average":1.93}
"#;
        let updated = updated(&page, results.trim()).unwrap();
        let expected = format!(
            "before\n{BEGIN}\n{BESIDE_HEAD}\
             | sequence | 1 | 53,900 | 1.0 | 80.0 | 10,579 | 99.9 | 5.1 | 5 times: **missed** (busy) | c | 1.9 |\n\
             \n{ALONE_HEAD}\
             | restart | 1,000,000 | 3.6 s until ready, 430 MiB of memory | 20 s: met | b | 0.6 |\n\
             \n{END}after\n"
        );
        assert_eq!(updated, expected);
    }
}
