//! Commands on one instance: decide, record, and derive the effects.
//!
//! A rejection changes nothing. A panic inside the engine is a fault of one instance, not a reason to stop the site:
//! the instance is quarantined with the reason and stays unchanged in the store.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use legwork_engine::{
    self as engine, Change, Command, Decision, Here, Lifecycle, NodeState, Rejection, State,
};
use legwork_model::event::{Created, Event, Incident, Order, Orders, Parcel, Performer};
use legwork_model::id::{Activity, ActivityId, AgentId, InstanceId};
use legwork_model::rule::Rule;
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_org::{ItemKey, Performers, Resolved};

use crate::Site;
use crate::cases::Cases;
use crate::cases::instances::Slot;
use crate::cases::summary::Summary;
use crate::catalog::Catalog;
use crate::cluster::seat::Standing;
use crate::jobs::demand::{Demanded, demanded};
use crate::jobs::{JobKey, Offer};
use crate::output::{Append, Output};
use crate::planning::promised_for;
use crate::refusal::{Kind, Refusal};

/// A larger state is not stored as a snapshot.
const SNAPSHOT_BYTES_MAX: usize = 1 << 20;

impl Catalog {
    /// The agents who may do an activity under the organisation in force.
    pub(crate) fn resolved(&self, schema: &Schema, state: &State, activity: &Activity) -> Resolved {
        let org = self.organisation();
        let nobody = Rule::Any(Vec::new());
        let who = schema.node(activity.node).who().unwrap_or(&nobody);
        org.resolve(who, &History { schema, state: Some(state) })
    }
}

impl Cases {
    /// The activity named by an id, in an instance that is in memory.
    pub(crate) fn activity(&self, id: &ActivityId) -> Result<(Arc<Schema>, Activity), Refusal> {
        let (schema, _) =
            self.instances.state(id.instance).ok_or_else(|| no_instance(id.instance))?;
        let node = schema.node_named(&id.step).ok_or_else(|| {
            let what = format!("step `{}` in process `{}`", id.step, schema.process);
            Refusal::not_found("no_such_activity", what)
        })?;
        Ok((schema.clone(), Activity { node: node.id, iteration: id.iteration.clone() }))
    }
}

impl Site {
    /// Starts an instance.
    pub(crate) fn create(
        &mut self,
        id: InstanceId,
        schema: &Arc<Schema>,
        created: Created,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let decided = guarded(|| engine::create_at(&self.standing(id), schema, created, now));
        self.begin_with(id, schema, decided, now)
    }

    /// Records the beginning of an instance here, if the engine has accepted it.
    pub(crate) fn begin_with(
        &mut self,
        id: InstanceId,
        schema: &Arc<Schema>,
        decided: Result<Result<Decision, Rejection>, String>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let decision = decided
            .map_err(|reason| {
                let refusal = broken(id, &reason);
                self.out.push(Output::Broken { instance: id, reason });
                refusal
            })?
            .map_err(|rejection| Refusal::from(&rejection))?;
        let decision = self.with_actors(id, schema, decision, now);
        let mut decision = self.with_departures(id, schema, None, decision, now);
        let record = self.record_of(&mut decision, 0, 0, now)?;
        let slot = Slot::new(schema.clone(), 0, decision.state.clone());
        self.cases.instances.insert(id, slot);
        self.commit(id, decision, record, now);
        Ok(())
    }

    /// Carries out a command on an instance that is in memory.
    pub(crate) fn command(
        &mut self,
        id: InstanceId,
        command: Command,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        self.commands(id, vec![command], now)
    }

    /// Carries out commands in order, all or none of them, in one record.
    pub(crate) fn commands(
        &mut self,
        id: InstanceId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        self.pass_before(id, &commands, now);
        self.record_commands(id, commands, now)
    }

    /// Like `commands`, without checking for a passed deadline first.
    pub(crate) fn record_commands(
        &mut self,
        id: InstanceId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let (decision, record) = self.decide(id, commands, now)?;
        self.commit(id, decision, record, now);
        Ok(())
    }

