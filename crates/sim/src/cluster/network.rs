//! The network between sites: slow, lossy, duplicating, and sometimes partitioned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use legwork_model::event::Event;
use legwork_model::id::{Activity, ElementId, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_site::{Instance, Message, Wanted, message};

use crate::dice::Dice;
use crate::world::World;

/// A message in transit.
#[derive(Clone)]
pub(crate) struct Envelope {
    pub(crate) from: ServerId,
    pub(crate) to: ServerId,
    pub(crate) message: Message,
    /// The epoch of the sender's topology: it determines the host of the receiver.
    pub(crate) epoch: u32,
}

#[derive(Default)]
pub(crate) struct Network {
    /// By the moment of arrival and a number that orders equal ones.
    under_way: BTreeMap<(Timestamp, u64), Envelope>,
    sent: u64,
    /// The sites by their places.
    names: Vec<Arc<str>>,
    /// Links that are down, lower number first.
    cut: BTreeSet<(ServerId, ServerId)>,
    /// Noticed changes of links: whether they are up.
    noticed: Vec<((ServerId, ServerId), bool)>,
    healed: bool,
    prompt: bool,
    /// The arrival of the last message of each link.
    last: BTreeMap<(ServerId, ServerId), Timestamp>,
    /// The transfers that brought each entry to a server.
    brought: BTreeMap<(ServerId, InstanceId, Activity), BTreeSet<(ServerId, u32)>>,
    /// How the value of each version arrived at a server.
    values: BTreeMap<(ServerId, InstanceId, Wanted), Carried>,
}

/// How the value of a version arrived at a server.
#[derive(Debug, Default)]
struct Carried {
    along: bool,
    wanted: u32,
    had: u32,
}

impl Network {
    /// Adds a site.
    pub(crate) fn enter(&mut self, name: Arc<str>) {
        self.names.push(name);
    }

    /// The name of the site of a server.
    pub(crate) fn name(&self, ServerId(place): ServerId) -> Arc<str> {
        self.names.get(usize::from(place)).cloned().unwrap_or_default()
    }

    /// Takes links down and up.
    pub(crate) fn turn(&mut self, dice: &mut Dice, size: usize, calm: bool) {
        if calm {
            return;
        }
        if dice.chance(5) {
            let (a, b) = (dice.below(size) as u16, dice.below(size) as u16);
            let link = (ServerId(a.min(b)), ServerId(a.max(b)));
            // Not every failure is noticed, but every repair is.
            if a != b && self.cut.insert(link) && dice.chance(60) {
                self.noticed.push((link, false));
            }
        }
        if dice.chance(10) {
            self.mend();
        }
    }

    /// From now on nothing is late, and messages arrive in order, as on an unbroken connection.
    pub(crate) fn be_prompt(&mut self) {
        self.prompt = true;
        self.heal();
    }

    pub(crate) fn heal(&mut self) {
        self.healed = true;
        self.mend();
    }

    /// Takes all links of a server down.
    pub(crate) fn cut_off(&mut self, alone: ServerId, others: impl Iterator<Item = ServerId>) {
        for other in others {
            let link = (alone.min(other), alone.max(other));
            if self.cut.insert(link) {
                self.noticed.push((link, false));
            }
        }
    }

    /// A process has started: messages to its predecessor were on connections that ended with it.
    pub(crate) fn lose_what_goes_to(&mut self, server: ServerId) {
        self.under_way.retain(|_, envelope| envelope.to != server);
    }

    pub(crate) fn mend(&mut self) {
        let mended = std::mem::take(&mut self.cut);
        self.noticed.extend(mended.into_iter().map(|link| (link, true)));
    }

    /// Noticed changes of links.
    pub(crate) fn noticed(&mut self) -> Vec<(ServerId, ServerId, bool)> {
        let both = |((a, b), is_up)| [(a, b, is_up), (b, a, is_up)];
        std::mem::take(&mut self.noticed).into_iter().flat_map(both).collect()
    }

    /// Sends the messages of the site at a place.
    pub(crate) fn send_all(
        &mut self,
        place: usize,
        world: &mut World,
        now: Timestamp,
        dice: &mut Dice,
    ) {
        let (from, epoch) = (ServerId(place as u16), world.epoch());
        for (to, message) in world.take_said() {
            let Some(to) = self.names.iter().position(|name| *name == to) else { continue };
            let to = ServerId(to as u16);
            self.send(Envelope { from, to, message, epoch }, now, dice);
        }
    }

    fn send(&mut self, envelope: Envelope, now: Timestamp, dice: &mut Dice) {
        let (from, to) = (envelope.from, envelope.to);
        self.note(from, to, &envelope.message);
        if self.is_cut(from, to) {
            return;
        }
        let copies = match dice.below(100) {
            _ if self.healed => 1,
            0..8 => 0,
            8..14 => 2,
            14.. => 1,
        };
        for _ in 0..copies {
            let is_late = dice.chance(5) && !self.prompt;
            let delay = if is_late { dice.below(5_000) } else { dice.below(200) };
            self.sent += 1;
            let mut at = Timestamp(now.0 + 1 + delay as i64);
            if self.prompt {
                let last = self.last.entry((from, to)).or_insert(at);
                at = at.max(*last);
                *last = at;
            }
            self.under_way.insert((at, self.sent), envelope.clone());
        }
    }

    pub(crate) fn is_cut(&self, a: ServerId, b: ServerId) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.healed
    }

    pub(crate) fn arrived(&mut self, now: Timestamp) -> Vec<Envelope> {
        let later = self.under_way.split_off(&(Timestamp(now.0 + 1), 0));
        std::mem::replace(&mut self.under_way, later).into_values().collect()
    }

    /// Whether messages about instances are in transit, other than about visibility. There are always catalog
    /// messages.
    pub(crate) fn carries_control(&self) -> bool {
        let is_control = |message: &Message| matches!(message, Message::Migration(_));
        self.under_way.values().any(|envelope| is_control(&envelope.message))
    }

    pub(crate) fn next_arrival(&self) -> Option<Timestamp> {
        self.under_way.keys().next().map(|(at, _)| *at)
    }

    /// An entry may be resent, but only with the same transfer as before; a value that is fetched, when it is
    /// requested again.
    fn note(&mut self, from: ServerId, to: ServerId, message: &Message) {
        if let Message::Migration(message::Migration::Offer(offer)) = message {
            let Instance(instance) = offer.id.instance;
            for entry in offer.entries.iter().flatten() {
                let Some(activity) = entry.event.ends() else { continue };
                for element in written(&entry.event) {
                    let version = Wanted { element, writer: activity.clone() };
                    self.values.entry((to, instance, version)).or_default().along = true;
                }
                let parcels = self.brought.entry((to, instance, activity)).or_default();
                parcels.insert((from, offer.id.number));
            }
        } else if let Message::Migration(message::Migration::Want {
            instance: Instance(instance),
            values,
        }) = message
        {
            for version in values {
                let key = (from, *instance, version.clone());
                self.values.entry(key).or_default().wanted += 1;
            }
        } else if let Message::Migration(message::Migration::Have {
            instance: Instance(instance),
            values,
        }) = message
        {
            for value in values {
                let version = Wanted { element: value.element, writer: value.writer.clone() };
                self.values.entry((to, *instance, version)).or_default().had += 1;
            }
        }
    }

    /// Whether each entry has gone to each server with one transfer only, and each value either with its
    /// entry or by request, not both.
    pub(crate) fn nothing_twice(&self) -> Result<(), String> {
        let twice =
            |carried: &Carried| carried.along && carried.wanted > 0 || carried.had > carried.wanted;
        if let Some((version, how)) = self.values.iter().find(|(_, carried)| twice(carried)) {
            return Err(format!("a value went twice: {version:?}, {how:?}"));
        }
        match self.brought.iter().find(|(_, parcels)| parcels.len() > 1) {
            None => Ok(()),
            Some(((to, instance, activity), parcels)) => {
                Err(format!("{activity:?} of {instance} went to {to:?} twice: {parcels:?}"))
            }
        }
    }

    pub(crate) fn describe(&self) -> String {
        format!("{} messages under way", self.under_way.len())
    }
}

/// The elements whose values are transferred with an entry.
fn written(event: &Event) -> Vec<ElementId> {
    let writes = if let Event::Created(created) = event {
        &created.inputs[..]
    } else if let Event::Completed(done) = event {
        &done.writes[..]
    } else {
        &[]
    };
    writes.iter().map(|(element, _)| *element).collect()
}
