//! The server as its callers see it.
//!
//! Most tests go through the router without sockets; those of the sockets and of the client go
//! over loopback. None waits for time to pass.

mod access;
//F
mod flow;
//Z
mod limits;
//O
//S
mod support;
