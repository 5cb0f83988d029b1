//! Periodic starts, by a site that crashes and a starter that is late, repeats and forgets; schedules are paused,
//! changed and removed.
//!
//! Invariants checked: each moment is started at most once, and with the data of its schedule; reported outcomes
//! are true; and in calm conditions every moment of every schedule is started.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use legwork_model::event::{Event, Fired, KeyEvent, Period, Record, ScheduleEvent, Within};
use legwork_model::id::{InstanceId, ServerId, StreamId, StreamKind};
use legwork_model::time::Timestamp;
use legwork_site::{
    Answer, Credential, Data, Due, Key, PutSchedule, Recurring, Request, RequestId, ScheduleInfo,
    Start, Unpromised, Wish,
};
use serde_json::json;

use crate::dice::Dice;
use crate::world::{Reply, World};
use crate::{Changes, Promises, Report};

const TURNS: u32 = 300;
/// How long a lost or delayed start can delay later ones in calm conditions.
const SETTLES_MS: i64 = 90_000;
/// How long every moment is checked then: two of each schedule at least.
const LOOKED_AT_MS: i64 = 250_000;
/// The most turns in a row with work without time passing.
const CYCLES_MAX: u32 = 100;
const PEOPLE: &str = "organisation: simulated\nagents:\n  ann: { roles: [clerk] }\n";
const TICK: &str = "process: tick\ndata: { n: int }\nstart: [n]\nsteps:
  - { step: note, job: note, reads: [n] }\n";
const TOCK: &str = "process: tock\ndata: { n: int }\nstart: [n]\nsteps:
  - { step: look, who: Role(clerk), reads: [n], takes: 1m }\n";
const PROCESSES: [&str; 2] = ["tick", "tock"];
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Each with its period in minutes. In local time of these zones it is the same.
const CRONS: [(&str, i64); 2] = [("* * * * *", 1), ("*/2 * * * *", 2)];
const ZONES: [&str; 3] = ["UTC", "Europe/Berlin", "Asia/Kolkata"];

/// A schedule and a moment of it. Two keys of one moment would be two cases.
type Moment = (Arc<str>, Timestamp);

/// The starter of due moments.
#[derive(Default)]
struct Starter {
    held: Vec<Due>,
    asked: BTreeMap<RequestId, Due>,
    /// The request of each key. Its stream is identified by a number.
    keys: BTreeMap<String, (u128, Due)>,
    /// The reported case of each moment.
    told: BTreeMap<Moment, InstanceId>,
    drawn: u32,
    promised: usize,
}

pub(crate) fn simulate(seed: u64) -> Result<Report, String> {
    let mut dice = Dice::new(seed);
    let mut world = World::new(&mut dice);
    let mut starter = Starter::default();
    demand(world.ask_calmly(Request::PublishOrganisation { source: PEOPLE.to_owned() })?)?;
    for source in [TICK, TOCK] {
        demand(world.ask_calmly(Request::Deploy { source: source.to_owned() })?)?;
    }
    for name in NAMES {
        let put = Recurring::Put(schedule(name, &mut dice));
        demand(world.ask_calmly(Request::Schedule(put))?)?;
    }
    for _ in 0..TURNS {
        if let Some(errand) = change(&mut dice) {
            world.ask(Request::Schedule(errand));
        }
        starter.act(&mut world, &mut dice)?;
        world.turn(&mut dice)?;
        starter.listen(&mut world, &mut dice)?;
    }
    world.calm();
    for name in NAMES {
        if shown(&mut world, name).is_err() {
            let put = Recurring::Put(schedule(name, &mut dice));
            demand(world.ask_calmly(Request::Schedule(put))?)?;
        }
        let resume = Recurring::Pause { name: name.into(), is_paused: false };
        demand(world.ask_calmly(Request::Schedule(resume))?)?;
    }
    let from = Timestamp(world.now().0 + SETTLES_MS);
    while world.now().0 < from.0 + LOOKED_AT_MS {
        starter.settle(&mut world, &mut dice)?;
        world.turn(&mut dice)?;
    }
    let until = world.now();
    starter.settle(&mut world, &mut dice)?;
    let started = starter.check(&world)?;
    for name in NAMES {
        let info = shown(&mut world, name)?;
        every_moment_is_started(&info, (from, until), &started)
            .map_err(|why| format!("{why}: {info:?}, {}", world.describe()))?;
    }
    Ok(Report {
        instances: started.len(),
        completions: 0,
        crashes: world.crashes,
        refusals: 0,
        changes: Changes::default(),
        promises: Promises { promised: starter.promised, ..Promises::default() },
        digest: world.digest()?,
    })
}

/// A random request about a schedule, if any. The schedule may not exist.
fn change(dice: &mut Dice) -> Option<Recurring> {
    let name = dice.pick(&NAMES).copied().unwrap_or_default();
    match dice.below(100) {
        0..3 => Some(Recurring::Pause { name: name.into(), is_paused: dice.chance(50) }),
        3..6 => Some(Recurring::Put(schedule(name, dice))),
        6 => Some(Recurring::Remove { name: name.into() }),
        7.. => None,
    }
}

