//! Drives a site: clock, store, and the HTTP API.
//!
//! Invariant: nothing is decided here. Requests become inputs of the site, its outputs are carried
//! out, and an answer is released only after everything it depends on is durable.

mod activity;
mod backend;
mod clock;
pub mod cluster;
mod config;
mod convert;
mod core;
mod drive;
mod everywhere;
mod executors;
mod figures;
mod files;
mod gate;
mod guests;
mod http;
mod ids;
mod incoming;
mod lease;
mod listen;
pub mod log;
mod mail;
mod meters;
mod moving;
mod notes;
mod peer;
mod process;
mod published;
mod queue;
mod schedules;
mod server;
mod status;
mod store_location;
mod supervise;
mod takeover;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use clock::now;
pub use config::{Config, DatabaseUrl, Limits, PORT, Peering, StoreChoice};
pub use mail::Unusable as MailUnusable;
pub use peer::{Authority, Certified, NotCertified, Unusable};
pub use published::{api_of, serves};
pub use server::{News, Server, run};

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(legwork_store::Error),

    #[error(
        "the store was written by something else or by a newer version: {}; \
         use a newer legwork, or restore a backup into a new directory; nothing was changed",
        .faults.join("; ")
    )]
    Unreadable { faults: Vec<String> },

    #[error(
        "the store is that of a server of the topology `{topology}` ({}), and cannot be one that is \
         alone; start it with --cluster DIR, the folder that `legwork cluster init` made for that \
         server", .servers.join(", ")
    )]
    MemberAlone { topology: String, servers: Vec<String> },

    #[error(
        "cannot listen on {address}: {why}; \
         stop what listens there, or choose another address with --listen"
    )]
    Listen { address: SocketAddr, why: io::Error },

    #[error(transparent)]
    Certificates(#[from] Unusable),

    #[error(transparent)]
    Mail(#[from] MailUnusable),

    #[error(
        "the server `{name}` is not in the topology; `legwork cluster init` writes one that names it"
    )]
    NotInTopology { name: String },

    #[error("`{name}` is a guest of `{host}` and runs in that server's process; start `{host}`")]
    Guest { name: String, host: String },

    #[error(
        "{} holds a store; a process that takes the place of another begins with an empty folder, \
         choose one with --data", .path.display()
    )]
    NotEmpty { path: PathBuf },

    #[error(
        "only a store in a folder is copied; with a shared database stop the old process, start this \
         one without --replace, and publish the topology with its new address"
    )]
    NotCopied,

    #[error(
        "cannot listen for other servers on {address}: {why}; \
         stop what listens there, or choose another address with --peer-listen"
    )]
    PeerListen { address: String, why: io::Error },

    #[error("the server does not start: {0}")]
    Start(String),
}

/// The OpenAPI document that the server serves.
pub fn openapi() -> String {
    String::from_utf8_lossy(&http::documents::openapi()).into_owned()
}
