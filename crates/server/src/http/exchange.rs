//! One request while it is being carried out, and what operations need of it.
//!
//! Invariant: whatever is wrong with a request is refused before the site hears of it, and names
//! the field.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::HeaderName;
use hyper::http::request::Parts;
use legwork_model::id::AgentId;
use legwork_model::time::Timestamp;
use legwork_site::{Answer, Credential, Request, Scope};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use tracing::Span;

use super::files::Place;
use super::query::Query;
use super::reply::{Refused, Reply, Result, strange};
use super::route::Route;
use super::{App, body, trace};
use crate::peer::From;

/// Long enough for any generated key, short enough to be hashed at every request.
const KEY_BYTES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 256;
static KEY: HeaderName = HeaderName::from_static("idempotency-key");

pub(super) struct Exchange<'a> {
    pub(super) app: &'a Arc<App>,
    pub(super) head: &'a Parts,
    pub(super) route: &'static Route,
    /// What stands for the segment in braces, still encoded.
    pub(super) parameter: Option<&'a str>,
    pub(super) credential: Credential,
    pub(super) query: Query<'a>,
    pub(super) body: Bytes,
    /// Held by an upload.
    pub(super) place: Option<Place>,
    /// Told which instances it is about.
    pub(super) span: &'a Span,
}

impl<'a> Exchange<'a> {
    /// The server that has passed the request on, if one has that knows where it belongs: a process
    /// that is away passes on whatever it is asked.
    pub(super) fn passed_on_by(&self) -> Option<&'a str> {
        let from = &*self.head.extensions.get::<From>()?.server;
        let own = self.app.links.as_ref().map(|links| &*links.name);
        (Some(from) != own).then_some(from)
    }

    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        body::json(&self.head.headers, &self.body, self.app.limits.json_depth_max)
    }

    /// For operations whose body may be left out.
    pub(super) fn json_or_default<T: DeserializeOwned + Default>(&self) -> Result<T> {
        if self.body.is_empty() { Ok(T::default()) } else { self.json() }
    }

    pub(super) fn source(&self) -> Result<String> {
        body::source(&self.head.headers, &self.body, self.app.limits.json_depth_max)
    }

    /// The segment in braces, as text.
    pub(super) fn name(&self) -> Result<String> {
        let text = percent_decode_str(self.parameter.unwrap_or_default()).decode_utf8();
        let text = text.map_err(|_| bad_segment(&"it is not UTF-8"))?;
        if text.len() > NAME_BYTES_MAX {
            return Err(bad_segment(&format!("it has more than {NAME_BYTES_MAX} bytes")));
        }
        Ok(text.into_owned())
    }

    /// The segment in braces, as an id.
    pub(super) fn id<T: FromStr<Err: Display>>(&self) -> Result<T> {
        self.name()?.parse().map_err(|error: T::Err| bad_segment(&error))
    }

    /// The idempotency key, if there is one.
    pub(super) fn key(&self) -> Result<Option<&'a str>> {
        let Some(value) = self.head.headers.get(&KEY) else { return Ok(None) };
        match value.to_str() {
            Ok(key) if !key.is_empty() && key.len() <= KEY_BYTES_MAX => Ok(Some(key)),
            Ok(_) | Err(_) => {
                let detail = format!(
                    "an idempotency key has 1 to {KEY_BYTES_MAX} printable ASCII characters"
                );
                Err(Refused::bad_request("bad_idempotency_key", detail))
            }
        }
    }

    /// Until when to wait; `None` not to wait.
    pub(super) fn wait_until(&self, wait_ms: Option<u64>) -> Result<Option<Timestamp>> {
        let Some(wait_ms) = wait_ms.filter(|wait_ms| *wait_ms > 0) else { return Ok(None) };
        let wait = Duration::from_millis(wait_ms);
        if wait > self.app.limits.wait_max {
            let most = self.app.limits.wait_max.as_millis();
            let detail = format!("`wait_ms` can be {most} at most; ask again after that");
            return Err(Refused::bad_request("wait_too_long", detail));
        }
        Ok(Some(self.app.clock.now() + wait))
    }

    pub(super) async fn ask(&self, request: Request) -> Result<Answer> {
        trace::asked(self.span, &request);
        let answer = self.app.gate.ask(self.credential.clone(), request).await?;
        trace::heard(self.span, &answer);
        Ok(answer)
    }

    /// For operations that answer nothing but that they are done.
    pub(super) async fn order(&self, request: Request) -> Result {
        let done = matches!(self.ask(request).await?, Answer::Done);
        if done { Reply::done() } else { strange() }
    }

    /// Waits if the request says so. `None` if the server stops meanwhile.
    pub(super) async fn ask_patiently(&self, request: Request) -> Result<Option<Answer>> {
        trace::asked(self.span, &request);
        let answer = self.app.gate.ask_patiently(self.credential.clone(), request).await?;
        if let Some(answer) = &answer {
            trace::heard(self.span, answer);
        }
        Ok(answer)
    }

    pub(super) async fn require_files(&self) -> Result {
        self.order(Request::RequireFiles).await
    }

    /// The agent given, or the one the token is for.
    pub(super) async fn agent(&self, given: Option<&str>) -> Result<AgentId> {
        if let Some(agent) = given {
            return Ok(AgentId::from(agent));
        }
        let answer = self.ask(Request::WhoAmI).await?;
        let Answer::Caller { scopes, .. } = answer else { return strange() };
        let mut own = scopes.into_iter().filter_map(|scope| match scope {
            Scope::Work(agent) => Some(agent),
            Scope::Admin | Scope::Start | Scope::Worker => None,
        });
        match (own.next(), own.next()) {
            (Some(Some(agent)), None) => Ok(agent),
            (Some(Some(_)), Some(_)) | (Some(None) | None, _) => {
                let detail = "say which agent acts in `agent`: the token is not for exactly one";
                Err(Refused::bad_request("agent_missing", detail))
            }
        }
    }
}

fn bad_segment(error: &dyn Display) -> Refused {
    Refused::bad_request("bad_id", format!("the path does not fit: {error}"))
}
