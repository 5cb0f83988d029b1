//! Tools that a fresh Debian machine with Rust lacks: installed if possible, otherwise named.
//!
//! Invariant: existing tools are not touched, and a failure says what to type next.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

/// A required command and its Debian package.
type Tool = (&'static str, &'static str);

/// For all tests. `mount` gives a test a disk that can be filled, `ip` gives sites a network of their
/// own, `postgres` is started privately by each test, `python3` runs the tests of the executor in Python;
/// `kill` is a shell builtin.
const TOOLS: [Tool; 7] = [
    ("git", "git"),
    ("cc", "build-essential"),
    ("bash", "bash"),
    ("mount", "mount"),
    ("ip", "iproute2"),
    ("postgres", "postgresql"),
    ("python3", "python3"),
];
/// Where Debian puts programs outside of the path, with a folder for each version.
const VERSIONED: &str = "/usr/lib/postgresql";
/// Counts the instructions of the engine.
const VALGRIND: Tool = ("valgrind", "valgrind");
/// Brings the peer of the benchmarks.
const NPM: Tool = ("npm", "npm");
/// The parts of a Rust toolchain that its minimal profile lacks: a command of cargo, and its name.
const COMPONENTS: [(&str, &str); 2] = [("fmt", "rustfmt"), ("clippy", "clippy")];

pub(crate) fn tools() -> Result<()> {
    install(&TOOLS)
}

/// The installed toolchain stays; only its missing components are added.
pub(crate) fn components() -> Result<()> {
    let missing: Vec<&str> = COMPONENTS
        .into_iter()
        .filter(|(command, _)| !succeeds(&crate::cargo_program(), &[command, "--version"]))
        .map(|(_, name)| name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("installing {}", missing.join(", "));
    let mut arguments = vec!["component", "add"];
    arguments.extend(&missing);
    if !succeeds("rustup", &arguments) {
        let names = missing.join(" ");
        bail!(
            "{names} cannot be installed; run `rustup component add {names}`, or install the \
             packages of your system that bring `cargo fmt` and `cargo clippy`, and try again"
        );
    }
    Ok(())
}

/// The tools that the benchmark of these arguments needs in addition.
pub(crate) fn benchmark(arguments: &[String]) -> Result<()> {
    install(&needed(arguments))
}

fn needed(arguments: &[String]) -> Vec<Tool> {
    let alone = arguments.iter().any(|argument| argument == "--no-peer");
    let help = arguments.iter().any(|argument| ["--help", "-h"].contains(&argument.as_str()));
    let peer = if alone { None } else { Some(NPM) };
    match arguments.first().map(String::as_str) {
        Some(_) if help => Vec::new(),
        Some("engine") => vec![VALGRIND],
        Some("sequence" | "fanout" | "waiting") => peer.into_iter().collect(),
        Some("all") => [VALGRIND].into_iter().chain(peer).collect(),
        Some(_) | None => Vec::new(),
    }
}

fn install(tools: &[Tool]) -> Result<()> {
    let missing: Vec<&str> =
        tools.iter().filter(|(tool, _)| !exists(tool)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("installing {}", missing.join(", "));
    // Without an answer from the archive the packages may still be in the cache.
    succeeds("apt-get", &["update", "-q"]);
    let mut arguments = vec!["install", "-y", "-q", "--no-install-recommends"];
    arguments.extend(&missing);
    if !succeeds("apt-get", &arguments) {
        let names = missing.join(" ");
        bail!(
            "{names} cannot be installed from here; run `apt-get install {names}` as root, or \
             install what your system has in its place, and try again"
        );
    }
    Ok(())
}

/// Runs a program without its output; a missing program does not succeed.
fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn exists(tool: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir(VERSIONED).into_iter().flatten().flatten();
    let versions = versions.map(|version| version.path().join("bin"));
    std::env::split_paths(&paths).chain(versions).any(|folder| folder.join(tool).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_benchmark_asks_only_for_what_it_needs() {
        let check = |line: &str, tools: &[Tool]| {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(needed(&arguments), tools, "{line}");
        };
        check("engine --json", &[VALGRIND]);
        check("sequence --json", &[NPM]);
        check("waiting --no-peer", &[]);
        check("all", &[VALGRIND, NPM]);
        check("all --no-peer", &[VALGRIND]);
        check("all --help", &[]);
        check("restart", &[]);
        check("crash --kills 5", &[]);
        check("", &[]);
    }
}
