//! Requests about instances as a whole: start, show, list, suspend, resume, abort, resolve incidents.

use std::sync::Arc;

use legwork_engine::{self as engine, Command, Rejection};
use legwork_model::event::Created;
use legwork_model::id::{ActivityId, InstanceId, StreamId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;

use crate::answer::{Answer, IncidentView, InstanceInfo};
use crate::cases::Cases;
use crate::cases::Page;
use crate::cases::instances::Slot;
use crate::cases::step::{broken, no_instance};
use crate::cases::summary::Summary;
use crate::cases::view;
use crate::catalog::access::Caller;
use crate::catalog::publish::as_performer;
use crate::input::{List, Request, RequestId, Resolution, Start};
use crate::output::{ClosedStream, Output};
use crate::refusal::{Kind, Refusal};
use crate::waiting::Waiting;
use crate::{Held, Site};

/// The most entries of a page of any listing.
pub(crate) const PAGE_MAX: usize = 1_000;
const REASON_BYTES_MAX: usize = 4_096;

impl Cases {
    fn info_with_result(&self, id: InstanceId) -> Result<InstanceInfo, Refusal> {
        if let Some(reason) = self.instances.broken(id) {
            return Err(broken(id, reason));
        }
        let slot = self.instances.get(id).ok_or_else(|| no_instance(id))?;
        let mut info = slot.whole_info(id);
        if slot.has_ended()
            && let Some(state) = slot.state.as_deref()
        {
            info.result = view::named(&slot.schema, state.results(&slot.schema));
        }
        Ok(info)
    }

    pub(crate) fn incidents(
        &self,
        caller: &Caller,
        limit: usize,
        after: Option<InstanceId>,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        let limit = limit.clamp(1, PAGE_MAX);
        let mut found: Vec<IncidentView> = Vec::new();
        let mut more = false;
        for (id, slot) in self.instances.with_incidents(after) {
            if found.len() >= limit {
                more = true;
                break;
            }
            // Instances with incidents are kept in memory; see `Instances::evict`.
            if let Some(state) = slot.state.as_deref() {
                found.extend(view::incidents(&slot.schema, state, id));
            }
        }
        Ok(Answer::Incidents { incidents: found, more })
    }
}

impl Site {
    pub(crate) fn start(&mut self, id: RequestId, caller: Caller, start: Start, now: Timestamp) {
        let may_start = self.may_start(&caller, &start);
        if may_start.is_ok() && self.is_locked() {
            return self.hold_start(Held { id, caller, request: Request::Start(start) });
        }
        if may_start.is_ok() && self.planning.needs_admission(&start) {
            return self.start_admission(id, caller, start, now);
        }
        let started = may_start.and_then(|()| self.start_now(&caller, &start, now));
        match started {
            Err(refusal) => self.answer(id, Err(refusal)),
            Ok(()) => self.answer_or_wait(id, start.instance, start.wait_until, Some(false), now),
        }
    }

    /// Whether the caller may start something in the given name.
    pub(crate) fn may_start(&self, caller: &Caller, start: &Start) -> Result<(), Refusal> {
        caller.require_start()?;
        // A start with a key arrives here unchecked.
        self.cluster.require_joined()?;
        if let Some(agent) = &start.agent {
            caller.require_work_as(agent)?;
            self.catalog.require_known(agent)?;
        }
        Ok(())
    }

    pub(crate) fn start_now(
        &mut self,
        caller: &Caller,
        start: &Start,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let id = start.instance;
        self.cluster.require_placed(id)?;
        if self.cases.instances.get(id).is_some() || self.cases.instances.broken(id).is_some() {
            let message = format!("there is an instance {id} already");
            return Err(Refusal::new(Kind::Conflict, "instance_exists", message));
        }
        let schema = self.schema_to_start(start)?;
        let inputs = engine::data::typed(&schema, Schema::START, &start.data)
            .map_err(|rejection| Refusal::from(&rejection))?;
        let created = Created {
            process: schema.process.clone(),
            version: schema.version,
            by: as_performer(start.agent.as_ref(), caller),
            inputs,
            deadline: start.deadline.as_ref().and_then(|wish| wish.found.clone()),
        };
        self.create(id, &schema, created, now)?;
        self.on_promised_start(id, now);
        Ok(())
    }

    /// The definition to start, if it can be started.
    pub(crate) fn schema_to_start(&self, start: &Start) -> Result<Arc<Schema>, Refusal> {
        self.context(self.clock.latest).startable(&start.process, start.version)
    }

    pub(crate) fn show(
        &mut self,
        id: RequestId,
        caller: &Caller,
        instance: InstanceId,
        wait_until: Option<Timestamp>,
        now: Timestamp,
    ) {
        match caller.require_start() {
            Err(refusal) => self.answer(id, Err(refusal)),
            Ok(()) => self.answer_or_wait(id, instance, wait_until, None, now),
        }
    }

    /// Answers at once if the instance has ended or the caller does not wait. `started` is set for a start, and says
    /// whether it was a repetition.
    pub(crate) fn answer_or_wait(
        &mut self,
        id: RequestId,
        instance: InstanceId,
        wait_until: Option<Timestamp>,
        started: Option<bool>,
        now: Timestamp,
    ) {
        let waits = self.cases.instances.get(instance).is_some_and(|slot| !slot.has_results())
            || self.migration.contents.concerns(instance);
        let waiting = Waiting::End { instance, started };
        match wait_until.filter(|&until| waits && until > now) {
            None => self.answer_end(id, &waiting),
            Some(_) if self.waiting.len() >= self.config.waiting_max => {
                self.answer(id, Err(too_many_waiting()));
            }
            Some(until) => self.waiting.park(id, until, waiting),
        }
    }

    /// Answers a request about an instance with its present state.
    pub(crate) fn answer_end(&mut self, id: RequestId, waiting: &Waiting) {
        let Waiting::End { instance, started } = waiting else { return };
        let answer = match started {
            Some(repeated) => self
                .cases
                .info_with_result(*instance)
                .map(|info| Answer::Started { instance: Box::new(info), repeated: *repeated }),
            None => self.view(*instance).map(|view| Answer::Instance(Box::new(view))),
        };
        self.answer(id, answer);
    }

    fn view(&self, id: InstanceId) -> Result<crate::answer::InstanceView, Refusal> {
        let info = self.cases.info_with_result(id)?;
        let (schema, state) = self.cases.instances.state(id).ok_or_else(|| no_instance(id))?;
        Ok(view::instance(self.cluster.seat.as_ref(), schema, state, info))
    }

    pub(crate) fn history(
        &mut self,
        id: RequestId,
        caller: &Caller,
        instance: InstanceId,
        from: u64,
        limit: usize,
    ) {
        if let Err(refusal) = caller.require_start() {
            return self.answer(id, Err(refusal));
        }
        let limit = limit.clamp(1, PAGE_MAX);
        self.cases.histories.insert(id, Page { from, limit });
        // One more record shows whether there is a next page.
        self.out.push(Output::ReadHistory { id, instance, from, limit: limit + 1 });
    }

    pub(crate) fn history_read(
        &mut self,
        id: RequestId,
        instance: InstanceId,
        first: Option<&[u8]>,
        records: &[Vec<u8>],
    ) {
        let Some(page) = self.cases.histories.remove(&id) else { return };
        let answer =
            view::history(&self.catalog, instance, first, records, page, self.cluster.seat());
        let starter = first.is_none().then(|| self.cluster.starter_of(instance)).flatten();
        let answer = answer.map_err(|refusal| refusal.at(starter));
        self.answer(id, answer);
    }

    pub(crate) fn list(&mut self, id: RequestId, caller: &Caller, mut list: List) {
        if let Err(refusal) = caller.require_start() {
            return self.answer(id, Err(refusal));
        }
        list.limit = list.limit.clamp(1, PAGE_MAX);
        let limit = list.limit;
        if list.ended {
            let is_filtered = list.process.is_some() || list.deadline;
            let limit = if is_filtered { PAGE_MAX } else { limit + 1 };
            // Streams of keys have ended too; they sort above all instances.
            let before = list.before.map_or(StreamId::KEYS, StreamId::from);
            self.cases.listings.insert(id, list);
            return self.out.push(Output::ReadClosed { id, before, limit });
        }
        let info = |(id, slot): (InstanceId, &Slot)| slot.info(id);
        let mut found: Vec<InstanceInfo> = match &list.process {
            asked if list.deadline => {
                let is_of =
                    |slot: &Slot| asked.as_ref().is_none_or(|asked| *asked == slot.schema.process);
                let due = self.cases.instances.with_deadline(list.before);
                due.filter(|(_, slot)| is_of(slot)).take(limit + 1).map(info).collect()
            }
            Some(process) => {
                let newest = self.cases.instances.newest_of(process, list.before);
                newest.take(limit + 1).map(info).collect()
            }
            None => {
                self.cases.instances.newest_first(list.before).take(limit + 1).map(info).collect()
            }
        };
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|last| last.instance);
        self.answer(id, Ok(Answer::Instances { instances: found, next }));
    }

    pub(crate) fn closed_read(&mut self, id: RequestId, streams: &[ClosedStream]) {
        let Some(List { process, deadline, limit, .. }) = self.cases.listings.remove(&id) else {
            return;
        };
        let mut found: Vec<InstanceInfo> = streams
            .iter()
            .filter_map(|closed| {
                let info = Summary::from_bytes(&closed.summary)?.info(InstanceId(closed.stream));
                let is_of = process.as_ref().is_none_or(|asked| *asked == info.process);
                (is_of && (info.deadline.is_some() || !deadline)).then_some(info)
            })
            .collect();
        // A page of a filtered listing may be short or empty although more follow: the next page begins after the last
        // stream read.
        let looked_at = streams.last().map(|last| InstanceId(last.stream));
        let next = if found.len() > limit {
            found.truncate(limit);
            found.last().map(|last| last.instance)
        } else {
            looked_at.filter(|_| (process.is_some() || deadline) && streams.len() >= PAGE_MAX)
        };
        self.answer(id, Ok(Answer::Instances { instances: found, next }));
    }

    pub(crate) fn suspend(
        &mut self,
        caller: &Caller,
        instance: InstanceId,
        reason: Option<String>,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        let reason = reason.map(|reason| bounded(reason, "reason")).transpose()?;
        self.control(instance, Command::Suspend { by: caller.performer(), reason }, now)
    }

    pub(crate) fn resume(
        &mut self,
        caller: &Caller,
        instance: InstanceId,
        reason: Option<String>,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        let reason = reason.map(|reason| bounded(reason, "reason")).transpose()?;
        self.control(instance, Command::Resume { by: caller.performer(), reason }, now)
    }

    pub(crate) fn abort(
        &mut self,
        caller: &Caller,
        instance: InstanceId,
        reason: String,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        let reason = bounded(reason, "reason")?;
        self.control(instance, Command::Abort { by: caller.performer(), reason }, now)
    }

    pub(crate) fn resolve(
        &mut self,
        caller: &Caller,
        activity: &ActivityId,
        resolution: Resolution,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        let (schema, own) = self.cases.activity(activity)?;
        let resolution = match resolution {
            Resolution::Retry => engine::Resolution::Retry,
            Resolution::Choose(answer) => {
                engine::Resolution::Choose(view::code_of(schema.node(own.node), &answer)?)
            }
            Resolution::Complete(data) => {
                let outputs = engine::data::typed(&schema, own.node, &data)
                    .map_err(|rejection| Refusal::from(&rejection))?;
                engine::Resolution::Complete(outputs)
            }
        };
        let by = caller.performer();
        self.control(activity.instance, Command::Resolve { activity: own, by, resolution }, now)
    }

    fn control(
        &mut self,
        instance: InstanceId,
        command: Command,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        if let Some(reason) = self.cases.instances.broken(instance) {
            return Err(broken(instance, reason));
        }
        self.command(instance, command, now).map(|()| Answer::Done)
    }
}

