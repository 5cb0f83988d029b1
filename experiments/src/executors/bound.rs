//! The least time that any assignment of what was drawn can take.

use legwork_testbed::bound;

use super::drawn::Drawn;

/// What nobody can be faster than.
pub(super) fn of(drawn: &Drawn) -> f64 {
    bound::least(&drawn.speeds, &drawn.work()).max(drawn.last_arrival())
}
