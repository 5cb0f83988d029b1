//! Requests of another process that is to hold the same server: for its store, and to release it.
//!
//! Invariant: only a process that speaks for the very server is answered. A request is answered
//! once, or its sender is told that there will be no answer.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::files::large;
use super::frame::Frame;
use super::links::Links;
use super::other::Peer;
use crate::drive;
use crate::http::App;
use crate::moving::{Origin, StoreReply, StoreRequest, Unanswered};

/// How long an answer may take: enough for a digest over a large store.
const PATIENCE: Duration = Duration::from_secs(600);

/// The connection to the process that holds a server which this one is to hold.
pub(crate) struct Twin {
    links: Arc<Links>,
}

impl Twin {
    /// Of links of an absent server.
    pub(crate) fn new(links: Arc<Links>) -> Self {
        Self { links }
    }
}

impl Origin for Twin {
    async fn ask(&mut self, request: StoreRequest) -> Result<StoreReply, Unanswered> {
        let answer = self.links.ask_store(request);
        let silent = || Unanswered("it has not answered for ten minutes".to_owned());
        tokio::time::timeout(PATIENCE, answer).await.map_err(|_| silent())?
    }
}

impl Links {
    async fn ask_store(&self, request: StoreRequest) -> Result<StoreReply, Unanswered> {
        let away = || Unanswered("it cannot be reached".to_owned());
        let peer = self.twin().ok_or_else(away)?;
        let id = peer.next_request.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        peer.stores.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let _question = Question { peer: &peer, id };
        let frame = Frame::StoreRequest(id, request).to_bytes();
        peer.outlet.put(&frame, &large(frame.len() as u64)).map_err(|_| away())?;
        answer.await.map_err(|_| Unanswered("the link to it broke".to_owned()))
    }
}

/// Dropped when the requester is gone: a late answer is discarded.
struct Question<'p> {
    peer: &'p Peer,
    id: u64,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.peer.stores.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// An answer has arrived.
pub(super) fn answered(peer: &Peer, id: u64, reply: StoreReply) {
    let asked = peer.stores.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    if let Some(asked) = asked {
        // The requester may be gone.
        drop(asked.send(reply));
    }
}

/// Answers a request of another process, on a thread that may block on the disk.
pub(super) async fn answer(app: Arc<App>, request: StoreRequest) -> StoreReply {
    if let (StoreRequest::Release, Some(links)) = (&request, &app.links) {
        return match links.host.release(links.name.clone()).await {
            Ok(()) => StoreReply::Released,
            Err(reason) => StoreReply::NotNow(reason),
        };
    }
    if let (StoreRequest::Seal { change }, Some(links)) = (&request, &app.links) {
        let (done, given) = oneshot::channel();
        links.tell(drive::Message::GiveAway { change: *change, done });
        return match given.await {
            Ok(Ok(())) => StoreReply::Sealed,
            Ok(Err(reason)) => StoreReply::NotNow(reason),
            Err(_) => StoreReply::NotNow("the store is being opened again".to_owned()),
        };
    }
    let change = app.status.frozen();
    let answer = tokio::task::spawn_blocking(move || app.source.answer(request, change));
    answer.await.unwrap_or_else(|error| StoreReply::NotNow(error.to_string()))
}
