//! How far the search for a promise is: what was asked, what is granted, in which way it is tried.
//!
//! Answers come for the leg that was asked for last, and for legs that were granted before: whoever had
//! promised one may have to take it back while others are still asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use legwork_model::event::{Deadline, Leg as PlannedLeg, Planned};
use legwork_model::id::{AgentId, ServerId, StreamId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_org::Performers;
use legwork_promise::{Displaces, Hours, Leg, Promise, ResourceId, Route, TaskId, Window, Work};

use super::resources::performer;
use crate::Held;
use crate::access::Caller;
use crate::input::{Request, RequestId, Start, Unpromised};

/// How much more time everybody is taken to need when a date is looked for that could be promised: so long it
/// can, although nobody works meanwhile.
const LEEWAY_MS: i64 = 300_000;
/// How often all is begun anew because something that was granted is lost on the way.
const ANEW_MAX: u32 = 3;

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
        let priority = Deadline::PRIORITY_DEFAULT;
        Self { at, unpromised: Unpromised::default(), priority, ask_only: false, found: None }
    }

    /// Whether nobody has to promise it.
    pub(super) fn starts_anyway(&self) -> bool {
        self.unpromised == Unpromised::Start && !self.ask_only
    }
}

/// A start whose deadline is being looked at.
#[derive(Debug)]
pub(super) struct Routing {
    pub(super) id: RequestId,
    pub(super) caller: Caller,
    pub(super) start: Start,
    pub(super) schema: Arc<Schema>,
    pub(super) legs: Vec<Leg>,
    pub(super) costs: Vec<Work>,
    /// When those work who can do each leg.
    hours: Vec<Hours>,
    pub(super) route: Route,
    /// To which cluster each leg belongs, if to any.
    clusters: Vec<Option<usize>>,
    asking: Asking,
    /// The task that was asked for last, and in which window.
    asked: Option<(TaskId, Window)>,
    pub(super) granted: Vec<(ServerId, Promise)>,
    /// What was granted and taken back: it is tried again.
    shaken: BTreeSet<TaskId>,
    /// For how many of those that are granted room is taken, or did not have to be.
    taken: usize,
    /// Something that was granted is not any more.
    is_lost: bool,
    begun_anew: u32,
    pub(super) pass: Pass,
    /// Why it cannot be promised, if that is not for want of time.
    pub(super) reason: Option<String>,
    /// Starts under the same idempotency key: what they find depends on what comes of this one.
    pub(super) repeated: Vec<Held>,
}

/// Who is asked for a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    All,
    /// Only those where the legs before it are promised.
    Near,
    /// These have no time for it.
    NotNear,
}

/// How a deadline is tried. Others make way only for what cannot be promised without that, and never for a
/// question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Plain,
    Displacing,
    /// It cannot be promised; a date is looked for that could be.
    Looking,
}

/// What somebody wants started, and by when.
pub(super) struct Wanted {
    pub(super) id: RequestId,
    pub(super) caller: Caller,
    pub(super) start: Start,
    pub(super) schema: Arc<Schema>,
}

/// The steps that have to be promised, how much work each is, when those work who can do it, and which of them go together.
pub(super) struct Steps {
    pub(super) legs: Vec<Leg>,
    pub(super) costs: Vec<Work>,
    pub(super) hours: Vec<Hours>,
    pub(super) clusters: Vec<Option<usize>>,
}

impl Routing {
    pub(super) fn new(
        wanted: Wanted,
        Steps { legs, costs, hours, clusters }: Steps,
        now: Timestamp,
        reason: Option<String>,
    ) -> Self {
        let Wanted { id, caller, start, schema } = wanted;
        let takes: Vec<i64> = costs.iter().map(|cost| cost.0).collect();
        let at = start.deadline.as_ref().map_or(now, |wish| wish.at);
        let route = Route::new(&legs, &takes, &hours, now, at);
        Self {
            id,
            caller,
            start,
            schema,
            legs,
            costs,
            hours,
            route,
            clusters,
            asking: Asking::All,
            asked: None,
            granted: Vec::new(),
            shaken: BTreeSet::new(),
            taken: 0,
            is_lost: false,
            begun_anew: 0,
            pass: Pass::Plain,
            reason,
            repeated: Vec::new(),
        }
    }

