//! Arithmetic on ascending, nonempty stretches of time.
//!
//! Everything is lazy: working time is computed only as far as it is read.

use std::iter::Peekable;
use std::ops::Range;

/// Milliseconds, in UTC or in local time, depending on the use.
pub(super) type Stretch = Range<i64>;

/// The stretches without the cuts. Both ascend by their beginning; cuts may overlap.
pub(super) fn without<S, C>(stretches: S, cuts: C) -> impl Iterator<Item = Stretch>
where
    S: Iterator<Item = Stretch>,
    C: Iterator<Item = Stretch>,
{
    Without { stretches, cuts: cuts.peekable(), rest: None }
}

/// Merges stretches that touch or overlap.
pub(super) fn joined(stretches: impl Iterator<Item = Stretch>) -> impl Iterator<Item = Stretch> {
    let mut stretches = stretches.peekable();
    std::iter::from_fn(move || {
        let mut whole = stretches.next()?;
        while let Some(next) = stretches.next_if(|next| next.start <= whole.end) {
            whole.end = whole.end.max(next.end);
        }
        Some(whole)
    })
}

struct Without<S, C: Iterator> {
    stretches: S,
    cuts: Peekable<C>,
    /// The rest of a stretch that was cut.
    rest: Option<Stretch>,
}

impl<S: Iterator<Item = Stretch>, C: Iterator<Item = Stretch>> Iterator for Without<S, C> {
    type Item = Stretch;

    fn next(&mut self) -> Option<Stretch> {
        loop {
            let whole = self.rest.take().or_else(|| self.stretches.next())?;
            while self.cuts.next_if(|cut| cut.end <= whole.start).is_some() {}
            let Some(cut) = self.cuts.peek().filter(|cut| cut.start < whole.end) else {
                return Some(whole);
            };
            if whole.start < cut.start {
                self.rest = Some(cut.start..whole.end);
                return Some(whole.start..cut.start);
            }
            self.rest = Some(cut.end..whole.end).filter(|rest| !rest.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ascending() -> impl Strategy<Value = Vec<Stretch>> {
        let all = prop::collection::vec((0..60_i64, 1..9_i64), 0..12);
        all.prop_map(|mut all| {
            all.sort_unstable();
            all.into_iter().map(|(from, length)| from..from + length).collect()
        })
    }

    fn points(all: &[Stretch]) -> BTreeSet<i64> {
        all.iter().cloned().flatten().collect()
    }

    proptest! {
        #[test]
        fn what_is_left_is_what_no_cut_covers(stretches in ascending(), cuts in ascending()) {
            let stretches: Vec<Stretch> = joined(stretches.into_iter()).collect();
            let left: Vec<Stretch> =
                without(stretches.iter().cloned(), cuts.iter().cloned()).collect();
            let expected: BTreeSet<i64> = &points(&stretches) - &points(&cuts);
            prop_assert_eq!(points(&left), expected);
            prop_assert!(left.iter().all(|stretch| !stretch.is_empty()));
            prop_assert!(left.is_sorted_by(|a, b| a.end <= b.start));
        }

        #[test]
        fn joined_stretches_leave_gaps_between_them(stretches in ascending()) {
            let whole: Vec<Stretch> = joined(stretches.iter().cloned()).collect();
            prop_assert_eq!(points(&whole), points(&stretches));
            prop_assert!(whole.is_sorted_by(|a, b| a.end < b.start));
        }
    }
}
