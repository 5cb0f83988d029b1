//! Changes while cases run: the topology, with a server that joins, and the definition.
//!
//! Invariant: requests go to the registrar only, and are repeated until it has answered; the others
//! get changes by replication.

use std::collections::VecDeque;
use std::sync::Arc;

use legwork_model::compile::compile;
use legwork_model::definition::Definition;
use legwork_model::id::{AgentId, DomainId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::yaml;
use legwork_placement::{Domain, Policy, Server, Topology, Transfer};
use legwork_site::{Member, PublishTopology, Request};

use super::Cluster;
use super::crew::{Crew, Errand};
use super::reshapes::draw_weight;
use crate::dice::Dice;
use crate::material::{AGENTS, DOMAINS, placed_definition};
use crate::world::World;

/// The turns of the first and of the last change: cases are started before, between and after.
const TURN_MIN: usize = 5;
const TURNS: usize = 40;

pub(crate) struct Changes(VecDeque<(usize, Change)>);

enum Change {
    Topology { text: Arc<str>, joins: Option<Member> },
    Definition { text: String, schema: Arc<Schema> },
}

impl Changes {
    /// Half of the runs have a new topology, half of those one more server, half a new definition.
    pub(crate) fn draw(topology: &Topology, dice: &mut Dice) -> Result<Self, String> {
        let mut changes = VecDeque::new();
        let mut size = topology.servers.len();
        let turn = TURN_MIN + dice.below(TURNS / 2);
        if dice.chance(50) {
            let grows = dice.chance(50);
            size += usize::from(grows);
            let transfer = topology.domains.first().map_or(Transfer::default(), |d| d.transfer);
            let next = draw_topology(size, transfer, dice);
            let text: Arc<str> = next.to_yaml().into();
            let joins = next.servers.last().filter(|_| grows);
            let joins =
                joins.map(|server| Member { name: server.name.clone(), topology: text.clone() });
            changes.push_back((turn, Change::Topology { text, joins }));
        }
        if dice.chance(50) {
            let definition = placed_definition(dice, size);
            let (text, schema) = (yaml::write(&definition), Arc::new(schema(&definition, 2)?));
            let turn = turn + dice.below(TURNS / 2);
            changes.push_back((turn, Change::Definition { text, schema }));
        }
        Ok(Self(changes))
    }

    pub(crate) fn are_made(&self) -> bool {
        self.0.is_empty()
    }

    /// Requests the next change, if it is time.
    pub(crate) fn make_some(
        &mut self,
        turn: usize,
        cluster: &mut Cluster,
        crew: &mut Crew,
        dice: &mut Dice,
    ) {
        match crew.errand() {
            Errand::UnderWay => return,
            Errand::Done => {
                if let Some((_, Change::Definition { schema, .. })) = self.0.pop_front() {
                    cluster.schemas.push(schema);
                }
            }
            Errand::None | Errand::Lost | Errand::Refused => {}
        }
        let Some((due, change)) = self.0.front_mut() else { return };
        if turn < *due {
            return;
        }
        let request = match change {
            Change::Topology { text, joins } => {
                if let Some(member) = joins.take() {
                    cluster.join(World::member(dice, member), dice);
                }
                {
                    let source = text.to_string();
                    Request::PublishTopology(PublishTopology { source, ..Default::default() })
                }
            }
            Change::Definition { text, .. } => Request::Deploy { source: text.clone() },
        };
        crew.send(cluster, request);
    }
}

/// The worker at a site.
pub(crate) fn worker(place: usize) -> Arc<str> {
    format!("robot-{place}").into()
}

/// A topology of so many servers; people have any homes, and so do some of the workers.
pub(crate) fn draw_topology(size: usize, transfer: Transfer, dice: &mut Dice) -> Topology {
    let domains = (0..).zip(&DOMAINS[..size]).map(|(n, name)| {
        let domain = Domain::new(Arc::from(*name), ServerId(n));
        Domain { transfer, ..domain }
    });
    let servers =
        (0..).zip(&DOMAINS[..size]).map(|(n, name)| server(&format!("{name}-1"), DomainId(n)));
    let (domains, servers) = (domains.collect(), servers.collect());
    let home = |agent: &&str| (AgentId::from(*agent), DomainId(dice.below(size) as u16));
    let homes = AGENTS.iter().map(home).collect();
    let housed: Vec<usize> = (0..size).filter(|_| dice.chance(50)).collect();
    let home = |place| (worker(place), DomainId(dice.below(size) as u16));
    let executors = housed.into_iter().map(home).collect();
    let (a, b) = (dice.below(size) as u16, dice.below(size) as u16);
    let link = (DomainId(a.min(b)), DomainId(a.max(b)));
    let costs = (a != b).then_some((link, 1 + dice.below(9) as u32)).into_iter().collect();
    let name = Arc::from("simulated");
    let watchdog = Policy::default();
    Topology {
        name,
        epoch: 1,
        domains,
        servers,
        homes,
        executors,
        costs,
        watchdog,
        ..Topology::default()
    }
}

/// A topology of so many domains with one to four servers each, of all weights.
pub(crate) fn draw_divided(size: usize, transfer: Transfer, dice: &mut Dice) -> Topology {
    let mut topology = draw_topology(size, transfer, dice);
    topology.servers.clear();
    for (number, name) in (0..).zip(&DOMAINS[..size]) {
        let servers = *dice.pick(&[1, 2, 2, 3, 4]).unwrap_or(&1);
        let only = dice.below(servers);
        for place in 0..servers {
            let weight = if place == only { 1 } else { draw_weight(dice) };
            let server = server(&format!("{name}-{}", place + 1), DomainId(number));
            topology.servers.push(Server { weight, ..server });
        }
    }
    topology
}

/// A server in its own process.
pub(crate) fn server(name: &str, domain: DomainId) -> Server {
    let (address, api) = (format!("{name}:7710"), format!("http://{name}:7700"));
    Server::new(name.into(), domain, address.into(), api.into())
}

pub(crate) fn schema(definition: &Definition, version: u32) -> Result<Schema, String> {
    compile(definition, version).map_err(|error| error.to_string())
}
