//! What came of periodic starts: a stream of its own. Its records stay, as all do; snapshots only shorten reading it.
//!
//! Invariant: of each schedule the last start counts; whatever cannot be read is as if it were not known, and the key of
//! a start keeps it from happening again.

use legwork_model::event::{Fired, Record, ScheduleEvent};
use legwork_model::id::StreamId;
use legwork_model::time::Timestamp;

use crate::Site;
use crate::answer::Answer;
use crate::catalog::access::Caller;
use crate::input::Stream;
use crate::output::{Append, Output};
use crate::refusal::Refusal;

/// After how many records what came of all is stored as a whole.
const SNAPSHOT_EVERY: u64 = 256;
const MESSAGE_CHARS_MAX: usize = 300;

impl Site {
    /// What came of a start, as whoever carried it out says.
    pub(super) fn note_fired(
        &mut self,
        caller: &Caller,
        mut event: ScheduleEvent,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let ScheduleEvent::Fired { name, outcome, .. } = &mut event;
        caller.require_schedule(name)?;
        if let Fired::Refused { message, .. } = outcome {
            *message = shortened(message);
        }
        // One that is under way while the stream is read is asked for again.
        if !self.cases.loads.contains(&StreamId::SCHEDULES) && self.schedules.book.note(&event) {
            self.keep(vec![event], now);
        }
        Ok(Answer::Done)
    }

    /// A moment was tried until the next one came. The attempts stand in the log.
    pub(super) fn note_missed(&mut self, event: ScheduleEvent, now: Timestamp) {
        self.schedules.missed += 1;
        if self.schedules.book.note(&event) {
            self.keep(vec![event], now);
        }
    }

    /// Without events it says how late it was.
    pub(super) fn keep(&mut self, events: Vec<ScheduleEvent>, now: Timestamp) {
        let record = Record { at: now, events }.to_bytes();
        let (stream, expected) = (StreamId::SCHEDULES.0, self.schedules.version);
        self.schedules.version += 1;
        self.schedules.recorded_at = now;
        self.out.push(Output::Append(Append { stream, expected, record, close: None }));
        if self.schedules.version.is_multiple_of(SNAPSHOT_EVERY) {
            let bytes = Record { at: now, events: self.schedules.book.events() }.to_bytes();
            let version = self.schedules.version;
            self.out.push(Output::Snapshot { stream, version, bytes });
        }
    }

    /// Takes in what came of starts before the site went down, or the next portion of it.
    pub(crate) fn recover_schedules(&mut self, stream: &Stream) {
        let mut unreadable = 0;
        if let Some((before, bytes)) = &stream.snapshot {
            let Ok(record) = Record::<ScheduleEvent>::from_bytes(bytes) else {
                return self.ask_for(StreamId::SCHEDULES, true);
            };
            self.schedules.version = *before;
            self.recall_record(&record);
        }
        for bytes in &stream.records {
            self.schedules.version += 1;
            match Record::<ScheduleEvent>::from_bytes(bytes) {
                Ok(record) => self.recall_record(&record),
                Err(_) => unreadable += 1,
            }
        }
        if unreadable > 0 {
            let text = format!(
                "{unreadable} records of periodic starts cannot be read: the list may show older ones"
            );
            self.out.push(Output::Notice { text });
        }
    }

    fn recall_record(&mut self, Record { at, events }: &Record<ScheduleEvent>) {
        self.clock.latest = self.clock.latest.max(*at);
        self.schedules.recorded_at = self.schedules.recorded_at.max(*at);
        self.schedules.note_all(events);
    }
}

/// What is kept of a text that somebody else has made.
pub(super) fn shortened(message: &str) -> String {
    message.chars().take(MESSAGE_CHARS_MAX).collect()
}
