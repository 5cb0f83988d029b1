//! Copies the store of a server to this host, with retries.
//!
//! Invariant: the note next to the store says `Whole` only if the store is complete, and closed.
//! Until then the local store is a prefix, from which the next attempt continues.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::pull::{NotCopied, Progress, Pull};
use super::wire::Hash;
use crate::backend::Opener;
use crate::notes::{Note, Notes};
use crate::peer::{Links, Twin};

/// The pause after a failed attempt.
const PAUSE: Duration = Duration::from_secs(1);
/// How often to check whether the change that moves the server has begun.
const LOOK: Duration = Duration::from_millis(200);

/// Copies the store over links of an absent server, until the change that moves the server has frozen
/// it and the copy is complete; returns the change and the digest of the store.
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
                tracing::info!(server = %links.name, change = come.0, "the server's store is copied");
                return come;
            }
            Err(error) => {
                let reason = error.to_string();
                progress.send_modify(|progress| {
                    // Everything is compared again.
                    progress.is_close = false;
                    progress.reason = Some(reason.as_str().into());
                });
                if told != reason {
                    tracing::warn!(
                        server = %links.name, reason, "the server's store is not copied yet; retrying"
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
    // Closed before it counts: the driver opens it again.
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
