//! Several sites and a network that loses, repeats, delays and cuts, all from one seed.
//!
//! Invariant: a run depends on its seed alone. What the cases come to is compared with what they
//! come to at one server.

mod checks;
mod couriers;
mod crew;
mod network;
mod oracle;
mod readers;
mod story;

use std::sync::Arc;

use legwork_model::compile::compile;
use legwork_model::definition::Definition;
use legwork_model::id::{AgentId, DomainId, InstanceId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_model::yaml;
use legwork_placement::{Domain, Server, Topology, Transfer};
use legwork_site::{Request, Seat};

use crate::Report;
use crate::dice::Dice;
use crate::material::{AGENTS, DOMAINS, placed_definition};
use crate::world::World;
use couriers::Couriers;
use crew::Crew;
use network::Network;

const BEGINNING: Timestamp = Timestamp(1_000_000);
/// Turns with crashes and a bad network.
const TURNS: u32 = 150;
/// How long it takes at most until all have heard of everything, in milliseconds: the longest pause
/// between two attempts, and the time that the last ones take.
const QUIET: i64 = 150_000;
/// More than enough calm turns to finish: beyond them something waits for ever.
const TURNS_TO_FINISH_MAX: u32 = 3_000;

pub(crate) struct Cluster {
    pub(crate) worlds: Vec<World>,
    network: Network,
    couriers: Couriers,
    now: Timestamp,
    /// How far the clock of each site is off.
    skews: Vec<i64>,
    pub(crate) schema: Arc<Schema>,
    pub(crate) seed: u64,
    transfer: Transfer,
    calm_always: bool,
    calm: bool,
}

/// Runs one seed of a cluster to the end of all its instances.
pub(crate) fn simulate(seed: u64) -> Result<Report, String> {
    let mut dice = Dice::new(seed ^ 0x00C1_0573_4000_0000);
    let mut cluster = Cluster::new(seed, &mut dice)?;
    // Some runs are calm from the beginning: there nothing at all may be sent twice.
    let calm_always = seed % 4 == 3;
    if calm_always {
        cluster.calm_always = true;
        cluster.calm();
    }
    let mut crew = Crew::new();
    for turn in 0..TURNS {
        if turn < TURNS / 2 {
            crew.start_some(&mut cluster, &mut dice);
        }
        crew.work(&mut cluster, &mut dice);
        crew.order(&mut cluster, &mut dice);
        cluster.turn(&mut dice)?;
        crew.listen(&mut cluster)?;
    }
    cluster.calm();
    cluster.settle_down(&mut crew, &mut dice)?;
    readers::all_see_the_same(&mut cluster, &mut dice)?;
    let mut turns = 0;
    while !crew.has_finished(&mut cluster)? {
        if turns % 100 == 0 {
            crew.resume_all(&mut cluster);
        }
        crew.work(&mut cluster, &mut dice);
        cluster.turn(&mut dice)?;
        crew.listen(&mut cluster)?;
        turns += 1;
        if turns > TURNS_TO_FINISH_MAX {
            return Err(format!(
                "still waiting after {turns} calm turns: {}\n{}",
                cluster.describe(),
                story::of_first_open(&cluster)
            ));
        }
    }
    let completions = checks::all(&mut cluster, &crew)?;
    if cluster.is_sparing() {
        cluster.network.nothing_twice()?;
    }
    let mut digest = 0_u64;
    for world in &cluster.worlds {
        digest = digest.rotate_left(7) ^ world.digest()?;
    }
    let crashes = cluster.worlds.iter().map(|world| world.crashes).sum();
    let instances = crew.started().len();
    Ok(Report { instances, completions, crashes, refusals: crew.refusals, digest })
}

impl Cluster {
    fn new(seed: u64, dice: &mut Dice) -> Result<Self, String> {
        let size = 3 + dice.below(6);
        let definition = placed_definition(dice, size);
        let text = yaml::write(&definition);
        let organisation = organisation(dice);
        let transfers = [Transfer::Proven, Transfer::Requested, Transfer::Sending, Transfer::Full];
        // Mostly the ones that send nothing twice.
        let transfer = transfers[[0, 0, 0, 1, 1, 2, 3][dice.below(7)]];
        let topology = Arc::new(topology(size, transfer, dice));
        let mut worlds = Vec::new();
        for server in 0..size {
            let here = ServerId(server as u16);
            let mut world = World::seated(dice, Seat { here, topology: topology.clone() });
            let source = organisation.clone();
            for request in
                [Request::PublishOrganisation { source }, Request::Deploy { source: text.clone() }]
            {
                let reply = world.ask_calmly(request)?;
                reply.map_err(|refusal| format!("{refusal} {:?}\n{text}", refusal.findings))?;
            }
            worlds.push(world);
        }
        Ok(Self {
            worlds,
            network: Network::default(),
            couriers: Couriers::default(),
            now: BEGINNING,
            skews: (0..size).map(|_| dice.below(10_000) as i64 - 5_000).collect(),
            schema: Arc::new(schema(&definition)?),
            seed,
            transfer,
            calm_always: false,
            calm: false,
        })
    }

    fn calm(&mut self) {
        self.calm = true;
        self.network.heal();
        self.worlds.iter_mut().for_each(World::calm);
    }

    /// Nobody does anything until everybody has heard of everything.
    fn settle_down(&mut self, crew: &mut Crew, dice: &mut Dice) -> Result<(), String> {
        let end = self.now.0 + QUIET;
        let mut asked_at = 0;
        while self.now.0 < end {
            if self.now.0 - asked_at > QUIET / 4 {
                // Lists that nobody asks for are not kept.
                asked_at = self.now.0;
                readers::read_all(self, dice)?;
            }
            self.turn(dice)?;
            crew.listen(self)?;
        }
        Ok(())
    }

    /// The name of a site.
    pub(crate) fn name(&self, place: usize) -> String {
        format!("{}-1", DOMAINS[place])
    }

    /// All sites take a turn, then what they said goes on its way.
    fn turn(&mut self, dice: &mut Dice) -> Result<(), String> {
        self.network.turn(dice, self.worlds.len(), self.calm);
        for (from, to, message) in self.network.arrived(self.now) {
            self.worlds[usize::from(to.0)].hear(from, message);
        }
        self.couriers.arrive(&mut self.worlds, &self.network, self.now, dice)?;
        for place in 0..self.worlds.len() {
            let (world, skew) = (&mut self.worlds[place], self.skews[place]);
            world.set_now(Timestamp(self.now.0 + skew));
            world.cycle(dice)?;
            let from = ServerId(place as u16);
            for (to, message) in world.take_said() {
                self.network.send(from, to, message, self.now, dice);
            }
            for wanted in world.take_wanted() {
                self.couriers.send((place, world), wanted, self.now, dice);
            }
        }
        self.pass_time(dice);
        Ok(())
    }

    fn pass_time(&mut self, dice: &mut Dice) {
        let mut step = 1 + dice.below(300) as i64;
        let busy = self.worlds.iter().any(World::is_busy);
        if self.calm && !busy {
            let skewed = self.worlds.iter().zip(&self.skews);
            let due = skewed.filter_map(|(world, skew)| Some(world.next_timeout()?.0 - skew));
            let arrivals = [self.network.next_arrival(), self.couriers.next_arrival()];
            let arrivals = arrivals.into_iter().flatten().map(|at| at.0);
            let next = due.chain(arrivals).min();
            // Not each message by itself: lists are followed all the time.
            step = next.map_or(50, |next| next - self.now.0).clamp(40, 120_000);
        }
        self.now = Timestamp(self.now.0 + step);
    }

    pub(crate) fn draw_instance(&self, number: u64, by: usize) -> InstanceId {
        let drawn = u128::from(self.seed) << 32 | u128::from(number) << 16 | by as u128;
        InstanceId((self.now.0 as u128) << 80 | drawn)
    }

    /// Whether nothing may be sent twice.
    fn is_sparing(&self) -> bool {
        let sparing = match self.transfer {
            Transfer::Proven | Transfer::Requested => true,
            Transfer::Sending | Transfer::Full => false,
        };
        sparing && self.calm_always
    }

    fn describe(&self) -> String {
        let worlds = self.worlds.iter().enumerate();
        let lines: Vec<String> =
            worlds.map(|(n, world)| format!("{n}: {}", world.describe())).collect();
        format!("\n{}\n{}", lines.join("\n"), self.network.describe())
    }
}

fn topology(size: usize, transfer: Transfer, dice: &mut Dice) -> Topology {
    let domains = DOMAINS[..size].iter().map(|name| Domain {
        name: Arc::from(*name),
        transfer,
        is_gone: false,
    });
    let servers = DOMAINS[..size].iter().enumerate().map(|(n, name)| Server {
        name: Arc::from(format!("{name}-1")),
        domain: DomainId(n as u16),
        address: Arc::from(""),
        api: Arc::from(""),
        is_gone: false,
    });
    let home = |agent: &&str| (AgentId::from(*agent), DomainId(dice.below(size) as u16));
    let homes = AGENTS.iter().map(home).collect();
    Topology {
        epoch: 1,
        domains: domains.collect(),
        servers: servers.collect(),
        homes,
        ..Topology::default()
    }
}

/// Everybody may do everything: who does a step decides only where the next one is. Some are away
/// for a while, and others see what those hold.
fn organisation(dice: &mut Dice) -> String {
    let roles = legwork_model::arbitrary::ROLES.join(", ");
    let mut text = "organisation: simulated\nagents:\n".to_owned();
    for (place, agent) in AGENTS.into_iter().enumerate() {
        let substitute = AGENTS[(place + 1) % AGENTS.len()];
        let mut absent = String::new();
        if dice.chance(40) {
            let from = Timestamp(BEGINNING.0 + dice.below(30_000) as i64);
            // Over before everybody's list is compared: the clocks of sites differ.
            let to = Timestamp(from.0 + 1 + dice.below(100_000) as i64);
            absent = format!("{{ from: \"{from}\", to: \"{to}\" }}");
        }
        text += &format!(
            "  {agent}: {{ name: {agent}, roles: [{roles}], substitutes: [{substitute}], \
             absent: [{absent}] }}\n"
        );
    }
    text
}

fn schema(definition: &Definition) -> Result<Schema, String> {
    compile(definition, 1).map_err(|error| error.to_string())
}
