//! The domains and servers, the homes of people, and the costs of links.
//!
//! Invariant: numbers are for ever. A domain or a server keeps its number in every later topology,
//! also after it is gone, so that histories stay readable.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::event::Performer;
use legwork_model::id::{AgentId, DomainId, InstanceId, ServerId};

use crate::chain::Chain;
use crate::place::Map;
use crate::watchdog::Policy;

/// One version of the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    pub name: Arc<str>,
    /// The number of changes: the highest epoch wins.
    pub epoch: u32,
    pub domains: Vec<Domain>,
    pub servers: Vec<Server>,
    /// The home domains of people.
    pub homes: BTreeMap<AgentId, DomainId>,
    /// The home domains of workers, by worker name.
    pub executors: BTreeMap<Arc<str>, DomainId>,
    /// The cost of a byte between two domains, lower number first; 1 by default.
    pub costs: BTreeMap<(DomainId, DomainId), u32>,
    /// The settings of the watchdog.
    pub watchdog: Policy,
    /// Up to which size a value is transferred with the entry of its writer.
    pub small_values: SmallValues,
}

/// The size limit of small values, in bytes. Only the sender applies it, and marks each value that
/// stays: servers that disagree for a moment understand each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallValues(pub u32);

impl SmallValues {
    /// Entries with many values still fit into one message.
    pub const MAX: u32 = 65_536;
}

impl Default for SmallValues {
    /// About a network packet.
    fn default() -> Self {
        Self(1_200)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    pub name: Arc<str>,
    /// How histories are transferred to this domain.
    pub transfer: Transfer,
    /// Where its servers store their data.
    pub store: Store,
    /// Which of its servers controls an instance.
    pub chain: Chain,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub name: Arc<str>,
    pub domain: DomainId,
    /// The address for other servers. Of a guest: the address of its host.
    pub address: Arc<str>,
    /// The address for people and programs. Of a guest: the address of its host.
    pub api: Arc<str>,
    /// Its share of the domain's new instances, relative to the sum of weights.
    pub weight: u32,
    /// Its intended share of the domain's load, if other than its weight.
    pub intended: Option<u32>,
    /// The server in whose process it is a guest.
    pub host: Option<ServerId>,
}

/// Where the servers of a domain store their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// Each in its own store: its instances wait while it is down.
    #[default]
    Embedded,
    /// All in one database: another server takes over from one that is down.
    Shared,
}

impl Store {
    pub const ALL: [Self; 2] = [Self::Embedded, Self::Shared];

    /// The word in a topology file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Shared => "shared",
        }
    }
}

impl Domain {
    /// A domain of one server.
    pub fn new(name: Arc<str>, only: ServerId) -> Self {
        Self {
            name,
            transfer: Transfer::default(),
            store: Store::default(),
            chain: Chain::whole(only),
        }
    }
}

/// The default weight.
pub(crate) const WEIGHT_DEFAULT: u32 = 1;

impl Server {
    /// A server in its own process.
    pub fn new(name: Arc<str>, domain: DomainId, address: Arc<str>, api: Arc<str>) -> Self {
        let (weight, intended, host) = (WEIGHT_DEFAULT, None, None);
        Self { name, domain, address, api, weight, intended, host }
    }

    /// Its intended share of the domain's load.
    pub fn meant(&self) -> u32 {
        self.intended.unwrap_or(self.weight)
    }
}

/// How a history is transferred to a domain. All ways give the same results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transfer {
    /// Everything, every time.
    Full,
    /// Everything that the receiver may lack as far as the sender knows.
    Sending,
    /// What the receiver requests: three messages.
    Requested,
    /// Like `Requested`, in one message if the sender can prove what the receiver lacks.
    #[default]
    Proven,
}

impl Transfer {
    pub const ALL: [Self; 4] = [Self::Full, Self::Sending, Self::Requested, Self::Proven];

    /// The word in a topology file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Sending => "sending",
            Self::Requested => "requested",
            Self::Proven => "proven",
        }
    }
}

