//! An independent test of admission for preemptive work: earliest due date first, and nothing may be late.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::planner::Asked;

#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// Reservations that are not done, with their remaining work.
    open: Vec<Asked>,
    now: i64,
}

impl Oracle {
    /// Runs by due date up to a point; returns the rest, and whether anything is late.
    fn worked(&self, mut coming: Vec<Asked>, until: i64) -> (Vec<Asked>, bool) {
        coming.sort_unstable_by_key(|it| Reverse(it.release));
        let (mut ready, mut left, mut now) = (BinaryHeap::new(), Vec::new(), self.now);
        while now < until {
            while let Some(it) = coming.pop_if(|it| it.release <= now) {
                ready.push(Reverse((it.due, it.number, it.release, it.cost)));
            }
            let next = coming.last().map_or(until, |it| it.release.min(until));
            let Some(Reverse((due, number, release, cost))) = ready.pop() else {
                now = next;
                continue;
            };
            let to = next.min(now + cost);
            if to > due {
                return (left, true);
            }
            if now + cost > to {
                ready.push(Reverse((due, number, release, now + cost - to)));
            }
            now = to;
        }
        let ready = ready.into_iter().map(|Reverse((due, number, release, cost))| Asked {
            number,
            release,
            due,
            cost,
        });
        left.extend(coming.into_iter().chain(ready));
        (left, false)
    }

    pub(super) fn pass(&mut self, now: i64) {
        self.open = self.worked(self.open.clone(), now).0;
        self.now = now;
    }

    pub(super) fn admit(&mut self, asked: Asked) -> bool {
        let all: Vec<Asked> = self.open.iter().copied().chain([asked]).collect();
        let last = all.iter().map(|it| it.due).max().unwrap_or(self.now);
        let (left, is_late) = self.worked(all, last);
        let is_admitted = !is_late && left.is_empty();
        self.open.extend(is_admitted.then_some(asked));
        is_admitted
    }

    pub(super) fn release(&mut self, number: u64) {
        self.open.retain(|it| it.number != number);
    }
}
