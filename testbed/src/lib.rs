//! What tests and benchmarks need around Legwork and Legwork itself never does: a PostgreSQL of their own.
//!
//! Invariant: whatever is started here ends with the process that started it, even if that is
//! killed, and leaves no file behind.

mod cluster;
mod database;

pub use cluster::Cluster;
pub use database::{Database, SERVER_VARIABLE, Session, database};
