//! Brings the store of a server to this host, however often that breaks off.
//!
//! Invariant: the note beside the store says `Whole` only when it is, and closed. Until then all that
//! is here is a beginning, which the next attempt goes on with.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::pull::{NotCopied, Progress, Pull};
use super::wire::Hash;
use crate::backend::Opener;
use crate::notes::{Note, Notes};
use crate::peer::{Links, Twin};

/// How long is waited after an attempt that broke off.
const PAUSE: Duration = Duration::from_secs(1);
/// How often it is looked whether the change that moves the server has begun.
const LOOK: Duration = Duration::from_millis(200);

/// Copies the store over links that are away, until the change that moves the server has frozen it
/// and all is here: which change that was, and the digest of the whole.
pub(crate) async fn bring(
    links: Arc<Links>,
    mut opener: Opener,
    notes: Arc<Notes>,
    progress: watch::Sender<Progress>,
) -> (u32, Hash) {
    let mut told = String::new();
    loop {
        let (attempt, again) = attempt(&links, opener, &notes, &progress).await;
        match attempt {
            Ok(come) => {
                tracing::info!(server = %links.name, change = come.0, "its store has come as a whole");
                return come;
            }
            Err(error) => {
                let reason = error.to_string();
                progress.send_modify(|progress| {
                    // All is compared anew.
                    progress.is_close = false;
                    progress.reason = Some(reason.as_str().into());
                });
                if told != reason {
                    tracing::warn!(
                        server = %links.name, reason, "its store has not come yet; it is tried again"
                    );
                    told = reason;
                }
            }
        }
        opener = again;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn attempt(
    links: &Arc<Links>,
    opener: Opener,
    notes: &Arc<Notes>,
    progress: &watch::Sender<Progress>,
) -> (Result<(u32, Hash), NotCopied>, Opener) {
    let open = move || {
        let mut opener = opener;
        (opener(), opener)
    };
    let (store, opener) = match spawn_blocking(open).await {
        Ok(opened) => opened,
        Err(error) => {
            let never: Opener = Box::new(|| {
                Err(legwork_store::Error::Stopped { cause: "opening it has failed".to_owned() })
            });
            return (Err(NotCopied::Broken(error.to_string())), never);
        }
    };
    let copied = match store {
        Ok(store) => copy(links, store, notes, progress).await,
        Err(error) => Err(error.into()),
    };
    (copied, opener)
}

async fn copy(
    links: &Arc<Links>,
    store: Arc<dyn crate::backend::Backend>,
    notes: &Arc<Notes>,
    progress: &watch::Sender<Progress>,
) -> Result<(u32, Hash), NotCopied> {
    note(notes, Note::Coming).await?;
    let mut pull = Pull::new(Twin::new(links.clone()), store, progress.clone());
    pull.bulk().await?;
    let change = loop {
        match pull.frozen_by().await? {
            Some(change) => break change,
            None => {
                tokio::time::sleep(LOOK).await;
                pull.catch_up().await?;
            }
        }
    };
    let digest = pull.finish(change).await?;
    // Closed before it counts: whoever drives it opens it.
    drop(pull);
    note(notes, Note::Whole { change, digest }).await?;
    Ok((change, digest))
}

async fn note(notes: &Arc<Notes>, note: Note) -> Result<(), NotCopied> {
    let notes = notes.clone();
    let noted = spawn_blocking(move || notes.set(note)).await;
    let broken = |error: &dyn std::fmt::Display| NotCopied::Broken(error.to_string());
    noted.map_err(|error| broken(&error))?.map_err(|error| broken(&error))
}
