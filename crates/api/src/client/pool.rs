//! Kept-alive connections to one server.
//!
//! Invariant: a connection is in the pool only while nothing is under way on it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Error;

pub(super) type Connection = SendRequest<Full<Bytes>>;

/// How long a machine may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(5);
/// More idle connections than this are closed.
const IDLE_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Pool {
    authority: Arc<str>,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    pub(super) fn new(authority: Arc<str>) -> Self {
        Self { authority, idle: Mutex::new(Vec::new()) }
    }

    /// A connection that can be written to, and whether it is a new one.
    pub(super) async fn take(&self) -> Result<(Connection, bool), Error> {
        while let Some(mut connection) = self.pop() {
            if connection.ready().await.is_ok() {
                return Ok((connection, false));
            }
        }
        Ok((self.connect().await?, true))
    }

    pub(super) fn give_back(&self, connection: Connection) {
        if connection.is_closed() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    fn pop(&self) -> Option<Connection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    async fn connect(&self) -> Result<Connection, Error> {
        let unreachable =
            |reason: String| Error::Unreachable { authority: self.authority.clone(), reason };
        let connected = tokio::time::timeout(PATIENCE, TcpStream::connect(&*self.authority)).await;
        let stream = connected
            .map_err(|_| unreachable("nobody answers".to_owned()))?
            .map_err(|e| unreachable(e.to_string()))?;
        // Requests are small and answered one at a time: waiting to fill a packet only costs.
        stream.set_nodelay(true).map_err(|e| unreachable(e.to_string()))?;
        let (connection, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| unreachable(e.to_string()))?;
        // Its error reaches whoever waits for an answer on it.
        tokio::spawn(driver);
        Ok(connection)
    }
}
