//! Timetables in the syntax of cron: `minute hour day-of-month month day-of-week`.
//!
//! Five fields of numbers or names, with lists, ranges and steps. As in cron, if both the day of
//! the month and the day of the week are restricted, either one suffices.

use jiff::civil::Date;
use legwork_model::yaml::fields::quote;
use legwork_model::yaml::nearest;

use super::mistake::Mistake;
use super::week::{self, DAYS};

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const HINT: &str = "write minute, hour, day of the month, month and day of the week, such as \
                    `30 8 * * mon-fri` or `0 */2 1,15 * *`";

/// A timetable in local time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cron {
    /// Sets of numbers, as bits.
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// 0 is Monday.
    weekdays: u64,
    /// Whether one of both kinds of day suffices: both are restricted.
    either_day: bool,
}

impl Cron {
    pub(crate) fn parse(text: &str) -> Result<Self, Mistake> {
        let words: Vec<(usize, &str)> = words(text).collect();
        let &[minutes, hours, days, months, weekdays] = &words[..] else {
            let at = words.get(FIELDS.len()).map_or(0, |(at, _)| *at);
            let message = format!("a time-table has 5 fields, this one {}", words.len());
            return Err(Mistake::new(at, message, HINT));
        };
        let is_free = |(_, word): (usize, &str)| word.starts_with('*');
        let cron = Self {
            minutes: FIELDS[0].read(minutes)?,
            hours: FIELDS[1].read(hours)?,
            days: FIELDS[2].read(days)?,
            months: FIELDS[3].read(months)?,
            weekdays: FIELDS[4].read(weekdays)?,
            either_day: !is_free(days) && !is_free(weekdays),
        };
        if !cron.ever_happens() {
            let message =
                format!("{} never happens: no such month has that day", quote(text.trim()));
            return Err(Mistake::new(days.0, message, "choose a day that the month has"));
        }
        Ok(cron)
    }

    pub(super) fn is_on(&self, date: Date) -> bool {
        let day = has(self.days, date.day() as u32);
        let weekday = has(self.weekdays, date.weekday().to_monday_zero_offset() as u32);
        has(self.months, date.month() as u32)
            && if self.either_day { day || weekday } else { day && weekday }
    }

    /// The minutes of a day, ascending.
    pub(super) fn minutes(&self) -> impl Iterator<Item = i64> + '_ {
        let hours = (0..24_u32).filter(|&hour| has(self.hours, hour));
        hours.flat_map(|hour| {
            let minutes = (0..60_u32).filter(|&minute| has(self.minutes, minute));
            minutes.map(move |minute| i64::from(hour * 60 + minute))
        })
    }

    /// Every 29th of February falls on every day of the week at some time.
    fn ever_happens(&self) -> bool {
        const LENGTHS: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let months = (1..).zip(LENGTHS).filter(|&(month, _)| has(self.months, month));
        self.either_day
            || months.into_iter().any(|(_, length)| (1..=length).any(|day| has(self.days, day)))
    }
}

struct Field {
    name: &'static str,
    least: u32,
    most: u32,
    /// Names of the numbers, from the least on.
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", least: 0, most: 59, names: &[] },
    Field { name: "hour", least: 0, most: 23, names: &[] },
    Field { name: "day of the month", least: 1, most: 31, names: &[] },
    Field { name: "month", least: 1, most: 12, names: &MONTHS },
    // Both 0 and 7 are Sunday.
    Field { name: "day of the week", least: 0, most: 7, names: &DAYS },
];

impl Field {
    /// The set of numbers of a field such as `*/5`, `1-5` or `mon,wed`.
    fn read(&self, (at, word): (usize, &str)) -> Result<u64, Mistake> {
        let mut set = 0;
        let mut place = at;
        for part in word.split(',') {
            set |= self.part(place, part)?;
            place += part.chars().count() + 1;
        }
        Ok(set)
    }

    fn part(&self, at: usize, part: &str) -> Result<u64, Mistake> {
        let (range, step) = match part.split_once('/') {
            None => (part, None),
            Some((range, step)) => {
                let place = at + range.chars().count() + 1;
                let fits = |step: &u32| (1..=self.most).contains(step);
                let wrong = || self.wrong(place, step, "step");
                (range, Some(number(step).filter(fits).ok_or_else(wrong)?))
            }
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (self.least, self.last()),
            None => {
                let only = self.value(at, range)?;
                // `5/10` counts from 5 on.
                (only, if step.is_some() { self.last().max(only) } else { only })
            }
            Some((first, last)) => {
                let place = at + first.chars().count() + 1;
                (self.value(at, first)?, self.value(place, last)?)
            }
        };
        let last = self.not_before(at, range, first, last)?;
        let numbers = (first..=last).step_by(step.unwrap_or(1) as usize);
        Ok(numbers.fold(0, |set, number| set | 1 << self.bit(number)))
    }

    /// Days of the week wrap around: `sat-mon` ends in the next week.
    fn not_before(&self, at: usize, range: &str, first: u32, last: u32) -> Result<u32, Mistake> {
        if first <= last {
            return Ok(last);
        }
        if self.is_week() {
            return Ok(last + 7);
        }
        let message = format!("{} {} runs backwards", self.name, quote(range));
        Err(Mistake::new(at, message, "put the smaller number first, or write two ranges"))
    }

    fn value(&self, at: usize, word: &str) -> Result<u32, Mistake> {
        let named = match self.is_week() {
            true => week::day(word).map(|day| (day + 1) % 7),
            false => {
                self.names.iter().position(|name| fits(word, name)).map(|n| n as u32 + self.least)
            }
        };
        let found = named.or_else(|| number(word));
        let found = found.filter(|number| (self.least..=self.most).contains(number));
        found.ok_or_else(|| self.wrong(at, word, self.name))
    }

