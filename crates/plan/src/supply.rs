//! The working time of a resource as a function of the clock.
//!
//! Plans count in working time, without nights and absences. A moment is converted once when a task
//! comes in, and back when its date is shown.

use legwork_model::time::Timestamp;
use minicbor::{Decode, Encode};

/// Milliseconds of working time: an amount, or, from the beginning of a supply on, a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Work(#[n(0)] pub i64);

impl Work {
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// The whole time, in per cent.
pub const WHOLE: u32 = 100;

/// A span of working time, with a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: Timestamp,
    pub to: Timestamp,
    /// In per cent. Each slot of an executor has a plan of its own.
    pub share: u32,
}

/// All spans of working time of a resource. Nothing is known after the last one, and nothing is
/// promised there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supply {
    /// In order, disjoint.
    spans: Vec<Span>,
    /// The working time before each span.
    before: Vec<i64>,
}

impl Supply {
    /// At any hour, for ever.
    pub fn always(from: Timestamp) -> Self {
        Self::always_with(WHOLE, from)
    }

    /// At any hour, with a share in per cent.
    pub fn always_with(share: u32, from: Timestamp) -> Self {
        Self::new([Span { from, to: Timestamp(i64::MAX / (2 * i64::from(WHOLE))), share }])
    }

    /// Spans in their order, disjoint.
    pub fn new(spans: impl IntoIterator<Item = Span>) -> Self {
        let spans: Vec<Span> =
            spans.into_iter().filter(|span| span.from < span.to && span.share > 0).collect();
        debug_assert!(spans.is_sorted_by(|a, b| a.to <= b.from), "in order and disjoint");
        let add = |total: &mut i64, span: &Span| {
            let before = *total;
            *total += span.work_until(span.to);
            Some(before)
        };
        let before = spans.iter().scan(0, add).collect();
        Self { spans, before }
    }

    /// The working time before a moment.
    pub fn until(&self, moment: Timestamp) -> Work {
        let next = self.spans.partition_point(|span| span.from < moment);
        let Some(place) = next.checked_sub(1) else { return Work(0) };
        Work(self.before[place] + self.spans[place].work_until(moment))
    }

    /// The first moment with so much working time before it; `None` if unknown.
    pub fn moment(&self, work: Work) -> Option<Timestamp> {
        let place = self.before.partition_point(|before| *before < work.0).checked_sub(1);
        let Some(place) = place else { return self.spans.first().map(|span| span.from) };
        let span = self.spans[place];
        // Overflow counts as unknown.
        let missing = (work.0 - self.before[place]).checked_mul(i64::from(WHOLE))?;
        let share = i64::from(span.share);
        let length = missing.checked_add(share - 1)? / share;
        let moment = Timestamp(span.from.0.checked_add(length)?);
        (moment <= span.to).then_some(moment)
    }

    /// The first moment at which work of this point can be done: where `moment` is the end of a day,
    /// this is the beginning of the next.
    pub fn begin(&self, work: Work) -> Option<Timestamp> {
        let place = self.before.partition_point(|before| *before <= work.0).checked_sub(1)?;
        let from = self.spans[place].from;
        self.moment(work).map(|moment| moment.max(from))
    }
}

impl Span {
    fn work_until(&self, moment: Timestamp) -> i64 {
        (moment.min(self.to).0 - self.from.0) * i64::from(self.share) / i64::from(WHOLE)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(from: i64, to: i64, share: u32) -> Span {
        Span { from: Timestamp(from), to: Timestamp(to), share }
    }

    #[test]
    fn nights_do_not_count_and_half_a_day_counts_half() {
        let supply = Supply::new([span(100, 200, 100), span(300, 400, 50)]);
        for (moment, work) in [(0, 0), (100, 0), (150, 50), (250, 100), (340, 120), (999, 150)] {
            assert_eq!(supply.until(Timestamp(moment)), Work(work), "{moment}");
        }
        for (work, moment) in [(0, Some(100)), (100, Some(200)), (101, Some(302)), (151, None)] {
            assert_eq!(supply.moment(Work(work)), moment.map(Timestamp), "{work}");
        }
        assert_eq!(supply.begin(Work(100)), Some(Timestamp(300)), "not in the night");
    }

    proptest! {
        #[test]
        fn a_moment_is_the_first_with_so_much_working_time(
            lengths in prop::collection::vec((1_i64..50, 1_i64..50, 1_u32..=100), 1..8),
            part in 0.0..1.0,
        ) {
            let mut at = 0;
            let spans = lengths.iter().map(|&(pause, length, share)| {
                at += pause;
                at += length;
                span(at - length, at, share)
            });
            let supply = Supply::new(spans.collect::<Vec<_>>());
            let total = supply.until(Timestamp(i64::MAX));
            let work = Work((total.0 as f64 * part) as i64);
            let moment = supply.moment(work).expect("there is as much");
            prop_assert!(supply.until(moment) >= work);
            let earlier = supply.until(Timestamp(moment.0 - 1));
            prop_assert!(work == Work(0) || earlier < work, "{earlier:?} {work:?}");
            prop_assert_eq!(supply.moment(total.plus(Work(1))), None);
        }
    }
}
