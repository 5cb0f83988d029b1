//! Several sites and a network that loses, repeats, delays and partitions, all from one seed.
//!
//! Invariant: a run depends on its seed alone. The results of the cases are compared with those at
//! one server.

pub(crate) mod changes;
mod checks;
mod couriers;
mod crew;
mod histories;
mod moves;
pub(crate) mod network;
mod oracle;
mod placed;
mod readers;
mod reshapes;
mod shared;
mod starts;
mod story;

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::arbitrary::located;
use legwork_model::id::InstanceId;
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_model::yaml;
use legwork_placement::Transfer;
use legwork_site::{Member, Request};

use crate::Report;
use crate::dice::Dice;
use crate::executors::staff::Staff;
use crate::material::{AGENTS, DOMAINS, placed_definition};
use crate::world::World;
use changes::{Changes, draw_divided, draw_topology, schema};
use couriers::Couriers;
use crew::Crew;
use moves::Moves;
use network::Network;
use reshapes::Reshapes;

const BEGINNING: Timestamp = Timestamp(1_000_000);
/// Turns with crashes and a bad network.
const TURNS: usize = 150;
/// The longest time until all sites have received everything, in milliseconds: the longest back-off,
/// and the time of the last attempts.
const QUIET: i64 = 150_000;
/// More than enough calm turns to finish: beyond them something waits forever.
const TURNS_TO_FINISH_MAX: u32 = 3_000;

pub(crate) struct Cluster {
    pub(crate) worlds: Vec<World>,
    network: Network,
    couriers: Couriers,
    now: Timestamp,
    /// The clock skew of each site.
    skews: Vec<i64>,
    /// All versions of the process, first one first.
    pub(crate) schemas: Vec<Arc<Schema>>,
    /// The version of each instance.
    versions: BTreeMap<InstanceId, usize>,
    pub(crate) seed: u64,
    transfer: Transfer,
    calm_always: bool,
    calm: bool,
    kind: Kind,
    moves: Moves,
    staff: Option<Staff>,
    turns: usize,
}

/// The kind of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One server in each domain.
    Single,
    /// Several servers in a domain, with changing weights and hosts.
    Divided,
    /// The same, smaller, with shared executors.
    Shared,
}

/// The changes of a run.
enum Plan {
    Single(Changes),
    Divided(Reshapes),
}

/// Runs one seed of a cluster to the end of all its instances.
pub(crate) fn simulate(seed: u64, kind: Kind) -> Result<Report, String> {
    let mut dice = match kind {
        Kind::Single => Dice::new(seed ^ 0x00C1_0573_4000_0000),
        Kind::Divided => Dice::new(seed ^ 0x00D1_51DE_4000_0000),
        Kind::Shared => Dice::new(seed ^ 0x5A4E_D000_0000),
    };
    let (mut cluster, mut plan) = Cluster::new(seed, kind, &mut dice)?;
    // Some runs are calm from the beginning: there nothing at all may be sent twice.
    let calm_always = seed % 4 == 3;
    if calm_always {
        cluster.calm_always = true;
        cluster.calm();
    }
    let mut crew = Crew::new();
    let turns_max = kind.turns();
    for turn in 0..turns_max {
        if turn < turns_max / 2 {
            crew.start_some(&mut cluster, &mut dice);
        }
        crew.work(&mut cluster, &mut dice);
        crew.order(&mut cluster, &mut dice);
        plan.make_some(turn, &mut cluster, &mut crew, &mut dice)?;
        cluster.turn(&mut dice)?;
        crew.listen(&mut cluster)?;
    }
    cluster.calm();
    cluster.end_changes(&mut plan, &mut crew, &mut dice)?;
    // While executors work, lists change.
    if !cluster.is_shared() {
        cluster.settle_down(&mut crew, &mut dice)?;
        readers::all_see_the_same(&mut cluster, &mut dice)?;
    }
    let mut turns = 0;
    while !(plan.are_made()
        && crew.has_finished(&mut cluster)?
        && cluster.agrees()?
        && placed::has_no_exceptions(&cluster)
        && cluster.awaited_of_staff()?.is_none())
    {
        if turns % 100 == 0 {
            crew.resume_all(&mut cluster);
        }
        crew.work(&mut cluster, &mut dice);
        plan.make_some(turns_max, &mut cluster, &mut crew, &mut dice)?;
        cluster.turn(&mut dice)?;
        crew.listen(&mut cluster)?;
        turns += 1;
        if turns > kind.turns_to_finish_max() {
            return Err(format!(
                "still waiting after {turns} calm turns for {:?}: changes made {}, catalogs agree \
                 {}, no exceptions {}: {}\n{}",
                cluster.awaited_of_staff()?,
                plan.are_made(),
                cluster.agrees()?,
                placed::has_no_exceptions(&cluster),
                cluster.describe(),
                story::of_first_open(&cluster)
            ));
        }
    }
    report(&mut cluster, &crew, &plan)
}

