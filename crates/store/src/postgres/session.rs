//! One connection, driven by the thread that uses it.
//!
//! Invariant: every wait is bounded: a missing answer is a failure. A failed session is not used
//! again.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls, Row, Statement};

use super::place::Place;
use super::tls::Tls;
use super::values::Parameter;
use crate::Error;

/// The limit on an answer.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The limit on connecting: name lookup, several hosts, the handshake.
const CONNECT_MAX: Duration = Duration::from_secs(20);

/// The settings of every session: the statements here must not depend on the server's
/// configuration. Every access is by a key, and a plan made while the tables are empty must not
/// scan them later. The server notices soon when this process is gone.
const SETTINGS: &str = "
    SET default_transaction_isolation = 'read committed';
    SET default_transaction_read_only = off;
    SET plan_cache_mode = force_generic_plan;
    SET enable_seqscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET jit = off;
    SET bytea_output = 'hex';
    SET statement_timeout = '60s';
    SET lock_timeout = '20s';
    SET idle_in_transaction_session_timeout = '60s';
    SET tcp_keepalives_idle = 3;
    SET tcp_keepalives_interval = 1;
    SET tcp_keepalives_count = 4;
    SELECT set_config('synchronous_commit', 'on', false)
     WHERE current_setting('synchronous_commit') = 'off'";

pub(super) struct Session {
    // Dropped in this order: the connection lives in the runtime.
    pub(super) client: Client,
    statements: Mutex<FxHashMap<&'static str, Statement>>,
    runtime: Runtime,
}

/// Why a query failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The database, or the connection to it.
    Database(tokio_postgres::Error),
    Late,
}

impl Session {
    pub(super) fn open(place: &Place) -> Result<Self, Error> {
        let failed = |reason| Error::Database {
            action: "connecting to",
            place: place.name().to_owned(),
            reason,
        };
        // The calling thread does the work itself: handing it to another thread and back would cost
        // more than it takes.
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| failed(error.to_string()))?;
        let connecting = async {
            // Two kinds of connection, and so two branches.
            let client = if let Some(tls) = &place.tls {
                let (client, connection) = place.config.connect(Tls(tls.clone())).await?;
                tokio::spawn(connection);
                client
            } else {
                let (client, connection) = place.config.connect(NoTls).await?;
                tokio::spawn(connection);
                client
            };
            client.batch_execute(SETTINGS).await?;
            Ok(client)
        };
        let connected = runtime.block_on(async {
            tokio::time::timeout(CONNECT_MAX, connecting).await.map_err(|_| Failure::Late)
        });
        let client = connected.and_then(|connected| connected.map_err(Failure::Database));
        let client = client.map_err(|failure| failed(failure.reason()))?;
        Ok(Self { client, statements: Mutex::default(), runtime })
    }

    /// Waits for an answer.
    pub(super) fn wait<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        let waited = self.runtime.block_on(async { tokio::time::timeout(limit, answer).await });
        waited.map_err(|_| Failure::Late)?.map_err(Failure::Database)
    }

    /// A statement, prepared once per session.
    pub(super) async fn prepared(
        &self,
        sql: &'static str,
    ) -> Result<Statement, tokio_postgres::Error> {
        let known = self.statements().get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        self.statements().insert(sql, statement.clone());
        Ok(statement)
    }

    pub(super) fn query(
        &self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Failure> {
        self.query_within(ANSWER_MAX, sql, parameters)
    }

    pub(super) fn query_within(
        &self,
        limit: Duration,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Failure> {
        self.wait(limit, async {
            let statement = self.prepared(sql).await?;
            self.client.query(&statement, parameters).await
        })
    }

    /// Statements without parameters and without an answer.
    pub(super) fn execute(&self, sql: &str) -> Result<(), Failure> {
        self.wait(ANSWER_MAX, self.client.batch_execute(sql))
    }

    /// Runs in one transaction. After a failure the session must be dropped.
    pub(super) fn transaction<T>(
        &self,
        act: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.execute("BEGIN")?;
        let done = act()?;
        self.execute("COMMIT")?;
        Ok(done)
    }

    /// For a transaction of the driver, whose answers are awaited in this runtime.
    pub(super) fn client_mut(&mut self) -> (&mut Client, &Runtime) {
        (&mut self.client, &self.runtime)
    }

    fn statements(&self) -> std::sync::MutexGuard<'_, FxHashMap<&'static str, Statement>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Failure {
    pub(super) fn is(&self, state: &SqlState) -> bool {
        matches!(self, Self::Database(error) if error.code() == Some(state))
    }

    /// The connection is lost, not only this statement has failed.
    pub(super) fn is_disconnected(&self) -> bool {
        match self {
            Self::Late => true,
            Self::Database(error) => error.as_db_error().is_none_or(|error| {
                // Class 57P: the server shuts down, and with it every session.
                error.code().code().starts_with("57P")
            }),
        }
    }

    pub(super) fn reason(&self) -> String {
        match self {
            Self::Late => "there is no answer".to_owned(),
            Self::Database(error) => chain(error),
        }
    }

    pub(super) fn told(&self, action: &'static str, place: &Place) -> Error {
        Error::Database { action, place: place.name().to_owned(), reason: self.reason() }
    }
}

/// The message of the database, or the cause of a failed connection.
pub(super) fn chain(error: &tokio_postgres::Error) -> String {
    use std::error::Error as _;

    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
