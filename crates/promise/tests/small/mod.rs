//! Tasks so small that every way to do them can be tried.

use legwork_model::time::Timestamp;
use legwork_promise::Window;

/// A small task, in hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Small {
    pub(crate) release: i64,
    pub(crate) deadline: i64,
    pub(crate) cost: i64,
}

pub(crate) fn window(task: Small) -> Window {
    Window { release: Timestamp(task.release), deadline: Timestamp(task.deadline) }
}

/// Whether some assignment of hours to tasks does it all: every hour of a task finds a slot of its own,
/// moving others if need be.
pub(crate) fn has_preemptive_plan(tasks: &[Small], now: i64) -> bool {
    fn finds(
        hour: usize,
        hours: &[Small],
        now: i64,
        owner: &mut [Option<usize>],
        seen: &mut [bool],
    ) -> bool {
        for slot in hours[hour].release.max(now)..hours[hour].deadline {
            let slot = slot as usize;
            if std::mem::replace(&mut seen[slot], true) {
                continue;
            }
            let free = match owner[slot] {
                None => true,
                Some(other) => finds(other, hours, now, owner, seen),
            };
            if free {
                owner[slot] = Some(hour);
                return true;
            }
        }
        false
    }
    let hours: Vec<Small> =
        tasks.iter().flat_map(|task| std::iter::repeat_n(*task, task.cost as usize)).collect();
    let slots = tasks.iter().map(|task| task.deadline).max().unwrap_or(0).max(0) as usize;
    let mut owner = vec![None; slots];
    (0..hours.len()).all(|hour| finds(hour, &hours, now, &mut owner, &mut vec![false; slots]))
}
