//! Invariants while promises are made, and at the end.

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::event::{Event, PlanEvent, Record};
use legwork_model::id::{AgentId, InstanceId, StreamId, StreamKind};
use legwork_model::time::Timestamp;
use legwork_site::{Answer, PlanView, Request, ResourceId};

use super::Office;
use super::ledger::{Case, Told};
use super::starts::Starts;
use crate::Promises;
use crate::material::AGENTS;
use crate::world::{Reply, World};

/// People do not look at their lists all the time, and messages take a moment.
const MARGIN: i64 = 60_000;
/// How late the longest step may seem before it is given up, a sixteenth of it, and the interval of checks: in
/// working time.
const MARGIN_PLAN: i64 = 12 * 60_000 / 16 + 7_000;

fn plan(office: &mut Office, agent: &AgentId) -> Result<Option<PlanView>, String> {
    let place = office.planner_of(agent);
    plan_by(office, place, ResourceId::Person(agent.clone()), World::look)
}

fn plan_by(
    office: &mut Office,
    place: usize,
    resource: ResourceId,
    look: impl FnOnce(&mut World, Request) -> Result<Reply, String>,
) -> Result<Option<PlanView>, String> {
    let world = &mut office.worlds[place];
    if world.is_down() {
        return Ok(None);
    }
    match look(world, Request::Plan { resource })? {
        Ok(Answer::Plan(plan)) => Ok(Some(*plan)),
        Ok(other) => Err(format!("a plan is answered with {other:?}")),
        Err(refusal) if refusal.code == "elsewhere" => Ok(None),
        // It has no catalog yet.
        Err(_) if !office.is_calm_now() => Ok(None),
        Err(refusal) => Err(refusal.to_string()),
    }
}

/// Nobody does two steps at a time, and without faults every step is done before it is due.
pub(super) fn no_overlap(office: &mut Office) -> Result<(), String> {
    for agent in AGENTS.map(AgentId::from) {
        let Some(plan) = plan(office, &agent)? else { continue };
        for (turn, next) in plan.turns.iter().zip(plan.turns.iter().skip(1)) {
            if turn.to > next.from {
                return Err(format!("{agent} does two things at a time: {turn:?} {next:?}"));
            }
        }
        // A person who is slightly behind at the end of the day is so in the morning, and by no more.
        let is_late = |turn: &&legwork_site::PlannedTurn| {
            let behind = |due| office.people.work_between(&agent, due, turn.to);
            turn.due.is_some_and(|due| behind(due) > MARGIN_PLAN)
        };
        let is_calm = |turn: &&legwork_site::PlannedTurn| {
            let case = turn.instance.and_then(|id| office.ledger.cases.get(&id));
            case.is_some_and(|case| office.is_calm_for(case))
        };
        if let Some(late) = plan.turns.iter().filter(is_calm).find(is_late) {
            return Err(format!("{agent} has promised what cannot be kept: {late:?}"));
        }
    }
    Ok(())
}

/// The reservations in a person's plan.
fn reserved(plan: &PlanView) -> BTreeSet<(InstanceId, Timestamp)> {
    let firm = plan.turns.iter().filter(|turn| turn.is_firm);
    firm.filter_map(|turn| Some((turn.instance?, turn.due?))).collect()
}

/// The tasks that a person has begun, from the plan stream of a server.
fn begun(world: &World) -> Result<BTreeSet<(InstanceId, Timestamp)>, String> {
    let (mut dues, mut begun) = (BTreeMap::new(), BTreeSet::new());
    for bytes in world.records(StreamId::PLANS, 0)? {
        let record = Record::<PlanEvent>::from_bytes(&bytes).map_err(|it| it.to_string())?;
        for event in record.events {
            if let PlanEvent::Reserved(reserved) = event {
                dues.insert(reserved.task, reserved.due);
            } else if let PlanEvent::Begun(task) = event {
                begun.extend(dues.get(&task).map(|due| (task.instance, *due)));
            }
        }
    }
    Ok(begun)
}

