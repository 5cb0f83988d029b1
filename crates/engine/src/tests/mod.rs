//! The tests of this crate: sentences and properties.
//!
//! Sentences are scripts with their transcripts; properties hold for random processes.

mod answers;
mod claiming;
mod data;
mod incidents;
mod lifecycle;
mod marking;
mod oracle;
mod properties;
mod random;
mod support;
mod travel;
