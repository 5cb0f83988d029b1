//! Executors keep to their plans as well as what they do besides lets them.
//!
//! When an executor does what it does regularly nobody knows, and while it does it its tasks stand still, in whichever
//! of its hands they are. So each of its plans has a part of the time less, and deadlines in it are earlier by what
//! more may come at once: in any time, no more than that part of it and twice what it is each time.

use legwork_model::event::ExecutorRegistered;
use legwork_plan::{WHOLE, Work};

use crate::executors::regular_part;

/// The part of its time, in per cent, that an executor has for tasks.
pub(super) fn share(executor: &ExecutorRegistered) -> u32 {
    WHOLE.saturating_sub(regular_part(&executor.regularly)).max(1)
}

/// The most of it that comes at once: at the end of one period and the beginning of the next.
pub(super) fn lag(executor: &ExecutorRegistered) -> Work {
    let each = executor.regularly.iter().map(|work| work.takes_ms);
    let once = each.fold(0_u64, u64::saturating_add);
    Work(i64::try_from(once.saturating_mul(2)).unwrap_or(i64::MAX))
}
