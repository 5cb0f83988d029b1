//! Worklists and what people do with their items.
//!
//! Invariant: a list is read once as a whole and then by what has changed since a cursor; a cursor
//! is opaque.

use std::sync::Arc;

use legwork_model::id::ActivityId;
use legwork_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Data, text};

/// What has changed in a worklist since a cursor, or the whole of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Worklist {
    /// Give it as `since` for what changes from here on.
    pub cursor: String,
    /// The list begins anew: forget what was there.
    pub reset: bool,
    /// New and changed items.
    pub items: Vec<Item>,
    /// Items that are no longer there.
    #[serde(with = "text::list")]
    #[schema(value_type = Vec<String>)]
    pub removed: Vec<ActivityId>,
    /// Ask again with the cursor for the rest.
    pub more: bool,
    /// Servers that cannot be reached just now: what they have is shown as it was last known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<Unreachable>,
}

/// A server that cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unreachable {
    #[schema(example = "lab-1")]
    pub server: Arc<str>,
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// An item of a worklist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Item {
    #[serde(with = "text")]
    #[schema(value_type = String, example = "inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC:approve")]
    pub activity: ActivityId,
    pub process: Arc<str>,
    pub title: Arc<str>,
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub offered_at: Timestamp,
    /// Who holds it; absent while it is offered to all who may do it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<Arc<str>>,
    /// How long it is expected to take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes_ms: Option<u64>,
    /// By when it has to be done for the deadline of its case.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub due: Option<Timestamp>,
    /// For whom it is planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_for: Option<Arc<str>>,
    /// The absent person it is seen for, if not for oneself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<Arc<str>>,
    /// The server that has it; absent where there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Arc<str>>,
    /// Its server cannot be reached: it is shown as it was last known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

/// An item with what is needed to work on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ItemDetail {
    #[serde(flatten)]
    pub item: Item,
    /// The values the step reads.
    #[schema(value_type = Object)]
    pub inputs: Data,
    /// The values it has to write.
    pub outputs: Vec<Output>,
    /// At decisions: what can be answered.
    pub answers: Vec<AnswerOption>,
}

/// A value that a step writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Output {
    pub element: Arc<str>,
    #[serde(rename = "type")]
    #[schema(example = "decimal")]
    pub kind: String,
    pub optional: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// Something that can be answered at a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnswerOption {
    /// What to give as `answer`.
    pub answer: Arc<str>,
    pub title: Arc<str>,
}

/// Who acts. It may be left out when the token allows to work as exactly one agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
}

/// Hands an item to somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DelegateRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// Who gets it.
    pub to: Arc<str>,
}

/// The work is done. With the header `Idempotency-Key` a repetition is answered like the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// The values of the step's outputs.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub data: Data,
    /// At decisions: the branch, at the end of a loop `repeat` or `leave`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}
