//! The naive way to test a deadline: everything is put in order anew for each question.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::planner::{Asked, Planner};

/// A promise that is not kept yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) number: u64,
    pub(super) release: i64,
    pub(super) deadline: i64,
    pub(super) left: i64,
}

#[derive(Debug, Default)]
pub(super) struct Naive {
    open: Vec<Open>,
    running: Option<u64>,
    now: i64,
}

impl Naive {
    pub(super) fn new(open: Vec<Open>, now: i64) -> Self {
        let mut naive = Self { open, running: None, now };
        naive.begin();
        naive
    }

    /// Works on what is first.
    fn begin(&mut self) {
        let ready = self.open.iter().filter(|open| open.release <= self.now);
        self.running = ready.min_by_key(|open| (open.deadline, open.number)).map(|it| it.number);
    }

    /// Whether all are in time if those with the earliest deadlines go first.
    fn is_in_time(&self, mut open: Vec<Open>) -> bool {
        open.sort_unstable_by_key(|open| Reverse(open.release));
        let (mut ready, mut now) = (BinaryHeap::new(), self.now);
        loop {
            while let Some(open) = open.pop_if(|open| open.release <= now) {
                ready.push(Reverse((open.deadline, open.left)));
            }
            let next = open.last().map(|open| open.release);
            let Some(Reverse((deadline, left))) = ready.pop() else {
                match next {
                    Some(release) => now = release,
                    None => return true,
                }
                continue;
            };
            let to = next.map_or(now + left, |release| release.min(now + left));
            if now + left > to {
                ready.push(Reverse((deadline, left - (to - now))));
            } else if to > deadline {
                return false;
            }
            now = to;
        }
    }
}

impl Planner for Naive {
    fn pass(&mut self, now: i64) -> Option<u64> {
        let passed = now - self.now;
        self.now = now;
        let running = self.running;
        let at = self.open.iter().position(|open| Some(open.number) == running);
        let mut done = None;
        if let Some(at) = at {
            self.open[at].left = (self.open[at].left - passed).max(0);
            if self.open[at].left == 0 {
                done = Some(self.open.swap_remove(at).number);
            }
        }
        self.begin();
        done
    }

    fn admit(&mut self, asked: Asked) -> bool {
        let Asked { number, release, deadline, cost } = asked;
        let open = Open { number, release, deadline, left: cost };
        let mut all = self.open.clone();
        all.push(open);
        let fits = self.is_in_time(all);
        self.open.extend(fits.then_some(open));
        self.begin();
        fits
    }

    fn end(&mut self, number: u64) {
        self.open.retain(|open| open.number != number);
        self.begin();
    }
}
