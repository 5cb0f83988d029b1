//! When deadlines have to be looked at: at the moment from which they are in danger, and at that in which they pass.
//!
//! Invariant: every instance that has not ended, and whose deadline has not been written down as passed, stands here once, also
//! while it is evicted.

use std::collections::BTreeSet;
use std::time::Duration;

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;

use crate::cases::summary::Due;

/// What is done in the last moment is in time.
const AFTER: Duration = Duration::from_millis(1);

/// When the deadline of an instance is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    at: Option<Timestamp>,
    /// From when on it was found to be in danger, and the deadline that was found to have passed: it is not looked at for that
    /// again.
    pub(crate) in_danger: Option<Timestamp>,
    pub(crate) passed: Option<Timestamp>,
    /// It is being loaded, or could not be written down: it is looked at again then.
    pub(crate) put_off: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(crate) struct Alarms(BTreeSet<(Timestamp, InstanceId)>);

impl Alarms {
    pub(crate) fn set(&mut self, id: InstanceId, alarm: &mut Alarm, due: Option<&Due>) {
        self.take(id, alarm);
        alarm.at = due.and_then(|due| alarm.next(due));
        self.0.extend(alarm.at.map(|at| (at, id)));
    }

    pub(crate) fn take(&mut self, id: InstanceId, alarm: &Alarm) {
        if let Some(at) = alarm.at {
            self.0.remove(&(at, id));
        }
    }

    pub(crate) fn first(&self) -> Option<(Timestamp, InstanceId)> {
        self.0.first().copied()
    }
}

impl Alarm {
    fn next(&self, due: &Due) -> Option<Timestamp> {
        let passes = !due.is_late() && self.passed != Some(due.at);
        let passes = passes.then(|| due.at.plus(AFTER));
        let danger = due.danger.filter(|_| passes.is_some() && self.in_danger != due.danger);
        let next = passes.into_iter().chain(danger).min()?;
        Some(self.put_off.map_or(next, |until| next.max(until)))
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::event::Passed;

    use super::*;

    #[test]
    fn a_deadline_is_looked_at_when_it_is_in_danger_and_when_it_passes_and_no_more() {
        let (mut alarms, mut alarm, id) = (Alarms::default(), Alarm::default(), InstanceId(1));
        let (at, danger) = (Timestamp(90), Some(Timestamp(50)));
        let mut due = Due { at, promised: false, passed: None, danger };
        let mut next = |alarm: &mut Alarm, due: Option<&Due>| {
            alarms.set(id, alarm, due);
            alarms.first().map(|(at, _)| at.0)
        };
        assert_eq!(next(&mut alarm, Some(&due)), Some(50));
        alarm.put_off = Some(Timestamp(60));
        assert_eq!(next(&mut alarm, Some(&due)), Some(60));
        (alarm.put_off, alarm.in_danger) = (None, danger);
        assert_eq!(next(&mut alarm, Some(&due)), Some(91));
        // It is extended, and in danger once more.
        let passed = Some(Passed { at, extended: 1 });
        due = Due { at: Timestamp(190), passed, danger: Some(Timestamp(150)), ..due };
        assert_eq!(next(&mut alarm, Some(&due)), Some(150));
        due.passed = Some(Passed { at: Timestamp(190), extended: 1 });
        assert_eq!(next(&mut alarm, Some(&due)), None);
        assert_eq!(next(&mut alarm, None), None);
    }
}
