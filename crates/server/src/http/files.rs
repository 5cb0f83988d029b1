//! Operations on files.
//!
//! Invariant: an upload is answered when its content is durable; content is known by its hash, so
//! the same file is stored once however often it is sent. Only so many are held in memory at once.

use std::pin::pin;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, HeaderValue};
use legwork_api::files::File;
use legwork_model::id::{ActivityId, AgentId, ServerId};
use legwork_model::value::{FileRef, unhex};
use legwork_site::{Data, Request};
use legwork_store::BlobId;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::App;
use super::body::{Incoming, drain, media_type};
use super::exchange::Exchange;
use super::reply::{Refused, Reply, Result};
use super::route::Size;
use super::work;
use crate::backend::Backend;
use crate::files::{NotBrought, named};
use crate::status::Status;

const NAME_BYTES_MAX: usize = 255;
const MEDIA_TYPE_DEFAULT: &str = "application/octet-stream";

/// The limited places for files on their way in.
#[derive(Debug)]
pub(crate) struct Uploads {
    places: Arc<Semaphore>,
    max: usize,
}

/// One of them, free again when it is dropped.
pub(crate) type Place = OwnedSemaphorePermit;

impl Uploads {
    pub(crate) fn new(max: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(max)), max }
    }

    pub(crate) fn enter(&self) -> Result<Place> {
        self.places.clone().try_acquire_owned().map_err(|_| {
            let max = self.max;
            let detail = format!("{max} files are being uploaded already; try again in a moment");
            Refused::later(StatusCode::TOO_MANY_REQUESTS, "too_many_uploads", 1, detail)
        })
    }
}

/// Reserves a place for an upload before its body is read: up to 64 MiB. The caller must be allowed to store files.
pub(super) async fn take_place<B: Incoming>(x: &mut Exchange<'_>, body: B) -> Result<B> {
    if x.route.size != Size::File {
        return Ok(body);
    }
    x.require_files().await?;
    match x.app.uploads.enter() {
        Ok(place) => x.place = Some(place),
        Err(refused) => {
            drain(pin!(body)).await;
            return Err(refused);
        }
    }
    Ok(body)
}

pub(super) async fn upload(x: Exchange<'_>) -> Result {
    let name = x.query.text("name").unwrap_or("file").to_owned();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let detail = format!("a file's name has 1 to {NAME_BYTES_MAX} bytes and no control codes");
        return Err(Refused::bad_request("bad_file_name", detail));
    }
    let media_type = match media_type(&x.head.headers) {
        "" => MEDIA_TYPE_DEFAULT.to_owned(),
        media_type => media_type.to_owned(),
    };
    let app = x.app;
    require_staying(&app.status)?;
    let (store, content, place) = (store(app)?, x.body, x.place);
    let size = content.len() as u64;
    // A caller who goes away does not take the place along: the content is still held.
    let store = move || {
        let stored = store.put_blob(&content);
        drop((content, place));
        stored
    };
    let stored = tokio::task::spawn_blocking(store).await;
    let blob = stored.map_err(|error| Refused::fault(&error))?.map_err(|error| failed(&error))?;
    // What is there before the server freezes is copied with it; of what was stored meanwhile nobody
    // can say.
    require_staying(&app.status)?;
    Reply::json(&File { blob: blob.to_string(), size, name, media_type })
}

/// Refuses to store what a server that is leaving would not take along.
fn require_staying(status: &Status) -> Result<()> {
    if status.frozen().is_none() {
        return Ok(());
    }
    let detail = "the server is being moved to another host, and what is stored here now would \
                  not be there; try again in some seconds";
    Err(Refused::unavailable("moving", detail.to_owned()))
}

pub(super) async fn download(x: Exchange<'_>) -> Result {
    let name = x.name()?;
    let Some(id) = unhex(&name) else {
        let detail = "a file is known by the 64 hexadecimal digits that its upload answered";
        return Err(Refused::bad_request("bad_id", detail));
    };
    x.require_files().await?;
    let missing = || {
        let detail = format!("there is no file {name}; upload it first");
        Refused::new(StatusCode::NOT_FOUND, "no_such_file", detail)
    };
    let content = content(&x, id).await?.ok_or_else(missing)?;
    Ok(attached(content, HeaderValue::from_static("attachment")))
}

pub(super) async fn of_item(x: Exchange<'_>) -> Result {
    let activity: ActivityId = x.id()?;
    let Some(element) = x.query.text("element") else {
        let detail = "say in `element` which data element holds the file";
        return Err(Refused::bad_request("bad_parameter", detail));
    };
    let agent = x.agent(x.query.text("agent")).await?;
    let item = work::detail_anywhere(&x, agent, activity.clone()).await?;
    let file = |value: &serde_json::Value| serde_json::from_value::<File>(value.clone()).ok();
    let Some(wanted) = item.inputs.get(element).and_then(file) else {
        let files = item.inputs.iter().filter(|(_, value)| file(value).is_some());
        let files: Vec<String> = files.map(|(name, _)| format!("`{name}`")).collect();
        let has = if files.is_empty() { "none".to_owned() } else { files.join(", ") };
        let detail = format!("{activity} has no file `{element}`; its files: {has}");
        return Err(Refused::new(StatusCode::NOT_FOUND, "no_such_file", detail));
    };
    let content = match unhex(&wanted.blob) {
        Some(blob) => content(&x, blob).await?,
        None => None,
    };
    let away = || {
        let detail = format!(
            "no server that can be reached has the content of `{element}`; try again later"
        );
        Refused::unavailable("server_unreachable", detail)
    };
    let name = utf8_percent_encode(&wanted.name, NON_ALPHANUMERIC);
    let disposition = HeaderValue::try_from(format!("attachment; filename*=UTF-8''{name}"));
    let disposition = disposition.map_err(|error| Refused::fault(&error))?;
    Ok(attached(content.ok_or_else(away)?, disposition))
}

