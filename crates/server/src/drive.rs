//! The drive thread: it alone owns the site and writes to the store.
//!
//! Invariant: appends of one round are committed together, and only then are the answers of that round released,
//! and only while no other process can have written to the store. After any failure the site in memory is dropped
//! and rebuilt from the store: no acknowledged change is ever lost, and no other change is ever shown.

mod reads;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use legwork_model::id::{InstanceId, ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_site::{
    Answer, Call, Credential, Due, Input, JobLease, Mode, Output, Refusal, Request, RequestId,
    Site, Stream,
};
use legwork_store::{Append, Batch, Snapshot, Version};
use rustc_hash::FxHashMap;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tracing::Span;

use crate::backend::{Backend, Slot};
use crate::clock::{self, Clock};
use crate::executors::Executors;
use crate::files::Fetcher;
use crate::meters::DriveMeters;
use crate::moving::Written;
use crate::notes::{Note, Notes};
use crate::peer::Links;
use crate::queue::Queue;
use crate::status::Status;
use reads::Read;
pub(crate) use reads::load;

/// A round takes no more messages once it has this much to commit.
const APPENDS_PER_ROUND: usize = 8_192;
const BYTES_PER_ROUND: usize = 16 << 20;

/// Messages to the drive thread.
pub(crate) enum Message {
    Ask {
        id: RequestId,
        credential: Credential,
        request: Request,
        reply: oneshot::Sender<Reply>,
        /// The span of the request: log lines about the request here are within it.
        span: Span,
    },
    /// The caller of a waiting request is gone, or must not wait any longer.
    Cancel(RequestId),
    /// An answer whose caller was gone.
    Undelivered(Reply),
    /// A message from another server; its receive buffer is released when this is handled.
    FromPeer {
        from: Arc<str>,
        message: legwork_site::Message,
        room: OwnedSemaphorePermit,
    },
    /// The link to another server is up or down.
    Link {
        to: Arc<str>,
        is_up: bool,
    },
    /// The site knows another server by a new number: report whether its link is up. The state is looked up when
    /// this is handled, so that it is not older than earlier reports.
    ReportLink {
        to: Arc<str>,
    },
    /// The content of a file that an instance waits for is stored here.
    FileHere {
        instance: InstanceId,
        blob: [u8; 32],
    },
    /// Another process may have written to the store.
    LeaseInDoubt,
    /// The store is about to move to another host, by this change.
    GiveAway {
        change: u32,
        done: oneshot::Sender<Given>,
    },
    /// The store of a server has been copied to this host completely, by this change.
    MovedIn {
        change: u32,
        server: ServerId,
    },
    /// The outcome of a call to an executor. No caller waits for the answer.
    Executor {
        name: Arc<str>,
        request: Request,
    },
    Stop,
}

/// Id for requests without a waiter; waiting requests have ids from 1.
const WITHOUT_WAITER: RequestId = RequestId(0);

pub(crate) type Reply = Result<Answer, Failure>;

/// Whether the store may leave, or why not.
pub(crate) type Given = Result<(), String>;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    Refused(Refusal),
    /// The store has failed; whether the request was carried out shows after the next start.
    Unavailable(Arc<str>),
}

/// Shared by the drive thread and the rest of the server.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) queue: Arc<Queue<Message>>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) status: Arc<Status>,
    pub(crate) slot: Arc<Slot>,
    pub(crate) meters: Arc<DriveMeters>,
    /// Links to other servers; `None` if this one is alone.
    pub(crate) links: Option<Arc<Links>>,
    /// Fetches contents of files from them.
    pub(crate) fetcher: Option<Arc<Fetcher<Links>>>,
    /// Calls executors.
    pub(crate) executors: Arc<Executors>,
    /// Starts what schedules request.
    pub(crate) starts: mpsc::Sender<Due>,
    /// Tracks writes for another process that copies the store.
    pub(crate) written: Arc<Written>,
    /// The note about the store.
    pub(crate) notes: Arc<Notes>,
}

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Store(#[from] legwork_store::Error),
    #[error("a fault in the server itself ({0}); please report it")]
    Panic(String),
}

pub(crate) enum Round {
    GoOn,
    Stop,
    /// The server has moved to another host.
    Gone,
}

