//! Starts with an idempotency key that may have been used at another server under earlier weights of the domain.
//!
//! Invariant: under one division of the domain, only one server starts the case of a key. It starts the case only after
//! all servers responsible under earlier divisions have answered, under the present one, that the key was not used
//! there. A server answers only when it can no longer start anything under an earlier division.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use legwork_model::id::{InstanceId, ServerId, StreamId, StreamKind};
use legwork_model::time::Timestamp;

use crate::cases::Cases;
use crate::catalog::changes::Division;
use crate::input::RequestId;
use crate::message::{self, KeyQuestion, Message};
use crate::output::Output;
use crate::refusal::{Kind, Refusal};
use crate::retries::{Backoff, Retries};
use crate::{Held, Site};

/// How often other servers are asked, and when to give up.
const BACKOFF: Backoff = Backoff::constant(Duration::from_secs(1));
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);
/// The most keys that are asked about at a time.
const KEYS_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Earlier {
    /// Keys that other servers are asked about.
    asking: Retries<StreamId, Asking>,
    /// Keys that were used nowhere else, with the number of divisions this holds for. Their waiting starts are carried
    /// out.
    cleared: BTreeMap<StreamId, u32>,
    /// Servers that have asked about a key whose stream is being read.
    questions: BTreeMap<StreamId, BTreeSet<(ServerId, u32)>>,
}

#[derive(Debug)]
struct Asking {
    versions: u32,
    unanswered: BTreeSet<ServerId>,
    starts: Vec<Held>,
    until: Timestamp,
}

impl Default for Earlier {
    fn default() -> Self {
        Self { asking: Retries::new(BACKOFF), cleared: BTreeMap::new(), questions: BTreeMap::new() }
    }
}

impl Earlier {
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.asking.next_due()
    }
}

impl Cases {
    /// A case is open here: servers that asked about it get no answer.
    pub(crate) fn drop_questions(&mut self, stream: StreamId) {
        self.earlier.questions.remove(&stream);
    }

    /// The client of this request has disconnected.
    pub(crate) fn drop_key_start(&mut self, id: RequestId) {
        for asking in self.earlier.asking.values_mut() {
            asking.starts.retain(|held| held.id != id);
        }
    }

    /// All requests that wait for answers.
    pub(crate) fn take_key_waiters(&mut self) -> Vec<RequestId> {
        let asking = std::mem::take(&mut self.earlier).asking.remove_range(..);
        asking.into_iter().flat_map(|(_, asking)| asking.starts).map(|held| held.id).collect()
    }
}

impl Site {
    /// The number of divisions of the domain, and the servers that had this spread before.
    fn earlier_servers(&self, id: InstanceId) -> (u32, BTreeSet<ServerId>) {
        let Some(seat) = &self.cluster.seat else { return (0, BTreeSet::new()) };
        let divisions = self.divisions_here();
        let servers = divisions.iter().map(|division| division.layout.server(id.spread()));
        (divisions.len() as u32, servers.filter(|server| *server != seat.here).collect())
    }

    /// All divisions of this server's domain, as far as known here.
    pub(crate) fn divisions_here(&self) -> &[Division] {
        let domain = self.cluster.domain_here();
        domain.map_or(&[], |domain| self.catalog.changes().divisions(domain))
    }

    /// Whether a start may proceed whose key was not used here. If not, it waits for the answers of servers that may
    /// have used the key.
    pub(crate) fn is_unused_elsewhere(&self, key: StreamId, id: InstanceId) -> bool {
        let (versions, servers) = self.earlier_servers(id);
        servers.is_empty() || self.cases.earlier.cleared.get(&key) == Some(&versions)
    }

    /// Asks the servers that may have used a key.
    pub(crate) fn ask_earlier_servers(
        &mut self,
        key: StreamId,
        id: InstanceId,
        held: Held,
        now: Timestamp,
    ) {
        if let Some(asking) = self.cases.earlier.asking.get_mut(&key) {
            return asking.starts.push(held);
        }
        if self.cases.earlier.asking.len() >= KEYS_MAX {
            let message = "too many idempotency keys are being checked at other servers; try again";
            let refusal = Refusal::new(Kind::Exhausted, "too_many_keys", message);
            return self.answer(held.id, Err(refusal));
        }
        let (versions, unanswered) = self.earlier_servers(id);
        let (until, starts) = (now.plus(GIVE_UP_AFTER), vec![held]);
        let asking = Asking { versions, unanswered, starts, until };
        self.cases.earlier.asking.insert(key, asking, now);
        self.resend_question(key, now);
    }

