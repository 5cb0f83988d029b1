//! `legwork demo`: three sites at work for a moment.

use anyhow::{Context, Result, ensure};
use legwork_e2e::{Folder, legwork};
use serde_json::Value as Json;

#[test]
fn three_sites_work_by_themselves_and_cases_move() -> Result<()> {
    let folder = Folder::new()?;
    let args = ["demo", "--for", "6s", "--every", "2s", "--json"];
    let said = legwork(folder.path(), &args)?.succeeded()?;
    let last: Json = serde_json::from_str(said.lines().last().context("it said nothing")?)?;
    let sites = last["sites"].as_array().context("no sites")?;
    ensure!(sites.len() == 3, "{last}");
    ensure!(last["started"].as_u64() > Some(1), "nobody came: {last}");
    let sent: u64 = sites.iter().filter_map(|site| site["entries_sent"].as_u64()).sum();
    ensure!(sent > 0, "nothing moved: {last}");
    Ok(())
}
