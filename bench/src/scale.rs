//! `scale`: how many durable steps a second with several logical servers in one process, in folders and
//! in PostgreSQL?
//!
//! The load is that of `sequence`. A PostgreSQL server is started for every measurement, on the same
//! disk as all other data; the peer gets an empty database on it, right afterwards. Invariant: both
//! have the same settings, with sync.

use anyhow::Result;
use legwork_testbed::Cluster as Postgres;

use crate::cluster::{Cluster, Domain};
use crate::load::Scale;
use crate::place::Place;
use crate::report::Row;
use crate::server::Server;
use crate::steps::{self, Shape};

/// The number of logical servers, and their store.
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

/// The setting that the peer is compared with.
pub const BESIDE_PEER: Setting =
    Setting { workload: "scale-postgres-1", servers: 1, in_postgres: true };

/// The settings of a database server with a few gigabytes: memory, and checkpoints outside of
/// measurements. Durability is unchanged.
const TUNED: [(&str, &str); 4] = [
    ("shared_buffers", "512MB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "30min"),
    ("max_connections", "300"),
];

/// An empty PostgreSQL, if the setting needs one.
pub fn database(place: &Place, setting: Setting) -> Result<Option<Postgres>> {
    match setting.in_postgres {
        true => Postgres::start_in(&place.data, &TUNED).map(Some),
        false => Ok(None),
    }
}

/// Measures one setting on new servers.
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
