//! What is kept at hand of an instance that has ended, for listings.
//!
//! Invariant: numbers in `#[n(…)]` are the persistent format and are never reused.

use std::sync::Arc;

use legwork_engine::Lifecycle;
use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use minicbor::{Decode, Encode};

use crate::answer::{DeadlineView, InstanceInfo};
use crate::instances::Slot;

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

/// What is kept at hand of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Due {
    #[n(0)]
    pub at: Timestamp,
    #[n(1)]
    pub promised: bool,
}

impl Due {
    /// Without the steps.
    pub(crate) fn view(self) -> DeadlineView {
        let Self { at, promised } = self;
        DeadlineView { at, promised, withdrawn: None, legs: Vec::new() }
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
