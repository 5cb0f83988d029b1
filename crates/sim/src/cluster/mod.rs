//! Several sites and a network that loses, repeats, delays and cuts, all from one seed.
//!
//! Invariant: a run depends on its seed alone. What the cases come to is compared with what they
//! come to at one server.

mod changes;
mod checks;
mod couriers;
mod crew;
mod network;
mod oracle;
mod readers;
mod story;

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_model::yaml;
use legwork_placement::Transfer;
use legwork_site::{Member, Request};

use crate::Report;
use crate::dice::Dice;
use crate::material::{AGENTS, DOMAINS, placed_definition};
use crate::world::World;
use changes::{Changes, draw_topology, schema};
use couriers::Couriers;
use crew::Crew;
use network::Network;

const BEGINNING: Timestamp = Timestamp(1_000_000);
/// Turns with crashes and a bad network.
const TURNS: usize = 150;
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
    /// The versions of the process there are, the first one first.
    pub(crate) schemas: Vec<Arc<Schema>>,
    /// Which of them each instance is of.
    versions: BTreeMap<InstanceId, usize>,
    pub(crate) seed: u64,
    transfer: Transfer,
    calm_always: bool,
    calm: bool,
}

/// Runs one seed of a cluster to the end of all its instances.
pub(crate) fn simulate(seed: u64) -> Result<Report, String> {
    let mut dice = Dice::new(seed ^ 0x00C1_0573_4000_0000);
    let (mut cluster, mut changes) = Cluster::new(seed, &mut dice)?;
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
        changes.make_some(turn, &mut cluster, &mut crew, &mut dice);
        cluster.turn(&mut dice)?;
        crew.listen(&mut cluster)?;
    }
    cluster.calm();
    cluster.settle_down(&mut crew, &mut dice)?;
    readers::all_see_the_same(&mut cluster, &mut dice)?;
    let mut turns = 0;
    while !(changes.are_made() && crew.has_finished(&mut cluster)? && cluster.agrees()?) {
        if turns % 100 == 0 {
            crew.resume_all(&mut cluster);
        }
        crew.work(&mut cluster, &mut dice);
        changes.make_some(TURNS, &mut cluster, &mut crew, &mut dice);
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
    /// The registrar has all there is, the others nothing.
    fn new(seed: u64, dice: &mut Dice) -> Result<(Self, Changes), String> {
        let size = 3 + dice.below(6);
        let definition = placed_definition(dice, size);
        let text = yaml::write(&definition);
        let organisation = organisation(dice);
        let transfers = [Transfer::Proven, Transfer::Requested, Transfer::Sending, Transfer::Full];
        // Mostly the ones that send nothing twice.
        let transfer = transfers[[0, 0, 0, 1, 1, 2, 3][dice.below(7)]];
        let topology = draw_topology(size, transfer, dice);
        let mut cluster = Self {
            worlds: Vec::new(),
            network: Network::default(),
            couriers: Couriers::default(),
            now: BEGINNING,
            skews: Vec::new(),
            schemas: vec![Arc::new(schema(&definition, 1)?)],
            versions: BTreeMap::new(),
            seed,
            transfer,
            calm_always: false,
            calm: false,
        };
        let source: Arc<str> = topology.to_yaml().into();
        for server in &topology.servers {
            let member = Member { name: server.name.clone(), topology: source.clone() };
            cluster.join(World::member(dice, member), dice);
        }
        let requests = [
            Request::PublishOrganisation { source: organisation },
            Request::Deploy { source: text.clone() },
        ];
        for request in requests {
            let reply = cluster.worlds[0].ask_calmly(request)?;
            reply.map_err(|refusal| format!("{refusal} {:?}\n{text}", refusal.findings))?;
        }
        Ok((cluster, Changes::draw(&topology, dice)?))
    }

    /// One more site, with nothing but the file it is started with.
    fn join(&mut self, mut world: World, dice: &mut Dice) {
        if self.calm {
            world.calm();
        }
        self.worlds.push(world);
        self.skews.push(dice.below(10_000) as i64 - 5_000);
    }

    /// Whether all have the same catalog.
    fn agrees(&self) -> Result<bool, String> {
        let mut catalogs = Vec::new();
        for world in &self.worlds {
            catalogs.push(world.catalog()?);
        }
        Ok(catalogs.iter().all(|catalog| Some(catalog) == catalogs.first()))
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
        for (at, to, is_up) in self.network.noticed() {
            self.worlds[usize::from(at.0)].notice(to, is_up);
        }
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

    /// An instance of one of the versions there are.
    pub(crate) fn draw_instance(&mut self, number: u64, by: usize, dice: &mut Dice) -> InstanceId {
        let drawn = u128::from(self.seed) << 32 | u128::from(number) << 16 | by as u128;
        let instance = InstanceId((self.now.0 as u128) << 80 | drawn);
        self.versions.insert(instance, dice.below(self.schemas.len()));
        instance
    }

    /// The definition that an instance follows.
    pub(crate) fn schema(&self, instance: InstanceId) -> Arc<Schema> {
        let version = self.versions.get(&instance).copied().unwrap_or_default();
        self.schemas[version].clone()
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
