//! Processes that are started again and again, by a site that crashes and whoever starts for it, who is late, repeats
//! and forgets.
//!
//! What must hold: each moment is started at most once, what was told of a start is true, and when nothing breaks any
//! more every schedule goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use legwork_model::event::{Fired, KeyEvent, Period, Record, ScheduleEvent};
use legwork_model::id::{InstanceId, ServerId, StreamId, StreamKind};
use legwork_model::time::Timestamp;
use legwork_site::{
    Answer, Credential, Data, Due, Key, PutSchedule, Recurring, Request, RequestId, ScheduleInfo,
    Start,
};

use crate::dice::Dice;
use crate::world::{Reply, World};
use crate::{Changes, Promises, Report};

const TURNS: u32 = 300;
/// How many turns everything has to come right in.
const CALM_TURNS: u32 = 40;
const TICK: &str = "process: tick\nsteps:\n  - { step: note, job: note }\n";
const NAMES: [&str; 3] = ["a", "b", "c"];

/// A schedule, and when it starts something. Two keys of one moment would be two cases.
type Moment = (Arc<str>, Timestamp);

/// Whoever starts what is due.
#[derive(Default)]
struct Starter {
    held: Vec<Due>,
    asked: BTreeMap<RequestId, Due>,
    /// What each key is for. Its stream is told apart by a number.
    keys: BTreeMap<String, (u128, Moment)>,
    /// Which case was told of which moment.
    told: BTreeMap<Moment, InstanceId>,
    drawn: u32,
}

pub(crate) fn simulate(seed: u64) -> Result<Report, String> {
    let mut dice = Dice::new(seed);
    let mut world = World::new(&mut dice);
    let mut starter = Starter::default();
    demand(world.ask_calmly(Request::Deploy { source: TICK.to_owned() })?)?;
    for name in NAMES {
        let ms = 1_000 + dice.below(20_000) as u64;
        demand(world.ask_calmly(Request::Schedule(Recurring::Put(schedule(name, ms))))?)?;
    }
    for _ in 0..TURNS {
        if dice.chance(3) {
            let name = dice.pick(&NAMES).copied().unwrap_or_default().into();
            let is_paused = dice.chance(50);
            world.ask(Request::Schedule(Recurring::Pause { name, is_paused }));
        }
        starter.act(&mut world, &mut dice);
        world.turn(&mut dice)?;
        starter.listen(&mut world, &mut dice)?;
    }
    world.calm();
    let mut before = BTreeMap::new();
    for name in NAMES {
        let resume = Recurring::Pause { name: name.into(), is_paused: false };
        demand(world.ask_calmly(Request::Schedule(resume))?)?;
        before.insert(name, shown(&mut world, name)?.last.map(|(moment, _)| moment));
    }
    let mut turns = 0;
    while NAMES.iter().any(|name| !goes_on(&mut world, name, before[name])) {
        starter.act(&mut world, &mut dice);
        world.turn(&mut dice)?;
        starter.listen(&mut world, &mut dice)?;
        turns += 1;
        if turns > CALM_TURNS {
            return Err(format!("a schedule has stopped: {before:?}, {}", world.describe()));
        }
    }
    let instances = starter.check(&world)?;
    Ok(Report {
        instances,
        completions: 0,
        crashes: world.crashes,
        refusals: 0,
        changes: Changes::default(),
        promises: Promises::default(),
        digest: world.digest()?,
    })
}

fn schedule(name: &str, ms: u64) -> PutSchedule {
    PutSchedule {
        name: name.into(),
        process: "tick".into(),
        period: Period::Every { ms },
        data: Data::new(),
        agent: None,
        within: None,
    }
}

fn shown(world: &mut World, name: &str) -> Result<ScheduleInfo, String> {
    let show = Request::Schedule(Recurring::Show { name: name.into() });
    let Answer::Schedule(info) = demand(world.ask_calmly(show)?)? else {
        return Err(format!("{name} is shown as something else"));
    };
    Ok(*info)
}

fn goes_on(world: &mut World, name: &str, before: Option<Timestamp>) -> bool {
    shown(world, name).is_ok_and(|info| info.last.map(|(moment, _)| moment) > before)
}

fn demand(reply: Reply) -> Result<Answer, String> {
    reply.map_err(|refusal| refusal.to_string())
}

impl Starter {
    /// Takes up what is due and starts some of it, twice at times; what it has forgotten is asked for again.
    fn act(&mut self, world: &mut World, dice: &mut Dice) {
        self.held.extend(world.take_due());
        for due in std::mem::take(&mut self.held) {
            match dice.below(100) {
                _ if world.is_calm() => self.start(world, due, dice),
                0..10 => {}
                10..40 => self.held.push(due),
                40..50 => {
                    self.start(world, due.clone(), dice);
                    self.start(world, due, dice);
                }
                50.. => self.start(world, due, dice),
            }
        }
    }

    fn start(&mut self, world: &mut World, due: Due, dice: &mut Dice) {
        let number = self.keys.len() as u128;
        let moment = (due.schedule.clone(), due.moment);
        let (number, _) = *self.keys.entry(due.key.clone()).or_insert((number, moment));
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
            deadline: None,
        });
        let id = world.ask_as(Credential::Schedule(due.schedule.clone()), start);
        self.asked.insert(id, due);
    }

    /// Tells the site what came of it, or nobody.
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
                    let outcome = Fired::Started { instance, promised: None };
                    Recurring::Fired(ScheduleEvent::Fired { name, moment, outcome })
                }
            };
            world.ask_as(Credential::Schedule(due.schedule), Request::Schedule(errand));
        }
        Ok(())
    }

    /// Every case belongs to one moment and every moment has one at most, and what was told is so. Answers how many
    /// there are.
    fn check(&self, world: &World) -> Result<usize, String> {
        let moments: BTreeMap<StreamId, &Moment> =
            self.keys.values().map(|(number, of)| (StreamId::of_key(*number), of)).collect();
        let (mut cases, mut named) = (BTreeSet::new(), BTreeMap::new());
        let mut started = BTreeMap::new();
        for (stream, records) in world.streams()? {
            match stream.kind() {
                StreamKind::Instance(id) => drop(cases.insert(id)),
                StreamKind::Key => {
                    let first = records.first().ok_or("a key says nothing")?;
                    let record =
                        Record::<KeyEvent>::from_bytes(first).map_err(|e| e.to_string())?;
                    for KeyEvent::Started { instance, .. } in record.events {
                        let moment = *moments.get(&stream).ok_or("a key of nobody's")?;
                        if named.insert(instance, moment).is_some() {
                            return Err(format!("{instance} is of two moments"));
                        }
                        if started.insert(moment, instance).is_some() {
                            return Err(format!("{moment:?} was started twice"));
                        }
                    }
                }
                StreamKind::Site | StreamKind::Plans | StreamKind::Mail | StreamKind::Schedules => {
                }
            }
        }
        let own: BTreeSet<InstanceId> = named.keys().copied().collect();
        if cases != own {
            return Err(format!("cases without a moment of their own: {cases:?} and {own:?}"));
        }
        for (moment, instance) in &self.told {
            if named.get(instance).copied() != Some(moment) {
                return Err(format!("{moment:?} was told to be {instance}, and is not"));
            }
        }
        Ok(cases.len())
    }
}
