//! `guarantee`: how many deadlines a second can be promised or refused?
//!
//! One resource with 100, 1,000 and 10,000 reservations standing. Time passes with every question, and
//! somebody works by the plan meanwhile: on what is first, until it is done. As half of what is asked is
//! promised, more comes in than is done; for every promise too many the oldest is given back, so the number
//! that stands stays. Invariant: what is promised follows from a seed, and the hash holds that a faster
//! answer is the same answer; the naive planner, which puts everything in order anew for each question, gives
//! the same.

mod naive;
mod planner;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

use legwork_schedule::Dice;
use planner::{Asked, Planner, Production};

use crate::report::{Row, rounded};
use crate::usage::load_average;

/// How many reservations stand.
pub const RESERVATIONS: [usize; 3] = [100, 1_000, 10_000];

/// What is asked, and of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub name: &'static str,
    begins: Begins,
    /// The resource cannot put work aside.
    whole: bool,
    asks: Question,
}

/// From when on what is asked for can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    AtOnce,
    /// The third step of a case: it is released later, and has a narrow window.
    Later,
    /// In turn, so what is released later comes into a backlog without a pause: what a server has.
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Admission,
    /// For when could what was refused be promised?
    Earliest,
    /// An admission by the naive planner.
    Naive,
}

const fn kind(name: &'static str, begins: Begins, whole: bool, asks: Question) -> Kind {
    Kind { name, begins, whole, asks }
}

/// The kind that has a goal.
pub const AT_ONCE: Kind = kind("at-once", Begins::AtOnce, false, Question::Admission);
pub const KINDS: [Kind; 10] = [
    AT_ONCE,
    kind("later", Begins::Later, false, Question::Admission),
    kind("earliest", Begins::AtOnce, false, Question::Earliest),
    kind("earliest-later", Begins::Later, false, Question::Earliest),
    kind("whole", Begins::AtOnce, true, Question::Admission),
    kind("whole-later", Begins::Later, true, Question::Admission),
    kind("mixed", Begins::Both, false, Question::Admission),
    kind("naive", Begins::AtOnce, false, Question::Naive),
    kind("naive-later", Begins::Later, false, Question::Naive),
    kind("naive-mixed", Begins::Both, false, Question::Naive),
];

/// What a task costs, in milliseconds: at least, and how much more at most.
const COST: (usize, usize) = (3, 30);
const COST_MEAN: usize = COST.0 + COST.1 / 2;
/// How much time passes from one question to the next: enough to do a ninth of what is promised. Nothing happens in
/// between, so whoever works never waits.
const PASSES: i64 = 1;
/// Deadlines are this part nearer after a promise, and further after a refusal: so half is promised.
const STEP: usize = 256;
/// After so many more questions that holds, whatever it was before.
const SETTLED: usize = 4 * STEP;
/// The window of a later task, in times of its cost.
const WINDOW: (usize, usize) = (2, 6);
/// So many answers are in the hash.
const HASHED: usize = 100;
/// Slow kinds do not go on for ever.
const LIMIT: Duration = Duration::from_secs(3);

/// So many questions of a kind, or fewer if they take too long.
pub fn measure(kind: Kind, reservations: usize, questions: usize) -> Row {
    let load_average = load_average();
    let mut life = Life::new(kind, reservations, Production::new(kind.whole));
    life.fill();
    match kind.asks {
        Question::Admission => life.row(questions, Life::admission, load_average),
        Question::Earliest => life.row(questions, Life::earliest, load_average),
        Question::Naive => {
            let Life { planner, spread, now, dice, standing, last, .. } = life;
            let planner = planner.naive();
            let mut life = Life { kind, reservations, planner, spread, now, dice, standing, last };
            life.row(questions, Life::admission, load_average)
        }
    }
}

/// A resource, what it has promised, and what is asked of it.
struct Life<P> {
    kind: Kind,
    reservations: usize,
    planner: P,
    /// How far ahead deadlines lie at most.
    spread: usize,
    now: i64,
    dice: Dice,
    /// What was promised and is not over, the oldest first.
    standing: BTreeSet<u64>,
    last: u64,
}

