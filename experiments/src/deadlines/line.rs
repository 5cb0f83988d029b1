//! A plan with all arrivals known: what fits beside the tasks taken before, tested only where it matters.
//!
//! In a work-conserving schedule everything released before an idle interval is done before it, in any order. So a
//! new task can only delay tasks released between the idle interval before it and the one that remains after it,
//! once it has filled those between. Invariant: the answers equal those of a plan with all tasks.

use std::collections::BTreeMap;

use legwork_model::time::Timestamp;
use legwork_plan::{Depth, Discipline, Plan, Supply, Window, Work};

use super::drawn::HORIZON;

#[derive(Debug)]
pub(super) struct Line {
    /// The taken tasks by release time: due date and length.
    taken: BTreeMap<(i64, u64), (i64, i64)>,
    /// Idle intervals, by beginning, with their ends.
    pauses: BTreeMap<i64, i64>,
    last: u64,
}

impl Line {
    /// With regular work: so much in every period.
    pub(super) fn new(regular: &[(i64, i64)]) -> Self {
        let end = 2 * HORIZON;
        let mut line = Self { taken: BTreeMap::new(), pauses: [(0, end)].into(), last: 0 };
        for (period, cost) in regular {
            for release in (0..).map(|number| number * period).take_while(|at| at + period < end) {
                line.take((release, release + period), *cost);
            }
        }
        line
    }

    /// Whether so much work fits in a window beside the taken tasks.
    pub(super) fn fits(&self, (release, due): (i64, i64), cost: i64) -> bool {
        let before = self.pauses.range(..=release).next_back();
        let from = before.map_or(0, |(from, to)| release.min(*to).max(*from));
        let end = self.filled(release, cost).last().map_or(i64::MAX, |(_, to)| to);
        let supply = Supply::always(Timestamp(from));
        let mut plan = Plan::new(supply, Discipline::Preemptive, 0, Timestamp(from));
        for ((release, key), (due, cost)) in self.taken.range((from, 0)..(end, 0)) {
            plan.add(*key, window(*release, *due), Work(*cost));
        }
        plan.earliest(Timestamp(release), Work(cost), Depth::Normal).is_some_and(|at| at.0 <= due)
    }

    /// The idle intervals that work with this release time fills.
    fn filled(&self, release: i64, cost: i64) -> impl Iterator<Item = (i64, i64)> {
        let before = self.pauses.range(..=release).next_back().filter(|(_, to)| **to > release);
        let all = before.into_iter().chain(self.pauses.range(release + 1..));
        all.scan(cost, move |left, (from, to)| {
            if *left == 0 {
                return None;
            }
            let from = release.max(*from);
            let to = (from + *left).min(*to);
            *left -= to - from;
            Some((from, to))
        })
    }

    pub(super) fn take(&mut self, (release, due): (i64, i64), cost: i64) {
        for (from, to) in self.filled(release, cost).collect::<Vec<_>>() {
            let pause = self.pauses.range(..=from).next_back().map(|(from, to)| (*from, *to));
            let Some((begin, end)) = pause else { continue };
            self.pauses.remove(&begin);
            self.pauses.extend([(begin, from), (to, end)].into_iter().filter(|(a, b)| a < b));
        }
        self.last += 1;
        self.taken.insert((release, self.last), (due, cost));
    }
}

fn window(release: i64, due: i64) -> Window {
    Window { release: Timestamp(release), due: Timestamp(due) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::division::Random;

    #[test]
    fn the_answers_are_those_of_a_plan_with_everything_in_it() {
        let mut random = Random::new(7);
        let mut line = Line::new(&[]);
        let supply = Supply::always(Timestamp(0));
        let mut plan = Plan::new(supply, Discipline::Preemptive, 0, Timestamp(0));
        let mut fits = 0;
        for key in 0..600 {
            let (release, cost) = (random.below(1_000) as i64, 1 + random.below(9) as i64);
            let due = release + cost + random.below(40) as i64;
            let earliest = plan.earliest(Timestamp(release), Work(cost), Depth::Normal);
            let is_in_time = earliest.is_some_and(|at| at.0 <= due);
            assert_eq!(line.fits((release, due), cost), is_in_time, "{release} {due} {cost}");
            if is_in_time {
                fits += 1;
                line.take((release, due), cost);
                plan.add(key, window(release, due), Work(cost));
            }
        }
        assert!((100..500).contains(&fits), "{fits}");
    }
}
