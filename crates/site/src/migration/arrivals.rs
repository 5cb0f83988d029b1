//! Transfers that arrive from other servers.
//!
//! Invariant: a transfer takes effect once, in one record, in the order of the numbers. For each instance one sender at
//! a time is asked for the missing history; other senders queue, so that no two senders deliver the same entries.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use legwork_engine::{self as engine, Command};
use legwork_model::event::{Entry, Parcel, Received};
use legwork_model::id::{Activity, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_placement::{knows, last_activities};

use crate::Site;
use crate::cases::step::guarded;
use crate::message::{self, Instance, Message, Offer, ParcelId};
use crate::output::Output;

/// How long other senders wait for the answer of the one that was asked.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// For each instance: the sender asked for history, and the senders that wait.
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
    pub(crate) fn on_offer(&mut self, from: ServerId, mut offer: Box<Offer>, now: Timestamp) {
        let ParcelId { instance: Instance(id), number } = offer.id;
        let (received, ended) = match self.cases.instances.state(id) {
            Some((schema, state)) => {
                (state.peer(from).map_or(0, |peer| peer.received), state.is_over(schema))
            }
            None => (0, false),
        };
        if number <= received || ended {
            // Stored before, or no longer needed: the sender need not resend.
            self.acknowledge(from, offer.id);
            return self.serve_queue(id, from, number, now);
        }
        if self.cases.instances.state(id).is_none() {
            // New here: the instance must belong to this server, by a topology that is known here.
            if self.is_locked() {
                return self.catalog.hold_offer(from, offer, now);
            }
            if !self.cluster.belongs_here(id) {
                return self.send_newer_records(from);
            }
            // It may already be over at a server it belonged to before.
            match self.clear_first_offer(from, offer, now) {
                Some(may_begin) => offer = may_begin,
                None => return,
            }
        }
        if number > received + 1 {
            return;
        }
        match offer.entries.take() {
            None => self.request_history(from, offer, now),
            Some(entries) => self.store_transfer(from, *offer, entries, now),
        }
    }

    /// Replies with the last activities known here, or queues the sender.
    fn request_history(&mut self, from: ServerId, offer: Box<Offer>, now: Timestamp) {
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
        let until = now.plus(ANSWER_TIMEOUT);
        self.migration.arrivals.begin(id, Asked { from, number, until, waiting });
        self.out.push(Output::Send {
            to: from,
            message: Message::Migration(message::Migration::Known { parcel: offer.id, last }),
        });
    }

    /// Algorithm 1. `None` if the definition is not known here yet.
    fn last_known(&self, id: InstanceId, offer: &Offer) -> Option<Vec<Activity>> {
        let seat = self.cluster.seat.as_ref()?;
        self.catalog.schema_of(&offer.process, offer.version).ok()?;
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

    /// Stores a transfer together with the entries of the history that were missing here.
    fn store_transfer(
        &mut self,
        from: ServerId,
        offer: Offer,
        entries: Vec<Entry>,
        now: Timestamp,
    ) {
        let ParcelId { instance: Instance(id), number } = offer.id;
        let Some(seat) = self.cluster.seat.clone() else { return };
        let Ok(schema) = self.catalog.schema_of(&offer.process, offer.version) else { return };
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
            // Stored before. A reply with the present knowledge spares the sender these entries.
            return self.request_history(from, Box::new(offer), now);
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
                self.cases.case_begins(id);
                self.begin_with(id, &schema, first, now)
            }
        };
        // Refused by a limit, or the instance is broken. The sender retries.
        match stored {
            Ok(()) if offer.is_part => return self.request_history(from, Box::new(offer), now),
            Ok(()) => self.acknowledge(from, offer.id),
            Err(_) => {}
        }
        self.serve_queue(id, from, number, now);
    }

    /// Serves the next queued sender if the one that was asked has answered.
    fn serve_queue(&mut self, id: InstanceId, from: ServerId, number: u32, now: Timestamp) {
        let is_answer =
            |asked: &Asked| asked.from == from && asked.number == number || asked.until <= now;
        if self.migration.arrivals.asked.get(&id).is_some_and(is_answer) {
            self.serve_next_sender(id, now);
        }
    }

    /// Stops waiting for senders that were asked and did not answer in time.
    pub(crate) fn expire_requests(&mut self, now: Timestamp) {
        while let Some((_, id)) =
            self.migration.arrivals.due.first().copied().filter(|(due, _)| *due <= now)
        {
            self.serve_next_sender(id, now);
        }
    }

    fn serve_next_sender(&mut self, id: InstanceId, now: Timestamp) {
        let Some(mut asked) = self.migration.arrivals.end(id) else { return };
        let Some((from, offer)) = asked.waiting.pop_front() else { return };
        if !asked.waiting.is_empty() {
            // The next request inherits the queue.
            self.migration.arrivals.begin(id, Asked { until: now, ..asked });
        }
        self.receive(from, Message::Migration(message::Migration::Offer(offer)), now);
    }

    pub(crate) fn acknowledge(&mut self, to: ServerId, parcel: ParcelId) {
        self.out.push(Output::Send {
            to,
            message: Message::Migration(message::Migration::Ack { parcel }),
        });
    }
}
