//! The stream of changes of a worklist, as server-sent events.
//!
//! Invariant: each event is answered once; after a break, `last_id` given as `since` goes on
//! without a gap.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::Error;
use crate::work::Worklist;

/// The longest event that is accepted.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(Debug)]
pub struct Events {
    body: Incoming,
    buffer: Vec<u8>,
    last_id: Option<String>,
    authority: Arc<str>,
}

impl Events {
    pub(super) fn new(body: Incoming, authority: Arc<str>) -> Self {
        Self { body, buffer: Vec::new(), last_id: None, authority }
    }

    /// The cursor of the last event.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Waits for the next change; `None` when the server has ended the stream.
    pub async fn next(&mut self) -> Result<Option<Worklist>, Error> {
        loop {
            while let Some(end) = find(&self.buffer, b"\n\n") {
                let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(worklist) = self.read(&event)? {
                    return Ok(Some(worklist));
                }
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|e| Error::Broken {
                authority: self.authority.clone(),
                reason: e.to_string(),
            })?;
            if let Ok(data) = frame.into_data() {
                if self.buffer.len() + data.len() > EVENT_BYTES_MAX {
                    return Err(self.unexpected("an event is too long"));
                }
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// Comments, which keep the connection alive, are no events.
    fn read(&mut self, event: &[u8]) -> Result<Option<Worklist>, Error> {
        let text = std::str::from_utf8(event).map_err(|_| self.unexpected("not UTF-8"))?;
        let field = |line: &'_ str, name: &str| -> Option<String> {
            let value = line.strip_prefix(name)?.strip_prefix(':')?;
            Some(value.strip_prefix(' ').unwrap_or(value).to_owned())
        };
        let mut data = String::new();
        for line in text.lines() {
            if let Some(id) = field(line, "id") {
                self.last_id = Some(id);
            } else if let Some(part) = field(line, "data") {
                data.push_str(&part);
            }
        }
        if data.is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&data).map(Some).map_err(|e| self.unexpected(&e.to_string()))
    }

    fn unexpected(&self, detail: &str) -> Error {
        let (authority, detail) = (self.authority.clone(), detail.to_owned());
        Error::Unexpected { authority, status: 200, detail }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
