//! Regular tasks of people, and their occurrences.
//!
//! A task at a fixed time is an appointment that blocks its time; a periodic task is done at some time in
//! each period. No occurrence needs more working time than there is.

use std::iter::Peekable;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use legwork_model::time::Timestamp;

use super::cron::Cron;
use super::spans::Stretch;
use super::zone::{DAY_MS, MINUTE_MS, Zone};

/// A regular task of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regular {
    /// For people to read.
    pub task: Arc<str>,
    pub takes: Duration,
    pub(crate) when: When,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum When {
    At(Cron),
    /// One period begins at this moment. Whole days are calendar days of the zone, some of which have 23
    /// or 25 hours.
    Every {
        period: Duration,
        from: Timestamp,
    },
}

/// One occurrence of a regular task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    pub task: Arc<str>,
    pub release: Timestamp,
    /// Later than the release time.
    pub deadline: Timestamp,
    /// The required work, not zero.
    pub takes: Duration,
    /// Whether it is an appointment: nothing else is done between release and deadline.
    pub fixed: bool,
}

type Stretches<'r> = Box<dyn Iterator<Item = Stretch> + 'r>;

impl Regular {
    /// The period of a periodic task; `None` for an appointment.
    pub fn period(&self) -> Option<Duration> {
        match &self.when {
            When::At(_) => None,
            When::Every { period, .. } => Some(*period),
        }
    }

    /// The most occurrences on one day.
    pub(crate) fn times_a_day(&self) -> usize {
        match &self.when {
            When::At(cron) => cron.minutes().count(),
            When::Every { period, .. } => {
                let period = period.as_millis().max(1);
                usize::try_from((DAY_MS as u128).div_ceil(period)).unwrap_or(usize::MAX)
            }
        }
    }

    /// The windows from release to deadline that overlap the stretch, ascending.
    fn within<'r>(&'r self, zone: &'r Zone, stretch: Stretch) -> Stretches<'r> {
        match &self.when {
            When::At(cron) => {
                let takes = i64::try_from(self.takes.as_millis()).unwrap_or(i64::MAX);
                let from = stretch.start;
                // An appointment that began before may last into the stretch.
                let all = appointments(cron, zone, from.saturating_sub(takes)..stretch.end);
                let all = all.filter(move |moment| moment.saturating_add(takes) > from);
                Box::new(all.map(move |moment| moment..moment.saturating_add(takes)))
            }
            When::Every { period, from } => Box::new(periods(*period, *from, zone, stretch)),
        }
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.period().is_none()
    }
}

pub(super) fn appointments<'r>(
    cron: &'r Cron,
    zone: &'r Zone,
    stretch: Stretch,
) -> impl Iterator<Item = i64> + 'r {
    let day_of = |moment: i64| zone.wall(moment).div_euclid(DAY_MS);
    // One more day at each end: where the clock is set back over midnight, a day occurs twice.
    let days = day_of(stretch.start).saturating_sub(1)..=day_of(stretch.end).saturating_add(1);
    let mut put_off: Vec<i64> = Vec::new();
    days.map_while(move |day| {
        let midnight = day.checked_mul(DAY_MS)?;
        let date =
            TimeZone::UTC.to_datetime(jiff::Timestamp::from_millisecond(midnight).ok()?).date();
        let mut moments = std::mem::take(&mut put_off);
        if cron.is_on(date) {
            let walls = cron.minutes().map(|minute| midnight + minute * MINUTE_MS);
            // A day that the zone skips as a whole has no appointments.
            let is_shown = |wall: i64, moment: &i64| zone.wall(*moment) - wall < DAY_MS;
            moments.extend(
                walls.filter_map(|wall| zone.moment(wall).filter(|moment| is_shown(wall, moment))),
            );
            // An appointment in a skipped hour comes later, possibly after others, and on the next day if
            // the hour ends at midnight.
            moments.sort_unstable();
            moments.dedup();
            put_off = moments.split_off(moments.partition_point(|&moment| day_of(moment) <= day));
        }
        Some(moments)
    })
    .flatten()
    .filter(move |moment| stretch.contains(moment))
}

fn periods(
    length: Duration,
    from: Timestamp,
    zone: &Zone,
    stretch: Stretch,
) -> impl Iterator<Item = Stretch> + '_ {
    let length = i64::try_from(length.as_millis()).unwrap_or(i64::MAX).max(1);
    let by_wall = length % DAY_MS == 0;
    let start = if by_wall { zone.wall(from.0) } else { from.0 };
    let begin = move |number: i64| {
        let place = start.checked_add(number.checked_mul(length)?)?;
        if by_wall { zone.moment(place) } else { Some(place) }
    };
    let first = (i128::from(stretch.start) - i128::from(start)).div_euclid(i128::from(length)) - 1;
    let first = i64::try_from(first).unwrap_or(0).max(0);
    (first..)
        .map_while(move |number| Some(begin(number)?..begin(number + 1)?))
        .take_while(move |period| period.start < stretch.end)
        .filter(move |period| !period.is_empty() && period.end > stretch.start)
}

/// All occurrences that overlap the stretch, ascending; those of the same moment in the order of the
/// tasks.
pub(super) fn merged<'r>(
    tasks: impl Iterator<Item = &'r Regular>,
    zone: &'r Zone,
    stretch: Stretch,
) -> impl Iterator<Item = (&'r Regular, Stretch)> {
    let mut streams: Vec<(&Regular, Peekable<Stretches<'r>>)> =
        tasks.map(|task| (task, task.within(zone, stretch.clone()).peekable())).collect();
    std::iter::from_fn(move || {
        let heads = streams.iter_mut().enumerate();
        let heads = heads.filter_map(|(place, (_, stream))| Some((stream.peek()?.start, place)));
        let (_, place) = heads.min()?;
        let (task, stream) = streams.get_mut(place)?;
        Some((*task, stream.next()?))
    })
}
