//! Promised deadlines over several servers: people work by their plans in virtual time, and servers die and are cut
//! off from each other.
//!
//! Invariant: a run depends on its seed alone. Without faults no promise is broken; with faults the starter is told
//! before the case is late.

mod checks;
mod ledger;
mod links;
mod machines;
mod material;
mod orders;
mod people;
mod starts;

use std::collections::BTreeSet;
use std::sync::Arc;

use legwork_model::compile::compile;
use legwork_model::id::{ActivityId, AgentId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_model::yaml;
use legwork_site::{Member, Request};

use crate::cluster::network::{Envelope, Network};
use crate::dice::Dice;
use crate::material::AGENTS;
use crate::world::World;
use crate::{Promises, Report};
use ledger::{Case, Ledger, Slot};
use links::Links;
use machines::Machines;
use material::{Away, People, Process};
use orders::Orders;
use people::Person;
use starts::Starts;

/// Far in the future, without overflow.
const NEVER: Timestamp = Timestamp(i64::MAX / 2);
/// Until the catalog is replicated.
const SETTLING: i64 = 20_000;
/// Cases are started in this time, and faults occur until a little later.
const BUSY: i64 = 30 * 60_000;
const ROUGH: i64 = 60 * 60_000;
/// When all servers know of the faults, and everything concerned is over, cases are started once more, without
/// faults.
const HEARD: i64 = ROUGH + 10 * 60_000;
const AGAIN: i64 = 20 * 60_000;
/// More than enough time to finish.
const LONGEST: i64 = 12 * 3_600_000;
/// The server with an unwanted promise asks after its deadline, with doubling intervals.
const QUIET: i64 = 600_000;
/// The longest downtime of a server or a link.
const DOWN_MAX: usize = 5 * 60_000;
/// Sometimes a server is down for longer than cases take.
const DOWN_LONG: usize = 40 * 60_000;
/// An ill person is back after ten minutes and up to so much more.
const AWAY_MORE: usize = 30 * 60_000;

pub(super) struct Office {
    pub(super) worlds: Vec<World>,
    network: Network,
    links: Links,
    pub(super) now: Timestamp,
    skews: Vec<i64>,
    processes: Vec<(Process, Arc<Schema>)>,
    people: People,
    machines: Machines,
    ledger: Ledger,
    /// People who do not work any more.
    gone: BTreeSet<AgentId>,
    /// When each server that is down comes up again.
    down: Vec<Option<i64>>,
    /// How long links are down, if some are.
    cut_until: Option<i64>,
    troubles: Vec<Trouble>,
    /// The latest requested deadline.
    last_deadline: Timestamp,
    crashes: u32,
    completions: usize,
    /// Whether cases have different priorities.
    has_priorities: bool,
    /// From when on no fault can affect a new case, if ever.
    calm_from: Timestamp,
    calm: bool,
}

/// A server was down, or cut off from all others.
#[derive(Debug)]
struct Trouble {
    place: usize,
    is_down: bool,
    from: i64,
    until: i64,
}

/// Runs one seed to the end of all its instances.
pub(crate) fn simulate(seed: u64) -> Result<Report, String> {
    let mut dice = Dice::new(seed ^ 0x0DEA_D11E_0000);
    // Machines are shared in runs without faults, and in half of the runs with faults.
    let (calm, odd) = (seed.is_multiple_of(3), !seed.is_multiple_of(2));
    let mut office = Office::new(calm, calm || odd, &mut dice)?;
    let mut crew = office.hire(&mut dice);
    let (mut starts, mut orders) = (Starts::new(), Orders::default());
    office.settle(SETTLING, &mut crew, &mut dice)?;
    let begin = office.now.0;
    let mut looked_at = 0;
    loop {
        let passed = office.now.0 - begin;
        if passed < BUSY || office.is_again() {
            starts.start_some(&mut office, &mut dice);
            office.with_machines(|machines, office| machines.start_some(office, &mut dice));
        } else if starts.is_idle() && orders.is_idle() && office.is_over() {
            if office.is_calm_now() {
                break;
            }
            if passed > HEARD {
                office.begin_again();
                starts.begin_again();
            }
        }
        orders.give_some(&mut office, &mut dice);
        if passed > ROUGH && !office.calm {
            office.calm();
        }
        if passed > office.longest(begin) {
            return Err(office.stuck(&crew));
        }
        office.break_some(&mut dice)?;
        office.turn(&mut crew, starts.is_idle(), &mut dice)?;
        if starts.listen(&mut office, &mut dice)? {
            checks::no_overlap(&mut office)?;
        }
        if passed - looked_at > BUSY / 3 {
            looked_at = passed;
            checks::plans_are_stored(&mut office)?;
        }
    }
    office.calm();
    office.rest(&mut dice)?;
    let promises = checks::all(&mut office, &starts)?;
    office.report(promises)
}

impl Office {
    fn new(calm_always: bool, has_machines: bool, dice: &mut Dice) -> Result<Self, String> {
        let topology = material::topology(dice);
        let people = People::draw(dice);
        let source: Arc<str> = topology.to_yaml().into();
        let mut worlds = Vec::new();
        for server in &topology.servers {
            let member = Member { name: server.name.clone(), topology: source.clone() };
            let mut world = World::member(dice, member);
            // Crashes come from here.
            world.calm();
            worlds.push(world);
        }
        let domains = topology.domains.len();
        let mut drawn: Vec<Process> = Vec::new();
        for number in 0..2 {
            drawn.push(material::process(&format!("process-{number}"), domains, dice));
        }
        if has_machines {
            drawn.extend(machines::processes(domains, dice));
        }
        let mut processes = Vec::new();
        for process in drawn {
            let (definition, findings) = yaml::parse(&process.text);
            let definition = definition.ok_or_else(|| format!("{findings:?}\n{}", process.text))?;
            let schema = compile(&definition, 1).map_err(|error| error.to_string())?;
            processes.push((process, Arc::new(schema)));
        }
        let deploys = processes.iter().map(|(it, _)| Request::Deploy { source: it.text.clone() });
        let publish = Request::PublishOrganisation { source: people.text() };
        for request in deploys.chain([publish]) {
            // The next absence change is far away.
            worlds[0].set_now(people.begin);
            let reply = worlds[0].ask_calmly(request)?;
            reply.map_err(|refusal| format!("{refusal} {:?}", refusal.findings))?;
        }
        worlds[0].set_now(people.begin);
        let machines = match has_machines {
            true => Machines::register(&mut worlds[0], domains, dice)?,
            false => Machines::default(),
        };
        let skews = worlds.iter().map(|_| dice.below(1_000) as i64 - 500).collect();
        let mut network = Network::default();
        worlds.iter().for_each(|world| network.enter(world.name()));
        // An answer that takes longer than a second is a fault: it is not awaited.
        if calm_always {
            network.be_prompt();
        }
        let (now, last_deadline) = (people.begin, people.begin);
        Ok(Self {
            down: vec![None; worlds.len()],
            worlds,
            network,
            links: Links::default(),
            now,
            skews,
            processes,
            people,
            machines,
            ledger: Ledger::default(),
            gone: BTreeSet::new(),
            cut_until: None,
            troubles: Vec::new(),
            last_deadline,
            crashes: 0,
            completions: 0,
            has_priorities: dice.chance(60),
            calm_from: if calm_always { Timestamp(0) } else { NEVER },
            calm: calm_always,
        })
    }

    fn hire(&self, dice: &mut Dice) -> Vec<Person> {
        let all = AGENTS.into_iter().map(AgentId::from);
        all.map(|agent| Person::new(agent, dice.below(self.worlds.len()))).collect()
    }

    /// From here on there are no faults.
    fn calm(&mut self) {
        self.calm = true;
        self.network.heal();
        self.down.iter_mut().flatten().for_each(|until| *until = 0);
        self.troubles.iter_mut().for_each(|it| it.until = it.until.min(self.now.0));
    }

    /// All servers know of all faults, which were reported; from here on nothing is late either.
    fn begin_again(&mut self) {
        self.calm_from = self.now;
        self.network.be_prompt();
    }

    /// Whether cases are started once more.
    fn is_again(&self) -> bool {
        let since = self.now.0 - self.calm_from.0;
        self.calm_from > Timestamp(0) && (0..AGAIN).contains(&since)
    }

    /// When everything is certainly over, from a beginning on.
    fn longest(&self, begin: i64) -> i64 {
        let again = if self.is_calm_now() { (self.calm_from.0 - begin).max(0) } else { 0 };
        again + LONGEST
    }

    /// Whether all work of machines goes through one planner, so that their promises are firm.
    fn is_firm(&self) -> bool {
        self.worlds.len() == 1
    }

    /// Whether no fault can affect a case that starts now.
    fn is_calm_now(&self) -> bool {
        self.calm_from <= self.now
    }

    /// Whether no fault affected a case. Work of several servers for machines is promised to the planner's best
    /// knowledge, not firmly.
    fn is_calm_for(&self, case: &Case) -> bool {
        let is_calm = case.created.is_some_and(|created| self.calm_from <= created);
        is_calm && (self.is_firm() || !self.is_for_machines(case.process))
    }

    /// Servers die at any moment, links are down for minutes, and a person falls ill.
    fn break_some(&mut self, dice: &mut Dice) -> Result<(), String> {
        for place in 0..self.worlds.len() {
            if self.down[place].is_some_and(|until| until <= self.now.0) {
                self.down[place] = None;
                self.worlds[place].come_up();
            }
        }
        if self.cut_until.is_some_and(|until| until <= self.now.0) {
            self.cut_until = None;
            self.network.mend();
        }
        let is_back = |away: &Away| away.to.is_some_and(|to| to <= self.now);
        for away in self.people.away.iter().filter(|away| is_back(away)) {
            self.gone.remove(&away.agent);
        }
        if self.calm {
            return Ok(());
        }
        if dice.roll().is_multiple_of(1_000) {
            let place = dice.below(self.worlds.len());
            if self.down[place].is_none() {
                let longest = match dice.below(100) {
                    0..50 => 2_000,
                    50..95 => DOWN_MAX,
                    _ => DOWN_LONG,
                };
                let until = self.now.0 + dice.below(longest) as i64;
                self.down[place] = Some(until);
                self.crashes += 1;
                self.troubles.push(Trouble { place, is_down: true, from: self.now.0, until });
                self.worlds[place].cycle_and_stop(dice)?;
                self.links.died(place);
            }
        }
        if dice.roll().is_multiple_of(2_000) && self.cut_until.is_none() {
            let until = self.now.0 + dice.below(DOWN_MAX) as i64;
            self.cut_until = Some(until);
            let place = dice.below(self.worlds.len());
            self.troubles.push(Trouble { place, is_down: false, from: self.now.0, until });
            let alone = ServerId(place as u16);
            let others = (0..self.worlds.len() as u16).map(ServerId).filter(|at| *at != alone);
            self.network.cut_off(alone, others);
        }
        if dice.roll().is_multiple_of(2_500) && self.people.away.is_empty() {
            self.send_home(dice)?;
        }
        Ok(())
    }

    /// A person is absent from now on, also in the organisation.
    fn send_home(&mut self, dice: &mut Dice) -> Result<(), String> {
        if self.worlds[0].is_down() {
            return Ok(());
        }
        let agent = AgentId::from(*dice.pick(&AGENTS).unwrap_or(&"ann"));
        let back = dice.chance(50).then(|| 10 * 60_000 + dice.below(AWAY_MORE) as i64);
        let to = back.map(|time| Timestamp(self.now.0 + time));
        self.people.away.push(Away { agent: agent.clone(), from: self.now, to });
        self.gone.insert(agent);
        let source = self.people.text();
        let reply = self.worlds[0].look(Request::PublishOrganisation { source })?;
        reply.map_err(|refusal| format!("{refusal} {:?}", refusal.findings))?;
        Ok(())
    }

    fn settle(&mut self, length: i64, crew: &mut [Person], dice: &mut Dice) -> Result<(), String> {
        let end = self.now.0 + length;
        while self.now.0 < end {
            self.break_some(&mut Dice::new(1))?;
            self.turn(crew, true, dice)?;
        }
        Ok(())
    }

    /// Waits without activity until everything promised should be done.
    fn rest(&mut self, dice: &mut Dice) -> Result<(), String> {
        // Also for starts lost in a crash: the planners of their promises ask for them.
        let end = checks::last_due(self)?.max(self.now).0 + QUIET;
        self.break_some(&mut Dice::new(1))?;
        while self.now.0 < end {
            self.turn_of_worlds(dice)?;
            self.now = Timestamp(self.now.0 + 5_000);
        }
        Ok(())
    }

    /// People act, all sites take a turn, messages are sent, and time passes.
    fn turn(&mut self, crew: &mut [Person], idle: bool, dice: &mut Dice) -> Result<(), String> {
        self.ledger.read_on(&self.worlds)?;
        for person in crew.iter_mut() {
            person.is_gone = self.gone.contains(&person.agent);
            person.is_on_duty = self.people.is_on_duty(&person.agent, self.now);
            person.act(self, dice);
        }
        self.turn_of_worlds(dice)?;
        // A task assigned to a machine may no longer be promised.
        self.ledger.read_on(&self.worlds)?;
        self.with_machines(|machines, office| machines.turn(office, dice))?;
        for person in crew.iter_mut() {
            person.listen(self);
        }
        let passed = self.pause(crew, idle, dice);
        self.now = Timestamp(self.now.0 + passed);
        crew.iter_mut().for_each(|person| person.work(passed));
        self.machines.work(passed);
        Ok(())
    }

    fn with_machines<T>(&mut self, act: impl FnOnce(&mut Machines, &mut Self) -> T) -> T {
        let mut machines = std::mem::take(&mut self.machines);
        let done = act(&mut machines, self);
        self.machines = machines;
        done
    }

    fn turn_of_worlds(&mut self, dice: &mut Dice) -> Result<(), String> {
        self.look_at_links(dice);
        for Envelope { from, to, message, .. } in self.network.arrived(self.now) {
            self.worlds[usize::from(to.0)].on_message(self.network.name(from), message);
        }
        for (place, world) in self.worlds.iter_mut().enumerate() {
            world.set_now(Timestamp(self.now.0 + self.skews[place]));
            world.cycle(dice)?;
            self.network.send_all(place, world, self.now, dice);
            drop(world.take_lost());
        }
        Ok(())
    }

    /// The time until the next event.
    fn pause(&self, crew: &[Person], idle: bool, dice: &mut Dice) -> i64 {
        let arrival = self.network.next_arrival().map(|at| at.0 - self.now.0);
        let done = crew.iter().filter_map(Person::next_due).chain(self.machines.next_due()).min();
        let most = if idle { 1_000 + dice.below(1_000) as i64 } else { 60 };
        let least = if idle { 100 } else { 10 };
        [arrival, done].into_iter().flatten().min().unwrap_or(most).clamp(least, most)
    }

    fn any_up(&self) -> Option<usize> {
        self.worlds.iter().position(|world| !world.is_down())
    }

    /// The plan of a step.
    fn slot(&self, activity: &ActivityId) -> Option<Slot> {
        let case = self.ledger.cases.get(&activity.instance)?;
        let (_, schema) = &self.processes[case.process];
        case.slot(schema.node_named(&activity.step)?.id, activity.iteration.number())
    }

    /// Whether its case is aborted.
    fn is_aborted(&self, activity: &ActivityId) -> bool {
        self.ledger.cases.get(&activity.instance).is_some_and(|case| case.is_aborted)
    }

    /// Whether a person can be expected to do a step in time: they are present, or it is planned for their return.
    fn is_left_to(&self, agent: &AgentId, due: Timestamp) -> bool {
        let own = self.people.away.iter().filter(|away| away.agent == *agent);
        let is_back = own.filter_map(|away| away.to).any(|to| to < due);
        (is_back || !self.gone.contains(agent)) && due > self.now
    }

    fn is_over(&self) -> bool {
        self.worlds.iter().all(|world| !world.is_down() && world.gauges().instances_open == 0)
    }

    /// The server that keeps a person's plan.
    fn planner_of(&self, agent: &AgentId) -> usize {
        let Some(topology) = self.worlds[0].topology() else { return 0 };
        let home = topology.homes.get(agent).copied();
        let first = home.and_then(|domain| topology.servers_of(domain).next());
        first.map_or(0, |(server, _)| usize::from(server.0))
    }

    fn stuck(&self, crew: &[Person]) -> String {
        let worlds = self.worlds.iter().map(World::describe).collect::<Vec<_>>().join("\n");
        let machines = self.machines.describe();
        let people = crew.iter().map(Person::describe).collect::<Vec<_>>().join("\n");
        format!("not all cases come to an end:\n{worlds}\n{people}\n{machines}")
    }

    fn report(&self, promises: Promises) -> Result<Report, String> {
        let mut digest = 0_u64;
        for world in &self.worlds {
            digest = digest.rotate_left(7) ^ world.digest()?;
        }
        Ok(Report {
            instances: self.ledger.cases.len(),
            completions: self.completions,
            crashes: self.crashes,
            refusals: promises.refused as u32,
            promises,
            digest,
            ..Report::default()
        })
    }
}