/// Checks everything, and reports what was done.
fn report(cluster: &mut Cluster, crew: &Crew, plan: &Plan) -> Result<Report, String> {
    cluster.left_alone()?;
    cluster.compare_with_staff()?;
    placed::one_server_ever(cluster)?;
    let completions = checks::all(cluster, crew)?;
    if cluster.is_sparing() {
        cluster.network.nothing_twice()?;
    }
    let mut digest = 0_u64;
    for world in &cluster.worlds {
        digest = digest.rotate_left(7) ^ world.digest()?;
    }
    let crashes = cluster.worlds.iter().map(|world| world.crashes).sum();
    let instances = crew.started().len();
    let changes = crate::Changes { moved: cluster.moves.moved, ..plan.changes() };
    let (refusals, promises) = (crew.refusals, crate::Promises::default());
    Ok(Report { instances, completions, crashes, refusals, changes, promises, digest })
}

impl Kind {
    /// Turns with crashes and a bad network.
    fn turns(self) -> usize {
        match self {
            Self::Single => TURNS,
            Self::Divided => 2 * TURNS,
            Self::Shared => 2 * TURNS / 3,
        }
    }

    /// More than enough calm turns to finish. Executors take their time.
    fn turns_to_finish_max(self) -> u32 {
        match self {
            Self::Single | Self::Divided => TURNS_TO_FINISH_MAX,
            Self::Shared => 10 * TURNS_TO_FINISH_MAX,
        }
    }
}

impl Plan {
    fn make_some(
        &mut self,
        turn: usize,
        cluster: &mut Cluster,
        crew: &mut Crew,
        dice: &mut Dice,
    ) -> Result<(), String> {
        match self {
            Self::Single(changes) => {
                changes.make_some(turn, cluster, crew, dice);
                Ok(())
            }
            Self::Divided(reshapes) => reshapes.make_some(turn, cluster, crew, dice),
        }
    }

    /// The outcomes of changes of servers within a domain.
    fn changes(&self) -> crate::Changes {
        match self {
            Self::Single(_) => crate::Changes::default(),
            Self::Divided(Reshapes { published, undone, .. }) => {
                crate::Changes { published: *published, undone: *undone, moved: 0 }
            }
        }
    }

    fn are_made(&self) -> bool {
        match self {
            Self::Single(changes) => changes.are_made(),
            Self::Divided(reshapes) => reshapes.are_made(),
        }
    }
}

impl Cluster {
    /// The registrar has everything, the others nothing.
    fn new(seed: u64, kind: Kind, dice: &mut Dice) -> Result<(Self, Plan), String> {
        let size = match kind {
            Kind::Single => 3 + dice.below(6),
            Kind::Divided => 2 + dice.below(3),
            Kind::Shared => 1 + dice.below(2),
        };
        let definition = match kind {
            Kind::Shared if seed.is_multiple_of(2) => {
                located(placed_definition(dice, size), || dice.chance(30))
            }
            Kind::Single | Kind::Divided | Kind::Shared => placed_definition(dice, size),
        };
        let text = yaml::write(&definition);
        let organisation = organisation(dice);
        let transfers = [Transfer::Proven, Transfer::Requested, Transfer::Sending, Transfer::Full];
        // Mostly the modes that send nothing twice.
        let transfer = transfers[[0, 0, 0, 1, 1, 2, 3][dice.below(7)]];
        let topology = match kind {
            Kind::Single => draw_topology(size, transfer, dice),
            Kind::Divided | Kind::Shared => draw_divided(size, transfer, dice),
        };
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
            kind,
            moves: Moves::default(),
            staff: None,
            turns: 0,
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
        let plan = match kind {
            Kind::Single => Plan::Single(Changes::draw(&topology, dice)?),
            Kind::Divided | Kind::Shared => {
                Plan::Divided(Reshapes::draw(cluster.is_steady(), dice))
            }
        };
        if kind == Kind::Shared {
            cluster.hire(&DOMAINS[..size], dice)?;
        }
        Ok((cluster, plan))
    }

    /// One more site, with nothing but its start file.
    fn join(&mut self, mut world: World, dice: &mut Dice) {
        if self.calm {
            world.calm();
        }
        self.network.enter(world.name());
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
        self.staff.iter_mut().for_each(Staff::calm);
        self.worlds.iter_mut().chain(self.moves.worlds()).for_each(World::calm);
    }

