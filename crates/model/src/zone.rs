//! Time zones: a moment in the local time of its reader.
//!
//! Invariant: local times are for people only. Programs and histories get UTC, from `Display` of a moment.
//! The time zone database is part of the program. Nothing here reads the settings of the machine.

use jiff::Zoned;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::time::Timestamp;

const MINUTE_MS: i64 = 60_000;

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl From<TimeZone> for Zone {
    /// An unknown zone becomes UTC.
    fn from(zone: TimeZone) -> Self {
        if zone.is_unknown() { Self::UTC } else { Self(zone) }
    }
}

impl Zone {
    pub const UTC: Self = Self(TimeZone::UTC);

    /// By its name in the database, such as `Europe/Berlin`.
    pub fn named(name: &str) -> Option<Self> {
        TimeZoneDatabase::bundled().get(name).ok().filter(|zone| !zone.is_unknown()).map(Self)
    }

    /// `2026-03-01 10:30`; in UTC `2026-03-01 09:30Z`.
    pub fn minute(&self, moment: Timestamp) -> String {
        self.written(moment, "%F %H:%M") + self.mark()
    }

    /// As `minute`, but rounded up, so that a reader who types the earliest possible time back is not
    /// refused.
    pub fn minute_up(&self, moment: Timestamp) -> String {
        let up =
            moment.0.checked_add(MINUTE_MS - 1).map(|up| Timestamp(up - up.rem_euclid(MINUTE_MS)));
        self.minute(up.unwrap_or(moment))
    }

    /// `2026-03-01 10:30:05`; in UTC `2026-03-01 09:30:05Z`.
    pub fn second(&self, moment: Timestamp) -> String {
        self.written(moment, "%F %T") + self.mark()
    }

    /// From one moment to another, with the day once if both are on it: `2026-03-01 10:30–12:00`,
    /// `2026-03-01 10:30–03-02 09:00`. A span within a minute has no end.
    pub fn span(&self, from: Timestamp, to: Timestamp) -> String {
        if self.minute(from) == self.minute(to) {
            return self.minute(from);
        }
        let day = |moment, format| self.written(moment, format);
        let rest = match (day(from, "%F") == day(to, "%F"), day(from, "%Y") == day(to, "%Y")) {
            (true, _) => "%H:%M",
            (false, true) => "%m-%d %H:%M",
            (false, false) => "%F %H:%M",
        };
        let (from, to) = (self.written(from, "%F %H:%M"), self.written(to, rest));
        format!("{from}–{to}{}", self.mark())
    }

    /// With the name of the zone, for letters: `2026-03-01 10:30 (Europe/Berlin)`.
    pub fn minute_named(&self, moment: Timestamp) -> String {
        let text = self.written(moment, "%F %H:%M");
        match self.0.iana_name() {
            Some(name) if !self.is_utc() => format!("{text} ({name})"),
            Some(_) => format!("{text} (UTC)"),
            None => text + &self.written(moment, " (%:z)"),
        }
    }

    /// The abbreviation of the zone at a moment: `CET`, `UTC`, `+05`.
    pub fn clock(&self, moment: Timestamp) -> String {
        self.written(moment, "%Z")
    }

    /// The local time in milliseconds since 1970-01-01 00:00 local time.
    pub fn wall(&self, moment: Timestamp) -> i64 {
        let known = jiff::Timestamp::from_millisecond(moment.0);
        let ahead = known.map_or(0, |known| self.0.to_offset(known).seconds());
        moment.0.saturating_add(i64::from(ahead) * 1_000)
    }

    fn is_utc(&self) -> bool {
        self.0 == TimeZone::UTC || matches!(self.0.iana_name(), Some("UTC" | "Etc/UTC"))
    }

    /// UTC is marked, because the reader may be in another zone.
    fn mark(&self) -> &'static str {
        if self.is_utc() { "Z" } else { "" }
    }

    fn written(&self, moment: Timestamp, format: &str) -> String {
        match jiff::Timestamp::from_millisecond(moment.0) {
            Ok(known) => Zoned::new(known, self.0.clone()).strftime(format).to_string(),
            Err(_) => moment.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn people_see_what_the_clock_on_their_wall_shows() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        let (winter, summer) = (at("2026-03-01T09:30:05.123Z"), at("2026-07-01T22:30:59Z"));
        assert_eq!(berlin.minute(winter), "2026-03-01 10:30");
        assert_eq!(berlin.second(winter), "2026-03-01 10:30:05");
        assert_eq!(berlin.minute(summer), "2026-07-02 00:30");
        assert_eq!(berlin.minute_named(winter), "2026-03-01 10:30 (Europe/Berlin)");
        assert_eq!((berlin.clock(winter), berlin.clock(summer)), ("CET".into(), "CEST".into()));
        assert_eq!(berlin.wall(summer), at("2026-07-02T00:30:59Z").0);
    }

    #[test]
    fn the_earliest_possible_time_is_never_rounded_down() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        for (moment, shown) in [
            ("2026-03-01T09:30:00Z", "2026-03-01 10:30"),
            ("2026-03-01T09:30:00.001Z", "2026-03-01 10:31"),
            ("2026-03-01T22:59:59.999Z", "2026-03-02 00:00"),
            ("1969-12-31T22:58:30Z", "1969-12-31 23:59"),
        ] {
            assert_eq!(berlin.minute_up(at(moment)), shown, "{moment}");
        }
        assert_eq!(Zone::UTC.minute_up(Timestamp(i64::MAX)), Zone::UTC.minute(Timestamp(i64::MAX)));
    }

    #[test]
    fn utc_is_said_to_be_utc() {
        let moment = at("2026-03-01T09:30:05.123Z");
        for zone in [Zone::UTC, Zone::named("UTC").unwrap(), Zone::from(TimeZone::unknown())] {
            assert_eq!(zone.minute(moment), "2026-03-01 09:30Z");
            assert_eq!(zone.second(moment), "2026-03-01 09:30:05Z");
            assert_eq!(zone.minute_named(moment), "2026-03-01 09:30 (UTC)");
        }
        assert_eq!(Zone::UTC.minute(Timestamp(i64::MAX)), Timestamp(i64::MAX).to_string() + "Z");
    }

    #[test]
    fn a_span_says_its_day_once() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        let from = at("2026-12-30T09:00:00Z");
        assert_eq!(berlin.span(from, at("2026-12-30T11:00:00Z")), "2026-12-30 10:00–12:00");
        assert_eq!(berlin.span(from, at("2026-12-31T08:00:00Z")), "2026-12-30 10:00–12-31 09:00");
        let next = berlin.span(from, at("2027-01-02T08:00:00Z"));
        assert_eq!(next, "2026-12-30 10:00–2027-01-02 09:00");
        assert_eq!(Zone::UTC.span(from, at("2026-12-30T09:00:30Z")), "2026-12-30 09:00Z");
    }
}
