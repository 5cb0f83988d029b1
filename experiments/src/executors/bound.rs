//! The least time of any assignment.

use legwork_testbed::bound;

use super::drawn::Drawn;

/// The lower bound of the makespan.
pub(super) fn of(drawn: &Drawn) -> f64 {
    bound::least(&drawn.speeds, &drawn.work()).max(drawn.last_arrival())
}
