//! Questions for contents of files, over the links.
//!
//! Invariant: a question is answered once, or whoever asked hears that there will be no answer. The
//! answers go back on the connection that the questions came on; what sites say to each other has
//! its own, so that a large file does not hold it up.

use std::sync::{Arc, PoisonError};

use legwork_model::id::ServerId;
use legwork_site::Shares;
use tokio::sync::oneshot;

use super::frame::Frame;
use super::links::Links;
use super::other::Peer;
use crate::files::{FileReply, FileRequest, Peers, Unreachable};
use crate::http::App;

/// Questions of one server that are being answered at the same time.
pub(super) const QUESTIONS_MAX: usize = 64;

/// What a frame is spent on.
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

/// Forgotten when whoever asked has gone: a late answer is for nobody.
struct Question<'p> {
    peer: &'p Peer,
    id: u64,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.peer.files.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// An answer has come.
pub(super) fn answered(peer: &Peer, id: u64, reply: FileReply) {
    let asked = peer.files.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    if let Some(asked) = asked {
        // Whoever asked may have gone.
        drop(asked.send(reply));
    }
}

/// Looks for what another server asks, on a thread that may wait for the disk.
pub(super) async fn answer(app: Arc<App>, request: FileRequest) -> FileReply {
    let answer = tokio::task::spawn_blocking(move || app.offered.answer(&request));
    answer.await.unwrap_or(FileReply::NotHere)
}
