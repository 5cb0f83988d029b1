//! Starts real `legwork` processes and tests them from outside, as their users do.
//!
//! Invariant: every process started here is killed when its value is dropped, and everything it
//! writes lies in a temporary folder. Waits are for an event (a line, an answer), and bounded.

pub mod bank;
pub mod binary;
pub mod cluster;
pub mod command;
pub mod contents;
pub mod fixture;
pub mod net;
pub mod server;
pub mod tutorial;
pub mod wait;

pub use command::{Outcome, legwork};
pub use contents::contents;
pub use server::{Folder, Server, send_signal};
