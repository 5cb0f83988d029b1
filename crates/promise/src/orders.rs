//! All orders of a few pieces of work that cannot be put aside.
//!
//! Of those that do the same pieces, in whatever order, only the one that ends first matters for what follows. So for every
//! set of pieces it is enough to know that one, and with `n` of them there are `2^n` sets instead of `n!` orders.

use crate::timeline::Piece;

/// With more of them not every order is tried: what that costs doubles with each.
pub(crate) const TRIED_MAX: usize = 8;

/// The order in which all are in time and that ends first, begun at `begin`; `None` if there is none, or if there are too many
/// to tell.
pub(crate) fn best_order(pieces: &[Piece], begin: i64) -> Option<Vec<Piece>> {
    if pieces.len() > TRIED_MAX {
        return None;
    }
    let all = (1_usize << pieces.len()) - 1;
    // For every set when it is done at the soonest, and which of it comes last then.
    let mut ends: Vec<Option<(i64, usize)>> = vec![None; all + 1];
    ends[0] = Some((begin, 0));
    for set in 1..=all {
        let members = (0..pieces.len()).filter(|place| set & 1 << place != 0);
        let ways = members.filter_map(|last| {
            let (free, _) = ends[set & !(1 << last)]?;
            let end = free.max(pieces[last].release) + pieces[last].cost;
            (end <= pieces[last].deadline).then_some((end, last))
        });
        ends[set] = ways.min();
    }
    let mut order = Vec::with_capacity(pieces.len());
    let mut set = all;
    while set != 0 {
        let (_, last) = ends[set]?;
        order.push(pieces[last]);
        set &= !(1 << last);
    }
    order.reverse();
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(number: u64, release: i64, cost: i64, deadline: i64) -> Piece {
        Piece { number, release, deadline, idle: 0, cost }
    }

    #[test]
    fn something_short_comes_before_what_is_due_sooner_and_cannot_begin_yet() {
        let (long, short, urgent) = (piece(1, 0, 3, 7), piece(2, 0, 2, 8), piece(3, 2, 2, 4));
        let order = best_order(&[long, short, urgent], 0);
        assert_eq!(order, Some(vec![short, urgent, long]));
        assert_eq!(best_order(&[long, short, urgent], 1), None);
    }

    #[test]
    fn too_many_are_not_tried() {
        let many: Vec<Piece> = (0..=TRIED_MAX as u64).map(|it| piece(it, 0, 1, 100)).collect();
        assert_eq!(best_order(&many, 0), None);
        assert!(best_order(&many[1..], 0).is_some());
    }
}
