//! The way from a handler to the site and back.
//!
//! Invariant: every request put in is answered or cancelled once; a caller who goes away while
//! waiting leaves nothing behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hyper::StatusCode;
use legwork_site::{Answer, Credential, Request, RequestId};
use tokio::sync::{oneshot, watch};
use tracing::Span;

use crate::drive::{Failure, Message, Reply};
use crate::http::reply::{Refused, Result};
use crate::queue::Queue;
use crate::status::{Phase, Status};

pub(crate) struct Gate {
    queue: Arc<Queue<Message>>,
    status: Arc<Status>,
    next_id: AtomicU64,
    waiting: AtomicUsize,
    waiting_max: usize,
    /// True from the moment the server begins to stop.
    stopping: watch::Receiver<bool>,
}

impl Gate {
    pub(crate) fn new(
        queue: Arc<Queue<Message>>,
        status: Arc<Status>,
        waiting_max: usize,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let (next_id, waiting) = (AtomicU64::new(1), AtomicUsize::new(0));
        Self { queue, status, next_id, waiting, waiting_max, stopping }
    }

    /// Asks the site something that it answers at once.
    pub(crate) async fn ask(&self, credential: Credential, request: Request) -> Result<Answer> {
        let (_, reply) = self.put(credential, request)?;
        answer(reply.await)
    }

    /// Asks something that the site may answer later. `None` if the server stops meanwhile.
    pub(crate) async fn ask_patiently(
        &self,
        credential: Credential,
        request: Request,
    ) -> Result<Option<Answer>> {
        let place = Place::take(self)?;
        let (id, mut reply) = self.put(credential, request)?;
        let mut guard = CancelGuard { queue: &self.queue, id, armed: true };
        let mut stopping = self.stopping.clone();
        let received = tokio::select! {
            biased;
            received = &mut reply => Some(received),
            () = stopped(&mut stopping) => None,
        };
        if let Some(received) = received {
            guard.armed = false;
            return answer(received).map(Some);
        }
        drop(guard);
        drop(place);
        // Either the answer was on its way, or the drive thread now forgets about it.
        match reply.await {
            Ok(received) => answer(Ok(received)).map(Some),
            Err(_) => Ok(None),
        }
    }

    pub(crate) async fn until_stopping(&self) {
        stopped(&mut self.stopping.clone()).await;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    fn put(
        &self,
        credential: Credential,
        request: Request,
    ) -> Result<(RequestId, oneshot::Receiver<Reply>)> {
        self.check_ready()?;
        let id = RequestId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let (reply, receiver) = oneshot::channel();
        let message = Message::Ask { id, credential, request, reply, span: Span::current() };
        match self.queue.push(message) {
            Ok(()) => Ok((id, receiver)),
            Err(_) => {
                let detail = "more requests come in than the server can handle; try again later";
                Err(Refused::unavailable("overloaded", detail.to_owned()))
            }
        }
    }

    /// Refuses at once what could not be carried out.
    pub(crate) fn check_ready(&self) -> Result<()> {
        let code = match self.status.phase() {
            Phase::Ready => return Ok(()),
            Phase::Recovering => "recovering",
            Phase::Failing => "storage_unavailable",
            Phase::Stopping => "stopping",
            Phase::Away => "away",
        };
        let detail = format!("{}; try again later", self.status.reason());
        let mut refused = Refused::unavailable(code, detail);
        refused.at = (self.status.phase() == Phase::Away).then(|| self.status.server());
        Err(refused)
    }
}

fn answer(received: std::result::Result<Reply, oneshot::error::RecvError>) -> Result<Answer> {
    match received {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Failure::Refused(refusal))) => Err(refusal.into()),
        Ok(Err(Failure::Unavailable(reason))) => {
            let detail = format!(
                "{reason}; whether the request was carried out is not known: look, or repeat it \
                 with the same idempotency key"
            );
            Err(Refused::unavailable("storage_unavailable", detail))
        }
        Err(_) => Err(Refused::unavailable("stopping", "the server is stopping".to_owned())),
    }
}

/// Waits until the server begins to stop.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the server itself is gone.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// One of the limited places for those who wait.
struct Place<'g>(&'g AtomicUsize);

impl<'g> Place<'g> {
    fn take(gate: &'g Gate) -> Result<Self> {
        let place = Self(&gate.waiting);
        if gate.waiting.fetch_add(1, Ordering::Relaxed) >= gate.waiting_max {
            let detail = format!(
                "{} requests wait already; ask without waiting, or try again later",
                gate.waiting_max
            );
            return Err(Refused::later(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_waiting",
                1,
                detail,
            ));
        }
        Ok(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes the question back when its asker goes away.
struct CancelGuard<'g> {
    queue: &'g Queue<Message>,
    id: RequestId,
    armed: bool,
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.queue.push_beyond_limit(Message::Cancel(self.id));
        }
    }
}
