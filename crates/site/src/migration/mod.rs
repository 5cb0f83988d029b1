//! Migration of cases: control and history that go to other servers and come from them, and the values and files that
//! follow when they are read.

pub(crate) mod arrivals;
pub(crate) mod contents;
pub(crate) mod departures;
pub(crate) mod export;
pub(crate) mod fetch;
pub(crate) mod outbox;
pub(crate) mod passages;
pub(crate) mod sound;

use legwork_model::id::InstanceId;

use arrivals::Arrivals;
use contents::Contents;
use fetch::Fetching;
use outbox::Outbox;

/// What is on its way between this server and others.
#[derive(Debug, Default)]
pub(crate) struct Migration {
    pub(crate) outbox: Outbox,
    pub(crate) arrivals: Arrivals,
    pub(crate) fetching: Fetching,
    pub(crate) contents: Contents,
}

impl Migration {
    /// Whether something of an instance is under way: then it stays in memory.
    pub(crate) fn concerns(&self, id: InstanceId) -> bool {
        self.outbox.concerns(id) || self.fetching.concerns(id) || self.contents.concerns(id)
    }
}
