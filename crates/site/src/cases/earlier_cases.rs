//! Cases that come to this server for the first time and may have been at another server of its domain under earlier
//! weights.
//!
//! Invariant: a case that is over at one server of a domain does not begin at another. A case created before the
//! weights changed begins here only after all servers it belonged to before have answered that it never came to them.
//! An exception gives the server of a case only until the case is over there; a server that has not received an abort
//! still hands control over after that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use legwork_model::id::{InstanceId, ServerId, StreamId};
use legwork_model::time::Timestamp;

use crate::Site;
use crate::cases::Cases;
use crate::catalog::replicate::small_enough;
use crate::message::{self, Instance, KeyQuestion, Message, Offer};
use crate::output::Output;

/// The least time between two questions about a case. A question is sent together with an offer, and offers are resent
/// until acknowledged.
const PAUSE: Duration = Duration::from_secs(1);
/// The most cases that are asked about at a time; offers of other cases have to be resent.
const CASES_MAX: usize = 10_000;

/// Cases that other servers are asked about, and those that may begin here, until they begin.
#[derive(Debug, Default)]
pub(crate) struct EarlierCases(BTreeMap<InstanceId, Asked>);

#[derive(Debug)]
struct Asked {
    /// Number of divisions of the domain when the question was sent.
    versions: u32,
    /// Servers that have not answered. If there are none, the case may begin here.
    unanswered: BTreeSet<ServerId>,
    due: Timestamp,
    /// The last offer of each sender.
    offers: BTreeMap<ServerId, Box<Offer>>,
}

impl Cases {
    /// A case begins here: other servers need not be asked about it any more.
    pub(crate) fn case_begins(&mut self, id: InstanceId) {
        self.earlier_cases.0.remove(&id);
    }
}

impl Site {
    /// The other servers that may have had a case under earlier divisions, except those declared down.
    fn earlier_holders(&self, id: InstanceId) -> BTreeSet<ServerId> {
        let Some(here) = self.cluster.seat.as_ref().map(|seat| seat.here) else {
            return BTreeSet::new();
        };
        let (divisions, created) = (self.divisions_here(), id.created_ms());
        let replaced = divisions.iter().zip(divisions.iter().skip(1));
        replaced
            .filter(|(_, next)| created <= next.earlier_ms)
            .map(|(division, _)| division.layout.server(id.spread()))
            .filter(|id| *id != here && !self.catalog.changes().is_declared_down(*id))
            .collect()
    }

    /// Returns an offer of a case that is new here if the case may begin here. If not, the offer is held until the
    /// servers that may have had the case have answered.
    pub(crate) fn clear_first_offer(
        &mut self,
        from: ServerId,
        offer: Box<Offer>,
        now: Timestamp,
    ) -> Option<Box<Offer>> {
        let Instance(id) = offer.id.instance;
        let unanswered = self.earlier_holders(id);
        if unanswered.is_empty() {
            return Some(offer);
        }
        let versions = self.divisions_here().len() as u32;
        let cases = &mut self.cases.earlier_cases.0;
        if cases.len() >= CASES_MAX && !cases.contains_key(&id) {
            return None;
        }
        let asked = cases.entry(id).or_insert_with(|| {
            let offers = BTreeMap::new();
            Asked { versions, unanswered, due: now, offers }
        });
        if asked.unanswered.is_empty() {
            return Some(offer);
        }
        asked.offers.insert(from, small_enough(offer, now));
        if asked.due <= now {
            asked.due = now.plus(PAUSE);
            let question = KeyQuestion { key: StreamId::from(id), versions: asked.versions };
            for to in &asked.unanswered {
                self.out.push(Output::Send {
                    to: *to,
                    message: Message::Key(message::Key::Wanted(question)),
                });
            }
        }
        None
    }

    /// A server can be reached again: resends the questions it has not answered.
    pub(crate) fn ask_about_cases(&mut self, to: ServerId) {
        let unanswered =
            self.cases.earlier_cases.0.iter().filter(|(_, asked)| asked.unanswered.contains(&to));
        for (id, asked) in unanswered {
            let question = KeyQuestion { key: StreamId::from(*id), versions: asked.versions };
            self.out
                .push(Output::Send { to, message: Message::Key(message::Key::Wanted(question)) });
        }
    }

    /// Another server answers whether it had a case, which is then over there.
    pub(crate) fn on_case_answered(
        &mut self,
        from: ServerId,
        (id, versions): (InstanceId, u32),
        is_over: bool,
        now: Timestamp,
    ) {
        let Some(asked) = self.cases.earlier_cases.0.get_mut(&id) else { return };
        if asked.versions != versions || !asked.unanswered.remove(&from) {
            return;
        }
        if is_over {
            let offers = self.cases.earlier_cases.0.remove(&id).map(|asked| asked.offers);
            for (to, offer) in offers.into_iter().flatten() {
                // As if the offer had been sent to the server where the case is over.
                self.acknowledge(to, offer.id);
            }
        } else if asked.unanswered.is_empty() {
            for (from, offer) in std::mem::take(&mut asked.offers) {
                self.receive(from, Message::Migration(message::Migration::Offer(offer)), now);
            }
        }
    }

    /// The weights of the domain have changed: previous answers are void.
    pub(crate) fn restart_case_questions(&mut self, now: Timestamp) {
        for asked in std::mem::take(&mut self.cases.earlier_cases.0).into_values() {
            for (from, offer) in asked.offers {
                self.catalog.hold_offer(from, offer, now);
            }
        }
    }
}
