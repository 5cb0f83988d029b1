//! When those work who can do the steps of a case, so that the time to spare is shared out in working hours.
//!
//! Wherever their plans are kept: the organisation is known everywhere. Whether they have the time their planners know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::AgentId;
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_promise::{Hours, Leg, Span, Supply, WHOLE, Work};

use super::resources::AHEAD;
use super::search::Foreseen;
use crate::Site;
use crate::input::Start;

/// Of so many who can do a step it is looked when they work: it is only to share out time.
const LOOKED_AT: usize = 8;
/// How many are remembered, and for how long: then it is known for less than what can be promised.
const KNOWN_MAX: usize = 256;
const KNOWN_FOR: Duration = Duration::from_hours(24);

/// When people work, as the organisation says.
#[derive(Debug, Default)]
pub(super) struct Known {
    people: BTreeMap<AgentId, Arc<Supply>>,
    since: Timestamp,
}

impl Site {
    /// When those work who can do each leg of a start, as far as it is known before any is promised.
    pub(super) fn hours(
        &mut self,
        schema: &Schema,
        (legs, costs): (&[Leg], &[Work]),
        start: &Start,
        (now, until): (Timestamp, Timestamp),
    ) -> Vec<Hours> {
        if now.since(self.planning.hours.since) > KNOWN_FOR {
            self.planning.hours = Known { since: now, ..Known::default() };
        }
        let starter = start.agent.as_ref();
        let foreseen = Foreseen { schema, legs, granted: &[], starter };
        let people: Vec<Vec<AgentId>> = legs
            .iter()
            .map(|leg| {
                let Some(rule) = schema.node(leg.node).who() else { return Vec::new() };
                let org = self.catalog.organisation();
                let resolved = org.resolve(rule, &foreseen);
                let actors: Vec<AgentId> =
                    resolved.actors.iter().take(LOOKED_AT).cloned().collect();
                let others = actors
                    .iter()
                    .flat_map(|actor| org.stand_ins_between(actor, &resolved, now, until));
                let others: Vec<AgentId> = others.map(|other| other.agent).collect();
                actors.into_iter().chain(others).take(LOOKED_AT).collect()
            })
            .collect();
        let hours = people.into_iter().zip(costs).map(|(people, cost)| {
            let known = people.iter().filter_map(|agent| self.hours_of(agent, now));
            // Who is away for all that time does not do it; whoever does, it is not known when they work.
            Hours::new(known.filter(|supply| supply.until(until).0 - supply.until(now).0 >= cost.0))
        });
        hours.collect()
    }

    /// The organisation has changed.
    pub(super) fn forget_hours(&mut self) {
        self.planning.hours.people.clear();
    }

    fn hours_of(&mut self, agent: &AgentId, now: Timestamp) -> Option<Arc<Supply>> {
        if let Some(known) = self.planning.hours.people.get(agent) {
            return Some(known.clone());
        }
        let time = self.catalog.organisation().working_time(agent)?;
        let spans = time.spans_between_appointments(now, now + AHEAD);
        let spans =
            spans.map(|span| Span { from: span.from, to: span.to, share: span.share.min(WHOLE) });
        let supply = Arc::new(Supply::new(spans));
        if self.planning.hours.people.len() >= KNOWN_MAX {
            self.forget_hours();
        }
        self.planning.hours.people.insert(agent.clone(), supply.clone());
        Some(supply)
    }
}
