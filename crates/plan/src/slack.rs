//! Divides the slack until a deadline among the steps of a case: each step gets the same factor of its performer's
//! working time. So no step gets a night or a weekend as its share.
//!
//! Invariant: no step is due earlier than without slack, and none begins before its predecessors are due.

use std::sync::Arc;

use legwork_model::time::Timestamp;

use crate::plan::Window;
use crate::supply::{Supply, Work};

/// A factor of one.
const ONE: i64 = 1_024;
/// The number of doublings in the search for the factor.
const DOUBLED_MAX: u32 = 40;

/// A step as planned as soon as possible.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Its predecessors, by index; all smaller.
    pub after: Vec<usize>,
    pub window: Window,
    /// The working time of its performer.
    pub hours: Arc<Supply>,
}

/// The window of each step when the slack until a deadline is divided.
pub fn loosened(steps: &[Placed], deadline: Timestamp) -> Vec<Window> {
    let fits = |factor: i64| {
        stretched(steps, factor).filter(|windows| windows.iter().all(|it| it.due <= deadline))
    };
    let (mut good, mut best) = (ONE, steps.iter().map(|step| step.window).collect::<Vec<_>>());
    let mut bad = ONE.saturating_mul(2);
    for _ in 0..DOUBLED_MAX {
        let Some(windows) = fits(bad) else { break };
        (good, best) = (bad, windows);
        bad = bad.saturating_mul(2);
    }
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        match fits(middle) {
            Some(windows) => (good, best) = (middle, windows),
            None => bad = middle,
        }
    }
    // A step without successors is due at the deadline itself.
    let is_last = |step: usize| !steps.iter().any(|other| other.after.contains(&step));
    for (_, window) in best.iter_mut().enumerate().filter(|(step, _)| is_last(*step)) {
        window.due = window.due.max(deadline);
    }
    best
}

/// The windows for a factor; `None` beyond the known working time.
fn stretched(steps: &[Placed], factor: i64) -> Option<Vec<Window>> {
    let mut windows: Vec<Window> = Vec::with_capacity(steps.len());
    for Placed { after, window, hours } in steps {
        let before = after.iter().map(|step| windows[*step].due).max();
        let release = before.map_or(window.release, |due| due.max(window.release));
        let length = hours.until(window.due).0 - hours.until(window.release).0;
        let length = i64::try_from(i128::from(length) * i128::from(factor) / i128::from(ONE));
        let due = hours.moment(Work(hours.until(release).0.checked_add(length.ok()?)?))?;
        windows.push(Window { release, due: due.max(window.due).max(release) });
    }
    Some(windows)
}