    fn wrong(&self, at: usize, word: &str, what: &str) -> Mistake {
        let message = match word {
            "" => format!("the {what} is missing"),
            word => format!("{} is no {what}", quote(word)),
        };
        let names = self.names.iter().map(|name| &name[..3]);
        let hint = match nearest(&word.to_ascii_lowercase(), names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                let (least, most) = (self.least, self.most);
                format!("write numbers from {least} to {most}, as in `*`, `*/5`, `1-5` or `1,3`")
            }
        };
        Mistake::new(at, message, hint)
    }

    fn is_week(&self) -> bool {
        self.most == 7
    }

    /// The last number of `*`: Sunday counts once.
    fn last(&self) -> u32 {
        if self.is_week() { 6 } else { self.most }
    }

    fn bit(&self, number: u32) -> u32 {
        if self.is_week() { (number + 6) % 7 } else { number }
    }
}

fn fits(word: &str, name: &str) -> bool {
    word.eq_ignore_ascii_case(name) || word.eq_ignore_ascii_case(&name[..3])
}

fn has(set: u64, number: u32) -> bool {
    set >> number & 1 == 1
}

/// At most three digits without a sign.
fn number(text: &str) -> Option<u32> {
    let plain = (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// The words with their positions, in characters.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split(' ').filter_map(move |word| {
        let place = at;
        at += word.chars().count() + 1;
        (!word.is_empty()).then_some((place, word))
    })
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use proptest::prelude::*;

    use super::*;

    /// The days of a year, and the times of day.
    fn happens(text: &str) -> String {
        let cron = match Cron::parse(text) {
            Ok(cron) => cron,
            Err(mistake) => return format!("{}: {}", mistake.at, mistake.message),
        };
        let days = date(2026, 1, 1).series(jiff::ToSpan::days(1)).take(365);
        let on: Vec<String> = days
            .filter(|&day| cron.is_on(day))
            .map(|day| day.strftime("%m-%d").to_string())
            .collect();
        let at: Vec<String> =
            cron.minutes().map(|minute| format!("{:02}:{:02}", minute / 60, minute % 60)).collect();
        let some = |all: &[String]| match all {
            [first, .., last] if all.len() > 4 => format!("{first} … {last} ({})", all.len()),
            few => few.join(" "),
        };
        format!("{} at {}", some(&on), some(&at))
    }

    #[test]
    fn time_tables_mean_what_cron_means() {
        for (text, expected) in [
            ("* * * * *", "01-01 … 12-31 (365) at 00:00 … 23:59 (1440)"),
            ("0 8 * * mon-fri", "01-01 … 12-31 (261) at 08:00"),
            ("0 8 * * 1-5", "01-01 … 12-31 (261) at 08:00"),
            ("30 8,16 1 jan,JULY *", "01-01 07-01 at 08:30 16:30"),
            ("*/20 9 24 12 *", "12-24 at 09:00 09:20 09:40"),
            ("5/25 9 24 12 *", "12-24 at 09:05 09:30 09:55"),
            ("10-20/5 9 24 12 *", "12-24 at 09:10 09:15 09:20"),
            ("0 0 29 2 *", " at 00:00"),
            // 7 is Sunday, as 0 is; over the end of the week too.
            ("0 0 * 1 7", "01-04 01-11 01-18 01-25 at 00:00"),
            ("0 0 * 1 0", "01-04 01-11 01-18 01-25 at 00:00"),
            ("0 0 1-4 1 *", "01-01 01-02 01-03 01-04 at 00:00"),
            ("0 0 * 2 sat-mon", "02-01 … 02-28 (12) at 00:00"),
            ("0 0 * 2 5-7", "02-01 … 02-28 (12) at 00:00"),
            // Either day is enough.
            ("0 0 13 1 sunday", "01-04 … 01-25 (5) at 00:00"),
            ("0 0 31 2 mon", "02-02 02-09 02-16 02-23 at 00:00"),
            // A step on all days restricts them as well, but both kinds of day have to match.
            ("0 0 */10 1 sun", "01-11 at 00:00"),
        ] {
            assert_eq!(happens(text), expected, "{text}");
        }
    }

    #[test]
    fn mistakes_are_told_with_the_field_and_the_place() {
        for (text, expected) in [
            ("", "0: a time-table has 5 fields, this one 0"),
            ("0 8 * *", "0: a time-table has 5 fields, this one 4"),
            ("0 0 8 * * mon", "10: a time-table has 5 fields, this one 6"),
            ("60 8 * * *", "0: `60` is no minute"),
            ("0 24 * * *", "2: `24` is no hour"),
            ("0  8,x * * *", "5: `x` is no hour"),
            ("0 8 0 * *", "4: `0` is no day of the month"),
            ("0 8 * 13 *", "6: `13` is no month"),
            ("0 8 * * mon-fry", "12: `fry` is no day of the week"),
            ("0 8 * * 8", "8: `8` is no day of the week"),
            ("*/0 8 * * *", "2: `0` is no step"),
            ("*/ 8 * * *", "2: the step is missing"),
            ("0 17-9 * * *", "2: hour `17-9` runs backwards"),
            ("0 8-,9 * * *", "4: the hour is missing"),
            ("-5 8 * * *", "0: the minute is missing"),
            ("0 8 30,31 feb *", "4: `0 8 30,31 feb *` never happens: no such month has that day"),
        ] {
            assert_eq!(happens(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[ 0-9*/,a-fm-nor-]{0,30}|\\PC{0,20}") {
            drop(Cron::parse(&text));
        }
    }
}
