//! Requests that came to the wrong server: passed on, carried out, answered.
//!
//! Invariant: a passed-on request is answered once, or its caller is told that there will be no
//! answer. It is cancelled when its caller goes away. The executing server checks the credential
//! itself; network access and rate were checked by the server that was called.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use legwork_model::id::ServerId;
use tokio::sync::oneshot;

use super::frame::{Answered, Frame, Header, Passed, RESPONSE_BYTES_MAX};
use super::link::control;
use super::links::Links;
use super::other::{Late, Peer};
use super::outlet::Dropped;
use crate::http::reply::Refused;
use crate::http::{App, serve};
use crate::status::Phase;

/// How long to wait for the link to another process that holds the same server.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

/// Why a request was not passed on, or not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotPassed {
    #[error("the server `{0}` cannot be reached; try again later")]
    Unreachable(Arc<str>),
    #[error("too much waits for the server `{0}`; try again later")]
    Full(Arc<str>),
    #[error(
        "the link to the server `{0}` broke before it answered; whether the request was carried \
         out is not known: look, or repeat it with the same idempotency key"
    )]
    Unanswered(Arc<str>),
    #[error("there is no server {}", .0.0)]
    Unknown(ServerId),
}

/// Marks a passed-on request with its sender.
#[derive(Clone, Debug)]
pub(crate) struct From {
    pub(crate) server: Arc<str>,
    /// It is in the same process.
    pub(crate) is_near: bool,
}

impl Links {
    /// Passes a request on and waits for the answer.
    pub(crate) async fn pass_on(
        &self,
        to: ServerId,
        passed: Passed,
    ) -> Result<Answered, NotPassed> {
        self.pass_on_or(to, passed, None).await
    }

    /// The same; `late` gets an answer that arrives after the caller has gone.
    pub(crate) async fn pass_on_or(
        &self,
        to: ServerId,
        passed: Passed,
        late: Option<Late>,
    ) -> Result<Answered, NotPassed> {
        let peer = self.peer(to).ok_or(NotPassed::Unknown(to))?;
        self.pass_on_to(&peer, passed, late).await
    }

    /// Passes a request on to the process that holds this very server.
    pub(crate) async fn pass_on_home(&self, passed: Passed) -> Result<Answered, NotPassed> {
        let twin = self.twin().ok_or_else(|| NotPassed::Unreachable(self.name.clone()))?;
        self.pass_on_to(&twin, passed, None).await
    }

    async fn pass_on_to(
        &self,
        peer: &Peer,
        passed: Passed,
        late: Option<Late>,
    ) -> Result<Answered, NotPassed> {
        if let Some((there, back)) = peer.near() {
            let app = there.app().ok_or_else(|| NotPassed::Unreachable(peer.name.clone()))?;
            let Some(_place) = back.place() else { return Ok(overloaded()) };
            peer.counters.sent.hand_over();
            let from = From { server: back.name.clone(), is_near: true };
            return Ok(carried_out(app, from, passed).await);
        }
        if peer.name == self.name {
            // The server has just gone to another process, which is being dialled; or that process
            // has died, and the server comes back.
            let app = self.app().ok_or_else(|| NotPassed::Unreachable(peer.name.clone()))?;
            let somewhere = async {
                tokio::select! {
                    () = until_up(peer) => false,
                    () = app.status.until(Phase::Ready) => true,
                }
            };
            if tokio::time::timeout(PATIENCE, somewhere).await == Ok(true) {
                let from = From { server: self.name.clone(), is_near: true };
                return Ok(carried_out(app, from, passed).await);
            }
        }
        let id = peer.next_request.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        peer.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let question = Question { peer, id, late };
        let frame = Frame::Request(id, passed).to_bytes();
        peer.outlet.put(&frame, &control(frame.len() as u64)).map_err(|dropped| match dropped {
            Dropped::Closed => NotPassed::Unreachable(peer.name.clone()),
            Dropped::Full => NotPassed::Full(peer.name.clone()),
        })?;
        let answer = answer.await.map_err(|_| NotPassed::Unanswered(peer.name.clone()));
        drop(question);
        answer
    }
}

