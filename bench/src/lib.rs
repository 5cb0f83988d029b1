//! Load, kills and measurements from outside: all calls go through the public API of a real
//! `legwork` process on loopback.
//!
//! Invariant: no figure counts a failed call, every loop is bounded in time and count, and however
//! the program ends, the servers it started are gone and so are their directories.

pub mod cluster;
pub mod crash;
mod delay;
pub mod disk;
pub mod dispatch;
pub mod engine;
pub mod executors;
pub mod guarantee;
pub mod load;
pub mod lookup;
pub mod machine;
pub mod migrate;
pub mod page;
pub mod peer;
pub mod place;
pub mod report;
pub mod restart;
pub mod reweigh;
pub mod scale;
pub mod server;
pub mod steps;
pub mod usage;
pub mod waiting;
pub mod worker;
