//! Worlds in virtual time.

pub(crate) mod specialists;