/// The cost within a domain.
const COST_NEAR: u32 = 0;
/// The default cost between domains.
const COST_DEFAULT: u32 = 1;

impl Topology {
    pub fn domain(&self, id: DomainId) -> Option<&Domain> {
        self.domains.get(usize::from(id.0))
    }

    pub fn server(&self, id: ServerId) -> Option<&Server> {
        self.servers.get(usize::from(id.0))
    }

    pub fn server_named(&self, name: &str) -> Option<ServerId> {
        let place = self.servers.iter().position(|server| &*server.name == name)?;
        u16::try_from(place).ok().map(ServerId)
    }

    /// All servers, lowest number first.
    pub fn numbered(&self) -> impl Iterator<Item = (ServerId, &Server)> {
        (0..=u16::MAX).map(ServerId).zip(&self.servers)
    }

    /// The address for other servers: of its host, if the server is a guest.
    pub fn address_of(&self, id: ServerId) -> Option<&Arc<str>> {
        self.server(id).map(|server| &server.address)
    }

    /// The address for people and programs: of its host, if the server is a guest.
    pub fn api_of(&self, id: ServerId) -> Option<&Arc<str>> {
        self.server(id).map(|server| &server.api)
    }

    /// The server in whose process a server runs: itself, if it is no guest.
    pub fn host_of(&self, id: ServerId) -> ServerId {
        self.server(id).and_then(|server| server.host).unwrap_or(id)
    }

    /// All servers of a domain, lowest number first.
    pub fn servers_of(&self, domain: DomainId) -> impl Iterator<Item = (ServerId, &Server)> {
        self.numbered().filter(move |(_, server)| server.domain == domain)
    }

    /// The server at which an instance with this id starts, if it is started in the domain of
    /// `front`, the server that was asked.
    pub fn starter(&self, front: ServerId, instance: InstanceId) -> Option<ServerId> {
        self.server_in(self.domain_of(front)?, instance)
    }

    /// The one server that writes the catalog: definitions, organisations, tokens, topologies.
    pub fn registrar(&self) -> Option<ServerId> {
        self.numbered().map(|(id, _)| id).next()
    }

    /// The home domain of a performer, if it has one.
    pub fn home(&self, performer: &Performer) -> Option<DomainId> {
        match performer {
            Performer::System => None,
            Performer::Agent(agent) => self.homes.get(agent).copied(),
            Performer::Worker(name) | Performer::Executor(name) => {
                self.executors.get(name).copied()
            }
        }
    }

    pub fn transfer_to(&self, server: ServerId) -> Transfer {
        let domain = self.server(server).and_then(|server| self.domain(server.domain));
        domain.map_or(Transfer::default(), |domain| domain.transfer)
    }

    /// The cost of a byte from one server to another.
    pub fn cost(&self, a: ServerId, b: ServerId) -> u32 {
        match (self.domain_of(a), self.domain_of(b)) {
            (Some(a), Some(b)) => self.cost_between(a, b),
            (Some(_) | None, Some(_) | None) => u32::MAX,
        }
    }

    /// The cost of a byte from one domain to another.
    pub fn cost_between(&self, a: DomainId, b: DomainId) -> u32 {
        match a == b {
            true => COST_NEAR,
            false => self.costs.get(&(a.min(b), a.max(b))).copied().unwrap_or(COST_DEFAULT),
        }
    }
}

impl Map for Topology {
    fn domain_named(&self, name: &str) -> Option<DomainId> {
        let place = self.domains.iter().position(|domain| &*domain.name == name)?;
        u16::try_from(place).ok().map(DomainId)
    }

    fn domain_of(&self, server: ServerId) -> Option<DomainId> {
        self.server(server).map(|server| server.domain)
    }

    fn server_in(&self, domain: DomainId, instance: InstanceId) -> Option<ServerId> {
        Some(self.domain(domain)?.chain.server(instance))
    }
}
