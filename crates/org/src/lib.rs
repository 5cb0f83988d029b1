//! WHO may do it: people, roles, units and substitutes; worklists folded from events.
//!
//! Invariant: pure. Time is an argument, and the same organisation, rule and history give the same
//! people. An agent sees only items that they may act on.

mod absence;
mod calendar;
mod check;
mod check_text;
mod organisation;
mod read;
mod resolve;
mod schema;
mod set;
#[cfg(test)]
mod support;
mod worklist;

pub use absence::StandIn;
pub use calendar::{Occurrence, Regular, SPANS_PER_DAY_MAX, Timetable, WorkSpan, WorkingTime};
pub use check::Assignments;
pub use check_text::{Checked, check_text};
pub use organisation::{Absence, Agent, Organisation, Position, Unit};
pub use read::{
    AGENTS_MAX, CALENDARS_MAX, CLOSED_MAX, NAMES_MAX, POSITIONS_MAX, REGULAR_MAX, RESERVE_DEFAULT,
    RESERVE_MAX, UNIT_DEPTH_MAX, UNITS_MAX,
};
pub use resolve::{Performers, Resolved};
pub use schema::json_schema;
pub use set::AgentSet;
pub use worklist::{
    Cursor, Delta, Elsewhere, Item, ItemKey, ItemView, MergedCursor, MergedDelta, MergedItem,
    MergedRead, PAGE_MAX, Removed, Reoffered, Retention, There, Worklists,
};
