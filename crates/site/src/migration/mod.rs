//! Migration of cases: control and history transferred to other servers and received from them, and the values and
//! files fetched when they are read.

pub(crate) mod arrivals;
pub(crate) mod contents;
pub(crate) mod departures;
pub(crate) mod export;
pub(crate) mod fetch;
pub(crate) mod handover;
pub(crate) mod outbox;
pub(crate) mod validity;

use legwork_model::id::InstanceId;

use crate::Site;
use crate::message;
use arrivals::Arrivals;
use contents::Contents;
use fetch::Fetching;
use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use outbox::Outbox;

/// Transfers and fetches in progress.
#[derive(Debug, Default)]
pub(crate) struct Migration {
    pub(crate) outbox: Outbox,
    pub(crate) arrivals: Arrivals,
    pub(crate) fetching: Fetching,
    pub(crate) contents: Contents,
}

impl Migration {
    /// Whether an instance has transfers or fetches in progress, which keep it in memory.
    pub(crate) fn concerns(&self, id: InstanceId) -> bool {
        self.outbox.concerns(id) || self.fetching.concerns(id) || self.contents.concerns(id)
    }
}

impl Site {
    pub(crate) fn on_migration(
        &mut self,
        from: ServerId,
        message: message::Migration,
        now: Timestamp,
    ) {
        use message::Migration::{Ack, Have, Known, Offer, Want};
        match message {
            Offer(offer) => self.on_offer(from, offer, now),
            Known { parcel, last } => self.on_known(from, parcel, last, now),
            Ack { parcel } => self.on_ack(from, parcel, now),
            Want { instance, values } => self.on_want(from, instance, &values),
            Have { instance, values } => self.on_have(instance, values, now),
        }
    }
}
