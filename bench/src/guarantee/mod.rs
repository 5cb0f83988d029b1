//! `guarantee`: how many deadlines a second can be promised or refused?
//!
//! One resource with 100, 1,000 and 10,000 reservations. Time passes with every request, and the resource works by
//! its plan. As half of the requests are reserved, more comes in than is done; for every excess reservation the
//! oldest is released, so their number is constant. Invariant: the reservations follow from a seed, and the hash
//! shows that a faster answer is the same answer.

#[cfg(test)]
mod oracle;
mod planner;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

use legwork_schedule::Dice;
use planner::{Asked, OneHand, Planned, Who};

use crate::report::{Row, rounded};
use crate::usage::load_average;

/// The numbers of reservations.
pub const RESERVATIONS: [usize; 3] = [100, 1_000, 10_000];

/// The kind of requests, and the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub name: &'static str,
    begins: Begins,
    who: Who,
    asks: Question,
}

/// The release times of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    AtOnce,
    /// The third step of a case: released later, with a narrow window.
    Later,
    /// Released later, with a window up to the latest due date: there is no pause in which all begun work is done.
    Wide,
    /// At once and later alternately, so tasks released later come into a backlog without a pause.
    Both,
    /// At once and with a wide window alternately.
    BothWide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Admission,
    /// The earliest possible date.
    Earliest,
}

const fn kind(name: &'static str, begins: Begins, who: Who, asks: Question) -> Kind {
    Kind { name, begins, who, asks }
}

/// The kind that has a goal with few reservations.
pub const AT_ONCE: Kind = kind("at-once", Begins::AtOnce, Who::Always, Question::Admission);
pub const KINDS: [Kind; 9] = [
    AT_ONCE,
    kind("later", Begins::Later, Who::Always, Question::Admission),
    kind("earliest", Begins::AtOnce, Who::Always, Question::Earliest),
    kind("earliest-later", Begins::Later, Who::Always, Question::Earliest),
    kind("whole", Begins::AtOnce, Who::Whole, Question::Admission),
    kind("whole-later", Begins::Later, Who::Whole, Question::Admission),
    kind("mixed", Begins::Both, Who::Always, Question::Admission),
    kind("wide", Begins::Wide, Who::Always, Question::Admission),
    kind("person", Begins::BothWide, Who::Person, Question::Admission),
];

/// The length of a task, in milliseconds: minimum, and random addition.
const COST: (usize, usize) = (3, 30);
const COST_MEAN: usize = COST.0 + COST.1 / 2;
/// The time between two requests: enough for a ninth of the promised work. Nothing happens in between, so the
/// resource never waits.
const PASSES: i64 = 1;
/// Deadlines become nearer by this part after a promise, and further after a refusal: so half of them is promised.
const STEP: usize = 256;
/// The number of requests until that holds: per reservation, as old reservations must be from the same time as new
/// requests, and in addition.
const SETTLED: (usize, usize) = (2, 4 * STEP);
/// The window of a later task, in multiples of its length.
const WINDOW: (usize, usize) = (2, 6);
/// The number of answers in the hash.
const HASHED: usize = 1_000;
/// The time limit of slow kinds.
const LIMIT: Duration = Duration::from_secs(3);

/// Measures so many requests of a kind, or fewer if they take too long.
pub fn measure(kind: Kind, reservations: usize, questions: usize) -> Row {
    let load_average = load_average();
    let mut life = Life::new(kind, reservations);
    life.fill();
    let ask = match kind.asks {
        Question::Admission => Life::admission,
        Question::Earliest => Life::earliest,
    };
    life.row(questions, ask, load_average)
}

/// A resource with its reservations, and the requests for it.
struct Life {
    kind: Kind,
    reservations: usize,
    planner: OneHand,
    /// The furthest deadline.
    spread: usize,
    now: i64,
    dice: Dice,
    /// Current reservations, oldest first.
    standing: BTreeSet<u64>,
    last: u64,
}

impl Life {
    fn new(kind: Kind, reservations: usize) -> Self {
        let planner = OneHand::new(kind.who);
        let (spread, dice) = (reservations * COST_MEAN, Dice::new(reservations as u64));
        let standing = BTreeSet::new();
        Self { kind, reservations, planner, spread, now: 0, dice, standing, last: 0 }
    }

    /// A random request.
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
        Asked { number: self.last, release, due: release + window, cost }
    }

    /// Fills up to the number of reservations, with deadlines of which half is promised.
    fn fill(&mut self) {
        while self.standing.len() < self.reservations {
            self.admission();
        }
        for _ in 0..SETTLED.0 * self.reservations + SETTLED.1 {
            self.admission();
        }
    }

    /// Time passes, then one request; returns its reservation.
    fn admission(&mut self) -> Option<Planned> {
        self.ask().1
    }

    /// The same with the request, and the reservation released for it.
    fn ask(&mut self) -> (Asked, Option<Planned>, Option<u64>) {
        self.now += PASSES;
        for done in self.planner.pass(self.now) {
            self.standing.remove(&done);
        }
        let asked = self.draw();
        let Some(planned) = self.planner.admit(asked) else {
            self.spread += self.spread / STEP;
            return (asked, None, None);
        };
        self.spread -= self.spread / STEP;
        self.standing.insert(asked.number);
        let is_over = self.standing.len() > self.reservations;
        let oldest = if is_over { self.standing.pop_first() } else { None };
        oldest.iter().for_each(|oldest| self.planner.release(*oldest));
        (asked, Some(planned), oldest)
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
            // The clock is read rarely.
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

    /// The hash of some answers, and the number of promises.
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

    /// The earliest possible date of a request. The plan does not change.
    fn earliest(&mut self) -> Option<Planned> {
        let asked = self.draw();
        let end = self.planner.earliest(asked)?;
        Some(Planned { start: asked.release, end })
    }
}

#[cfg(test)]
mod tests {
    use super::oracle::Oracle;
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
    fn an_independent_test_gives_the_same_answers() {
        let is_preemptive =
            |kind: &Kind| kind.who == Who::Always && kind.asks == Question::Admission;
        for kind in KINDS.into_iter().filter(is_preemptive) {
            let (mut life, mut oracle) = (Life::new(kind, 50), Oracle::default());
            for _ in 0..3_000 {
                let (asked, answer, released) = life.ask();
                oracle.pass(life.now);
                assert_eq!(answer.is_some(), oracle.admit(asked), "{}: {asked:?}", kind.name);
                released.iter().for_each(|number| oracle.release(*number));
            }
        }
    }
}
