//! Incoming requests: tasks, verdicts and cancellations, each verified first.
//!
//! Invariant: a request with a wrong signature has no effect; bodies are bounded, each and all
//! together.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use legwork_api::executors::{CancelRequest, TaskDone, TaskRefused, TaskTaken, VerdictRequest};
use legwork_api::signature::{self, Signed};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::callback::Target;
use crate::memory::{Answer, Load, is_too_long};
use crate::serve::Shared;
use crate::verdicts::{self, Confirmation};
use crate::work::{self, NotNow};
use crate::{Task, clock};

/// The largest body: all values of a case, with some margin.
const BODY_BYTES_MAX: u64 = 20 << 20;
/// All bodies being read, in KiB.
pub(crate) const BODIES_KIB_MAX: usize = 128 << 10;
/// How long receiving a body may take.
const BODY_WAIT: Duration = Duration::from_secs(20);
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// When a busy executor can be asked again, in seconds.
const AGAIN_AFTER: HeaderValue = HeaderValue::from_static("1");

pub(crate) type Reply = Response<Full<Bytes>>;

pub(crate) async fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Reply {
    let path = request.uri().path();
    let Some(place) = path.strip_prefix(shared.prefix.as_str()).and_then(Place::parse) else {
        return refuse(
            StatusCode::NOT_FOUND,
            "there are /tasks, /verdicts and /cancellations here",
        );
    };
    if request.method() != Method::POST {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "use POST");
    }
    let body = match checked(shared, request).await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    match place {
        Place::Tasks => match read(&body) {
            Ok(task) => do_task(shared, task).await,
            Err(refusal) => *refusal,
        },
        Place::Verdicts => match read::<VerdictRequest>(&body) {
            Ok(VerdictRequest { task, .. }) if is_too_long(&task) => too_long(),
            Ok(VerdictRequest { task, verdict }) => {
                match verdicts::pass(shared, &task, verdict).await {
                    Confirmation::Confirmed => reply(StatusCode::OK, &serde_json::json!({})),
                    Confirmation::Later => busy("the verdict is being seen to; say it again"),
                    Confirmation::Failed(failure) => {
                        refuse(StatusCode::INTERNAL_SERVER_ERROR, &failure.reason)
                    }
                }
            }
            Err(refusal) => *refusal,
        },
        Place::Cancellations => match read::<CancelRequest>(&body) {
            Ok(CancelRequest { task }) if is_too_long(&task) => too_long(),
            Ok(CancelRequest { task }) => {
                shared.memory().cancel(&task);
                reply(StatusCode::OK, &serde_json::json!({}))
            }
            Err(refusal) => *refusal,
        },
    }
}

#[derive(Clone, Copy)]
enum Place {
    Tasks,
    Verdicts,
    Cancellations,
}

impl Place {
    fn parse(path: &str) -> Option<Self> {
        match path {
            "/tasks" => Some(Self::Tasks),
            "/verdicts" => Some(Self::Verdicts),
            "/cancellations" => Some(Self::Cancellations),
            _ => None,
        }
    }
}

