//! Bounds on what one instance, and one input, may add to the store.
//!
//! Invariant: the store has room for every append of the site. A record beyond the bounds is refused here, before
//! anything has changed; the store would refuse the whole batch, and thereby stop the site.

use legwork_engine::Decision;
use legwork_model::event::{Event, Record};
use legwork_model::time::Timestamp;

use crate::Site;
use crate::refusal::{Kind, Refusal};

/// All values of an instance, including older versions: they are kept in memory.
pub(crate) const INSTANCE_DATA_BYTES_MAX: u64 = 16 << 20;
/// Records of an instance; one more may end it.
pub(crate) const HISTORY_RECORDS_MAX: u64 = 1_000_000;
/// The part of a history in one message to another server: it must not block the link, and fits into a record.
pub(crate) const PART_BYTES: usize = 1 << 20;
/// The events of one command.
pub const RECORD_BYTES_MAX: usize = 8 << 20;
/// All appends and snapshots entailed by one input, except those of its last request.
pub const OUTPUT_BYTES_MAX: usize = 32 << 20;
/// The number of appends entailed by one input.
pub const OUTPUT_APPENDS_MAX: usize = 8_192;

/// How many processes a site accepts, and how many versions of each.
const PROCESSES_MAX: usize = 10_000;
const VERSIONS_MAX: usize = 10_000;
/// The texts of all definitions in all versions: they are kept in memory.
const DEFINITION_BYTES_MAX: u64 = 256 << 20;
/// Versions of the organisation.
const ORGANISATIONS_MAX: usize = 10_000;
/// Epochs of the topology.
const TOPOLOGIES_MAX: usize = 10_000;
const TOKENS_MAX: usize = 10_000;

/// Bounds on what a site keeps forever.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub processes: usize,
    /// Of one process.
    pub versions: usize,
    /// Size of the texts of all definitions.
    pub definition_bytes: u64,
    /// Versions of the organisation.
    pub organisations: usize,
    /// Epochs of the topology.
    pub topologies: usize,
    pub tokens: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            processes: PROCESSES_MAX,
            versions: VERSIONS_MAX,
            definition_bytes: DEFINITION_BYTES_MAX,
            organisations: ORGANISATIONS_MAX,
            topologies: TOPOLOGIES_MAX,
            tokens: TOKENS_MAX,
        }
    }
}

/// What the present input has entailed so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entailed {
    appends: usize,
    bytes: usize,
}

impl Entailed {
    pub(crate) fn add_append(&mut self, bytes: usize) {
        self.appends += 1;
        self.bytes += bytes;
    }

    pub(crate) fn add_snapshot(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Whether further work of the site itself has to be postponed.
    pub(crate) fn is_enough(self) -> bool {
        self.appends >= OUTPUT_APPENDS_MAX || self.bytes >= OUTPUT_BYTES_MAX
    }

    pub(crate) fn has_room_for(self, bytes: usize) -> bool {
        self.bytes + bytes <= OUTPUT_BYTES_MAX
    }
}

impl Site {
    /// The record of a decision on an instance that has `version` records and `data` bytes of values so far, if there
    /// is room for it.
    pub(crate) fn record_of(
        &self,
        decision: &mut Decision,
        version: u64,
        data: u64,
        now: Timestamp,
    ) -> Result<Vec<u8>, Refusal> {
        // A transfer from another server is not refused here: it would be resent forever.
        let from_elsewhere = decision.events.first().is_some_and(|event| {
            matches!(event, Event::Received(_) | Event::Fetched { .. } | Event::Delivered { .. })
        });
        let bytes = decision.state.data_bytes();
        let most = self.config.data_bytes_max;
        if bytes > most && bytes > data && !from_elsewhere {
            let message = format!(
                "the values of the instance would take {bytes} bytes with these, at most {most} \
                 fit; upload large ones as files"
            );
            return Err(Refusal::new(Kind::Invalid, "instance_data_too_large", message));
        }
        let most = self.config.history_records_max;
        // Results that count and are not confirmed yet keep room for their records.
        if version + decision.state.records_owed() >= most
            && !decision.state.lifecycle().has_ended()
            && !from_elsewhere
        {
            let message = format!(
                "the history of the instance has {version} records, at most {most} fit; abort it \
                 and start another one for the rest"
            );
            return Err(Refusal::new(Kind::Conflict, "history_too_long", message));
        }
        let record = Record { at: now, events: std::mem::take(&mut decision.events) }.to_bytes();
        if record.len() > RECORD_BYTES_MAX {
            let message = format!(
                "this would entail {} bytes of events at once, at most {RECORD_BYTES_MAX} fit; \
                 change the process so that fewer steps begin at the same moment",
                record.len()
            );
            return Err(Refusal::new(Kind::Conflict, "record_too_large", message));
        }
        Ok(record)
    }

    /// Refuses the next of several requests of one input when the previous ones have entailed enough. Work of the site
    /// itself is postponed instead.
    pub(crate) fn require_room(&self) -> Result<(), Refusal> {
        if !self.entailed.is_enough() {
            return Ok(());
        }
        let message =
            "the earlier requests of this batch fill a commit already; send this request again";
        Err(Refusal::new(Kind::Exhausted, "too_much_at_once", message))
    }
}
