//! The links of a server to others.
//!
//! Invariant: the kinds add up to all bytes given to TLS, frames included; `socket` is what became
//! of them on the wire.

use legwork_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text;

/// All links of one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkList {
    /// The name of the server asked; absent if it is alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Entries of histories that went to other servers since this one started.
    #[serde(default)]
    pub entries_sent: u64,
    /// Entries that did not have to go, as they are known there.
    #[serde(default)]
    pub entries_spared: u64,
    /// What the instances would have taken as a whole, with all their values, sent with every parcel.
    #[serde(default)]
    pub bytes_whole: u64,
    pub links: Vec<Link>,
}

/// The link to one other server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Link {
    pub server: String,
    pub domain: String,
    pub address: String,
    pub state: LinkState,
    /// Why it is not up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when it is in this state.
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Instances with a parcel that the other server has not taken yet.
    pub parcels_waiting: usize,
    pub sent: LinkBytes,
    pub received: LinkBytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    Up,
    Down,
    /// One of both does not want the other: see the reason.
    Refused,
}

/// Bytes in one direction since the server started, by what they were for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkBytes {
    /// Entries of histories, without values.
    pub history: u64,
    /// Values that travelled with their entries.
    pub small: u64,
    /// Values and files that were fetched because somebody read them.
    pub large: u64,
    pub worklist: u64,
    /// All the rest.
    pub control: u64,
    /// On the socket, with TLS.
    pub socket: u64,
    /// Messages that were not passed on because the link was down or full; they are said again.
    pub dropped: u64,
}
