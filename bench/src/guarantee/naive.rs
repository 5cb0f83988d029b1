//! The naive way to test a deadline: everything is put in order anew for each question.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::planner::{Asked, Planned, Planner};

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

    /// When the asked one is done if those with the earliest deadlines go first; `None` if that makes one late.
    fn end_of(&self, asked: u64, mut open: Vec<Open>) -> Option<i64> {
        open.sort_unstable_by_key(|open| Reverse(open.release));
        let (mut ready, mut now, mut end) = (BinaryHeap::new(), self.now, None);
        loop {
            while let Some(open) = open.pop_if(|open| open.release <= now) {
                ready.push(Reverse((open.deadline, open.number, open.left)));
            }
            let next = open.last().map(|open| open.release);
            let Some(Reverse((deadline, number, left))) = ready.pop() else {
                match next {
                    Some(release) => now = release,
                    None => return end,
                }
                continue;
            };
            let to = next.map_or(now + left, |release| release.min(now + left));
            if now + left > to {
                ready.push(Reverse((deadline, number, left - (to - now))));
            } else if to > deadline {
                return None;
            } else if number == asked {
                end = Some(to);
            }
            now = to;
        }
    }

    /// When it is planned, at the latest: whatever is due before what can begin now may come before it.
    fn planned(&self, new: Open, end: i64) -> Planned {
        let key = |open: &Open| (open.deadline, open.number);
        let before = || self.open.iter().filter(|open| key(open) < key(&new));
        let end = match new.release <= self.now {
            true => self.now + before().map(|open| open.left).sum::<i64>() + new.left,
            false => end,
        };
        let end = end.min(new.deadline);
        Planned { start: (end - new.left).max(new.release), end }
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

    fn admit(&mut self, asked: Asked) -> Option<Planned> {
        let Asked { number, release, deadline, cost } = asked;
        let open = Open { number, release, deadline, left: cost };
        let mut all = self.open.clone();
        all.push(open);
        let end = self.end_of(number, all)?;
        let planned = self.planned(open, end);
        self.open.push(open);
        self.begin();
        Some(planned)
    }

    fn end(&mut self, number: u64) {
        self.open.retain(|open| open.number != number);
        self.begin();
    }
}