    /// Refuses what `command` would refuse, and changes nothing.
    pub(crate) fn require_fit(
        &mut self,
        id: InstanceId,
        command: Command,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        self.decide(id, vec![command], now).map(drop)
    }

    /// The decision on commands, and its record.
    fn decide(
        &mut self,
        id: InstanceId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<(Decision, Vec<u8>), Refusal> {
        let Some(slot) = self.cases.instances.get(id) else { return Err(no_instance(id)) };
        let Some(state) = slot.state.as_deref() else { return Err(no_instance(id)) };
        let (schema, version, data) = (slot.schema.clone(), slot.version, state.data_bytes());
        let decided = guarded(|| {
            let decision = decide_all(&self.standing(id), &schema, state, commands, now)?;
            let decision = self.with_actors(id, &schema, decision, now);
            Ok(self.with_departures(id, &schema, Some(state), decision, now))
        });
        match decided {
            Ok(Ok(mut decision)) => {
                let record = self.record_of(&mut decision, version, data, now)?;
                Ok((decision, record))
            }
            Ok(Err(rejection)) => Err(Refusal::from(&rejection)),
            Err(reason) => {
                self.quarantine(id, reason.clone());
                Err(broken(id, &reason))
            }
        }
    }

    /// Raises an incident, in the same record, for every newly activated activity that nobody can do.
    pub(crate) fn with_actors(
        &self,
        id: InstanceId,
        schema: &Schema,
        mut decision: Decision,
        now: Timestamp,
    ) -> Decision {
        for activity in came_up(schema, &decision) {
            let Some(who) = schema.node(activity.node).who() else { continue };
            if !self.standing(id).controls(schema, &decision.state, activity.node) {
                continue;
            }
            if !self.catalog.resolved(schema, &decision.state, &activity).actors.is_empty() {
                continue;
            }
            let incident = Incident::NobodyCanDoIt { rule: who.to_string() };
            let raise = Command::Raise { activity, incident };
            // A rejected raise means that the activity is no longer open.
            self.add_command(id, schema, &mut decision, raise, now);
        }
        decision
    }

    /// Adds one more command to a decision. A rejected command does not apply.
    pub(crate) fn add_command(
        &self,
        id: InstanceId,
        schema: &Schema,
        decision: &mut Decision,
        command: Command,
        now: Timestamp,
    ) {
        let standing = self.standing(id);
        if let Ok(next) = engine::decide_at(&standing, schema, &decision.state, command, now) {
            decision.events.extend(next.events);
            decision.changes.extend(next.changes);
            decision.state = next.state;
        }
    }

    /// This server as the engine sees it when it decides about an instance.
    pub(crate) fn standing(&self, id: InstanceId) -> Standing<'_> {
        match &self.cluster.seat {
            Some(seat) => Standing::Among(seat.at(id), &self.executors),
            None => Standing::Alone,
        }
    }

