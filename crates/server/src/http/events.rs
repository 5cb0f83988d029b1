//! The changes of a worklist as server-sent events.
//!
//! Invariant: the cursor is the id of the event, so that a reader who was cut off goes on where it
//! stopped (`Last-Event-ID`), without a gap and without repetition.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use legwork_model::id::AgentId;
use legwork_site::{Answer, Credential, Request, Worklist, WorklistView};
use tokio::sync::mpsc;

use super::App;
use super::exchange::Exchange;
use super::query::LIMIT_MAX;
use super::reply::{Refused, Reply, Result, strange};
use crate::convert;

/// Without a change a comment is sent this often, so that nobody in between takes the silence for
/// the end.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) async fn worklist_events(x: Exchange<'_>) -> Result {
    let agent = x.agent(x.query.text("agent")).await?;
    let last = x.head.headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let since = last.filter(|id| !id.is_empty()).or(x.query.text("since")).map(str::to_owned);
    let watcher = Watcher { app: x.app.clone(), credential: x.credential.clone(), agent };
    // What is refused is refused now, not in the middle of the stream.
    let first = watcher.read(since.clone(), None).await?;
    let (sender, pieces) = mpsc::channel(4);
    tokio::spawn(async move { watcher.watch(first, since, sender).await });
    let no_cache = HeaderValue::from_static("no-cache");
    let events = HeaderValue::from_static("text/event-stream");
    Ok(Reply::stream(events, None, pieces).with_header(CACHE_CONTROL, no_cache))
}

struct Watcher {
    app: Arc<App>,
    credential: Credential,
    agent: AgentId,
}

impl Watcher {
    async fn watch(
        self,
        first: WorklistView,
        since: Option<String>,
        sender: mpsc::Sender<io::Result<Bytes>>,
    ) {
        let mut view = first;
        let mut told = since;
        loop {
            let quiet = told.as_ref() == Some(&view.cursor) && !view.reset;
            let cursor = view.cursor.clone();
            let piece = if quiet { Bytes::from_static(b": still here\n\n") } else { event(view) };
            if sender.send(Ok(piece)).await.is_err() || self.app.gate.is_stopping() {
                return;
            }
            told = Some(cursor);
            let next = tokio::select! {
                next = self.read(told.clone(), Some(KEEP_ALIVE)) => next,
                () = sender.closed() => return,
            };
            match next {
                Ok(next) => view = next,
                // The reader connects again and is then told what is wrong.
                Err(_) => return,
            }
        }
    }

    async fn read(&self, since: Option<String>, wait: Option<Duration>) -> Result<WorklistView> {
        let worklist = Request::Worklist(Worklist {
            agent: self.agent.clone(),
            since: since.clone(),
            limit: LIMIT_MAX,
            wait_until: wait.map(|wait| self.app.clock.now() + wait),
        });
        let gate = &self.app.gate;
        let answer = match wait {
            Some(_) => gate.ask_patiently(self.credential.clone(), worklist).await?,
            None => Some(gate.ask(self.credential.clone(), worklist).await?),
        };
        match answer {
            Some(Answer::Worklist(view)) => Ok(view),
            None => Err(Refused::unavailable("stopping", "the server is stopping".to_owned())),
            Some(_) => strange(),
        }
    }
}

fn event(view: WorklistView) -> Bytes {
    let cursor = view.cursor.clone();
    let data = serde_json::to_string(&convert::worklist(view)).unwrap_or_default();
    // JSON has no bare line breaks: the data is one line.
    Bytes::from(format!("event: items\nid: {cursor}\ndata: {data}\n\n"))
}
