//! What is kept of an ended instance for listings.
//!
//! Invariant: numbers in `#[n(…)]` are the persistent format and are never reused.

use std::sync::Arc;

use legwork_engine::{Lifecycle, State};
use legwork_model::event::Passed;
use legwork_model::id::InstanceId;
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use minicbor::{Decode, Encode};

use crate::answer::{DeadlineView, InstanceInfo};
use crate::cases::instances::Slot;
use crate::planning::in_danger_from;

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Summary {
    #[n(0)]
    pub process: String,
    #[n(1)]
    pub version: u32,
    #[n(2)]
    pub aborted: bool,
    #[n(3)]
    pub started_at: Timestamp,
    #[n(4)]
    pub ended_at: Timestamp,
    #[n(5)]
    pub due: Option<Due>,
}

/// What is kept of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Due {
    #[n(0)]
    pub at: Timestamp,
    #[n(1)]
    pub promised: bool,
    /// When it passed last, and how often it was extended.
    #[n(2)]
    pub passed: Option<Passed>,
    /// From when on it is in danger; `None` if the case has ended.
    #[cbor(skip)]
    pub danger: Option<Timestamp>,
}

impl Due {
    pub(crate) fn of(schema: &Schema, state: &State) -> Option<Self> {
        let deadline = state.deadline()?;
        let (at, promised, passed) = (deadline.at, deadline.is_promised(), deadline.passed);
        Some(Self { at, promised, passed, danger: in_danger_from(schema, state) })
    }

    /// Whether it has passed, by the history.
    pub(crate) fn is_late(&self) -> bool {
        self.passed.is_some_and(|passed| passed.at >= self.at)
    }

    /// Without the steps.
    pub(crate) fn view(self) -> DeadlineView {
        let Self { at, promised, passed, danger } = self;
        DeadlineView { at, promised, passed, danger, revoked: None, legs: Vec::new() }
    }
}

impl Summary {
    pub(crate) fn of(slot: &Slot) -> Self {
        Self {
            process: slot.schema.process.to_string(),
            version: slot.schema.version,
            aborted: slot.lifecycle == Lifecycle::Aborted,
            started_at: slot.started_at,
            ended_at: slot.ended_at.unwrap_or(slot.started_at),
            due: slot.due.as_deref().copied(),
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        minicbor::to_vec(self).unwrap_or_default()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        minicbor::decode(bytes).ok()
    }

    pub(crate) fn info(&self, instance: InstanceId) -> InstanceInfo {
        InstanceInfo {
            instance,
            process: Arc::from(self.process.as_str()),
            version: self.version,
            lifecycle: if self.aborted { Lifecycle::Aborted } else { Lifecycle::Completed },
            incidents: 0,
            started_at: self.started_at,
            ended_at: Some(self.ended_at),
            result: Vec::new(),
            deadline: self.due.map(Due::view),
        }
    }
}
