//! What a new topology changes for running instances: the changes that need a reconfiguration.

use std::collections::BTreeSet;

use legwork_model::id::{DomainId, ServerId};

use crate::topology::Topology;

/// The changes that all servers must agree on: otherwise an instance would have two servers in
/// between. Empty for all other changes, such as homes, costs and new servers without a weight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Domains with a new layout.
    pub domains: BTreeSet<DomainId>,
    /// Servers that move to another process, with all their data.
    pub servers: BTreeSet<ServerId>,
}

impl Change {
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty() && self.servers.is_empty()
    }
}

impl Topology {
    /// What `next`, which follows this topology, changes.
    pub fn change_to(&self, next: &Self) -> Change {
        let domains = (0..).map(DomainId).zip(self.domains.iter().zip(&next.domains));
        let divided = domains.filter(|(_, (a, b))| a.chain.newest() != b.chain.newest());
        let servers = (0..).map(ServerId).zip(self.servers.iter().zip(&next.servers));
        let moved = servers.filter(|(_, (a, b))| a.address != b.address || a.host != b.host);
        Change {
            domains: divided.map(|(id, _)| id).collect(),
            servers: moved.map(|(id, _)| id).collect(),
        }
    }
}