    pub(crate) fn commit(
        &mut self,
        id: InstanceId,
        decision: Decision,
        record: Vec<u8>,
        now: Timestamp,
    ) {
        let Decision { events: _, state, changes } = decision;
        let lifecycle = state.lifecycle();
        let Some(slot) = self.cases.instances.get(id) else { return };
        // The instance stays in memory until all servers have acknowledged its end and its results are here.
        let lacks_files = self.lacks_result_files(id, &slot.schema, &state);
        let has_results = state.has_results(&slot.schema) && !lacks_files;
        let is_over = state.is_over(&slot.schema) && !lacks_files;
        let Some((slot, was)) = self.cases.instances.install(id, state) else { return };
        let has_just_ended = lifecycle.has_ended() && slot.ended_at.is_none();
        if has_just_ended {
            // It may have ended at another server, and earlier.
            let ended = slot.state.as_deref().and_then(State::ended_at);
            slot.ended_at = Some(ended.unwrap_or(now));
        }
        let close = is_over.then(|| Summary::of(slot).to_bytes());
        self.entailed.add_append(record.len());
        self.cluster.watching.written += 1;
        let append = Append { stream: id.0, expected: slot.version, record, close };
        slot.version += 1;
        self.out.push(Output::Append(append));
        if !is_over && slot.version.is_multiple_of(self.config.snapshot_every) {
            self.snapshot(id);
        }
        self.cases.instances.touch(id);
        self.update_work(id, &changes, was, now);
        if has_just_ended {
            self.count_end(id);
        }
        self.follow_plan(id, now);
        if has_results {
            self.answer_end_of(id);
        }
        if is_over {
            self.migration.fetching.end(id);
            self.migration.contents.forget(id);
            self.migration.arrivals.forget(id);
            self.cases.ended.push(id);
        } else {
            self.dispatch(id, now);
            self.fetch_lacking(id, now);
            self.fetch_contents(id, now);
        }
    }

    fn snapshot(&mut self, id: InstanceId) {
        if let Some(slot) = self.cases.instances.get(id)
            && let Some(state) = slot.state.as_deref()
        {
            let bytes = state.to_bytes();
            // A large state is cheaper to replay than to write again and again.
            if bytes.len() <= SNAPSHOT_BYTES_MAX && self.entailed.has_room_for(bytes.len()) {
                self.entailed.add_snapshot(bytes.len());
                self.out.push(Output::Snapshot { stream: id.0, version: slot.version, bytes });
            }
        }
    }

    /// Updates worklists and jobs after changes.
    fn update_work(&mut self, id: InstanceId, changes: &[Change], was: Lifecycle, now: Timestamp) {
        let Some(slot) = self.cases.instances.get(id) else { return };
        let (schema, is) = (slot.schema.clone(), slot.lifecycle);
        if was != is && is == Lifecycle::Suspended {
            return self.withdraw_idle(id, &schema);
        }
        if was == Lifecycle::Suspended && is == Lifecycle::Running {
            return self.offer_open(id, now);
        }
        for change in changes {
            self.update_activity(id, &schema, &change.activity, now);
        }
    }

    /// Updates the item or job of one activity by its state.
    fn update_activity(
        &mut self,
        id: InstanceId,
        schema: &Arc<Schema>,
        activity: &Activity,
        now: Timestamp,
    ) {
        let Some((_, state)) = self.cases.instances.state(id) else { return };
        if !self.is_ready(id, schema, state, activity) {
            return;
        }
        let current = state.activity(schema, activity.node) == *activity;
        let node_state =
            if current { state.node_state(activity.node) } else { NodeState::Completed };
        let offered = state.lifecycle() == Lifecycle::Running;
        let node = schema.node(activity.node);
        if let Some(job) = node.job() {
            let key = JobKey { instance: id, activity: activity.clone() };
            let can_begin =
                self.jobs.contains(&key) || self.has_contents(id, schema, state, activity);
            if node_state == NodeState::Activated && offered && can_begin {
                let open = state.open_at(schema, activity.node);
                let Demanded { size, priority, .. } = demanded(schema, state, activity);
                let since = open.as_ref().map_or(now, |open| open.since);
                let offer = Offer {
                    job: job.clone(),
                    process: schema.process.clone(),
                    priority,
                    size,
                    since,
                    not_before: open.and_then(|open| open.retry_at),
                    promised: promised_for(schema, state, activity),
                };
                self.open_job(key, offer, now);
            } else if node_state != NodeState::Activated {
                self.close_job(&key);
            }
        } else if node.who().is_some() {
            let key = ItemKey { instance: id, activity: activity.clone() };
            match node_state {
                NodeState::Activated if offered => {
                    if self.work.worklists.item(&key).is_some() {
                        self.work.worklists.release(&key);
                    } else if self.has_contents(id, schema, state, activity) {
                        let resolved = self.catalog.resolved(schema, state, activity);
                        self.work.worklists.offer(&key, schema, &resolved, now);
                    }
                }
                NodeState::Activated => {}
                NodeState::Selected => {
                    let open = state.open_at(schema, activity.node);
                    if let Some(holder) = open.and_then(|open| open.claimed_by) {
                        self.work.worklists.claim(&key, holder, now);
                    }
                }
                NodeState::NotActivated
                | NodeState::Completed
                | NodeState::Skipped
                | NodeState::Failed => {
                    self.work.worklists.withdraw(&key);
                }
            }
        }
    }