/// A site with its store.
pub(crate) struct Driver {
    around: Surroundings,
    site: Site,
    store: Arc<dyn Backend>,
    /// The waiters by request id.
    pending: FxHashMap<RequestId, oneshot::Sender<Reply>>,
    batch: Batch,
    batch_bytes: usize,
    /// Answers that wait for the commit.
    answers: Vec<(oneshot::Sender<Reply>, Reply)>,
    /// Likewise, for processes that take over the store.
    given: Vec<(oneshot::Sender<Given>, Given)>,
    /// Reads of the site, after the commit.
    reads: Vec<Read>,
    /// Messages to other servers, after the commit.
    sends: Vec<(Arc<str>, legwork_site::Message)>,
    /// Calls of executors, after the commit.
    calls: Vec<Call>,
    /// Due starts of schedules, after the commit.
    due: Vec<Due>,
    /// The published revisions of tokens and executors.
    tokens_shown: Option<u64>,
    executors_shown: Option<u64>,
    /// The published number of broken promises.
    broken_shown: u64,
    /// When the last round began; recovery before the first round takes its time.
    looked: Option<Timestamp>,
}

impl Driver {
    pub(crate) fn new(around: Surroundings, site: Site, store: Arc<dyn Backend>) -> Self {
        Self {
            looked: None,
            around,
            site,
            store,
            pending: FxHashMap::default(),
            batch: Batch::default(),
            batch_bytes: 0,
            answers: Vec::new(),
            given: Vec::new(),
            reads: Vec::new(),
            sends: Vec::new(),
            calls: Vec::new(),
            due: Vec::new(),
            tokens_shown: None,
            executors_shown: None,
            broken_shown: 0,
        }
    }

    /// Reports the state of all links to the site.
    pub(crate) fn tell_links(&mut self) {
        let Some(links) = self.around.links.clone() else { return };
        let now = self.around.clock.now();
        for (to, is_up) in links.reachable() {
            self.link(&to, is_up, now);
        }
    }

    fn report_link(&mut self, to: &str, now: Timestamp) {
        let links = self.around.links.as_ref();
        if let Some(is_up) = links.and_then(|links| links.is_peer_up(to)) {
            self.link(to, is_up, now);
        }
    }

    fn link(&mut self, to: &str, is_up: bool, now: Timestamp) {
        if let Some(to) = self.site.server_named(to) {
            self.handle(Input::Link { to, is_up }, now);
        }
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// Takes all messages, lets the site decide, commits, answers. A panic in the site counts as a failure: the
    /// site is dropped with it.
    pub(crate) fn round(&mut self, backlog: &mut VecDeque<Message>) -> Result<Round, Broken> {
        guarded(|| self.round_unguarded(backlog))
    }

    fn round_unguarded(&mut self, backlog: &mut VecDeque<Message>) -> Result<Round, Broken> {
        let patience = self.patience();
        if backlog.is_empty() {
            self.around.queue.take_all(backlog, patience);
        }
        let now = self.around.clock.now();
        if let (Some(before), Some(patience)) = (self.looked.replace(now), patience)
            && let Some(by) = clock::jump(before, patience, now)
        {
            self.handle(Input::Jumped { by }, now);
        }
        self.serve_reads(now)?;
        let mut round = Round::GoOn;
        while !self.is_full()
            && let Some(message) = backlog.pop_front()
        {
            match message {
                // Nothing was promised to the caller yet: a request whose caller is gone is not begun.
                Message::Ask { reply, .. } if reply.is_closed() => {}
                Message::Ask { id, credential, request, reply, span } => {
                    let _entered = span.enter();
                    tracing::trace!("taken up");
                    self.pending.insert(id, reply);
                    self.handle(Input::Request { id, credential, request }, now);
                }
                Message::Cancel(id) => {
                    if self.pending.remove(&id).is_some() {
                        self.handle(Input::Cancelled { id }, now);
                    }
                }
                Message::Undelivered(reply) => {
                    if let Some(jobs) = jobs_in(&reply) {
                        self.handle(Input::Unheard { jobs }, now);
                    }
                }
                Message::FromPeer { from, message, room } => {
                    // A server that the topology does not have yet resends its message.
                    if let Some(from) = self.site.server_named(&from) {
                        self.handle(Input::Message { from, message }, now);
                    }
                    drop(room);
                }
                Message::Link { to, is_up } => self.link(&to, is_up, now),
                Message::ReportLink { to } => self.report_link(&to, now),
                Message::FileHere { instance, blob } => {
                    self.handle(Input::FilesHere { instance, blobs: vec![blob] }, now);
                }
                Message::Executor { name, request } => {
                    let (id, credential) = (WITHOUT_WAITER, Credential::Executor(name));
                    self.handle(Input::Request { id, credential, request }, now);
                }
                Message::LeaseInDoubt => {}
                Message::GiveAway { change, done } => {
                    let given = self.give_away(change, now);
                    self.given.push((done, given));
                }
                Message::MovedIn { change, server } => {
                    self.handle(Input::Moved { change, server }, now);
                }
                Message::Stop => {
                    self.handle(Input::Stopping, now);
                    round = Round::Stop;
                }
            }
        }
        self.handle(Input::Settle, now);
        self.commit()?;
        Ok(if self.is_gone() { Round::Gone } else { round })
    }

    /// Whether the server has moved to another host.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.site.mode(), Mode::Gone { .. })
    }

