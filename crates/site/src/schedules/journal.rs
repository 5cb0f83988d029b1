//! What came of periodic starts: a stream of its own. Its records stay, as all do; snapshots only shorten reading it.
//!
//! Invariant: of each schedule the last start counts; whatever cannot be read is as if it were not known, and the key of
//! a start keeps it from happening again.

use legwork_model::event::{Fired, Record, ScheduleEvent};
use legwork_model::id::StreamId;
use legwork_model::time::Timestamp;

use super::Schedules;
use crate::answer::Answer;
use crate::catalog::access::Caller;
use crate::context::{Context, Effect};
use crate::input::Stream;
use crate::output::{Append, Output};
use crate::refusal::Refusal;

/// After how many records what came of all is stored as a whole.
const SNAPSHOT_EVERY: u64 = 256;
const MESSAGE_CHARS_MAX: usize = 300;

impl Schedules {
    /// What came of a start, as the one that carried it out reports.
    pub(super) fn on_fired(
        &mut self,
        caller: &Caller,
        mut event: ScheduleEvent,
        cx: Context<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer, Refusal> {
        let ScheduleEvent::Fired { name, outcome, .. } = &mut event;
        caller.require_schedule(name)?;
        if let Fired::Refused { message, .. } = outcome {
            *message = shortened(message);
        }
        // A start that is under way while the stream is read is asked for again.
        if !cx.cases.loads.contains(&StreamId::SCHEDULES) {
            self.note(event, cx.now, effects);
        }
        Ok(Answer::Done)
    }

    /// Stores what came of a start, if that is news.
    pub(super) fn note(&mut self, event: ScheduleEvent, now: Timestamp, effects: &mut Vec<Effect>) {
        if self.book.note(&event) {
            self.store(vec![event], now, effects);
        }
    }

    /// Without events the record says how late it was.
    pub(super) fn store(
        &mut self,
        events: Vec<ScheduleEvent>,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        let record = Record { at: now, events }.to_bytes();
        let (stream, expected) = (StreamId::SCHEDULES.0, self.version);
        self.version += 1;
        self.recorded_at = now;
        let append = Append { stream, expected, record, close: None };
        effects.push(Effect::Output(Output::Append(append)));
        if self.version.is_multiple_of(SNAPSHOT_EVERY) {
            let bytes = Record { at: now, events: self.book.events() }.to_bytes();
            let version = self.version;
            effects.push(Effect::Output(Output::Snapshot { stream, version, bytes }));
        }
    }

    /// Reads what came of starts before the site went down, or the next portion of it.
    pub(crate) fn recover(&mut self, stream: &Stream) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some((version, bytes)) = &stream.snapshot {
            let Ok(record) = Record::<ScheduleEvent>::from_bytes(bytes) else {
                return vec![Effect::Load { stream: StreamId::SCHEDULES, whole: true }];
            };
            self.version = *version;
            effects.push(self.on_record(&record));
        }
        let mut unreadable = 0;
        for bytes in &stream.records {
            self.version += 1;
            match Record::<ScheduleEvent>::from_bytes(bytes) {
                Ok(record) => effects.push(self.on_record(&record)),
                Err(_) => unreadable += 1,
            }
        }
        if unreadable > 0 {
            let text = format!(
                "{unreadable} records of periodic starts cannot be read: the list may show older ones"
            );
            effects.push(Effect::Output(Output::Notice { text }));
        }
        effects
    }

    fn on_record(&mut self, Record { at, events }: &Record<ScheduleEvent>) -> Effect {
        self.recorded_at = self.recorded_at.max(*at);
        for event in events {
            self.book.note(event);
        }
        Effect::Recorded(*at)
    }
}

/// The beginning of a text from outside, as much as is stored.
pub(super) fn shortened(message: &str) -> String {
    message.chars().take(MESSAGE_CHARS_MAX).collect()
}
