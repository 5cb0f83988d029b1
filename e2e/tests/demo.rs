//! `legwork demo`: three sites run for a moment.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use legwork_e2e::{Folder, legwork};
use serde_json::Value as Json;

#[test]
fn three_sites_work_by_themselves_and_cases_move() -> Result<()> {
    let folder = Folder::new()?;
    let args = ["demo", "--for", "8s", "--every", "1s", "--json"];
    let said = legwork(folder.path(), &args)?.succeeded()?;
    let boards: Vec<Json> = said.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let last = boards.last().context("it said nothing")?;
    let sites = last["sites"].as_array().context("no sites")?;
    ensure!(sites.len() == 3, "{last}");
    ensure!(last["started"].as_u64() > Some(1), "nobody came: {last}");
    let sent: u64 = sites.iter().filter_map(|site| site["entries_sent"].as_u64()).sum();
    ensure!(sent > 0, "nothing moved: {last}");
    each_case_counts_once(&boards)?;
    let columns = columns(&boards);
    let is_moved = |seen: &BTreeSet<&str>| seen.contains("clinic") && seen.contains("imaging");
    ensure!(columns.values().any(is_moved), "no case changed its column: {columns:?}");
    Ok(())
}

/// Once per case, however many sites have a part in it. A case that is just being started is counted and
/// has no line yet.
fn each_case_counts_once(boards: &[Json]) -> Result<()> {
    let mut is_exact = false;
    for board in boards {
        let cases = board["cases"].as_array().context("no cases")?;
        for name in ["instance", "patient"] {
            let all: BTreeSet<String> = cases.iter().map(|case| case[name].to_string()).collect();
            ensure!(all.len() == cases.len(), "a case has two lines: {board}");
        }
        let count = |name: &str| board[name].as_u64().context("no count");
        let (started, known) = (count("started")?, count("ended")? + cases.len() as u64);
        ensure!(known <= started, "a case counts twice: {board}");
        is_exact |= !cases.is_empty() && known == started;
    }
    ensure!(is_exact, "cases are missing: {boards:#?}");
    Ok(())
}

/// The columns in which each case was shown.
fn columns(boards: &[Json]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut columns: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let cases = boards.iter().filter_map(|board| board["cases"].as_array()).flatten();
    for case in cases {
        let Some(instance) = case["instance"].as_str() else { continue };
        let open = case["open"].as_array().into_iter().flatten();
        let sites = open.filter_map(|open| open["site"].as_str());
        columns.entry(instance).or_default().extend(sites);
    }
    columns
}
