//! `legwork backup` and `legwork restore`: everything a server stores, as one file and back.
//!
//! Invariant: a file under the name asked for is a whole backup, checked against its checksum;
//! before that it has another name. A restore is atomic.

use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use legwork_api::client::Error;
use legwork_api::cluster::Cluster;
use legwork_model::event::{Record, SiteEvent};
use legwork_model::id::StreamId;
use legwork_placement::Topology;
use legwork_store::embedded::{self, Embedded};
use legwork_store::{EventStore as _, Version};
use serde_json::json;

use crate::context::Context;
use crate::output::Output;
use crate::progress::{Progress, Watched};
use crate::style::{GOOD, STRONG, WARN, paint};

const HASH_BYTES: usize = 32;
/// Records of the whole server may be large.
const RECORDS_AT_ONCE: usize = 64;

#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    /// The file to write; it must not exist
    file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Save a guest of the server that is asked, instead of that server itself
    #[arg(long, value_name = "GUEST")]
    of: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// A file that `legwork backup` wrote
    file: PathBuf,
    /// The folder for the new store; it must not exist or be empty
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

pub(crate) async fn backup(context: &Context, args: &BackupArgs) -> Result<()> {
    let shown = args.file.display();
    ensure!(
        args.force || !args.file.exists(),
        "{shown} is there already; name another file, or replace it with --force"
    );
    let incoming = incoming(&args.file)?;
    let bytes = match receive(context, &incoming, args.of.as_deref()).await {
        Ok(bytes) => bytes,
        Err(error) => {
            // The rest of the file is useless; a failure to remove it would only hide the reason.
            let _ = fs::remove_file(&incoming);
            return Err(error);
        }
    };
    publish(&incoming, &args.file).with_context(|| format!("cannot write {shown}"))?;
    // Anything that is not in the file must not be mistaken for saved.
    let guests = match args.of {
        Some(_) => Vec::new(),
        None => guests(&context.client.cluster().await)?,
    };
    let document = json!({"file": args.file, "bytes": bytes, "not_in_it": guests});
    context.out.answer(&document, || {
        let file = paint(STRONG, shown);
        let saved = format!("saved to {file}, {bytes} bytes, checksum verified");
        let mut text = format!("{} {saved}\n", paint(GOOD, "✔"));
        for guest in &guests {
            text.push_str(&format!(
                "{} its guest {guest} has a store of its own, which is not in it: `legwork backup FILE --of {guest}`\n",
                paint(WARN, "!")
            ));
        }
        text
    })
}

/// The guests of the server that was asked.
fn guests(cluster: &Result<Cluster, Error>) -> Result<Vec<String>> {
    match cluster {
        Ok(Cluster { server, servers, .. }) => {
            let guests = servers.iter().filter(|one| one.host.as_ref() == Some(server));
            Ok(guests.map(|guest| guest.server.to_string()).collect())
        }
        Err(error) if error.code() == Some("not_a_member") => Ok(Vec::new()),
        Err(error) => bail!("it is saved, but whether the server has guests is not known: {error}"),
    }
}

pub(crate) fn restore(args: &RestoreArgs, out: Output) -> Result<()> {
    let shown = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("cannot read {shown}"))?;
    let total = file.metadata().with_context(|| format!("cannot read {shown}"))?.len();
    let progress = Progress::bytes_of(total, "restoring");
    let mut input = BufReader::new(Watched { reader: file, progress });
    let mut bytes = 0;
    embedded::restore(&mut input, &args.data, &mut |written| bytes = written)?;
    drop(input);
    let document = json!({"data": args.data, "bytes": bytes});
    out.answer(&document, || {
        // The restore succeeded in any case; an unreadable topology is reported at the start of the
        // server.
        let topology = topology_in(&args.data).ok().flatten();
        let (data, next) = (args.data.display(), next(&args.data, topology.as_ref()));
        format!("{} restored to {}; {next}\n", paint(GOOD, "✔"), paint(STRONG, data))
    })
}

/// The topology that the server of a store belongs to.
fn topology_in(data: &Path) -> Result<Option<Topology>> {
    let store = Embedded::open(data)?;
    let (mut from, mut newest) = (0, None);
    loop {
        let records = store.read(StreamId::SITE, Version(from), RECORDS_AT_ONCE)?;
        if records.is_empty() {
            return Ok(newest.and_then(|source: String| Topology::parse(&source).0));
        }
        from += records.len() as u64;
        for record in &records {
            for event in Record::<SiteEvent>::from_bytes(record)?.events {
                if let SiteEvent::TopologyPublished { source, .. } = event {
                    newest = Some(source);
                }
            }
        }
    }
}

