//! Accepting connections and serving them.
//!
//! Invariant: when the server stops, requests under way are finished and nothing new is taken.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::gate::stopped;
use crate::http::reply::{Content, Refused, Reply};
use crate::http::{App, serve};

/// A connection without a request for this long (twice at most) is closed.
const IDLE: Duration = Duration::from_secs(90);
/// What to wait after an error that is not the caller's, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// How long whoever is turned away has to say what it wanted.
const FAREWELL: Duration = Duration::from_secs(1);

/// Accepts until the server stops, then waits for the requests under way.
pub(crate) async fn accept(
    listener: TcpListener,
    app: Arc<App>,
    mut stopping: watch::Receiver<bool>,
    grace: Duration,
) {
    let places = Arc::new(Semaphore::new(app.limits.connections_max));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => break,
        };
        // Those that have ended are forgotten.
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, peer)) => match places.clone().try_acquire_owned() {
                Ok(place) => {
                    let (app, stopping) = (app.clone(), stopping.clone());
                    connections.spawn(async move {
                        connection(stream, peer, app, stopping).await;
                        drop(place);
                    });
                }
                Err(_) => {
                    connections.spawn(turn_away(stream));
                }
            },
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, finished).await.is_err() {
        tracing::warn!(left = connections.len(), "connections are cut off");
        connections.shutdown().await;
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    app: Arc<App>,
    mut stopping: watch::Receiver<bool>,
) {
    // Answers are small and written whole: waiting to fill a packet only costs.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let activity = Activity::default();
    let service = service_fn(|request: Request<Incoming>| {
        let (app, activity) = (&app, &activity);
        async move {
            let _under_way = activity.begin();
            Ok::<Response<Content>, Infallible>(serve(app, peer.ip(), request).await)
        }
    });
    let mut builder = http1::Builder::new();
    // Head and body are copied together and written once: cheaper than two vectors when small.
    builder.writev(false);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut ticks = tokio::time::interval(IDLE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stopped = pin!(stopped(&mut stopping));
    let mut is_stopping = false;
    loop {
        tokio::select! {
            biased;
            // Broken connections are the caller's business.
            _ = connection.as_mut() => return,
            () = &mut stopped, if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            _ = ticks.tick() => {
                if activity.is_idle() {
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Whether a connection is in use. Cheaper than a timer that is set anew at every request.
#[derive(Default)]
struct Activity {
    begun: AtomicU64,
    under_way: AtomicU64,
    /// `begun` as it was at the last tick.
    seen: AtomicU64,
    ticks: AtomicU64,
}

struct UnderWay<'a>(&'a AtomicU64);

impl Activity {
    fn begin(&self) -> UnderWay<'_> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(&self.under_way)
    }

    /// Asked once per tick: nothing has happened since the last one. The first tick comes at once.
    fn is_idle(&self) -> bool {
        let begun = self.begun.load(Ordering::Relaxed);
        let quiet = self.seen.swap(begun, Ordering::Relaxed) == begun;
        self.ticks.fetch_add(1, Ordering::Relaxed) > 0
            && quiet
            && self.under_way.load(Ordering::Relaxed) == 0
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers one request with a problem and closes.
async fn turn_away(stream: TcpStream) {
    let service = service_fn(|_: Request<Incoming>| async {
        let detail = "all connections are taken; close some, or try again later".to_owned();
        let refused = Refused::unavailable("too_many_connections", detail);
        Ok::<Response<Content>, Infallible>(Reply::from(refused).into_response())
    });
    let mut builder = http1::Builder::new();
    let connection = builder.keep_alive(false).serve_connection(TokioIo::new(stream), service);
    let _ = tokio::time::timeout(FAREWELL, connection).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_when_nothing_happened_between_two_ticks() {
        let activity = Activity::default();
        assert!(!activity.is_idle(), "the first tick comes at once");
        drop(activity.begin());
        assert!(!activity.is_idle());
        let under_way = activity.begin();
        assert!(!activity.is_idle());
        assert!(!activity.is_idle(), "a long poll is no idling");
        drop(under_way);
        assert!(activity.is_idle());
    }
}
