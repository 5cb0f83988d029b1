//! Work of people: their lists, and their operations on items.
//!
//! Nobody sees or touches an item they may not work on. Who may is decided here, by the organisation in force; whether
//! the state of the item allows the operation is decided by the engine.

use std::sync::Arc;

use legwork_engine::{self as engine, Command, Rejection};
use legwork_model::event::{Performer, RequestDigest};
use legwork_model::id::{Activity, ActivityId, AgentId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_org::{Cursor, ItemKey, ItemView, Organisation};

use crate::Site;
use crate::answer::{Answer, ItemDetail, ItemInfo, OutputInfo, WorklistView};
use crate::cases::control::{PAGE_MAX, too_many_waiting};
use crate::cases::instances::Instances;
use crate::cases::step::agent;
use crate::cases::view;
use crate::catalog::Catalog;
use crate::catalog::access::Caller;
use crate::input::{Complete, RequestId, Worklist};
use crate::planning;
use crate::refusal::{Kind, Refusal};
use crate::waiting::Waiting;
use crate::work::merged::Both;

impl Catalog {
    pub(crate) fn require_known(&self, agent: &AgentId) -> Result<(), Refusal> {
        if self.organisation_in_force()?.contains(agent) {
            return Ok(());
        }
        let what = format!(
            "agent `{agent}` in the organisation; `legwork organisation` shows who there is"
        );
        Err(Refusal::not_found("no_such_agent", what))
    }

    pub(crate) fn organisation_in_force(&self) -> Result<&Organisation, Refusal> {
        if self.published().version > 0 {
            return Ok(self.organisation());
        }
        let what = "organisation yet; publish one with `legwork deploy organisation.yaml`";
        Err(Refusal::not_found("no_organisation", what))
    }
}

impl Site {
    pub(crate) fn worklist(
        &mut self,
        id: RequestId,
        caller: &Caller,
        worklist: Worklist,
        now: Timestamp,
    ) {
        let allowed = caller
            .require_work_as(&worklist.agent)
            .and_then(|()| self.catalog.require_known(&worklist.agent));
        if let Err(refusal) = allowed {
            return self.answer(id, Err(refusal));
        }
        let is_alone = self.cluster.other_servers().next().is_none();
        let ready = if is_alone { Some(worklist) } else { self.gather(id, worklist, now) };
        if let Some(worklist) = ready {
            self.worklist_or_wait(id, worklist, now);
        }
    }

    /// Answers a request for a worklist, now or when it changes.
    pub(crate) fn worklist_or_wait(&mut self, id: RequestId, worklist: Worklist, now: Timestamp) {
        match worklist.wait_until.filter(|&until| until > now) {
            Some(_) if self.waiting.len() >= self.config.waiting_max => {
                self.answer(id, Err(too_many_waiting()));
            }
            Some(until) if !self.has_news(&worklist, now) => {
                let org = self.catalog.organisation();
                let stands_in_for = org.may_stand_in_for(&worklist.agent, now);
                self.waiting.park(id, until, Waiting::Worklist { worklist, stands_in_for });
            }
            Some(_) | None => {
                let answer = self.worklist_now(&worklist, now);
                self.answer(id, answer);
            }
        }
    }

    pub(crate) fn serve_watches(&mut self, now: Timestamp) {
        let concerned = if self.work.followers.is_empty() {
            self.work.worklists.take_concerned(self.waiting.watched())
        } else {
            let readers = Both(self.waiting.watched(), self.work.followers.watched());
            self.work.worklists.take_concerned(readers)
        };
        let moved = self.catalog.organisation().next_absence_change(self.work.watched_at);
        self.work.watched_at = now;
        // An absence began or ended: people see other items, although no item has changed.
        let has_moved = moved.is_some_and(|moment| moment <= now);
        if !self.work.followers.is_empty() {
            self.notify_followers((!has_moved).then_some(&concerned), now);
        }
        let changed_elsewhere = self.work.following.take_changed();
        let candidates = if has_moved {
            self.waiting.watches_of(self.waiting.watched())
        } else {
            self.waiting.watches_of(concerned.iter().chain(&changed_elsewhere))
        };
        for id in candidates {
            let Some(Waiting::Worklist { worklist, .. }) = self.waiting.peek(id) else { continue };
            if self.has_news(worklist, now)
                && let Some(Waiting::Worklist { worklist, .. }) = self.waiting.take(id)
            {
                let answer = self.worklist_now(&worklist, now);
                self.answer(id, answer);
            }
        }
    }

    /// Whether changes are sent to waiting requests or followers.
    pub(crate) fn has_readers(&self) -> bool {
        self.waiting.has_watches() || !self.work.followers.is_empty()
    }

    fn has_news(&self, worklist: &Worklist, now: Timestamp) -> bool {
        if let Some(merged) = self.merged_read(&worklist.agent, now) {
            let cursor = worklist.since.as_deref().and_then(|text| text.parse().ok());
            return cursor.is_none_or(|c| self.work.worklists.merged_changed_since(&merged, c));
        }
        let cursor = worklist.since.as_deref().and_then(|text| text.parse::<Cursor>().ok());
        let org = self.catalog.organisation();
        cursor.is_none_or(|cursor| {
            self.work.worklists.changed_since(org, &worklist.agent, now, cursor)
        })
    }

    pub(crate) fn worklist_now(
        &self,
        worklist: &Worklist,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let org = self.catalog.organisation_in_force()?;
        let limit = worklist.limit.clamp(1, PAGE_MAX);
        if let Some(merged) = self.merged_read(&worklist.agent, now) {
            return self.merged_now(&merged, worklist.since.as_deref(), limit);
        }
        let since = worklist.since.as_deref().map(str::parse::<Cursor>).transpose();
        let since = since.map_err(|_| bad_cursor())?;
        let delta = self.work.worklists.list(org, &worklist.agent, now, since, limit);
        Ok(Answer::Worklist(WorklistView {
            cursor: delta.cursor.to_string(),
            reset: delta.reset,
            items: delta.items.iter().map(|item| info(item, &self.cases.instances)).collect(),
            removed: delta
                .removed
                .iter()
                .map(|gone| public_name(&gone.schema, &gone.key))
                .collect(),
            more: delta.more,
            unreachable: Vec::new(),
        }))
    }

    pub(crate) fn item(
        &self,
        caller: &Caller,
        agent: &AgentId,
        activity: &ActivityId,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let (schema, own) = self.workable(caller, agent, activity, now)?;
        let key = ItemKey { instance: activity.instance, activity: own.clone() };
        let (_, state) = self
            .cases
            .instances
            .state(activity.instance)
            .ok_or_else(|| crate::cases::step::no_instance(activity.instance))?;
        let org = self.catalog.organisation_in_force()?;
        if !self.work.worklists.sees(org, agent, &key, now) {
            return Err(not_yours(agent, activity));
        }
        let item = self.work.worklists.item(&key).ok_or_else(|| not_yours(agent, activity))?;
        let on_behalf_of = self.work.worklists.on_behalf_of(org, agent, &key, now);
        let item = ItemView { key, item, on_behalf_of };
        let node = schema.node(own.node);
        let outputs = node
            .writes
            .iter()
            .map(|write| {
                let element = schema.element(write.element);
                OutputInfo {
                    element: element.name.clone(),
                    kind: element.kind,
                    optional: write.optional,
                    title: element.title.clone(),
                }
            })
            .collect();
        Ok(Answer::Item(Box::new(ItemDetail {
            info: ItemInfo {
                server: self.cluster.name_here(),
                ..info(&item, &self.cases.instances)
            },
            inputs: view::named(&schema, state.inputs(&schema, &own)),
            outputs,
            answers: view::answers(node),
        })))
    }

    pub(crate) fn claim(
        &mut self,
        caller: &Caller,
        agent: AgentId,
        activity: &ActivityId,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let (_, own) = self.workable(caller, &agent, activity, now)?;
        let key = ItemKey { instance: activity.instance, activity: own.clone() };
        if self
            .work
            .worklists
            .item(&key)
            .is_some_and(|item| item.claimed_by.as_ref() == Some(&agent))
        {
            return Ok(Answer::Done);
        }
        let command = match self.holder_to_stand_in_for(&agent, activity, &own, now) {
            // The holder is absent: their substitute takes the item over.
            true => Command::TakeOver { activity: own, by: agent },
            false => Command::Claim { activity: own, by: agent },
        };
        self.command(activity.instance, command, now).map(|()| Answer::Done)
    }

    pub(crate) fn release(
        &mut self,
        caller: &Caller,
        agent: AgentId,
        activity: &ActivityId,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let (_, own) = self.workable(caller, &agent, activity, now)?;
        let command = Command::Release { activity: own, by: agent };
        self.command(activity.instance, command, now).map(|()| Answer::Done)
    }

    pub(crate) fn delegate(
        &mut self,
        caller: &Caller,
        agent: AgentId,
        activity: &ActivityId,
        to: AgentId,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let (_, own) = self.workable(caller, &agent, activity, now)?;
        self.catalog.require_known(&to)?;
        let key = ItemKey { instance: activity.instance, activity: own.clone() };
        if !self.work.worklists.may_be_given(&to, &key) {
            let message = format!(
                "`{to}` must not do {activity}: the rule of the step excludes them; choose another"
            );
            return Err(Refusal::new(Kind::Conflict, "barred", message));
        }
        let command = Command::Delegate { activity: own, by: agent, to };
        self.command(activity.instance, command, now).map(|()| Answer::Done)
    }

    pub(crate) fn complete(
        &mut self,
        caller: &Caller,
        complete: Complete,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let Complete { agent, activity, data, answer, request } = complete;
        caller.require_work_as(&agent)?;
        if let Some(answer) = self.repeated(&agent, &activity, request, now) {
            return answer;
        }
        let (schema, own) = self.workable(caller, &agent, &activity, now)?;
        let key = ItemKey { instance: activity.instance, activity: own.clone() };
        let item = self.work.worklists.item(&key);
        let node = schema.node(own.node);
        let outputs = engine::data::typed(&schema, own.node, &data)
            .map_err(|rejection| Refusal::from(&rejection))?;
        let answer = answer.map(|answer| view::code_of(node, &answer)).transpose()?;
        let mut commands = Vec::new();
        if self.holder_to_stand_in_for(&agent, &activity, &own, now) {
            commands.push(Command::TakeOver { activity: own.clone(), by: agent.clone() });
        }
        // The begin of the work is unknown if the item was not claimed, but not before the offer.
        let started_at = item.map_or(now, |item| item.claimed_at.unwrap_or(item.offered_at));
        let by = Performer::Agent(agent.clone());
        commands.push(Command::Complete {
            activity: own,
            by,
            started_at,
            outputs,
            answer,
            request,
            channel: caller.channel,
        });
        self.commands(activity.instance, commands, now)?;
        self.planning.note_done(agent, now);
        Ok(Answer::Done)
    }

    /// The answer if an earlier request with the same key has completed the activity.
    fn repeated(
        &self,
        agent: &AgentId,
        activity: &ActivityId,
        request: Option<RequestDigest>,
        now: Timestamp,
    ) -> Option<Result<Answer, Refusal>> {
        let (_, own) = self.cases.activity(activity).ok()?;
        let key = ItemKey { instance: activity.instance, activity: own.clone() };
        if request.is_none() || self.work.worklists.item(&key).is_some() {
            return None;
        }
        let (schema, state) = self.cases.instances.state(activity.instance)?;
        let probe = Command::Complete {
            activity: own,
            by: Performer::Agent(agent.clone()),
            started_at: now,
            outputs: Vec::new(),
            answer: None,
            request,
            channel: None,
        };
        let rejection = engine::decide(schema, state, probe, now).err()?;
        if rejection == Rejection::AlreadyDone {
            return Some(Ok(Answer::Done));
        }
        (rejection == Rejection::KeyReused).then(|| Err(Refusal::from(&rejection)))
    }

    /// Whether the item is held by an absent person for whom the agent stands in.
    fn holder_to_stand_in_for(
        &self,
        agent: &AgentId,
        activity: &ActivityId,
        own: &Activity,
        now: Timestamp,
    ) -> bool {
        let key = ItemKey { instance: activity.instance, activity: own.clone() };
        let holder = self.work.worklists.item(&key).and_then(|item| item.claimed_by);
        let org = self.catalog.organisation();
        holder.is_some() && self.work.worklists.on_behalf_of(org, agent, &key, now) == holder
    }

    /// The activity, if the caller may act as the agent and the agent may work on it. Otherwise the answer is the same
    /// as for an activity that does not exist, unless the item is held by a colleague.
    fn workable(
        &self,
        caller: &Caller,
        agent: &AgentId,
        activity: &ActivityId,
        now: Timestamp,
    ) -> Result<(Arc<Schema>, Activity), Refusal> {
        caller.require_work_as(agent)?;
        self.catalog.require_known(agent)?;
        if caller.is_admin()
            && let Some(reason) = self.cases.instances.broken(activity.instance)
        {
            return Err(crate::cases::step::broken(activity.instance, reason));
        }
        // An agent without a share must not learn whether the instance or the step exists.
        let (schema, own) =
            self.cases.activity(activity).map_err(|_| not_yours(agent, activity))?;
        let key = ItemKey { instance: activity.instance, activity: own.clone() };
        let org = self.catalog.organisation_in_force()?;
        if self.work.worklists.may_work_on(org, agent, &key, now) {
            return Ok((schema, own));
        }
        // The engine gives the reason why the item is not open, to agents who may see it only.
        if self.work.worklists.item(&key).is_none()
            && let Some((_, state)) = self.cases.instances.state(activity.instance)
            && self.catalog.resolved(&schema, state, &own).actors.contains(agent)
        {
            let probe = Command::Claim { activity: own, by: agent.clone() };
            if let Err(rejection) = engine::decide(&schema, state, probe, now) {
                return Err(Refusal::from(&rejection));
            }
        }
        Err(not_yours(agent, activity))
    }
}

pub(crate) fn public_name(schema: &Schema, key: &ItemKey) -> ActivityId {
    view::activity_id(schema, key.instance, &key.activity)
}

fn not_yours(agent: &AgentId, activity: &ActivityId) -> Refusal {
    let message = format!("there is no item {activity} for `{agent}`");
    Refusal::new(Kind::NotFound, "no_such_item", message)
}

pub(crate) fn bad_cursor() -> Refusal {
    let message = "the cursor is not one this server gave; leave `since` out to begin anew";
    Refusal::new(Kind::Invalid, "bad_cursor", message)
}

/// The view of an item. Instances with a deadline are in memory.
pub(crate) fn info(item: &ItemView, instances: &Instances) -> ItemInfo {
    let leg = instances
        .state(item.key.instance)
        .and_then(|(schema, state)| planning::leg_of(schema, state, &item.key.activity));
    let planned = leg.and_then(|leg| leg.planned.as_ref());
    let schema = &item.item.schema;
    let node = schema.node(item.key.activity.node);
    ItemInfo {
        activity: public_name(schema, &item.key),
        process: schema.process.clone(),
        title: node.title.clone(),
        offered_at: item.item.offered_at,
        claimed_by: item.item.claimed_by.clone(),
        takes: node.takes,
        due: leg.map(|leg| leg.due),
        planned_for: planned.and_then(|planned| agent(&planned.by)),
        on_behalf_of: item.on_behalf_of.clone(),
        server: None,
        stale: false,
    }
}
