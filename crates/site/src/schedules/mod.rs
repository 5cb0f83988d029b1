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

use legwork_model::event::{ScheduleEvent, SchedulePut};
use legwork_model::id::StreamId;
use legwork_model::time::Timestamp;

use self::book::{Book, Schedule, TakenUp, key};
use self::journal::shortened;
use crate::Site;
use crate::answer::{Answer, ScheduleInfo};
use crate::catalog::access::Caller;
use crate::cluster::Cluster;
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

    fn note_all(&mut self, events: &[ScheduleEvent]) {
        for event in events {
            self.book.note(event);
        }
    }
}

impl Cluster {
    /// What came of starts the registrar alone knows.
    fn may_see_schedules(&self, caller: &Caller) -> Result<(), Refusal> {
        caller.require_start()?;
        self.require_registrar()
    }
}

impl Schedules {
    /// One that was put, here or elsewhere.
    pub(crate) fn take_schedule(&mut self, said: SchedulePut, at: Timestamp) -> Result<(), String> {
        let name = said.name.clone();
        self.book.put(said, at).map_err(|why| format!("schedule `{name}`: {why}"))
    }

    pub(crate) fn drop_schedule(&mut self, name: &str) {
        self.book.remove(name);
    }

    pub(crate) fn take_pause(&mut self, name: &str, is_paused: bool, at: Timestamp) {
        self.book.pause(name, is_paused, at);
    }
}

impl Site {
    pub(crate) fn about_schedules(
        &mut self,
        caller: &Caller,
        errand: Recurring,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        match errand {
            Recurring::Put(asked) => self.put_schedule(caller, asked, now),
            Recurring::Remove { name } => self.remove_schedule(caller, name, now),
            Recurring::Pause { name, is_paused } => {
                self.pause_schedule(caller, name, is_paused, now)
            }
            Recurring::List { after, limit } => {
                self.cluster.may_see_schedules(caller)?;
                let all = self.schedules.book.list(after.as_deref()).map(info);
                let (schedules, more) = page(all, limit);
                Ok(Answer::Schedules { schedules, more })
            }
            Recurring::Show { name } => {
                self.cluster.may_see_schedules(caller)?;
                let known = self.schedules.book.named(&name);
                let known = known.ok_or_else(|| no_such_schedule(&name))?;
                Ok(Answer::Schedule(Box::new(info(known))))
            }
            Recurring::Fired(event) => self.note_fired(caller, event, now),
            Recurring::Begin { name, moment } => {
                caller.require_schedule(&name)?;
                Ok(Answer::Wanted(self.schedules.book.is_wanted(&name, moment)))
            }
            Recurring::PutOff { name, moment, reason } => {
                caller.require_schedule(&name)?;
                self.schedules.book.put_off(&name, moment, &shortened(&reason), now);
                Ok(Answer::Done)
            }
        }
    }

    /// Asks for what is due to be started.
    pub(crate) fn start_due(&mut self, now: Timestamp) {
        if !self.starts_schedules() {
            return;
        }
        while let Some(TakenUp { schedule, moment, missed }) = self.schedules.book.take_due(now) {
            let due = due(&schedule.said, moment);
            self.out.push(Output::Start(Box::new(due)));
            if let Some(missed) = missed {
                self.note_missed(missed, now);
            }
            // Else the clock of the next life could be before this moment, and a schedule that is put anew would have
            // it once more.
            if self.schedules.recorded_at < moment {
                self.keep(Vec::new(), now);
            }
        }
    }

    pub(crate) fn next_start(&self) -> Option<Timestamp> {
        self.starts_schedules().then(|| self.schedules.book.next_look()).flatten()
    }

    /// Whether this server starts what is due: one does, and when it knows what it has started before.
    fn starts_schedules(&self) -> bool {
        let has_joined = self.config.member.is_none() || self.cluster.seat.is_some();
        has_joined
            && self.cluster.require_registrar().is_ok()
            && !self.cases.loads.contains(&StreamId::SCHEDULES)
    }
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