fn schedule(name: &str, dice: &mut Dice) -> PutSchedule {
    let (cron, _) = dice.pick(&CRONS).copied().unwrap_or_default();
    let zone = dice.pick(&ZONES).copied().unwrap_or_default();
    let period = match dice.chance(30) {
        true => Period::Cron { text: cron.into(), zone: zone.into() },
        false => Period::Every { ms: 1_000 + dice.below(20_000) as u64 },
    };
    let within = Within { ms: 1_000 + dice.below(200_000) as u64, priority: dice.below(10) as u8 };
    PutSchedule {
        name: name.into(),
        process: dice.pick(&PROCESSES).copied().unwrap_or_default().into(),
        period,
        data: Data::from_iter([("n".to_owned(), json!(dice.below(3)))]),
        agent: None,
        within: dice.chance(50).then_some(within),
    }
}

fn shown(world: &mut World, name: &str) -> Result<ScheduleInfo, String> {
    let show = Request::Schedule(Recurring::Show { name: name.into() });
    let Answer::Schedule(info) = demand(world.ask_calmly(show)?)? else {
        return Err(format!("{name} is shown as something else"));
    };
    Ok(*info)
}

/// No moment was left out between two, the first of which is not checked; and the last is reported.
fn every_moment_is_started(
    info: &ScheduleInfo,
    (from, until): (Timestamp, Timestamp),
    started: &BTreeMap<Moment, InstanceId>,
) -> Result<(), String> {
    let (origin, apart) = match &info.period {
        Period::Every { ms } => (info.put_at.0 / 1_000 * 1_000, *ms as i64),
        Period::Cron { text, .. } => {
            let known = CRONS.iter().find(|(cron, _)| **cron == **text);
            (0, known.map_or(1, |(_, minutes)| *minutes) * 60_000)
        }
    };
    let first = (from.0 - origin) / apart + 1;
    let moments = (first..).map(|place| Timestamp(origin + place * apart));
    let moments: Vec<Timestamp> = moments.take_while(|moment| *moment <= until).collect();
    if moments.len() < 2 {
        return Err(format!("there are {} moments from {from} to {until}", moments.len()));
    }
    let of = |moment: Timestamp| started.get(&(info.name.clone(), moment));
    if let Some(missing) = moments.iter().find(|moment| of(**moment).is_none()) {
        return Err(format!("{missing} was not started"));
    }
    let last = moments.last().and_then(|moment| Some((*moment, *of(*moment)?)));
    let told = match &info.last {
        Some((moment, Fired::Started { instance, .. })) => Some((*moment, *instance)),
        Some((_, Fired::Refused { .. } | Fired::Missed { .. })) | None => None,
    };
    // It may be checked a little later.
    match told == last || told.map(|(moment, _)| moment) > last.map(|(moment, _)| moment) {
        true => Ok(()),
        false => Err(format!("the last was {last:?}, and {told:?} is told")),
    }
}

fn demand(reply: Reply) -> Result<Answer, String> {
    reply.map_err(|refusal| refusal.to_string())
}

impl Starter {
    /// Takes due moments and starts some of them, sometimes twice; lost ones are requested again.
    fn act(&mut self, world: &mut World, dice: &mut Dice) -> Result<(), String> {
        self.held.extend(world.take_due());
        for due in std::mem::take(&mut self.held) {
            match dice.below(100) {
                _ if world.is_calm() => self.start(world, due, dice)?,
                0..10 => {}
                10..40 => self.held.push(due),
                40..50 => {
                    self.start(world, due.clone(), dice)?;
                    self.start(world, due, dice)?;
                }
                50.. => self.start(world, due, dice)?,
            }
        }
        Ok(())
    }

    /// Runs until there is no work at this moment.
    fn settle(&mut self, world: &mut World, dice: &mut Dice) -> Result<(), String> {
        for _ in 0..CYCLES_MAX {
            world.cycle(dice)?;
            self.listen(world, dice)?;
            self.act(world, dice)?;
            if !world.is_busy() {
                return Ok(());
            }
        }
        Err(format!("it does not come to rest: {}", world.describe()))
    }

    fn start(&mut self, world: &mut World, due: Due, dice: &mut Dice) -> Result<(), String> {
        let number = self.keys.len() as u128;
        let known = self.keys.entry(due.key.clone()).or_insert_with(|| (number, due.clone()));
        let (number, before) = (known.0, &known.1);
        if (&before.process, &before.data, before.deadline)
            != (&due.process, &due.data, due.deadline)
        {
            return Err(format!("under one key there are {before:?} and {due:?}"));
        }
        let wish = due.deadline.map(|(at, priority)| {
            let mut wish = Wish::new(at);
            (wish.priority, wish.unpromised) = (priority, Unpromised::Start);
            Box::new(wish)
        });
        self.drawn += 1;
        let spread = dice.roll() as u32;
        let created_ms = world.now().0.unsigned_abs();
        let start = Request::Start(Start {
            instance: InstanceId::new(created_ms, self.drawn, spread, ServerId(0)),
            process: due.process.clone(),
            version: None,
            data: due.data.clone(),
            agent: None,
            key: Some(Box::new(Key { stream: StreamId::of_key(number), request: 1 })),
            wait_until: None,
            deadline: wish,
        });
        let id = world.ask_as(Credential::Schedule(due.schedule.clone()), start);
        self.asked.insert(id, due);
        Ok(())
    }

