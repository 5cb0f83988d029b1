//! Schedules are put, paused and removed.
//!
//! Invariant: a repeated request changes nothing, so a script can send it whenever it runs. Only the owner of a schedule or
//! an admin may change it. A schedule whose case could not be started now is refused.

use std::ops::RangeInclusive;
use std::sync::Arc;

use legwork_engine::{self as engine, Everywhere};
use legwork_model::event::{Created, Deadline, Period, SchedulePut, SiteEvent, Within};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_org::Timetable;

use super::book::timetable;
use super::{Schedules, no_such_schedule};
use crate::answer::Answer;
use crate::catalog::access::Caller;
use crate::catalog::publish::as_performer;
use crate::context::{Context, Effect};
use crate::input::PutSchedule;
use crate::refusal::{Kind, Refusal};

const NAME_BYTES_MAX: usize = 64;
const DATA_BYTES_MAX: usize = 64 << 10;
const CRON_BYTES_MAX: usize = 256;
const DAY_MS: u64 = 86_400_000;
const EVERY_MS: RangeInclusive<u64> = 1_000..=366 * DAY_MS;
/// No further than anything is promised.
const WITHIN_MS: RangeInclusive<u64> = 1_000..=400 * DAY_MS;
/// How many schedules there may be.
const SCHEDULES_MAX: usize = 10_000;

impl Schedules {
    pub(super) fn put(
        &mut self,
        caller: &Caller,
        asked: PutSchedule,
        cx: Context<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        caller.require_start()?;
        cx.cluster.require_registrar()?;
        check(&asked, cx.now)?;
        if let Some(agent) = &asked.agent {
            caller.require_work_as(agent)?;
            cx.catalog.require_known(agent)?;
        }
        require_startable(caller, &asked, cx)?;
        let PutSchedule { name, process, period, data, agent, within } = asked;
        let data = serde_json::to_string(&data).unwrap_or_default();
        if data.len() > DATA_BYTES_MAX {
            let message = format!(
                "the data has {} bytes, at most {DATA_BYTES_MAX} are kept for each start; give less",
                data.len()
            );
            return Err(bad(message));
        }
        let by = caller.performer();
        let next = SchedulePut { name, process, period, data, by: by.clone(), agent, within };
        match self.book.named(&next.name) {
            Some(known) => {
                if (SchedulePut { by: known.said.by.clone(), ..next.clone() }) == known.said {
                    let next = known.next();
                    return Ok(Answer::SchedulePut { unchanged: true, next });
                }
                if known.said.by != by && !caller.is_admin() {
                    return Err(owned_by_another(&next.name));
                }
            }
            None if self.book.len() >= SCHEDULES_MAX => {
                let message = format!(
                    "there are {SCHEDULES_MAX} schedules, as many as fit; remove one first"
                );
                return Err(Refusal::new(Kind::Conflict, "too_many_schedules", message));
            }
            None => {}
        }
        self.on_put(next.clone(), cx.now).map_err(bad)?;
        let first = self.book.named(&next.name).and_then(|schedule| schedule.next());
        effects.push(Effect::Record(SiteEvent::SchedulePut(Box::new(next))));
        Ok(Answer::SchedulePut { unchanged: false, next: first })
    }

    pub(super) fn remove(
        &mut self,
        caller: &Caller,
        name: Arc<str>,
        cx: Context<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        self.may_change(caller, &name, cx)?;
        self.on_removed(&name);
        let by = caller.performer();
        effects.push(Effect::Record(SiteEvent::ScheduleRemoved { name, by }));
        Ok(Answer::Done)
    }

    pub(super) fn pause(
        &mut self,
        caller: &Caller,
        name: Arc<str>,
        is_paused: bool,
        cx: Context<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        self.may_change(caller, &name, cx)?;
        if self.book.named(&name).is_some_and(|known| known.is_paused == is_paused) {
            return Ok(Answer::Done);
        }
        self.on_paused(&name, is_paused, cx.now);
        let by = caller.performer();
        effects.push(Effect::Record(SiteEvent::SchedulePaused { name, is_paused, by }));
        Ok(Answer::Done)
    }

    fn may_change(&self, caller: &Caller, name: &Arc<str>, cx: Context<'_>) -> Result<(), Refusal> {
        caller.require_start()?;
        cx.cluster.require_registrar()?;
        let known = self.book.named(name).ok_or_else(|| no_such_schedule(name))?;
        match known.said.by == caller.performer() || caller.is_admin() {
            true => Ok(()),
            false => Err(owned_by_another(name)),
        }
    }
}

/// Refuses what would be refused if it were started now. What changes later is told then.
fn require_startable(caller: &Caller, asked: &PutSchedule, cx: Context<'_>) -> Result<(), Refusal> {
    let schema = cx.startable(&asked.process, None)?;
    let rejected = |rejection| Refusal::from(&rejection);
    let inputs = engine::data::typed(&schema, Schema::START, &asked.data).map_err(rejected)?;
    let created = Created {
        process: schema.process.clone(),
        version: schema.version,
        by: as_performer(asked.agent.as_ref(), caller),
        inputs,
        deadline: None,
    };
    engine::create_at(&Everywhere, &schema, created, cx.now).map(drop).map_err(rejected)
}

fn check(asked: &PutSchedule, now: Timestamp) -> Result<(), Refusal> {
    let PutSchedule { name, period, within, .. } = asked;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(plain) {
        return Err(bad(format!(
            "a schedule's name has 1 to {NAME_BYTES_MAX} letters, digits, dashes, dots or underscores"
        )));
    }
    match period {
        Period::Every { ms } if !EVERY_MS.contains(ms) => {
            return Err(bad("`every` is 1s to 366d; for dates further apart write `cron`"));
        }
        Period::Cron { text, .. } if text.len() > CRON_BYTES_MAX => {
            let message = format!(
                "`cron` has {} bytes, at most {CRON_BYTES_MAX} are kept; write ranges and steps, or several schedules",
                text.len()
            );
            return Err(bad(message));
        }
        Period::Cron { text, .. } => {
            Timetable::cron(text, None).map_err(|why| bad(format!("`cron`: {why}")))?;
        }
        Period::Every { .. } => {}
    }
    // What is wrong now is the zone.
    timetable(period, now).map_err(|why| bad(format!("`zone`: {why}")))?;
    match within {
        Some(Within { ms, .. }) if !WITHIN_MS.contains(ms) => {
            Err(bad("each start can be wanted within 1s to 400d of its moment"))
        }
        Some(Within { priority, .. }) if *priority > Deadline::PRIORITY_MAX => {
            Err(bad(format!("`priority` can be 0 to {}", Deadline::PRIORITY_MAX)))
        }
        Some(_) | None => Ok(()),
    }
}

fn owned_by_another(name: &str) -> Refusal {
    let message = format!(
        "`{name}` was put by somebody else, whom `legwork schedules show` names; ask them or an admin, or choose another name"
    );
    Refusal::new(Kind::Conflict, "schedule_exists", message)
}

fn bad(message: impl Into<String>) -> Refusal {
    Refusal::new(Kind::Invalid, "bad_schedule", message)
}