    /// Offers everything open in an instance: after a start, a resumption, or a new organisation.
    pub(crate) fn offer_open(&mut self, id: InstanceId, now: Timestamp) {
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let schema = schema.clone();
        let suspended = state.lifecycle() == Lifecycle::Suspended;
        let mut jobs = Vec::new();
        let mut is_stale = false;
        for open in state.open(&schema) {
            if !self.is_ready(id, &schema, state, &open.activity) {
                continue;
            }
            if schema.node(open.activity.node).who().is_none() {
                jobs.push(open.activity);
                continue;
            }
            let resolved = self.catalog.resolved(&schema, state, &open.activity);
            // An organisation was published, and the server crashed before it was applied to this instance.
            let nobody = matches!(open.incident, Some(Incident::NobodyCanDoIt { .. }));
            is_stale |= nobody != resolved.actors.is_empty() && open.claimed_by.is_none();
            if open.state == NodeState::Failed || (suspended && open.claimed_by.is_none()) {
                continue;
            }
            // Everything a claimed item reads was here when the item was offered.
            if open.claimed_by.is_none() && !self.has_contents(id, &schema, state, &open.activity) {
                continue;
            }
            let key = ItemKey { instance: id, activity: open.activity };
            self.work.worklists.offer(&key, &schema, &resolved, open.since);
            if let Some(holder) = open.claimed_by {
                self.work.worklists.claim(&key, holder, open.claimed_at.unwrap_or(open.since));
            }
        }
        if is_stale {
            self.work.stale.push_back(id);
        }
        for activity in jobs {
            // A leased job is not offered to other workers.
            let key = JobKey { instance: id, activity };
            if !self.jobs.is_leased(&key) {
                self.update_activity(id, &schema, &key.activity, now);
            }
        }
    }

    /// Whether an activity is controlled here and all values it reads are here.
    fn is_ready(
        &self,
        id: InstanceId,
        schema: &Schema,
        state: &State,
        activity: &Activity,
    ) -> bool {
        self.standing(id).controls(schema, state, activity.node)
            && state.lacking(schema, activity).is_empty()
    }

    /// Withdraws items and jobs that nobody has begun; claimed items and leased jobs may still be finished.
    fn withdraw_idle(&mut self, id: InstanceId, schema: &Arc<Schema>) {
        let Some((_, state)) = self.cases.instances.state(id) else { return };
        let unclaimed = state.open(schema).filter(|open| open.claimed_by.is_none());
        let idle: Vec<Activity> = unclaimed.map(|open| open.activity).collect();
        for activity in idle {
            if schema.node(activity.node).job().is_some() {
                let key = JobKey { instance: id, activity };
                if !self.jobs.is_leased(&key) {
                    self.close_job(&key);
                }
            } else {
                self.work.worklists.withdraw(&ItemKey { instance: id, activity });
            }
        }
    }

    fn open_job(&mut self, key: JobKey, offer: Offer, now: Timestamp) {
        let instance = key.instance;
        if !self.jobs.contains(&key)
            && let Some(slot) = self.cases.instances.get_mut(instance)
        {
            slot.jobs += 1;
        }
        self.jobs.open(key, offer, now);
    }

    pub(crate) fn close_job(&mut self, key: &JobKey) {
        if self.jobs.contains(key) {
            self.jobs.close(key);
            self.on_job_closed(key);
            if let Some(slot) = self.cases.instances.get_mut(key.instance) {
                slot.jobs -= 1;
            }
        }
    }

