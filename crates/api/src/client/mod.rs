//! A typed client for a Legwork server: one method per operation, over kept-alive connections.
//!
//! Invariant: a request is sent at most once. It is repeated only when it is certain that nothing
//! of it has reached the server; otherwise the caller is told, and decides.

mod error;
mod events;
mod operations;
mod pool;
mod servers;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use error::Error;
pub use events::Events;
pub use operations::{InstanceQuery, WorklistQuery};

use crate::Problem;
use crate::endpoints::{Nothing, Octets, Target, Verb, Yaml};
use pool::Connection;
use servers::{Server, Servers};

/// How long an answer may take beyond the time the request itself asks to wait.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest answer that is read into memory.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

type Result<T> = std::result::Result<T, Error>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const YAML: HeaderValue = HeaderValue::from_static("text/yaml");

/// Speaks to one server, or to another one that it knows when that cannot be reached. Clones share
/// their connections.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    servers: Servers,
    authorization: Option<HeaderValue>,
}

/// A long answer, read piece by piece.
#[derive(Debug)]
pub struct Download {
    /// What the server says the content is.
    pub media_type: String,
    body: Incoming,
    authority: Arc<str>,
}

/// What is to be sent, to be answered with an `A`.
struct Call<A> {
    sent: Sent,
    answer: PhantomData<fn() -> A>,
}

#[derive(Clone)]
struct Sent {
    verb: Verb,
    /// Path and query, encoded.
    target: String,
    body: Bytes,
    content_type: Option<HeaderValue>,
    key: Option<HeaderValue>,
    signature: Option<HeaderValue>,
    /// How long the server may hold the answer back.
    wait: Duration,
}

impl Client {
    /// `base_url` such as `http://127.0.0.1:7700`, or several with commas between them; the token
    /// as `legwork token create` printed it.
    pub fn new(base_url: &str, token: Option<&str>) -> Result<Self> {
        let servers = Servers::parse(base_url)?;
        let authorization = token
            .map(|token| {
                let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
                    .map_err(|_| Error::BadToken)?;
                value.set_sensitive(true);
                Ok(value)
            })
            .transpose()?;
        Ok(Self { inner: Arc::new(Inner { servers, authorization }) })
    }

    /// Learns of all servers there are, those of the same domain first, to go on with one of them
    /// when the present one cannot be reached. A server that is alone knows of no others.
    pub async fn discover(&self) -> Result<()> {
        let topology = match self.topology(None).await {
            Ok(topology) => topology,
            Err(error) if error.code() == Some("no_topology") => return Ok(()),
            Err(error) => return Err(error),
        };
        let is_near = |domain: &&crate::topology::Domain| {
            domain.servers.iter().any(|one| Some(&one.server) == topology.server.as_ref())
        };
        let near = topology.domains.iter().filter(is_near);
        let far = topology.domains.iter().filter(|domain| !is_near(domain));
        let servers = near.chain(far).flat_map(|domain| &domain.servers);
        self.inner.servers.add(servers.map(|server| &*server.api));
        Ok(())
    }

    /// Sends a body that is JSON already and answers the JSON as it came, for callers to whom
    /// every microsecond counts.
    pub async fn post_raw(&self, path: &str, json: Bytes, wait: Duration) -> Result<Bytes> {
        let sent = Sent { wait, ..Sent::new(Verb::Post, path.to_owned()).json(json) };
        Ok(self.send(sent).await?.1)
    }

    /// Sends a body that is JSON already under a `Legwork-Signature`, and answers the status. What
    /// was signed is `path` as it stands here, so the address of the client has no path of its own.
    #[cfg(feature = "signature")]
    pub async fn post_signed(&self, path: &str, json: Bytes, signature: &str) -> Result<u16> {
        let bad = |_| Error::BadArgument { what: "signature", text: signature.to_owned() };
        let mut sent = Sent::new(Verb::Post, path.to_owned()).json(json);
        sent.signature = Some(HeaderValue::from_str(signature).map_err(bad)?);
        Ok(self.send(sent).await?.0.as_u16())
    }

