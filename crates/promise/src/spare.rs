//! How the time to spare until a deadline is shared out among the steps before it: each is taken to need longer by the same
//! factor, of the time in which those work who can do it. So nobody gets a night or a weekend for their share.
//!
//! Invariant: for a later deadline no step is due earlier.

use std::cell::Cell;
use std::sync::Arc;

use legwork_model::time::Timestamp;

use crate::legs::{Leg, tails};
use crate::plan::Window;
use crate::supply::{Supply, Work};

/// A factor by which something takes longer is so many of these.
const WHOLE: i64 = 1_024;

/// When those work who can do a step; at any hour if nothing is known of them.
#[derive(Clone, Debug, Default)]
pub struct Hours(Vec<Arc<Supply>>);

impl Hours {
    pub fn new(all: impl IntoIterator<Item = Arc<Supply>>) -> Self {
        let mut different: Vec<Arc<Supply>> = Vec::new();
        for one in all {
            if !different.contains(&one) {
                different.push(one);
            }
        }
        Self(different)
    }
}

/// How much work each leg is for each of those who can do it, and when they do it.
#[derive(Clone, Debug)]
pub(crate) struct Spare {
    legs: Vec<Vec<(Arc<Supply>, i64)>>,
    /// Of those behind each leg the one after which it takes longest.
    behind: Vec<Option<usize>>,
    deadline: Timestamp,
    /// The factor of the leg before: mostly it is that of the next as well, so it is looked for from there.
    found: Cell<i64>,
}

impl Spare {
    pub(crate) fn new(
        legs: &[Leg],
        takes_ms: &[i64],
        hours: &[Hours],
        (start, deadline): (Timestamp, Timestamp),
    ) -> Self {
        let always = Arc::new(Supply::always(start));
        let works = takes_ms.iter().enumerate().map(|(leg, takes)| {
            let known = hours.get(leg).map_or(&[][..], |hours| &hours.0);
            let known = if known.is_empty() { std::slice::from_ref(&always) } else { known };
            known.iter().map(|supply| (supply.clone(), *takes)).collect()
        });
        let (legs, behind) = (works.collect(), behind(legs, takes_ms));
        Self { legs, behind, deadline, found: Cell::new(0) }
    }

    /// The same if each leg takes as long as in these windows.
    pub(crate) fn as_planned(&self, windows: &[Window]) -> Self {
        let mut planned = self.clone();
        for (leg, window) in planned.legs.iter_mut().zip(windows) {
            for (supply, work) in leg {
                let between = supply.until(window.deadline).0 - supply.until(window.release).0;
                *work = between.max(*work);
            }
        }
        planned
    }

    /// When a leg is due that could be done at some moment: with its part of the time to spare, halved so many times.
    /// `None` if there is none.
    pub(crate) fn due(&self, leg: usize, soonest: Timestamp, halved: u32) -> Option<Timestamp> {
        let fits = |factor: i64| self.end(leg, soonest, factor).is_some();
        let least = self.legs[leg].iter().map(|(_, work)| *work).min().unwrap_or(1).max(1);
        let room = i128::from(self.deadline.0.saturating_sub(soonest.0).max(0));
        let most = room * i128::from(WHOLE) / i128::from(least) + 1;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let found = last_that(fits, most, self.found.get())?;
        self.found.set(found);
        self.through(leg, soonest, found >> halved)
    }

    /// When somebody could have done a leg from a moment on.
    pub(crate) fn soonest(&self, leg: usize, release: Timestamp) -> Option<Timestamp> {
        self.through(leg, release, WHOLE)
    }

    /// Whether all that is behind a leg can be done after it.
    pub(crate) fn leaves_enough(&self, leg: usize, due: Timestamp) -> bool {
        self.end(leg, due, 0).is_some()
    }

    /// When all is done behind a leg that could be done at some moment, if that is in time and everybody takes longer by a factor.
    fn end(&self, leg: usize, soonest: Timestamp, factor: i64) -> Option<Timestamp> {
        let mut at = self.through(leg, soonest, factor)?;
        let mut next = self.behind[leg];
        while let Some(leg) = next {
            at = self.through(leg, at, WHOLE.saturating_add(factor))?;
            next = self.behind[leg];
        }
        Some(at)
    }

    /// When the first of those who can do a leg has worked from a moment on as long as it takes, times a factor.
    fn through(&self, leg: usize, from: Timestamp, factor: i64) -> Option<Timestamp> {
        let left = i128::from(self.deadline.0.saturating_sub(from.0));
        let all = self.legs[leg].iter().filter_map(|(supply, work)| {
            let work = i128::from(*work) * i128::from(factor) / i128::from(WHOLE);
            if work == 0 {
                return Some(from);
            }
            // Nobody works for longer than time passes.
            let work = i64::try_from(work).ok().filter(|work| i128::from(*work) <= left)?;
            supply.moment(supply.until(from).plus(Work(work)))
        });
        all.min().filter(|at| *at <= self.deadline)
    }
}

/// The last number for which something is so that is so for all smaller ones and not for the largest; looked for from a guess
/// on, twice as far each time. `None` if it is so for none.
fn last_that(is_so: impl Fn(i64) -> bool, largest: i64, guess: i64) -> Option<i64> {
    let guess = guess.clamp(0, largest - 1);
    let (mut so, mut not, mut step) = (-1, largest, 1);
    if is_so(guess) {
        so = guess;
        while step < not - so {
            if is_so(so + step) {
                so += step
            } else {
                not = so + step
            }
            step = step.saturating_mul(2);
        }
    } else {
        not = guess;
        while step < not - so {
            if is_so(not - step) {
                so = not - step
            } else {
                not -= step
            }
            step = step.saturating_mul(2);
        }
    }
    while not - so > 1 {
        let middle = so + (not - so) / 2;
        if is_so(middle) { so = middle } else { not = middle }
    }
    (so >= 0).then_some(so)
}

