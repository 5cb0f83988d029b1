//! Letters to people who started a case whose promise was revoked or renewed.
//!
//! Invariant: only the server that started a case, which keeps its plan, writes about its promise, and only to the
//! starter, even during an absence: only the starter can decide whether the case may be late.

use legwork_engine::State;
use legwork_mail::{Kind, Promise, Subject, Turn};
use legwork_model::event::{Deadline, Performer, Turned};
use legwork_model::id::{AgentId, InstanceId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_org::ItemKey;

use super::Mailings;
use crate::Site;
use crate::answer::{Content, Letter};
use crate::cases::Cases;
use crate::input::Notice;

impl Mailings {
    /// Whether the promise of an instance may need a letter, or a letter waits for its values.
    pub(crate) fn concerns(&self, id: InstanceId) -> bool {
        self.cases.contains(&id) || self.awaited.contains(&id)
    }

    /// An instance is over.
    pub(crate) fn forget(&mut self, id: InstanceId) {
        self.cases.remove(&id);
    }

    /// The organisation has changed: an agent may have got an address.
    pub(crate) fn recheck_cases(&mut self, now: Timestamp) {
        self.rechecks.extend(self.cases.iter().map(|id| (now, key(*id))));
    }
}

impl Cases {
    pub(super) fn turned_at(&self, id: InstanceId) -> Option<Timestamp> {
        let turned = self.turned(id).map(|(_, _, _, turned)| turned.at);
        turned.max(self.passed_at(id))
    }

    /// The state of the promise of an open instance, if it was revoked or renewed here.
    fn turned(&self, id: InstanceId) -> Option<(&Schema, &State, &Deadline, &Turned)> {
        let (schema, state) = self.instances.state(id)?;
        let is_started_here = !state.lifecycle().has_ended() && state.started_elsewhere().is_none();
        let deadline = state.deadline().filter(|_| is_started_here)?;
        Some((schema, state, deadline, deadline.turned.as_ref()?))
    }
}

impl Site {
    /// The plan of an instance has changed, or was replayed after a restart.
    pub(crate) fn note_promise(&mut self, id: InstanceId) {
        let is_started_by_agent =
            self.cases.turned(id).is_some_and(|(_, state, ..)| owner(state).is_some());
        if self.config.mail.is_some() && is_started_by_agent {
            self.mailings.cases.insert(id);
            self.mailings.rechecks.insert((Timestamp::default(), key(id)));
        }
    }

    /// The promise of an instance, and its recipient.
    pub(super) fn promise_of(&self, id: InstanceId) -> Option<Promise> {
        let (_, state, deadline, turned) = self.cases.turned(id)?;
        let owner = owner(state)?;
        self.catalog.address_of(owner)?;
        let (is_promised, since) = (deadline.is_promised(), turned.at);
        Some(Promise { owner: owner.clone(), is_promised, since })
    }

    pub(super) fn letter_of_case(
        &self,
        instance: InstanceId,
        agent: &AgentId,
        kind: Kind,
    ) -> Option<Letter> {
        let (schema, _, deadline, turned) = self.cases.turned(instance)?;
        let turn = Turn {
            instance,
            kind,
            process: schema.title.clone(),
            step: schema.nodes.get(turned.node.0 as usize)?.title.clone(),
            deadline: deadline.at,
            since: turned.at,
            why: turned.reason.clone(),
        };
        let about = vec![(Subject::of_case(instance), kind)];
        let notice = Notice { agent: agent.clone(), about };
        let (address, zone) =
            (self.catalog.address_of(agent)?, self.catalog.organisation().zone_of(agent));
        Some(Letter { address, zone, notice, content: Content::Case(turn) })
    }
}

/// The agent who started an instance, if an agent did.
pub(super) fn owner(state: &State) -> Option<&AgentId> {
    match state.starter() {
        Performer::Agent(agent) => Some(agent),
        Performer::System | Performer::Worker(_) | Performer::Executor(_) => None,
    }
}

/// The key that represents a case among items.
pub(super) fn key(id: InstanceId) -> ItemKey {
    let Subject { instance, activity } = Subject::of_case(id);
    ItemKey { instance, activity }
}
