//! Moments and durations, as the history records them.
//!
//! Time is an argument everywhere in the pure crates: nothing here reads a clock.

use std::fmt;
use std::ops::Add;
use std::str::FromStr;
use std::time::Duration;

use minicbor::{Decode, Encode};

use crate::id::ParseError;

/// Milliseconds since 1970-01-01T00:00:00Z. Displays as RFC 3339 with milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Timestamp(#[n(0)] pub i64);

impl Timestamp {
    /// The time since `earlier`; zero if it is in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The moment later by a duration.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        let millis = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(millis))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        text.parse::<jiff::Timestamp>().map(|moment| Self(moment.as_millisecond())).map_err(|_| {
            ParseError {
                text: text.chars().take(64).collect(),
                expected: "a date and time with a zone, such as 2026-03-01T09:30:00Z",
            }
        })
    }
}

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a duration such as `30s`, `15m`, `8h` or `2d`.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    let wrong = || ParseError {
        text: text.chars().take(64).collect(),
        expected: "a length of time such as 500ms, 30s, 15m, 8h or 2d",
    };
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (count, unit) = text.split_at(digits);
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let count: u64 = count.parse().map_err(|_| wrong())?;
    count.checked_mul(*millis).map(Duration::from_millis).ok_or_else(wrong)
}

/// Writes a duration in the largest unit without a fraction.
pub fn format_duration(length: Duration) -> String {
    let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let fits = |&&(_, unit): &&(&str, u64)| millis >= unit && millis % unit == 0;
    let (name, unit) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
    format!("{}{name}", millis / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_round_trip() {
        for text in ["0ms", "250ms", "30s", "15m", "8h", "2d", "90s"] {
            assert_eq!(parse_duration(text).map(format_duration).as_deref(), Ok(text));
        }
        for text in ["", "5", "s", "-1s", "1.5h", "1 s", "99999999999999999999d", "300000000000d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn moments_read_and_write_as_rfc_3339() {
        let moment: Timestamp = "2026-03-01T10:30:00+01:00".parse().unwrap();
        assert_eq!(moment.to_string(), "2026-03-01T09:30:00.000Z");
        assert!("2026-03-01T10:30".parse::<Timestamp>().is_err());
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
    }
}
