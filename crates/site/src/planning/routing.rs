//! A start with a deadline: every step is promised, one after the other, or none.

use std::sync::Arc;

use legwork_model::event::{Deadline, Leg as PlannedLeg, Planned};
use legwork_model::id::{AgentId, InstanceId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_org::Performers;
use legwork_promise::{Leg, Next, Promise, ResourceId, Route, Task, TaskId, Window, Work, legs};

use super::resources::{performer, work};
use super::{Granted, Site};
use crate::Held;
use crate::access::Caller;
use crate::answer::{Answer, DeadlineView};
use crate::input::{Request, RequestId, Start, Unpromised};
use crate::refusal::{Kind, Refusal};

/// How long a promise is held for an instance that is about to start.
const HELD_MS: i64 = 60_000;
/// How much longer each step is taken to take when a date is looked for that could be promised: so long it
/// can, although nobody works meanwhile.
const LEEWAY_MS: i64 = 300_000;
/// The most people who are looked at for one step.
const WHO_MAX: usize = 256;

/// A deadline that somebody wants for a start.
#[derive(Debug)]
pub struct Wish {
    pub at: Timestamp,
    /// What to do if nobody can promise it.
    pub unpromised: Unpromised,
    /// What is promised may make way for what is more important.
    pub priority: u8,
    /// Only tell whether it could be promised.
    pub ask_only: bool,
    /// What was found out about it.
    pub(crate) found: Option<Box<Deadline>>,
}

impl Wish {
    /// A deadline that is to be promised.
    pub fn new(at: Timestamp) -> Self {
        let priority = Self::PRIORITY_DEFAULT;
        Self { at, unpromised: Unpromised::default(), priority, ask_only: false, found: None }
    }

    pub const PRIORITY_DEFAULT: u8 = 5;
    pub const PRIORITY_MAX: u8 = 9;
}

/// A start whose deadline is being looked at.
#[derive(Debug)]
pub(super) struct Routing {
    id: RequestId,
    caller: Caller,
    start: Start,
    schema: Arc<Schema>,
    legs: Vec<Leg>,
    costs: Vec<Work>,
    route: Route,
    /// The window that was asked for last.
    asked: Option<Window>,
    granted: Vec<(ServerId, Promise)>,
    pass: Pass,
    /// Why it cannot be promised, if that is not for want of time.
    reason: Option<String>,
}

/// How a deadline is tried. Others make way only for what cannot be promised without that, and never for a
/// question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Plain,
    Displacing,
    /// It cannot be promised; a date is looked for that could be.
    Looking,
}

impl Routing {
    pub(super) fn promised(&mut self, at: ServerId, promise: Promise) {
        if let Some(window) = self.asked.take() {
            self.granted.push((at, promise));
            self.route.promise(window);
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        self.asked.is_none()
    }

    pub(super) fn refused(&mut self, earliest: Option<Timestamp>) {
        if self.asked.take().is_some() {
            self.route.refuse(earliest);
        }
    }

    fn priority(&self) -> u8 {
        self.start.deadline.as_ref().map_or(0, |wish| wish.priority)
    }

    /// What comes after this pass has failed; `None` if nothing does.
    fn next_pass(&self, earliest: Option<Timestamp>) -> Option<Pass> {
        let only_asks = self.start.deadline.as_ref().is_some_and(|wish| wish.ask_only);
        match self.pass {
            Pass::Plain if !only_asks && self.priority() > 0 => Some(Pass::Displacing),
            Pass::Plain => earliest.map(|_| Pass::Looking),
            Pass::Displacing => Some(Pass::Looking),
            Pass::Looking => None,
        }
    }

    /// Begins anew in another way. A date has to be good also when whoever asks has read it and asks again.
    fn begin_pass(&mut self, pass: Pass, now: Timestamp) {
        self.pass = pass;
        if pass == Pass::Looking {
            self.costs.iter_mut().for_each(|cost| cost.0 = cost.0.saturating_add(LEEWAY_MS));
        }
        let takes: Vec<i64> = self.costs.iter().map(|cost| cost.0).collect();
        let at = self.start.deadline.as_ref().map_or(now, |wish| wish.at);
        self.route = Route::new(&self.legs, &takes, now, at);
        if pass == Pass::Looking {
            self.route.begin_anew();
        }
    }

    /// The start itself, with what was found out about its deadline.
    fn found(mut self, deadline: Deadline) -> Held {
        if let Some(wish) = &mut self.start.deadline {
            wish.found = Some(Box::new(deadline));
        }
        Held { id: self.id, caller: self.caller, request: Request::Start(self.start) }
    }

    fn deadline(&self, at: Timestamp) -> Deadline {
        let all = self.legs.iter().zip(&self.costs).zip(self.route.promised()).zip(&self.granted);
        let legs = all.map(|(((leg, cost), window), (planner, promise))| PlannedLeg {
            node: leg.node,
            round: 0,
            release: window.release,
            due: window.deadline,
            takes_ms: cost.0.unsigned_abs(),
            planned: Some(Planned {
                by: performer(&promise.by),
                start: promise.times.start,
                end: promise.times.end,
                planner: *planner,
            }),
        });
        Deadline { at, legs: legs.collect() }
    }
}

/// Who did what in an instance that has not begun: those who are planned to.
struct Foreseen<'a> {
    schema: &'a Schema,
    legs: &'a [Leg],
    granted: &'a [(ServerId, Promise)],
    starter: Option<&'a AgentId>,
}

