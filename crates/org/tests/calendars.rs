//! Working time: hours in local time, closed days, absences and regular tasks.
//!
//! Whatever a calendar says, a moment is working time if and only if the local time is within the
//! hours.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a wrong assumption is a failed test")]

use std::time::Duration;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use legwork_model::time::Timestamp;
use legwork_org::{Organisation, RESERVE_DEFAULT, WorkSpan};
use proptest::prelude::*;

fn organisation(source: &str) -> Organisation {
    let (organisation, findings) = Organisation::parse(source);
    organisation.unwrap_or_else(|| panic!("{findings:#?}"))
}

/// Ann with this calendar and these fields.
fn ann(calendar: &str, fields: &str) -> Organisation {
    organisation(&format!(
        "organisation: x\ncalendars:\n  c: {{ {calendar} }}\nagents:\n  ann: {{ calendar: c, {fields} }}\n"
    ))
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Ann's working time, a line for each stretch.
fn works(organisation: &Organisation, from: &str, to: &str) -> Vec<String> {
    let time = organisation.working_time(&"ann".into()).unwrap();
    let short = |moment: Timestamp| moment.to_string()[5..16].replace('T', " ");
    time.spans_between_appointments(at(from), at(to))
        .map(|span| format!("{} to {}", short(span.from), short(span.to)))
        .collect()
}

fn comes_up(organisation: &Organisation, from: &str, to: &str) -> Vec<String> {
    let time = organisation.working_time(&"ann".into()).unwrap();
    let short = |moment: Timestamp| moment.to_string()[5..16].replace('T', " ");
    time.occurrences(at(from), at(to))
        .map(|due| {
            let minutes = due.takes.as_secs() / 60;
            let kind = if due.fixed { "" } else { " some time" };
            format!(
                "{} {minutes}m{kind} {} to {}",
                due.task,
                short(due.release),
                short(due.deadline)
            )
        })
        .collect()
}

#[test]
fn hours_are_those_of_the_zone_and_closed_days_are_free() {
    let ann = ann(
        "zone: Europe/Berlin, hours: { mon-fri: 08:00-12:00 12:30-16:30, sat: '08:00-12:00' }, \
         closed: [2026-12-25, { from: 2026-12-31, to: 2027-01-01 }]",
        "share: 50",
    );
    let spans = works(&ann, "2026-12-24T09:00:00Z", "2027-01-04T23:00:00Z");
    assert_eq!(
        spans,
        [
            "12-24 09:00 to 12-24 11:00",
            "12-24 11:30 to 12-24 15:30",
            "12-26 07:00 to 12-26 11:00",
            "12-28 07:00 to 12-28 11:00",
            "12-28 11:30 to 12-28 15:30",
            "12-29 07:00 to 12-29 11:00",
            "12-29 11:30 to 12-29 15:30",
            "12-30 07:00 to 12-30 11:00",
            "12-30 11:30 to 12-30 15:30",
            "01-02 07:00 to 01-02 11:00",
            "01-04 07:00 to 01-04 11:00",
            "01-04 11:30 to 01-04 15:30",
        ]
    );
    let time = ann.working_time(&"ann".into()).unwrap();
    let (from, to) = (at("2026-12-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));
    let shares = time.spans_between_appointments(from, to);
    assert!(shares.map(|span| span.share).all(|share| share == 50));
    assert!(ann.working_time(&"zoe".into()).is_none());
}

#[test]
fn people_have_slack_unless_all_their_time_is_promised() {
    for (fields, share, reserve) in [
        ("name: Ann", 100, RESERVE_DEFAULT),
        ("reserve: 0", 100, 0),
        ("share: 100", 100, 0),
        ("share: 60, reserve: 10", 60, 10),
    ] {
        let ann = ann("zone: UTC, hours: { mon-fri: 08:00-16:00 }", fields);
        let agent = ann.agent(&"ann".into()).unwrap();
        assert_eq!((agent.share, agent.reserve), (share, reserve));
        let time = ann.working_time(&"ann".into()).unwrap();
        let mut spans =
            time.spans_between_appointments(at("2026-03-02T00:00:00Z"), at("2026-03-03T00:00:00Z"));
        assert_eq!(spans.next().map(|span| span.share), Some(share));
    }
}

#[test]
fn without_a_calendar_any_hour_will_do() {
    let ann = organisation(
        "organisation: x\nagents: { ann: { absent: [{ from: 2026-03-02, to: 2026-03-03 }] } }\n",
    );
    assert_eq!(
        works(&ann, "2026-03-01T00:00:00Z", "2026-03-05T00:00:00Z"),
        ["03-01 00:00 to 03-02 00:00", "03-04 00:00 to 03-05 00:00"]
    );
    assert!(works(&ann, "2026-03-05T00:00:00Z", "2026-03-05T00:00:00Z").is_empty());
    assert!(works(&ann, "2026-03-06T00:00:00Z", "2026-03-05T00:00:00Z").is_empty());
}

#[test]
fn an_hour_that_does_not_exist_is_not_worked() {
    let night = |hours: &str| ann(&format!("zone: Europe/Berlin, hours: {{ sun: '{hours}' }}"), "");
    let on_the_day = |hours: &str| {
        works(&night(hours), "2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z").join(", ")
    };
    // At two the clock is put to three: 01:00 UTC.
    assert_eq!(on_the_day("02:00-03:00"), "");
    assert_eq!(on_the_day("02:30-03:30"), "03-29 01:00 to 03-29 01:30");
    assert_eq!(on_the_day("01:00-04:00"), "03-29 00:00 to 03-29 02:00");
    assert_eq!(on_the_day("01:00-02:15"), "03-29 00:00 to 03-29 01:00");
}

#[test]
fn an_hour_that_exists_twice_is_worked_twice() {
    let night = |hours: &str| ann(&format!("zone: Europe/Berlin, hours: {{ sun: '{hours}' }}"), "");
    let on_the_day = |hours: &str| {
        works(&night(hours), "2026-10-24T00:00:00Z", "2026-10-26T12:00:00Z").join(", ")
    };
    // At three the clock is put back to two: 01:00 UTC.
    assert_eq!(on_the_day("02:00-03:00"), "10-25 00:00 to 10-25 02:00");
    assert_eq!(on_the_day("01:00-04:00"), "10-24 23:00 to 10-25 03:00");
    assert_eq!(on_the_day("02:30-03:30"), "10-25 00:30 to 10-25 01:00, 10-25 01:30 to 10-25 02:30");
}

#[test]
fn night_shifts_go_on_past_midnight_and_into_the_next_week() {
    let ann = ann("zone: UTC, hours: { sat-sun: 22:00-06:00 }, closed: [2026-03-09]", "");
    assert_eq!(
        works(&ann, "2026-03-01T00:00:00Z", "2026-03-09T23:00:00Z"),
        [
            "03-01 00:00 to 03-01 06:00",
            "03-01 22:00 to 03-02 06:00",
            "03-07 22:00 to 03-08 06:00",
            // Closed days begin at midnight.
            "03-08 22:00 to 03-09 00:00",
        ]
    );
}

#[test]
fn days_of_absence_are_days_of_the_calendar() {
    let away = "absent: [{ from: 2026-07-02, to: 2026-07-02 }, { from: 2026-07-03T10:00:00Z }]";
    let ann = ann("zone: America/New_York", away);
    assert_eq!(
        works(&ann, "2026-07-01T12:00:00Z", "2026-07-09T00:00:00Z"),
        ["07-01 12:00 to 07-02 04:00", "07-03 04:00 to 07-03 10:00"]
    );
}

#[test]
fn appointments_come_up_by_the_clock_and_only_while_there_is_working_time() {
    let regularly = "regularly: [{ task: round, at: '0 8 * * mon-fri', takes: 1h }, \
                     { task: late, at: '0 20 * * *', takes: 1h }, \
                     { task: noon, at: '30 11 * * wed', takes: 2h }], \
                     absent: [{ from: 2026-03-31, to: 2026-03-31 }]";
    let hours = "zone: Europe/Berlin, hours: { mon-fri: 08:00-12:00 13:00-17:00 }";
    let ann = ann(hours, regularly);
    assert_eq!(
        comes_up(&ann, "2026-03-27T00:00:00Z", "2026-04-02T00:00:00Z"),
        [
            "round 60m 03-27 07:00 to 03-27 08:00",
            // The clock has been changed in between.
            "round 60m 03-30 06:00 to 03-30 07:00",
            "round 60m 04-01 06:00 to 04-01 07:00",
            // Lunch is not worked, whatever the appointment says.
            "noon 60m 04-01 09:30 to 04-01 11:30",
        ]
    );
    let time = ann.working_time(&"ann".into()).unwrap();
    let between: Vec<String> = time
        .spans_between_appointments(at("2026-04-01T06:30:00Z"), at("2026-04-01T22:00:00Z"))
        .map(|span| format!("{} to {}", span.from, span.to))
        .collect();
    assert_eq!(
        between,
        [
            "2026-04-01T07:00:00.000Z to 2026-04-01T09:30:00.000Z",
            "2026-04-01T11:30:00.000Z to 2026-04-01T15:00:00.000Z",
        ]
    );
}

#[test]
fn appointments_in_an_hour_left_out_come_later_and_in_one_that_comes_twice_once() {
    let half_hourly = "regularly: [{ task: check, at: '*/30 * * * *', takes: 5m }]";
    let berlin = ann("zone: Europe/Berlin", half_hourly);
    let count = |from: &str, to: &str| {
        let all = comes_up(&berlin, from, to);
        let distinct: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{all:?}");
        assert!(all.is_sorted(), "{all:?}");
        all.len()
    };
    // Five hours each. Occurrences between two and three come between three and four, where others
    // are already; and half past two occurs once of two times.
    assert_eq!(count("2026-03-28T23:00:00Z", "2026-03-29T04:00:00Z"), 10);
    assert_eq!(count("2026-10-24T22:00:00Z", "2026-10-25T03:00:00Z"), 8);
    // A day that Samoa skipped has none.
    let daily = "regularly: [{ task: daily, at: '0 12 * * *', takes: 5m }]";
    let samoa = ann("zone: Pacific/Apia", daily);
    let days = comes_up(&samoa, "2011-12-28T10:00:00Z", "2012-01-01T10:00:00Z");
    assert_eq!(days.len(), 4, "{days:?}");
}

#[test]
fn appointments_in_an_hour_left_out_before_midnight_come_in_the_next_day_among_its_own() {
    // On Saturday at eleven, 01:00 UTC, the clock of Nuuk is set to midnight.
    let saturday = |times: &str| {
        let check = format!("regularly: [{{ task: check, at: '{times}', takes: 5m }}]");
        let all = comes_up(
            &ann("zone: America/Nuuk", &check),
            "2026-03-28T20:00:00Z",
            "2026-03-29T20:00:00Z",
        );
        all.iter().map(|due| due[9..20].to_owned()).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(saturday("30 23 * * *"), "03-29 01:30");
    assert_eq!(saturday("30 23 * * sat"), "03-29 01:30");
    assert_eq!(saturday("30 23 * * sun"), "");
    // Each once, and in order.
    assert_eq!(saturday("15,45 0,23 * * sun"), "03-29 01:15, 03-29 01:45");
    assert_eq!(saturday("0,30 0,23 * * *"), "03-29 01:00, 03-29 01:30");
    assert_eq!(saturday("45 22,23 * * sat"), "03-29 00:45, 03-29 01:45");
    assert_eq!(saturday("50 0,23 * * *"), "03-29 01:50");
    assert_eq!(saturday("*/40 0,23 * * *"), "03-29 01:00, 03-29 01:40");
}

#[test]
fn what_is_done_every_so_often_has_a_window_of_its_own() {
    let regularly = "share: 50, regularly: \
                     [{ task: reports, every: 2d, takes: 30m, from: 2026-03-27 }, \
                     { task: look, every: 36h, takes: 20h, from: 2026-03-30T00:00:00Z }], \
                     absent: [{ from: 2026-04-02, to: 2026-04-05 }]";
    let hours = "zone: Europe/Berlin, hours: { mon-sun: 08:00-16:00 }";
    let ann = ann(hours, regularly);
    assert_eq!(
        comes_up(&ann, "2026-03-01T00:00:00Z", "2026-04-08T00:00:00Z"),
        [
            "reports 30m some time 03-26 23:00 to 03-28 23:00",
            // This window has 47 hours, as days are days in local time.
            "reports 30m some time 03-28 23:00 to 03-30 22:00",
            // These 36 hours contain 14 of work, half of which is available.
            "look 420m some time 03-30 00:00 to 03-31 12:00",
            "reports 30m some time 03-30 22:00 to 04-01 22:00",
            "look 300m some time 03-31 12:00 to 04-02 00:00",
            // Then there is no working time for it.
            "look 180m some time 04-05 00:00 to 04-06 12:00",
            "reports 30m some time 04-05 22:00 to 04-07 22:00",
            "look 300m some time 04-06 12:00 to 04-08 00:00",
            "reports 30m some time 04-07 22:00 to 04-09 22:00",
        ]
    );
}

#[test]
fn what_is_not_over_comes_up_although_it_began_before() {
    let ann = ann(
        "zone: UTC, hours: { mon-fri: 08:00-16:00 }",
        "regularly: [{ task: letters, every: 1d, takes: 1h }, \
         { task: round, at: '0 9 * * mon-fri', takes: 2h }]",
    );
    assert_eq!(
        comes_up(&ann, "2026-03-30T10:00:00Z", "2026-03-31T09:00:00Z"),
        [
            "letters 60m some time 03-30 00:00 to 03-31 00:00",
            "round 120m 03-30 09:00 to 03-30 11:00",
            "letters 60m some time 03-31 00:00 to 04-01 00:00",
        ]
    );
    let time = ann.working_time(&"ann".into()).unwrap();
    let (from, to) = (at("2026-03-30T10:00:00Z"), at("2026-03-31T12:00:00Z"));
    let letters = time.occurrences(from, to).filter(|due| !due.fixed);
    assert!(time.occurrences_between_appointments(from, to).eq(letters));
}

/// Hours as granules of one hour, from Monday on.
type Week = Vec<bool>;

#[derive(Clone, Debug)]
struct Plan {
    zone: &'static str,
    week: Week,
    closed: Vec<i8>,
    /// In hours since the beginning of the year, and how many.
    away: Vec<(i64, i64)>,
}

const REGULARLY: &str =
    "{ task: a, at: '15,45 */5,23 * * *', takes: 2h }, { task: b, every: 1d, takes: 1h }";

impl Plan {
    fn source(&self, regularly: &str) -> String {
        let mut hours = String::new();
        for (name, day) in
            ["mon", "tue", "wed", "thu", "fri", "sat", "sun"].iter().zip(self.week.chunks(24))
        {
            let mut runs: Vec<String> = Vec::new();
            let mut start = None;
            for hour in 0..=24 {
                match (start, day.get(hour).is_some_and(|works| *works)) {
                    (None, true) => start = Some(hour),
                    (Some(from), false) => {
                        runs.push(format!("{from:02}:00-{hour:02}:00"));
                        start = None;
                    }
                    (None, false) | (Some(_), true) => {}
                }
            }
            if !runs.is_empty() {
                hours.push_str(&format!("{name}: '{}', ", runs.join(" ")));
            }
        }
        let closed: Vec<String> =
            self.closed.iter().map(|day| format!("2026-03-{day:02}")).collect();
        let away: Vec<String> = self
            .away
            .iter()
            .map(|&(from, count)| {
                format!("{{ from: \"{}\", to: \"{}\" }}", hour(from), hour(from + count))
            })
            .collect();
        format!(
            "organisation: x\ncalendars:\n  c: {{ zone: {}, hours: {{ {hours} }}, closed: [{}] }}\n\
             agents:\n  ann: {{ calendar: c, absent: [{}], regularly: [{regularly}] }}\n",
            self.zone,
            closed.join(", "),
            away.join(", ")
        )
    }

    /// The literal definition of working time.
    fn works(&self, moment: Timestamp) -> bool {
        let zone: TimeZone = TimeZoneDatabase::bundled().get(self.zone).unwrap();
        let wall = zone.to_datetime(jiff::Timestamp::from_millisecond(moment.0).unwrap());
        let day = wall.weekday().to_monday_zero_offset() as usize;
        let closed = wall.year() == 2026 && wall.month() == 3 && self.closed.contains(&wall.day());
        let away = self
            .away
            .iter()
            .any(|&(from, count)| hour(from) <= moment && moment < hour(from + count));
        self.week[day * 24 + wall.hour() as usize] && !closed && !away
    }
}

fn hour(number: i64) -> Timestamp {
    at("2026-01-01T00:00:00Z") + Duration::from_secs(number as u64 * 3600)
}

fn plans() -> impl Strategy<Value = Plan> {
    let zones = prop::sample::select(vec![
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "America/Nuuk",
        "Australia/Lord_Howe",
        "Asia/Kolkata",
        "America/Santiago",
        "Pacific/Kiritimati",
    ]);
    let away = prop::collection::vec((0..8_760_i64, 1..400_i64), 0..5);
    (zones, prop::collection::vec(any::<bool>(), 168), prop::collection::vec(1..32_i8, 0..5), away)
        .prop_filter("somebody works", |(_, week, ..)| week.contains(&true))
        .prop_map(|(zone, week, closed, away)| Plan { zone, week, closed, away })
}

fn joined(all: impl Iterator<Item = WorkSpan>) -> Vec<WorkSpan> {
    let mut whole: Vec<WorkSpan> = Vec::new();
    for span in all {
        match whole.last_mut() {
            Some(last) if last.to == span.from => last.to = span.to,
            Some(_) | None => whole.push(span),
        }
    }
    whole
}

proptest! {
    #[test]
    fn working_time_follows_local_time(
        plan in plans(),
        from in 1_400..7_200_i64,
        lengths in (0..500_i64, 0..500_i64),
        minutes in prop::collection::vec(0..60_000_i64, 40),
    ) {
        let organisation = organisation(&plan.source(""));
        let time = organisation.working_time(&"ann".into()).unwrap();
        let spans_of = |from, to| time.spans_between_appointments(from, to);
        let (from, middle, to) = (hour(from), hour(from + lengths.0), hour(from + lengths.0 + lengths.1));
        let spans: Vec<WorkSpan> = time.spans_between_appointments(from, to).collect();
        prop_assert!(spans.iter().all(|span| span.from < span.to && from <= span.from && span.to <= to));
        prop_assert!(spans.is_sorted_by(|a, b| a.to < b.from), "{spans:?}");
        let halves = joined(spans_of(from, middle).chain(spans_of(middle, to)));
        prop_assert_eq!(&halves, &spans);
        for minute in minutes {
            let moment = from + Duration::from_secs(minute as u64 * 60);
            if moment < to {
                let worked = spans.iter().any(|span| span.from <= moment && moment < span.to);
                prop_assert_eq!(worked, plan.works(moment), "{}", moment);
            }
        }
    }

    #[test]
    fn what_comes_up_is_the_same_however_one_looks(
        plan in plans(),
        from in 1_400..7_200_i64,
        lengths in (0..300_i64, 0..300_i64),
    ) {
        let (free, busy) = (organisation(&plan.source("")), organisation(&plan.source(REGULARLY)));
        let free = free.working_time(&"ann".into()).unwrap();
        let time = busy.working_time(&"ann".into()).unwrap();
        let (from, middle, to) = (hour(from), hour(from + lengths.0), hour(from + lengths.0 + lengths.1));
        let all: Vec<_> = time.occurrences(from, to).collect();
        // An occurrence that is not over in the middle is in both halves.
        let second = time.occurrences(middle, to).filter(|due| due.release >= middle);
        let halves: Vec<_> = time.occurrences(from, middle).chain(second).collect();
        prop_assert_eq!(&halves, &all);
        prop_assert!(all.is_sorted_by_key(|due| due.release));
        for due in &all {
            let worked = free.spans_between_appointments(due.release, due.deadline);
            let worked = worked.map(|span| span.to.since(span.from));
            prop_assert!(from < due.deadline && due.release < to);
            prop_assert!(!due.takes.is_zero() && due.takes <= worked.sum(), "{due:?}");
        }
        for span in time.spans_between_appointments(from, to) {
            let clash = all.iter().filter(|due| due.fixed).find(|due| due.release < span.to && span.from < due.deadline);
            prop_assert_eq!(clash, None, "{:?}", span);
        }
    }
}
