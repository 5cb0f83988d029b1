//! Paths: the repository, the target folder, the server's binary, the data folder.
//!
//! Invariant: the measured binary is the one built next to this program, never one from the path.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};

/// Names a binary to use instead of the one beside this program.
pub const BINARY_VARIABLE: &str = "LEGWORK_BIN";

/// The paths of a measurement.
#[derive(Clone, Debug)]
pub struct Place {
    /// The server.
    pub binary: PathBuf,
    /// The parent of all servers' directories, the peer's included, on one file system.
    pub data: PathBuf,
    pub target: PathBuf,
    /// `target/PROFILE`, the folder of this program.
    profile: PathBuf,
    /// Everything that a test starts is built already.
    built: bool,
}

/// The packages that tests start. With a target that has the dependencies of tests, cargo uses the
/// results of `cargo test --workspace`; any other choice would rebuild the server, with other
/// features.
const FOR_TESTS: [&str; 5] = ["--workspace", "--bin", "legwork", "--example", "speed"];

impl Place {
    /// With data in `data`, or in the target folder: that one is on a disk, unlike many a temporary
    /// folder.
    pub fn find(data: Option<PathBuf>) -> Result<Self> {
        let profile = profile_folder()?;
        let target = profile.parent().context("the target folder has no parent")?.to_path_buf();
        let binary = match std::env::var_os(BINARY_VARIABLE) {
            Some(path) => PathBuf::from(path),
            None => binary_in(&profile),
        };
        ensure!(
            binary.is_file(),
            "there is no {}; build it with `cargo build --release -p legwork-cli`",
            binary.display()
        );
        let data = data.unwrap_or_else(|| target.join("bench-data"));
        std::fs::create_dir_all(&data)
            .with_context(|| format!("cannot create {}", data.display()))?;
        // A server runs in another folder: relative paths would mislead it.
        let absolute = |path: PathBuf| {
            path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
        };
        let (binary, data) = (absolute(binary)?, absolute(data)?);
        Ok(Self { binary, data, target, profile, built: false })
    }

    /// Like `find`, but builds the server first; for tests.
    pub fn built() -> Result<Self> {
        if std::env::var_os(BINARY_VARIABLE).is_some() {
            return Self::find(None);
        }
        static BUILT: Mutex<bool> = Mutex::new(false);
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if !*built {
            build(&profile_folder()?, &FOR_TESTS)?;
            *built = true;
        }
        Ok(Self { built: true, ..Self::find(None)? })
    }

    /// This program: it can also be an executor.
    pub fn program(&self) -> PathBuf {
        self.profile.join(format!("legwork-bench{}", std::env::consts::EXE_SUFFIX))
    }

    /// Builds an example of a workspace package, optimised like this program; returns its path.
    pub fn example(&self, package: &str, name: &str) -> Result<PathBuf> {
        let program = self.profile.join("examples").join(name);
        if !self.built {
            build(&self.profile, &["--package", package, "--example", name])?;
        }
        Ok(program)
    }
}

/// The top of the repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Runs cargo in the repository; its progress goes to standard error.
pub fn cargo(arguments: &[&str], target: &Path) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo)
        .args(arguments)
        .args(["--quiet", "--target-dir"])
        .arg(target)
        .current_dir(repository())
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(())
}

/// Builds something into `target/PROFILE`.
fn build(profile: &Path, what: &[&str]) -> Result<()> {
    let name = match profile.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let target = profile.parent().context("the target folder has no parent")?;
    cargo(&[&["build", "--profile", name], what].concat(), target)
}

/// `target/PROFILE`; tests are one folder below it.
fn profile_folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("where is this program?")?;
    let folder = program.parent().context("this program lies nowhere")?;
    let in_deps = folder.file_name().is_some_and(|name| name == "deps");
    let profile = if in_deps { folder.parent() } else { Some(folder) };
    Ok(profile.context("this program does not lie in a target folder")?.to_path_buf())
}

fn binary_in(profile: &Path) -> PathBuf {
    profile.join(format!("legwork{}", std::env::consts::EXE_SUFFIX))
}
