//! Starts with a deadline, and questions whether one could be promised.
//!
//! Invariant: a start proceeds only when everything its promise depends on is firm, or if it starts without a promise.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use legwork_model::event::{Deadline, Leg, Planned};
use legwork_model::id::{InstanceId, ServerId, StreamId};
use legwork_model::schema::{NodeKind, Schema};
use legwork_model::time::Timestamp;
use legwork_plan::{Leg as PlanLeg, Offer, Search, Step, Work, legs, longest_first};
use rustc_hash::FxHasher;

use super::Planning;
use super::admission::{Admission, Outcome, Purpose, Wanted};
use super::reserving::Attempt;
use super::resources::{AHEAD, performer, work};
use crate::answer::{Answer, DeadlineView};
use crate::catalog::access::Caller;
use crate::input::{Request, RequestId, Start, Unpromised};
use crate::refusal::{Kind, Refusal};
use crate::{Held, Site};

/// How long a promise is kept for a case that is about to start.
const STARTS_WITHIN: Duration = Duration::from_secs(5);

/// A deadline wanted for a start.
#[derive(Debug)]
pub struct Wish {
    pub at: Timestamp,
    /// What to do if it cannot be promised.
    pub unpromised: Unpromised,
    /// Less important tasks may be displaced.
    pub priority: u8,
    /// Only answer whether it could be promised.
    pub ask_only: bool,
    /// The result of the admission.
    pub(crate) found: Option<Box<Deadline>>,
}

impl Wish {
    /// A deadline to be promised.
    pub fn new(at: Timestamp) -> Self {
        let priority = Deadline::PRIORITY_DEFAULT;
        Self { at, unpromised: Unpromised::default(), priority, ask_only: false, found: None }
    }

    /// Whether the case also starts without a promise.
    fn starts_anyway(&self) -> bool {
        self.unpromised == Unpromised::Start && !self.ask_only
    }
}

/// A start in admission.
#[derive(Debug)]
pub(super) struct Starting {
    id: RequestId,
    caller: Caller,
    start: Start,
    /// Starts with the same idempotency key, which wait for the result.
    repeated: Vec<Held>,
}

impl Starting {
    pub(super) fn only_asks(&self) -> bool {
        self.start.deadline.as_ref().is_some_and(|wish| wish.ask_only)
    }
}

/// A promise for a case that is about to start.
#[derive(Debug)]
pub(super) struct Granted {
    held: Vec<(ServerId, Attempt)>,
    /// Other tasks may have been displaced for it.
    has_displaced: bool,
    pub(super) until: Timestamp,
    request: RequestId,
}

impl Planning {
    /// Whether a start needs an admission first.
    pub(crate) fn needs_admission(&self, start: &Start) -> bool {
        // The grant may have been lost while the start waited for something else.
        let is_lost = |found: &Deadline| {
            !found.legs.is_empty() && !self.granted.contains_key(&start.instance)
        };
        let wish = start.deadline.as_ref();
        wish.is_some_and(|wish| wish.found.as_deref().is_none_or(is_lost))
    }

    /// Whether a start with this key is in admission.
    pub(crate) fn is_in_admission(&self, key: StreamId) -> bool {
        self.admissions.values().any(|admission| has_key(admission, key))
    }

    /// Another start with the same key waits for the result.
    pub(crate) fn wait_for_search(&mut self, key: StreamId, held: Held) {
        let mut admissions = self.admissions.values_mut();
        let own = admissions.find(|admission| has_key(admission, key));
        if let Some(Purpose::Start(starting)) = own.map(|own| &mut own.purpose) {
            starting.repeated.push(held);
        }
    }

