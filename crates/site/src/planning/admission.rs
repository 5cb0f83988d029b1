//! One admission: the search for a promise, and the questions to planners it waits for.
//!
//! Planners at other servers answer later, or never; the planner here answers at once. If several planners have
//! candidates for a step, all bid the time at which the step could be done, and the best bidder is asked to hold it.
//!
//! Invariant: an admission waits for at most one question, and every question ends, by its answers or by a timeout.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::{Deadline, Leg};
use legwork_model::id::{AgentId, InstanceId, Iteration, NodeId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_plan::{Bids, Candidate, Grant, How, Next, Offer, Search, Task, TaskId, Work};

use super::reserving::{Attempt, Reserving};
use super::starts::Starting;
use crate::Site;
use crate::planning::Planning;

/// Pause before a question is resent, and before a missing answer is given up.
const RESEND_AFTER: Duration = Duration::from_millis(500);
const GIVE_UP_AFTER: Duration = Duration::from_secs(3);
/// How long a reservation is held while the admission continues.
const HOLD_FOR: Duration = Duration::from_secs(30);
/// How often the search is restarted because a reservation was lost.
const RESTARTS_MAX: u32 = 3;

/// A step that has to be promised.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) node: NodeId,
    pub(super) iteration: Iteration,
    pub(super) name: Arc<str>,
    pub(super) cost: Work,
    /// The step is done at the home of its executor.
    pub(super) is_anywhere: bool,
}

impl Wanted {
    pub(super) fn is(&self, task: TaskId) -> bool {
        (self.node.0, self.iteration.number()) == (task.step, task.round)
    }

    /// The plan of this step in a deadline.
    pub(super) fn leg<'d>(&self, deadline: &'d Deadline) -> Option<&'d Leg> {
        let round = self.iteration.number();
        deadline.legs.iter().find(|leg| (leg.node, leg.round) == (self.node, round))
    }
}

/// The purpose of an admission.
#[derive(Debug)]
pub(super) enum Purpose {
    Start(Box<Starting>),
    /// Replans a running case for this reason: one step, or all remaining ones.
    Running {
        reason: String,
        is_one: bool,
    },
}

#[derive(Debug)]
pub(super) struct Admission {
    pub(super) search: Search,
    pub(super) wanted: Vec<Wanted>,
    pub(super) schema: Arc<Schema>,
    pub(super) starter: Option<AgentId>,
    pub(super) priority: u8,
    pub(super) offer: Option<Offer>,
    pub(super) after_fault: bool,
    pub(super) purpose: Purpose,
    /// Why the deadline cannot be promised, if not for lack of time.
    pub(super) reason: Option<String>,
    /// For each held step: the number of its question, and the candidate with its times.
    attempts: BTreeMap<TaskId, (u64, Candidate)>,
    question: Option<Question>,
    confirming: Option<Confirming>,
    is_confirmed: bool,
    restarts: u32,
}

/// A step that planners are asked about.
#[derive(Debug)]
struct Question {
    step: usize,
    task: Task,
    /// The candidates of each planner.
    planners: BTreeMap<ServerId, Vec<Candidate>>,
    attempt: u64,
    is_probe: bool,
    bids: Bids,
    /// The planner that is asked to hold the step.
    at: Option<ServerId>,
    since: Timestamp,
    resend_at: Timestamp,
}

/// Planners that have not confirmed their reservations yet.
#[derive(Debug)]
struct Confirming {
    open: BTreeMap<ServerId, Vec<Attempt>>,
    since: Timestamp,
    resend_at: Timestamp,
}

/// The result of an admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Promised,
    Refused { earliest: Option<Timestamp> },
}

/// A planner's answer to a question.
#[derive(Debug, Default)]
pub(super) struct Answered {
    pub(super) grant: Option<Grant>,
    /// When the step could be done, and the load of its performer.
    pub(super) earliest: Option<Timestamp>,
    pub(super) load: Work,
}