async fn until_up(peer: &Peer) {
    let mut looks = tokio::time::interval(LOOK);
    while !peer.is_up() {
        looks.tick().await;
    }
}

/// Cancelled when its caller goes away.
struct Question<'p> {
    peer: &'p Peer,
    id: u64,
    late: Option<Late>,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let asked = self.peer.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        if asked.is_some() {
            if let Some(late) = self.late.take() {
                self.peer.expect_late(self.id, late);
            }
            let frame = Frame::Cancel(self.id).to_bytes();
            self.peer.outlet.put_beyond_limit(&frame, &control(frame.len() as u64));
        }
    }
}

/// Passes it on within one process. The request may be passed on again, so the future is boxed.
fn carried_out(
    app: Arc<App>,
    from: From,
    passed: Passed,
) -> Pin<Box<dyn Future<Output = Answered> + Send>> {
    Box::pin(async move { carry_out(&app, from, passed).await })
}

/// Carries out a request passed on by another server.
pub(crate) async fn carry_out(app: &Arc<App>, from: From, passed: Passed) -> Answered {
    let Passed { method, target, headers, body } = passed;
    let mut request = Request::builder().method(method.as_str()).uri(&target).extension(from);
    for Header(name, value) in &headers {
        request = request.header(name, &value[..]);
    }
    let body = Full::new(Bytes::from(Vec::from(body)));
    let Ok(request) = request.body(body) else {
        let detail = "a server passed on what is no request; run the same release everywhere";
        return refused(Refused::bad_request("malformed_request", detail));
    };
    // As a local request: the called server has checked the caller's address.
    let response = serve(app, IpAddr::V4(Ipv4Addr::LOCALHOST), request).await;
    let (head, body) = response.into_parts();
    let Ok(body) = Limited::new(body, RESPONSE_BYTES_MAX).collect().await else {
        let detail = "the answer is too long to be passed on; ask for less at once";
        let too_large = Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "answer_too_large", detail);
        return refused(too_large);
    };
    let header = |(name, value): (&HeaderName, &HeaderValue)| {
        Header(name.as_str().to_owned(), value.as_bytes().to_vec().into())
    };
    let headers = head.headers.iter().map(header).collect();
    Answered { status: head.status.as_u16(), headers, body: body.to_bytes().to_vec().into() }
}

pub(crate) fn overloaded() -> Answered {
    let detail = "too many requests that one server passed on are under way; try again later";
    refused(Refused::unavailable("overloaded", detail.to_owned()))
}

fn refused(refused: Refused) -> Answered {
    let (status, body) = refused.into_json();
    let problem = legwork_api::problem::CONTENT_TYPE.as_bytes().to_vec();
    let headers = vec![Header(CONTENT_TYPE.as_str().to_owned(), problem.into())];
    Answered { status, headers, body: body.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::links::tests::{links, server};

    #[tokio::test]
    async fn what_was_not_passed_on_is_told_from_what_was_not_answered() {
        let (_folder, _, links) = links(vec![server("north"), server("lab")]);
        let passed = || Passed {
            method: "GET".to_owned(),
            target: "/".to_owned(),
            headers: Vec::new(),
            body: Vec::new().into(),
        };
        let (lab, nobody) = (ServerId(1), ServerId(7));
        let name: Arc<str> = "lab".into();
        let closed = links.pass_on(lab, passed()).await;
        assert_eq!(closed, Err(NotPassed::Unreachable(name.clone())));
        assert_eq!(links.pass_on(nobody, passed()).await, Err(NotPassed::Unknown(nobody)));
        let peer = links.peer(lab).unwrap();
        peer.outlet.open();
        let breaks = async { peer.asked.lock().unwrap().clear() };
        let (broken, ()) = tokio::join!(links.pass_on(lab, passed()), breaks);
        assert_eq!(broken, Err(NotPassed::Unanswered(name)));
    }
}