    /// The steps of a process to promise, of those that can begin the most urgent first; and the names of steps of
    /// unknown duration.
    fn steps_of(&self, schema: &Schema, now: Timestamp) -> (Vec<Step>, Vec<Wanted>, Vec<String>) {
        let legs = legs(schema);
        let costs: Vec<i64> = legs.iter().map(|leg| self.cost(schema, leg).0).collect();
        let legs = longest_first(legs, &costs);
        let mut seen = BTreeSet::new();
        let unknown = legs.iter().filter(|leg| leg.takes.is_none() && seen.insert(leg.node));
        let unknown = unknown.map(|leg| schema.node(leg.node).name.to_string()).collect();
        let step = |leg: &PlanLeg| {
            let (after, cost) = (leg.after.clone(), self.cost(schema, leg));
            Step { after, cost, not_before: now }
        };
        let steps = legs.iter().map(step).collect();
        let wanted = legs.iter().map(|leg| Wanted {
            node: leg.node,
            iteration: leg.iteration.clone(),
            name: schema.node(leg.node).name.clone(),
            cost: self.cost(schema, leg),
            is_anywhere: is_anywhere(schema, leg.node),
        });
        (steps, wanted.collect(), unknown)
    }

    /// The amount of work of a step: by the definition, refined by observation.
    fn cost(&self, schema: &Schema, leg: &PlanLeg) -> Work {
        let defined = work(leg.takes.unwrap_or_default());
        let step = schema.node(leg.node).name.clone();
        let seen = self.ledger.seen.get(&(schema.process.clone(), step));
        // No step takes no time.
        seen.map_or(defined, |seen| seen.refine(defined)).max(Work(1))
    }
}

impl Site {
    /// Begins the admission of a start, which proceeds when the result is known.
    pub(crate) fn start_admission(
        &mut self,
        id: RequestId,
        caller: Caller,
        start: Start,
        now: Timestamp,
    ) {
        let instance = start.instance;
        if self.planning.admissions.contains_key(&instance) {
            let message = format!("instance {instance} is being started already");
            return self.answer(id, Err(Refusal::new(Kind::Conflict, "instance_exists", message)));
        }
        match self.admission(id, caller, start, now) {
            Err(refusal) => self.answer(id, Err(refusal)),
            Ok(admission) => {
                self.planning.admissions.insert(instance, admission);
                self.continue_admission(instance, now);
            }
        }
    }

    fn admission(
        &mut self,
        id: RequestId,
        caller: Caller,
        start: Start,
        now: Timestamp,
    ) -> Result<Admission, Refusal> {
        let schema = self.schema_to_start(&start)?;
        // Nothing is reserved for a start that would be refused.
        legwork_engine::data::typed(&schema, Schema::START, &start.data)
            .map_err(|rejection| Refusal::from(&rejection))?;
        let wish = start.deadline.as_ref();
        let (at, priority) = wish.map_or((now, 0), |wish| (wish.at, wish.priority));
        let starts_anyway = wish.is_some_and(|wish| wish.starts_anyway());
        // A start that a schedule has missed is started all the same.
        let is_late = at <= now;
        if is_late && !caller.is_schedule() {
            let message = format!(
                "the deadline {at} is not in the future: now is {now}; give a later one, or start it \
                 without a deadline"
            );
            return Err(Refusal::new(Kind::Invalid, "deadline_past", message));
        }
        let last = now + AHEAD;
        if at > last && !starts_anyway {
            let message = format!(
                "nothing is promised for more than 400 days ahead: {last} at the latest; give an \
                 earlier one, or start it without a promise"
            );
            return Err(Refusal::new(Kind::Invalid, "deadline_too_far", message));
        }
        let (steps, wanted, unknown) = self.planning.steps_of(&schema, now);
        let is_asked = wish.is_some_and(|wish| wish.ask_only);
        let search = Search::new(steps, now, at);
        let search = match (is_asked, starts_anyway, priority > 0) {
            (true, ..) => search.asking(),
            (false, true, true) => search.accepting().displacing(),
            (false, true, false) => search.accepting(),
            (false, false, true) => search.accepting().offering().displacing(),
            (false, false, false) => search.accepting().offering(),
        };
        let offer = offer(&caller, &start, schema.version);
        let (starter, repeated) = (start.agent.clone(), Vec::new());
        let purpose = Purpose::Start(Box::new(Starting { id, caller, start, repeated }));
        let mut admission =
            Admission::new(search, wanted, (schema.clone(), starter), priority, purpose);
        admission.offer = Some(offer);
        admission.reason = if unknown.is_empty() {
            let reasons = [(is_late, "it is late already"), (at > last, "it is too far ahead")];
            reasons.into_iter().find(|(is_so, _)| *is_so).map(|(_, reason)| reason.to_owned())
        } else {
            let names = unknown.join("`, `");
            Some(format!(
                "nobody knows how long `{names}` takes; say so in the definition with `takes:`"
            ))
        };
        Ok(admission)
    }

