//! Parcels that come from other servers.
//!
//! Invariant: a parcel takes effect in one record, once, in the order of its number. Of one
//! instance one sender at a time is asked for what is lacking here; the others wait their turn, so
//! that nothing is delivered by two.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use legwork_engine::{self as engine, Command};
use legwork_model::event::{Entry, Parcel, Received};
use legwork_model::id::{Activity, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_placement::{knows, last_activities};

use crate::Site;
use crate::cases::step::guarded;
use crate::message::{Instance, Message, Offer, ParcelId};
use crate::output::Output;

/// For how long the others wait for a sender that was asked.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most messages that wait for one instance to be loaded, and the most instances that are
/// loaded because of messages. What is beyond counts as lost on the way: it is said again.
const HEARD_MAX: usize = 32;
const HEARD_INSTANCES_MAX: usize = 8_192;

/// Who was asked for a part of an instance, and who waits to be asked.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    asked: BTreeMap<InstanceId, Asked>,
    due: BTreeSet<(Timestamp, InstanceId)>,
}

#[derive(Debug)]
struct Asked {
    from: ServerId,
    number: u32,
    until: Timestamp,
    waiting: VecDeque<(ServerId, Box<Offer>)>,
}

impl Arrivals {
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    fn begin(&mut self, id: InstanceId, asked: Asked) {
        self.due.insert((asked.until, id));
        self.asked.insert(id, asked);
    }

    /// The instance is over.
    pub(crate) fn forget(&mut self, id: InstanceId) {
        self.end(id);
    }

    fn end(&mut self, id: InstanceId) -> Option<Asked> {
        let asked = self.asked.remove(&id)?;
        self.due.remove(&(asked.until, id));
        Some(asked)
    }
}

impl Site {
    /// Another server says something about an instance.
    pub(crate) fn hear(&mut self, from: ServerId, message: Message, now: Timestamp) {
        self.clock.latest = now;
        let Some(message) = self.hear_catalog(from, message, now) else { return };
        let Instance(id) = match &message {
            Message::Offer(offer) => offer.id.instance,
            Message::Known { parcel, .. } | Message::Taken { parcel } => parcel.instance,
            Message::Want { instance, .. }
            | Message::Have { instance, .. }
            | Message::Replanned { instance, .. } => *instance,
            Message::Follow(_) | Message::Items(_) => return self.act_on(from, message, now),
            Message::Report(_)
            | Message::Moved { .. }
            | Message::KeyWanted(_)
            | Message::KeyUsed { .. }
            | Message::Over { .. }
            | Message::Load { .. }
            | Message::Reserve(_)
            | Message::Step { .. }
            | Message::StepHeard { .. }
            | Message::PlanHeard { .. } => return self.act_on(from, message, now),
            Message::CatalogWanted { .. } | Message::Catalog { .. } => return,
        };
        if self.cases.instances.broken(id).is_some() {
            return;
        }
        if self.cases.instances.state(id).is_some() {
            return self.listen(from, id, message, now);
        }
        if self.cases.heard.len() >= HEARD_INSTANCES_MAX && !self.cases.heard.contains_key(&id) {
            return;
        }
        let heard = self.cases.heard.entry(id).or_default();
        if heard.len() < HEARD_MAX {
            heard.push((from, message));
        }
        self.ask_for(id.into(), false);
    }

    /// Acts on a message about an instance that is in memory, if there is one at all.
    pub(crate) fn listen(
        &mut self,
        from: ServerId,
        id: InstanceId,
        message: Message,
        now: Timestamp,
    ) {
        if self.fits(from, id, &message) {
            self.act_on(from, message, now);
        }
    }

    fn act_on(&mut self, from: ServerId, message: Message, now: Timestamp) {
        match message {
            Message::Offer(offer) => self.offered(from, offer, now),
            Message::Known { parcel, last } => self.known(from, parcel, last, now),
            Message::Taken { parcel } => self.taken(from, parcel, now),
            Message::Want { instance, values } => self.wanted(from, instance, &values),
            Message::Have { instance, values } => self.have(instance, values, now),
            Message::Follow(follow) => self.followed(from, follow, now),
            Message::Items(items) => self.items_told(from, *items, now),
            // About no instance.
            Message::Report(_) | Message::Moved { .. } => self.hear_report(from, &message, now),
            Message::KeyWanted(question) => self.key_wanted(from, question, now),
            Message::KeyUsed { question, is_used } => self.key_used(from, question, is_used, now),
            Message::Over { ids } => self.told_over(from, ids, now),
            Message::Load { written } => self.load_told(from, written, now),
            Message::Reserve(what) => self.hear_reserving(from, *what, now),
            step @ Message::Step { .. } => self.step_told_by(from, step, now),
            Message::StepHeard { task, number } => self.step_heard(from, task, number),
            Message::Replanned { instance: Instance(id), replanned, number } => {
                self.plan_told(from, id, (*replanned, number), now);
            }
            Message::PlanHeard { instance: Instance(id), number } => {
                self.plan_heard(from, id, number);
            }
            Message::CatalogWanted { .. } | Message::Catalog { .. } => {}
        }
    }

