//! Accepts connections and serves them.
//!
//! Invariant: when the server stops, requests in progress are finished and no new ones are
//! accepted. Idle connections are closed.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::activity::{Activity, Metered, Use, Watch};
use crate::gate::stopped;
use crate::http::reply::{Content, Refused, Reply};
use crate::http::{App, serve};

/// The pause after an error that is not the caller's, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// The shortest interval of inspections of a connection.
const PERIOD_MIN: Duration = Duration::from_millis(1);

/// How long a rejected caller has to send its request.
const FAREWELL: Duration = Duration::from_secs(1);

/// Accepts until the server stops, then waits for the requests in progress.
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
        // Drops ended connections.
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
    // Answers are small and written at once: Nagle's algorithm only costs.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let activity = Activity::default();
    let io = TokioIo::new(Metered::new(stream, &activity));
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
    let connection = builder.serve_connection(io, service);
    let mut connection = pin!(connection);
    let period = app.limits.head_wait.max(PERIOD_MIN);
    let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watch = Watch::new(period);
    let mut stopped = pin!(stopped(&mut stopping));
    let mut is_stopping = false;
    loop {
        tokio::select! {
            biased;
            // Broken connections concern only the caller.
            _ = connection.as_mut() => return,
            () = &mut stopped, if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            _ = ticks.tick() => match watch.look(&activity) {
                Use::Busy => {}
                Use::Idle => connection.as_mut().graceful_shutdown(),
                // There is no complete request to answer.
                Use::Stalled => return,
            },
        }
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
