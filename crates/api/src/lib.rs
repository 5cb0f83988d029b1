//! The wire: what a Legwork server is asked and what it answers, as JSON, and a typed client.
//!
//! Invariant: these types are the public contract. Fields are snake_case, times are RFC 3339 text,
//! lengths of time are whole milliseconds in fields ending in `_ms`, ids are text. Requests refuse
//! fields they do not know; answers may gain fields at any time.

pub mod cluster;
pub mod deadlines;
pub mod definitions;
pub mod endpoints;
pub mod executors;
pub mod files;
pub mod instances;
pub mod jobs;
pub mod links;
pub mod problem;
pub mod schedules;
#[cfg(feature = "signature")]
pub mod signature;
pub mod system;
mod text;
pub mod tokens;
pub mod topology;
pub mod webhooks;
pub mod work;

#[cfg(feature = "client")]
pub mod client;

use std::collections::BTreeMap;

#[cfg(feature = "client")]
pub use client::Client;
pub use problem::Problem;

/// Values by the name of their data element.
pub type Data = BTreeMap<String, serde_json::Value>;
