//! What goes back to the caller: answers, problems and streams.
//!
//! Invariant: whatever goes wrong, the caller gets a problem with a stable code.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use legwork_api::Problem;
use legwork_api::deadlines::Deadline;
use legwork_api::endpoints::Verb;
use legwork_model::id::ServerId;
use legwork_site::{Kind, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::convert;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static(legwork_api::problem::CONTENT_TYPE);
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");

const PIECE_BYTES_MAX: usize = 64 << 10;

pub(crate) type Result<T = Reply> = std::result::Result<T, Refused>;

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    content_type: Option<HeaderValue>,
    header: Option<(HeaderName, HeaderValue)>,
    body: Content,
}

/// A refusal on its way out.
#[derive(Debug)]
pub(crate) struct Refused {
    problem: Box<Problem>,
    header: Option<(HeaderName, HeaderValue)>,
    /// The server that can carry it out.
    pub(crate) at: Option<ServerId>,
}

/// The body of an answer: at hand as a whole, or coming piece by piece.
#[derive(Debug)]
pub(crate) enum Content {
    Whole(Bytes),
    Pieces { first: Option<Bytes>, rest: mpsc::Receiver<io::Result<Bytes>> },
}

impl Reply {
    pub(crate) fn json(answer: &impl Serialize) -> Result {
        Self::json_with(StatusCode::OK, answer)
    }

    pub(crate) fn json_with(status: StatusCode, answer: &impl Serialize) -> Result {
        let body = serde_json::to_vec(answer).map_err(|error| Refused::fault(&error))?;
        Ok(Self::of(status, JSON, body.into()))
    }

    pub(crate) fn done() -> Result {
        let body = Content::Whole(Bytes::new());
        Ok(Self { status: StatusCode::NO_CONTENT, content_type: None, header: None, body })
    }

    /// JSON that is at hand as text.
    pub(crate) fn document(json: Bytes) -> Result {
        Ok(Self::of(StatusCode::OK, JSON, json))
    }

    pub(crate) fn of(status: StatusCode, content_type: HeaderValue, body: Bytes) -> Self {
        let (content_type, body) = (Some(content_type), Content::Whole(body));
        Self { status, content_type, header: None, body }
    }

    pub(crate) fn stream(
        content_type: HeaderValue,
        first: Option<Bytes>,
        rest: mpsc::Receiver<io::Result<Bytes>>,
    ) -> Self {
        let (content_type, body) = (Some(content_type), Content::Pieces { first, rest });
        Self { status: StatusCode::OK, content_type, header: None, body }
    }

    /// What another server has answered.
    pub(crate) fn passed_back(
        status: StatusCode,
        content_type: Option<HeaderValue>,
        header: Option<(HeaderName, HeaderValue)>,
        body: Bytes,
    ) -> Self {
        Self { status, content_type, header, body: Content::Whole(body) }
    }

    /// The code of a problem, if that is what it is.
    pub(crate) fn code(&self) -> Option<String> {
        let is_problem = self.status.is_client_error() || self.status.is_server_error();
        let Content::Whole(body) = &self.body else { return None };
        let problem: Option<Problem> =
            is_problem.then(|| serde_json::from_slice(body).ok()).flatten();
        Some(problem?.code.to_string())
    }

    /// What another server has answered, or its refusal.
    pub(crate) fn into_json<T: DeserializeOwned>(self) -> Result<T> {
        let Content::Whole(body) = &self.body else { return strange() };
        if self.status.is_success() {
            return serde_json::from_slice(body).map_err(|error| Refused::fault(&error));
        }
        let problem = serde_json::from_slice(body).map_err(|error| Refused::fault(&error))?;
        Err(Refused { problem, header: self.header, at: None })
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some((name, value));
        self
    }

    pub(crate) fn into_response(self) -> Response<Content> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        if let Some(content_type) = self.content_type {
            response.headers_mut().insert(CONTENT_TYPE, content_type);
        }
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl Refused {
    pub(crate) fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        let problem = Box::new(Problem::new(status.as_u16(), code, detail));
        let header = (status == StatusCode::UNAUTHORIZED).then_some((WWW_AUTHENTICATE, BEARER));
        Self { problem, header, at: None }
    }

    pub(crate) fn bad_request(code: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// The same request may go through in a while.
    pub(crate) fn later(status: StatusCode, code: &str, seconds: u32, detail: String) -> Self {
        let header = Some((RETRY_AFTER, HeaderValue::from(seconds)));
        Self { header, ..Self::new(status, code, detail) }
    }

    pub(crate) fn unavailable(code: &str, detail: String) -> Self {
        Self::later(StatusCode::SERVICE_UNAVAILABLE, code, 1, detail)
    }

    pub(crate) fn wrong_method(allowed: &[Verb]) -> Self {
        let names = allowed.iter().map(|verb| verb.name()).collect::<Vec<_>>().join(", ");
        let detail = format!("this path takes {names}; use one of them");
        let refused = Self::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", detail);
        let header = HeaderValue::from_str(&names).ok().map(|names| (ALLOW, names));
        Self { header, ..refused }
    }

    /// Something that cannot happen did.
    pub(crate) fn fault(what: &dyn std::fmt::Display) -> Self {
        tracing::error!(%what, "a request met a fault in the server");
        let detail = format!("a fault in the server itself ({what}); please report it");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    pub(crate) fn into_problem(self) -> Problem {
        *self.problem
    }

    /// Its status and its body.
    pub(crate) fn into_json(self) -> (u16, Vec<u8>) {
        let body = serde_json::to_vec(&self.problem).unwrap_or_default();
        (self.problem.status, body)
    }

    pub(crate) fn status(&self) -> u16 {
        self.problem.status
    }

    pub(crate) fn code(&self) -> &str {
        &self.problem.code
    }
}

/// The site answered something else than it was asked for.
pub(crate) fn strange<T>() -> Result<T> {
    Err(Refused::fault(&"an answer of the wrong kind"))
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let problem = problem(&refusal);
        let header = match problem.status {
            401 => Some((WWW_AUTHENTICATE, BEARER)),
            429 => Some((RETRY_AFTER, HeaderValue::from(1))),
            _ => None,
        };
        Self { problem, header, at: refusal.at }
    }
}

impl From<Refused> for Reply {
    fn from(refused: Refused) -> Self {
        let Refused { problem, header, at: _ } = refused;
        let status =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        Self { header, ..Self::of(status, PROBLEM, body.into()) }
    }
}

/// A refusal of the site, as a problem.
pub(crate) fn problem(refusal: &Refusal) -> Box<Problem> {
    let status = match refusal.kind {
        // The request was understood; what it asks for is wrong.
        Kind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Conflict => StatusCode::CONFLICT,
        Kind::Exhausted => StatusCode::TOO_MANY_REQUESTS,
        Kind::Broken => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut problem = Problem::new(status.as_u16(), refusal.code, refusal.message.clone());
    if let Some(possible) = &refusal.possible {
        let Deadline { at, steps, .. } = convert::deadline((**possible).clone());
        (problem.earliest, problem.steps) = (Some(at), steps);
    }
    problem.findings = refusal.findings.iter().map(Into::into).collect();
    Box::new(problem)
}

impl Body for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => {
                // A large one goes in pieces: what is handed over at once is copied once more.
                let piece = bytes.split_to(bytes.len().min(PIECE_BYTES_MAX));
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Self::Pieces { first, rest } => match first.take() {
                Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
                None => rest.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Pieces { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pieces { .. } => SizeHint::default(),
        }
    }
}
