//! What is released later, in rows by releases and columns by deadlines, with the cost of each cell.
//!
//! EDF keeps all deadlines exactly if for every release r and deadline d the work released at or after r and due by d
//! is at most d - r (the processor demand criterion: Baruah, Rosier and Howell 1990). There are too many such
//! pairs to look at each; but of all pairs of a row and a column none is worse than the first deadline of the
//! column after the last release of the row, with everything to be done in between that has to be for any of them. So
//! sums of cells tell for most cells that they have room, and only the others are looked at closely.
//!
//! Invariant: whether a cell was looked at closely changes no answer. Rows and columns hold about as many pieces each.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Range;

use crate::band::{Band, drawn, lessen, place};
use crate::timeline::Piece;
use crate::tree::Key;

#[derive(Clone, Debug)]
pub(crate) struct Grid {
    /// In the order of releases, each with its pieces in that order.
    rows: Vec<Band<Start>>,
    /// Of each row.
    alone: Vec<Alone>,
    /// In the order of deadlines, each with its pieces in that order.
    columns: Vec<Band<i64>>,
    /// What is due in a column and released in a row or behind it: the columns of the first row, then of the next.
    costs: Vec<i64>,
    /// So many more can be taken in before there may be too many in a row or a column.
    room: usize,
}

/// What a row comes to if there is no other.
#[derive(Clone, Debug)]
struct Alone {
    cost: i64,
    /// When all of it is done.
    done: i64,
    /// Made when somebody needs it.
    ends: Option<Ends>,
}

/// By deadlines, when all is done that is due by then.
type Ends = Vec<(i64, i64)>;

/// Where something is in the order of releases. What is released at the same moment may be in several rows.
type Start = (i64, u64);

