//! `legwork file`: the content of a file of a case.
//!
//! Invariant: a file under the name asked for is whole, as its hash says; before that it has another
//! name. Nothing is replaced without being told to.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use legwork_api::client::{Download, Error};
use legwork_api::files;
use serde_json::json;

use crate::backup::incoming;
use crate::context::Context;
use crate::progress::Progress;
use crate::style::{GOOD, STRONG, paint};

const HASH_CHARS: usize = 64;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The instance (its id, the end of it, or `last`), or the hash of a file (`blob`)
    of: String,
    /// The data element of the instance that holds the file
    element: Option<String>,
    #[command(flatten)]
    save: SaveArgs,
}

/// Where to save a file.
#[derive(Debug, clap::Args)]
pub(crate) struct SaveArgs {
    /// The file to write [default: under its own name, in this folder]
    #[arg(long, short, alias = "out", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Result<()> {
    let (blob, name) = wanted(context, args).await?;
    let download = context.client.download(&blob);
    save(context, &args.save, (&blob, name), download).await
}

/// Saves a download under the requested name once it is complete.
pub(crate) async fn save(
    context: &Context,
    args: &SaveArgs,
    (blob, name): (&str, Option<String>),
    download: impl Future<Output = std::result::Result<Download, Error>>,
) -> Result<()> {
    let path = match (&args.output, name) {
        (Some(path), _) => path.clone(),
        (None, Some(name)) => own_name(&name)?,
        (None, None) => PathBuf::from(blob),
    };
    let shown = path.display();
    ensure!(
        args.force || !path.exists(),
        "{shown} is there already; name another file with --output, or replace it with --force"
    );
    let incoming = incoming(&path)?;
    let received = receive(download, blob, &incoming).await;
    let named = received.and_then(|bytes| {
        fs::rename(&incoming, &path).with_context(|| format!("cannot write {shown}"))?;
        Ok(bytes)
    });
    let bytes = named.inspect_err(|_| {
        // The rest of the file is useless; a failure to remove it would only hide the reason.
        let _ = fs::remove_file(&incoming);
    })?;
    let document = json!({"file": path, "bytes": bytes, "blob": blob});
    context.out.answer(&document, || {
        format!("{} saved to {}, {bytes} bytes\n", paint(GOOD, "✔"), paint(STRONG, shown))
    })
}

/// The hash of the content, and its name if known.
async fn wanted(context: &Context, args: &Args) -> Result<(String, Option<String>)> {
    let Some(wanted) = &args.element else {
        let is_hash =
            args.of.len() == HASH_CHARS && args.of.bytes().all(|byte| byte.is_ascii_hexdigit());
        ensure!(is_hash, "name the data element too: `legwork file {} ELEMENT`", args.of);
        return Ok((args.of.to_ascii_lowercase(), None));
    };
    let id = context.instance(&args.of).await?;
    let instance = context.client.instance(id, Duration::ZERO).await?;
    let Some(element) = instance.data.iter().find(|one| *one.element == **wanted) else {
        let files = instance.data.iter().filter(|one| one.kind == "file");
        let files: Vec<String> = files.map(|one| format!("`{}`", one.element)).collect();
        let has = if files.is_empty() { "none".to_owned() } else { files.join(", ") };
        bail!("{id} has no data element `{wanted}`; those that hold files: {has}");
    };
    let Some(value) = &element.value else {
        bail!("`{wanted}` has no value yet; wait for the step that writes it");
    };
    let file: files::File = serde_json::from_value(value.clone())
        .ok()
        .with_context(|| format!("`{wanted}` is no file; see it with `legwork show {id}`"))?;
    Ok((file.blob, Some(file.name)))
}

/// The last part of a name, whatever the sender called it: nothing is written outside of the folder.
fn own_name(name: &str) -> Result<PathBuf> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_name = !["", ".", ".."].contains(&last) && !last.contains(char::is_control);
    ensure!(is_name, "the file has no usable name of its own; give one with --output");
    Ok(PathBuf::from(last))
}

async fn receive(
    download: impl Future<Output = std::result::Result<Download, Error>>,
    blob: &str,
    path: &Path,
) -> Result<u64> {
    let failed = || format!("cannot write {}", path.display());
    let mut download = download.await?;
    let mut file = File::create(path).with_context(failed)?;
    let mut progress = Progress::bytes("fetching");
    let mut hash = blake3::Hasher::new();
    let mut bytes = 0;
    while let Some(chunk) = download.chunk().await? {
        file.write_all(&chunk).with_context(failed)?;
        hash.update(&chunk);
        bytes += chunk.len() as u64;
        progress.advance(chunk.len() as u64);
    }
    let whole = hash.finalize().to_hex().as_str() == blob;
    ensure!(whole, "the file was not received whole; try again");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_leads_out_of_the_folder() {
        let path = |name| own_name(name).ok();
        assert_eq!(path("offer.pdf"), Some(PathBuf::from("offer.pdf")));
        assert_eq!(path("../../etc/passwd"), Some(PathBuf::from("passwd")));
        assert_eq!(path("c:\\temp\\a.txt"), Some(PathBuf::from("a.txt")));
        for name in ["", "..", "a/", "a/..", "a\nb"] {
            assert_eq!(path(name), None, "{name:?}");
        }
    }
}
