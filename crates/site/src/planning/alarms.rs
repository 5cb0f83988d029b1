//! Alarms of deadlines: the moment from which a deadline is in danger, and the moment at which it passes.
//!
//! Invariant: every instance that has not ended, and whose deadline is not recorded as passed, has one alarm, also
//! while it is evicted.

use std::collections::BTreeSet;
use std::time::Duration;

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;

use crate::cases::summary::Due;

/// Work done in the millisecond of the deadline is in time.
const AFTER: Duration = Duration::from_millis(1);

/// The alarm of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    at: Option<Timestamp>,
    /// The moment of danger, and the passed deadline, that were already handled.
    pub(crate) in_danger: Option<Timestamp>,
    pub(crate) passed: Option<Timestamp>,
    /// No alarm before this moment: the instance is being loaded, or could not record.
    pub(crate) postponed_until: Option<Timestamp>,
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
        Some(self.postponed_until.map_or(next, |until| next.max(until)))
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::event::Passed;

    use super::*;

    #[test]
    fn a_deadline_has_an_alarm_when_it_is_in_danger_and_when_it_passes() {
        let (mut alarms, mut alarm, id) = (Alarms::default(), Alarm::default(), InstanceId(1));
        let (at, danger) = (Timestamp(90), Some(Timestamp(50)));
        let mut due = Due { at, promised: false, passed: None, danger };
        let mut next = |alarm: &mut Alarm, due: Option<&Due>| {
            alarms.set(id, alarm, due);
            alarms.first().map(|(at, _)| at.0)
        };
        assert_eq!(next(&mut alarm, Some(&due)), Some(50));
        alarm.postponed_until = Some(Timestamp(60));
        assert_eq!(next(&mut alarm, Some(&due)), Some(60));
        (alarm.postponed_until, alarm.in_danger) = (None, danger);
        assert_eq!(next(&mut alarm, Some(&due)), Some(91));
        // It is extended, and in danger again.
        let passed = Some(Passed { at, extended: 1 });
        due = Due { at: Timestamp(190), passed, danger: Some(Timestamp(150)), ..due };
        assert_eq!(next(&mut alarm, Some(&due)), Some(150));
        due.passed = Some(Passed { at: Timestamp(190), extended: 1 });
        assert_eq!(next(&mut alarm, Some(&due)), None);
        assert_eq!(next(&mut alarm, None), None);
    }
}
