//! Plans of people and executors: which steps can be promised, for when, and with which performer.
//!
//! Invariant: no clock, no messages, no randomness; the caller passes the time.

mod legs;
mod offers;
mod plan;
mod planner;
mod search;
mod service;
mod slack;
mod supply;
mod task;

pub use legs::{Leg, legs, longest_first};
pub use plan::{Depth, Discipline, Kind, Plan, Turn, Window};
pub use planner::{Change, Planner, Reservation, Setup};
pub use search::{Bids, Next, OFFERED, Search, Step};
pub use service::Seen;
pub use slack::{Placed, loosened};
pub use supply::{Span, Supply, WHOLE, Work};
pub use task::{Candidate, Grant, How, Offer, ResourceId, Task, TaskId};
