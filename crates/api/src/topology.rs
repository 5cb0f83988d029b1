//! The topology: which domains and servers there are.
//!
//! Invariant: everything is called by its name; numbers are the servers' own business.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An epoch of the topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Topology {
    /// Counts from 1.
    pub epoch: u32,
    pub name: Arc<str>,
    /// The YAML text as it was published.
    pub source: Arc<str>,
    /// The server that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Arc<str>>,
    /// The server that changes definitions, organisation, topology and tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registrar: Option<Arc<str>>,
    /// In the order of the text.
    pub domains: Vec<Domain>,
    /// Links that something is said of.
    pub links: Vec<LinkCost>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Domain {
    pub domain: Arc<str>,
    pub servers: Vec<ServerAddress>,
    /// How histories travel to it: `proven`, `requested`, `sending` or `full`.
    pub transfer: String,
    /// How many people are at home there.
    pub people: usize,
    /// How many workers are at home there.
    pub executors: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerAddress {
    pub server: Arc<str>,
    /// Where the other servers reach it.
    pub address: Arc<str>,
    /// Where people and programs reach it.
    pub api: Arc<str>,
}

/// What a byte costs between two domains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkCost {
    pub between: [Arc<str>; 2],
    pub cost: u32,
}