    fn offered(&mut self, from: ServerId, mut offer: Box<Offer>, now: Timestamp) {
        let ParcelId { instance: Instance(id), number } = offer.id;
        let (received, ended) = match self.cases.instances.state(id) {
            Some((schema, state)) => {
                (state.peer(from).map_or(0, |peer| peer.received), state.is_over(schema))
            }
            None => (0, false),
        };
        if number <= received || ended {
            // Taken before, or of no more use: the sender need not say it again.
            self.say_taken(from, offer.id);
            return self.ask_next(id, from, number, now);
        }
        if self.cases.instances.state(id).is_none() {
            // New here: this server must be the one that it belongs to, and know that it is.
            if self.is_locked() {
                return self.hold_offer(from, offer, now);
            }
            if !self.belongs_here(id) {
                return self.bring_newer(from);
            }
            // It may be over at the one that it belonged to before.
            match self.unless_had_earlier(from, offer, now) {
                Some(may_begin) => offer = may_begin,
                None => return,
            }
        }
        if number > received + 1 {
            return;
        }
        match offer.entries.take() {
            None => self.ask(from, offer, now),
            Some(entries) => self.take(from, *offer, entries, now),
        }
    }

    /// Says what is known here, or puts the sender in line.
    fn ask(&mut self, from: ServerId, offer: Box<Offer>, now: Timestamp) {
        let ParcelId { instance: Instance(id), number } = offer.id;
        if let Some(asked) = self.migration.arrivals.asked.get_mut(&id)
            && (asked.from, asked.number) != (from, number)
            && asked.until > now
        {
            asked.waiting.retain(|(sender, _)| *sender != from);
            return asked.waiting.push_back((from, offer));
        }
        let Some(last) = self.last_known(id, &offer) else { return };
        let waiting =
            self.migration.arrivals.end(id).map(|asked| asked.waiting).unwrap_or_default();
        let until = now.plus(PATIENCE);
        self.migration.arrivals.begin(id, Asked { from, number, until, waiting });
        self.out
            .push(Output::Send { to: from, message: Message::Known { parcel: offer.id, last } });
    }

    /// Algorithm 1. `None` if the definition is not known here yet.
    fn last_known(&self, id: InstanceId, offer: &Offer) -> Option<Vec<Activity>> {
        let seat = self.cluster.seat.as_ref()?;
        self.schema_of(&offer.process, offer.version).ok()?;
        let Some((schema, state)) = self.cases.instances.state(id) else { return Some(Vec::new()) };
        let sources: Vec<Activity> = match &offer.parcel {
            Parcel::Control { passages, .. } => {
                passages.iter().map(|passage| passage.source.clone()).collect()
            }
            Parcel::Order(_) | Parcel::Finished { .. } => vec![Activity::once(schema.end())],
        };
        let known = seat.at(id).knowing(state);
        Some(last_activities(schema, &known, &sources))
    }

    /// Stores a parcel with what was not known here of the history.
    fn take(&mut self, from: ServerId, offer: Offer, entries: Vec<Entry>, now: Timestamp) {
        let ParcelId { instance: Instance(id), number } = offer.id;
        let Some(seat) = self.cluster.seat.clone() else { return };
        let Ok(schema) = self.schema_of(&offer.process, offer.version) else { return };
        let state = self.cases.instances.state(id).map(|(_, state)| state);
        let is_new = |entry: &Entry| {
            let activity = entry.event.ends();
            match (state, activity) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(state), Some(activity)) => {
                    !knows(&schema, &seat.at(id).knowing(state), &activity)
                }
            }
        };
        let entries: Vec<Entry> = entries.into_iter().filter(is_new).collect();
        if offer.is_part && entries.is_empty() {
            // Come before: what is known since then need not come again.
            return self.ask(from, Box::new(offer), now);
        }
        let (recorded, parcel) = match offer.is_part {
            true => (number.saturating_sub(1), offer.parcel.part()),
            false => (number, offer.parcel.clone()),
        };
        let received = Box::new(Received { from, number: recorded, parcel, entries });
        let stored = match state {
            Some(_) => self.command(id, Command::Receive(received), now),
            None => {
                let first =
                    guarded(|| engine::receive_first(&self.standing(id), &schema, received, now));
                self.case_begins(id);
                self.begin_with(id, &schema, first, now)
            }
        };
        // Refused: there is no room, or it is broken. The sender tries again.
        match stored {
            Ok(()) if offer.is_part => return self.ask(from, Box::new(offer), now),
            Ok(()) => self.say_taken(from, offer.id),
            Err(_) => {}
        }
        self.ask_next(id, from, number, now);
    }

    /// Whoever waited while another sender was asked gets their turn.
    fn ask_next(&mut self, id: InstanceId, from: ServerId, number: u32, now: Timestamp) {
        let is_answer =
            |asked: &Asked| asked.from == from && asked.number == number || asked.until <= now;
        if self.migration.arrivals.asked.get(&id).is_some_and(is_answer) {
            self.give_turn(id, now);
        }
    }

    /// Those who were asked and have not answered are not waited for any longer.
    pub(crate) fn give_turns(&mut self, now: Timestamp) {
        while let Some((_, id)) =
            self.migration.arrivals.due.first().copied().filter(|(due, _)| *due <= now)
        {
            self.give_turn(id, now);
        }
    }

    fn give_turn(&mut self, id: InstanceId, now: Timestamp) {
        let Some(mut asked) = self.migration.arrivals.end(id) else { return };
        let Some((from, offer)) = asked.waiting.pop_front() else { return };
        if !asked.waiting.is_empty() {
            // Whoever comes next takes the others over.
            self.migration.arrivals.begin(id, Asked { until: now, ..asked });
        }
        self.hear(from, Message::Offer(offer), now);
    }

    pub(crate) fn say_taken(&mut self, to: ServerId, parcel: ParcelId) {
        self.out.push(Output::Send { to, message: Message::Taken { parcel } });
    }
}
