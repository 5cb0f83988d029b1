//! The server as its callers see it.
//!
//! Most tests go through the router without sockets; those of the sockets and of the client go
//! over loopback. None waits for time to pass but those of schedules and of mail.

mod access;
mod changes;
mod cluster;
mod deadlines;
mod documents;
mod dwelling;
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
mod support;
mod takeover;
mod traces;