impl Performers for Foreseen<'_> {
    fn performer(&self, step: &str) -> Option<AgentId> {
        let node = self.schema.node_named(step)?.id;
        let place = self.legs.iter().position(|leg| leg.node == node)?;
        match &self.granted.get(place)?.1.by {
            ResourceId::Person(agent) => Some(agent.clone()),
            ResourceId::Executor(_) => None,
        }
    }

    fn starter(&self) -> Option<AgentId> {
        self.starter.cloned()
    }
}

impl Site {
    /// Whether it has to be found out first if a start can be promised.
    pub(crate) fn seeks_promise(start: &Start) -> bool {
        start.deadline.as_ref().is_some_and(|wish| wish.found.is_none())
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
            }
        }
    }

    fn routing(
        &self,
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
        if at <= now {
            let message = format!("the deadline {at} is not in the future; it is {now}");
            return Err(Refusal::new(Kind::Invalid, "deadline_past", message));
        }
        let legs = legs(&schema);
        let costs: Vec<Work> = legs.iter().map(|leg| self.cost(&schema, leg)).collect();
        let takes: Vec<i64> = costs.iter().map(|cost| cost.0).collect();
        let route = Route::new(&legs, &takes, now, at);
        let unknown = legs.iter().filter(|leg| leg.takes.is_none());
        let unknown: Vec<&str> = unknown.map(|leg| &*schema.node(leg.node).name).collect();
        let reason = (!unknown.is_empty()).then(|| {
            let steps = unknown.join("`, `");
            format!("nobody knows how long `{steps}` takes; say so in the definition with `takes:`")
        });
        Ok(Routing {
            id,
            caller,
            start,
            schema,
            legs,
            costs,
            route,
            asked: None,
            granted: Vec::new(),
            pass: Pass::Plain,
            reason,
        })
    }

    /// How much work a step is: what the definition says, or what was seen of it.
    fn cost(&self, schema: &Schema, leg: &Leg) -> Work {
        let said = work(leg.takes.unwrap_or_default());
        let step = schema.node(leg.node).name.clone();
        let seen = self.planning.ledger.seen.get(&(schema.process.clone(), step));
        seen.map_or(said, |seen| seen.refine(said))
    }

    /// Goes on with a start as far as answers are there.
    pub(super) fn go_on_with(&mut self, id: InstanceId, now: Timestamp) {
        loop {
            let Some(routing) = self.planning.routes.get(&id) else { return };
            if routing.asked.is_some() {
                return;
            }
            if routing.reason.is_some() {
                return self.route_refused(id, None, now);
            }
            match routing.route.next() {
                Next::Promise { leg, window } => self.ask_for_leg(id, leg, window, now),
                Next::Begin => {
                    self.release_route(id, now);
                    if let Some(routing) = self.planning.routes.get_mut(&id) {
                        routing.route.begin_anew();
                    }
                }
                Next::Promised => return self.route_promised(id, now),
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
        let who = self.who_could(routing, leg, window.release);
        let node = routing.legs[leg].node;
        let step = routing.schema.node(node).name.clone();
        let (service, priority) = (routing.costs[leg], routing.priority());
        let displaces = routing.pass == Pass::Displacing;
        who.iter().for_each(|one| self.prepare(one, now));
        let Some(routing) = self.planning.routes.get_mut(&id) else { return };
        if who.is_empty() {
            routing.reason = Some(format!("nobody is known who can do `{step}`"));
            return;
        }
        routing.asked = Some(window);
        let mut task = Task::new(TaskId::new(id, node.0), window, service, who);
        task.priority = priority;
        task.may_abort = true;
        task.displaces = displaces;
        self.plan(now, |node| node.submit(task, now));
    }

    /// Those who could do a step, as far as that can be foreseen.
    fn who_could(&self, routing: &Routing, leg: usize, from: Timestamp) -> Vec<ResourceId> {
        let node = routing.schema.node(routing.legs[leg].node);
        if let Some(job) = node.job() {
            let registry = &self.executors.registry;
            let kind = registry.offered(job);
            let doing = kind.into_iter().flat_map(|kind| registry.offering(kind));
            let named = doing.filter_map(|id| registry.get(*id)).map(|one| one.name.clone());
            return named.take(WHO_MAX).map(ResourceId::Executor).collect();
        }
        let Some(rule) = node.who() else { return Vec::new() };
        let Routing { schema, legs, granted, start, .. } = routing;
        let starter = start.agent.as_ref();
        let org = self.catalog.organisation();
        let resolved = org.resolve(rule, &Foreseen { schema, legs, granted, starter });
        let mut who: Vec<AgentId> = resolved.actors.iter().take(WHO_MAX).cloned().collect();
        // Whoever stands in for somebody who is away then can do it as well.
        let deputies = who.iter().filter_map(|agent| org.stand_in_at(agent, &resolved, from));
        let deputies: Vec<AgentId> = deputies.collect();
        who.extend(deputies);
        who.sort();
        who.dedup();
        who.into_iter().map(ResourceId::Person).collect()
    }

    fn route_promised(&mut self, id: InstanceId, now: Timestamp) {
        let Some(routing) = self.planning.routes.remove(&id) else { return };
        let Some(wish) = &routing.start.deadline else { return };
        let deadline = routing.deadline(wish.at);
        if wish.ask_only {
            let view = DeadlineView::of(&routing.schema, &deadline);
            self.unreserve(&routing.granted, now);
            return self.answer(routing.id, Ok(Answer::Deadline(Box::new(view))));
        }
        self.planning.counts.promised += 1;
        let tasks = routing.granted.iter().map(|(_, promise)| promise.task).collect();
        let granted = Granted { tasks, until: Timestamp(now.0 + HELD_MS) };
        self.planning.granted.insert(id, granted);
        self.admit(routing.found(deadline), now);
    }

    fn route_refused(&mut self, id: InstanceId, earliest: Option<Timestamp>, now: Timestamp) {
        self.release_route(id, now);
        let Some(mut routing) = self.planning.routes.remove(&id) else { return };
        let Some(wish) = &routing.start.deadline else { return };
        if wish.unpromised == Unpromised::Start && !wish.ask_only {
            self.planning.counts.unpromised += 1;
            let deadline = Deadline { at: wish.at, legs: Vec::new() };
            return self.admit(routing.found(deadline), now);
        }
        self.planning.counts.refused += u64::from(!wish.ask_only);
        let refusal = not_promised(wish.at, earliest, routing.reason.take());
        self.answer(routing.id, Err(refusal));
    }

    fn release_route(&mut self, id: InstanceId, now: Timestamp) {
        let Some(routing) = self.planning.routes.get_mut(&id) else { return };
        let granted = std::mem::take(&mut routing.granted);
        self.unreserve(&granted, now);
    }

    fn unreserve(&mut self, granted: &[(ServerId, Promise)], now: Timestamp) {
        for (_, promise) in granted {
            self.plan(now, |node| node.finish(promise.task));
        }
    }

    /// The instance that a promise was held for has started.
    pub(crate) fn promise_taken_up(&mut self, id: InstanceId) {
        self.planning.granted.remove(&id);
    }

    /// Nobody waits for a start any more.
    pub(crate) fn drop_route(&mut self, request: RequestId, now: Timestamp) {
        let own = self.planning.routes.iter().find(|(_, routing)| routing.id == request);
        if let Some(id) = own.map(|(id, _)| *id) {
            self.release_route(id, now);
            self.planning.routes.remove(&id);
        }
    }
}

fn not_promised(at: Timestamp, earliest: Option<Timestamp>, reason: Option<String>) -> Refusal {
    let next = match (&reason, earliest) {
        (Some(reason), _) => format!("{reason}, or start it without a promise"),
        (None, Some(earliest)) => {
            format!(
                "the earliest that can be promised is {earliest}; ask for that, or start it without a promise"
            )
        }
        (None, None) => {
            "somebody who has to do a step has no time for it; start it without a promise"
                .to_owned()
        }
    };
    let message = format!("it cannot be promised for {at}: {next}");
    let refusal = Refusal::new(Kind::Conflict, "deadline_not_promised", message);
    Refusal { earliest, ..refusal }
}
