//! The dependencies between crates, as Cargo sees them.
//!
//! Only listed dependencies are allowed: a new arrow, or a new external dependency of a pure crate,
//! is a decision, not an accident.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The workspace crates, and their allowed dependencies on each other.
const ARROWS: [(&str, &[&str]); 19] = [
    ("legwork-model", &[]),
    ("legwork-engine", &["legwork-model"]),
    ("legwork-mail", &["legwork-model"]),
    ("legwork-org", &["legwork-model"]),
    ("legwork-placement", &["legwork-model"]),
    ("legwork-schedule", &["legwork-model"]),
    ("legwork-plan", &["legwork-model"]),
    (
        "legwork-site",
        &[
            "legwork-model",
            "legwork-engine",
            "legwork-mail",
            "legwork-org",
            "legwork-placement",
            "legwork-plan",
            "legwork-schedule",
        ],
    ),
    ("legwork-store", &["legwork-model", TESTBED]),
    ("legwork-api", &["legwork-model"]),
    ("legwork-executor", &["legwork-api", "legwork-model"]),
    (
        "legwork-server",
        &[
            "legwork-mail",
            "legwork-model",
            "legwork-org",
            "legwork-placement",
            "legwork-site",
            "legwork-store",
            "legwork-api",
            TESTBED,
        ],
    ),
    (
        "legwork-cli",
        &[
            "legwork-mail",
            "legwork-model",
            "legwork-org",
            "legwork-placement",
            "legwork-store",
            "legwork-api",
            "legwork-server",
        ],
    ),
    (
        "legwork-sim",
        &[
            "legwork-model",
            "legwork-engine",
            "legwork-org",
            "legwork-placement",
            "legwork-site",
            "legwork-store",
        ],
    ),
    (
        "legwork-experiments",
        &[
            "legwork-model",
            "legwork-placement",
            "legwork-plan",
            "legwork-schedule",
            "legwork-site",
            "legwork-sim",
            "legwork-api",
            "legwork-server",
            TESTBED,
        ],
    ),
    ("legwork-e2e", &["legwork-api", "legwork-executor", "legwork-model", TESTBED]),
    (
        "legwork-bench",
        &[
            "legwork-api",
            "legwork-executor",
            "legwork-model",
            "legwork-engine",
            "legwork-placement",
            "legwork-plan",
            "legwork-schedule",
            TESTBED,
        ],
    ),
    (TESTBED, &[]),
    ("xtask", &[]),
];

/// Starts databases and executors; shipped programs must not use it.
const TESTBED: &str = "legwork-testbed";

/// The allowed external dependencies of a pure crate: no runtime, no clock, no randomness, no files.
const PURE: [(&str, &[&str]); 8] = [
    (
        "legwork-model",
        &[
            "cel",
            "chrono",
            "jiff",
            "minicbor",
            "proptest",
            "rust_decimal",
            "saphyr-parser",
            "serde_json",
            "thiserror",
        ],
    ),
    ("legwork-engine", &["minicbor", "serde_json", "thiserror"]),
    ("legwork-mail", &["base64", "ring", "thiserror"]),
    (
        "legwork-org",
        &["jiff", "minicbor", "rustc-hash", "saphyr-parser", "serde_json", "thiserror"],
    ),
    ("legwork-placement", &["serde_json", "thiserror"]),
    ("legwork-schedule", &[]),
    ("legwork-plan", &["minicbor"]),
    ("legwork-site", &["minicbor", "rustc-hash", "serde_json", "thiserror"]),
];

/// The further dependencies of a pure crate's tests: still without a clock or a socket.
const PURE_TESTS: [&str; 3] = ["insta", "jsonschema", "proptest"];

#[test]
fn crates_depend_only_along_the_arrows() {
    // Tests and build scripts follow the arrows too: the crate would soon follow its tests.
    let dependencies = dependencies(&[None, Some("dev"), Some("build")]);
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    for (package, used) in &dependencies {
        let allowed = arrows
            .get(package.as_str())
            .unwrap_or_else(|| panic!("{package} is new: give it a place in ARROWS"));
        let ours = used.iter().filter(|name| name.starts_with("legwork-"));
        // A crate may depend on itself in its tests, for a feature.
        for name in ours.filter(|name| *name != package) {
            assert!(allowed.contains(&name.as_str()), "{package} must not use {name}");
        }
    }
}

#[test]
fn pure_crates_have_no_guests_but_those_invited() {
    let (normal, tests) = (dependencies(&[None]), dependencies(&[Some("dev")]));
    for (package, invited) in PURE {
        let is_welcome = |name: &str| name.starts_with("legwork-") || invited.contains(&name);
        for name in &normal[package] {
            assert!(is_welcome(name), "{package} must not use {name} without a decision record");
        }
        for name in &tests[package] {
            let welcome = is_welcome(name) || PURE_TESTS.contains(&name.as_str());
            assert!(welcome, "the tests of {package} must not use {name}");
        }
    }
}

#[test]
fn what_is_shipped_starts_no_databases_and_no_executors() {
    let unshipped = ["legwork-e2e", "legwork-bench", "legwork-experiments"];
    for (package, used) in dependencies(&[None]) {
        let is_unshipped = unshipped.contains(&package.as_str());
        assert!(is_unshipped || !used.contains(TESTBED), "{package} must not use {TESTBED}");
    }
}

#[test]
fn nothing_of_ours_runs_while_it_is_built() {
    for (package, used) in dependencies(&[Some("build")]) {
        assert!(used.is_empty(), "{package} has build dependencies: {used:?}");
    }
}

/// Dependencies of these kinds of every workspace member.
fn dependencies(kinds: &[Option<&str>]) -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let used = package["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|dependency| kinds.contains(&dependency["kind"].as_str()))
                .map(|dependency| text(&dependency["name"]))
                .collect();
            (text(&package["name"]), used)
        })
        .collect()
}
