//! Letters about items and about the deadlines of cases: the next one due, and those sent.
//!
//! Invariant: a letter is derived from the items, promises, organisation and letters sent at the moment it is
//! requested. Only letters sent are stored; everything else is derived again after a restart. Nothing is kept unless
//! the server sends mail.

mod due_letters;
mod overdue;
mod promises;

use std::collections::{BTreeMap, BTreeSet};

use legwork_mail::{Book, Kind, Subject};
use legwork_model::event::{MailEvent, Record};
use legwork_model::id::{AgentId, InstanceId, StreamId};
use legwork_model::time::Timestamp;
use legwork_org::ItemKey;

use crate::Site;
use crate::answer::Answer;
use crate::catalog::access::Caller;
use crate::input::{Mailing, Notice, Stream};
use crate::output::{Append, Output};
use crate::refusal::{self, Refusal};

/// After how many records a snapshot of the letters sent is stored.
const SNAPSHOT_EVERY: u64 = 256;
/// A snapshot of more letters would be too large for one record.
const SNAPSHOT_EVENTS_MAX: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct Mailings {
    book: Book,
    /// Number of records of letters sent.
    version: u64,
    /// Cases that may need a letter: their states stay in memory.
    cases: BTreeSet<InstanceId>,
    /// Cases being loaded because a letter shows their values.
    awaited: BTreeSet<InstanceId>,
    /// When to check an item or a case again. Those that are gone by then are skipped.
    rechecks: BTreeSet<(Timestamp, ItemKey)>,
    /// Letters held for people who have reached their hourly limit, or whose mail server refused mail.
    held: BTreeMap<AgentId, BTreeSet<(ItemKey, Kind)>>,
    /// When to check the held letters.
    held_until: BTreeSet<(Timestamp, AgentId)>,
    put_off: BTreeMap<AgentId, Timestamp>,
    /// When items were last checked: absences may have changed since.
    checked_at: Timestamp,
}

impl Site {
    pub(crate) fn on_mail_request(
        &mut self,
        caller: &Caller,
        request: Mailing,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_mailer()?;
        let Some(tell) = self.config.mail.clone() else {
            let message = "this server sends no mail; start the server with --mail FILE";
            return Err(Refusal::new(refusal::Kind::Conflict, "no_mail", message));
        };
        match request {
            Mailing::Next => Ok(self.next_letter(&tell, now)),
            Mailing::Told(notice) => {
                self.note_sent(&notice, now);
                Ok(Answer::Done)
            }
            Mailing::PutOff { agent, until } => {
                self.mailings.put_off.insert(agent, until);
                Ok(Answer::Done)
            }
            Mailing::Address { agent } => Ok(Answer::Address(self.catalog.address_of(&agent))),
            Mailing::Whose { address } => Ok(Answer::Person(self.catalog.person_at(&address))),
        }
    }

    /// Replays the letters sent.
    pub(crate) fn recover_mail(&mut self, stream: &Stream) {
        if self.config.mail.is_none() {
            return;
        }
        let (mut book, mut version) = (Book::default(), 0);
        if let Some((before, bytes)) = &stream.snapshot {
            let Ok(record) = Record::<MailEvent>::from_bytes(bytes) else {
                return self.ask_for(StreamId::MAIL, true);
            };
            version = *before;
            record.events.iter().for_each(|event| book.note(event));
        }
        let mut unreadable = 0;
        for bytes in &stream.records {
            version += 1;
            match Record::<MailEvent>::from_bytes(bytes) {
                Ok(Record { at, events }) => {
                    self.clock.latest = self.clock.latest.max(at);
                    events.iter().for_each(|event| book.note(event));
                }
                Err(_) => unreadable += 1,
            }
        }
        if unreadable > 0 {
            let text = format!(
                "{unreadable} records of letters cannot be read: people may get letters again that \
                 were sent before"
            );
            self.out.push(Output::Notice { text });
        }
        self.mailings.book = book;
        self.mailings.version = version;
    }

    fn note_sent(&mut self, notice: &Notice, now: Timestamp) {
        let Notice { agent, about } = notice;
        let sent = |(subject, kind): &(Subject, Kind)| subject.told(agent.clone(), *kind, now);
        let events: Vec<MailEvent> = about.iter().map(sent).collect();
        if events.is_empty() {
            return;
        }
        let mailings = &mut self.mailings;
        mailings.put_off.remove(agent);
        let keys = about.iter().map(|(subject, kind)| {
            let Subject { instance, activity } = subject.clone();
            (ItemKey { instance, activity }, *kind)
        });
        mailings.unhold(agent, keys, now);
        self.store_mail(events, now);
    }

    fn store_mail(&mut self, events: Vec<MailEvent>, now: Timestamp) {
        if events.is_empty() {
            return;
        }
        let mailings = &mut self.mailings;
        events.iter().for_each(|event| mailings.book.note(event));
        let record = Record { at: now, events }.to_bytes();
        let (stream, expected) = (StreamId::MAIL.0, mailings.version);
        mailings.version += 1;
        self.out.push(Output::Append(Append { stream, expected, record, close: None }));
        if self.mailings.version.is_multiple_of(SNAPSHOT_EVERY) {
            self.store_mail_snapshot(now);
        }
    }

    /// Drops letters about ended cases, and stores the rest as a snapshot.
    fn store_mail_snapshot(&mut self, now: Timestamp) {
        let Self { mailings, cases, .. } = self;
        let is_open = |id| cases.instances.get(id).is_some() || cases.unread.contains(&id);
        mailings.book.prune(|subject| is_open(subject.instance), now);
        let events = mailings.book.events();
        if events.len() > SNAPSHOT_EVENTS_MAX {
            return;
        }
        let (stream, version) = (StreamId::MAIL.0, mailings.version);
        let bytes = Record { at: now, events }.to_bytes();
        self.out.push(Output::Snapshot { stream, version, bytes });
    }
}