/// The latest due date of all: tentative reservations also last until then, if their release was lost.
pub(super) fn last_due(office: &Office) -> Result<Timestamp, String> {
    let mut last = office.last_deadline;
    for world in &office.worlds {
        for bytes in world.records(StreamId::PLANS, 0)? {
            let record = Record::<PlanEvent>::from_bytes(&bytes).map_err(|it| it.to_string())?;
            for event in record.events {
                if let PlanEvent::Reserved(reserved) = event {
                    last = last.max(reserved.due);
                }
            }
        }
    }
    Ok(last)
}

/// A displacing reservation is in a plan when its planner knows that the case goes ahead: soon after the start.
/// Reservations for a revoked case are released when the attempt to promise it again fails.
fn started(office: &Office) -> BTreeSet<InstanceId> {
    let is_heard = |created: Timestamp| office.now.0 - created.0 > MARGIN;
    let started = office.ledger.cases.iter().filter(|(_, case)| {
        case.created.is_some_and(is_heard) && !case.is_unpromised_at(office.now)
    });
    started.map(|(id, _)| *id).collect()
}

/// A server recovered from its store has the same plans. It can only estimate the remaining work of begun tasks, so
/// those may be shown or not.
pub(super) fn plans_are_stored(office: &mut Office) -> Result<(), String> {
    office.ledger.read_on(&office.worlds)?;
    for place in 0..office.worlds.len() {
        let people = AGENTS.map(|agent| ResourceId::Person(agent.into()));
        let all: Vec<ResourceId> = people.into_iter().chain(office.machines.names()).collect();
        if office.worlds[place].is_down() {
            continue;
        }
        // Reservations for a pending admission are released when that is lost.
        let begun = begun(&office.worlds[place])?;
        // So are reservations for new dates that are not recorded yet.
        let (started, told) = (started(office), office.ledger.planned());
        let waiting = |plan: PlanView| {
            let waiting = &reserved(&plan) - &begun;
            let is_told =
                |it: &(InstanceId, Timestamp)| told.contains(it) && started.contains(&it.0);
            waiting.into_iter().filter(is_told).collect::<BTreeSet<_>>()
        };
        let mut before = Vec::new();
        for one in &all {
            before.push(plan_by(office, place, one.clone(), World::look)?.map(waiting));
        }
        let (fresh, _) = office.worlds[place].recovered()?;
        let running = office.worlds[place].swap_site(fresh);
        let mut after = Vec::new();
        for one in &all {
            after.push(plan_by(office, place, one.clone(), World::glance)?.map(waiting));
        }
        office.worlds[place].swap_site(running);
        if before != after {
            return Err(format!(
                "at {place} the plans of {all:?} are {before:?}, and from the store {after:?}"
            ));
        }
    }
    Ok(())
}

/// Checks everything, and reports the outcomes of the promises.
pub(super) fn all(office: &mut Office, starts: &Starts) -> Result<Promises, String> {
    office.ledger.read_on(&office.worlds)?;
    nothing_is_left(office)?;
    office.with_machines(|machines, office| machines.nothing_is_left(office))?;
    plans_are_stored(office)?;
    let ends = ends(office)?;
    let mut promises = Promises {
        promised: starts.promised,
        refused: starts.refused,
        unpromised: starts.unpromised,
        asked: starts.asked_only,
        accepted: starts.accepted,
        ..Promises::default()
    };
    for (id, case) in &office.ledger.cases {
        if case.is_answered && !case.was_promised {
            return Err(format!(
                "{id} was answered as promised, and its history knows nothing of it"
            ));
        }
        if case.created.is_some() && !case.is_aborted && !ends.contains_key(id) {
            return Err(format!("{id} was begun, and nothing of it was done"));
        }
    }
    for (id, case) in office.ledger.cases.iter().filter(|(_, case)| case.was_promised) {
        promises.revoked += usize::from(case.was_revoked());
        let is_held_up = case.is_aborted || case.was_suspended;
        let Some(end) = ends.get(id).filter(|_| !is_held_up) else { continue };
        kept_or_told(office, *id, case, *end, &mut promises)?;
    }
    Ok(promises)
}