impl Admission {
    pub(super) fn new(
        search: Search,
        wanted: Vec<Wanted>,
        (schema, starter): (Arc<Schema>, Option<AgentId>),
        priority: u8,
        purpose: Purpose,
    ) -> Self {
        Self {
            search,
            wanted,
            schema,
            starter,
            priority,
            offer: None,
            after_fault: false,
            purpose,
            reason: None,
            attempts: BTreeMap::new(),
            question: None,
            confirming: None,
            is_confirmed: false,
            restarts: 0,
        }
    }

    pub(super) fn task_id(&self, id: InstanceId, step: usize) -> TaskId {
        let Wanted { node, iteration, .. } = &self.wanted[step];
        TaskId { instance: id, step: node.0, round: iteration.number() }
    }

    /// All reservations held, with their planners.
    pub(super) fn held(&self) -> Vec<(ServerId, Attempt)> {
        let held = self.search.held().iter();
        held.map(|(at, grant)| (*at, self.attempt(grant.task))).collect()
    }

    fn attempt(&self, task: TaskId) -> Attempt {
        let attempt = self.attempts.get(&task).map_or(0, |(attempt, _)| *attempt);
        Attempt { task, attempt }
    }

    /// Whether the result is only shown, and stays an offer.
    fn only_asks(&self) -> bool {
        match &self.purpose {
            Purpose::Start(starting) => starting.only_asks(),
            Purpose::Running { .. } => false,
        }
    }

    /// When a question is resent.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let question = self.question.as_ref().map(|question| question.resend_at);
        question.or(self.confirming.as_ref().map(|confirming| confirming.resend_at))
    }

    /// A reservation was revoked. Returns whether its step belongs to this admission.
    pub(super) fn lose_reservation(&mut self, task: Attempt) -> bool {
        if self.attempt(task.task) == task {
            self.search.lost();
            (self.question, self.confirming) = (None, None);
            self.restarts += 1;
        }
        self.wanted.iter().any(|wanted| wanted.is(task.task))
    }

    /// A planner bids the time at which a step could be done.
    fn on_bid(&mut self, from: ServerId, answer: &Answered) {
        let Some(question) = &mut self.question else { return };
        let in_time = |end: &Timestamp| question.task.due.is_none_or(|due| *end <= due);
        let end = answer.earliest.filter(in_time);
        // Of several offers the latest one in time is accepted.
        let is_accepting = is_accepting(question.task.how);
        let end = end.map(|end| if is_accepting { Timestamp(-end.0) } else { end });
        question.bids.on_bid(from, end.map(|end| (end, answer.load)));
        if !question.bids.is_complete() {
            return;
        }
        if question.is_probe {
            let earliest = question.bids.earliest();
            self.question = None;
            return self.search.probed(earliest);
        }
        self.choose();
    }

    /// Asks the best bidder to hold the step: the one that could do it first. For a step without a fixed place it is
    /// the place of the step before, if that is as early.
    fn choose(&mut self) {
        let Some(question) = &mut self.question else { return };
        let wanted = &self.wanted;
        let is_anywhere = |(_, grant): &&(ServerId, Grant)| {
            wanted.iter().any(|one| one.is_anywhere && one.is(grant.task))
        };
        let near = self.search.held().iter().rev().find(is_anywhere);
        let near = near.map(|(at, _)| *at).filter(|_| wanted[question.step].is_anywhere);
        match question.bids.best(near) {
            Some(at) => question.at = Some(at),
            None => {
                self.question = None;
                self.search.refused();
            }
        }
    }

    /// A planner holds a step, or refuses.
    fn on_hold_answer(&mut self, from: ServerId, answer: Answered) {
        let Some(question) = &mut self.question else { return };
        match answer.grant {
            Some(grant) => {
                let candidates = question.planners.get(&from).into_iter().flatten();
                let own = candidates.into_iter().find(|candidate| candidate.who == grant.by);
                let own = own.cloned().unwrap_or(Candidate::at_any_time(grant.by.clone()));
                self.attempts.insert(grant.task, (question.attempt, own));
                self.question = None;
                self.search.granted(from, grant);
            }
            None => {
                question.bids.drop_bid(from);
                question.at = None;
                self.choose();
            }
        }
    }
}

fn is_accepting(how: How) -> bool {
    matches!(how, How::Accepting | How::AcceptingAny | How::Keeping)
}