impl Grid {
    pub(crate) fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let mut pieces: Vec<Piece> = pieces.into_iter().filter(|piece| piece.cost > 0).collect();
        let bands = bands_for(pieces.len());
        pieces.sort_unstable_by_key(Piece::key);
        let columns = drawn(&pieces, bands, i64::MIN, |piece| piece.deadline);
        pieces.sort_unstable_by_key(by_release);
        let rows = drawn(&pieces, bands, (i64::MIN, 0), by_release);
        let alone = rows.iter().map(|row| Alone::of(&row.pieces)).collect();
        let costs = vec![0; rows.len() * columns.len()];
        let mut grid = Self { rows, alone, columns, costs, room: 8 + pieces.len() / 4 };
        for piece in pieces {
            grid.count(piece, piece.cost);
        }
        grid
    }

    /// Takes new work in; false if rows and columns should be drawn anew.
    #[must_use]
    pub(crate) fn insert(&mut self, new: Piece) -> bool {
        if new.cost <= 0 {
            return true;
        }
        let (row, column) = self.cell(new);
        let in_row = &mut self.rows[row].pieces;
        in_row.insert(in_row.partition_point(|it| by_release(it) < by_release(&new)), new);
        self.alone[row] = Alone::of(in_row);
        let column = &mut self.columns[column].pieces;
        column.insert(column.partition_point(|it| it.key() < new.key()), new);
        self.count(new, new.cost);
        self.room = self.room.saturating_sub(1);
        self.room > 0
    }

    /// Takes so much work of a piece out.
    pub(crate) fn remove(&mut self, piece: Piece) {
        let (row, column) = self.cell(piece);
        let in_row = &mut self.rows[row].pieces;
        let Ok(at) = in_row.binary_search_by_key(&by_release(&piece), by_release) else { return };
        let less = piece.cost.min(in_row[at].cost);
        lessen(in_row, at, less);
        self.alone[row] = Alone::of(in_row);
        let in_column = &mut self.columns[column].pieces;
        if let Ok(at) = in_column.binary_search_by_key(&piece.key(), Piece::key) {
            lessen(in_column, at, less);
        }
        self.count(piece, -less);
    }

    /// Takes everything out that is released by now. That may be all at once, so it is not taken out one by one.
    pub(crate) fn release(&mut self, now: i64) {
        let whole = place(&self.rows, (now, u64::MAX));
        let gone = self.rows.drain(..whole).flat_map(|row| row.pieces);
        let mut columns: BTreeSet<usize> =
            gone.map(|it| place(&self.columns, it.deadline)).collect();
        self.alone.drain(..whole);
        self.costs.drain(..whole * self.columns.len());
        let row = &mut self.rows[0].pieces;
        let gone: Vec<Piece> = row.drain(..row.partition_point(|it| it.release <= now)).collect();
        if !gone.is_empty() {
            self.alone[0] = Alone::of(row);
        }
        for piece in gone {
            self.count(piece, -piece.cost);
            columns.insert(place(&self.columns, piece.deadline));
        }
        for column in columns {
            self.columns[column].pieces.retain(|it| it.release > now);
        }
    }

    /// Whether new work fits, if everything else does. If something else does not, what fits may be refused.
    pub(crate) fn fits(&mut self, new: Piece) -> bool {
        let (first, own) = (self.row_after_pause(new), place(&self.rows, by_release(&new)));
        let end = self.end_of_reach(first, new);
        (first..=own).rev().all(|row| self.row_fits(row, new, end))
    }

    /// When a piece is done in the order of everything, if all that is as urgent would be done at a point if all of it
    /// could begin now. Only that matters, and nobody waits in a row that begins with more to do than it takes to the
    /// last release in it.
    pub(crate) fn end_of(&self, piece: Piece, all: i64) -> Option<i64> {
        let own = place(&self.rows, by_release(&piece));
        self.rows[own].pieces.binary_search_by_key(&by_release(&piece), by_release).ok()?;
        let costs = self.costs_up_to(piece.key());
        let (mut at, mut is_seen) = (all - costs.iter().sum::<i64>(), false);
        for (number, (row, cost)) in self.rows.iter().zip(costs).enumerate() {
            if row.pieces.last().is_none_or(|last| last.release < at) {
                at += cost;
                is_seen |= number == own;
                continue;
            }
            for it in row.pieces.iter().filter(|it| it.key() <= piece.key()) {
                if is_seen && it.release >= at {
                    return Some(at);
                }
                at = at.max(it.release) + it.cost;
                is_seen |= it.number == piece.number;
            }
        }
        Some(at)
    }

    /// By rows, what is to be done of all that is as urgent as something.
    fn costs_up_to(&self, key: Key) -> Vec<i64> {
        let column = place(&self.columns, key.deadline);
        let sooner = |row| self.sums(row).iter().take(column).sum::<i64>();
        let sooner: Vec<i64> = (0..=self.rows.len()).map(sooner).collect();
        let mut costs: Vec<i64> = sooner.windows(2).map(|rows| rows[0] - rows[1]).collect();
        for it in self.columns[column].pieces.iter().filter(|it| it.key() <= key) {
            costs[place(&self.rows, by_release(it))] += it.cost;
        }
        costs
    }

    /// In the order of releases.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.rows.iter().flat_map(|row| &row.pieces)
    }

    /// In which row and which column it is.
    fn cell(&self, piece: Piece) -> (usize, usize) {
        (place(&self.rows, by_release(&piece)), place(&self.columns, piece.deadline))
    }

    fn count(&mut self, piece: Piece, cost: i64) {
        let (row, column) = self.cell(piece);
        let here = self.costs.iter_mut().skip(column).step_by(self.columns.len());
        here.take(row + 1).for_each(|sum| *sum += cost);
    }

    /// By columns, what is released in a row or behind it.
    fn sums(&self, row: usize) -> &[i64] {
        let columns = self.columns.len();
        self.costs.get(row * columns..(row + 1) * columns).unwrap_or_default()
    }

    /// The last row that begins by the release of new work and before which all is done that could be begun: what is
    /// before it does not matter.
    fn row_after_pause(&self, new: Piece) -> usize {
        let (mut at, mut found) = (i64::MIN, 0);
        let rows = self.rows.iter().zip(&self.alone).enumerate();
        for (number, (row, alone)) in rows.take_while(|(_, (row, _))| row.from <= by_release(&new))
        {
            // A row of which nothing is left does not tell when the next can be begun.
            let Some(first) = row.pieces.first() else { continue };
            if at <= first.release.min(new.release) {
                found = number;
            }
            at = alone.done.max(at.saturating_add(alone.cost));
        }
        found
    }

    /// Up to where from its release on as much time is idle as new work takes: what is due behind that is not disturbed.
    fn end_of_reach(&self, first: usize, new: Piece) -> i64 {
        let (mut at, mut missing) = (i64::MIN, new.cost);
        for (row, alone) in self.rows.iter().zip(&self.alone).skip(first) {
            let last = row.pieces.last().map_or(i64::MIN, |last| last.release);
            if last < at {
                at += alone.cost;
                continue;
            }
            for it in &row.pieces {
                let idle = it.release - at.max(new.release);
                if idle >= missing {
                    return at.max(new.release) + missing;
                }
                missing -= idle.max(0);
                at = at.max(it.release) + it.cost;
            }
        }
        at.max(new.release) + missing
    }

    /// Whether there is time from any release of a row on that is not behind that of the new work.
    fn row_fits(&mut self, row: usize, new: Piece, end: i64) -> bool {
        let is_own = row == place(&self.rows, by_release(&new));
        let last = match is_own {
            true => Some(new.release),
            false => self.rows[row].pieces.last().map(|piece| piece.release),
        };
        let Some(last) = last else { return true };
        let columns = self.columns.partition_point(|column| column.from < end.max(new.deadline));
        let column = self.first_in_question(row, last, new).filter(|column| *column < columns);
        let Some(column) = column else { return true };
        let known = if is_own { None } else { self.alone[row].ends.take() };
        let ends = known.unwrap_or_else(|| ends_of(&self.rows[row].pieces, new.release));
        let fits = self.row_fits_in(column..columns, row, (last, &ends), new);
        if !is_own {
            self.alone[row].ends = Some(ends);
        }
        fits
    }

    /// The first column of a row of which the sums do not tell that there is time enough.
    fn first_in_question(&self, row: usize, last: i64, new: Piece) -> Option<usize> {
        let (first, sums) = (place(&self.columns, new.deadline), self.sums(row));
        let mut sum = last + new.cost + sums[..first].iter().sum::<i64>();
        let mut columns = sums.iter().zip(&self.columns).enumerate().skip(first);
        let found = columns.find(|(number, (cost, column))| {
            sum += **cost;
            let is_first = *number == first;
            let due = if is_first { new.deadline } else { column.from };
            sum > due && (is_first || **cost > 0)
        });
        found.map(|(number, _)| number)
    }

    /// Whether there is time enough in these columns, with the ends of the row itself.
    fn row_fits_in(
        &self,
        mut columns: Range<usize>,
        row: usize,
        (last, ends): (i64, &Ends),
        new: Piece,
    ) -> bool {
        let behind = self.sums(row + 1);
        let mut sum = new.cost + behind.iter().take(columns.start).sum::<i64>();
        columns.all(|column| {
            let due = self.columns[column].from.max(new.deadline);
            let next = self.columns.get(column + 1).map_or(i64::MAX, |next| next.from);
            let sooner = sum;
            sum += behind.get(column).copied().unwrap_or(0);
            last.max(end_by(ends, next - 1)) + sum <= due
                || self.cell_fits((row, column), sooner, (last, ends), new.deadline)
        })
    }

    /// The same up to any deadline of a column, with so much to do before that is released behind the row.
    fn cell_fits(
        &self,
        (row, column): (usize, usize),
        mut sum: i64,
        (last, ends): (i64, &Ends),
        from: i64,
    ) -> bool {
        let next = self.rows.get(row + 1).map_or((i64::MAX, 0), |next| next.from);
        let is_first = column == place(&self.columns, from);
        let from = if is_first { from } else { self.columns[column].from - 1 };
        let due = &self.columns[column].pieces;
        let (sooner, due) = due.split_at(due.partition_point(|it| it.deadline <= from));
        sum += sooner.iter().filter(|it| by_release(it) >= next).map(|it| it.cost).sum::<i64>();
        let mut end = last.max(end_by(ends, from));
        if is_first && end + sum > from {
            return false;
        }
        let mut ends = ends[ends.partition_point(|(due, _)| *due <= from)..].iter().peekable();
        due.iter().all(|it| {
            sum += if by_release(it) >= next { it.cost } else { 0 };
            while let Some((_, by)) = ends.next_if(|(due, _)| *due <= it.deadline) {
                end = end.max(*by);
            }
            end + sum <= it.deadline
        })
    }
}

