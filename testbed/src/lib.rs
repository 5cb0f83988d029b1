//! What tests and benchmarks need around Legwork and Legwork itself never does: a PostgreSQL of their own,
//! executors that keep ledgers, a mail server, and ports.
//!
//! Invariant: whatever is started here ends with the process that started it, even if that is
//! killed, and leaves no file behind.

pub mod bound;
mod cluster;
mod database;
pub mod ledger;
mod mail;
mod ports;
mod service;

pub use cluster::Cluster;
pub use database::{Database, SERVER_VARIABLE, Session, database};
pub use mail::MailServer;
pub use ports::free_port;
pub use service::Service;
