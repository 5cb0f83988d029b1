//! How somebody works whose plan is tested.

use legwork_model::time::Timestamp;
use legwork_promise::{Discipline, Setup, Supply, Work};

/// All the time, at one thing after the other.
pub(crate) fn always(discipline: Discipline) -> Setup {
    let supply = Supply::always(Timestamp(0));
    Setup { supply, discipline, at_once: 1, loads: Vec::new(), jobs: Vec::new(), lag: Work(0) }
}
