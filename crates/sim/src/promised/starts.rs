//! Cases with deadlines: near and far, with priorities, some to be started anyway, some only asked for; several at
//! a time at several servers, and some callers hang up.
//!
//! Invariant: without faults, an offered date is promised to a caller who accepts it within five minutes.

use std::collections::BTreeMap;

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_site::{Answer, Data, Request, RequestId, Start, Unpromised, Wish};
use serde_json::json;

use super::Office;
use crate::dice::Dice;
use crate::world::Reply;

const STARTS_MAX: u32 = 18;
/// How long an offer can be accepted, and how many there are.
const OFFERED: usize = 300_000;
const OFFERS_MAX: u32 = 10;

pub(super) struct Starts {
    asked: BTreeMap<(usize, RequestId), Asked>,
    drawn: u32,
    most: u32,
    pub(super) promised: usize,
    pub(super) refused: usize,
    pub(super) unpromised: usize,
    pub(super) asked_only: usize,
    pub(super) accepted: usize,
    /// An offered date to be accepted.
    next: Option<Offer>,
}

#[derive(Clone, Copy, Debug)]
struct Offer {
    process: usize,
    at: Timestamp,
    told: i64,
    /// When it is accepted.
    due: i64,
    /// The most offers made since.
    newer: u32,
    /// Nothing could come in between.
    is_certain: bool,
}

#[derive(Clone, Copy)]
struct Asked {
    process: usize,
    at: Timestamp,
    ask_only: bool,
    /// When the caller hangs up, if they do.
    patient_until: Option<i64>,
    /// Whether no other start asked for the same process meanwhile: all requests are from one caller, whose offers
    /// any other start gives up.
    is_alone: bool,
    offer: Option<Offer>,
}

