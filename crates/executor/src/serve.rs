//! Accepts connections, and stops.
//!
//! Invariant: an executor that stops takes no new tasks, and returns when begun ones are done and acknowledged, or
//! the grace period is over. Its spawned tasks do not outlive it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Uri, body::Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use legwork_api::{Client, client};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;

use crate::memory::Memory;
use crate::route::{self, Reply};
use crate::{Error, Executor, callback, register, remind};

const CONNECTIONS_MAX: usize = 1_000;
/// How long receiving the head of a request may take.
const HEAD_WAIT: Duration = Duration::from_secs(30);
/// How long writing the last answers may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// The pause after an error that is not the caller's, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);
/// The most cached connections to servers: more than one Legwork has.
const CLIENTS_MAX: usize = 64;

/// Shared by all connections and tasks.
pub(crate) struct Shared {
    pub(crate) executor: Executor,
    /// The prefix of request paths.
    pub(crate) prefix: String,
    /// For bodies that are being read, in KiB.
    pub(crate) room: Semaphore,
    /// Slots for tasks: tasks of several servers beyond that wait. And slots of types with limits of their own.
    pub(crate) hands: Arc<Semaphore>,
    pub(crate) hands_of: BTreeMap<String, Arc<Semaphore>>,
    /// For results that are resent because there is no verdict.
    pub(crate) reminders: Semaphore,
    /// A task or hook has ended.
    pub(crate) changed: Notify,
    /// Legwork does not know this executor.
    pub(crate) unknown: Notify,
    memory: Mutex<Memory>,
    clients: Mutex<BTreeMap<String, Client>>,
    runs: Mutex<JoinSet<()>>,
}

pub(crate) async fn run(
    executor: Executor,
    listener: TcpListener,
    legwork: &str,
    token: Option<&str>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    let url = match &executor.url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => own_url(&listener)?,
    };
    let prefix = path_of(&url)?;
    let request = executor.request(url)?;
    let client = Client::new(legwork, token)?;
    let hands = |count: u32| Arc::new(Semaphore::new(count as usize));
    let of_type = |(name, limit): (&String, u32)| (name.clone(), hands(limit));
    let limits = executor.types.iter().filter_map(|(name, kind)| Some((name, kind.limit?)));
    let hands_of = limits.map(of_type).collect();
    let hands = hands(executor.at_once.unwrap_or(executor.limit));
    let shared = Arc::new(Shared {
        executor,
        hands,
        hands_of,
        prefix,
        room: Semaphore::new(route::BODIES_KIB_MAX),
        reminders: Semaphore::new(remind::AT_A_TIME_MAX),
        changed: Notify::new(),
        unknown: Notify::new(),
        memory: Mutex::default(),
        clients: Mutex::default(),
        runs: Mutex::default(),
    });
    let _end = End(shared.clone());
    let owner = shared.clone();
    shared.spawn(async move { register::keep(&owner, &client, &request).await });
    accept(&listener, &shared, drained(&shared, shutdown)).await;
    Ok(())
}

/// Ready when the executor may return.
async fn drained(shared: &Shared, shutdown: impl Future<Output = ()>) {
    shutdown.await;
    shared.memory().stop();
    let idle = async {
        loop {
            let changed = shared.changed.notified();
            let mut changed = pin!(changed);
            // No change is missed from here on.
            changed.as_mut().enable();
            if shared.memory().is_idle() {
                return;
            }
            changed.await;
        }
    };
    if tokio::time::timeout(shared.executor.grace, idle).await.is_err() {
        tracing::warn!("the time of grace is over; what is under way is left");
    }
}

async fn accept(listener: &TcpListener, shared: &Arc<Shared>, drained: impl Future<Output = ()>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (stop, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut drained = pin!(drained);
    loop {
        let accepted = tokio::select! {
            () = &mut drained => break,
            // Further connections wait in the queue of the operating system.
            accepted = async {
                let place = places.clone().acquire_owned().await;
                (listener.accept().await, place)
            } => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            (Ok((stream, _)), place) => {
                let (shared, stopping) = (shared.clone(), stopping.clone());
                connections.spawn(async move {
                    connection(stream, shared, stopping).await;
                    drop(place);
                });
            }
            (Err(error), _) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    stop.send_replace(true);
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(FAREWELL, finished).await.is_err() {
        connections.shutdown().await;
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>, mut stopping: watch::Receiver<bool>) {
    // Answers are small and written at once: Nagle's algorithm only costs.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(|request: Request<Incoming>| async {
        Ok::<Reply, Infallible>(route::answer(&shared, request).await)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // Broken connections concern only the caller.
        _ = connection.as_mut() => return,
        _ = stopping.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

impl Shared {
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs until it ends, or the executor does.
    pub(crate) fn spawn(&self, run: impl Future<Output = ()> + Send + 'static) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        while runs.try_join_next().is_some() {}
        runs.spawn(run);
    }

    /// Kept-alive connections to callbacks.
    pub(crate) fn client(&self, origin: &str) -> Result<Client, client::Error> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(origin) {
            return Ok(client.clone());
        }
        if clients.len() >= CLIENTS_MAX {
            clients.clear();
        }
        let client = callback::connect(origin)?;
        clients.insert(origin.to_owned(), client.clone());
        Ok(client)
    }
}

/// Spawned tasks have the shared state, and that has the tasks: this breaks the cycle.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.runs.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

/// Exponential back-off.
pub(crate) struct Pauses {
    next: Duration,
    max: Duration,
}

impl Pauses {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { next: min, max }
    }

    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.next).await;
        self.next = self.next.saturating_mul(2).min(self.max);
    }
}

fn own_url(listener: &TcpListener) -> Result<String, Error> {
    let address = listener.local_addr().map_err(|e| Error::Listen { reason: e.to_string() })?;
    if address.ip().is_unspecified() {
        return Err(Error::NoUrl);
    }
    Ok(format!("http://{address}"))
}

/// The prefix that Legwork puts before `/tasks` in the request line.
fn path_of(url: &str) -> Result<String, Error> {
    let bad = |reason| Error::BadUrl { url: url.chars().take(200).collect(), reason };
    let uri: Uri = url.parse().map_err(|_| bad("write it like http://crm.example:7001/legwork"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(bad("begin it with http:// or https://"));
    }
    if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
        return Err(bad("name a host, and no user"));
    }
    if uri.query().is_some() {
        return Err(bad("leave out everything from the question mark on"));
    }
    Ok(uri.path().trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_cannot_work_are_refused_with_the_reason() {
        assert_eq!(path_of("http://crm.example:7001/legwork").unwrap(), "/legwork");
        assert_eq!(path_of("https://crm.example").unwrap(), "");
        for (url, reason) in [
            ("crm.example", "begin it with"),
            ("ftp://crm.example", "begin it with"),
            ("http://ann:pw@crm.example", "no user"),
            ("http://crm.example/?a=b", "question mark"),
            ("http://crm example", "write it like"),
        ] {
            let refusal = path_of(url).unwrap_err().to_string();
            assert!(refusal.contains(reason), "{url}: {refusal}");
        }
    }
}
