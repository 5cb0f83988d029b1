//! Cases as a whole: what is asked of them, what is recorded of them, and the keys they are started by.

pub(crate) mod control;
pub(crate) mod earlier;
pub(crate) mod earlier_cases;
pub(crate) mod instances;
pub(crate) mod keys;
pub(crate) mod merged_history;
pub(crate) mod step;
pub(crate) mod summary;
pub(crate) mod view;

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::id::{InstanceId, ServerId, StreamId};
use legwork_model::time::Timestamp;

use crate::Held;
use crate::Site;
use crate::input::{List, RequestId};
use crate::message::Key;
use crate::message::Message;
use earlier::Earlier;
use earlier_cases::EarlierCases;
use instances::Instances;

/// The cases of this server, and what waits for one of them to be loaded.
#[derive(Debug, Default)]
pub(crate) struct Cases {
    pub(crate) instances: Instances,
    /// Instances that the input at hand has brought to their end.
    pub(crate) ended: Vec<InstanceId>,
    /// Streams asked for and not come yet: never twice at a time, or the second copy could be
    /// older than what has happened since the first came.
    pub(crate) loads: BTreeSet<StreamId>,
    /// Requests that wait for the stream of their instance, or of their key.
    pub(crate) loading: BTreeMap<StreamId, Vec<Held>>,
    /// Instances that were open at the start and have to be loaded as a whole.
    pub(crate) unread: BTreeSet<InstanceId>,
    /// Messages about instances that are being loaded.
    pub(crate) heard: BTreeMap<InstanceId, Vec<(ServerId, Message)>>,
    /// Repeated starts that wait for the instance that the first one has started.
    pub(crate) repeated: BTreeMap<InstanceId, Vec<Repeated>>,
    /// Keys that may have been used elsewhere.
    pub(crate) earlier: Earlier,
    pub(crate) earlier_cases: EarlierCases,
    /// Pages of histories asked for and being read.
    pub(crate) histories: BTreeMap<RequestId, Page>,
    /// Listings of ended instances being read: the process asked for, and how many.
    pub(crate) listings: BTreeMap<RequestId, List>,
}

/// A part of a history, in records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) from: u64,
    pub(crate) limit: usize,
}

/// A start that was carried out before; the answer is what became of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeated {
    pub(crate) id: RequestId,
    pub(crate) wait_until: Option<Timestamp>,
}

impl Site {
    pub(crate) fn on_key(&mut self, from: ServerId, message: Key, now: Timestamp) {
        match message {
            Key::Wanted(question) => self.on_key_wanted(from, question, now),
            Key::Used { question, is_used } => self.on_key_used(from, question, is_used, now),
        }
    }
}