impl Planning {
    /// A number for a question, higher than all before, including those from before a restart.
    pub(super) fn next_attempt(&mut self, now: Timestamp) -> u64 {
        self.attempt = (self.attempt + 1).max(now.0.unsigned_abs());
        self.attempt
    }
}

impl Site {
    /// Continues an admission as far as answers have arrived.
    pub(super) fn continue_admission(&mut self, id: InstanceId, now: Timestamp) {
        let Some(mut admission) = self.planning.admissions.remove(&id) else { return };
        match self.advance(id, &mut admission, now) {
            None => drop(self.planning.admissions.insert(id, admission)),
            Some(outcome) => self.conclude(id, admission, outcome, now),
        }
    }

    fn conclude(&mut self, id: InstanceId, admission: Admission, what: Outcome, now: Timestamp) {
        match admission.purpose {
            Purpose::Start(_) => self.start_decided(id, admission, what, now),
            Purpose::Running { .. } => self.replan_decided(id, admission, what, now),
        }
    }

    fn advance(
        &mut self,
        id: InstanceId,
        admission: &mut Admission,
        now: Timestamp,
    ) -> Option<Outcome> {
        loop {
            if admission.reason.is_some() {
                return Some(Outcome::Refused { earliest: None });
            }
            if let Some(question) = &admission.question {
                if !question.bids.is_complete() {
                    return None;
                }
                let asked = question.at?;
                if asked != self.cluster.server_here() {
                    return None;
                }
                let attempt = question.attempt;
                let (task, hold) = self.question_for(admission, asked)?;
                let answer = self.on_ask(asked, &task, attempt, hold, now);
                admission.on_hold_answer(asked, answer);
                self.ask_chosen(admission);
                continue;
            }
            if admission.confirming.is_some() {
                return None;
            }
            match admission.search.next(|grant| self.catalog.hours_of(&grant.by, now)) {
                Next::Hold { step, release, due, how } => {
                    self.ask_for_step(id, admission, (step, release, due), Some(how), now);
                }
                Next::Probe { step, release } => {
                    self.ask_for_step(id, admission, (step, release, None), None, now);
                }
                Next::Begin if admission.restarts > RESTARTS_MAX => {
                    return Some(Outcome::Refused { earliest: None });
                }
                Next::Begin => {
                    let held = admission.held();
                    admission.search.begin_anew();
                    self.release_all(held, now);
                    if admission.search.take_displaced() {
                        self.planning.hurry_revoked(now);
                    }
                }
                Next::Found if admission.is_confirmed || admission.only_asks() => {
                    return Some(Outcome::Promised);
                }
                Next::Found => self.confirm_all(admission, now),
                Next::Refused { earliest } => return Some(Outcome::Refused { earliest }),
            }
        }
    }

    /// Asks the planners of all candidates about a step.
    fn ask_for_step(
        &mut self,
        id: InstanceId,
        admission: &mut Admission,
        (step, release, due): (usize, Timestamp, Option<Timestamp>),
        how: Option<How>,
        now: Timestamp,
    ) {
        let task = admission.task_id(id, step);
        let is_accepting = how.is_some_and(is_accepting);
        // A step that is already held keeps its performer.
        let again = admission.search.held().iter().find(|(_, grant)| grant.task == task);
        let again = again.and_then(|(at, grant)| {
            let (_, own) = admission.attempts.get(&grant.task)?;
            Some((*at, vec![own.clone()]))
        });
        let planners: BTreeMap<ServerId, Vec<Candidate>> = match again {
            Some(again) => BTreeMap::from([again]),
            None => match self.candidates(id, admission, step, release) {
                Ok(planners) => planners,
                // The candidates are not known yet, but a planner may hold an offer for the step.
                Err(_) if is_accepting => self.all_planners(),
                Err(reason) => {
                    admission.reason = Some(reason);
                    return;
                }
            },
        };
        let Wanted { name, cost, .. } = &admission.wanted[step];
        let task = Task {
            id: task,
            step: name.clone(),
            priority: admission.priority,
            release,
            due,
            cost: *cost,
            who: Vec::new(),
            how: how.unwrap_or(How::Displacing),
            after_fault: admission.after_fault,
            idle_until: (how == Some(How::Offering)).then(|| admission.search.start()),
            offer: admission.offer,
            of: admission.search.accepted(),
        };
        let is_probe = how.is_none();
        let alone = planners.keys().next().copied().filter(|_| planners.len() == 1 && !is_probe);
        let open = if alone.is_some() { Vec::new() } else { planners.keys().copied().collect() };
        let attempt = self.planning.next_attempt(now);
        admission.question = Some(Question {
            step,
            task,
            planners,
            attempt,
            is_probe,
            bids: Bids::new(open),
            at: alone,
            since: now,
            resend_at: now + RESEND_AFTER,
        });
        self.ask_all(admission, now);
        self.ask_chosen(admission);
    }

