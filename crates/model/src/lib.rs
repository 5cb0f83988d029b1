//! The shared vocabulary of Legwork: ids, time, values, process definitions, events.
//!
//! Invariant: pure. No clock, no randomness, no files, no sockets; the same text gives the same
//! schema, finding for finding and number for number.

pub mod address;
#[cfg(feature = "arbitrary")]
pub mod arbitrary;
pub mod assignment;
pub mod check;
pub mod compile;
pub mod condition;
pub mod definition;
pub mod event;
pub mod finding;
pub mod id;
pub mod json_schema;
pub mod rate;
pub mod rule;
pub mod rule_parser;
pub mod schema;
pub mod time;
pub mod value;
pub mod yaml;
pub mod zone;
