//! The sent, unacknowledged and received transfers of an instance that several servers control.
//!
//! Invariant: between two servers transfers are numbered from 1 without gaps. A sent transfer is
//! kept until it is acknowledged, or redirected before any was; a received transfer is never
//! applied twice.

use legwork_model::event::{Order, Parcel, Passage};
use legwork_model::id::{Activity, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use minicbor::{Decode, Encode};

#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Travel {
    /// Where the instance was started, if not here.
    #[n(0)]
    pub(crate) started_at: Option<ServerId>,
    /// The other servers of the instance known here, in order.
    #[n(1)]
    pub(crate) peers: Vec<Peer>,
    /// The last order that took effect here.
    #[n(2)]
    pub(crate) order: Option<Order>,
    /// When the instance ended. Other servers are told of it, and values arrive, after that.
    #[n(3)]
    pub(crate) ended_at: Option<Timestamp>,
}

/// The transfers with another server about this instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Peer {
    #[n(0)]
    pub server: ServerId,
    /// The number of the last transfer sent to it.
    #[n(1)]
    pub sent: u32,
    /// The unacknowledged ones, in order.
    #[n(2)]
    pub waiting: Vec<Outgoing>,
    /// The number of the last transfer received from it.
    #[n(3)]
    pub received: u32,
    /// The last activities that it was told of from here, or has told of.
    #[n(4)]
    pub told: Vec<Activity>,
}

/// An unacknowledged transfer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Outgoing {
    #[n(0)]
    pub number: u32,
    #[n(1)]
    pub parcel: Parcel,
}

impl Travel {
    pub(crate) fn peer(&self, server: ServerId) -> Option<&Peer> {
        let place = self.peers.binary_search_by_key(&server, |peer| peer.server).ok()?;
        self.peers.get(place)
    }

    pub(crate) fn sent(&mut self, to: ServerId, number: u32, parcel: &Parcel) {
        if let Some(order) = parcel.order() {
            self.ordered(order);
        }
        let peer = self.peer_mut(to);
        peer.sent = number;
        peer.waiting.push(Outgoing { number, parcel: parcel.clone() });
    }

    pub(crate) fn delivered(&mut self, schema: &Schema, to: ServerId, number: u32) {
        let peer = self.peer_mut(to);
        let gone = peer.waiting.partition_point(|outgoing| outgoing.number <= number);
        let gone: Vec<Outgoing> = peer.waiting.drain(..gone).collect();
        for outgoing in gone {
            peer.record_known(schema, &outgoing.parcel);
        }
    }

    /// Transfers that wait for one server wait for another one from now on, or are dropped.
    pub(crate) fn redirected(&mut self, from: ServerId, to: Option<ServerId>) {
        let Ok(place) = self.peers.binary_search_by_key(&from, |peer| peer.server) else { return };
        let peer = &mut self.peers[place];
        let waiting = std::mem::take(&mut peer.waiting);
        // Their numbers are free again.
        peer.sent = peer.sent.saturating_sub(waiting.len() as u32);
        if peer.sent == 0 && peer.received == 0 {
            // It never had a part of the instance.
            self.peers.remove(place);
        }
        let Some(to) = to else { return };
        let peer = self.peer_mut(to);
        for Outgoing { parcel, .. } in waiting {
            peer.sent += 1;
            peer.waiting.push(Outgoing { number: peer.sent, parcel });
        }
    }

    pub(crate) fn received(
        &mut self,
        schema: &Schema,
        from: ServerId,
        number: u32,
        parcel: &Parcel,
    ) {
        let peer = self.peer_mut(from);
        peer.received = number;
        peer.record_known(schema, parcel);
    }

    /// Whether an order is newer than all before.
    pub(crate) fn ordered(&mut self, order: &Order) -> bool {
        let is_new = self.order.as_ref().is_none_or(|last| order.number > last.number);
        if is_new {
            self.order = Some(order.clone());
        }
        is_new
    }

    fn peer_mut(&mut self, server: ServerId) -> &mut Peer {
        match self.peers.binary_search_by_key(&server, |peer| peer.server) {
            Ok(place) => &mut self.peers[place],
            Err(place) => {
                self.peers.insert(place, Peer { server, ..Peer::default() });
                &mut self.peers[place]
            }
        }
    }
}

impl Peer {
    /// Whether no transfer is known to have reached it, nor to have come from it.
    pub fn is_untouched(&self) -> bool {
        let first = self.waiting.first().map_or(self.sent + 1, |outgoing| outgoing.number);
        first == 1 && self.received == 0
    }

    /// Records how far the other server is known to know the history.
    fn record_known(&mut self, schema: &Schema, parcel: &Parcel) {
        for Passage { source, .. } in parcel.passages() {
            let known =
                |other: &Activity| source == other || schema.activity_precedes(source, other);
            if !self.told.iter().any(known) {
                self.told.retain(|other| !schema.activity_precedes(other, source));
                self.told.push(source.clone());
            }
        }
    }
}
