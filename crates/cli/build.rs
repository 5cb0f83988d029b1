//! Passes the commit of the build to the program, for `--version` and the metrics.
//!
//! Invariant: without git, in an unpacked archive, the commit is empty and the build succeeds. A
//! release is rebuilt when the commit changes; a debug build never is, and has no commit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The checked-out commit, and the files that change with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CheckedOut {
    pub(crate) commit: String,
    pub(crate) follow: Vec<PathBuf>,
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LEGWORK_COMMIT");
    // Set when an archive is packed.
    let given = env::var("LEGWORK_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(of_release).unwrap_or_default();
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo::rustc-env=LEGWORK_COMMIT={commit}");
    println!("cargo::rustc-env=LEGWORK_VERSION={}", named(&version, &commit));
}

/// The text of `--version`.
pub(crate) fn named(version: &str, commit: &str) -> String {
    if commit.is_empty() { version.to_owned() } else { format!("{version} ({commit})") }
}

fn of_release() -> Option<String> {
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        return None;
    }
    let folder = env::var("CARGO_MANIFEST_DIR").ok()?;
    let found = checked_out(&Path::new(&folder).join("../.."))?;
    for path in &found.follow {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    Some(found.commit)
}

/// The commit checked out in this folder. An archive may have been unpacked inside another
/// repository, which does not count.
pub(crate) fn checked_out(root: &Path) -> Option<CheckedOut> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    let top = fs::canonicalize(git(&["rev-parse", "--show-toplevel"])?).ok()?;
    if top != fs::canonicalize(root).ok()? {
        return None;
    }
    // The log of `HEAD` grows with every commit and every change of branch. A missing file must not
    // be followed: it would count as changed every time.
    let follow = ["HEAD", "logs/HEAD"].into_iter().filter_map(|name| {
        let path = root.join(git(&["rev-parse", "--git-path", name])?);
        path.exists().then_some(path)
    });
    let follow = follow.collect();
    Some(CheckedOut { commit: git(&["rev-parse", "--short=12", "HEAD"])?, follow })
}
