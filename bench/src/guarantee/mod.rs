//! `guarantee`: how many deadlines a second can be promised or refused?
//!
//! One resource with 100, 1,000 and 10,000 reservations standing. Time passes with every question, and
//! somebody works by the plan meanwhile: on what is first, until it is done. As half of what is asked is
//! promised, more comes in than is done; for every promise too many the oldest is given back, so the number
//! that stands stays. Invariant: what is promised, and for when, follows from a seed, and the hash holds that a
//! faster answer is the same answer; the naive planner, which puts everything in order anew for each question,
//! gives the same.

mod naive;
mod planner;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

use legwork_schedule::Dice;
use planner::{Asked, Planned, Planner, Production, Who};

use crate::report::{Row, rounded};
use crate::usage::load_average;

/// How many reservations stand.
pub const RESERVATIONS: [usize; 3] = [100, 1_000, 10_000];

/// What is asked, and of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub name: &'static str,
    begins: Begins,
    who: Who,
    asks: Question,
}

/// From when on what is asked for can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    AtOnce,
    /// The third step of a case: it is released later, and has a narrow window.
    Later,
    /// It is released later, and can wait as long as what is due last: there is no pause in which all is done
    /// that could be begun.
    Wide,
    /// At once and later in turn, so what is released later comes into a backlog without a pause.
    Both,
    /// At once and with a wide window in turn.
    BothWide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Admission,
    /// For when could what was refused be promised?
    Earliest,
    /// An admission by the naive planner.
    Naive,
}

const fn kind(name: &'static str, begins: Begins, who: Who, asks: Question) -> Kind {
    Kind { name, begins, who, asks }
}

/// The kind that has a goal.
pub const AT_ONCE: Kind = kind("at-once", Begins::AtOnce, Who::Always, Question::Admission);
pub const KINDS: [Kind; 13] = [
    AT_ONCE,
    kind("later", Begins::Later, Who::Always, Question::Admission),
    kind("earliest", Begins::AtOnce, Who::Always, Question::Earliest),
    kind("earliest-later", Begins::Later, Who::Always, Question::Earliest),
    kind("whole", Begins::AtOnce, Who::Whole, Question::Admission),
    kind("whole-later", Begins::Later, Who::Whole, Question::Admission),
    kind("mixed", Begins::Both, Who::Always, Question::Admission),
    kind("wide", Begins::Wide, Who::Always, Question::Admission),
    kind("person", Begins::BothWide, Who::Person, Question::Admission),
    kind("naive", Begins::AtOnce, Who::Always, Question::Naive),
    kind("naive-later", Begins::Later, Who::Always, Question::Naive),
    kind("naive-mixed", Begins::Both, Who::Always, Question::Naive),
    kind("naive-wide", Begins::Wide, Who::Always, Question::Naive),
];

/// What a task costs, in milliseconds: at least, and how much more at most.
const COST: (usize, usize) = (3, 30);
const COST_MEAN: usize = COST.0 + COST.1 / 2;
/// How much time passes from one question to the next: enough to do a ninth of what is promised. Nothing happens in
/// between, so whoever works never waits.
const PASSES: i64 = 1;
/// Deadlines are this part nearer after a promise, and further after a refusal: so half is promised.
const STEP: usize = 256;
/// After so many more questions that holds, whatever it was before: for each that stands, as what stands has to be
/// of the same time as what is asked, and besides.
const SETTLED: (usize, usize) = (2, 4 * STEP);
/// The window of a later task, in times of its cost.
const WINDOW: (usize, usize) = (2, 6);
/// So many answers are in the hash.
const HASHED: usize = 1_000;
/// Slow kinds do not go on for ever.
const LIMIT: Duration = Duration::from_secs(3);