    /// From here on the store may be driven elsewhere, whatever happens to this process.
    fn give_away(&mut self, change: u32, now: Timestamp) -> Given {
        if self.site.mode() != (Mode::Frozen { change }) {
            return Err(format!("change {change} has not frozen it"));
        }
        let noted = self.around.notes.set(Note::Given { change });
        noted.map_err(|error| format!("it cannot be noted: {error}"))?;
        self.handle(Input::GivenAway { change }, now);
        Ok(())
    }

    /// The note of the last run is evaluated first.
    pub(crate) fn recall(&mut self) {
        let now = self.around.clock.now();
        let here = self.site.joined().map(|seat| seat.here);
        match (self.around.notes.last(), here) {
            (Note::Whole { change, .. }, Some(server)) => {
                self.handle(Input::Moved { change, server }, now);
            }
            (Note::Given { change }, _) => self.handle(Input::GivenAway { change }, now),
            (Note::Whole { .. } | Note::Held | Note::Coming | Note::Gone, _) => {}
        }
    }

    /// A change is over: whether the store is driven here is decided.
    fn note_outcome(&self) {
        let is_over = match self.around.notes.last() {
            Note::Whole { change, .. } | Note::Given { change } => self.site.fate(change).is_some(),
            Note::Held | Note::Coming | Note::Gone => false,
        };
        if is_over
            && self.site.mode() == Mode::Serving
            && let Err(error) = self.around.notes.set(Note::Held)
        {
            tracing::error!(reason = %error, "cannot write the note that this process drives the server");
        }
    }

    /// How long to sleep without messages.
    fn patience(&self) -> Option<Duration> {
        if !self.reads.is_empty() {
            return Some(Duration::ZERO);
        }
        let due = self.site.next_timeout()?;
        Some(clock::sleep(due, self.around.clock.now()))
    }

    fn is_full(&self) -> bool {
        self.batch.appends.len() >= APPENDS_PER_ROUND || self.batch_bytes >= BYTES_PER_ROUND
    }

    /// Recovers a stream found at start.
    pub(crate) fn recover(&mut self, stream: Stream) -> Result<(), Broken> {
        self.handle(Input::Recovered(stream), Timestamp::default());
        if self.is_full() { self.commit() } else { Ok(()) }
    }

    /// Whether the site rejects a snapshot and wants the stream as a whole; the caller reads it then.
    pub(crate) fn takes_back_load(&mut self, wanted: StreamId) -> bool {
        let before = self.reads.len();
        self.reads.retain(|read| !matches!(read, Read::Stream { stream, .. } if *stream == wanted));
        self.reads.len() < before
    }

    pub(crate) fn handle(&mut self, input: Input, now: Timestamp) {
        for output in self.site.handle(input, now) {
            match output {
                Output::Append(append) => {
                    self.batch_bytes += append.record.len();
                    self.batch.appends.push(Append {
                        stream: StreamId(append.stream),
                        expected: Version(append.expected),
                        record: append.record,
                        close: append.close,
                    });
                }
                Output::Snapshot { stream, version, bytes } => {
                    self.batch_bytes += bytes.len();
                    let (stream, version) = (StreamId(stream), Version(version));
                    self.batch.snapshots.push(Snapshot { stream, version, bytes });
                }
                Output::Answer { id, answer } => {
                    if let Some(reply) = self.pending.remove(&id) {
                        self.answers.push((reply, answer.map_err(Failure::Refused)));
                    }
                }
                Output::Load { stream, whole } => {
                    self.reads.push(Read::Stream { stream, whole });
                }
                Output::ReadHistory { id, instance, from, limit } => {
                    self.reads.push(Read::History { id, instance, from, limit });
                }
                Output::ReadClosed { id, before, limit } => {
                    self.reads.push(Read::Closed { id, before, limit });
                }
                Output::ReadOwn { id, record } => self.reads.push(Read::Own { id, record }),
                Output::ReadEntries { instance, to, number, from } => {
                    self.reads.push(Read::Entries { instance, to, number, from });
                }
                Output::ReadCatalog { to, from, limit } => {
                    self.reads.push(Read::Catalog { to, from, limit });
                }
                Output::Send { to, message } => {
                    if let Some(to) = self.site.name_of(to) {
                        self.sends.push((to, message));
                    }
                }
                Output::Call(call) => self.calls.push(*call),
                Output::Start(due) => self.due.push(*due),
                Output::FetchFiles { instance, files } => {
                    self.reads.push(Read::Files { instance, files });
                }
                Output::Notice { text } => tracing::warn!("{text}"),
                Output::Broken { instance, reason } => {
                    tracing::warn!(
                        %instance,
                        reason,
                        "an instance cannot be carried on and is left as it is stored; please \
                         report this"
                    );
                }
            }
        }
    }

