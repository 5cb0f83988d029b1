//! Limits on a condition's text, checked before the parser runs.
//!
//! Parser and evaluator recurse over nested expressions, so the numbers of brackets and operators
//! are limited. They are counted everywhere, also inside quoted text: so quotes that this file and
//! the parser would read differently cannot mislead the count.

use super::ConditionError;

/// The most bytes of a condition.
pub const SOURCE_BYTES_MAX: usize = 4096;
/// The most opening brackets; each may take 10 KiB of stack while parsing.
pub const BRACKETS_MAX: usize = 40;
/// The most operators; each may take 2 KiB of stack, unoptimised.
pub const OPERATORS_MAX: usize = 200;

/// Refuses text that is too long or could nest too deeply.
pub(super) fn admit(source: &str) -> Result<(), ConditionError> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(ConditionError::TooLong { bytes: source.len() });
    }
    let count = Count::of(source.as_bytes());
    if count.brackets > BRACKETS_MAX {
        let (found, limit) = (count.brackets, BRACKETS_MAX);
        return Err(ConditionError::TooComplex { what: "opening brackets", found, limit });
    }
    if count.operators > OPERATORS_MAX {
        let (found, limit) = (count.operators, OPERATORS_MAX);
        return Err(ConditionError::TooComplex { what: "operators", found, limit });
    }
    Ok(())
}

#[derive(Default)]
struct Count {
    brackets: usize,
    operators: usize,
}

impl Count {
    fn of(source: &[u8]) -> Self {
        let mut count = Self::default();
        let mut before = b' ';
        for (place, &byte) in source.iter().enumerate() {
            let after = source.get(place + 1).copied().unwrap_or(b' ');
            match byte {
                b'(' | b'[' | b'{' => count.brackets += 1,
                // The second half of `&&`, `||`, `==`, `!=`, `<=` and `>=`.
                b'&' | b'|' if before == byte => {}
                b'=' if matches!(before, b'=' | b'!' | b'<' | b'>') => {}
                b'!' | b'-' | b'+' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'&' | b'|'
                | b'?' | b'.' => count.operators += 1,
                b'i' if after == b'n' && is_word_in(source, place) => count.operators += 1,
                _ => {}
            }
            before = byte;
        }
        count
    }
}

/// Whether the `in` at this place is a word of its own. A digit may stand before it: `1in x`.
fn is_word_in(source: &[u8], place: usize) -> bool {
    let before = place.checked_sub(1).and_then(|place| source.get(place));
    let after = source.get(place + 2);
    !before.is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
        && !after.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_counted_once_each() {
        for (source, brackets, operators) in [
            ("a", 0, 0),
            ("insurance in inside", 0, 1),
            ("1in[2]", 1, 1),
            ("a == 1 && b <= 2 || c != 3", 0, 5),
            ("!(a ? b : c)", 1, 2),
            ("a.b.c[0] - -1", 1, 4),
            ("'(' == \")\"", 1, 1),
        ] {
            let count = Count::of(source.as_bytes());
            assert_eq!((count.brackets, count.operators), (brackets, operators), "{source}");
        }
    }
}
