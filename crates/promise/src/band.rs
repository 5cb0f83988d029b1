//! Pieces in the order of releases or of deadlines, cut into bands of about as many each.
//!
//! Invariant: a band holds all from its own point on up to that of the next, the first also what is before it.

use crate::timeline::Piece;

#[derive(Clone, Debug)]
pub(crate) struct Band<P> {
    pub(crate) from: P,
    pub(crate) pieces: Vec<Piece>,
}

/// Pieces in their order, in so many bands or fewer; the first begins at a point before all of them.
pub(crate) fn drawn<P: Ord + Copy>(
    pieces: &[Piece],
    bands: usize,
    first: P,
    point: impl Fn(&Piece) -> P,
) -> Vec<Band<P>> {
    let (many, mut drawn) = (pieces.len().div_ceil(bands.max(1)), Vec::new());
    let mut band = Band { from: first, pieces: Vec::new() };
    for piece in pieces {
        // What is at the same point belongs together.
        let is_apart = band.pieces.last().is_some_and(|last| point(last) < point(piece));
        if is_apart && band.pieces.len() >= many {
            let next = Band { from: point(piece), pieces: Vec::new() };
            drawn.push(std::mem::replace(&mut band, next));
        }
        band.pieces.push(*piece);
    }
    drawn.push(band);
    drawn
}

/// In which band a point is.
pub(crate) fn place<P: Ord>(bands: &[Band<P>], point: P) -> usize {
    bands.partition_point(|band| band.from <= point).saturating_sub(1)
}

/// Takes so much out of a piece, and the piece if nothing is left of it.
pub(crate) fn lessen(pieces: &mut Vec<Piece>, at: usize, cost: i64) {
    pieces[at].cost -= cost;
    if pieces[at].cost == 0 {
        pieces.remove(at);
    }
}
