//! The build profile of distributed programs.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::fs;
use std::path::Path;

/// The lines of a section of the workspace's manifest.
fn section(name: &str) -> Vec<String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let text = fs::read_to_string(manifest).unwrap();
    let lines = text.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
    lines.take_while(|line| !line.starts_with('[')).map(str::to_owned).collect()
}

#[test]
fn releases_are_stripped_and_their_debug_info_is_kept_apart() {
    assert!(section("profile.release").contains(&"strip = true".to_owned()));
    let dist = section("profile.dist");
    for line in ["inherits = \"release\"", "debug = \"line-tables-only\"", "strip = false"] {
        assert!(dist.contains(&line.to_owned()), "{line} in {dist:?}");
    }
}
