//! What a fresh Debian machine with Rust on it lacks: installed when we may, named otherwise.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

/// Commands we need, and the packages that bring them.
const TOOLS: [(&str, &str); 3] = [("git", "git"), ("cc", "build-essential"), ("bash", "bash")];

pub(crate) fn tools() -> Result<()> {
    let missing: Vec<&str> =
        TOOLS.into_iter().filter(|(tool, _)| !exists(tool)).map(|(_, package)| package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("installing {}", missing.join(", "));
    let quiet =
        |arguments: &[&str]| Command::new("apt-get").args(arguments).stdout(Stdio::null()).status();
    let updated = quiet(&["update", "-q"]);
    let mut install = vec!["install", "-y", "-q", "--no-install-recommends"];
    install.extend(&missing);
    match updated.and_then(|_| quiet(&install)) {
        Ok(status) if status.success() => Ok(()),
        Ok(_) | Err(_) => bail!("please install {} and try again", missing.join(", ")),
    }
}

fn exists(tool: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(tool).is_file())
}
