//! WHAT happens next in one instance: command → events → state.
//!
//! Invariant: pure. `decide` refuses or answers with events and the state after them; `evolve`
//! folds an event into a state and never refuses; nothing else changes a state. Folding the same
//! events gives the same state, wherever and whenever it is done.

mod command;
pub mod data;
mod decide;
mod evolve;
mod failure;
mod marking;
mod rejection;
mod state;
mod travel;

pub use command::{Command, Resolution};
pub use decide::{Decision, Everywhere, Here, create, create_at, decide, decide_at, receive_first};
pub use evolve::{evolve, replay};
pub use failure::Failure;
pub use rejection::Rejection;
pub use state::{Answer, Change, Completion, Lacking, Lifecycle, NodeState, Open, State, Version};
pub use travel::{Outgoing, Peer};

#[cfg(test)]
mod tests;