    /// Waits without activity until everything is replicated.
    fn settle_down(&mut self, crew: &mut Crew, dice: &mut Dice) -> Result<(), String> {
        let end = self.now.0 + QUIET;
        let mut asked_at = 0;
        while self.now.0 < end {
            if self.now.0 - asked_at > QUIET / 4 {
                // Lists without readers are not kept.
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
        let server = self.worlds[0].topology().and_then(|topology| topology.servers.get(place));
        server.map_or_else(String::new, |server| server.name.to_string())
    }

    /// In calm conditions every change ends or is undone; then the exceptions end with the cases.
    fn end_changes(
        &mut self,
        plan: &mut Plan,
        crew: &mut Crew,
        dice: &mut Dice,
    ) -> Result<(), String> {
        for turn in 0..TURNS_TO_FINISH_MAX {
            if self.kind == Kind::Single || plan.are_made() && !self.is_moving() {
                return Ok(());
            }
            plan.make_some(TURNS_TO_FINISH_MAX as usize + turn as usize, self, crew, dice)?;
            self.turn(dice)?;
            crew.listen(self)?;
        }
        Err(format!("a change neither ends nor is undone: {}", self.describe()))
    }

    /// All sites take a turn, then their messages are sent.
    fn turn(&mut self, dice: &mut Dice) -> Result<(), String> {
        self.network.turn(dice, self.worlds.len(), self.calm);
        for (at, to, is_up) in self.network.noticed() {
            self.worlds[usize::from(at.0)].notice(self.network.name(to), is_up);
        }
        for envelope in self.network.arrived(self.now) {
            self.deliver(envelope);
        }
        self.couriers.arrive(&mut self.worlds, &self.network, self.now, dice)?;
        for place in 0..self.worlds.len() {
            let (world, skew) = (&mut self.worlds[place], self.skews[place]);
            world.set_now(Timestamp(self.now.0 + skew));
            world.cycle(dice)?;
            self.network.send_all(place, world, self.now, dice);
            for wanted in world.take_wanted() {
                self.couriers.send((place, world), wanted, self.now, dice);
            }
        }
        self.turn_of_staff(dice)?;
        if self.kind != Kind::Single {
            self.turn_of_moves(dice)?;
            self.move_servers(dice)?;
            self.turns += 1;
            if self.turns.is_multiple_of(5) {
                placed::one_server_each(self)?;
                placed::all_agree(self)?;
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
            let arrivals = [
                self.network.next_arrival(),
                self.couriers.next_arrival(),
                self.staff.as_ref().and_then(Staff::next_due),
            ];
            let arrivals = arrivals.into_iter().flatten().map(|at| at.0);
            let next = due.chain(arrivals).min();
            // Not each message by itself: lists are followed all the time.
            let least = if self.is_shared() { 300 } else { 40 };
            step = next.map_or(50, |next| next - self.now.0).clamp(least, 120_000);
        }
        self.now = Timestamp(self.now.0 + step);
    }

    /// An instance of one of the versions.
    pub(crate) fn draw_instance(&mut self, number: u64, by: usize, dice: &mut Dice) -> InstanceId {
        let drawn = u128::from(self.seed) << 32 | u128::from(number) << 16 | by as u128;
        let instance = InstanceId((self.now.0 as u128) << 80 | drawn);
        self.note_version(instance, dice);
        instance
    }

    fn note_version(&mut self, instance: InstanceId, dice: &mut Dice) {
        self.versions.insert(instance, dice.below(self.schemas.len()));
    }

    /// The definition of an instance.
    pub(crate) fn schema(&self, instance: InstanceId) -> Arc<Schema> {
        let version = self.versions.get(&instance).copied().unwrap_or_default();
        self.schemas[version].clone()
    }

    /// Whether weights and hosts stay as they are: in some of the calm runs.
    fn is_steady(&self) -> bool {
        self.kind == Kind::Single || self.seed % 16 == 15
    }

    /// Whether nothing may be sent twice. A redirected transfer has been sent before.
    fn is_sparing(&self) -> bool {
        let sparing = match self.transfer {
            Transfer::Proven | Transfer::Requested => true,
            Transfer::Sending | Transfer::Full => false,
        };
        sparing && self.calm_always && self.is_steady()
    }

    fn describe(&self) -> String {
        let worlds = self.worlds.iter().enumerate();
        let lines: Vec<String> =
            worlds.map(|(n, world)| format!("{n}: {}", world.describe())).collect();
        format!("\n{}\n{}", lines.join("\n"), self.network.describe())
    }
}

/// Everybody may do everything: the performer of a step determines only the place of the next one.
/// Some are absent for a while, and others see their items.
fn organisation(dice: &mut Dice) -> String {
    let roles = legwork_model::arbitrary::ROLES.join(", ");
    let mut text = "organisation: simulated\nagents:\n".to_owned();
    for (place, agent) in AGENTS.into_iter().enumerate() {
        let substitute = AGENTS[(place + 1) % AGENTS.len()];
        let mut absent = String::new();
        if dice.chance(40) {
            let from = Timestamp(BEGINNING.0 + dice.below(30_000) as i64);
            // Over before all lists are compared: the clocks of sites differ.
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