pub(crate) fn too_many_waiting() -> Refusal {
    let message = "too many requests are waiting already; ask again later or without waiting";
    Refusal::new(Kind::Exhausted, "too_many_waiting", message)
}

/// Refuses texts that would bloat the history.
pub(crate) fn bounded(text: String, what: &str) -> Result<String, Refusal> {
    if text.len() <= REASON_BYTES_MAX {
        return Ok(text);
    }
    let message = format!("the {what} has {} bytes; at most {REASON_BYTES_MAX} fit", text.len());
    Err(Refusal::new(Kind::Invalid, "text_too_long", message))
}

impl From<&Rejection> for Refusal {
    fn from(rejection: &Rejection) -> Self {
        let kind = kind_of(rejection);
        Self::new(kind, rejection.code(), rejection.to_string())
    }
}

fn kind_of(rejection: &Rejection) -> Kind {
    match rejection {
        Rejection::NoSuchActivity => Kind::NotFound,
        Rejection::NotOpen { .. }
        | Rejection::IterationOver { .. }
        | Rejection::AlreadyDone
        | Rejection::KeyReused
        | Rejection::HeldBy { .. }
        | Rejection::NotHeld { .. }
        | Rejection::NoIncident { .. }
        | Rejection::ResolutionUnfit { .. }
        | Rejection::Suspended
        | Rejection::NotSuspended
        | Rejection::Ended { .. }
        | Rejection::Elsewhere { .. }
        | Rejection::StartedElsewhere
        | Rejection::OutOfOrder { .. }
        | Rejection::NoBeginning
        | Rejection::WrongDefinition { .. } => Kind::Conflict,
        Rejection::NotAWorkItem { .. }
        | Rejection::NotAJob { .. }
        | Rejection::Answered { .. }
        | Rejection::NotAnswered { .. }
        | Rejection::AgentMissing { .. }
        | Rejection::UnknownElement { .. }
        | Rejection::NotWritten { .. }
        | Rejection::GivenTwice { .. }
        | Rejection::WrongType { .. }
        | Rejection::MissingOutput { .. }
        | Rejection::MissingInput { .. }
        | Rejection::AnswerMissing { .. }
        | Rejection::AnswerUnknown { .. }
        | Rejection::AnswerUnexpected { .. } => Kind::Invalid,
    }
}