    fn resend_question(&mut self, key: StreamId, now: Timestamp) {
        let Some(asking) = self.cases.earlier.asking.attempted(&key, now) else { return };
        let question = KeyQuestion { key, versions: asking.versions };
        for to in &asking.unanswered {
            let message = Message::Key(message::Key::Wanted(question));
            self.out.push(Output::Send { to: *to, message });
        }
    }

    /// Asks again the servers that have not answered, and gives up after some time.
    pub(crate) fn resend_key_questions(&mut self, now: Timestamp) {
        while let Some(key) = self.cases.earlier.asking.first_due(now) {
            let until = self.cases.earlier.asking.get(&key).map(|asking| asking.until);
            if until.is_some_and(|until| until > now) {
                self.resend_question(key, now);
                continue;
            }
            let Some(asking) = self.cases.earlier.asking.remove(&key) else { return };
            for held in asking.starts {
                self.answer(held.id, Err(unclear()));
            }
        }
    }

    /// Another server asks whether a key was used here, or whether a case was here and is over. While this server does
    /// not know the division the question is about, it may still start something under the key: it does not answer, and
    /// is asked again.
    pub(crate) fn on_key_wanted(&mut self, from: ServerId, question: KeyQuestion, now: Timestamp) {
        let KeyQuestion { key, versions } = question;
        if self.divisions_here().len() < versions as usize {
            return self.ask_for_newer(from, now);
        }
        if let StreamKind::Instance(id) = key.kind()
            && (self.cases.instances.get(id).is_some() || self.cases.instances.broken(id).is_some())
        {
            // The case is not over here, and is an exception of the new weights, which the sender does not know yet.
            return;
        }
        let questions = &mut self.cases.earlier.questions;
        if questions.len() < KEYS_MAX || questions.contains_key(&key) {
            questions.entry(key).or_default().insert((from, versions));
            self.ask_for(key, false);
        }
    }

    /// The stream of a key has been read: answers the servers that asked about it.
    pub(crate) fn answer_key_questions(&mut self, key: StreamId, is_used: bool) {
        self.cases.earlier.cleared.remove(&key);
        for (to, versions) in self.cases.earlier.questions.remove(&key).unwrap_or_default() {
            let message = Message::Key(message::Key::Used {
                question: KeyQuestion { key, versions },
                is_used,
            });
            self.out.push(Output::Send { to, message });
        }
    }

    /// Another server answers.
    pub(crate) fn on_key_used(
        &mut self,
        from: ServerId,
        question: KeyQuestion,
        is_used: bool,
        now: Timestamp,
    ) {
        let KeyQuestion { key, versions } = question;
        if let StreamKind::Instance(id) = key.kind() {
            return self.on_case_answered(from, (id, versions), is_used, now);
        }
        let Some(asking) = self.cases.earlier.asking.get_mut(&key) else { return };
        if asking.versions != versions || !asking.unanswered.contains(&from) {
            return;
        }
        if is_used {
            for held in self
                .cases
                .earlier
                .asking
                .remove(&key)
                .map(|asking| asking.starts)
                .unwrap_or_default()
            {
                let refusal = self.cluster.elsewhere(from);
                self.answer(held.id, Err(refusal));
            }
            return;
        }
        asking.unanswered.remove(&from);
        if asking.unanswered.is_empty()
            && let Some(asking) = self.cases.earlier.asking.remove(&key)
        {
            if !asking.starts.is_empty() {
                self.cases.earlier.cleared.insert(key, versions);
            }
            for held in asking.starts {
                self.load(key, held);
            }
        }
    }

    /// The weights of the domain have changed: previous answers are void.
    pub(crate) fn restart_key_questions(&mut self) {
        self.cases.earlier.cleared.clear();
        for (_, asking) in self.cases.earlier.asking.remove_range(..) {
            asking.starts.into_iter().for_each(|held| self.hold_start(held));
        }
    }
}

fn unclear() -> Refusal {
    let message = "a server where this idempotency key may have been used before cannot be reached; \
                   try again later, or take another key if you know that it was not";
    Refusal::new(Kind::Exhausted, "idempotency_key_unclear", message)
}