    /// Whether it is a start under this idempotency key.
    pub(super) fn is_under(&self, key: StreamId) -> bool {
        self.start.key.as_deref().is_some_and(|own| own.stream == key)
    }

    pub(super) fn ask(&mut self, task: TaskId, window: Window) {
        self.asked = Some((task, window));
    }

    /// Where those are asked first who can do a leg: where others of its cluster are promised.
    pub(super) fn near(&self, leg: usize) -> Option<ServerId> {
        let cluster = self.clusters.get(leg).copied().flatten()?;
        let mut promised = self.granted.iter().zip(&self.clusters).rev();
        let ((at, _), _) = promised.find(|(_, of)| **of == Some(cluster))?;
        (self.pass == Pass::Plain && self.asking == Asking::All).then_some(*at)
    }

    /// Only some are asked for the next leg.
    pub(super) fn ask_near(&mut self) {
        self.asking = Asking::Near;
    }

    /// Answers the leg and its window if not all were asked for it who can do it.
    pub(super) fn promised(&mut self, at: ServerId, promise: Promise) -> Option<(usize, Window)> {
        let window = self.asked.take_if(|(task, _)| *task == promise.task).map(|(_, it)| it);
        let granted = self.granted.iter_mut().find(|(_, it)| it.task == promise.task);
        match (granted, window) {
            (Some(granted), window) => {
                self.taken += usize::from(window.is_some());
                self.shaken.remove(&promise.task);
                *granted = (at, promise);
            }
            (None, Some(window)) => {
                let asked = std::mem::replace(&mut self.asking, Asking::All);
                let near = (asked == Asking::Near).then_some((self.granted.len(), window));
                self.granted.push((at, promise));
                self.route.promise(window);
                return near;
            }
            (None, None) => {}
        }
        None
    }

    pub(super) fn refused(&mut self, task: TaskId, earliest: Option<Timestamp>) {
        let was_asked = self.asked.take_if(|(asked, _)| *asked == task).is_some();
        if self.has_granted(task) {
            self.shaken.remove(&task);
            self.is_lost = true;
        } else if was_asked && self.asking == Asking::Near {
            self.asking = Asking::NotNear;
        } else if was_asked {
            self.asking = Asking::All;
            self.route.refuse(earliest);
        }
    }

    /// What was granted is taken back: it is tried again, and what comes of it is told. Once room is being taken that is
    /// no good: what is granted again is only held, and nothing of it counts as taken. All is given back then.
    pub(super) fn withdrawn(&mut self, task: TaskId) {
        if self.has_granted(task) {
            self.shaken.insert(task);
            self.is_lost |= self.is_taking();
        }
    }

    /// Whether all legs have had room, and some of it is taken or asked for.
    fn is_taking(&self) -> bool {
        self.taken > 0 || self.asked.is_some_and(|(task, _)| self.has_granted(task))
    }

    fn has_granted(&self, task: TaskId) -> bool {
        self.granted.iter().any(|(_, promise)| promise.task == task)
    }

    pub(super) fn is_answered(&self) -> bool {
        self.asked.is_none() && self.shaken.is_empty()
    }

    /// Whether all has to begin anew, and may.
    pub(super) fn is_lost(&self) -> Option<bool> {
        self.is_lost.then_some(self.begun_anew < ANEW_MAX)
    }

    /// Whether others make way for a leg: when all legs have room. Nor do they at once for the only one: a date is looked
    /// for with it as well, and whoever wants it may hang up.
    pub(super) fn displaces(&self) -> Displaces {
        match self.pass {
            Pass::Plain | Pass::Looking => Displaces::Never,
            Pass::Displacing => Displaces::WhenTold,
        }
    }

    /// All legs have room: the next for which it is taken.
    pub(super) fn next_to_take(&self) -> Option<(TaskId, Window)> {
        let (_, promise) = self.granted.get(self.taken)?;
        let window = self.route.promised().get(self.taken)?;
        (self.displaces() == Displaces::WhenTold).then_some((promise.task, *window))
    }

    /// Everything that is asked for or granted, to be given back.
    pub(super) fn take_all(&mut self) -> Vec<TaskId> {
        (self.taken, self.is_lost, self.asking) = (0, false, Asking::All);
        self.shaken.clear();
        let asked = self.asked.take().map(|(task, _)| task);
        self.granted.drain(..).map(|(_, promise)| promise.task).chain(asked).collect()
    }

