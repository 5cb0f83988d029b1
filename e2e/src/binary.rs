//! Finds the `legwork` binary that belongs to the sources, and builds it if it does not.
//!
//! Invariant: tests never run against a binary that is older than the code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

/// Names a binary to use as it is.
pub const BINARY_VARIABLE: &str = "LEGWORK_BIN";

/// The crates that the binary is made of.
const CRATES: [&str; 8] = ["api", "cli", "engine", "model", "org", "server", "site", "store"];

/// The path of the binary.
pub fn legwork() -> Result<&'static Path> {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = FOUND.get() {
        return Ok(path);
    }
    let path = find()?;
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
    // A test lies in target/PROFILE/deps, the binary in target/PROFILE.
    let test = std::env::current_exe().context("where is this test?")?;
    let profile = test
        .ancestors()
        .find(|folder| folder.file_name().is_some_and(|name| name == "deps"))
        .and_then(Path::parent)
        .context("this test does not lie in a target folder")?;
    let binary = profile.join(format!("legwork{}", std::env::consts::EXE_SUFFIX));
    if !is_fresh(&binary) {
        build(profile)?;
    }
    ensure!(binary.is_file(), "cargo built no {}", binary.display());
    Ok(binary)
}

fn build(profile: &Path) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let name = match profile.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let target = profile.parent().context("the target folder has no parent")?;
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "legwork-cli", "--profile", name, "--target-dir"])
        .arg(target)
        .current_dir(repository())
        .output()
        .context("cannot run cargo")?;
    let error = String::from_utf8_lossy(&built.stderr);
    ensure!(built.status.success(), "cargo cannot build legwork:\n{error}");
    Ok(())
}

fn is_fresh(binary: &Path) -> bool {
    let Some(built) = modified(binary) else { return false };
    CRATES.iter().all(|name| {
        let folder = repository().join("crates").join(name);
        modified(&folder.join("Cargo.toml")).is_some_and(|time| time < built)
            && newest(&folder.join("src")).is_some_and(|time| time < built)
    })
}

fn newest(folder: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    entries
        .filter_map(|entry| {
            let path = entry.path();
            if path.is_dir() { newest(&path) } else { modified(&path) }
        })
        .max()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}
