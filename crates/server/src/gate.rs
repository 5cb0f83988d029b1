//! The path from a handler to the site and back.
//!
//! Invariant: every request is answered or cancelled once; a caller who goes away while waiting
//! leaves nothing behind.

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

    /// A request that the site answers at once.
    pub(crate) async fn ask(&self, credential: Credential, request: Request) -> Result<Answer> {
        let (id, reply) = self.put(credential, request)?;
        let mut waiting = Waiting { queue: &self.queue, id, reply: Some(reply), is_patient: false };
        answer(waiting.received().await)
    }

    /// A request that the site may answer later. `None` if the server stops meanwhile.
    pub(crate) async fn ask_patiently(
        &self,
        credential: Credential,
        request: Request,
    ) -> Result<Option<Answer>> {
        let place = Place::take(self)?;
        let (id, reply) = self.put(credential, request)?;
        let mut waiting = Waiting { queue: &self.queue, id, reply: Some(reply), is_patient: true };
        let mut stopping = self.stopping.clone();
        let received = tokio::select! {
            biased;
            received = waiting.received() => Some(received),
            () = stopped(&mut stopping) => None,
        };
        if let Some(received) = received {
            return answer(received).map(Some);
        }
        self.queue.push_beyond_limit(Message::Cancel(id));
        drop(place);
        // Either the answer was on its way, or the drive thread now drops the request.
        match waiting.received().await {
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
        let is_away = self.status.phase() == Phase::Away;
        refused.at = self.status.joined_as().filter(|_| is_away);
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

/// A slot for a waiting request.
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

/// Cancels the request if its caller goes away, or returns an answer that has come already.
struct Waiting<'g> {
    queue: &'g Queue<Message>,
    id: RequestId,
    /// Until the answer was received.
    reply: Option<oneshot::Receiver<Reply>>,
    /// It may be answered later: then it must be cancelled.
    is_patient: bool,
}

impl Waiting<'_> {
    async fn received(&mut self) -> std::result::Result<Reply, oneshot::error::RecvError> {
        let received = match &mut self.reply {
            Some(reply) => reply.await,
            // Received once only.
            None => return std::future::pending().await,
        };
        self.reply = None;
        received
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(mut reply) = self.reply.take() else { return };
        // The drive thread notices by itself that later answers have no receiver.
        reply.close();
        match reply.try_recv() {
            Ok(unheard) => self.queue.push_beyond_limit(Message::Undelivered(unheard)),
            Err(_) if self.is_patient => {
                self.queue.push_beyond_limit(Message::Cancel(self.id));
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::{Context, Waker};

    use super::*;

    fn taken(queue: &Queue<Message>) -> VecDeque<Message> {
        let mut messages = VecDeque::new();
        queue.take_all(&mut messages, Some(std::time::Duration::ZERO));
        messages
    }

    #[test]
    fn an_abandoned_request_is_cancelled_or_its_answer_returned() {
        let queue = Arc::new(Queue::new(10));
        let status = Arc::new(Status::new());
        status.enter(Phase::Ready);
        let (_stop, stopping) = watch::channel(false);
        let gate = Gate::new(queue.clone(), status, 10, stopping);
        for is_answered in [false, true] {
            let mut asking = Box::pin(gate.ask_patiently(Credential::None, Request::RequireAdmin));
            let mut context = Context::from_waker(Waker::noop());
            assert!(asking.as_mut().poll(&mut context).is_pending());
            let Some(Message::Ask { reply, .. }) = taken(&queue).pop_front() else { panic!() };
            if is_answered {
                reply.send(Ok(Answer::Jobs(Vec::new()))).unwrap();
            }
            drop(asking);
            let told = taken(&queue).pop_front();
            match is_answered {
                true => assert!(matches!(told, Some(Message::Undelivered(Ok(Answer::Jobs(_)))))),
                false => assert!(matches!(told, Some(Message::Cancel(_)))),
            }
        }
    }
}
