//! Cases: requests about them, the records of their commands, and the keys they are started with.

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

/// The cases of this server, and everything that waits for a case to be loaded.
#[derive(Debug, Default)]
pub(crate) struct Cases {
    pub(crate) instances: Instances,
    /// Instances that ended with the present input.
    pub(crate) ended: Vec<InstanceId>,
    /// Streams being loaded. A stream is requested once at a time: a second copy could be older than what happened
    /// since the first arrived.
    pub(crate) loads: BTreeSet<StreamId>,
    /// Requests that wait for the stream of their instance or key.
    pub(crate) loading: BTreeMap<StreamId, Vec<Held>>,
    /// Instances that were open at the start and have to be loaded again, without the snapshot.
    pub(crate) unread: BTreeSet<InstanceId>,
    /// Messages about instances that are being loaded.
    pub(crate) unread_messages: BTreeMap<InstanceId, Vec<(ServerId, Message)>>,
    /// Repeated starts that wait for the instance started by the first one to be loaded.
    pub(crate) repeated: BTreeMap<InstanceId, Vec<Repeated>>,
    /// Keys that may have been used at other servers.
    pub(crate) earlier: Earlier,
    pub(crate) earlier_cases: EarlierCases,
    /// Pages of histories being read.
    pub(crate) histories: BTreeMap<RequestId, Page>,
    /// Listings of ended instances being read.
    pub(crate) listings: BTreeMap<RequestId, List>,
}

/// A part of a history, in records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) from: u64,
    pub(crate) limit: usize,
}

/// A start that was carried out before; answered with the present state of its instance.
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
