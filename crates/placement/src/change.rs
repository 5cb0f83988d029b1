//! What a new topology changes for instances that run: what has to be done with care.

use std::collections::BTreeSet;

use legwork_model::id::{DomainId, ServerId};

use crate::topology::Topology;

/// What cannot be put in force without a word to all: whose instances would have two servers in
/// between. Empty for everything else, such as homes, costs and new servers without a weight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The domains that are divided in another way.
    pub domains: BTreeSet<DomainId>,
    /// The servers that are in another process: each moves with all it has.
    pub servers: BTreeSet<ServerId>,
}

impl Change {
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty() && self.servers.is_empty()
    }
}

impl Topology {
    /// What `next`, which follows this one, changes.
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
