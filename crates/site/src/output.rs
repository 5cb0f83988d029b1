//! All outputs of a site.
//!
//! Appends of one batch of inputs are committed together, and are durable before any answer of the batch is released:
//! no client ever sees what a crash could take back.

use std::sync::Arc;

use legwork_model::event::ExecutorRegistered;
use legwork_model::id::{AgentId, InstanceId, ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_schedule::Reason;

use crate::answer::{Answer, Job};
use crate::input::{Data, JobLease, RequestId};
use crate::message::Message;
use crate::refusal::Refusal;

#[derive(Debug)]
pub enum Output {
    Append(Append),
    /// A cache of an instance's state, to shorten the next start.
    Snapshot {
        stream: u128,
        version: u64,
        bytes: Vec<u8>,
    },
    Answer {
        id: RequestId,
        answer: Result<Answer, Refusal>,
    },
    /// Answered by `Input::Loaded`; without records if there is no such stream. Read after all earlier appends are
    /// committed. `whole` requests all records and no snapshot: the stored one is of another version.
    Load {
        stream: StreamId,
        whole: bool,
    },
    /// Answered by `Input::HistoryRead` with the first record of the stream, and at most `limit` from number `from` on.
    ReadHistory {
        id: RequestId,
        instance: InstanceId,
        from: u64,
        limit: usize,
    },
    /// Sends a message to another server. Like an answer it is released only when all earlier appends are committed. It
    /// may be lost.
    Send {
        to: ServerId,
        message: Message,
    },
    /// Calls an executor. Released like `Send`. Its answer to a task arrives as `Concern::Report`, that to a verdict as
    /// `Concern::Confirm`.
    Call(Box<Call>),
    /// Carries out a start, under its key, as its schedule (`Credential::Schedule`). The outcome arrives as
    /// `Recurring::Fired`, or as `Recurring::PutOff` if it may succeed later; without an outcome the start is requested
    /// again.
    Start(Box<Due>),
    /// Answered by `Input::EntriesRead` with all records of the instance from number `from` on, some of which accompany
    /// the transfer of this number. Read like `Load`.
    ReadEntries {
        instance: InstanceId,
        to: ServerId,
        number: u32,
        from: u64,
    },
    /// Contents that activated steps of the instance read. Answered by `Input::FilesHere`: at once for contents that
    /// are here, for others as they arrive. Contents that no source has given are requested again.
    FetchFiles {
        instance: InstanceId,
        files: Vec<FileWanted>,
    },
    /// Answered by `Input::ClosedRead`, newest first.
    ReadClosed {
        id: RequestId,
        before: StreamId,
        limit: usize,
    },
    /// Answered by `Input::OwnRead` with one record of the site's own stream.
    ReadOwn {
        id: RequestId,
        record: u64,
    },
    /// Answered by `Input::CatalogRead` with at most `limit` records of the site's own stream from number `from` on,
    /// for another server.
    ReadCatalog {
        to: ServerId,
        from: u64,
        limit: usize,
    },
    /// A notice to the operator.
    Notice {
        text: String,
    },
    /// An instance is broken, by a fault in its history or in the engine. The operator has to be notified.
    Broken {
        instance: InstanceId,
        reason: String,
    },
}

/// A start of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub schedule: Arc<str>,
    pub moment: Timestamp,
    /// The idempotency key: the same for the same moment, always.
    pub key: String,
    pub process: Arc<str>,
    pub data: Data,
    pub agent: Option<AgentId>,
    /// By when it should be promised, if possible, and its priority.
    pub deadline: Option<(Timestamp, u8)>,
}

/// A call to an executor.
#[derive(Debug)]
pub struct Call {
    pub executor: Arc<ExecutorRegistered>,
    pub ask: Ask,
    /// For a task: why this executor was chosen.
    pub why: Option<Reason>,
}

#[derive(Clone, Debug)]
pub enum Ask {
    /// Do this task.
    Task(Job),
    /// The result counts, or does not.
    Verdict { task: JobLease, counts: bool },
    /// The task is cancelled.
    Cancel(JobLease),
}

/// A file whose content is needed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWanted {
    pub blob: [u8; 32],
    pub size: u64,
    /// Other versions of the same document: parts of them that are here need not be fetched.
    pub similar: Vec<[u8; 32]>,
    /// The servers that have it, in the order in which to ask them.
    pub sources: Vec<ServerId>,
}

/// A record to append to a stream that has `expected` records so far.
#[derive(Debug, PartialEq, Eq)]
pub struct Append {
    pub stream: u128,
    pub expected: u64,
    pub record: Vec<u8>,
    /// The stream ends with this record; a summary for listings.
    pub close: Option<Vec<u8>>,
}

/// An ended stream and its summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedStream {
    pub stream: u128,
    pub summary: Vec<u8>,
}
