//! Time zones: local time and its changes.
//!
//! The time zone database is part of the program, so that the same file means the same everywhere;
//! nothing is read from the machine.

use jiff::tz::{TimeZone, TimeZoneDatabase};
use legwork_model::yaml::nearest;
use legwork_model::zone as model;

use super::spans::Stretch;

pub(super) const MINUTE_MS: i64 = 60_000;
pub(super) const DAY_MS: i64 = 86_400_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Zone(TimeZone);

/// The zone of agents without a calendar.
pub(crate) static UTC: Zone = Zone(TimeZone::UTC);

/// A stretch with a constant offset.
pub(super) struct Steady {
    /// In UTC.
    pub(super) stretch: Stretch,
    /// The offset from UTC, in milliseconds.
    pub(super) ahead: i64,
}

impl Zone {
    pub(crate) fn named(name: &str) -> Option<Self> {
        TimeZoneDatabase::bundled().get(name).ok().filter(|zone| !zone.is_unknown()).map(Self)
    }

    /// The same as a zone to show times in.
    pub(crate) fn shown(&self) -> model::Zone {
        self.0.clone().into()
    }

    /// The name that was probably meant: the nearest, or the one with that city.
    pub(crate) fn guess(name: &str) -> Option<String> {
        let names: Vec<String> =
            TimeZoneDatabase::bundled().available().map(|name| name.as_str().to_owned()).collect();
        let city = |full: &&String| {
            full.rsplit_once('/').is_some_and(|(_, city)| city.eq_ignore_ascii_case(name))
        };
        let near = nearest(name, names.iter().map(String::as_str));
        near.map(str::to_owned).or_else(|| names.iter().find(city).cloned())
    }

    /// Cuts the stretch wherever the offset changes.
    pub(super) fn steady(&self, stretch: Stretch) -> impl Iterator<Item = Steady> + '_ {
        let mut from = stretch.start.max(jiff::Timestamp::MIN.as_millisecond());
        let to = stretch.end.min(jiff::Timestamp::MAX.as_millisecond());
        std::iter::from_fn(move || {
            if from >= to {
                return None;
            }
            let moment = jiff::Timestamp::from_millisecond(from).ok()?;
            let changed = self.0.following(moment).next();
            let end = changed.map_or(to, |change| change.timestamp().as_millisecond());
            let stretch = from..end.clamp(from + 1, to);
            from = stretch.end;
            Some(Steady { stretch, ahead: self.ahead(moment) })
        })
    }

    /// The local time.
    pub(super) fn wall(&self, moment: i64) -> i64 {
        let known = jiff::Timestamp::from_millisecond(moment);
        moment.saturating_add(known.map_or(0, |moment| self.ahead(moment)))
    }

    /// The moment of a local time: the first of two if the local time is repeated. A skipped local
    /// time is shifted by the skipped time.
    pub(crate) fn moment(&self, wall: i64) -> Option<i64> {
        let shown = jiff::Timestamp::from_millisecond(wall).ok()?;
        let moment = self.0.to_timestamp(TimeZone::UTC.to_datetime(shown)).ok()?;
        Some(moment.as_millisecond())
    }

    fn ahead(&self, moment: jiff::Timestamp) -> i64 {
        i64::from(self.0.to_offset(moment).seconds()) * 1_000
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::time::Timestamp;

    use super::*;

    fn ms(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().0
    }

    #[test]
    fn the_offset_changes_twice_a_year() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        let year = ms("2026-01-01T00:00:00Z")..ms("2027-01-01T00:00:00Z");
        let steady: Vec<String> = berlin
            .steady(year)
            .map(|steady| {
                format!("{} +{}h", Timestamp(steady.stretch.start), steady.ahead / 3_600_000)
            })
            .collect();
        assert_eq!(
            steady,
            [
                "2026-01-01T00:00:00.000Z +1h",
                "2026-03-29T01:00:00.000Z +2h",
                "2026-10-25T01:00:00.000Z +1h",
            ]
        );
        // Half past two is skipped in March, and repeated in October.
        let spring = berlin.moment(ms("2026-03-29T02:30:00Z"));
        assert_eq!(spring, Some(ms("2026-03-29T03:30:00+02:00")));
        let autumn = berlin.moment(ms("2026-10-25T02:30:00Z"));
        assert_eq!(autumn, Some(ms("2026-10-25T02:30:00+02:00")));
    }

    #[test]
    fn an_unknown_zone_is_answered_with_the_one_that_was_meant() {
        for (wrong, meant) in [
            ("Europe/Berlni", Some("Europe/Berlin")),
            ("berlin", Some("Europe/Berlin")),
            ("Tokyo", Some("Asia/Tokyo")),
            ("nowhere in particular", None),
        ] {
            assert_eq!(Zone::named(wrong), None, "{wrong}");
            assert_eq!(Zone::guess(wrong).as_deref(), meant, "{wrong}");
        }
        assert_eq!(Zone::named("europe/berlin"), Zone::named("Europe/Berlin"));
        assert_eq!(Zone::named("Etc/Unknown"), None);
    }

    #[test]
    fn moments_that_no_calendar_reaches_end_quietly() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        assert_eq!(berlin.moment(i64::MAX), None);
        assert_eq!(berlin.wall(i64::MIN), i64::MIN);
        assert!(berlin.steady(i64::MAX - 5..i64::MAX).next().is_none());
    }
}
