//! Everything a site asks of the outside.
//!
//! Appends of one batch of inputs are committed together and are durable before any answer of
//! that batch is released: nobody ever sees what a crash could take back.

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
    /// Answered by `Input::Loaded`; with no records if there is no such stream. It is read after
    /// everything that the site has appended before is committed. `whole` asks for all records
    /// and no snapshot: the stored one is of another version.
    Load {
        stream: StreamId,
        whole: bool,
    },
    /// Answered by `Input::HistoryRead` with the first record of the stream, and at most `limit`
    /// from number `from` on.
    ReadHistory {
        id: RequestId,
        instance: InstanceId,
        from: u64,
        limit: usize,
    },
    /// Say something to another server. Like an answer it is released only when everything that
    /// the site has appended before is committed. It may get lost.
    Send {
        to: ServerId,
        message: Message,
    },
    /// Say something to an executor. Released like `Send`. What it answers to a task comes as
    /// `Concern::Report`, that it has got a verdict as `Concern::Confirm`.
    Call(Box<Call>),
    /// Start this, under its key, as its schedule (`Credential::Schedule`). What comes of it comes as
    /// `Recurring::Fired`, or `Recurring::PutOff` if it may come through later; if nothing comes it is asked for again.
    Start(Box<Due>),
    /// Answered by `Input::EntriesRead` with all records of the instance from number `from` on,
    /// some of which go to another server with the parcel of this number. Read like `Load`.
    ReadEntries {
        instance: InstanceId,
        to: ServerId,
        number: u32,
        from: u64,
    },
    /// Contents that steps of the instance read which have come up. Answered by
    /// `Input::FilesHere`: at once for those that are here, without a word to anybody, for the
    /// others as they have come. What no source gives is asked for again.
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
    /// Answered by `Input::CatalogRead` with at most `limit` records of the site's own stream, from
    /// number `from` on; they go to another server.
    ReadCatalog {
        to: ServerId,
        from: u64,
        limit: usize,
    },
    /// Something that whoever runs the site has to know.
    Notice {
        text: String,
    },
    /// An instance cannot be carried on, by a fault in its history or in the engine. Nothing is to
    /// be done but to tell whoever runs the site.
    Broken {
        instance: InstanceId,
        reason: String,
    },
}

/// A start that a schedule wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub schedule: Arc<str>,
    pub moment: Timestamp,
    /// The idempotency key: the same for the same moment, always.
    pub key: String,
    pub process: Arc<str>,
    pub data: Data,
    pub agent: Option<AgentId>,
    /// By when it is to be promised, if it can be, and how important that is.
    pub deadline: Option<(Timestamp, u8)>,
}

/// What is said to an executor.
#[derive(Debug)]
pub struct Call {
    pub executor: Arc<ExecutorRegistered>,
    pub ask: Ask,
    /// Of a task: why it is this one that gets it.
    pub why: Option<Reason>,
}

#[derive(Clone, Debug)]
pub enum Ask {
    /// Do this.
    Task(Job),
    /// Your result counts, or it does not.
    Verdict { task: JobLease, counts: bool },
    /// Nobody waits for it any more.
    Cancel(JobLease),
}

/// A file whose content is needed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWanted {
    pub blob: [u8; 32],
    pub size: u64,
    /// Other versions of the same document: what is here of them need not come again.
    pub similar: Vec<[u8; 32]>,
    /// Who has it, in the order in which they are to be asked.
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