    /// The admission of a start has ended.
    pub(super) fn start_decided(
        &mut self,
        id: InstanceId,
        mut admission: Admission,
        what: Outcome,
        now: Timestamp,
    ) {
        let held = admission.held();
        let is_offer = admission.search.is_offering();
        let has_displaced = admission.search.take_displaced();
        let deadline = promised(&admission);
        let refusal = match what {
            Outcome::Promised => None,
            Outcome::Refused { earliest } => Some(not_promised(&admission, earliest, &deadline)),
        };
        let (schema, priority) = (admission.schema.clone(), admission.priority);
        let Purpose::Start(starting) = admission.purpose else { return };
        let Starting { id: request, caller, mut start, repeated } = *starting;
        let Some(wish) = &mut start.deadline else { return };
        let (starts_anyway, ask_only) = (wish.starts_anyway(), wish.ask_only);
        let found = match (&refusal, starts_anyway) {
            (None, _) => Some(deadline),
            (Some(_), true) => {
                let without = Deadline::new(wish.at, priority);
                Some(Deadline { is_unpromised: true, ..without })
            }
            (Some(_), false) => None,
        };
        // Offers stay until they are accepted or expire.
        if is_offer {
            self.planning.note_offered(id, now);
        } else if refusal.is_some() {
            self.release_all(held.clone(), now);
        }
        if refusal.is_some() && has_displaced {
            self.planning.hurry_revoked(now);
        }
        match (found, refusal) {
            (Some(deadline), None) if ask_only => {
                let view = DeadlineView::of(&schema, &deadline, None);
                self.answer(request, Ok(Answer::Deadline(Box::new(view))));
            }
            (Some(deadline), refusal) => {
                match refusal {
                    Some(_) => self.planning.counts.unpromised += 1,
                    None => {
                        let until = now + STARTS_WITHIN;
                        let granted = Granted { held, has_displaced, until, request };
                        self.planning.granted.insert(id, granted);
                    }
                }
                // The version that was admitted.
                start.version = Some(schema.version);
                wish.found = Some(Box::new(deadline));
                self.admit(Held { id: request, caller, request: Request::Start(start) }, now);
            }
            (None, Some(refusal)) => {
                self.planning.counts.refused += u64::from(!ask_only);
                self.answer(request, Err(refusal));
            }
            (None, None) => {}
        }
        // Starts that waited with the same key find the result.
        repeated.into_iter().for_each(|held| self.admit(held, now));
    }

    /// A promised case has started.
    pub(crate) fn on_promised_start(&mut self, id: InstanceId, now: Timestamp) {
        if self.planning.granted.remove(&id).is_some() {
            self.planning.counts.promised += 1;
            self.planning.planned_at.insert(id, now);
            self.follow_displaced(now);
        }
    }

    /// A promised start is refused or cancelled: its promise expires, and is released after the present input.
    pub(crate) fn expire_granted(&mut self, request: RequestId) {
        let own = self.planning.granted.values_mut().filter(|granted| granted.request == request);
        own.for_each(|granted| granted.until = self.clock.latest);
    }

    /// Releases the promises of starts that did not come, and replans the cases displaced for them.
    pub(super) fn release_expired_grants(&mut self, now: Timestamp) {
        let over = self.planning.granted.extract_if(.., |_, granted| granted.until <= now);
        for (_, granted) in over.collect::<Vec<_>>() {
            self.release_all(granted.held, now);
            if granted.has_displaced {
                self.planning.hurry_revoked(now);
            }
        }
    }