    /// Makes the round durable, then answers the waiters.
    fn commit(&mut self) -> Result<(), Broken> {
        self.release()?;
        // Entries read for another server are durable now: sending them need not wait for the commit of the next
        // round.
        while self.reads.iter().any(|read| matches!(read, Read::Entries { .. })) {
            let is_entries = |read: &Read| matches!(read, Read::Entries { .. });
            let (entries, others) = self.reads.drain(..).partition(is_entries);
            self.reads = entries;
            self.serve_reads(self.around.clock.now())?;
            self.reads.extend(others);
            self.release()?;
        }
        Ok(())
    }

    /// Commits the appends and releases the answers that depend on them.
    fn release(&mut self) -> Result<(), Broken> {
        if !self.batch.is_empty() {
            let appends = self.batch.appends.len();
            let begun = Instant::now();
            self.batch_bytes = 0;
            let written = Written::streams_of(&self.batch);
            self.store.commit(std::mem::take(&mut self.batch))?;
            self.around.written.note(written);
            self.around.meters.committed(appends, begun.elapsed());
            self.around.status.count_records(appends);
        }
        // After a long pause another process may have written to the store.
        self.store.may_answer()?;
        self.show();
        for (to, message) in self.sends.drain(..) {
            if let Some(links) = &self.around.links {
                links.post(&to, message);
            }
        }
        for call in self.calls.drain(..) {
            self.around.executors.call(call);
        }
        for due in self.due.drain(..) {
            // The queue has room for all requests of a site at a time. The site requests a lost start again.
            if let Err(error) = self.around.starts.try_send(due) {
                tracing::warn!(%error, "dropped a periodic start; the site requests it again");
            }
        }
        for (reply, answer) in self.answers.drain(..) {
            // The caller may be gone.
            if let Err(unheard) = reply.send(answer)
                && jobs_in(&unheard).is_some()
            {
                self.around.queue.push_beyond_limit(Message::Undelivered(unheard));
            }
        }
        for (done, given) in self.given.drain(..) {
            drop(done.send(given));
        }
        Ok(())
    }

    /// Publishes the figures of the site.
    pub(crate) fn show(&mut self) {
        let revision = self.site.tokens_revision();
        if self.tokens_shown.replace(revision) != Some(revision) {
            self.around.status.set_tokens(self.site.token_hashes().collect());
        }
        let revision = self.site.executors_revision();
        if self.executors_shown.replace(revision) != Some(revision) {
            self.around.executors.follow(self.site.executors());
        }
        if let Some(seat) = self.site.joined() {
            self.around.status.join_as(seat.here);
        }
        if let Some(seat) = self.site.seat() {
            if let Some(links) = &self.around.links {
                links.follow(&seat.topology, self.site.joined().is_some());
                links.follow_change(self.site.change());
                links.follow_fates(|change| self.site.fate(change));
                links.show_parcels(self.site.parcels_waiting());
                links.show_sent(self.site.gauges().sent);
            }
            // After the topology: a request that waited for the catalog finds the new topology.
            let records = self.site.catalog_len();
            if self.around.status.catalog() != records {
                self.around.status.set_catalog(records);
            }
        }
        // Keep reporting `Gone` until it has been observed.
        let frozen = match self.site.mode() {
            Mode::Frozen { change } | Mode::Gone { change } => Some(change),
            Mode::Serving => None,
        };
        self.around.status.set_frozen(frozen);
        self.note_outcome();
        let gauges = self.site.gauges();
        self.around.status.set_instances(gauges.instances_open);
        self.around.meters.show(&gauges);
        if self.broken_shown != gauges.deadlines.broken {
            self.broken_shown = gauges.deadlines.broken;
            self.around.status.set_broken(self.site.broken());
        }
    }

    /// Tells all waiters that there will be no answer.
    pub(crate) fn refuse_all(mut self, reason: &Arc<str>) {
        let unanswered = self.pending.drain().map(|(_, reply)| reply);
        for reply in self.answers.drain(..).map(|(reply, _)| reply).chain(unanswered) {
            drop(reply.send(Err(Failure::Unavailable(reason.clone()))));
        }
    }
}

/// Turns a panic into a failure. The changed state must be dropped afterwards.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, Broken>) -> Result<T, Broken> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Broken::Panic(text.unwrap_or_default()))
    })
}

/// The jobs in an answer to a worker.
fn jobs_in(reply: &Reply) -> Option<Vec<JobLease>> {
    let Ok(Answer::Jobs(jobs)) = reply else { return None };
    let lease =
        |job: &legwork_site::Job| JobLease { activity: job.activity.clone(), lease: job.lease };
    (!jobs.is_empty()).then(|| jobs.iter().map(lease).collect())
}
