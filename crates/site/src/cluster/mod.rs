//! This server among others: its seat, the topology in force, and changes of it.

pub(crate) mod coordinate;
pub(crate) mod exceptions;
pub(crate) mod joining;
pub(crate) mod locks;
pub(crate) mod reconfigure;
pub(crate) mod seat;
pub(crate) mod topology;
pub(crate) mod watch;
pub(crate) mod whereabouts;
