//! Random definitions for property tests.
//!
//! What is generated compiles, and keeps the rules K1 to K6 always, D1 and D2 where asked. It
//! shrinks towards fewer and simpler blocks.
