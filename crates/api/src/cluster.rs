//! The servers of a cluster: their parts of the work, and how the cluster is being changed.
//!
//! Invariant: everything is called by its name; what a server has not told is absent, never zero.

use std::sync::Arc;

use legwork_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::definitions::Finding;
use crate::text;

/// All servers, and the change that is under way or was the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// Of the topology in force at the server asked.
    pub epoch: u32,
    /// The server asked.
    pub server: Arc<str>,
    /// The server that keeps the catalog and brings changes to their end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registrar: Option<Arc<str>>,
    /// In the order of the topology.
    pub servers: Vec<ClusterServer>,
    /// As the registrar tells it; absent while that cannot be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterServer {
    pub server: Arc<str>,
    pub domain: Arc<str>,
    /// The server in whose process it is a guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Arc<str>>,
    pub weight: u32,
    /// Which part of the domain's new instances it gets, in thousandths.
    pub share_permille: u32,
    /// What it has told of itself; absent if it cannot be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<ServerLoad>,
}

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerLoad {
    pub server: Arc<str>,
    /// The epoch that is in force there.
    pub epoch: u32,
    pub instances_open: usize,
    /// Records it has written since it started: what its instances make it do.
    pub records: u64,
    /// Servers whose stores are being copied into its process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<Copied>,
}

/// How far the store of a server has been copied that moves into the process of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Copied {
    pub server: Arc<str>,
    /// What the server has stored, and what has been copied of it.
    pub bytes: u64,
    pub bytes_copied: u64,
    /// How long the rest takes at the pace so far; absent before there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
}

/// The change of the cluster that is under way, and what came of the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changes {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_way: Option<Change>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<EndedChange>,
    /// Other weights that the watch-dog proposes, in words, for each domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proposals: Vec<String>,
}

/// How a change is getting on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// Counts from 1.
    pub number: u32,
    pub phase: Phase,
    pub method: Method,
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Locked domains: until the end they start no instances and take none that they do not have.
    pub domains: Vec<Arc<str>>,
    /// Servers on their way to another host.
    pub servers: Vec<Arc<str>>,
    /// Servers declared down, which are not waited for.
    pub without: Vec<Arc<str>>,
    /// Who has stored that it has begun.
    pub acknowledged: Vec<Arc<str>>,
    /// Who has told which of its instances are concerned.
    pub reported: Vec<Arc<str>>,
    /// Who is waited for.
    pub missing: Vec<Arc<str>>,
    /// Instances that were reported to be in the locked domains.
    pub instances_open: u64,
    /// Those of them that keep their server against the new weights.
    pub excepted: u64,
    /// How long it takes in all, as far as that can be told: of a server that moves, by how far its
    /// store has been copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Servers of locked domains have to report.
    Locking,
    /// Servers are on their way to other hosts.
    Moving,
    /// Everything is known; it ends.
    Ending,
}

/// For which instances new weights count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// For those started from now on.
    #[default]
    Since,
    /// For all but those that are in the domain already.
    Except,
}

/// A change that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndedChange {
    pub number: u32,
    /// The epoch it has led to; absent if it was undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// Why it was undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone: Option<Arc<str>>,
    /// Instances that keep their server against the weights in force.
    #[serde(default)]
    pub excepted: u64,
}

/// What a topology that was given would change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DryRun {
    /// Domains that would be locked.
    pub domains: Vec<Arc<str>>,
    /// Servers that would move to another host.
    pub servers: Vec<Arc<str>>,
    /// Open instances, counted where they were started, of all servers that have answered.
    pub instances_open: u64,
    /// Those with a part at a server that would move; counted for each such server.
    pub moved: u64,
    /// Those that would keep their server against the new weights; counted for each locked domain.
    pub excepted: u64,
    /// What that takes at every server, and of servers that move what their stores hold.
    pub bytes: u64,
    /// Servers that have not answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<Arc<str>>,
}

/// What came of a topology that was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopologyAnswer {
    /// The epoch in force.
    pub version: u32,
    /// It was in force already.
    #[serde(default)]
    pub unchanged: bool,
    pub warnings: Vec<Finding>,
    /// It moves instances or servers: this change has begun, and puts it in force at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Box<Change>>,
    /// It was only asked what it would change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<Box<DryRun>>,
}

/// A server is to move into the process of another before long: what can be copied is copied ahead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PrepareRequest {
    #[schema(value_type = String)]
    pub server: Arc<str>,
    /// The server into whose process it is to move.
    #[schema(value_type = String)]
    pub into: Arc<str>,
}

/// How far a copy is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Prepared {
    /// Little is left to be copied: the move takes a moment.
    pub ready: bool,
    /// What the server has stored, and what has been copied of it.
    pub bytes: u64,
    pub bytes_copied: u64,
    /// Why nothing comes at present; it is tried again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reason: Option<Arc<str>>,
}

/// How a topology is to be put in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyOptions {
    pub method: Option<Method>,
    pub dry_run: bool,
    /// Servers that are down for good and not waited for.
    pub without: Vec<String>,
}

impl Method {
    pub const ALL: [Self; 2] = [Self::Since, Self::Except];

    /// The word for it on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Since => "since",
            Self::Except => "except",
        }
    }
}