    async fn get<A: DeserializeOwned>(&self, target: Target<Nothing, A>) -> Result<A> {
        self.call(Call::to(target)).await
    }

    async fn call<A: DeserializeOwned>(&self, call: Call<A>) -> Result<A> {
        let (status, body) = self.send(call.sent).await?;
        serde_json::from_slice(&body).map_err(|e| self.unexpected(status, e.to_string()))
    }

    /// For operations that answer nothing but that they are done.
    async fn order(&self, call: Call<Nothing>) -> Result<()> {
        self.send(call.sent).await.map(|_| ())
    }

    async fn send(&self, sent: Sent) -> Result<(StatusCode, Bytes)> {
        let limit = sent.wait.saturating_add(PATIENCE);
        let exchange = async {
            let (response, connection, server) = self.exchange(sent).await?;
            let (head, body) = response.into_parts();
            let body = self.read(body).await?;
            server.pool.give_back(connection);
            self.accept(head.status, body)
        };
        match tokio::time::timeout(limit, exchange).await {
            Ok(result) => result,
            Err(_) => Err(Error::TimedOut { authority: self.authority(), after: limit }),
        }
    }

    /// For answers without an end or too long for memory. The connection is not used again.
    async fn open<A>(&self, target: Target<Nothing, A>) -> Result<Response<Incoming>> {
        let opening = self.exchange(Call::to(target).sent);
        let Ok(opened) = tokio::time::timeout(PATIENCE, opening).await else {
            return Err(Error::TimedOut { authority: self.authority(), after: PATIENCE });
        };
        let (response, ..) = opened?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let body = self.read(body).await?;
        let refusal = self.accept(head.status, body);
        Err(refusal.err().unwrap_or_else(|| self.unexpected(head.status, "no problem".into())))
    }

    /// With the first server that can be reached: to one that cannot, nothing was sent.
    async fn exchange(&self, sent: Sent) -> Result<(Response<Incoming>, Connection, Arc<Server>)> {
        let mut unreachable = None;
        for (place, server) in self.inner.servers.in_turn() {
            match self.exchange_with(&server, sent.clone()).await {
                Err(error @ Error::Unreachable { .. }) => drop(unreachable.get_or_insert(error)),
                Err(error) => return Err(error),
                Ok((response, connection)) => {
                    self.inner.servers.prefer(place);
                    return Ok((response, connection, server));
                }
            }
        }
        Err(unreachable.unwrap_or_else(|| self.unexpected(StatusCode::OK, "no address".into())))
    }

    async fn exchange_with(
        &self,
        server: &Server,
        sent: Sent,
    ) -> Result<(Response<Incoming>, Connection)> {
        let mut request = self.request(server, sent)?;
        loop {
            let (mut connection, fresh) = server.pool.take().await?;
            match connection.try_send_request(request).await {
                Ok(response) => return Ok((response, connection)),
                Err(mut failure) => match failure.take_message() {
                    // A kept connection had been closed meanwhile and nothing was sent.
                    Some(unsent) if !fresh => request = unsent,
                    Some(_) | None => {
                        let authority = server.base.authority.clone();
                        let reason = failure.into_error().to_string();
                        return Err(Error::Broken { authority, reason });
                    }
                },
            }
        }
    }

    fn request(&self, server: &Server, sent: Sent) -> Result<Request<Full<Bytes>>> {
        let target = format!("{}{}", server.base.prefix, sent.target);
        let mut request = Request::new(Full::new(sent.body));
        *request.method_mut() = match sent.verb {
            Verb::Get => Method::GET,
            Verb::Post => Method::POST,
            Verb::Put => Method::PUT,
            Verb::Delete => Method::DELETE,
        };
        *request.uri_mut() =
            target.parse().map_err(|_| Error::BadArgument { what: "path", text: sent.target })?;
        let headers = request.headers_mut();
        headers.insert(HOST, server.base.host.clone());
        if let Some(content_type) = sent.content_type {
            headers.insert(CONTENT_TYPE, content_type);
        }
        if let Some(key) = sent.key {
            headers.insert("idempotency-key", key);
        }
        if let Some(signature) = sent.signature {
            headers.insert("legwork-signature", signature);
        }
        if let Some(authorization) = &self.inner.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        Ok(request)
    }

