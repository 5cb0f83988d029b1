//! `scale`: how many durable steps a second with several logical servers in one process, in folders and
//! in PostgreSQL?
//!
//! The load is that of `sequence`. A server of PostgreSQL is started for every measurement, on the disk
//! that everything else is measured on; the peer gets an empty database on the same one, right after
//! us. Invariant: it is set up for both alike, and syncs.

use anyhow::Result;
use legwork_testbed::Cluster as Postgres;

use crate::cluster::{Cluster, Domain};
use crate::load::Scale;
use crate::place::Place;
use crate::report::Row;
use crate::server::Server;
use crate::steps::{self, Shape};

/// Logical servers, and where they keep what they know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    pub workload: &'static str,
    pub servers: usize,
    pub in_postgres: bool,
}

pub const SETTINGS: [Setting; 6] = [
    Setting { workload: "scale-1", servers: 1, in_postgres: false },
    Setting { workload: "scale-2", servers: 2, in_postgres: false },
    Setting { workload: "scale-4", servers: 4, in_postgres: false },
    BESIDE_PEER,
    Setting { workload: "scale-postgres-2", servers: 2, in_postgres: true },
    Setting { workload: "scale-postgres-4", servers: 4, in_postgres: true },
];

/// The one that the peer is compared with.
pub const BESIDE_PEER: Setting =
    Setting { workload: "scale-postgres-1", servers: 1, in_postgres: true };

/// As a database server with a few gigabytes is set up: memory for what is used, and checkpoints by
/// the clock and not in the middle of a measurement. Durability is left as it is.
const TUNED: [(&str, &str); 4] = [
    ("shared_buffers", "512MB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "30min"),
    ("max_connections", "300"),
];

/// A PostgreSQL with nothing in it, if the setting needs one.
pub fn database(place: &Place, setting: Setting) -> Result<Option<Postgres>> {
    match setting.in_postgres {
        true => Postgres::start_in(&place.data, &TUNED).map(Some),
        false => Ok(None),
    }
}

/// Measures one setting on servers of its own.
pub async fn measure(
    place: &Place,
    postgres: Option<&Postgres>,
    setting: Setting,
    scale: Scale,
) -> Result<Row> {
    let shape = Shape::Sequence;
    let database = postgres.map(|postgres| postgres.database("ours")).transpose()?;
    let url = database.as_ref().map(|database| database.url());
    let row = if setting.servers == 1 {
        let args: Vec<&str> = url.iter().flat_map(|url| ["--store", url]).collect();
        let server = Server::with_args(place, shape.definition(), &args).await?;
        steps::measure_on(&server, shape, scale).await?
    } else {
        let weights = vec![1; setting.servers];
        let domain = Domain { name: "site", transfer: "proven", weights: &weights, database: url };
        let cluster = Cluster::in_one_process(place, shape.definition(), domain).await?;
        steps::measure_on(&cluster.servers[0], shape, scale).await?
    };
    Ok(Row {
        workload: setting.workload,
        servers: Some(setting.servers),
        store: Some(if postgres.is_some() { "postgres" } else { "embedded" }),
        ..row
    })
}
