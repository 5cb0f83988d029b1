//! The results of the build script, in test repositories.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a wrong assumption is a failed test"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

#[path = "../build.rs"]
#[allow(dead_code, reason = "cargo runs the rest of it")]
mod build;

fn git(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=n", "-c", "user.email=e@x"]).args(arguments);
    let output = command.current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_checkout_tells_its_commit_and_an_archive_within_another_repository_tells_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    assert_eq!(build::checked_out(root), None, "no repository");
    git(root, &["init", "--quiet"]);
    git(root, &["commit", "--quiet", "--allow-empty", "--message", "one"]);
    let archive = root.join("archive");
    fs::create_dir_all(&archive).unwrap();
    assert_eq!(build::checked_out(&archive), None);
    let found = build::checked_out(root).unwrap();
    assert_eq!(found.commit.len(), 12);
    assert!(found.commit.chars().all(|c| c.is_ascii_hexdigit()), "{found:?}");
    // A missing file would count as changed at every build.
    assert!(found.follow.len() == 2 && found.follow.iter().all(|path| path.exists()), "{found:?}");
    assert_eq!(build::named("1.2.3", &found.commit), format!("1.2.3 ({})", found.commit));
    assert_eq!(build::named("1.2.3", ""), "1.2.3", "an archive");
    let before = fs::read(&found.follow[1]).unwrap();
    git(root, &["commit", "--quiet", "--allow-empty", "--message", "two"]);
    assert_ne!(fs::read(&found.follow[1]).unwrap(), before, "it shows a new commit");
    assert_ne!(build::checked_out(root).unwrap().commit, found.commit);
}