impl Alone {
    fn of(pieces: &[Piece]) -> Self {
        let done = pieces.iter().fold(i64::MIN, |at, it| at.max(it.release) + it.cost);
        Self { cost: pieces.iter().map(|it| it.cost).sum(), done, ends: None }
    }
}

/// As many rows as columns, so that to look at all sums, and at all pieces of one row, grows less than the number
/// of pieces does.
fn bands_for(pieces: usize) -> usize {
    let mut bands: usize = 1;
    while bands.pow(3) < 27 * pieces {
        bands += 1;
    }
    bands
}

fn by_release(piece: &Piece) -> Start {
    (piece.release, piece.number)
}

/// When all is done that is due by then; long ago if there is nothing.
fn end_by(ends: &Ends, deadline: i64) -> i64 {
    let next = ends.partition_point(|(due, _)| *due <= deadline);
    next.checked_sub(1).map_or(i64::MIN, |at| ends[at].1)
}

/// The ends of these if there is nothing else, all released by a point.
fn ends_of(pieces: &[Piece], released: i64) -> Ends {
    let (mut ready, mut ends) = (BinaryHeap::new(), Vec::with_capacity(pieces.len()));
    let (mut at, mut coming) = (i64::MIN, pieces.iter().peekable());
    loop {
        while let Some(it) = coming.next_if(|it| it.release.min(released) <= at) {
            ready.push(Reverse((it.deadline, it.cost)));
        }
        let next = coming.peek().map_or(i64::MAX, |it| it.release.min(released));
        let Some(Reverse((deadline, cost))) = ready.pop() else {
            if next == i64::MAX {
                break;
            }
            at = next;
            continue;
        };
        if at + cost > next {
            ready.push(Reverse((deadline, cost - (next - at))));
            at = next;
        } else {
            at += cost;
            ends.push((deadline, at));
        }
    }
    ends.sort_unstable();
    let mut last = i64::MIN;
    for (_, end) in &mut ends {
        last = last.max(*end);
        *end = last;
    }
    ends
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How much new work could be done in its window, from every release to every deadline.
    fn room_by_pairs(all: &[Piece], new: Piece) -> i64 {
        let of = |point: fn(&Piece) -> i64| all.iter().chain([&new]).map(point);
        let releases: Vec<i64> = of(|it| it.release).filter(|it| *it <= new.release).collect();
        let deadlines = of(|it| it.deadline).filter(|it| *it >= new.deadline);
        let room = deadlines.flat_map(|deadline| {
            releases.iter().map(move |release| {
                let between = all.iter().filter(|it| it.release >= *release);
                let between = between.filter(|it| it.deadline <= deadline);
                deadline - release - between.map(|it| it.cost).sum::<i64>()
            })
        });
        room.min().unwrap_or(0)
    }

    /// When a piece is done if there is so much to do before that is more urgent, and can begin at 0.
    fn end_by_hours(all: &[Piece], piece: Piece, before: i64) -> i64 {
        let (mut left, mut hour) = (before, 0);
        while hour <= piece.release || left > 0 {
            let urgent = all.iter().filter(|it| it.key() <= piece.key());
            left += urgent.filter(|it| it.release == hour).map(|it| it.cost).sum::<i64>();
            left = (left - 1).max(0);
            hour += 1;
        }
        hour
    }

    fn piece() -> impl Strategy<Value = (i64, i64, i64)> {
        let time = prop_oneof![0_i64..12, 0_i64..200, Just(60)];
        // Often several at the same moment.
        let release = prop_oneof![0_i64..100, (0_i64..5).prop_map(|it| it * 20)];
        (release, time, 1_i64..6)
    }

    fn small(number: u64, release: i64, deadline: i64, cost: i64) -> Piece {
        Piece { number, release, deadline, idle: 0, cost }
    }

    #[test]
    fn a_row_of_which_nothing_is_left_is_no_pause() {
        let gone = small(2, 3, 40, 1);
        let mut grid = Grid::new([small(1, 0, 10, 10), gone, small(3, 5, 20, 5)]);
        assert_eq!(grid.rows.len(), 3);
        grid.remove(gone);
        assert!(!grid.fits(small(4, 12, 20, 6)), "from 0 to 20 there would be 21 to do");
        assert!(grid.fits(small(4, 12, 20, 5)));
    }

    #[test]
    fn what_is_released_together_is_in_several_rows_and_all_of_them_go_at_once() {
        let together = (1..=100).map(|number| small(number, 7, 500, 1));
        let mut grid = Grid::new(together.chain([small(101, 8, 500, 1)]));
        assert!(grid.rows.iter().all(|row| row.pieces.len() <= 8), "{:?}", grid.rows);
        grid.release(7);
        assert_eq!((grid.rows.len(), grid.alone.len()), (1, 1));
        assert_eq!(grid.costs.iter().sum::<i64>(), 1);
        assert_eq!(grid.pieces().count(), 1);
        assert_eq!(grid.columns.iter().map(|column| column.pieces.len()).sum::<usize>(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn it_answers_as_looking_at_every_pair_does(
            steps in prop::collection::vec((0..10_u32, piece()), 1..90),
            asked in prop::collection::vec(piece(), 8),
        ) {
            let (mut grid, mut all, mut now) = (Grid::new([]), Vec::<Piece>::new(), -1);
            for (number, (kind, (release, time, cost))) in (1..).zip(steps) {
                let which = release as usize % all.len().max(1);
                match kind {
                    0 if !all.is_empty() => {
                        let less = all[which].cost.min(cost);
                        grid.remove(Piece { cost: less, ..all[which] });
                        all[which].cost -= less;
                    }
                    // Of whole rows nothing is left.
                    1 => {
                        let gone = |it: &&mut Piece| (release..release + 15).contains(&it.release);
                        for piece in all.iter_mut().filter(gone) {
                            grid.remove(*piece);
                            piece.cost = 0;
                        }
                    }
                    2 => {
                        now = now.max(release / 4);
                        grid.release(now);
                        all.retain(|it| it.release > now);
                    }
                    _ => {
                        let deadline = release + time;
                        let new = small(number, release, deadline, cost);
                        if release > now && cost <= room_by_pairs(&all, new) {
                            all.push(new);
                            if !grid.insert(new) && kind % 2 == 0 {
                                grid = Grid::new(all.iter().copied());
                            }
                        }
                    }
                }
                all.retain(|it| it.cost > 0);
            }
            all.sort_by_key(by_release);
            prop_assert_eq!(grid.pieces().copied().collect::<Vec<_>>(), all.clone());
            for piece in &all {
                let urgent = all.iter().filter(|it| it.key() <= piece.key());
                let cost = urgent.map(|it| it.cost).sum::<i64>();
                for free in [0, piece.release / 2, piece.release + 9] {
                    let end = end_by_hours(&all, *piece, free);
                    prop_assert_eq!(grid.end_of(*piece, free + cost), Some(end), "{:?}", piece);
                }
            }
            for (release, time, cost) in asked {
                // Also what comes before all that is released at the same moment.
                let number = [0, 1_000][time as usize % 2];
                let new = small(number, release, release + time, cost);
                let room = room_by_pairs(&all, new);
                for cost in [cost, room, room + 1].into_iter().filter(|cost| *cost > 0) {
                    let new = Piece { cost, ..new };
                    prop_assert_eq!(grid.fits(new), cost <= room, "{:?} in {:?}", new, all);
                }
            }
        }
    }
}
