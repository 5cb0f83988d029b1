//! The server as its callers see it.
//!
//! Most tests go through the router without sockets; those of sockets and of the client go over
//! loopback. Only those of schedules and of mail wait for time to pass.

mod access;
mod changes;
mod cluster;
mod deadlines;
mod documents;
mod endpoints;
mod failures;
mod figures;
mod flow;
mod fuzz;
mod guests;
mod histories;
mod jobs;
mod layers;
mod limits;
mod mail;
mod monitoring;
mod moving;
mod openapi;
mod schedules;
mod servers;
mod sockets;
mod store_location;
mod support;
mod takeover;
mod traces;
