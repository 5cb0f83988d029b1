//! Which domains and servers there are, where people are at home, what it costs to send.
//!
//! Invariant: numbers are for ever. A domain or a server keeps its number in every later topology;
//! one that is gone keeps it too, so that histories stay readable.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::event::Performer;
use legwork_model::id::{AgentId, DomainId, InstanceId, ServerId};

use crate::chain::Chain;
use crate::place::Map;
use crate::watchdog::Policy;

/// One state of the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    pub name: Arc<str>,
    /// Counts the changes: the newest counts.
    pub epoch: u32,
    pub domains: Vec<Domain>,
    pub servers: Vec<Server>,
    /// Where people are at home.
    pub homes: BTreeMap<AgentId, DomainId>,
    /// Where workers are at home, by their names.
    pub executors: BTreeMap<Arc<str>, DomainId>,
    /// What a byte costs between two domains, the lower number first; 1 where nothing is said.
    pub costs: BTreeMap<(DomainId, DomainId), u32>,
    /// Who watches over the weights, and how.
    pub watchdog: Policy,
    /// Up to which size a value travels with the entry of its writer.
    pub small_values: SmallValues,
}

/// Up to how many bytes a value is small. Only the sender of a value goes by it, and says of each
/// value that stays where it is: servers that do not agree for a moment understand each other.
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
    /// How what moves to this domain is sent.
    pub transfer: Transfer,
    /// Where its servers keep what they know.
    pub store: Store,
    /// Which of its servers controls an instance.
    pub chain: Chain,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub name: Arc<str>,
    pub domain: DomainId,
    /// Where other servers reach it. Of a guest: where they reach its host.
    pub address: Arc<str>,
    /// Where people and programs reach it. Of a guest: where they reach its host.
    pub api: Arc<str>,
    /// Which part of the domain's new instances it gets: so many parts of all there are.
    pub weight: u32,
    /// Which part of the domain's load it is meant to have, if not that of its weight.
    pub intended: Option<u32>,
    /// The server in whose process it is a guest.
    pub host: Option<ServerId>,
}

/// Where the servers of a domain keep what they know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// Each at its own place: what it controls stands still while it is down.
    #[default]
    Embedded,
    /// All in one database: another takes over from one that is down.
    Shared,
}

impl Store {
    pub const ALL: [Self; 2] = [Self::Embedded, Self::Shared];

    /// The word for it in a topology file.
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

/// The weight where nothing is said.
pub(crate) const WEIGHT_DEFAULT: u32 = 1;

impl Server {
    /// A server in a process of its own.
    pub fn new(name: Arc<str>, domain: DomainId, address: Arc<str>, api: Arc<str>) -> Self {
        let (weight, intended, host) = (WEIGHT_DEFAULT, None, None);
        Self { name, domain, address, api, weight, intended, host }
    }

    /// Which part of the domain's load it is meant to have.
    pub fn meant(&self) -> u32 {
        self.intended.unwrap_or(self.weight)
    }
}

/// How the history travels to a domain. All give the same results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transfer {
    /// Everything, every time.
    Full,
    /// What the sender cannot rule out that the receiver lacks.
    Sending,
    /// What the receiver asks for: three messages.
    Requested,
    /// Like `Requested`, in one message where the sender can prove what the receiver lacks.
    #[default]
    Proven,
}

impl Transfer {
    pub const ALL: [Self; 4] = [Self::Full, Self::Sending, Self::Requested, Self::Proven];

    /// The word for it in a topology file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Sending => "sending",
            Self::Requested => "requested",
            Self::Proven => "proven",
        }
    }
}

/// What it costs within a domain.
const COST_NEAR: u32 = 0;
/// What it costs between domains of whose link nothing is said.
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

    /// All servers, the lowest number first.
    pub fn numbered(&self) -> impl Iterator<Item = (ServerId, &Server)> {
        (0..=u16::MAX).map(ServerId).zip(&self.servers)
    }

    /// Where other servers reach a server: at its host, if it is a guest.
    pub fn address_of(&self, id: ServerId) -> Option<&Arc<str>> {
        self.server(id).map(|server| &server.address)
    }

    /// Where people and programs reach a server: at its host, if it is a guest.
    pub fn api_of(&self, id: ServerId) -> Option<&Arc<str>> {
        self.server(id).map(|server| &server.api)
    }

    /// The server in whose process a server is: itself, if it is no guest.
    pub fn host_of(&self, id: ServerId) -> ServerId {
        self.server(id).and_then(|server| server.host).unwrap_or(id)
    }

    /// All servers of a domain, the lowest number first.
    pub fn servers_of(&self, domain: DomainId) -> impl Iterator<Item = (ServerId, &Server)> {
        self.numbered().filter(move |(_, server)| server.domain == domain)
    }

    /// The server that an instance with this id starts at, if it is started in the domain of
    /// `front`, whom somebody has asked to.
    pub fn starter(&self, front: ServerId, instance: InstanceId) -> Option<ServerId> {
        self.server_in(self.domain_of(front)?, instance)
    }

    /// The one server that writes the catalog: definitions, organisations, tokens, topologies.
    pub fn registrar(&self) -> Option<ServerId> {
        self.numbered().map(|(id, _)| id).next()
    }

    /// Where whoever did something is at home, as far as anything is said of it.
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

    /// What a byte costs from one server to another.
    pub fn cost(&self, a: ServerId, b: ServerId) -> u32 {
        match (self.domain_of(a), self.domain_of(b)) {
            (Some(a), Some(b)) => self.cost_between(a, b),
            (Some(_) | None, Some(_) | None) => u32::MAX,
        }
    }

    /// What a byte costs from one domain to another.
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
