//! How closely a resource keeps to its plan.
//!
//! Who does other things at times that nobody knows falls behind, but never by more than those other things can be
//! more than their part of the time. So deadlines in the plan are earlier by that than those that were promised: what
//! is planned in time is done in time, and who is behind by no more is not late.

use legwork_model::time::Timestamp;

use super::Plan;
use crate::supply::Work;

/// What keeps a resource from doing one thing right after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// How far behind its plan it can fall although nothing takes longer than was said: it does other things as
    /// well, at times that nobody knows.
    pub lag: Work,
    /// How long it takes at least from when it begins something until it can begin the next.
    pub apart: Work,
    /// How long each may have to wait for others that begin elsewhere.
    pub wait: Work,
}

impl Plan {
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// What something costs with all that it waits for, and no less than the time until the next can begin.
    pub(super) fn cost(&self, service: Work) -> i64 {
        service.plus(self.pace.wait).max(self.pace.apart).0
    }

    /// The moment that can be promised for what is planned up to a point.
    pub(super) fn moment_promised(&self, point: i64) -> Option<Timestamp> {
        self.supply.moment(Work(point + self.pace.lag.0))
    }
}
