//! A start with a deadline: every step is promised, one after the other, or none.

use std::collections::BTreeSet;

use legwork_model::event::Deadline;
use legwork_model::id::{InstanceId, StreamId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_promise::{Leg, Next, Task, TaskId, Window, Work, legs, longest_first};

use super::resources::{AHEAD, work};
use super::search::{Routing, Steps, Wanted};
use super::who::Who;
use super::{Granted, Site};
use crate::Held;
use crate::access::Caller;
use crate::answer::{Answer, DeadlineView};
use crate::input::{RequestId, Start};
use crate::refusal::{Kind, Refusal};

/// How long a promise is held for an instance that is about to start: not as long as others wait to hear whether they have
/// to make way for it.
const HELD_MS: i64 = 5_000;

impl Site {
    /// Whether it has to be found out first if a start can be promised.
    pub(crate) fn seeks_promise(&self, start: &Start) -> bool {
        // What was granted may have been lost while the start had to wait for something else.
        let is_lost = |found: &Deadline| {
            !found.legs.is_empty() && !self.planning.granted.contains_key(&start.instance)
        };
        let wish = start.deadline.as_ref();
        wish.is_some_and(|wish| wish.found.as_deref().is_none_or(is_lost))
    }

    /// Finds out whether a start can be promised; it goes on when that is known.
    pub(crate) fn seek_promise(
        &mut self,
        id: RequestId,
        caller: Caller,
        start: Start,
        now: Timestamp,
    ) {
        let instance = start.instance;
        if self.planning.routes.contains_key(&instance) {
            let message = format!("instance {instance} is being started already");
            return self.answer(id, Err(Refusal::new(Kind::Conflict, "instance_exists", message)));
        }
        match self.routing(id, caller, start, now) {
            Err(refusal) => self.answer(id, Err(refusal)),
            Ok(routing) => {
                self.wake_planner(now);
                self.planning.routes.insert(instance, routing);
                self.go_on_with(instance, now);
                // Others may have had to make way for it.
                self.go_on_with_all(now);
            }
        }
    }

    /// Whether it is being found out if a start under this key can be promised.
    pub(crate) fn is_sought(&self, key: StreamId) -> bool {
        self.planning.routes.values().any(|routing| routing.is_under(key))
    }

    /// Another start under the same key waits for what comes of it.
    pub(crate) fn wait_for_search(&mut self, key: StreamId, held: Held) {
        let mut routes = self.planning.routes.values_mut();
        if let Some(routing) = routes.find(|routing| routing.is_under(key)) {
            routing.repeated.push(held);
        }
    }

    fn routing(
        &mut self,
        id: RequestId,
        caller: Caller,
        start: Start,
        now: Timestamp,
    ) -> Result<Routing, Refusal> {
        let schema = self.schema_to_start(&start)?;
        // Nobody's time is reserved for what cannot be started.
        legwork_engine::data::typed(&schema, Schema::START, &start.data)
            .map_err(|rejection| Refusal::from(&rejection))?;
        let at = start.deadline.as_ref().map_or(now, |wish| wish.at);
        // What was missed is started all the same.
        let is_late = at <= now;
        if is_late && !caller.is_schedule() {
            let message = format!(
                "the deadline {at} is not in the future: it is {now}; give a later one, or start it \
                 without a deadline"
            );
            return Err(Refusal::new(Kind::Invalid, "deadline_past", message));
        }
        let (last, wish) = (now + AHEAD, start.deadline.as_ref());
        if at > last && !wish.is_some_and(|wish| wish.starts_anyway()) {
            let message = format!(
                "nothing is promised for more than 400 days ahead: {last} at the latest; give an \
                 earlier one, or start it without a promise"
            );
            return Err(Refusal::new(Kind::Invalid, "deadline_too_far", message));
        }
        let costs = |legs: &[Leg]| -> Vec<Work> {
            legs.iter().map(|leg| self.cost(&schema, leg)).collect()
        };
        let legs = legs(&schema);
        let takes: Vec<i64> = costs(&legs).iter().map(|cost| cost.0).collect();
        let legs = longest_first(legs, &takes);
        let costs = costs(&legs);
        let mut seen = BTreeSet::new();
        let unknown = legs.iter().filter(|leg| leg.takes.is_none() && seen.insert(leg.node));
        let unknown: Vec<&str> = unknown.map(|leg| &*schema.node(leg.node).name).collect();
        let reason = (!unknown.is_empty()).then(|| {
            let steps = unknown.join("`, `");
            format!("nobody knows how long `{steps}` takes; say so in the definition with `takes:`")
        });
        let reason = reason.or_else(|| is_late.then(|| "it is late already".to_owned()));
        let reason = reason.or_else(|| (at > last).then(|| "it is too far ahead".to_owned()));
        let clusters = self.clusters(&schema, &legs, &costs);
        let hours = self.hours(&schema, (&legs, &costs), &start, (now, at));
        let steps = Steps { legs, costs, hours, clusters };
        Ok(Routing::new(Wanted { id, caller, start, schema }, steps, now, reason))
    }

    /// How much work a step is: what the definition says, or what was seen of it.
    fn cost(&self, schema: &Schema, leg: &Leg) -> Work {
        let said = work(leg.takes.unwrap_or_default());
        let step = schema.node(leg.node).name.clone();
        let seen = self.planning.ledger.seen.get(&(schema.process.clone(), step));
        // Nothing is done in no time.
        seen.map_or(said, |seen| seen.refine(said)).max(Work(1))
    }

    /// Goes on with a start as far as answers are there.
    pub(super) fn go_on_with(&mut self, id: InstanceId, now: Timestamp) {
        loop {
            let Some(routing) = self.planning.routes.get(&id) else { return };
            if !routing.is_answered() {
                return;
            }
            if routing.reason.is_some() {
                return self.route_refused(id, None, now);
            }
            match routing.is_lost() {
                Some(true) => {
                    self.release_route(id, now);
                    if let Some(routing) = self.planning.routes.get_mut(&id) {
                        routing.begin_anew(now);
                    }
                    continue;
                }
                Some(false) => return self.route_refused(id, None, now),
                None => {}
            }
            match routing.route.next() {
                Next::Promise { leg, window } => self.ask_for_leg(id, leg, window, now),
                Next::Begin => {
                    self.release_route(id, now);
                    if let Some(routing) = self.planning.routes.get_mut(&id) {
                        routing.route.begin_anew();
                    }
                }
                Next::Promised => match routing.next_to_take() {
                    Some((task, window)) => self.take_room(id, task, window, now),
                    None => return self.route_promised(id, now),
                },
                Next::Refused { earliest } => {
                    let Some(pass) = routing.next_pass(earliest) else {
                        return self.route_refused(id, earliest, now);
                    };
                    self.release_route(id, now);
                    if let Some(routing) = self.planning.routes.get_mut(&id) {
                        routing.begin_pass(pass, now);
                    }
                }
            }
        }
    }

    fn ask_for_leg(&mut self, id: InstanceId, leg: usize, window: Window, now: Timestamp) {
        let Some(routing) = self.planning.routes.get(&id) else { return };
        let who = self.who_could(routing, leg, window);
        let near = routing.near(leg).and_then(|place| self.at_place(&who, place));
        let is_near = near.is_some();
        let Who { all: who, only } = near.unwrap_or(who);
        let Leg { node, iteration, .. } = &routing.legs[leg];
        let round = iteration.number();
        let task = TaskId { instance: id, step: node.0, round, part: 0 };
        let step = routing.schema.node(*node).name.clone();
        let (service, priority) = (routing.service(leg, &who), routing.priority());
        let displaces = routing.displaces();
        let nobody = who.is_empty().then(|| self.why_nobody(routing.schema.node(*node)));
        who.iter().for_each(|one| self.prepare(one, now));
        let unreached = self.unreached_planner(&who);
        let Some(routing) = self.planning.routes.get_mut(&id) else { return };
        if let Some(server) = unreached {
            routing.reason = Some(format!(
                "those who can do `{step}` are planned by {server}, which cannot be reached; try again later"
            ));
            return;
        }
        if nobody.is_some() {
            routing.reason = nobody;
            return;
        }
        let mut task = Task::new(task, window, service, who);
        routing.ask(task.id, window);
        if is_near {
            routing.ask_near();
        }
        task.priority = priority;
        task.may_abort = true;
        task.displaces = displaces;
        task.only = only;
        task.step = step;
        self.submit_when_open(task, now);
    }

    /// There is room for all legs: it is taken for this one. Those who make way hear of it when the case starts.
    fn take_room(&mut self, id: InstanceId, task: TaskId, window: Window, now: Timestamp) {
        if let Some(routing) = self.planning.routes.get_mut(&id) {
            routing.ask(task, window);
        }
        self.plan(now, |node| node.take_room(task, now));
    }

    fn route_promised(&mut self, id: InstanceId, now: Timestamp) {
        let Some(mut routing) = self.planning.routes.remove(&id) else { return };
        let repeated = std::mem::take(&mut routing.repeated);
        let Some(wish) = &routing.start.deadline else { return };
        let deadline = routing.deadline(wish.at);
        if wish.ask_only {
            let view = DeadlineView::of(&routing.schema, &deadline, None);
            self.unreserve(routing.granted.iter().map(|(_, promise)| promise.task), now);
            self.answer(routing.id, Ok(Answer::Deadline(Box::new(view))));
            return self.admit_all(repeated, now);
        }
        let tasks = routing.granted.iter().map(|(_, promise)| promise.task).collect();
        let until = Timestamp(now.0 + HELD_MS);
        let granted = Granted { tasks, until, request: routing.id };
        self.planning.granted.insert(id, granted);
        self.admit(routing.found(deadline), now);
        self.admit_all(repeated, now);
    }

    /// Starts that have waited for another under the same key find what became of it.
    fn admit_all(&mut self, repeated: Vec<Held>, now: Timestamp) {
        repeated.into_iter().for_each(|held| self.admit(held, now));
    }

    fn route_refused(&mut self, id: InstanceId, earliest: Option<Timestamp>, now: Timestamp) {
        let Some(mut routing) = self.planning.routes.remove(&id) else { return };
        let repeated = std::mem::take(&mut routing.repeated);
        let Some(wish) = &routing.start.deadline else { return };
        let (starts_anyway, only_asks) = (wish.starts_anyway(), wish.ask_only);
        let without = Deadline { is_unpromised: true, ..Deadline::new(wish.at, wish.priority) };
        let refusal = not_promised(&routing, wish.at, earliest);
        let all = routing.take_all();
        self.unreserve(all.into_iter(), now);
        if starts_anyway {
            self.planning.counts.unpromised += 1;
            self.admit(routing.found(without), now);
            return self.admit_all(repeated, now);
        }
        self.planning.counts.refused += u64::from(!only_asks);
        self.answer(routing.id, Err(refusal));
        self.admit_all(repeated, now);
    }

    fn release_route(&mut self, id: InstanceId, now: Timestamp) {
        let Some(routing) = self.planning.routes.get_mut(&id) else { return };
        let all = routing.take_all();
        self.unreserve(all.into_iter(), now);
    }

    fn unreserve(&mut self, tasks: impl Iterator<Item = TaskId>, now: Timestamp) {
        for task in tasks {
            self.plan(now, |node| node.finish(task));
        }
    }

    /// The instance that a promise was held for has started: those who make way for it hear of it now.
    pub(crate) fn promise_taken_up(&mut self, id: InstanceId, now: Timestamp) {
        let Some(granted) = self.planning.granted.remove(&id) else { return };
        self.planning.counts.promised += 1;
        self.plan(now, |node| node.go_ahead(granted.tasks.into_iter(), now));
    }

    /// A start is refused although it was promised, or nobody wants it any more: what was promised is given back when all
    /// that is due is done, before anybody makes way for it.
    pub(crate) fn give_granted_up(&mut self, request: RequestId) {
        let own = self.planning.granted.values_mut().filter(|granted| granted.request == request);
        own.for_each(|granted| granted.until = self.latest);
    }

    /// Nobody waits for a start any more.
    pub(crate) fn drop_route(&mut self, request: RequestId, now: Timestamp) {
        self.give_granted_up(request);
        for routing in self.planning.routes.values_mut() {
            routing.repeated.retain(|held| held.id != request);
        }
        let own = self.planning.routes.iter().find(|(_, routing)| routing.id == request);
        if let Some(id) = own.map(|(id, _)| *id) {
            self.release_route(id, now);
            let routing = self.planning.routes.remove(&id);
            self.admit_all(routing.map_or_else(Vec::new, |it| it.repeated), now);
        }
    }
}

/// Why it cannot be promised. If there is a date for which it can, all steps have room for that, and who would do
/// what when tells what it waits for.
fn not_promised(routing: &Routing, at: Timestamp, earliest: Option<Timestamp>) -> Refusal {
    let next = match (&routing.reason, earliest) {
        (Some(reason), _) => format!("{reason}. It can be started without a promise"),
        (None, Some(earliest)) => {
            format!(
                "the earliest that can be promised is {earliest}; ask for that, or start it without a promise"
            )
        }
        (None, None) => match routing.legs.get(routing.granted.len()) {
            Some(leg) if routing.is_lost().is_none() => {
                let step = &routing.schema.node(leg.node).name;
                format!("nobody who could do `{step}` has time for it; start it without a promise")
            }
            _ => "others were promised meanwhile; ask again, or start it without a promise"
                .to_owned(),
        },
    };
    let message = format!("it cannot be promised for {at}: {next}");
    let possible = earliest.map(|at| {
        let deadline = routing.deadline(at);
        Box::new(DeadlineView::of(&routing.schema, &deadline, None))
    });
    let refusal = Refusal::new(Kind::Conflict, "deadline_not_promised", message);
    Refusal { possible, ..refusal }
}
