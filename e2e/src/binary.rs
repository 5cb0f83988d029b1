//! Finds the binaries that tests start, after cargo has built them from the current sources.
//!
//! Invariant: tests never run against a binary that is older than the code.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

/// Names a binary to use without building.
pub const BINARY_VARIABLE: &str = "LEGWORK_BIN";

/// With a target that has the dependencies of tests, cargo uses the results of `cargo test
/// --workspace`; any other choice would rebuild the server, with other features.
const BUILD: [&str; 9] = [
    "build",
    "--quiet",
    "--workspace",
    "--bin",
    "legwork",
    "--bin",
    "legwork-bench",
    "--example",
    "speed",
];

/// The path of the binary.
pub fn legwork() -> Result<&'static Path> {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = FOUND.get() {
        return Ok(path);
    }
    let path = find()?;
    Ok(FOUND.get_or_init(|| path))
}

/// The executor program with a ledger.
pub fn executor() -> Result<&'static Path> {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = FOUND.get() {
        return Ok(path);
    }
    let profile = profile()?;
    build(&profile)?;
    let path = profile.join(format!("legwork-bench{}", std::env::consts::EXE_SUFFIX));
    ensure!(path.is_file(), "cargo built no {}", path.display());
    Ok(FOUND.get_or_init(|| path))
}

/// The top of the repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn find() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(BINARY_VARIABLE) {
        let path = PathBuf::from(path);
        ensure!(path.is_file(), "{BINARY_VARIABLE} names {}, which is no file", path.display());
        return Ok(path);
    }
    let profile = profile()?;
    build(&profile)?;
    let binary = profile.join(format!("legwork{}", std::env::consts::EXE_SUFFIX));
    ensure!(binary.is_file(), "cargo built no {}", binary.display());
    Ok(binary)
}

/// A test is in target/PROFILE/deps, the binaries in target/PROFILE.
fn profile() -> Result<PathBuf> {
    let test = std::env::current_exe().context("where is this test?")?;
    let profile = test
        .ancestors()
        .find(|folder| folder.file_name().is_some_and(|name| name == "deps"))
        .and_then(Path::parent);
    Ok(profile.context("this test does not lie in a target folder")?.to_path_buf())
}

fn build(profile: &Path) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let name = match profile.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let target = profile.parent().context("the target folder has no parent")?;
    let built = Command::new(cargo)
        .args(BUILD)
        .args(["--profile", name, "--target-dir"])
        .arg(target)
        .current_dir(repository())
        .output()
        .context("cannot run cargo")?;
    let error = String::from_utf8_lossy(&built.stderr);
    ensure!(built.status.success(), "cargo cannot build legwork:\n{error}");
    Ok(())
}
