//! The hours of a week, in local time.
//!
//! `mon-fri: "08:00-12:00 12:30-16:30"`; hours may go on past midnight, and no hours overlap.

use legwork_model::yaml::fields::quote;

use super::mistake::Mistake;
use super::spans::{self, Stretch};
use super::zone::{DAY_MS, MINUTE_MS};

/// The most stretches of work in one day.
pub const SPANS_PER_DAY_MAX: usize = 12;

const WEEK_MS: i64 = 7 * DAY_MS;
const DAY_MINUTES: u32 = 24 * 60;
/// 1970 began on a Thursday.
const EPOCH_DAY: i64 = 3;

pub(super) const DAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// The working hours of a week: milliseconds since Monday, ascending, with gaps between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Week(Vec<Stretch>);

/// The hours of a week while they are being read.
#[derive(Debug, Default)]
pub(crate) struct Draft(Vec<(u32, Hours)>);

/// Minutes of a day; an end beyond midnight is in the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hours {
    from: u32,
    to: u32,
}

impl Week {
    /// At any hour.
    pub(crate) fn whole() -> Self {
        Self(Vec::from([Stretch { start: 0, end: WEEK_MS }]))
    }

    /// The working hours within a stretch, both in local time.
    pub(super) fn within(&self, wall: Stretch) -> impl Iterator<Item = Stretch> + '_ {
        let day = wall.start.div_euclid(DAY_MS);
        let monday = (day - (day + EPOCH_DAY).rem_euclid(7)) * DAY_MS;
        let weeks = (wall.end - monday) / WEEK_MS + 1;
        let all = (0..weeks).flat_map(move |week| {
            let start = monday + week * WEEK_MS;
            self.0.iter().map(move |hours| start + hours.start..start + hours.end)
        });
        let bounds = wall.clone();
        all.skip_while(move |hours| hours.end <= bounds.start)
            .take_while(move |hours| hours.start < wall.end)
            .map(move |hours| hours.start.max(bounds.start)..hours.end.min(bounds.end))
    }
}

impl Draft {
    /// Adds hours of a day. Fails with the hours that overlap them, if any.
    pub(crate) fn add(&mut self, day: u32, hours: Hours) -> Result<(), (u32, Hours)> {
        let clash = self.0.iter().find(|(other, others)| overlap((day, hours), (*other, *others)));
        if let Some(&clash) = clash {
            return Err(clash);
        }
        self.0.push((day, hours));
        Ok(())
    }

    /// `None` without any hours.
    pub(crate) fn finish(self) -> Option<Week> {
        let mut all: Vec<Stretch> =
            self.0.iter().flat_map(|&(day, hours)| pieces(day, hours)).collect();
        all.sort_unstable_by_key(|stretch| stretch.start);
        let all: Vec<Stretch> = spans::joined(all.into_iter()).collect();
        (!all.is_empty()).then_some(Week(all))
    }
}

fn overlap(a: (u32, Hours), b: (u32, Hours)) -> bool {
    let across = |a: &Stretch, b: &Stretch| a.start < b.end && b.start < a.end;
    pieces(a.0, a.1).any(|a| pieces(b.0, b.1).any(|b| across(&a, &b)))
}

/// The hours as stretches of the week; hours that go on into Monday are two stretches.
fn pieces(day: u32, hours: Hours) -> impl Iterator<Item = Stretch> {
    let start = i64::from(day) * DAY_MS;
    let (from, to) = (i64::from(hours.from) * MINUTE_MS, i64::from(hours.to) * MINUTE_MS);
    let this_week = start + from..(start + to).min(WEEK_MS);
    let next_week = 0..(start + to - WEEK_MS).max(0);
    [this_week, next_week].into_iter().filter(|stretch| !stretch.is_empty())
}

/// The day of a name such as `mon` or `Monday`; 0 is Monday.
pub(super) fn day(word: &str) -> Option<u32> {
    let fits =
        |full: &str| word.eq_ignore_ascii_case(full) || word.eq_ignore_ascii_case(&full[..3]);
    DAYS.iter().position(|full| fits(full)).map(|place| place as u32)
}

pub(crate) fn short(day: u32) -> &'static str {
    DAYS.get(day as usize).map_or("", |full| &full[..3])
}

/// The days of `mon`, `mon-fri` or `mon,wed,sat-sun`.
pub(crate) fn days(text: &str) -> Result<Vec<u32>, Mistake> {
    let mut all = Vec::new();
    for (at, part) in parts(text) {
        let hint = "name days as in `mon`, `mon-fri` or `mon,wed`";
        let one = |word: &str| {
            let wrong = || Mistake::new(at, format!("{} is not a day", quote(part)), hint);
            day(word.trim()).ok_or_else(wrong)
        };
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (one(first)?, one(last)?),
            None => (one(part)?, one(part)?),
        };
        // `sat-mon` wraps around the end of the week.
        let count = (last + 7 - first) % 7;
        for day in (0..=count).map(|step| (first + step) % 7) {
            if all.contains(&day) {
                let message = format!("`{}` is named twice", short(day));
                return Err(Mistake::new(at, message, "name every day once"));
            }
            all.push(day);
        }
    }
    Ok(all)
}