fn behind(legs: &[Leg], takes_ms: &[i64]) -> Vec<Option<usize>> {
    let tails = tails(legs, takes_ms);
    let mut behind: Vec<Option<usize>> = vec![None; legs.len()];
    for (place, leg) in legs.iter().enumerate() {
        let length = |place: usize| tails[place] + takes_ms[place];
        for sooner in &leg.after {
            if behind[*sooner].is_none_or(|other| length(other) < length(place)) {
                behind[*sooner] = Some(place);
            }
        }
    }
    behind
}

#[cfg(test)]
mod tests {
    use legwork_model::id::{Iteration, NodeId};
    use proptest::prelude::*;

    use super::*;
    use crate::supply::Span;

    const HOUR: i64 = 3_600_000;
    const DAY: i64 = 24 * HOUR;

    /// One leg after the other.
    fn chain(length: usize) -> Vec<Leg> {
        let leg = |place: usize| Leg {
            node: NodeId(place as u32),
            iteration: Iteration::default(),
            after: (0..place).collect(),
            takes: None,
        };
        (0..length).map(leg).collect()
    }

    /// From one hour of each day to another, but for every seventh.
    fn daily(from: i64, to: i64, days: i64) -> Arc<Supply> {
        let days = (0..days).filter(|day| day % 7 != 6);
        let spans = days.map(|day| Span {
            from: Timestamp(day * DAY + from * HOUR),
            to: Timestamp(day * DAY + to * HOUR),
            share: 100,
        });
        Arc::new(Supply::new(spans.collect::<Vec<_>>()))
    }

    /// When each leg of a chain is due, if nobody else is promised anything.
    fn dues(spare: &Spare, count: usize) -> Option<Vec<Timestamp>> {
        let mut dues = Vec::new();
        for leg in 0..count {
            let release = dues.last().copied().unwrap_or(Timestamp(0));
            dues.push(spare.due(leg, spare.soonest(leg, release)?, 0)?);
        }
        Some(dues)
    }

    #[test]
    fn who_has_a_short_step_gets_no_night_for_it() {
        // Until six in the morning, on the eighth day: the last quarter of an hour has its part in the hours before.
        let takes = [4 * HOUR, HOUR, HOUR / 4];
        let hours = vec![Hours::new(vec![daily(8, 16, 20)]); 3];
        let until = (Timestamp(0), Timestamp(8 * DAY + 6 * HOUR));
        let spare = Spare::new(&chain(3), &takes, &hours, until);
        let dues = dues(&spare, 3).unwrap();
        let works = |from: Timestamp, to: Timestamp| {
            let supply = daily(8, 16, 20);
            supply.until(to).0 - supply.until(from).0
        };
        let releases = std::iter::once(Timestamp(0)).chain(dues.iter().copied());
        for ((release, due), takes) in releases.zip(&dues).zip(takes) {
            assert!(works(release, *due) > 8 * takes, "{release} to {due} for {takes}");
        }
    }

    proptest! {
        #[test]
        fn for_a_later_deadline_no_step_is_due_earlier(
            legs in prop::collection::vec((1_i64..8 * HOUR, 0_i64..16, 1_i64..8), 1..6),
            (sooner, later) in (0_i64..20 * DAY, 0_i64..10 * DAY),
        ) {
            let takes: Vec<i64> = legs.iter().map(|(takes, ..)| *takes).collect();
            let hours = |(_, from, length): &(i64, i64, i64)| {
                Hours::new(vec![daily(*from, from + length, 60)])
            };
            let hours: Vec<Hours> = legs.iter().map(hours).collect();
            let of = |deadline: i64| {
                let until = (Timestamp(0), Timestamp(deadline));
                dues(&Spare::new(&chain(legs.len()), &takes, &hours, until), legs.len())
            };
            let (Some(first), then) = (of(sooner), of(sooner + later)) else { return Ok(()) };
            let then = then.expect("what can be done sooner can be done later");
            for (first, then) in first.iter().zip(&then) {
                prop_assert!(first <= then, "{first} {then}");
            }
        }

        #[test]
        fn all_have_time_enough_and_are_in_time(
            legs in prop::collection::vec((1_i64..8 * HOUR, 0_i64..16, 1_i64..8), 1..6),
            deadline in 0_i64..20 * DAY,
        ) {
            let takes: Vec<i64> = legs.iter().map(|(takes, ..)| *takes).collect();
            let supplies: Vec<Arc<Supply>> =
                legs.iter().map(|(_, from, length)| daily(*from, from + length, 60)).collect();
            let hours: Vec<Hours> = supplies.iter().map(|it| Hours::new(vec![it.clone()])).collect();
            let until = (Timestamp(0), Timestamp(deadline));
            let spare = Spare::new(&chain(legs.len()), &takes, &hours, until);
            let mut release = Timestamp(0);
            let can_be = takes.iter().zip(&supplies).try_fold(Timestamp(0), |at, (takes, supply)| {
                supply.moment(supply.until(at).plus(Work(*takes)))
            });
            let dues = dues(&spare, legs.len());
            prop_assert_eq!(dues.is_some(), can_be.is_some_and(|at| at.0 <= deadline));
            for ((due, takes), supply) in dues.iter().flatten().zip(&takes).zip(&supplies) {
                prop_assert!(supply.until(*due).0 - supply.until(release).0 >= *takes);
                prop_assert!(due.0 <= deadline);
                release = *due;
            }
        }
    }
}
