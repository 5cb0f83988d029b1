//! Cases are begun with deadlines: near and far, more and less important, some to be started anyway, some only
//! asked for; several at a time at several servers, and some of those who ask hang up.

use std::collections::BTreeMap;

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_site::{Answer, Data, Request, RequestId, Start, Unpromised, Wish};
use serde_json::json;

use super::Office;
use crate::dice::Dice;

const STARTS_MAX: u32 = 18;

pub(super) struct Starts {
    asked: BTreeMap<(usize, RequestId), Asked>,
    drawn: u32,
    most: u32,
    pub(super) promised: usize,
    pub(super) refused: usize,
    pub(super) unpromised: usize,
    pub(super) asked_only: usize,
    /// A date that was told, which somebody takes up.
    next: Option<(usize, Timestamp)>,
}

#[derive(Clone, Copy)]
struct Asked {
    process: usize,
    ask_only: bool,
    /// When whoever asks hangs up, if they do.
    patient_until: Option<i64>,
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
            next: None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.asked.is_empty()
    }

    pub(super) fn start_some(&mut self, office: &mut Office, dice: &mut Dice) {
        let is_time = self.next.is_some() || dice.chance(2);
        if !self.is_idle() || !is_time {
            return;
        }
        let at_once = if dice.chance(40) { 2 + dice.below(3) } else { 1 };
        for _ in 0..at_once {
            self.start_one(office, dice);
        }
    }

    /// As many more; dates that were told before may have passed.
    pub(super) fn begin_again(&mut self) {
        (self.most, self.next) = (self.drawn + STARTS_MAX, None);
    }

    fn start_one(&mut self, office: &mut Office, dice: &mut Dice) {
        if self.drawn >= self.most {
            return;
        }
        let front = dice.below(office.worlds.len());
        let (process, at) = self.next.take().unwrap_or_else(|| {
            let process = dice.below(office.processes.len());
            let minutes = office.processes[process].0.minutes;
            let percent = 80 + dice.below(320) as i64;
            (process, Timestamp(office.now.0 + minutes * 60_000 * percent / 100))
        });
        let spread = dice.roll() as u32;
        let Some((instance, place)) = draw(office, self.drawn, front, spread) else { return };
        self.drawn += 1;
        office.last_deadline = office.last_deadline.max(at);
        let mut wish = Wish::new(at);
        if office.has_priorities {
            wish.priority = 1 + dice.below(9) as u8;
        }
        wish.ask_only = dice.chance(10);
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
        self.asked.insert((place, id), Asked { process, ask_only, patient_until });
        if !ask_only {
            // It may be started although the answer is lost.
            office.ledger.add(instance, place, process);
        }
    }

    /// Takes what was answered; whether something was promised.
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
                Ok(Answer::Deadline(_)) if asked.ask_only => self.asked_only += 1,
                Ok(other) => return Err(format!("a start is answered with {other:?}")),
                Err(refusal) if refusal.code == "deadline_not_promised" => {
                    self.refused += usize::from(!asked.ask_only);
                    if let Some(earliest) = refusal.earliest().filter(|_| dice.chance(70)) {
                        self.next = Some((asked.process, earliest));
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

/// An id for a start that comes in at a server, and the server that starts it.
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
