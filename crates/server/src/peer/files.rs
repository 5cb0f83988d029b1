//! Requests for contents of files, over the links.
//!
//! Invariant: a request is answered once, or its sender is told that there will be no answer.
//! Answers go back on the connection of the request; messages between sites have another one, so
//! that a large file does not delay them.

use std::sync::{Arc, PoisonError};

use legwork_model::id::ServerId;
use legwork_site::Shares;
use tokio::sync::oneshot;

use super::frame::Frame;
use super::links::Links;
use super::other::Peer;
use crate::files::{FileReply, FileRequest, Peers, Unreachable};
use crate::http::App;

/// Concurrent requests of one server.
pub(super) const QUESTIONS_MAX: usize = 64;

/// The purpose of a frame's bytes.
pub(super) fn large(bytes: u64) -> Shares {
    Shares { large: bytes, ..Shares::default() }
}

impl Peers for Links {
    async fn ask(&self, to: ServerId, request: FileRequest) -> Result<FileReply, Unreachable> {
        let peer = self.peer(to).ok_or(Unreachable)?;
        if let Some((there, _)) = peer.near() {
            peer.counters.sent.hand_over();
            let app = there.app().ok_or(Unreachable)?;
            return Ok(answer(app, request).await);
        }
        let id = peer.next_request.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        peer.files.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let _question = Question { peer: &peer, id };
        let frame = Frame::FileRequest(id, request).to_bytes();
        peer.outlet.put(&frame, &large(frame.len() as u64)).map_err(|_| Unreachable)?;
        answer.await.map_err(|_| Unreachable)
    }
}

/// Dropped when the requester is gone: a late answer is discarded.
struct Question<'p> {
    peer: &'p Peer,
    id: u64,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.peer.files.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// An answer has arrived.
pub(super) fn answered(peer: &Peer, id: u64, reply: FileReply) {
    let asked = peer.files.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    if let Some(asked) = asked {
        // The requester may be gone.
        drop(asked.send(reply));
    }
}

/// Answers a request of another server, on a thread that may block on the disk.
pub(super) async fn answer(app: Arc<App>, request: FileRequest) -> FileReply {
    let answer = tokio::task::spawn_blocking(move || app.offered.answer(&request));
    answer.await.unwrap_or(FileReply::NotHere)
}