    /// Reports the outcome to the site, or loses it.
    fn listen(&mut self, world: &mut World, dice: &mut Dice) -> Result<(), String> {
        for lost in world.take_lost() {
            self.asked.remove(&lost);
        }
        let ids: Vec<RequestId> = self.asked.keys().copied().collect();
        for id in ids {
            let Some(reply) = world.reply(id) else { continue };
            let Some(due) = self.asked.remove(&id) else { continue };
            let Answer::Started { instance, .. } = demand(reply)? else {
                return Err(format!("{} is answered strangely", due.key));
            };
            let promised = instance.deadline.as_ref().map(|deadline| deadline.promised);
            if promised.is_some() != due.deadline.is_some() {
                return Err(format!("{due:?} was started with {:?}", instance.deadline));
            }
            self.promised += usize::from(promised == Some(true));
            let instance = instance.instance;
            let before = self.told.insert((due.schedule.clone(), due.moment), instance);
            if before.is_some_and(|before| before != instance) {
                return Err(format!("{} is {instance}, and was {before:?}", due.key));
            }
            let (name, moment) = (due.schedule.clone(), due.moment);
            let errand = match dice.below(100) {
                0..10 if !world.is_calm() => continue,
                10..20 if !world.is_calm() => {
                    let reason = "the dice".to_owned();
                    Recurring::PutOff { name, moment, reason }
                }
                _ => {
                    let outcome = Fired::Started { instance, promised };
                    Recurring::Fired(ScheduleEvent::Fired { name, moment, outcome })
                }
            };
            world.ask_as(Credential::Schedule(due.schedule), Request::Schedule(errand));
        }
        Ok(())
    }

    /// Every case belongs to one moment, was started with its data, and every moment has one case at most; and
    /// reports are true. Returns the cases.
    fn check(&self, world: &World) -> Result<BTreeMap<Moment, InstanceId>, String> {
        let wanted: BTreeMap<StreamId, &Due> =
            self.keys.values().map(|(number, of)| (StreamId::of_key(*number), of)).collect();
        let (mut cases, mut named) = (BTreeMap::new(), BTreeMap::new());
        for (stream, records) in world.streams()? {
            match stream.kind() {
                StreamKind::Instance(id) => drop(cases.insert(id, deadline_of(&records)?)),
                StreamKind::Key => {
                    let first = records.first().ok_or("a key says nothing")?;
                    let record =
                        Record::<KeyEvent>::from_bytes(first).map_err(|e| e.to_string())?;
                    for KeyEvent::Started { instance, .. } in record.events {
                        let due = *wanted.get(&stream).ok_or("a key of nobody's")?;
                        if named.insert(instance, due).is_some() {
                            return Err(format!("{instance} is of two moments"));
                        }
                    }
                }
                StreamKind::Site
                | StreamKind::Plans
                | StreamKind::Mail
                | StreamKind::Schedules
                | StreamKind::Executors => {}
            }
        }
        let own: BTreeSet<InstanceId> = named.keys().copied().collect();
        let all: BTreeSet<InstanceId> = cases.keys().copied().collect();
        if all != own {
            return Err(format!("cases without a moment of their own: {all:?} and {own:?}"));
        }
        let mut started = BTreeMap::new();
        for (instance, due) in named {
            let moment = (due.schedule.clone(), due.moment);
            if cases[&instance] != due.deadline.map(|(at, _)| at) {
                return Err(format!("{instance} is due at {:?}: {due:?}", cases[&instance]));
            }
            if let Some(other) = started.insert(moment, instance) {
                return Err(format!("{instance} and {other} are of one moment: {due:?}"));
            }
        }
        for (moment, instance) in &self.told {
            if started.get(moment) != Some(instance) {
                return Err(format!("{moment:?} was told to be {instance}, and is not"));
            }
        }
        Ok(started)
    }
}

/// The deadline of a case.
fn deadline_of(records: &[Vec<u8>]) -> Result<Option<Timestamp>, String> {
    let first = records.first().ok_or("a case says nothing")?;
    let record = Record::<Event>::from_bytes(first).map_err(|error| error.to_string())?;
    let Some(Event::Created(created)) = record.events.first() else {
        return Err("a case does not begin with its creation".to_owned());
    };
    Ok(created.deadline.as_ref().map(|deadline| deadline.at))
}
