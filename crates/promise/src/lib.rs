//! Deadlines that are promised or refused.
//!
//! A resource (a person, an executor) has a plan of what it is to do, in its own working time. A task with
//! a deadline is taken in only if everything in the plan can still be done in time; so what is promised is
//! kept as long as nothing takes longer than it was said to and nobody is lost. Where one resource has no
//! time, others are asked, those with later deadlines and lower priority make way, and what was promised
//! by somebody who is lost is promised anew by others, or reported before it is missed.
//!
//! Invariant: no clock, no messages, no randomness but from a seed; whoever asks says what time it is.

mod band;
mod cluster;
mod desk;
mod dice;
mod factor;
mod grid;
mod later;
mod legs;
mod node;
mod orders;
mod periodic;
mod plan;
mod queue;
mod route;
mod sequence;
mod service;
mod spare;
mod stretch;
mod supply;
mod task;
mod timeline;
mod treap;
mod tree;

pub use cluster::paths;
pub use desk::{Change, Desk, Leeway, Reservation, Setup};
pub use legs::{Leg, legs, longest_first};
pub use node::{Effect, Message, Node, Noted, Offer, Overheads, Policy, Said, Strategy};
pub use periodic::Load;
pub use plan::{Discipline, Plan, Ticket, Times, Turn, Window};
pub use queue::Queue;
pub use route::{Next, Route};
pub use service::Seen;
pub use spare::Hours;
pub use supply::{Span, Supply, WHOLE, Work};
pub use task::{Displaces, Only, Part, Promise, ResourceId, Task, TaskId};