/// So many questions of a kind, or fewer if they take too long.
pub fn measure(kind: Kind, reservations: usize, questions: usize) -> Row {
    let load_average = load_average();
    let mut life = Life::new(kind, reservations, Production::new(kind.who));
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
        let is_second = self.last.is_multiple_of(2);
        let (is_later, is_wide) = match self.kind.begins {
            Begins::AtOnce => (false, true),
            Begins::Later => (true, false),
            Begins::Wide => (true, true),
            Begins::Both => (is_second, !is_second),
            Begins::BothWide => (is_second, true),
        };
        let later = if is_later { self.dice.below(self.spread) as i64 } else { 0 };
        let window = if is_wide {
            cost + self.dice.below(self.spread) as i64
        } else {
            cost * (WINDOW.0 + self.dice.below(WINDOW.1 - WINDOW.0)) as i64
        };
        let release = self.now + later;
        Asked { number: self.last, release, deadline: release + window, cost }
    }
}

impl<P: Planner> Life<P> {
    /// As many promises as are to stand, and deadlines so far ahead that half is promised.
    fn fill(&mut self) {
        while self.standing.len() < self.reservations {
            self.admission();
        }
        for _ in 0..SETTLED.0 * self.reservations + SETTLED.1 {
            self.admission();
        }
    }

    /// Time passes, somebody asks; answers for when it is promised.
    fn admission(&mut self) -> Option<Planned> {
        self.now += PASSES;
        if let Some(done) = self.planner.pass(self.now) {
            self.standing.remove(&done);
        }
        let asked = self.draw();
        let Some(planned) = self.planner.admit(asked) else {
            self.spread += self.spread / STEP;
            return None;
        };
        self.spread -= self.spread / STEP;
        self.standing.insert(asked.number);
        if self.standing.len() > self.reservations
            && let Some(oldest) = self.standing.pop_first()
        {
            self.planner.end(oldest);
        }
        Some(planned)
    }

    fn row(
        &mut self,
        questions: usize,
        ask: fn(&mut Self) -> Option<Planned>,
        load_average: Option<f64>,
    ) -> Row {
        let (hash, hashed) = self.hash(ask);
        let is_admission = self.kind.asks != Question::Earliest;
        let (kind, of) = (self.kind.name, self.reservations);
        assert!(
            !is_admission || (1..HASHED).contains(&hashed),
            "{kind} with {of}: {hashed} of {HASHED} promised, so the hash says nothing",
        );
        let mut promised = 0;
        let (begun, mut count) = (Instant::now(), 0);
        while count < questions && begun.elapsed() < LIMIT {
            // The clock of the machine is asked seldom.
            for _ in 0..8 {
                promised += usize::from(black_box(ask(self)).is_some());
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
            promised_pct: is_admission.then(|| rounded(promised as f64 * 100.0 / count as f64, 1)),
            hash: Some(format!("{hash:016x}")),
            load_average,
            ..Row::default()
        }
    }

    /// Of some answers, and how many of them are promises.
    fn hash(&mut self, ask: fn(&mut Self) -> Option<Planned>) -> (u64, usize) {
        let (mut hash, mut promised) = (0xCBF2_9CE4_8422_2325_u64, 0);
        for _ in 0..HASHED {
            let answer = ask(self);
            promised += usize::from(answer.is_some());
            let (start, end) = answer.map_or((-1, -1), |planned| (planned.start, planned.end));
            for word in [start, end] {
                hash = (hash ^ word as u64).wrapping_mul(0x0000_0100_0000_01B3);
            }
        }
        (hash, promised)
    }
}

impl Life<Production> {
    /// For when could this be promised, whatever was asked for? The plan stays as it is.
    fn earliest(&mut self) -> Option<Planned> {
        let asked = self.draw();
        let end = self.planner.earliest(asked)?;
        Some(Planned { start: asked.release, end })
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
        let naive = KINDS.into_iter().filter(|kind| kind.asks == Question::Naive);
        for kind in naive {
            let of_same = |ours: &Kind| ours.begins == kind.begins && ours.who == kind.who;
            let ours = KINDS.into_iter().find(of_same).unwrap();
            assert_eq!(ours.asks, Question::Admission);
            assert_eq!(measure(ours, 100, 1).hash, measure(kind, 100, 1).hash, "{}", ours.name);
        }
    }
}
