//! What a resource may have to finish first without anybody knowing: it was given it by somebody who has forgotten.
//!
//! Invariant: what was promised before is left alone, since it was planned with that in mind. But nothing more is promised,
//! and nothing begun out of turn, unless all is in time also if the resource is not free before then.

use legwork_model::time::Timestamp;

use super::Desk;
use super::lane::Lane;
use crate::plan::Plan;
use crate::task::ResourceId;

impl Desk {
    /// Until then a resource may be busy with something that nobody knows of; `None`: all is known.
    pub fn shade(&mut self, id: &ResourceId, until: Option<Timestamp>) {
        let lanes = self.resources.get_mut(id).into_iter().flat_map(|resource| &mut resource.lanes);
        lanes.for_each(|lane| lane.shade = until);
    }
}

impl Lane {
    /// Whether something is so of a plan of this lane also if the resource is not free before it must be; true if all
    /// is known.
    pub(super) fn in_shade(&self, plan: &Plan, is_so: impl FnOnce(&mut Plan) -> bool) -> bool {
        self.shaded(plan).is_none_or(|mut plan| is_so(&mut plan))
    }

    /// A plan of this lane if the resource is not free before then.
    pub(super) fn shaded(&self, plan: &Plan) -> Option<Plan> {
        self.shade.filter(|until| plan.time_until(*until).0 > 0)?;
        let mut plan = plan.clone();
        self.shade_over(&mut plan);
        Some(plan)
    }

    pub(super) fn shade_over(&self, plan: &mut Plan) {
        self.shade.into_iter().for_each(|until| plan.occupy_no_less_than_until(until));
    }
}