    /// Asks all planners when they could do a step; the planner here answers at once.
    fn ask_all(&mut self, admission: &mut Admission, now: Timestamp) {
        let Some(question) = &admission.question else { return };
        let here = self.cluster.server_here();
        let open: Vec<ServerId> =
            question.planners.keys().filter(|at| question.bids.waits_for(**at)).copied().collect();
        let attempt = question.attempt;
        for at in open.iter().copied().filter(|at| *at != here) {
            if let Some((task, _)) = self.question_for(admission, at) {
                self.send_reserving(
                    at,
                    Reserving::Ask { task: Box::new(task), attempt, hold_ms: None },
                );
            }
        }
        if open.contains(&here)
            && let Some((task, _)) = self.question_for(admission, here)
        {
            let answer = self.on_ask(here, &task, attempt, None, now);
            admission.on_bid(here, &answer);
        }
    }

    /// Asks the chosen planner to hold a step, if it is another server.
    fn ask_chosen(&mut self, admission: &Admission) {
        let Some(question) = &admission.question else { return };
        let Some(at) = question.at.filter(|at| *at != self.cluster.server_here()) else { return };
        if let Some((task, hold)) = self.question_for(admission, at) {
            let hold_ms = hold.map(|hold| hold.as_millis() as u64);
            let attempt = question.attempt;
            self.send_reserving(at, Reserving::Ask { task: Box::new(task), attempt, hold_ms });
        }
    }

    /// The question to one planner, with its own candidates.
    fn question_for(
        &self,
        admission: &Admission,
        at: ServerId,
    ) -> Option<(Task, Option<Duration>)> {
        let Question { task, planners, .. } = admission.question.as_ref()?;
        let who = planners.get(&at)?.clone();
        Some((Task { who, ..task.clone() }, Some(HOLD_FOR)))
    }

    /// All steps are held in time: makes the reservations firm.
    fn confirm_all(&mut self, admission: &mut Admission, now: Timestamp) {
        let mut open: BTreeMap<ServerId, Vec<Attempt>> = BTreeMap::new();
        for (at, attempt) in admission.held() {
            open.entry(at).or_default().push(attempt);
        }
        let here = self.cluster.server_here();
        if let Some(own) = open.remove(&here)
            && !self.on_confirm(here, &own, now).1.is_empty()
        {
            admission.search.lost();
            admission.restarts += 1;
            return;
        }
        admission.is_confirmed = open.is_empty();
        for (at, tasks) in &open {
            self.send_reserving(*at, Reserving::Confirm { tasks: tasks.clone() });
        }
        if !open.is_empty() {
            admission.confirming =
                Some(Confirming { open, since: now, resend_at: now + RESEND_AFTER });
        }
    }

    /// A planner answers a question.
    pub(super) fn on_answer(
        &mut self,
        from: ServerId,
        (task, attempt): (TaskId, u64),
        answer: Answered,
        now: Timestamp,
    ) {
        let id = task.instance;
        let question = self.planning.admissions.get(&id).and_then(|it| it.question.as_ref());
        let is_it = question.is_some_and(|it| it.attempt == attempt && it.task.id == task);
        let is_hold = is_it && question.is_some_and(|it| it.at == Some(from));
        if !is_hold && answer.grant.is_some() {
            // A duplicate, or an answer to a question that was given up.
            let attempt = Attempt { task, attempt };
            let admission = self.planning.admissions.get(&id);
            let is_held = admission.is_some_and(|it| it.attempt(task) == attempt)
                || self.planning.is_offered_or_granted(id)
                || self.is_planned_at(task, from);
            if !is_held {
                self.send_reserving(from, Reserving::Release { tasks: vec![attempt] });
            }
            return;
        }
        let Some(mut admission) = self.planning.admissions.remove(&id) else { return };
        if is_hold {
            admission.on_hold_answer(from, answer);
        } else if is_it {
            admission.on_bid(from, &answer);
        }
        if is_it {
            self.ask_chosen(&admission);
        }
        self.planning.admissions.insert(id, admission);
        self.continue_admission(id, now);
    }