/// Never shown by a browser as a page of this server.
fn attached(content: Vec<u8>, disposition: HeaderValue) -> Reply {
    let octets = HeaderValue::from_static(MEDIA_TYPE_DEFAULT);
    let reply = Reply::of(StatusCode::OK, octets, content.into());
    reply.with_header(CONTENT_DISPOSITION, disposition)
}

/// What is stored here, or brought from another server.
async fn content(x: &Exchange<'_>, blob: [u8; 32]) -> Result<Option<Vec<u8>>> {
    match read(x, blob).await? {
        Some(content) => Ok(Some(content)),
        None if find(x, blob).await? => read(x, blob).await,
        None => Ok(None),
    }
}

async fn read(x: &Exchange<'_>, blob: [u8; 32]) -> Result<Option<Vec<u8>>> {
    let store = store(x.app)?;
    let read = tokio::task::spawn_blocking(move || store.blob(BlobId(blob))).await;
    read.map_err(|error| Refused::fault(&error))?.map_err(|error| failed(&error))
}

/// Refuses data that names a file whose content is not stored here: nobody could read it.
pub(super) async fn require_stored(x: &Exchange<'_>, data: &Data) -> Result<()> {
    if named(data).is_empty() {
        return Ok(());
    }
    // Only those who may store files learn which there are.
    x.require_files().await?;
    missing(x, data).await?.map_or(Ok(()), |file| Err(no_such_file(&file)))
}

/// Refuses data that names a file without content. The check runs at the server that controls the activity, so the
/// content is transferred only to that server, and only if it is missing there.
pub(super) async fn require_stored_for(
    x: &Exchange<'_>,
    activity: &ActivityId,
    agent: Option<&AgentId>,
    data: &Data,
) -> Result<()> {
    if named(data).is_empty() {
        return Ok(());
    }
    x.require_files().await?;
    let (activity, agent) = (activity.clone(), agent.cloned());
    x.order(Request::RequireControl(activity, agent)).await?;
    require_stored(x, data).await
}

/// A file that data names and whose content is nowhere to be found.
pub(super) async fn missing(x: &Exchange<'_>, data: &Data) -> Result<Option<FileRef>> {
    for file in named(data) {
        let is_there =
            is_stored(x, &file).await? || find(x, file.blob).await? && is_stored(x, &file).await?;
        if !is_there {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Brings a content from another server that can be reached, if one has it: whom a caller asks must
/// not matter. First the one that has passed the request on, then the cheapest.
async fn find(x: &Exchange<'_>, blob: [u8; 32]) -> Result<bool> {
    let (Some(links), Some(fetcher)) = (&x.app.links, &x.app.fetcher) else { return Ok(false) };
    let (topology, here) = (links.topology(), links.here());
    let from = x.passed_on_by();
    let reachable = links.reachable().into_iter().filter(|(_, is_up)| *is_up);
    let mut servers: Vec<(bool, u32, ServerId)> = reachable
        .filter_map(|(name, _)| {
            let server = topology.server_named(&name)?;
            let cost = here.map_or(0, |here| topology.cost(here, server));
            Some((Some(&*name) != from, cost, server))
        })
        .collect();
    servers.sort_unstable();
    let servers = servers.into_iter().map(|(_, _, server)| server).collect();
    match fetcher.find(blob, servers).await {
        Ok(()) => Ok(true),
        Err(NotBrought::NotStored(reason)) => {
            Err(Refused::unavailable("storage_unavailable", format!("{reason}; try again later")))
        }
        Err(
            NotBrought::NotThere
            | NotBrought::Lie(_)
            | NotBrought::TooLarge(_)
            | NotBrought::Unreachable(_)
            | NotBrought::NoSource,
        ) => Ok(false),
    }
}

async fn is_stored(x: &Exchange<'_>, file: &FileRef) -> Result<bool> {
    let (store, blob) = (store(x.app)?, BlobId(file.blob));
    let found = tokio::task::spawn_blocking(move || store.blob_size(blob)).await;
    let found = found.map_err(|error| Refused::fault(&error))?.map_err(|error| failed(&error))?;
    Ok(found == Some(file.size))
}

fn no_such_file(file: &FileRef) -> Refused {
    let (blob, size) = (BlobId(file.blob), file.size);
    let detail = format!("there is no file {blob} of {size} bytes; upload it first");
    Refused::new(StatusCode::NOT_FOUND, "no_such_file", detail)
}

pub(super) fn store(app: &App) -> Result<Arc<dyn Backend>> {
    app.gate.check_ready()?;
    app.slot.borrow().ok_or_else(|| {
        Refused::unavailable("storage_unavailable", "the store is being opened again".to_owned())
    })
}

pub(super) fn failed(error: &legwork_store::Error) -> Refused {
    tracing::error!(reason = %error, "a file could not be stored or read");
    Refused::unavailable("storage_unavailable", format!("{error}; try again later"))
}
