//! Operations on the server itself.
//!
//! Invariant: `/health` answers as long as the process does, whatever has happened to the store.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, HeaderValue};
use legwork_api::system::{Health, Ready};
use legwork_site::Request;
use tokio::sync::mpsc;

use super::exchange::Exchange;
use super::reply::{Refused, Reply, Result};
use super::{App, cluster, documents, files};
use crate::backend::{Backend, Backup};
use crate::figures::Figures;
use crate::{meters, process};

const PROMETHEUS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// The pieces a backup is sent in.
const PIECE_BYTES: usize = 64 << 10;
/// How long the metrics wait for figures that only the thread that decides has.
const FIGURES_WAIT: Duration = Duration::from_secs(1);

pub(super) async fn backup(x: Exchange<'_>) -> Result {
    x.order(Request::RequireAdmin).await?;
    let (store, name) = match x.query.text("server") {
        None => (files::store(x.app)?, "legwork"),
        Some(name) => (held(&x, name)?, name),
    };
    let (sender, mut pieces) = mpsc::channel(4);
    let writing = tokio::task::spawn_blocking(move || {
        let mut out = Pieces { sender, buffer: Vec::with_capacity(PIECE_BYTES) };
        match store.backup(&mut out) {
            Backup::Written(Ok(())) => None,
            Backup::None(instead) => Some(instead),
            Backup::Written(Err(error)) => {
                tracing::error!(reason = %error, "a backup broke off");
                // The connection is cut: a backup that is not whole must not look like one.
                drop(out.sender.blocking_send(Err(io::Error::other(error.to_string()))));
                None
            }
        }
    });
    // What goes wrong at once can still be told.
    let Some(first) = pieces.recv().await else {
        let instead = writing.await.ok().flatten();
        let detail = instead.unwrap_or("the backup is empty; please report this");
        return Err(Refused::new(StatusCode::CONFLICT, "no_backups", detail));
    };
    let first = first.map_err(|error| {
        Refused::unavailable("storage_unavailable", format!("{error}; try again later"))
    })?;
    let name = HeaderValue::try_from(format!("attachment; filename=\"{name}.backup\""))
        .unwrap_or(HeaderValue::from_static("attachment"));
    Ok(Reply::stream(OCTETS, Some(first), pieces).with_header(CONTENT_DISPOSITION, name))
}

/// The store of a server that this process holds. A long answer is not passed on: whoever asks for
/// that of a server elsewhere is told where to ask.
fn held(x: &Exchange<'_>, name: &str) -> Result<Arc<dyn Backend>> {
    let Some(links) = &x.app.links else { return Err(cluster::alone()) };
    let topology = links.topology();
    let server = topology.server_named(name).ok_or_else(|| cluster::no_such_server(name))?;
    let app = links.host.held(name).and_then(|held| held.app()).ok_or_else(|| {
        let api = topology.api_of(server).map_or("its host", |api| api);
        let detail = format!("`{name}` is in another process; ask there: {api}");
        Refused::new(StatusCode::CONFLICT, "elsewhere", detail)
    })?;
    files::store(&app)
}

/// Gathers what is written into pieces and sends them on.
struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.buffer, Vec::with_capacity(PIECE_BYTES));
        self.sender.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

pub(super) async fn openapi(_: Exchange<'_>) -> Result {
    Reply::document(documents::openapi())
}

pub(super) async fn metrics(x: Exchange<'_>) -> Result {
    let figures = Figures::new();
    show_figures(x.app, None, &figures).await;
    let host = x.app.links.as_ref().map(|links| &links.host);
    for links in host.map(|host| host.all()).unwrap_or_default() {
        let guest = links.app().filter(|app| !Arc::ptr_eq(app, x.app));
        if let Some(guest) = guest {
            show_figures(&guest, Some(&links.name), &figures).await;
        }
    }
    let process = tokio::task::spawn_blocking(process::figures).await.unwrap_or_default();
    let text = x.app.meters.render() + &figures.render() + &process;
    Ok(Reply::of(StatusCode::OK, PROMETHEUS, text.into()))
}

/// Those that are looked up when somebody asks; `guest` names a server that is not the process's own.
async fn show_figures(app: &App, guest: Option<&str>, figures: &Figures) {
    if let Some(store) = app.slot.borrow() {
        let bytes = tokio::task::spawn_blocking(move || store.bytes()).await;
        if let Ok(Ok(bytes)) = bytes {
            app.meters.show_store_bytes(guest, bytes);
        }
    }
    if let Some(links) = &app.links {
        app.meters.show_links(guest, &links.rows());
    }
    app.meters.show_broken(guest, &app.status.broken());
    // Whatever keeps the server from answering is what somebody wants to see the other figures for.
    let own = meters::guest(guest);
    let gathered = figures.gather(&app.gate, &own);
    drop(tokio::time::timeout(FIGURES_WAIT, gathered).await);
}

pub(super) async fn health(_: Exchange<'_>) -> Result {
    Reply::json(&Health { version: env!("CARGO_PKG_VERSION").to_owned() })
}

pub(super) async fn ready(x: Exchange<'_>) -> Result {
    if x.app.gate.is_stopping() {
        return Err(Refused::unavailable("stopping", "the server is stopping".to_owned()));
    }
    x.app.gate.check_ready()?;
    Reply::json(&Ready { ready: true })
}
