//! How far a client has read a list.
//!
//! A cursor is kept by the client and not trusted: one that does not fit the current lists leads to
//! a full read, never to a wrong list or to the list of another agent.

use std::fmt;
use std::str::FromStr;

use legwork_model::id::ParseError;
use legwork_model::time::Timestamp;

use super::item::Age;

/// A position in one agent's list. Displays as text for clients to hand back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// The incarnation of the site that made it.
    pub(super) epoch: u64,
    /// Of the agent and those they stood in for.
    pub(super) fingerprint: u64,
    /// Items up to this age were read.
    pub(super) aged: Age,
    /// Moves and removals up to this revision were read.
    pub(super) changed: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, fingerprint, aged, changed } = self;
        let Age(Timestamp(at), order) = aged;
        write!(f, "{epoch:x}-{fingerprint:x}-{at:x}-{order:x}-{changed:x}")
    }
}

impl FromStr for Cursor {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let numbers: [u64; 5] = numbers(text)?.try_into().map_err(|_| wrong(text))?;
        Ok(Self::from_numbers(numbers))
    }
}

impl Cursor {
    /// As plain numbers, for transfer to another server.
    pub fn numbers(&self) -> [u64; 5] {
        let Self { epoch, fingerprint, aged: Age(at, order), changed } = *self;
        [epoch, fingerprint, at.0.cast_unsigned(), order, changed]
    }

    pub fn from_numbers([epoch, fingerprint, at, order, changed]: [u64; 5]) -> Self {
        Self { epoch, fingerprint, aged: Age(Timestamp(at.cast_signed()), order), changed }
    }
}

/// More than any cursor has.
const NUMBERS_MAX: usize = 16;

/// The numbers of a cursor in text form.
pub(super) fn numbers(text: &str) -> Result<Vec<u64>, ParseError> {
    let number = |part: &str| {
        let plain = part.len() <= 16 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(part, 16).ok().filter(|_| plain).ok_or_else(|| wrong(text))
    };
    text.split('-').take(NUMBERS_MAX).map(number).collect()
}

pub(super) fn wrong(text: &str) -> ParseError {
    ParseError {
        text: text.chars().take(80).collect(),
        expected: "a worklist cursor; leave it out to read the list afresh",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_through_their_text() {
        for number in [0, 1, u64::MAX] {
            let aged = Age(Timestamp(number.cast_signed()), number / 2);
            let cursor = Cursor { epoch: number, fingerprint: 7, aged, changed: 3 };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
    }

    #[test]
    fn foreign_cursors_are_refused() {
        for text in
            ["", "1-2-3-4", "1-2-3-4-5-6", "1-2-3-4-", "+1-2-3-4-5", "g-1-1-1-1", "1-2-3-4-5 "]
        {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
        assert!("11112222333344445-1-1-1-1".parse::<Cursor>().is_err());
    }
}
