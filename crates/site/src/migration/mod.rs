//! Migration of cases: control and history that go to other servers and come from them, and the values and files that
//! follow when they are read.

pub(crate) mod arrivals;
pub(crate) mod contents;
pub(crate) mod departures;
pub(crate) mod export;
pub(crate) mod fetch;
pub(crate) mod outbox;
pub(crate) mod passages;
pub(crate) mod sound;
