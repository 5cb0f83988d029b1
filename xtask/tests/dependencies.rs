//! External dependencies: allowed licences, and that each one is used.
//!
//! A new licence is a decision, not an accident.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;

/// Permissive, and in use. None of them requires more than a notice from users of Legwork.
const WELCOME: [&str; 10] = [
    "0BSD",
    "Apache-2.0",
    "BSD-3-Clause",
    "BSL-1.0",
    "BlueOak-1.0.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

#[test]
fn every_dependency_has_a_licence_that_is_welcome() {
    let licences = licences();
    let strangers: Vec<String> = licences
        .iter()
        .filter(|(_, licence)| !is_welcome(licence))
        .map(|(name, licence)| format!("{name}: {licence}"))
        .collect();
    assert!(strangers.is_empty(), "do without these, or decide to welcome them: {strangers:#?}");
    let unused: Vec<&str> = WELCOME
        .into_iter()
        .filter(|welcome| {
            !licences.iter().any(|(_, licence)| words(licence).any(|w| w == *welcome))
        })
        .collect();
    assert!(unused.is_empty(), "nobody has these licences any more: {unused:?}");
}

#[test]
fn licences_are_read_as_they_are_written() {
    for (licence, welcome) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("GPL-3.0-only OR MIT", true),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(GPL-3.0-only OR Apache-2.0) AND MIT", true),
        ("MIT AND GPL-3.0-only", false),
        ("(MIT OR Apache-2.0) AND GPL-3.0-only", false),
        ("Apache-2.0 WITH LLVM-exception", false),
        ("AGPL-3.0-only", false),
        ("", false),
    ] {
        assert_eq!(is_welcome(licence), welcome, "{licence}");
    }
}

#[test]
fn every_dependency_of_the_workspace_is_used_by_a_member() {
    let manifests = manifests();
    let unused: Vec<String> = workspace_dependencies()
        .into_iter()
        .filter(|name| !manifests.iter().any(|(_, manifest)| invites(manifest, name)))
        .collect();
    assert!(unused.is_empty(), "remove these from the root Cargo.toml: {unused:?}");
}

#[test]
fn every_dependency_of_a_member_is_spoken_of_in_its_code() {
    let unused: Vec<String> = manifests()
        .into_iter()
        .flat_map(|(folder, manifest)| {
            let code = code_below(&folder);
            let names: Vec<String> = dependencies(&manifest)
                .filter(|name| !words_of(&code).any(|word| word == name.replace('-', "_")))
                .map(|name| format!("{}: {name}", folder.display()))
                .collect();
            names
        })
        .collect();
    assert!(unused.is_empty(), "remove these from the Cargo.toml: {unused:#?}");
}

/// One of the alternatives, with each of its parts.
fn is_welcome(licence: &str) -> bool {
    let licence = licence.replace('/', " OR ");
    parts(&licence, " OR ").any(|choice| {
        parts(choice, " AND ").all(|part| match part.strip_prefix('(') {
            Some(inner) => inner.strip_suffix(')').is_some_and(is_welcome),
            None => WELCOME.contains(&part),
        })
    })
}

/// Splits outside of brackets.
fn parts<'t>(text: &'t str, between: &str) -> impl Iterator<Item = &'t str> {
    let (mut depth, mut begin, mut parts) = (0_i32, 0, Vec::new());
    for (place, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 && text[place..].starts_with(between) => {
                parts.push(text[begin..place].trim());
                begin = place + between.len();
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts.into_iter()
}

fn words(licence: &str) -> impl Iterator<Item = &str> {
    licence.split([' ', '/', '(', ')'])
}

/// Names and licences of everything in the build.
fn licences() -> Vec<(String, String)> {
    let host = output("rustc", &["-vV"]);
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let metadata = ["metadata", "--format-version", "1", "--locked", "--offline"];
    let arguments = [&metadata[..], &["--filter-platform", &host]].concat();
    let metadata: Json = serde_json::from_str(&output(&cargo, &arguments)).unwrap();
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    packages.iter().map(|package| (text(&package["name"]), text(&package["license"]))).collect()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn workspace_dependencies() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let section = text.split("[workspace.dependencies]\n").nth(1).unwrap();
    let section = section.split("\n[").next().unwrap();
    let names = section.lines().filter_map(|line| line.split_once(" = "));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// The manifests of the members, with their folders.
fn manifests() -> Vec<(PathBuf, String)> {
    let tracked = output("git", &["ls-files", "*Cargo.toml"]);
    let members =
        tracked.lines().map(Path::new).filter(|path| path.parent() != Some(Path::new("")));
    members
        .filter(|path| !path.starts_with("bench/restate"))
        .map(|path| {
            let text = std::fs::read_to_string(root().join(path)).unwrap();
            (path.parent().unwrap().to_owned(), text)
        })
        .collect()
}

fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let sections = manifest.split("dependencies]\n").skip(1);
    let lines = sections.flat_map(|section| section.split("\n[").next().unwrap().lines());
    lines
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['.', ' ']).next())
        .filter(|name| !name.is_empty())
}

fn code_below(folder: &Path) -> String {
    let files = output("git", &["ls-files", &format!("{}/*.rs", folder.display())]);
    let there = files.lines().map(|path| root().join(path)).filter(|path| path.exists());
    there.map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

fn words_of(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_'))
}

fn invites(manifest: &str, name: &str) -> bool {
    manifest.lines().any(|line| {
        line.strip_prefix(name).is_some_and(|rest| {
            rest.starts_with(".workspace") || rest.starts_with(" = { workspace = true")
        })
    })
}

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
