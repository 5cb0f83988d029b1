//! `legwork compact`: rewrites a store that no server uses into its smallest form.
//!
//! Invariant: nothing is made where there is no store, and a store in use is refused.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, ensure};
use legwork_store::Error;
use legwork_store::embedded::Embedded;
use serde_json::json;

use crate::output::Output;
use crate::progress::Spinner;
use crate::style::{GOOD, STRONG, paint};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder of the store
    #[arg(long, env = "LEGWORK_DATA", value_name = "DIR", default_value = ".legwork")]
    data: PathBuf,
}

pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let shown = args.data.display();
    // Opening would create a store.
    ensure!(
        args.data.join("FORMAT").is_file(),
        "there is no store in {shown}; name the folder of one with --data"
    );
    let mut spinner = Spinner::default();
    spinner.say("compacting");
    let store = Embedded::open(&args.data).map_err(named)?;
    let occupied = || -> Result<u64> {
        let used = store.disk_use().context("cannot tell the size of the store")?;
        Ok(used.tables + used.journals + used.blobs)
    };
    let before = occupied()?;
    store.compact()?;
    let after = occupied()?;
    spinner.stop();
    let document = json!({"data": args.data, "bytes_before": before, "bytes": after});
    out.answer(&document, || said(&paint(STRONG, shown), before, after))
}

/// The error without the hint for starting servers.
fn named(error: Error) -> anyhow::Error {
    if let Error::Locked { path } = &error {
        let shown = path.display();
        return anyhow!("the store at {shown} is in use by another process; stop that server");
    }
    error.into()
}

fn said(data: &str, before: u64, after: u64) -> String {
    let mark = paint(GOOD, "✔");
    // Each table takes at least a block of the disk, and a journal becomes several tables.
    if after >= before {
        return format!("{mark} nothing to gain in {data}: {before} bytes before, {after} now\n");
    }
    format!("{mark} compacted {data}: {before} bytes before, {after} now\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_in_use_is_let_alone() {
        let dir = tempfile::tempdir().unwrap();
        let held = Embedded::open(dir.path()).unwrap();
        let args = Args { data: dir.path().to_owned() };
        let said = run(&args, Output { json: false }).unwrap_err().to_string();
        assert!(said.ends_with("in use by another process; stop that server"), "{said}");
        drop(held);
    }

    #[test]
    fn where_there_was_nothing_to_gain_nothing_is_called_compacted() {
        let told =
            |before, after| anstream::adapter::strip_str(&said("d", before, after)).to_string();
        assert_eq!(told(81_920, 49_152), "✔ compacted d: 81920 bytes before, 49152 now\n");
        assert_eq!(told(49_152, 69_632), "✔ nothing to gain in d: 49152 bytes before, 69632 now\n");
    }
}
