//! WHAT happens next in one instance: command → events → state.
//!
//! Invariant: pure. `decide` refuses or answers with events and the state after them; `evolve`
//! folds an event into a state and never refuses; nothing else changes a state. Folding the same
//! events gives the same state, wherever and whenever it is done.

mod command;
pub mod data;
mod decide;
mod evolve;
mod marking;
mod rejection;
mod state;

pub use command::{Command, Resolution};
pub use decide::{Decision, create, decide};
pub use evolve::{evolve, replay};
pub use rejection::Rejection;
pub use state::{Change, Lifecycle, NodeState, Open, State, Version};

#[cfg(test)]
mod tests;