    /// The client of a start has disconnected.
    pub(crate) fn cancel_start(&mut self, request: RequestId, now: Timestamp) {
        self.expire_granted(request);
        let mut own = None;
        for (id, admission) in &mut self.planning.admissions {
            if let Purpose::Start(starting) = &mut admission.purpose {
                starting.repeated.retain(|held| held.id != request);
                own = own.or((starting.id == request).then_some(*id));
            }
        }
        let Some(mut admission) = own.and_then(|id| self.planning.admissions.remove(&id)) else {
            return;
        };
        self.release_all(admission.held(), now);
        if admission.search.take_displaced() {
            self.planning.hurry_revoked(now);
        }
        if let Purpose::Start(starting) = admission.purpose {
            starting.repeated.into_iter().for_each(|held| self.admit(held, now));
        }
    }
}

impl Planning {
    fn note_offered(&mut self, id: InstanceId, now: Timestamp) {
        let is_over = |(until, _): &mut (Timestamp, InstanceId)| *until <= now;
        while self.offered.pop_front_if(is_over).is_some() {}
        self.offered.push_back((now + STARTS_WITHIN, id));
    }

    /// Whether an instance has a recent offer, or a promise for a start that is about to come.
    pub(super) fn is_offered_or_granted(&self, id: InstanceId) -> bool {
        self.granted.contains_key(&id) || self.offered.iter().any(|(_, one)| *one == id)
    }
}

fn has_key(admission: &Admission, key: StreamId) -> bool {
    match &admission.purpose {
        Purpose::Start(starting) => {
            starting.start.key.as_deref().is_some_and(|own| own.stream == key)
        }
        Purpose::Running { .. } => false,
    }
}

/// Whether a step is done at the home of its executor.
pub(super) fn is_anywhere(schema: &Schema, node: legwork_model::id::NodeId) -> bool {
    matches!(schema.entry_of(schema.node(node)).kind, NodeKind::Locate)
}

/// The identity of an offer to a caller for a start.
fn offer(caller: &Caller, start: &Start, version: u32) -> Offer {
    let hash = |what: &dyn Fn(&mut FxHasher)| {
        let mut hasher = FxHasher::default();
        what(&mut hasher);
        hasher.finish()
    };
    let caller_hash = hash(&|hasher| caller.name.hash(hasher));
    let process = hash(&|hasher| {
        caller.name.hash(hasher);
        (&start.process, version, &start.agent).hash(hasher);
    });
    let case = hash(&|hasher| {
        start.data.iter().for_each(|(name, value)| (name, value.to_string()).hash(hasher));
    });
    Offer { caller: caller_hash, process, case }
}

/// The deadline with all reservations held for it.
pub(super) fn promised(admission: &Admission) -> Deadline {
    let all = admission.wanted.iter().zip(admission.search.held());
    let legs = all.map(|(wanted, (planner, grant))| Leg {
        node: wanted.node,
        round: wanted.iteration.number(),
        release: grant.window.release,
        due: grant.window.due,
        takes_ms: wanted.cost.0.unsigned_abs(),
        planned: Some(Planned {
            by: performer(&grant.by),
            start: grant.start,
            end: grant.end,
            planner: *planner,
        }),
    });
    let deadline = Deadline::new(admission.search.deadline(), admission.priority);
    Deadline { legs: legs.collect(), ..deadline }
}

/// Why a deadline cannot be promised. If there is a possible date, the plan for it shows what the case waits for.
fn not_promised(
    admission: &Admission,
    earliest: Option<Timestamp>,
    deadline: &Deadline,
) -> Refusal {
    let at = deadline.at;
    let next = match (&admission.reason, earliest) {
        (Some(reason), _) => format!("{reason}. It can be started without a promise"),
        (None, Some(earliest)) => format!(
            "the earliest that can be promised is {earliest}; ask for that, or start it without a promise"
        ),
        (None, None) => match admission.wanted.get(admission.search.held().len()) {
            Some(Wanted { name, .. }) => {
                format!("nobody who could do `{name}` has time for it; start it without a promise")
            }
            None => "others were promised meanwhile; ask again, or start it without a promise"
                .to_owned(),
        },
    };
    let message = format!("it cannot be promised for {at}: {next}");
    let possible = earliest.map(|at| {
        let possible = Deadline { at, ..deadline.clone() };
        Box::new(DeadlineView::of(&admission.schema, &possible, None))
    });
    Refusal { possible, ..Refusal::new(Kind::Conflict, "deadline_not_promised", message) }
}
