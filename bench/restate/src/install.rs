//! Installs the Restate server binary into a cache folder, by its npm package name.
//!
//! Invariant: an existing binary is used as it is, and only a version of the compared series is
//! ever measured.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

const SERIES: &str = "1.7";
const PACKAGE: &str = "@restatedev/restate-server";

/// The peer's executable and its reported version.
pub(crate) struct Installed {
    pub(crate) binary: PathBuf,
    pub(crate) version: String,
}

pub(crate) fn installed(cache: &Path) -> Result<Installed> {
    std::fs::create_dir_all(cache)
        .with_context(|| format!("cannot create the cache folder {}", cache.display()))?;
    let cache = cache.canonicalize()?;
    let binary = binary_in(&cache)?;
    if !binary.is_file() {
        npm_install(&cache)?;
        ensure!(
            binary.is_file(),
            "npm installed {PACKAGE}, but {} is not there; delete the cache folder and try again",
            binary.display()
        );
    }
    let version = version_of(&binary)?;
    ensure!(
        version.starts_with(SERIES) && version[SERIES.len()..].starts_with('.'),
        "the cache holds Restate {version}, not {SERIES}; delete {} and try again",
        cache.join("node_modules").display()
    );
    Ok(Installed { binary, version })
}

/// The npm package is a thin launcher; the executable is in a package for each platform.
fn binary_in(cache: &Path) -> Result<PathBuf> {
    let os = match std::env::consts::OS {
        "linux" => "linux",
        "macos" => "darwin",
        other => bail!("{PACKAGE} has no build for {other}"),
    };
    let arch = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => bail!("{PACKAGE} has no build for {other}"),
    };
    Ok(cache.join("node_modules").join(format!("{PACKAGE}-{os}-{arch}")).join("bin/restate-server"))
}

fn npm_install(cache: &Path) -> Result<()> {
    eprintln!("installing {PACKAGE}@{SERIES} into {}", cache.display());
    let status = Command::new("npm")
        .arg("install")
        .arg("--prefix")
        .arg(cache)
        // The only script in the package's tree reports the installation to a tracker.
        .args(["--ignore-scripts", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"])
        .arg(format!("{PACKAGE}@{SERIES}"))
        .stdin(Stdio::null())
        // Standard output belongs to the figures.
        .stdout(Stdio::null())
        .status()
        .context("cannot run npm; run `apt-get install npm` as root, or install Node.js, and try again")?;
    ensure!(status.success(), "npm install {PACKAGE}@{SERIES} failed: {status}");
    Ok(())
}

fn version_of(binary: &Path) -> Result<String> {
    let output = Command::new(binary)
        .arg("--version")
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", binary.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_whitespace().nth(1).map(str::to_owned);
    version.with_context(|| format!("{} --version said {text:?}", binary.display()))
}
