//! Rewrites a store that nobody uses into its smallest form, so that its size can be measured.
//!
//! Invariant: nothing but the store's own `compact` is called; a store in use is refused.
//!
//! `cargo run --release -p legwork-bench --example compact -- DIR`

use std::path::Path;

use anyhow::{Context, Result};
use legwork_store::embedded::Embedded;

fn main() -> Result<()> {
    let dir = std::env::args_os().nth(1).context("usage: compact DIR")?;
    let store = Embedded::open(Path::new(&dir))?;
    store.compact()?;
    Ok(())
}