/// How to start a restored store. The store of a guest is under its name in `guests`.
fn next(data: &Path, topology: Option<&Topology>) -> String {
    let shown = data.display();
    let Some(topology) = topology else {
        return format!("start it with `legwork up --data {shown}`");
    };
    let parent = data.parent().and_then(Path::file_name);
    let name = data.file_name().and_then(|name| name.to_str());
    let guest = name.filter(|_| parent.is_some_and(|parent| parent == "guests"));
    let guest = guest.and_then(|name| topology.server(topology.server_named(name)?));
    match guest.and_then(|guest| topology.server(guest.host?)) {
        Some(host) => format!("start its host `{}`, whose process holds it", host.name),
        None => format!(
            "start it with `legwork up --cluster DIR --data {shown}`, DIR being the folder that \
             `legwork cluster init` made for this server"
        ),
    }
}

async fn receive(context: &Context, path: &Path, guest: Option<&str>) -> Result<u64> {
    let failed = || format!("cannot write {}", path.display());
    let mut download = context.client.backup(guest).await?;
    let mut file = File::create(path).with_context(failed)?;
    let mut progress = Progress::bytes("saving");
    let mut bytes = 0;
    while let Some(chunk) = download.chunk().await? {
        file.write_all(&chunk).with_context(failed)?;
        bytes += chunk.len() as u64;
        progress.advance(chunk.len() as u64);
    }
    file.sync_all().with_context(failed)?;
    drop(progress);
    verify(path).with_context(|| format!("the backup was not received whole; {}", failed()))?;
    Ok(bytes)
}

/// The last bytes of a backup are the hash of all preceding ones.
fn verify(path: &Path) -> Result<()> {
    let mut file = File::open(path)?;
    let total = file.metadata()?.len();
    let body = total.checked_sub(HASH_BYTES as u64).context("it is too short")?;
    let mut hash = blake3::Hasher::new();
    let mut progress = Progress::bytes_of(body, "verifying");
    let mut buffer = vec![0; 1 << 16];
    let mut rest = (&mut file).take(body);
    loop {
        let bytes = rest.read(&mut buffer)?;
        if bytes == 0 {
            break;
        }
        hash.update(&buffer[..bytes]);
        progress.advance(bytes as u64);
    }
    let mut expected = [0; HASH_BYTES];
    file.read_exact(&mut expected)?;
    ensure!(*hash.finalize().as_bytes() == expected, "its checksum does not fit");
    Ok(())
}

/// Renames the file to its final name, durably.
fn publish(incoming: &Path, file: &Path) -> Result<()> {
    fs::rename(incoming, file)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(())
}

/// The name of a file while it is written.
pub(crate) fn incoming(file: &Path) -> Result<PathBuf> {
    let name = file.file_name().with_context(|| format!("{} is no file", file.display()))?;
    Ok(file.with_file_name(format!(".{}.incoming", name.to_string_lossy())))
}

#[cfg(test)]
mod tests {
    use legwork_api::cluster::ClusterServer;

    use super::*;

    #[test]
    fn a_restored_store_is_started_as_what_it_belongs_to() {
        let text = "topology: t\ndomains: { north: { servers: {\
                    north-1: { address: \"10.0.0.1:7710\", api: \"http://10.0.0.1:7700\" },\
                    north-2: { host: north-1, weight: 0 } } } }\n";
        let topology = Topology::parse(text).0;
        let next = |data: &str, topology| next(Path::new(data), topology);
        assert_eq!(next("copy", None), "start it with `legwork up --data copy`");
        let member = next("copy", topology.as_ref());
        assert!(member.starts_with("start it with `legwork up --cluster DIR --data copy`"));
        let guest = next("copy/guests/north-2", topology.as_ref());
        assert_eq!(guest, "start its host `north-1`, whose process holds it");
        assert!(next("guests/north-1", topology.as_ref()).contains("--cluster DIR"));
    }

    #[test]
    fn guests_of_the_server_that_was_asked_are_not_in_its_backup() {
        let one = |server: &str, host: Option<&str>| ClusterServer {
            server: server.into(),
            domain: "north".into(),
            host: host.map(Into::into),
            weight: 1,
            share_permille: 0,
            told: None,
        };
        let servers = vec![
            one("north-1", None),
            one("north-2", Some("north-1")),
            one("north-3", None),
            one("north-4", Some("north-3")),
        ];
        let server = "north-1".into();
        let cluster = Cluster { epoch: 1, server, registrar: None, servers, changes: None };
        assert_eq!(guests(&Ok(cluster)).unwrap(), ["north-2"]);
    }
}