/// The hours of `08:00-12:00 12:30-16:30`.
pub(crate) fn hours(text: &str) -> Result<Vec<Hours>, Mistake> {
    let mut all = Vec::new();
    for (at, part) in parts(text) {
        if all.len() == SPANS_PER_DAY_MAX {
            let message = format!("a day has more than {SPANS_PER_DAY_MAX} stretches of work");
            return Err(Mistake::limit(at, message, "join those that lie close together"));
        }
        let hint = "write hours as in `08:00-12:00`, or `22:00-06:00` if they go on past midnight";
        let wrong = || Mistake::new(at, format!("{} is not a stretch of hours", quote(part)), hint);
        let (from, to) = part.split_once('-').ok_or_else(wrong)?;
        let (from, to) = (time(from).ok_or_else(wrong)?, time(to).ok_or_else(wrong)?);
        if from == to || from == DAY_MINUTES {
            let message = format!("{} is no time at all", quote(part));
            return Err(Mistake::new(at, message, "for the whole day write `00:00-24:00`"));
        }
        let to = if to < from { to + DAY_MINUTES } else { to };
        all.push(Hours { from, to });
    }
    Ok(all)
}

/// Minutes since midnight; `24:00` is the end of the day.
fn time(text: &str) -> Option<u32> {
    let (hour, minute) = text.split_once(':')?;
    let digits = |text: &str, most: usize| {
        let fits = (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        fits.then(|| text.parse::<u32>().ok()).flatten()
    };
    let (hour, minute) = (digits(hour, 2)?, digits(minute, 2).filter(|_| minute.len() == 2)?);
    let time = hour * 60 + minute;
    (minute < 60 && time <= DAY_MINUTES).then_some(time)
}

/// The parts between spaces and commas, with their positions in characters.
fn parts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split([' ', ',']).filter_map(move |part| {
        let place = at;
        at += part.chars().count() + 1;
        (!part.is_empty()).then_some((place, part))
    })
}

impl std::fmt::Display for Hours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let to = if self.to > DAY_MINUTES { self.to - DAY_MINUTES } else { self.to };
        write!(f, "{:02}:{:02}-", self.from / 60, self.from % 60)?;
        write!(f, "{:02}:{:02}", to / 60, to % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> String {
        match days(text) {
            Ok(days) => days.into_iter().map(short).collect::<Vec<_>>().join(" "),
            Err(mistake) => format!("{}: {}", mistake.at, mistake.message),
        }
    }

    fn spelled(text: &str) -> String {
        match hours(text) {
            Ok(hours) => hours.iter().map(Hours::to_string).collect::<Vec<_>>().join(" "),
            Err(mistake) => format!("{}: {}", mistake.at, mistake.message),
        }
    }

    #[test]
    fn days_are_named_alone_as_ranges_and_as_lists() {
        assert_eq!(names("mon-fri"), "mon tue wed thu fri");
        assert_eq!(names("Monday"), "mon");
        assert_eq!(names("sat-mon, wed"), "sat sun mon wed");
        assert_eq!(names("mon-sun"), "mon tue wed thu fri sat sun");
        assert_eq!(names("mon,fre"), "4: `fre` is not a day");
        assert_eq!(names("mon-fri wed"), "8: `wed` is named twice");
        assert_eq!(names("mo"), "0: `mo` is not a day");
    }

    #[test]
    fn hours_are_read_as_they_are_written() {
        assert_eq!(spelled("8:00-12:00, 12:30-16:30"), "08:00-12:00 12:30-16:30");
        assert_eq!(spelled("22:00-06:00"), "22:00-06:00");
        assert_eq!(spelled("00:00-24:00"), "00:00-24:00");
        for (text, place) in [
            ("08:00", 0),
            ("08:00-12:00 13-14:00", 12),
            ("08:00-25:00", 0),
            ("08:60-09:00", 0),
            ("8:0-9:00", 0),
            ("-1:00-9:00", 0),
            ("+8:00-9:00", 0),
        ] {
            assert!(spelled(text).starts_with(&format!("{place}: `")), "{text}: {}", spelled(text));
            assert!(spelled(text).ends_with("is not a stretch of hours"), "{}", spelled(text));
        }
        assert_eq!(spelled("08:00-08:00"), "0: `08:00-08:00` is no time at all");
        assert_eq!(spelled("24:00-08:00"), "0: `24:00-08:00` is no time at all");
    }

    #[test]
    fn hours_that_lie_across_each_other_clash_also_over_midnight_and_over_the_week() {
        let check = |first: (&str, &str), second: (&str, &str)| {
            let mut draft = Draft::default();
            for (days_of, hours_of) in [first, second] {
                for day in days(days_of).unwrap() {
                    for hours in hours(hours_of).unwrap() {
                        draft
                            .add(day, hours)
                            .map_err(|(day, hours)| format!("{} {hours}", short(day)))?;
                    }
                }
            }
            Ok::<_, String>(())
        };
        assert_eq!(check(("mon", "08:00-12:00"), ("mon", "12:00-13:00")), Ok(()));
        let clash = |text: &str| Err(text.to_owned());
        assert_eq!(check(("mon", "08:00-12:00"), ("mon", "11:00-13:00")), clash("mon 08:00-12:00"));
        assert_eq!(check(("mon", "22:00-06:00"), ("tue", "05:00-09:00")), clash("mon 22:00-06:00"));
        assert_eq!(check(("sun", "22:00-06:00"), ("mon", "05:00-09:00")), clash("sun 22:00-06:00"));
        assert_eq!(check(("sun", "22:00-06:00"), ("mon", "06:00-09:00")), Ok(()));
    }
}