    /// Answers the requests that wait for the end of an instance.
    pub(crate) fn answer_end_of(&mut self, id: InstanceId) {
        for (request, waiting) in self.waiting.take_for(id) {
            self.answer_end(request, &waiting);
        }
    }

    fn quarantine(&mut self, id: InstanceId, reason: String) {
        if let Some((schema, state)) = self.cases.instances.state(id) {
            let schema = schema.clone();
            let open: Vec<Activity> = state.open(&schema).map(|open| open.activity).collect();
            for activity in open {
                self.close_job(&JobKey { instance: id, activity: activity.clone() });
                self.work.worklists.withdraw(&ItemKey { instance: id, activity });
            }
        }
        self.isolate(id, reason);
    }

    /// Isolates an instance: it stays unchanged in the store.
    pub(crate) fn isolate(&mut self, id: InstanceId, reason: String) {
        self.out.push(Output::Broken { instance: id, reason: reason.clone() });
        self.migration.contents.forget(id);
        self.cases.instances.mark_broken(id, reason);
    }
}

/// The history as the assignment language sees it; `state: None` if it is not in memory.
pub(crate) struct History<'a> {
    pub(crate) schema: &'a Schema,
    pub(crate) state: Option<&'a State>,
}

impl Performers for History<'_> {
    fn performer(&self, step: &str) -> Option<AgentId> {
        let node = self.schema.node_named(step)?;
        agent(self.state?.performer(node.id)?)
    }

    fn starter(&self) -> Option<AgentId> {
        agent(self.state?.starter())
    }
}

pub(crate) fn agent(performer: &Performer) -> Option<AgentId> {
    match performer {
        Performer::Agent(agent) => Some(agent.clone()),
        Performer::System | Performer::Worker(_) | Performer::Executor(_) => None,
    }
}

/// The activities that a decision activates. Those activated or withdrawn during a suspension are offered when the
/// instance is resumed.
fn came_up(schema: &Schema, decision: &Decision) -> Vec<Activity> {
    let is_order =
        |parcel: &Parcel| matches!(parcel, Parcel::Order(Order { what: Orders::Resume, .. }));
    let resumes = |event: &Event| {
        matches!(event, Event::Resumed { .. })
            || matches!(event, Event::Received(received) if is_order(&received.parcel))
    };
    if decision.events.iter().any(resumes) {
        let open = decision.state.open(schema).filter(|open| open.offered);
        return open.map(|open| open.activity).collect();
    }
    let activated = decision.changes.iter().filter(|change| change.to == NodeState::Activated);
    activated.map(|change| change.activity.clone()).collect()
}

fn decide_all(
    here: &dyn Here,
    schema: &Schema,
    state: &State,
    commands: Vec<Command>,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let mut all: Option<Decision> = None;
    for command in commands {
        let before = all.as_ref().map_or(state, |decision| &decision.state);
        let mut next = engine::decide_at(here, schema, before, command, now)?;
        if let Some(mut earlier) = all.take() {
            earlier.events.append(&mut next.events);
            earlier.changes.append(&mut next.changes);
            (next.events, next.changes) = (earlier.events, earlier.changes);
        }
        all = Some(next);
    }
    all.ok_or(Rejection::NoSuchActivity)
}

/// Runs the engine and turns a panic into a reason.
pub(crate) fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    // The engine only borrows the state, so a panic leaves nothing half-changed.
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        text.unwrap_or("the engine panicked").to_owned()
    })
}

pub(crate) fn broken(id: InstanceId, reason: &str) -> Refusal {
    let message = format!(
        "{id} cannot be carried on and is left as it is stored: {reason}; please report this"
    );
    Refusal::new(Kind::Broken, "instance_broken", message)
}

pub(crate) fn no_instance(id: InstanceId) -> Refusal {
    Refusal::not_found("no_such_instance", format!("instance {id}"))
}
