//! Schedules: processes that are started again and again, by a time-table or every so often.
//!
//! Invariant: each moment is started once. Of those that pass while no server runs the last is started, late.

use std::sync::Arc;

use legwork_model::event;
use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::instances::Performer;
use crate::{Data, text};

/// What to start, and when: either `cron` or `every_ms`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleRequest {
    /// Its newest version at each moment.
    pub process: Arc<str>,
    /// Minute, hour, day of the month, month, day of the week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 2 * * mon-fri")]
    pub cron: Option<Arc<str>>,
    /// Whose clock on the wall `cron` goes by; UTC if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Berlin")]
    pub zone: Option<Arc<str>>,
    /// Each time after so long, from when it is put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1000)]
    pub every_ms: Option<u64>,
    /// The elements that the process asks for at its start.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub data: Data,
    /// In whose name it is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// By when each start is to be done. It is promised if it can be, and started all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Within>,
}

/// A deadline for each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Within {
    /// From the moment on.
    pub within_ms: u64,
    /// A case that is promised can be displaced by a more important one; 9 is the most important.
    #[serde(default = "usual_priority")]
    #[schema(maximum = 9, default = 5)]
    pub priority: u8,
}

fn usual_priority() -> u8 {
    event::Deadline::PRIORITY_DEFAULT
}

/// A schedule was put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchedulePut {
    pub name: String,
    /// It was put just like that before.
    pub unchanged: bool,
    /// When it starts something next; absent while it is paused.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_at: Option<Timestamp>,
}

/// A schedule, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    pub name: Arc<str>,
    pub process: Arc<str>,
    /// Either this with its zone, or `every_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    #[schema(value_type = Object)]
    pub data: Data,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Within>,
    pub paused: bool,
    /// Who has put it. They and admins may change it.
    pub by: Performer,
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub put_at: Timestamp,
    /// When it starts something next; absent while it is paused.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_at: Option<Timestamp>,
    /// Absent if nothing was started since it was put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastStart>,
}

/// What came of the last start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastStart {
    /// The moment that it was for.
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Absent if it was refused or missed.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub instance: Option<InstanceId>,
    /// Whether its deadline was promised, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<bool>,
    /// Why it was refused: a stable word, and a sentence. `missed` if it was tried until the next moment came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A page of schedules, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleList {
    pub schedules: Vec<Schedule>,
    /// Give it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