impl<P> Life<P> {
    fn new(kind: Kind, reservations: usize, planner: P) -> Self {
        let (spread, dice) = (reservations * COST_MEAN, Dice::new(reservations as u64));
        let standing = BTreeSet::new();
        Self { kind, reservations, planner, spread, now: 0, dice, standing, last: 0 }
    }

    /// Somebody asks for something.
    fn draw(&mut self) -> Asked {
        self.last += 1;
        let cost = (COST.0 + self.dice.below(COST.1)) as i64;
        let is_later = match self.kind.begins {
            Begins::AtOnce => false,
            Begins::Later => true,
            Begins::Both => self.last.is_multiple_of(2),
        };
        let (release, deadline) = if is_later {
            let release = self.now + self.dice.below(self.spread) as i64;
            let times = WINDOW.0 + self.dice.below(WINDOW.1 - WINDOW.0);
            (release, release + cost * times as i64)
        } else {
            (self.now, self.now + cost + self.dice.below(self.spread) as i64)
        };
        Asked { number: self.last, release, deadline, cost }
    }
}

impl<P: Planner> Life<P> {
    /// As many promises as are to stand, and deadlines so far ahead that half is promised.
    fn fill(&mut self) {
        while self.standing.len() < self.reservations {
            self.admission();
        }
        for _ in 0..SETTLED {
            self.admission();
        }
    }

    /// Time passes, somebody asks; answers whether it is promised.
    fn admission(&mut self) -> u64 {
        self.now += PASSES;
        if let Some(done) = self.planner.pass(self.now) {
            self.standing.remove(&done);
        }
        let asked = self.draw();
        if !self.planner.admit(asked) {
            self.spread += self.spread / STEP;
            return 0;
        }
        self.spread -= self.spread / STEP;
        self.standing.insert(asked.number);
        if self.standing.len() > self.reservations
            && let Some(oldest) = self.standing.pop_first()
        {
            self.planner.end(oldest);
        }
        1
    }

    fn row(
        &mut self,
        questions: usize,
        ask: fn(&mut Self) -> u64,
        load_average: Option<f64>,
    ) -> Row {
        let (mut hash, mut promised) = (0xCBF2_9CE4_8422_2325_u64, 0);
        for _ in 0..HASHED {
            hash = (hash ^ ask(self)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        let (begun, mut count) = (Instant::now(), 0);
        while count < questions && begun.elapsed() < LIMIT {
            // The clock of the machine is asked seldom.
            for _ in 0..8 {
                promised += usize::from(black_box(ask(self)) > 0);
                count += 1;
            }
        }
        let per_second = count as f64 / begun.elapsed().as_secs_f64();
        Row {
            workload: "guarantee",
            kind: Some(self.kind.name),
            reservations: Some(self.reservations),
            cases: count,
            per_second: Some(rounded(per_second, 0)),
            promised_pct: (self.kind.asks != Question::Earliest)
                .then(|| rounded(promised as f64 * 100.0 / count as f64, 1)),
            hash: Some(format!("{hash:016x}")),
            load_average,
            ..Row::default()
        }
    }
}

impl Life<Production> {
    /// For when could this be promised, whatever was asked for? The plan stays as it is.
    fn earliest(&mut self) -> u64 {
        let asked = self.draw();
        self.planner.earliest(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_measured_and_about_half_is_promised() {
        for kind in KINDS {
            let row = measure(kind, 100, 400);
            assert!(row.per_second.is_some_and(|rate| rate > 0.0), "{row:?}");
            let is_half = |pct: f64| (30.0..70.0).contains(&pct);
            assert!(row.promised_pct.is_none_or(is_half), "{row:?}");
        }
    }

    #[test]
    fn the_naive_planner_gives_the_same_answers() {
        for (ours, naive) in [(KINDS[0], KINDS[7]), (KINDS[1], KINDS[8]), (KINDS[6], KINDS[9])] {
            assert_eq!(measure(ours, 100, 1).hash, measure(naive, 100, 1).hash, "{}", ours.name);
        }
    }
}