async fn do_task(shared: &Arc<Shared>, task: Task) -> Reply {
    if is_too_long(&task.task) {
        return too_long();
    }
    let kind = shared.executor.types.get(&task.kind);
    let Some((kind, handler)) = kind.and_then(|kind| Some((kind, kind.handler.as_ref()?))) else {
        return refuse(StatusCode::NOT_FOUND, "tasks of this type are not done here");
    };
    if Target::parse(&task.callback).is_none() {
        let error = "the callback cannot be called: this executor speaks http:// without a user";
        return refuse(StatusCode::BAD_REQUEST, error);
    }
    let name = task.task.clone();
    let mut waiting = match work::begin(shared, task, handler, kind.limit) {
        Ok(waiting) => waiting,
        Err(NotNow::Busy) => {
            let error = "as many tasks as the limit allows are under way; ask again later";
            return later(decline(shared, StatusCode::TOO_MANY_REQUESTS, error));
        }
        Err(NotNow::Closed) => {
            let error = "no more tasks are taken here now; ask again later";
            return later(decline(shared, StatusCode::SERVICE_UNAVAILABLE, error));
        }
    };
    let answered = waiting.wait_for(Option::is_some).await.map(|answer| answer.clone());
    match answered {
        Ok(Some(Answer::Taken)) => {
            let Load { has, holds } = shared.memory().load();
            reply(StatusCode::ACCEPTED, &TaskTaken { has: Some(has), holds: Some(holds) })
        }
        Ok(Some(Answer::Finished(outcome))) => match &*outcome {
            Ok(data) => {
                let memory = shared.memory();
                let (Load { has, holds }, took_ms) = (memory.load(), memory.took_ms(&name));
                drop(memory);
                let (has, holds) = (Some(has), Some(holds));
                reply(StatusCode::OK, &TaskDone { data: data.clone(), has, holds, took_ms })
            }
            Err(failure) if failure.retry => {
                decline(shared, StatusCode::INTERNAL_SERVER_ERROR, &failure.reason)
            }
            Err(failure) => decline(shared, StatusCode::UNPROCESSABLE_ENTITY, &failure.reason),
        },
        Ok(Some(Answer::Over)) => {
            decline(shared, StatusCode::CONFLICT, "the task was cancelled, or has its verdict")
        }
        // Forgotten while the request waited.
        Ok(None) | Err(_) => {
            let error = "the task is not known any more; ask again";
            later(decline(shared, StatusCode::SERVICE_UNAVAILABLE, error))
        }
    }
}

/// The body of a request with a valid signature.
async fn checked(shared: &Shared, request: Request<Incoming>) -> Result<Bytes, Box<Reply>> {
    let (head, body) = request.into_parts();
    let header = head.headers.get(signature::HEADER).map(|value| value.to_str().unwrap_or(""));
    if header.is_none() {
        let refusal = signature::Refusal::Missing.to_string();
        return Err(Box::new(refuse(StatusCode::UNAUTHORIZED, &refusal)));
    }
    let length = body.size_hint().exact();
    let Some(length) = length.filter(|length| *length <= BODY_BYTES_MAX) else {
        let error = format!("say the length of the body; it has at most {BODY_BYTES_MAX} bytes");
        return Err(Box::new(refuse(StatusCode::PAYLOAD_TOO_LARGE, &error)));
    };
    let kib = u32::try_from(length / 1024 + 1).unwrap_or(u32::MAX);
    let limit = usize::try_from(BODY_BYTES_MAX).unwrap_or(usize::MAX);
    let reading = async {
        let room = shared.room.acquire_many(kib).await.ok()?;
        let body = Limited::new(body, limit).collect().await.ok()?.to_bytes();
        drop(room);
        Some(body)
    };
    let body = tokio::time::timeout(BODY_WAIT, reading).await.ok().flatten();
    let slow = || Box::new(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"));
    let body = body.ok_or_else(slow)?;
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let signed = Signed { method: head.method.as_str(), target, body: &body };
    signature::verify(&shared.executor.secret, &signed, header, clock::now()).map_err(
        |refusal| {
            tracing::warn!(%refusal, target, "a request is refused");
            Box::new(refuse(StatusCode::UNAUTHORIZED, &refusal.to_string()))
        },
    )?;
    Ok(body)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Box<Reply>> {
    serde_json::from_slice(body).map_err(|error| {
        let error = format!("the body is not understood ({error}); see the executor protocol");
        Box::new(refuse(StatusCode::BAD_REQUEST, &error))
    })
}

fn too_long() -> Reply {
    refuse(StatusCode::BAD_REQUEST, "the name of the task is too long: at most 400 characters")
}

fn busy(error: &str) -> Reply {
    later(refuse(StatusCode::SERVICE_UNAVAILABLE, error))
}

fn later(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(RETRY_AFTER, AGAIN_AFTER);
    reply
}

fn refuse(status: StatusCode, error: &str) -> Reply {
    reply(status, &TaskRefused { error: error.to_owned(), has: None, holds: None })
}

/// Refuses a task, and reports the current load.
fn decline(shared: &Shared, status: StatusCode, error: &str) -> Reply {
    let Load { has, holds } = shared.memory().load();
    let error = error.to_owned();
    reply(status, &TaskRefused { error, has: Some(has), holds: Some(holds) })
}

fn reply(status: StatusCode, body: &impl Serialize) -> Reply {
    // Texts and values are always JSON.
    let mut reply = Response::new(Full::new(serde_json::to_vec(body).unwrap_or_default().into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, JSON);
    reply
}