/// When all cases are over, nobody has a reservation for one of them.
fn nothing_is_left(office: &mut Office) -> Result<(), String> {
    for agent in AGENTS.map(AgentId::from) {
        let left = plan(office, &agent)?.map(|plan| reserved(&plan)).unwrap_or_default();
        if !left.is_empty() {
            let told = left.iter().filter_map(|(id, _)| office.ledger.cases.get(id));
            let told: Vec<_> = told.map(|case| &case.told).collect();
            return Err(format!("{agent} has still reserved {left:?}: {told:?}"));
        }
    }
    Ok(())
}

/// When the last step of each instance was done, at any server.
fn ends(office: &Office) -> Result<BTreeMap<InstanceId, Timestamp>, String> {
    let mut ends = BTreeMap::new();
    for world in &office.worlds {
        for (stream, records) in world.streams()? {
            let StreamKind::Instance(id) = stream.kind() else { continue };
            for bytes in records {
                let record = Record::<Event>::from_bytes(&bytes).map_err(|it| it.to_string())?;
                if record.events.iter().any(|event| matches!(event, Event::Completed(_))) {
                    let end = ends.entry(id).or_insert(record.at);
                    *end = record.at.max(*end);
                }
            }
        }
    }
    Ok(ends)
}

fn kept_or_told(
    office: &Office,
    id: InstanceId,
    case: &Case,
    end: Timestamp,
    promises: &mut Promises,
) -> Result<(), String> {
    let Some(deadline) = &case.deadline else { return Ok(()) };
    if office.is_calm_for(case) {
        only_for_something_more_important(office, id, case)?;
    }
    if end <= deadline.at {
        promises.kept += usize::from(!case.was_revoked());
        return Ok(());
    }
    promises.late += 1;
    if case.is_unpromised_at(deadline.at) {
        return Ok(());
    }
    let is_silenced = office.is_down_at(case.place, deadline.at);
    if office.is_calm_for(case) || !case.has_passed && !is_silenced {
        let late = end.0 - deadline.at.0;
        return Err(format!(
            "{id} of {} is {late} ms late, and was promised: {deadline:?} {:?} {:?}",
            case.place, case.told, office.troubles
        ));
    }
    // It was told when the deadline passed.
    promises.excused += 1;
    Ok(())
}

/// Without faults a promise is revoked only for a more important case, and before the step is due, or for an
/// unplanned loop iteration. A displaced or longer step is done later than planned, and then another one may become
/// late.
fn only_for_something_more_important(
    office: &Office,
    id: InstanceId,
    case: &Case,
) -> Result<(), String> {
    let Some(deadline) = case.deadline.as_ref().map(|deadline| deadline.at) else { return Ok(()) };
    let all = office.ledger.cases.values().flat_map(|case| &case.told);
    let goes_on = |told: &&Told| told.reason.ends_with("once more than was planned");
    let is_more = |told: &&Told| told.reason.starts_with("displaced by a more important case");
    let is_cause = |told: &&Told| office.has_priorities && is_more(told) || goes_on(told);
    let first = all.filter(is_cause).map(|told| told.at).min();
    let revoked = case.told.iter().filter(|told| !told.is_promised && !goes_on(told));
    for told in revoked {
        if first.is_none_or(|first| told.at < first) || told.at > deadline {
            return Err(format!("{id} is not promised any more without need: {:?}", case.told));
        }
    }
    Ok(())
}

impl Office {
    pub(super) fn is_for_machines(&self, process: usize) -> bool {
        let schema = &self.processes[process].1;
        schema.nodes.iter().any(|node| node.job().is_some())
    }

    /// Whether the server that would have to report was down when a step was due: when it is up again, everybody
    /// can see that the step is late.
    fn is_down_at(&self, place: usize, due: Timestamp) -> bool {
        let mut down = self.troubles.iter().filter(|it| it.is_down && it.place == place);
        down.any(|it| it.from <= due.0 && due.0 <= it.until)
    }
}
