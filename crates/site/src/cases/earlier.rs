//! Starts with an idempotency key that may have been used at another server, when the weights of the
//! domain were others.
//!
//! Invariant: under one division of the domain one server alone starts what a key is for, and only
//! after all that would have under an earlier one have said, under this one, that the key was not used
//! there. A server says so only when it can no longer start anything under an earlier one.

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

/// How often the others are asked, and for how long.
const BACKOFF: Backoff = Backoff::constant(Duration::from_secs(1));
const PATIENCE: Duration = Duration::from_secs(10);
/// The most keys that are asked for, or about, at a time.
const KEYS_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Earlier {
    /// Keys that others are asked about.
    asking: Retries<StreamId, Asking>,
    /// Keys that were used nowhere else, as of so many divisions: whoever waits starts now.
    cleared: BTreeMap<StreamId, u32>,
    /// Who has asked about a key whose stream is being read.
    questions: BTreeMap<StreamId, BTreeSet<(ServerId, u32)>>,
}

#[derive(Debug)]
struct Asking {
    versions: u32,
    silent: BTreeSet<ServerId>,
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
    /// A case is open here: who has asked about it gets no answer.
    pub(crate) fn drop_questions(&mut self, stream: StreamId) {
        self.earlier.questions.remove(&stream);
    }

    /// Whoever asked has hung up.
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
    /// How many divisions the domain has had, and who had a spread before.
    fn earlier_servers(&self, id: InstanceId) -> (u32, BTreeSet<ServerId>) {
        let Some(seat) = &self.cluster.seat else { return (0, BTreeSet::new()) };
        let divisions = self.divisions_here();
        let servers = divisions.iter().map(|division| division.layout.server(id.spread()));
        (divisions.len() as u32, servers.filter(|server| *server != seat.here).collect())
    }

    /// All divisions that the domain of this server has had, as far as known here.
    pub(crate) fn divisions_here(&self) -> &[Division] {
        let domain = self.cluster.domain_here();
        domain.map_or(&[], |domain| self.catalog.changes().divisions(domain))
    }

    /// Whether a start may go on whose key was not used here. If not, it waits for the answers of
    /// those where it may have been used.
    pub(crate) fn is_unused_elsewhere(&self, key: StreamId, id: InstanceId) -> bool {
        let (versions, servers) = self.earlier_servers(id);
        servers.is_empty() || self.cases.earlier.cleared.get(&key) == Some(&versions)
    }

    /// Asks those where a key may have been used.
    pub(crate) fn ask_earlier(
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
            let message = "too many idempotency keys are looked for at other servers; try again";
            let refusal = Refusal::new(Kind::Exhausted, "too_many_keys", message);
            return self.answer(held.id, Err(refusal));
        }
        let (versions, silent) = self.earlier_servers(id);
        let (until, starts) = (now.plus(PATIENCE), vec![held]);
        let asking = Asking { versions, silent, starts, until };
        self.cases.earlier.asking.insert(key, asking, now);
        self.ask_again(key, now);
    }

    fn ask_again(&mut self, key: StreamId, now: Timestamp) {
        let Some(asking) = self.cases.earlier.asking.attempted(&key, now) else { return };
        let question = KeyQuestion { key, versions: asking.versions };
        for to in &asking.silent {
            let message = Message::Key(message::Key::Wanted(question));
            self.out.push(Output::Send { to: *to, message });
        }
    }

    /// Asks again those that have not answered, and gives up after some time.
    pub(crate) fn ask_earlier_again(&mut self, now: Timestamp) {
        while let Some(key) = self.cases.earlier.asking.first_due(now) {
            let until = self.cases.earlier.asking.get(&key).map(|asking| asking.until);
            if until.is_some_and(|until| until > now) {
                self.ask_again(key, now);
                continue;
            }
            let Some(asking) = self.cases.earlier.asking.remove(&key) else { return };
            for held in asking.starts {
                self.answer(held.id, Err(unclear()));
            }
        }
    }

    /// Another server asks whether a key was used here, or whether a case was here and is over. As
    /// long as this server has not heard of the
    /// division that is asked about, it may still start something under the key: it does not answer,
    /// and is asked again.
    pub(crate) fn on_key_wanted(&mut self, from: ServerId, question: KeyQuestion, now: Timestamp) {
        let KeyQuestion { key, versions } = question;
        if self.divisions_here().len() < versions as usize {
            return self.ask_for_newer(from, now);
        }
        if let StreamKind::Instance(id) = key.kind()
            && (self.cases.instances.get(id).is_some() || self.cases.instances.broken(id).is_some())
        {
            // It is not over here, and the new weights except it: whoever asks has yet to hear of that.
            return;
        }
        let questions = &mut self.cases.earlier.questions;
        if questions.len() < KEYS_MAX || questions.contains_key(&key) {
            questions.entry(key).or_default().insert((from, versions));
            self.ask_for(key, false);
        }
    }

    /// The stream of a key has been read: those who have asked about it are answered.
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

    /// Another server has answered.
    pub(crate) fn on_key_used(
        &mut self,
        from: ServerId,
        question: KeyQuestion,
        is_used: bool,
        now: Timestamp,
    ) {
        let KeyQuestion { key, versions } = question;
        if let StreamKind::Instance(id) = key.kind() {
            return self.case_answered(from, (id, versions), is_used, now);
        }
        let Some(asking) = self.cases.earlier.asking.get_mut(&key) else { return };
        if asking.versions != versions || !asking.silent.contains(&from) {
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
        asking.silent.remove(&from);
        if asking.silent.is_empty()
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

    /// The weights of the domain have changed: what was answered does not count any more.
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
