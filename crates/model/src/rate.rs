//! Rates: `10/s`, `600/m`, `1000/h`.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};

/// A rate, in the unit in which it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Rate {
    #[n(0)]
    count: u32,
    #[n(1)]
    per: Per,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
enum Per {
    #[n(0)]
    Second,
    #[n(1)]
    Minute,
    #[n(2)]
    Hour,
}

/// The most in a second, a minute or an hour.
pub const RATE_MAX: u32 = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no rate: write 10/s, 600/m or 1000/h, with at most {RATE_MAX}")]
pub struct NoRate(String);

impl Rate {
    /// The interval between two, in milliseconds.
    pub fn interval_ms(self) -> f64 {
        let per_ms = match self.per {
            Per::Second => 1_000.0,
            Per::Minute => 60_000.0,
            Per::Hour => 3_600_000.0,
        };
        per_ms / f64::from(self.count.max(1))
    }
}

impl FromStr for Rate {
    type Err = NoRate;

    fn from_str(text: &str) -> Result<Self, NoRate> {
        let read = || {
            let (count, per) = text.split_once('/')?;
            let count = count.parse().ok().filter(|count| (1..=RATE_MAX).contains(count))?;
            let per = match per {
                "s" => Per::Second,
                "m" => Per::Minute,
                "h" => Per::Hour,
                _ => return None,
            };
            Some(Self { count, per })
        };
        read().ok_or_else(|| NoRate(text.chars().take(64).collect()))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = match self.per {
            Per::Second => 's',
            Per::Minute => 'm',
            Per::Hour => 'h',
        };
        write!(f, "{}/{per}", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_reads_as_it_is_written() {
        for (text, interval_ms) in [("10/s", 100.0), ("600/m", 100.0), ("1/h", 3_600_000.0)] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.to_string(), rate.interval_ms()), (text.to_owned(), interval_ms));
        }
        for text in ["", "10", "0/s", "10/d", "-1/s", "1.5/s", "1000001/s", "/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }
}
