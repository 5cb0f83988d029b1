//! Messages from other servers: checked, kept until the case they are about is in memory, and passed to their handlers.

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;

use crate::Site;
use crate::message::{Message, Migration};

/// The most messages that wait for one case to be loaded, and the most cases that are loaded because of messages.
/// Messages beyond that count as lost, and are resent.
const WAITING_MAX: usize = 32;
const LOADING_MAX: usize = 8_192;

impl Site {
    pub(crate) fn receive(&mut self, from: ServerId, message: Message, now: Timestamp) {
        self.clock.latest = now;
        let message = match message {
            Message::Catalog(message) => return self.on_catalog(from, message, now),
            // Server numbers are not known before the catalog is.
            _ if self.cluster.seat.is_none() => return,
            Message::Migration(Migration::Offer(offer)) if !self.understands(&offer) => {
                return self.hold(from, offer, now);
            }
            other @ (Message::Migration(_)
            | Message::Worklist(_)
            | Message::Registrar(_)
            | Message::Key(_)
            | Message::Deadline(_)) => other,
        };
        let Some(id) = message.instance() else { return self.on_message(from, message, now) };
        if self.cases.instances.broken(id).is_some() {
            return;
        }
        if self.cases.instances.state(id).is_some() {
            return self.receive_loaded(from, id, message, now);
        }
        if self.cases.unread_messages.len() >= LOADING_MAX
            && !self.cases.unread_messages.contains_key(&id)
        {
            return;
        }
        let waiting = self.cases.unread_messages.entry(id).or_default();
        if waiting.len() < WAITING_MAX {
            waiting.push((from, message));
        }
        self.ask_for(id.into(), false);
    }

    /// A message about a case that is in memory, if the server has the case at all.
    pub(crate) fn receive_loaded(
        &mut self,
        from: ServerId,
        id: InstanceId,
        message: Message,
        now: Timestamp,
    ) {
        if self.fits(from, id, &message) {
            self.on_message(from, message, now);
        }
    }

    fn on_message(&mut self, from: ServerId, message: Message, now: Timestamp) {
        match message {
            Message::Migration(message) => self.on_migration(from, message, now),
            Message::Catalog(message) => self.on_catalog(from, message, now),
            Message::Worklist(message) => self.work.on_worklist(from, message, now),
            Message::Registrar(message) => self.on_registrar(from, message, now),
            Message::Key(message) => self.on_key(from, message, now),
            Message::Deadline(message) => self.on_deadline(from, message, now),
        }
    }
}