    /// A planner has made reservations firm, or lost them.
    pub(super) fn on_confirmed(
        &mut self,
        from: ServerId,
        tasks: &[Attempt],
        lost: &[Attempt],
        now: Timestamp,
    ) {
        let ids: BTreeSet<InstanceId> =
            tasks.iter().chain(lost).map(|it| it.task.instance).collect();
        for id in ids {
            let Some(admission) = self.planning.admissions.get_mut(&id) else { continue };
            let Some(confirming) = &mut admission.confirming else { continue };
            let Some(open) = confirming.open.get_mut(&from) else { continue };
            if open.iter().any(|own| lost.contains(own)) {
                (admission.confirming, admission.restarts) = (None, admission.restarts + 1);
                admission.search.lost();
            } else {
                open.retain(|own| !tasks.contains(own));
                confirming.open.retain(|_, open| !open.is_empty());
                if confirming.open.is_empty() {
                    (admission.confirming, admission.is_confirmed) = (None, true);
                }
            }
            self.continue_admission(id, now);
        }
    }

    /// Resends unanswered questions, and gives up those that were not answered for long.
    pub(super) fn resend_questions(&mut self, now: Timestamp) {
        let due = self.planning.admissions.iter();
        let due = due.filter(|(_, it)| it.next_due().is_some_and(|due| due <= now));
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(mut admission) = self.planning.admissions.remove(&id) else { continue };
            self.resend_or_give_up(&mut admission, now);
            self.planning.admissions.insert(id, admission);
            self.continue_admission(id, now);
        }
    }

    fn resend_or_give_up(&mut self, admission: &mut Admission, now: Timestamp) {
        if let Some(confirming) = &mut admission.confirming {
            confirming.resend_at = now + RESEND_AFTER;
            if now.since(confirming.since) >= GIVE_UP_AFTER {
                (admission.confirming, admission.restarts) = (None, admission.restarts + 1);
                return admission.search.lost();
            }
            for (at, tasks) in confirming.open.clone() {
                self.send_reserving(at, Reserving::Confirm { tasks });
            }
            return;
        }
        let Some(question) = &mut admission.question else { return };
        question.resend_at = now + RESEND_AFTER;
        if now.since(question.since) < GIVE_UP_AFTER {
            self.ask_all(admission, now);
            return self.ask_chosen(admission);
        }
        question.since = now;
        let (task, attempt) = (question.task.id, question.attempt);
        match question.at {
            Some(at) => {
                self.send_reserving(
                    at,
                    Reserving::Release { tasks: vec![Attempt { task, attempt }] },
                );
                admission.on_hold_answer(at, Answered::default());
            }
            None => {
                let silent = question.planners.keys().filter(|at| question.bids.waits_for(**at));
                for at in silent.copied().collect::<Vec<_>>() {
                    admission.on_bid(at, &Answered::default());
                }
            }
        }
        self.ask_chosen(admission);
    }

    /// Releases reservations at their planners.
    pub(super) fn release_all(&mut self, held: Vec<(ServerId, Attempt)>, now: Timestamp) {
        let here = self.cluster.server_here();
        let mut others: BTreeMap<ServerId, Vec<Attempt>> = BTreeMap::new();
        for (at, attempt) in held {
            match at == here {
                true => self.on_release(here, &[attempt], now),
                false => others.entry(at).or_default().push(attempt),
            }
        }
        for (at, tasks) in others {
            self.send_reserving(at, Reserving::Release { tasks });
        }
    }
}
