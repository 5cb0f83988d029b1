//! Of what can be put aside and is not released yet: whether more fits among it, as if there were nothing else.
//!
//! Its order of work tells that, and is mended where something changes. Where there are pauses that does not reach far;
//! where there are none it would reach to the end of it all, and so would a question. There a grid tells the same, which
//! has no order to mend.
//!
//! Invariant: either the order is kept or the grid, and both give the same answers.

use crate::grid::Grid;
use crate::plan::Discipline;
use crate::timeline::{Piece, Timeline};

#[derive(Clone, Debug)]
pub(crate) struct Later {
    line: Option<Timeline>,
    /// From when a change or a question would have reached far, until so much has come in that an order is worth a try again.
    grid: Option<Grid>,
    /// Whether all in the grid is known to be done in time.
    is_in_time: bool,
}

impl Later {
    pub(crate) fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        Self { line: Some(in_order(pieces)), grid: None, is_in_time: false }
    }

    /// Whether new work, for which there is the time, fits if whoever can wait does.
    pub(crate) fn fits(&mut self, new: Piece) -> bool {
        if let Some(line) = &self.line {
            if let Some(fits) = line.fits_nearby(new) {
                return fits;
            }
            // Where something is late already, a grid refuses also what would not make it later.
            if !line.is_in_time() {
                return line.fits(new);
            }
        }
        let fits_in_grid = self.grid().fits(new);
        if fits_in_grid || self.is_known_in_time() {
            return fits_in_grid;
        }
        self.line().fits(new)
    }

    pub(crate) fn insert(&mut self, new: Piece) {
        if self.line.as_mut().is_some_and(|line| line.insert(new)) {
            return;
        }
        let grid = self.grid();
        let (fits, has_room) = (grid.fits(new), grid.insert(new));
        self.is_in_time &= fits;
        if !has_room {
            self.line();
        }
    }

    /// Takes so much work of a piece out.
    pub(crate) fn remove(&mut self, piece: Piece) {
        if !self.line.as_mut().is_some_and(|line| line.remove(piece)) {
            self.grid().remove(piece);
        }
    }

    /// Takes everything out that is released by now.
    pub(crate) fn release(&mut self, now: i64) {
        if !self.line.as_mut().is_some_and(|line| line.release(now)) {
            self.grid().release(now);
        }
    }

    /// Whether all is done by its deadlines.
    pub(crate) fn is_in_time(&mut self) -> bool {
        self.is_known_in_time() || self.line().is_in_time()
    }

    /// The order of work, if it is kept.
    pub(crate) fn kept_line(&self) -> Option<&Timeline> {
        self.line.as_ref()
    }

    /// If the grid is kept, when a piece is done in the order of everything; all that is as urgent would be done at a
    /// point if all of it could begin now.
    pub(crate) fn end_by_grid(&self, piece: Piece, all: i64) -> Option<i64> {
        self.grid.as_ref().and_then(|grid| grid.end_of(piece, all))
    }

    fn is_known_in_time(&self) -> bool {
        self.grid.is_some() && self.is_in_time
    }

    fn line(&mut self) -> &Timeline {
        let grid = self.grid.take();
        let pieces = grid.iter().flat_map(Grid::pieces).copied();
        self.line.get_or_insert_with(|| in_order(pieces))
    }

    fn grid(&mut self) -> &mut Grid {
        let line = self.line.take();
        self.is_in_time = line.as_ref().map_or(self.is_in_time, Timeline::is_in_time);
        let pieces = line.iter().flat_map(Timeline::pieces);
        self.grid.get_or_insert_with(|| Grid::new(pieces))
    }
}

fn in_order(pieces: impl IntoIterator<Item = Piece>) -> Timeline {
    Timeline::new(pieces, i64::MIN, Discipline::Preemptive)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece() -> impl Strategy<Value = (i64, i64, i64)> {
        (0_i64..120, prop_oneof![0_i64..12, 0_i64..150], 1_i64..6)
    }

    #[test]
    fn a_question_that_reaches_far_is_answered_by_the_grid_unless_something_is_late() {
        let piece =
            |number, release, deadline, cost| Piece { number, release, deadline, idle: 0, cost };
        let all = || (1..=40).map(|number| piece(number, 9 + number as i64, 500, 1));
        let asked = piece(100, 20, 400, 5);
        let mut later = Later::new(all());
        assert!(later.fits(piece(100, 0, 400, 5)) && later.grid.is_none(), "there is a pause");
        assert!(later.fits(asked) && later.grid.is_some());
        let mut later = Later::new(all().chain([piece(41, 10, 10, 1)]));
        assert!(later.fits(asked) && later.grid.is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// Also where something is late.
        #[test]
        fn it_answers_as_an_order_made_anew_does(
            steps in prop::collection::vec((0..12_u32, piece(), piece()), 1..60),
        ) {
            let (mut later, mut all, mut now) = (Later::new([]), Vec::<Piece>::new(), -1);
            for (number, (kind, (release, time, cost), asked)) in (1..).zip(steps) {
                let new = Piece { number, release, deadline: release + time, idle: 0, cost };
                let which = release as usize % all.len().max(1);
                match kind {
                    0 | 1 if !all.is_empty() => {
                        let less = all[which].cost.min(cost);
                        later.remove(Piece { cost: less, ..all[which] });
                        all[which].cost -= less;
                        all.retain(|it| it.cost > 0);
                    }
                    2 => {
                        now = now.max(release / 4);
                        later.release(now);
                        all.retain(|it| it.release > now);
                    }
                    _ if release > now && (kind == 3 || later.fits(new)) => {
                        later.insert(new);
                        all.push(new);
                    }
                    _ => {}
                }
                let anew = in_order(all.iter().copied());
                let (release, time, cost) = asked;
                let deadline = release + time.max(cost);
                let asked = Piece { number: 1_000, release, deadline, idle: 0, cost };
                // What is looked at does not change how the rest is kept.
                prop_assert_eq!(later.clone().fits(asked), anew.fits(asked), "{:?}", asked);
                prop_assert_eq!(later.clone().is_in_time(), anew.is_in_time());
            }
        }
    }
}
