//! How closely a resource keeps to its plan.
//!
//! Who does other things at times that nobody knows falls behind, but never by more than those other things can be
//! more than their part of the time. So deadlines in the plan are earlier by that than those that were promised: what
//! is planned in time is done in time, and who is behind by no more is not late.

use legwork_model::time::Timestamp;

use super::Plan;
use crate::supply::Work;

impl Plan {
    /// How far behind its plan the resource can fall although nothing takes longer than was said.
    pub fn with_lag(mut self, lag: Work) -> Self {
        self.lag = lag.0;
        self
    }

    /// The moment that can be promised for what is planned up to a point.
    pub(super) fn moment_promised(&self, point: i64) -> Option<Timestamp> {
        self.supply.moment(Work(point + self.lag))
    }
}
