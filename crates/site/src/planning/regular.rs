//! Regular work of executors in their plans.
//!
//! It is not known when an executor does its regular work, and meanwhile all its tasks stand still. So its plan has a
//! fraction of the time less, and deadlines in it are earlier by the most regular work that can come at once: in any
//! interval no more than that fraction of it and twice one run.

use legwork_model::event::ExecutorRegistered;
use legwork_plan::{WHOLE, Work};

use crate::executors::regular_part;

/// The fraction of its time, in per cent, that an executor has for tasks.
pub(super) fn share(executor: &ExecutorRegistered) -> u32 {
    WHOLE.saturating_sub(regular_part(&executor.regularly)).max(1)
}

/// The most regular work at once: at the end of one period and the beginning of the next.
pub(super) fn lag(executor: &ExecutorRegistered) -> Work {
    let each = executor.regularly.iter().map(|work| work.takes_ms);
    let once = each.fold(0_u64, u64::saturating_add);
    Work(i64::try_from(once.saturating_mul(2)).unwrap_or(i64::MAX))
}
