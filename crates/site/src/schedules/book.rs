//! The schedules there are, and which moment of which is to be started next.
//!
//! Invariant: of each schedule one start is under way at a time, for the latest moment that has passed; whatever
//! passed before it is over. A moment that is over never comes up again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::{Fired, Period, ScheduleEvent, SchedulePut};
use legwork_model::time::Timestamp;
use legwork_org::Timetable;

/// After how long a start is asked for again of which nothing was heard.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a start waits that did not come through, at first and at most.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) said: SchedulePut,
    pub(crate) put_at: Timestamp,
    pub(crate) is_paused: bool,
    /// The moment that was started last, and what came of it.
    pub(crate) last: Option<(Timestamp, Fired)>,
    table: Timetable,
    /// Moments up to this one are over.
    since: Timestamp,
    /// A start is under way, or did not come through: nothing before this.
    not_before: Timestamp,
    pause: Duration,
    /// When it is in line to be looked at.
    look: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    all: BTreeMap<Arc<str>, Schedule>,
    /// When each is to be looked at.
    line: BTreeSet<(Timestamp, Arc<str>)>,
}

/// The moments of a schedule that was put at this one.
pub(crate) fn timetable(period: &Period, put_at: Timestamp) -> Result<Timetable, String> {
    match period {
        Period::Cron { text, zone } => Timetable::cron(text, Some(zone)),
        Period::Every { ms } => {
            // Whole seconds are nicer to read.
            let from = Timestamp(put_at.0 - put_at.0.rem_euclid(1_000));
            Ok(Timetable::every(Duration::from_millis(*ms), from))
        }
    }
}

/// What makes the start of a moment the same start, however often it is asked for.
pub(crate) fn key(name: &str, moment: Timestamp) -> String {
    format!("schedule:{name}@{moment}")
}

impl Book {
    pub(crate) fn named(&self, name: &str) -> Option<&Schedule> {
        self.all.get(name)
    }

    /// Those after the given one, by name.
    pub(crate) fn list(&self, after: Option<&str>) -> impl Iterator<Item = &Schedule> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.all.range::<str, _>((from, Bound::Unbounded)).map(|(_, schedule)| schedule)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// One that was put begins anew, but stays paused if it was.
    pub(crate) fn put(&mut self, said: SchedulePut, put_at: Timestamp) -> Result<(), String> {
        let table = timetable(&said.period, put_at)?;
        let name = said.name.clone();
        let is_paused = self.all.get(&name).is_some_and(|before| before.is_paused);
        self.remove(&name);
        let schedule = Schedule {
            said,
            put_at,
            is_paused,
            last: None,
            table,
            since: put_at,
            not_before: put_at,
            pause: Duration::ZERO,
            look: None,
        };
        self.all.insert(name.clone(), schedule);
        self.line_up(&name);
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(Schedule { look: Some(look), said, .. }) = self.all.remove(name) {
            self.line.remove(&(look, said.name));
        }
    }

    /// What passes while it is paused is over.
    pub(crate) fn pause(&mut self, name: &str, is_paused: bool, at: Timestamp) {
        if let Some(schedule) = self.all.get_mut(name) {
            schedule.is_paused = is_paused;
            schedule.since = schedule.since.max(at);
        }
        self.line_up(name);
    }

    /// When something may be due.
    pub(crate) fn next_look(&self) -> Option<Timestamp> {
        self.line.first().map(|(look, _)| *look)
    }

    /// Takes up the moment that is due next; whoever takes it says what came of it.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<(&Schedule, Timestamp)> {
        let (_, name) = self.line.first().filter(|(look, _)| *look <= now)?.clone();
        let schedule = self.all.get_mut(&name)?;
        let moment = schedule.table.latest(schedule.since, now);
        schedule.not_before = now + PATIENCE;
        self.line_up(&name);
        Some((self.all.get(&name)?, moment?))
    }

    /// What came of a start. False if that is known, or of one that was put before.
    pub(crate) fn note(&mut self, event: &ScheduleEvent) -> bool {
        let ScheduleEvent::Fired { name, moment, outcome } = event;
        let Some(schedule) = self.all.get_mut(name) else { return false };
        let last = schedule.last.as_ref().map_or(schedule.put_at, |(last, _)| *last);
        if *moment <= last {
            return false;
        }
        schedule.last = Some((*moment, outcome.clone()));
        schedule.since = schedule.since.max(*moment);
        (schedule.not_before, schedule.pause) = (*moment, Duration::ZERO);
        self.line_up(name);
        true
    }

    /// It did not come through: the same moment is tried again, or the next if that has come.
    pub(crate) fn put_off(&mut self, name: &str, now: Timestamp) {
        if let Some(schedule) = self.all.get_mut(name) {
            schedule.pause = (2 * schedule.pause).clamp(PAUSE_MIN, PAUSE_MAX);
            schedule.not_before = now + schedule.pause;
        }
        self.line_up(name);
    }

    /// What has to be kept so that `note` makes the same of it.
    pub(crate) fn events(&self) -> Vec<ScheduleEvent> {
        let lasts = self.all.iter().filter_map(|(name, schedule)| {
            let (moment, outcome) = schedule.last.clone()?;
            Some(ScheduleEvent::Fired { name: name.clone(), moment, outcome })
        });
        lasts.collect()
    }

    fn line_up(&mut self, name: &str) {
        let Some(schedule) = self.all.get_mut(name) else { return };
        let look = schedule.next().map(|next| next.max(schedule.not_before));
        if look == schedule.look {
            return;
        }
        let name = &schedule.said.name;
        if let Some(before) = schedule.look {
            self.line.remove(&(before, name.clone()));
        }
        self.line.extend(look.map(|look| (look, name.clone())));
        schedule.look = look;
    }
}

impl Schedule {
    /// The moment that comes next; `None` while it is paused.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        if self.is_paused { None } else { self.table.next(self.since) }
    }
}

#[cfg(test)]
mod tests;