    pub(super) fn priority(&self) -> u8 {
        self.start.deadline.as_ref().map_or(0, |wish| wish.priority)
    }

    /// What comes after this pass has failed; `None` if nothing does.
    pub(super) fn next_pass(&self, earliest: Option<Timestamp>) -> Option<Pass> {
        let only_asks = self.start.deadline.as_ref().is_some_and(|wish| wish.ask_only);
        match self.pass {
            Pass::Plain if !only_asks && self.priority() > 0 => Some(Pass::Displacing),
            Pass::Plain => earliest.map(|_| Pass::Looking),
            Pass::Displacing => Some(Pass::Looking),
            Pass::Looking => None,
        }
    }

    /// The same again, since something that was granted is lost.
    pub(super) fn begin_anew(&mut self, now: Timestamp) {
        self.begun_anew += 1;
        self.route = self.route_from(now);
        if self.pass == Pass::Looking {
            self.route.begin_anew();
        }
    }

    /// Begins anew in another way. A date has to be good also when whoever asks has read it and asks again.
    pub(super) fn begin_pass(&mut self, pass: Pass, now: Timestamp) {
        self.pass = pass;
        self.route = self.route_from(now);
        if pass == Pass::Looking {
            self.route.begin_anew();
        }
    }

    fn route_from(&self, now: Timestamp) -> Route {
        let takes: Vec<i64> = self.costs.iter().map(|cost| cost.0).collect();
        let at = self.start.deadline.as_ref().map_or(now, |wish| wish.at);
        let route = Route::new(&self.legs, &takes, &self.hours, now, at);
        match self.pass {
            Pass::Plain | Pass::Displacing => route,
            Pass::Looking => route.with_leeway(LEEWAY_MS),
        }
    }

    /// How much work of a leg is promised by one of these. When a date is looked for there is more, for the time that passes
    /// meanwhile, unless whoever promises it has left that much right before it.
    pub(super) fn service(&self, leg: usize, who: &[ResourceId]) -> Work {
        let Work(cost) = self.costs[leg];
        let has_left_some = |one: &ResourceId| {
            let own = self.granted.iter().enumerate().filter(|(_, (_, it))| it.by == *one);
            own.into_iter().any(|(before, _)| self.route.is_right_behind(before, leg))
        };
        match self.pass == Pass::Looking && !who.iter().all(has_left_some) {
            true => Work(cost.saturating_add(LEEWAY_MS)),
            false => Work(cost),
        }
    }

    /// The start itself, with what was found out about its deadline, of the version for which it was.
    pub(super) fn found(mut self, deadline: Deadline) -> Held {
        self.start.version = Some(self.schema.version);
        if let Some(wish) = &mut self.start.deadline {
            wish.found = Some(Box::new(deadline));
        }
        Held { id: self.id, caller: self.caller, request: Request::Start(self.start) }
    }

    pub(super) fn deadline(&self, at: Timestamp) -> Deadline {
        let all = self.legs.iter().zip(&self.costs).zip(self.route.promised()).zip(&self.granted);
        let legs = all.map(|(((leg, cost), window), (planner, promise))| PlannedLeg {
            node: leg.node,
            round: leg.iteration.number(),
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
        Deadline { legs: legs.collect(), ..Deadline::new(at, self.priority()) }
    }
}

/// Who did what in an instance that has not begun: those who are planned to.
pub(super) struct Foreseen<'a> {
    pub(super) schema: &'a Schema,
    pub(super) legs: &'a [Leg],
    pub(super) granted: &'a [(ServerId, Promise)],
    pub(super) starter: Option<&'a AgentId>,
}

impl Performers for Foreseen<'_> {
    fn performer(&self, step: &str) -> Option<AgentId> {
        let node = self.schema.node_named(step)?.id;
        // In the latest round so far.
        let so_far = self.legs.iter().zip(self.granted);
        let (_, (_, promise)) = so_far.rev().find(|(leg, _)| leg.node == node)?;
        match &promise.by {
            ResourceId::Person(agent) => Some(agent.clone()),
            ResourceId::Executor(_) => None,
        }
    }

    fn starter(&self) -> Option<AgentId> {
        self.starter.cloned()
    }
}
