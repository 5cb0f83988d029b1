//! Rules that a compiler does not check.
//!
//! Each test names the files that break a rule and the remedy.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Command;

const LINES_MAX: usize = 600;
const PROSE_CHARS_MAX: usize = 100;

#[test]
fn every_file_opens_with_its_purpose() {
    let silent: Vec<_> = rust_files()
        .into_iter()
        .filter(|path| !read(path).starts_with("//! "))
        .map(|path| path.display().to_string())
        .collect();
    assert!(silent.is_empty(), "begin with `//!` and one sentence of purpose: {silent:#?}");
}

#[test]
fn no_file_outgrows_its_purpose() {
    let long: Vec<_> = rust_files()
        .into_iter()
        .map(|path| (read(&path).lines().count(), path.display().to_string()))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .collect();
    assert!(long.is_empty(), "split these by purpose (at most {LINES_MAX} lines): {long:#?}");
}

#[test]
fn pure_crates_read_no_clock_and_draw_no_numbers() {
    let forbidden = [
        "SystemTime::now",
        "Instant::now",
        "Timestamp::now",
        "Zoned::now",
        "getrandom",
        "rand::",
        "tokio",
        "std::fs",
        "TcpStream",
        "TcpListener",
        "UdpSocket",
        "ToSocketAddrs",
    ];
    refuse(&forbidden, is_pure);
}

#[test]
fn nothing_is_left_unfinished() {
    let forbidden =
        ["todo!(", "unimplemented!(", "FIXME", "XXX", "#[ignore", "not yet implemented"];
    refuse(&forbidden, |path| !path.starts_with("xtask/tests/"));
}

#[test]
fn hash_order_never_decides_in_pure_crates() {
    refuse(&["collections::HashMap", "collections::HashSet"], is_pure);
}

#[test]
fn documents_link_to_files_that_are_there() {
    let broken: Vec<String> = tracked(&["*.md"])
        .iter()
        .flat_map(|path| {
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            links(&read(path))
                .filter(|link| !link.contains("://") && !link.starts_with('#'))
                .filter(|link| {
                    let target = link.split('#').next().unwrap_or_default();
                    !root().join(&folder).join(target).exists()
                })
                .map(|link| format!("{}: {link}", path.display()))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(broken.is_empty(), "these links lead nowhere: {broken:#?}");
}

#[test]
fn no_line_of_prose_is_wider_than_a_screen() {
    let wide: Vec<String> = tracked(&["README.md", "CHANGELOG.md", "docs/guide/*.md"])
        .iter()
        .flat_map(|path| {
            let text = read(path);
            let wide: Vec<String> = prose(&text)
                .filter(|(_, line)| line.chars().count() > PROSE_CHARS_MAX)
                .map(|(number, line)| format!("{}:{number}: {line}", path.display()))
                .collect();
            wide
        })
        .collect();
    assert!(wide.is_empty(), "wrap these at {PROSE_CHARS_MAX} characters: {wide:#?}");
}

/// Lines with their numbers, without blocks of code and without tables.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().zip(1..).filter_map(move |(line, number)| {
        let start = line.trim_start();
        let is_fence = start.starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence && !start.starts_with('|')).then_some((number, line))
    })
}

/// Targets of Markdown links.
fn links(text: &str) -> impl Iterator<Item = String> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned)
}

/// Whether a file is in the pure half, without I/O.
fn is_pure(path: &str) -> bool {
    let pure = ["model", "engine", "mail", "org", "placement", "plan", "schedule", "site"];
    pure.iter().any(|name| path.starts_with(&format!("crates/{name}/src/")))
}

fn refuse(words: &[&str], concerns: impl Fn(&str) -> bool) {
    let found: Vec<String> = rust_files()
        .iter()
        .filter(|path| concerns(&path.display().to_string()))
        .flat_map(|path| {
            let text = read(path);
            let lines: Vec<String> = text
                .lines()
                .enumerate()
                .filter(|(_, line)| words.iter().any(|word| line.contains(word)))
                .map(|(number, line)| format!("{}:{}: {line}", path.display(), number + 1))
                .collect();
            lines
        })
        .collect();
    assert!(found.is_empty(), "these do not belong here: {found:#?}");
}

fn rust_files() -> Vec<PathBuf> {
    tracked(&["*.rs"])
}

fn tracked(patterns: &[&str]) -> Vec<PathBuf> {
    let output =
        Command::new("git").arg("ls-files").args(patterns).current_dir(root()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // Without files every rule would hold.
    assert!(output.status.success(), "git lists no files: {said}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.is_empty(), "git knows no files like {patterns:?}");
    text.lines().map(PathBuf::from).filter(|path| root().join(path).exists()).collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
