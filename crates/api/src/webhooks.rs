//! What Legwork calls at an executor, as OpenAPI: each below the address that it has registered.
//!
//! Invariant: the server gives this out within its own document, and the tests of the ready executor
//! hold what that answers against it.

use utoipa::openapi::security::{ApiKey, ApiKeyValue, SecurityScheme};
use utoipa::{Modify, OpenApi};

use crate::executors::{
    CancelRequest, TaskDone, TaskRefused, TaskRequest, TaskTaken, VerdictRequest,
};

/// The name of the scheme by which both sides sign.
pub const SIGNATURE: &str = "signature";

/// A document that has nothing but these calls, as webhooks, and what they are made of.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = Calls::openapi();
    let mut calls = std::mem::take(&mut document.paths);
    // Webhooks have names, not paths.
    let named = std::mem::take(&mut calls.paths).into_iter();
    calls.paths = named.map(|(path, item)| (path.trim_start_matches('/').into(), item)).collect();
    document.webhooks = Some(calls);
    document
}

#[derive(OpenApi)]
#[openapi(
    info(title = "What Legwork calls at an executor"),
    paths(tasks, verdicts, cancellations),
    modifiers(&Signed),
)]
struct Calls;

struct Signed;

impl Modify for Signed {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let about = "`t=MILLIS,v1=HEX`: the time in milliseconds since 1970, and the HMAC-SHA256, with \
                     the registered secret, of the time, a full stop, the method, a space, the path \
                     with its query, a full stop and the body";
        let key = ApiKeyValue::with_description("Legwork-Signature", about);
        if let Some(components) = &mut openapi.components {
            components.add_security_scheme(SIGNATURE, SecurityScheme::ApiKey(ApiKey::Header(key)));
        }
    }
}

/// `POST {url}/tasks`: do this. What was taken before (the same `task`) is answered like the first time.
#[utoipa::path(
    post, path = "/tasks", tag = "executors", operation_id = "do_task",
    security(("signature" = [])),
    request_body = TaskRequest,
    responses(
        (status = 200, body = TaskDone, description = "Done; `data` are the step's outputs"),
        (status = 202, body = TaskTaken, description = "Taken, whatever the body; the result goes to the callback"),
        (status = 401, body = TaskRefused, description = "The signature does not fit"),
        (status = 409, body = TaskRefused, description = "The task was cancelled, or has its verdict"),
        (status = 422, body = TaskRefused, description = "It failed and will fail again: no further attempt"),
        (
            status = 429, body = TaskRefused, description = "Busy: nothing was begun, no failed attempt",
            headers(("Retry-After" = u32, description = "Seconds until it may be asked again")),
        ),
        (status = 500, body = TaskRefused, description = "This attempt failed; another is made"),
        (
            status = 503, body = TaskRefused, description = "Not now: nothing was begun, no failed attempt",
            headers(("Retry-After" = u32, description = "Seconds until it may be asked again")),
        ),
        (status = "default", body = TaskRefused, description = "This attempt failed; another is made"),
    ),
)]
#[expect(dead_code, reason = "it is what the document tells; nobody here is called so")]
fn tasks() {}

/// `POST {url}/verdicts`: whether a result counts. It is said until it is confirmed, also of tasks that are
/// not known.
#[utoipa::path(
    post, path = "/verdicts", tag = "executors", operation_id = "tell_verdict",
    security(("signature" = [])),
    request_body = VerdictRequest,
    responses(
        (status = "2XX", description = "Confirmed, whatever the body"),
        (status = "default", body = TaskRefused, description = "Not confirmed: it is said again"),
    ),
)]
#[expect(dead_code, reason = "it is what the document tells; nobody here is called so")]
fn verdicts() {}

/// `POST {url}/cancellations`: nobody waits for the task any more.
#[utoipa::path(
    post, path = "/cancellations", tag = "executors", operation_id = "cancel_task",
    security(("signature" = [])),
    request_body = CancelRequest,
    responses(
        (status = "2XX", description = "Heard, whatever the body"),
        (status = "default", body = TaskRefused, description = "Not heard; it is not said again"),
    ),
)]
#[expect(dead_code, reason = "it is what the document tells; nobody here is called so")]
fn cancellations() {}
