//! Recurring moments: by a timetable in local time, or periodic.
//!
//! Invariant: a table has the same moments, whichever part of it is read. Moments ascend strictly.

use std::time::Duration;

use legwork_model::time::Timestamp;
use legwork_model::yaml::fields::quote;

use super::cron::Cron;
use super::regular::appointments;
use super::zone::{DAY_MS, UTC, Zone};

/// How far ahead a moment is searched. The rarest possible, the 29th of February on one day of the week (`29 2
/// */7`), recurs within forty years.
const AHEAD_MS: i64 = 40 * 366 * DAY_MS;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timetable(Moments);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Moments {
    Wall {
        cron: Cron,
        zone: Zone,
    },
    /// The first is one period after the beginning.
    Grid {
        from: i64,
        period: i64,
    },
}

impl Timetable {
    /// In local time of a zone, UTC by default.
    pub fn cron(text: &str, zone: Option<&str>) -> Result<Self, String> {
        let cron = Cron::parse(text).map_err(|mistake| mistake.told())?;
        let zone = match zone {
            None => UTC.clone(),
            Some(name) => Zone::named(name).ok_or_else(|| no_zone(name))?,
        };
        Ok(Self(Moments::Wall { cron, zone }))
    }

    /// Periodic from a beginning on, which is not a moment itself.
    pub fn every(period: Duration, from: Timestamp) -> Self {
        let period = i64::try_from(period.as_millis()).unwrap_or(i64::MAX).max(1);
        Self(Moments::Grid { from: from.0, period })
    }

    /// The first moment after this one.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let from = after.0.checked_add(1)?;
        let next = match &self.0 {
            Moments::Wall { cron, zone } => {
                appointments(cron, zone, from..from.saturating_add(AHEAD_MS)).next()
            }
            Moments::Grid { from: begin, period } => {
                let passed = after.0.saturating_sub(*begin).div_euclid(*period).max(0);
                passed.checked_add(1)?.checked_mul(*period)?.checked_add(*begin)
            }
        };
        next.map(Timestamp)
    }

    /// The last moment after the first of these and not after the second.
    pub fn latest(&self, after: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let latest = match &self.0 {
            Moments::Wall { cron, zone } => {
                // Backwards, so that not every minute of a year is visited.
                let end = until.0.saturating_add(1);
                let (mut reach, first) = (DAY_MS, after.0.saturating_add(1));
                loop {
                    let from = end.saturating_sub(reach).max(first);
                    let last = appointments(cron, zone, from..end).last();
                    if last.is_some() || from == first {
                        break last;
                    }
                    reach = reach.saturating_mul(4);
                }
            }
            Moments::Grid { from, period } => {
                let passed = until.0.saturating_sub(*from).div_euclid(*period);
                let last = passed.checked_mul(*period)?.checked_add(*from)?;
                (passed > 0 && last > after.0).then_some(last)
            }
        };
        latest.map(Timestamp)
    }
}

