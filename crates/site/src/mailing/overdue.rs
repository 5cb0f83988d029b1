//! Letters about deadlines that have passed or are in danger.
//!
//! Invariant: the starter of a case gets the letter from the server that started it, and the holder of a step from the
//! server that controls the step. An aborted case is not in memory any more when the letter is written: its content is
//! stored with the abort.

use std::collections::BTreeSet;
use std::sync::Arc;

use legwork_engine::State;
use legwork_mail::{Kind, Overdue, Passing, Promise, Subject, Tell};
use legwork_model::event::{Deadline, MailEvent, Owed, Then};
use legwork_model::id::{AgentId, InstanceId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;

use super::promises::{key, owner};
use crate::Site;
use crate::answer::{Content, Letter};
use crate::cases::Cases;
use crate::catalog::Catalog;
use crate::input::Notice;
use crate::planning::in_danger_from;

/// The most steps named in a letter.
const STEPS_MAX: usize = 10;

impl Cases {
    /// The last deadline of an instance that passed.
    pub(super) fn passed_at(&self, id: InstanceId) -> Option<Timestamp> {
        let (_, _, deadline) = self.open_case(id)?;
        deadline.passed.map(|passed| passed.at)
    }

    fn open_case(&self, id: InstanceId) -> Option<(&Schema, &State, &Deadline)> {
        let (schema, state) = self.instances.state(id)?;
        let deadline = state.deadline().filter(|_| !state.lifecycle().has_ended())?;
        Some((schema, state, deadline))
    }
}

impl Catalog {
    fn about_deadline(&self, agent: &AgentId, passing: Passing) -> Option<Letter> {
        let (address, zone) = (self.address_of(agent)?, self.organisation().zone_of(agent));
        let about = vec![(Subject::of_case(passing.instance), passing.kind)];
        let notice = Notice { agent: agent.clone(), about };
        Some(Letter { address, zone, notice, content: Content::Deadline(passing) })
    }

    /// The recipients of a letter about a passed deadline: the starter of the case, and the holders of its steps at
    /// that time.
    fn concerned(&self, schema: &Schema, state: &State, at: Timestamp) -> Vec<AgentId> {
        let owner = owner(state).filter(|_| state.started_elsewhere().is_none());
        let held = state.open(schema).filter(|open| open.claimed_at.is_some_and(|it| it <= at));
        let all: BTreeSet<&AgentId> =
            held.filter_map(|open| open.claimed_by).chain(owner).collect();
        all.into_iter().filter(|agent| self.address_of(agent).is_some()).cloned().collect()
    }
}

impl Site {
    /// The deadline of an instance may need a letter.
    pub(crate) fn note_deadline(&mut self, id: InstanceId) {
        if self.config.mail.is_some() {
            self.mailings.cases.insert(id);
            self.mailings.rechecks.insert((Timestamp::default(), key(id)));
        }
    }

    /// The state of the deadline of an open instance.
    pub(super) fn case_of(
        &self,
        id: InstanceId,
        now: Timestamp,
    ) -> Option<(Option<Promise>, Overdue)> {
        let (schema, state, deadline) = self.cases.open_case(id)?;
        let passed = passed(state, deadline, now);
        let is_own = state.started_elsewhere().is_none();
        let owner = owner(state).filter(|agent| is_own && self.catalog.address_of(agent).is_some());
        let danger = in_danger_from(schema, state).zip(owner);
        // Its starter already got a letter if the promise was revoked. Only a deadline that was never promised is
        // announced to be in danger.
        let danger = danger.filter(|(from, _)| deadline.is_unpromised && *from <= now);
        let overdue = Overdue {
            passed,
            whom: passed.map_or_else(Vec::new, |at| self.catalog.concerned(schema, state, at)),
            is_late: passed.is_some_and(|at| at >= deadline.at),
            danger: danger.map(|(from, owner)| (from, owner.clone())),
        };
        Some((self.promise_of(id), overdue))
    }

    pub(super) fn letter_of_deadline(
        &self,
        instance: InstanceId,
        agent: &AgentId,
        kind: Kind,
        now: Timestamp,
    ) -> Option<Letter> {
        let (schema, state, deadline) = self.cases.open_case(instance)?;
        let passed = passed(state, deadline, now).filter(|_| kind == Kind::Late);
        let then = match passed {
            Some(at) if at < deadline.at => Then::Extend { to: deadline.at },
            Some(_) | None => Then::Tell,
        };
        let is_own = owner(state) == Some(agent);
        let passing = Passing {
            instance,
            kind,
            process: schema.title.clone(),
            steps: steps(schema, state, agent, is_own),
            deadline: passed.unwrap_or(deadline.at),
            then,
            is_own,
        };
        self.catalog.about_deadline(agent, passing)
    }

    /// The letters to send if an instance is aborted because its deadline has passed.
    pub(crate) fn owed_letters(&self, id: InstanceId, deadline: Timestamp) -> Vec<Owed> {
        let sends_letters = self.config.mail.as_ref().is_some_and(|tell| tell.promise);
        let Some((schema, state, _)) = self.cases.open_case(id).filter(|_| sends_letters) else {
            return Vec::new();
        };
        let letters = self.catalog.concerned(schema, state, deadline).into_iter().map(|agent| {
            let is_own = owner(state) == Some(&agent);
            let steps = steps(schema, state, &agent, is_own);
            let steps = steps.iter().map(ToString::to_string).collect();
            let process = schema.title.to_string();
            Owed { instance: id, agent, process, steps, deadline, is_own }
        });
        letters.collect()
    }

    /// An instance was aborted because its deadline has passed: stores the letters to send.
    pub(crate) fn store_owed(&mut self, owed: Vec<Owed>, now: Timestamp) {
        let events = owed.into_iter().map(|owed| MailEvent::Owed(Box::new(owed)));
        self.store_mail(events.collect(), now);
    }

    /// The next letter about an aborted case.
    pub(super) fn next_owed(&mut self, tell: &Tell, now: Timestamp) -> Option<Letter> {
        let owed: Vec<Owed> = self.mailings.book.owed().cloned().collect();
        owed.into_iter().find_map(|owed| {
            if self.mailings.held_until(tell, &owed.agent, now).is_some() {
                return None;
            }
            let Owed { instance, agent, process, steps, deadline, is_own } = owed;
            let passing = Passing {
                instance,
                kind: Kind::Late,
                process: process.into(),
                steps: steps.into_iter().map(Arc::from).collect(),
                deadline,
                then: Then::Abort,
                is_own,
            };
            self.catalog.about_deadline(&agent, passing)
        })
    }
}

/// The last deadline that passed: recorded at the server that started the case; other servers go by the clock.
fn passed(state: &State, deadline: &Deadline, now: Timestamp) -> Option<Timestamp> {
    match state.started_elsewhere() {
        None => deadline.passed.map(|passed| passed.at),
        Some(_) => Some(deadline.at).filter(|at| *at < now),
    }
}

/// The titles of the open steps, of all or of one agent.
fn steps(schema: &Schema, state: &State, agent: &AgentId, all: bool) -> Vec<Arc<str>> {
    let open = state.open(schema).filter(|open| all || open.claimed_by == Some(agent));
    open.map(|open| schema.node(open.activity.node).title.clone()).take(STEPS_MAX).collect()
}
