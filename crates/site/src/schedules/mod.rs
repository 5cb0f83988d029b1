//! Processes that are started again and again.
//!
//! All servers know what was said of that, since it is part of the catalog; the registrar starts them. The start of a
//! moment has an idempotency key that follows from the schedule and the moment, so it happens once, whatever
//! is asked for again after a crash. What came of each is kept in a stream of the registrar's.
//!
//! Invariant: nothing but the key keeps a moment from being started twice; the stream tells what need not be
//! tried again. When a start is asked for, a record as late as its moment is stored, so time never falls behind it.

mod book;
mod journal;
mod putting;

pub use self::book::{KEY_OF_SCHEDULE, STARTS_MAX};

use std::sync::Arc;

use legwork_model::event::SchedulePut;
use legwork_model::id::StreamId;
use legwork_model::time::Timestamp;

use self::book::{Book, Schedule, TakenUp, key};
use self::journal::shortened;
use crate::answer::{Answer, ScheduleInfo};
use crate::catalog::access::Caller;
use crate::context::{Context, Effect};
use crate::input::Recurring;
use crate::output::{Due, Output};
use crate::page;
use crate::refusal::Refusal;

#[derive(Debug, Default)]
pub(crate) struct Schedules {
    book: Book,
    /// Records of what came of starts.
    version: u64,
    /// When the last of these was written.
    recorded_at: Timestamp,
    /// How many were given up since the site came up.
    missed: u64,
}

impl Schedules {
    pub(crate) fn len(&self) -> usize {
        self.book.len()
    }

    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }

    pub(crate) fn handle(
        &mut self,
        caller: &Caller,
        request: Recurring,
        cx: Context<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        match request {
            Recurring::Put(asked) => self.put(caller, asked, cx, effects),
            Recurring::Remove { name } => self.remove(caller, name, cx, effects),
            Recurring::Pause { name, is_paused } => {
                self.pause(caller, name, is_paused, cx, effects)
            }
            Recurring::List { after, limit } => {
                may_see(caller, cx)?;
                let all = self.book.list(after.as_deref()).map(info);
                let (schedules, more) = page(all, limit);
                Ok(Answer::Schedules { schedules, more })
            }
            Recurring::Show { name } => {
                may_see(caller, cx)?;
                let known = self.book.named(&name).ok_or_else(|| no_such_schedule(&name))?;
                Ok(Answer::Schedule(Box::new(info(known))))
            }
            Recurring::Fired(event) => self.on_fired(caller, event, cx, effects),
            Recurring::Begin { name, moment } => {
                caller.require_schedule(&name)?;
                Ok(Answer::Wanted(self.book.is_wanted(&name, moment)))
            }
            Recurring::PutOff { name, moment, reason } => {
                caller.require_schedule(&name)?;
                self.book.put_off(&name, moment, &shortened(&reason), cx.now);
                Ok(Answer::Done)
            }
        }
    }

    /// A record of the catalog: a schedule was put, here or elsewhere.
    pub(crate) fn on_put(&mut self, said: SchedulePut, at: Timestamp) -> Result<(), String> {
        let name = said.name.clone();
        self.book.put(said, at).map_err(|why| format!("schedule `{name}`: {why}"))
    }

    pub(crate) fn on_removed(&mut self, name: &str) {
        self.book.remove(name);
    }

    pub(crate) fn on_paused(&mut self, name: &str, is_paused: bool, at: Timestamp) {
        self.book.pause(name, is_paused, at);
    }

    /// Asks for the starts that are due.
    pub(crate) fn settle(&mut self, cx: Context<'_>, effects: &mut Vec<Effect>) {
        if !starts_here(cx) {
            return;
        }
        while let Some(TakenUp { schedule, moment, missed }) = self.book.take_due(cx.now) {
            let due = due(&schedule.said, moment);
            effects.push(Effect::Output(Output::Start(Box::new(due))));
            if let Some(missed) = missed {
                self.missed += 1;
                self.note(missed, cx.now, effects);
            }
            // Else the clock of the next incarnation could be before this moment, and a schedule that is put anew
            // would have it once more.
            if self.recorded_at < moment {
                self.store(Vec::new(), cx.now, effects);
            }
        }
    }

    pub(crate) fn next_due(&self, cx: Context<'_>) -> Option<Timestamp> {
        starts_here(cx).then(|| self.book.next_look()).flatten()
    }
}

/// Whether this server starts what is due: the registrar does, once it has read which moments it has started before.
fn starts_here(cx: Context<'_>) -> bool {
    let has_joined = cx.config.member.is_none() || cx.cluster.seat.is_some();
    let is_read = !cx.cases.loads.contains(&StreamId::SCHEDULES);
    has_joined && is_read && cx.cluster.require_registrar().is_ok()
}

/// What came of starts only the registrar knows.
fn may_see(caller: &Caller, cx: Context<'_>) -> Result<(), Refusal> {
    caller.require_start()?;
    cx.cluster.require_registrar()
}

fn due(said: &SchedulePut, moment: Timestamp) -> Due {
    let SchedulePut { name, process, data, agent, within, .. } = said;
    Due {
        schedule: name.clone(),
        moment,
        key: key(name, moment),
        process: process.clone(),
        // It was written by us.
        data: serde_json::from_str(data).unwrap_or_default(),
        agent: agent.clone(),
        deadline: within.map(|within| {
            let ms = i64::try_from(within.ms).unwrap_or(i64::MAX);
            (Timestamp(moment.0.saturating_add(ms)), within.priority)
        }),
    }
}

fn info(schedule: &Schedule) -> ScheduleInfo {
    let SchedulePut { name, process, period, data, agent, within, by } = &schedule.said;
    ScheduleInfo {
        name: name.clone(),
        process: process.clone(),
        period: period.clone(),
        data: serde_json::from_str(data).unwrap_or_default(),
        agent: agent.clone(),
        within: *within,
        by: by.clone(),
        put_at: schedule.put_at,
        is_paused: schedule.is_paused,
        next: schedule.next(),
        last: schedule.last.clone(),
    }
}

fn no_such_schedule(name: &Arc<str>) -> Refusal {
    let what = format!("schedule `{name}`; `legwork schedules` lists them");
    Refusal::not_found("no_such_schedule", what)
}