    async fn read(&self, mut body: Incoming) -> Result<Bytes> {
        let broken =
            |e: hyper::Error| Error::Broken { authority: self.authority(), reason: e.to_string() };
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            if first.len() + rest.len() + data.len() > ANSWER_BYTES_MAX {
                let detail = format!("more than {ANSWER_BYTES_MAX} bytes");
                return Err(self.unexpected(StatusCode::OK, detail));
            }
            // Nearly every answer comes in one piece: it is passed on without a copy.
            if first.is_empty() {
                first = data;
            } else {
                if rest.is_empty() {
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&data);
            }
        }
        Ok(if rest.is_empty() { first } else { rest.freeze() })
    }

    fn accept(&self, status: StatusCode, body: Bytes) -> Result<(StatusCode, Bytes)> {
        if status.is_success() {
            return Ok((status, body));
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(Error::Problem(Box::new(problem))),
            Err(_) => {
                let text = String::from_utf8_lossy(&body);
                Err(self.unexpected(status, text.chars().take(200).collect()))
            }
        }
    }

    fn unexpected(&self, status: StatusCode, detail: String) -> Error {
        Error::Unexpected { authority: self.authority(), status: status.as_u16(), detail }
    }

    fn authority(&self) -> Arc<str> {
        self.inner
            .servers
            .current()
            .map_or_else(|| "".into(), |server| server.base.authority.clone())
    }
}

impl Sent {
    fn new(verb: Verb, target: String) -> Self {
        Self {
            verb,
            target,
            body: Bytes::new(),
            content_type: None,
            key: None,
            signature: None,
            wait: Duration::ZERO,
        }
    }

    fn json(self, json: Bytes) -> Self {
        Self { body: json, content_type: Some(JSON), ..self }
    }
}

impl<A> Call<A> {
    fn to(target: Target<Nothing, A>) -> Self {
        Self::with(target, |sent| sent)
    }

    fn json<Q: Serialize>(target: Target<Q, A>, body: &Q) -> Result<Self> {
        let json = serde_json::to_vec(body)
            .map_err(|e| Error::BadArgument { what: "body", text: e.to_string() })?;
        Ok(Self::with(target, |sent| sent.json(json.into())))
    }

    fn yaml(target: Target<Yaml, A>, source: &str) -> Self {
        let body = Bytes::copy_from_slice(source.as_bytes());
        Self::with(target, |sent| Sent { body, content_type: Some(YAML), ..sent })
    }

    fn octets(target: Target<Octets, A>, media_type: &str, body: Bytes) -> Result<Self> {
        let bad = |_| Error::BadArgument { what: "media type", text: media_type.to_owned() };
        let content_type = Some(HeaderValue::from_str(media_type).map_err(bad)?);
        Ok(Self::with(target, |sent| Sent { body, content_type, ..sent }))
    }

    fn with<Q>(target: Target<Q, A>, body: impl FnOnce(Sent) -> Sent) -> Self {
        Self { sent: body(Sent::new(target.verb, target.text())), answer: PhantomData }
    }

    fn waiting(mut self, wait: Duration) -> Self {
        self.sent.wait = wait;
        self
    }

    fn keyed(mut self, key: Option<&str>) -> Result<Self> {
        let bad =
            |text: &str| Error::BadArgument { what: "idempotency key", text: text.to_owned() };
        self.sent.key =
            key.map(|key| HeaderValue::from_str(key).map_err(|_| bad(key))).transpose()?;
        Ok(self)
    }
}

impl Download {
    fn new(response: Response<Incoming>, authority: Arc<str>) -> Self {
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let media_type = media_type.unwrap_or("application/octet-stream").to_owned();
        Self { media_type, body: response.into_body(), authority }
    }

    /// The next piece; `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|e| Error::Broken {
                authority: self.authority.clone(),
                reason: e.to_string(),
            })?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}
