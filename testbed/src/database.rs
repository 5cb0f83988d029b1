//! A database of its own for each test, on a server that all tests of a process share.
//!
//! Invariant: nothing outlives the test on a server that is not ours: its database is dropped.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::Cluster;

/// Names a server that tests may make databases on, in place of a private one.
pub const SERVER_VARIABLE: &str = "LEGWORK_TEST_POSTGRES";

/// An empty database, dropped with this value.
pub struct Database {
    server: String,
    url: String,
    name: String,
}

/// A new database on the server that the environment names, or on a private one that lasts as long as
/// this process.
pub fn database() -> Result<Database> {
    static PRIVATE: Mutex<Option<Cluster>> = Mutex::new(None);
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("legwork_test_{}_{number}", std::process::id());
    if let Ok(server) = std::env::var(SERVER_VARIABLE) {
        let url = with_database(&server, &name);
        return Database::create(&server, url, &name);
    }
    let mut private = PRIVATE.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster = match &mut *private {
        Some(cluster) => cluster,
        none => none.insert(Cluster::start()?),
    };
    cluster.database(&name)
}

impl Database {
    pub(crate) fn create(server: &str, url: String, name: &str) -> Result<Self> {
        ask(server, &format!("CREATE DATABASE {name}"))?;
        Ok(Self { server: server.to_owned(), url, name: name.to_owned() })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// A connection that stays, for transactions. Not to be used within a runtime.
    pub fn session(&self) -> Result<Session> {
        Session::open(&self.url)
    }

    /// Runs statements and answers the first column of the rows, as text.
    pub fn ask(&self, statements: &str) -> Result<Vec<String>> {
        ask(&self.url, statements)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = ask(&self.server, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

/// In its own thread: the caller may be in a runtime.
pub(crate) fn ask(url: &str, statements: &str) -> Result<Vec<String>> {
    let asked = std::thread::scope(|scope| {
        scope.spawn(|| ask_blocking(url, statements)).join().ok().context("asking has failed")
    });
    asked?
}

fn ask_blocking(url: &str, statements: &str) -> Result<Vec<String>> {
    Session::open(url)?.ask(statements)
}

/// A connection to a database.
pub struct Session {
    // Dropped in this order: the connection lives in the runtime.
    client: Client,
    runtime: Runtime,
}

impl Session {
    fn open(url: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let connecting = async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            anyhow::Ok(client)
        };
        let client = runtime.block_on(connecting)?;
        Ok(Self { client, runtime })
    }

    /// Runs statements and answers the first column of the rows, as text.
    pub fn ask(&self, statements: &str) -> Result<Vec<String>> {
        let messages = self.runtime.block_on(self.client.simple_query(statements))?;
        let mut first = Vec::new();
        for message in messages {
            if let SimpleQueryMessage::Row(row) = message {
                first.push(row.get(0).unwrap_or_default().to_owned());
            }
        }
        Ok(first)
    }
}

/// The same address, with another database.
fn with_database(url: &str, name: &str) -> String {
    let (rest, query) =
        url.split_once('?').map_or((url, None), |(rest, query)| (rest, Some(query)));
    let place = rest.find("://").map_or(0, |place| place + 3);
    let end = rest[place..].find('/').map_or(rest.len(), |end| place + end);
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("{}/{name}{query}", &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_of_an_address_is_replaced() {
        for (url, expected) in [
            ("postgres://u:p@h:5432/db?sslmode=disable", "postgres://u:p@h:5432/x?sslmode=disable"),
            ("postgres://h", "postgres://h/x"),
            ("postgres://h?connect_timeout=3", "postgres://h/x?connect_timeout=3"),
            ("postgres://u@%2Ftmp/", "postgres://u@%2Ftmp/x"),
        ] {
            assert_eq!(with_database(url, "x"), expected);
        }
    }

    #[test]
    fn a_killed_server_comes_back_with_what_it_had() {
        let mut cluster = Cluster::start().unwrap();
        let database = cluster.database("kept").unwrap();
        database.ask("CREATE TABLE t (a int); INSERT INTO t VALUES (7)").unwrap();
        cluster.kill().unwrap();
        assert!(database.ask("SELECT 1").is_err());
        cluster.run().unwrap();
        assert_eq!(database.ask("SELECT a FROM t").unwrap(), ["7"]);
        drop(database);
        let folder = cluster.folder().to_owned();
        drop(cluster);
        assert!(!folder.exists());
    }
}