fn no_zone(name: &str) -> String {
    let shown: String = name.chars().take(64).collect();
    let meant = match Zone::guess(&shown) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "write one such as `Europe/Berlin` or `UTC`".to_owned(),
    };
    format!("{} is no time zone; {meant}", quote(&shown))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// The first moments after one.
    fn moments(table: &Timetable, after: &str, count: usize) -> Vec<String> {
        let first = table.next(at(after));
        let all = std::iter::successors(first, |last| table.next(*last));
        all.take(count).map(|moment| moment.to_string()).collect()
    }

    fn berlin(cron: &str) -> Timetable {
        Timetable::cron(cron, Some("Europe/Berlin")).unwrap()
    }

    #[test]
    fn a_timetable_is_in_local_time() {
        let weekdays = berlin("0 2 * * mon-fri");
        assert_eq!(
            moments(&weekdays, "2026-03-26T01:00:00Z", 3),
            // Friday in winter, Monday in summer.
            ["2026-03-27T01:00:00.000Z", "2026-03-30T00:00:00.000Z", "2026-03-31T00:00:00.000Z"]
        );
    }

    #[test]
    fn an_hour_that_is_left_out_comes_later_and_one_that_comes_twice_counts_once() {
        let half_past_two = berlin("30 2 * * *");
        assert_eq!(
            moments(&half_past_two, "2026-03-28T12:00:00Z", 2),
            ["2026-03-29T01:30:00.000Z", "2026-03-30T00:30:00.000Z"]
        );
        assert_eq!(
            moments(&half_past_two, "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T00:30:00.000Z", "2026-10-26T01:30:00.000Z"]
        );
        // Two moments that coincide are one.
        let both = berlin("30 2,3 29 3 *");
        assert_eq!(
            moments(&both, "2026-01-01T00:00:00Z", 2),
            ["2026-03-29T01:30:00.000Z", "2027-03-29T00:30:00.000Z"]
        );
    }

    #[test]
    fn the_rarest_days_are_found() {
        let leap = Timetable::cron("0 0 29 2 *", None).unwrap();
        assert_eq!(moments(&leap, "2096-03-01T00:00:00Z", 1), ["2104-02-29T00:00:00.000Z"]);
        let sunday = Timetable::cron("0 0 29 2 */7", None).unwrap();
        assert_eq!(moments(&sunday, "2088-02-29T00:00:00Z", 1), ["2128-02-29T00:00:00.000Z"]);
        let sunday = Timetable::cron("0 0 */28 2 sun", None).unwrap();
        assert_eq!(moments(&sunday, "2032-03-01T00:00:00Z", 1), ["2037-02-01T00:00:00.000Z"]);
    }

    #[test]
    fn what_is_to_come_often_pauses_for_the_hour_that_comes_twice() {
        let quarter = berlin("*/15 * * * *");
        assert_eq!(
            moments(&quarter, "2026-10-25T00:40:00Z", 2),
            // A quarter to three in summer, three in winter.
            ["2026-10-25T00:45:00.000Z", "2026-10-25T02:00:00.000Z"]
        );
    }

    #[test]
    fn every_so_often_is_a_grid_from_its_beginning_on() {
        let quarter = Timetable::every(Duration::from_secs(900), at("2026-01-01T00:00:07Z"));
        assert_eq!(
            moments(&quarter, "2026-01-01T00:00:07Z", 2),
            ["2026-01-01T00:15:07.000Z", "2026-01-01T00:30:07.000Z"]
        );
        // Also when asked before the beginning.
        assert_eq!(moments(&quarter, "2020-01-01T00:00:00Z", 1), ["2026-01-01T00:15:07.000Z"]);
        assert_eq!(quarter.latest(Timestamp(0), at("2026-01-01T00:15:06Z")), None);
    }

    #[test]
    fn mistakes_say_what_to_write() {
        let refused = |cron, zone| Timetable::cron(cron, zone).unwrap_err();
        assert_eq!(
            refused("0 2 * * mon-fry", None),
            "column 13: `fry` is no day of the week; did you mean `fri`?"
        );
        assert_eq!(
            refused("0 2 * * *", Some("berlin")),
            "`berlin` is no time zone; did you mean `Europe/Berlin`?"
        );
        assert!(refused("nightly", None).contains("5 fields, this one 1; write minute, hour"));
    }

    #[test]
    fn no_moment_is_looked_for_beyond_the_end_of_time() {
        for table in [berlin("* * * * *"), Timetable::every(Duration::from_secs(1), Timestamp(0))] {
            assert_eq!(table.next(Timestamp(i64::MAX)), None);
            let _ = table.next(Timestamp(i64::MAX - 1));
            let _ = table.latest(Timestamp(i64::MIN), Timestamp(0));
        }
    }

    fn tables() -> impl Strategy<Value = Timetable> {
        let crons = ["* * * * *", "*/7 * * * *", "30 2 * * *", "0 0 1 * *", "15 6 * * sat-mon"];
        let zones = ["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"];
        let wall = (0..crons.len(), 0..zones.len())
            .prop_map(move |(c, z)| Timetable::cron(crons[c], Some(zones[z])).unwrap());
        let grid = (1_u64..100_000_000, 0_i64..1_000_000_000_000)
            .prop_map(|(ms, from)| Timetable::every(Duration::from_millis(ms), Timestamp(from)));
        prop_oneof![wall, grid]
    }

    proptest! {
        /// The latest moment not after `until` is followed by none up to `until`.
        #[test]
        fn the_latest_is_followed_by_none_that_has_passed(
            table in tables(),
            after in 1_700_000_000_000_i64..1_800_000_000_000,
            reach in 0_i64..40 * DAY_MS,
        ) {
            let (after, until) = (Timestamp(after), Timestamp(after + reach));
            let next = table.next(after);
            match table.latest(after, until) {
                Some(latest) => {
                    prop_assert!(after < latest && latest <= until);
                    prop_assert!(table.next(latest).is_none_or(|next| next > until));
                    prop_assert!(next.is_some_and(|next| next <= latest));
                    prop_assert_eq!(table.next(Timestamp(latest.0 - 1)), Some(latest));
                }
                None => prop_assert!(next.is_none_or(|next| next > until)),
            }
        }

        /// A search from any moment between two finds the second.
        #[test]
        fn moments_ascend_and_none_is_left_out(
            table in tables(),
            after in 1_700_000_000_000_i64..1_800_000_000_000,
            part in 0_i64..100,
        ) {
            let Some(next) = table.next(Timestamp(after)) else { return Ok(()) };
            prop_assert!(next.0 > after);
            let between = after + (next.0 - 1 - after) * part / 100;
            prop_assert_eq!(table.next(Timestamp(between)), Some(next));
        }
    }
}
