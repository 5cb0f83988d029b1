//! `cargo xtask dist`: the program for distribution, with its debug info in a separate file.
//!
//! Invariant: both come from one link, so that addresses match.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Built with this profile, the program still has everything that is stripped from releases.
const PROFILE: &str = "dist";

pub(crate) fn run() -> Result<()> {
    super::cargo(&["build", "--profile", PROFILE, "--package", "legwork-cli"])?;
    // The built program is not changed: cargo takes it for fresh the next time.
    let built = target().join(PROFILE).join("legwork");
    let package = target().join(PROFILE).join("package");
    std::fs::create_dir_all(&package).with_context(|| package.display().to_string())?;
    let (program, debug) = (package.join("legwork"), package.join("legwork.debug"));
    run_tool(objcopy().arg("--only-keep-debug").args([&built, &debug]))?;
    // The program names the file: debuggers look for it next to the program.
    let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
    link.push(&debug);
    run_tool(objcopy().arg("--strip-all").arg(link).args([&built, &program]))?;
    for path in [&program, &debug] {
        let bytes = path.metadata().with_context(|| path.display().to_string())?.len();
        println!("{} ({} MB)", path.display(), bytes >> 20);
    }
    Ok(())
}

fn objcopy() -> Command {
    Command::new("objcopy")
}

/// The target folder of cargo.
fn target() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn run_tool(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("`{name}` does not start; objcopy is in the package binutils"))?;
    if !status.success() {
        bail!("`{name}` failed");
    }
    Ok(())
}