impl Starts {
    pub(super) fn new() -> Self {
        Self {
            asked: BTreeMap::new(),
            drawn: 0,
            most: STARTS_MAX,
            promised: 0,
            refused: 0,
            unpromised: 0,
            asked_only: 0,
            accepted: 0,
            next: None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    pub(super) fn start_some(&mut self, office: &mut Office, dice: &mut Dice) {
        let is_due = self.next.is_some_and(|offer| offer.due <= office.now.0);
        let is_time = is_due || dice.chance(2);
        if !self.is_idle() || !is_time {
            return;
        }
        let at_once = if dice.chance(40) { 2 + dice.below(3) } else { 1 };
        for _ in 0..at_once {
            self.start_one(office, dice);
        }
    }

    /// As many more; offered dates may have passed.
    pub(super) fn begin_again(&mut self) {
        (self.most, self.next) = (self.drawn + STARTS_MAX, None);
    }

    fn start_one(&mut self, office: &mut Office, dice: &mut Dice) {
        if self.drawn >= self.most {
            return;
        }
        let front = dice.below(office.worlds.len());
        let offer = self.next.take_if(|offer| offer.due <= office.now.0);
        let process = offer.map_or_else(|| dice.below(office.processes.len()), |it| it.process);
        let minutes = office.processes[process].0.minutes;
        let at = match offer {
            // A later one is acceptable as well.
            Some(Offer { at, .. }) if dice.chance(70) => at.0,
            Some(Offer { at, .. }) => at.0 + dice.below(20 * 60_000) as i64,
            None => office.now.0 + minutes * 60_000 * (80 + dice.below(320) as i64) / 100,
        };
        let at = Timestamp(at);
        let spread = dice.roll() as u32;
        let Some((instance, place)) = draw(office, self.drawn, front, spread) else { return };
        self.drawn += 1;
        office.last_deadline = office.last_deadline.max(at);
        let mut wish = Wish::new(at);
        if office.has_priorities {
            wish.priority = 1 + dice.below(9) as u8;
        }
        wish.ask_only = dice.chance(10) && offer.is_none();
        wish.unpromised = if dice.chance(20) { Unpromised::Start } else { Unpromised::Refuse };
        let ask_only = wish.ask_only;
        let mut data = Data::new();
        data.insert("n".to_owned(), json!(dice.below(10)));
        let start = Start {
            instance,
            process: office.processes[process].0.name.clone(),
            version: None,
            data,
            agent: None,
            key: None,
            wait_until: None,
            deadline: Some(Box::new(wish)),
        };
        let id = office.worlds[place].ask(Request::Start(start));
        let patient_until = dice.chance(10).then(|| office.now.0 + dice.below(600) as i64);
        let is_alone = self.comes_between(process);
        let is_in_time = |it: &Offer| office.now.0 - it.told <= OFFERED as i64;
        let offer = offer.filter(is_in_time);
        let asked = Asked { process, at, ask_only, patient_until, is_alone, offer };
        self.asked.insert((place, id), asked);
        if !ask_only {
            // It may be started although the answer is lost.
            office.ledger.add(instance, place, process);
        }
    }

    /// A start asks for a process; returns whether no other does.
    fn comes_between(&mut self, process: usize) -> bool {
        if let Some(offer) = &mut self.next {
            offer.newer += 1;
            offer.is_certain &= offer.process != process && offer.newer < OFFERS_MAX;
        }
        let same = self.asked.values_mut().filter(|asked| asked.process == process);
        same.map(|asked| asked.is_alone = false).count() == 0
    }

    /// A date was offered for some time; mostly it is accepted, sometimes at once, sometimes late.
    fn told(&mut self, asked: &Asked, at: Timestamp, office: &Office, dice: &mut Dice) {
        let wait = if dice.chance(50) { dice.below(OFFERED) as i64 } else { 0 };
        if self.next.is_some() || !dice.chance(70) {
            return;
        }
        let Asked { process, is_alone, .. } = *asked;
        let (told, due) = (office.now.0, office.now.0 + wait);
        let is_firm = office.is_firm() || !office.is_for_machines(process);
        let is_certain = is_alone && is_firm && office.is_calm_now();
        self.next = Some(Offer { process, at, told, due, newer: 0, is_certain });
    }

    /// Handles answers; returns whether a case was promised.
    pub(super) fn listen(&mut self, office: &mut Office, dice: &mut Dice) -> Result<bool, String> {
        let mut is_promised = false;
        for key in self.asked.keys().copied().collect::<Vec<_>>() {
            let (place, id) = key;
            let Some(reply) = office.worlds[place].reply(id) else {
                let until = self.asked.get(&key).and_then(|asked| asked.patient_until);
                let hangs_up = until.is_some_and(|until| until <= office.now.0);
                if hangs_up && office.worlds[place].is_asked(id) {
                    office.worlds[place].hang_up(id);
                }
                if !office.worlds[place].is_asked(id) {
                    self.asked.remove(&key);
                }
                continue;
            };
            let Some(asked) = self.asked.remove(&key) else { continue };
            let is_kept = |reply: &Reply| {
                matches!(reply, Ok(Answer::Started { instance, .. })
                if instance.deadline.as_ref().is_some_and(|deadline| deadline.promised))
            };
            let is_certain = |it: &Offer| it.is_certain && asked.is_alone;
            if let Some(offer) = asked.offer.filter(is_certain) {
                if !is_kept(&reply) {
                    return Err(format!("{offer:?} is asked for in vain: {reply:?}"));
                }
                self.accepted += 1;
            }
            match reply {
                Ok(Answer::Started { instance, .. }) => {
                    let promised =
                        instance.deadline.as_ref().is_some_and(|deadline| deadline.promised);
                    is_promised |= promised;
                    let case = office.ledger.cases.get_mut(&instance.instance);
                    case.into_iter().for_each(|case| case.is_answered |= promised);
                    self.promised += usize::from(promised);
                    self.unpromised += usize::from(!promised);
                }
                Ok(Answer::Deadline(_)) if asked.ask_only => {
                    self.asked_only += 1;
                    self.told(&asked, asked.at, office, dice);
                }
                Ok(other) => return Err(format!("a start is answered with {other:?}")),
                Err(refusal) if refusal.code == "deadline_not_promised" => {
                    self.refused += usize::from(!asked.ask_only);
                    if let Some(earliest) = refusal.earliest() {
                        self.told(&asked, earliest, office, dice);
                    }
                }
                // It has no catalog yet.
                Err(refusal) if !office.is_calm_now() => drop(refusal),
                Err(refusal) => return Err(format!("a start is refused: {refusal}")),
            }
        }
        Ok(is_promised)
    }
}

/// An id for a start that is requested at a server, and the server that starts it.
pub(super) fn draw(
    office: &Office,
    number: u32,
    front: usize,
    spread: u32,
) -> Option<(InstanceId, usize)> {
    let world = &office.worlds[front];
    let (topology, here) = (world.topology()?, ServerId(front as u16));
    let id = |server| InstanceId::new(office.now.0 as u64, number, spread, server);
    let server = topology.starter(here, id(here))?;
    Some((id(server), usize::from(server.0)))
}
