//! The load generator: clients in a closed loop, each with one call in flight.
//!
//! Invariant: every loop ends by time and by count, and one failed call fails the measurement.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tokio::task::JoinSet;

use crate::http::Client;

const CALLS_PER_CLIENT_MAX: usize = 2_000_000;

/// Latencies of the cases that ended within the measured time.
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    latencies: Vec<Duration>,
    /// Cases completed in total, including the warm-up.
    pub(crate) completed: usize,
}

impl Measured {
    pub(crate) fn cases(&self) -> usize {
        self.latencies.len()
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.cases() as f64 / self.seconds
    }

    /// Nearest rank: the smallest latency that at least `percent` of the cases do not exceed.
    pub(crate) fn percentile_ms(&self, percent: usize) -> f64 {
        let rank = (self.cases() * percent).div_ceil(100).max(1);
        self.latencies.get(rank - 1).map_or(0.0, |latency| latency.as_secs_f64() * 1000.0)
    }

    pub(crate) fn new(
        seconds: f64,
        mut latencies: Vec<Duration>,
        completed: usize,
    ) -> Result<Self> {
        ensure!(!latencies.is_empty(), "no case ended within {seconds:.1} s; measure longer");
        latencies.sort_unstable();
        Ok(Self { seconds, latencies, completed })
    }
}

/// Each client calls `path` again as soon as the last call is answered.
pub(crate) async fn closed_loop(
    address: SocketAddr,
    path: &'static str,
    clients: usize,
    warm_up: Duration,
    window: Duration,
) -> Result<Measured> {
    let connections = connections(address, clients).await?;
    let begin = Instant::now() + warm_up;
    let end = begin + window;
    let mut running = JoinSet::new();
    for mut client in connections {
        running.spawn(async move {
            let (mut latencies, mut completed) = (Vec::new(), 0);
            while Instant::now() < end && completed < CALLS_PER_CLIENT_MAX {
                let called = Instant::now();
                client.post(path, Bytes::new()).await?;
                let answered = Instant::now();
                completed += 1;
                if answered >= begin && answered < end {
                    latencies.push(answered - called);
                }
            }
            anyhow::Ok((latencies, completed))
        });
    }
    let (latencies, completed) = joined(running).await?;
    Measured::new(window.as_secs_f64(), latencies, completed)
}

/// Makes each of `calls` once, by any free client.
pub(crate) async fn drain(
    address: SocketAddr,
    clients: usize,
    calls: Arc<Vec<(String, Bytes)>>,
) -> Result<Measured> {
    let connections = connections(address, clients).await?;
    let next = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let mut running = JoinSet::new();
    for mut client in connections {
        let (calls, next) = (Arc::clone(&calls), Arc::clone(&next));
        running.spawn(async move {
            let mut latencies = Vec::new();
            while let Some((path, body)) = calls.get(next.fetch_add(1, Ordering::Relaxed)) {
                let called = Instant::now();
                client.post(path, body.clone()).await?;
                latencies.push(called.elapsed());
            }
            let completed = latencies.len();
            anyhow::Ok((latencies, completed))
        });
    }
    let (latencies, completed) = joined(running).await?;
    Measured::new(begin.elapsed().as_secs_f64(), latencies, completed)
}

/// All connections stand before the first call, so that none is part of a latency.
async fn connections(address: SocketAddr, clients: usize) -> Result<Vec<Client>> {
    let mut connections = Vec::with_capacity(clients);
    for _ in 0..clients {
        connections.push(Client::connect(address).await?);
    }
    Ok(connections)
}

async fn joined(
    mut running: JoinSet<Result<(Vec<Duration>, usize)>>,
) -> Result<(Vec<Duration>, usize)> {
    let (mut latencies, mut completed) = (Vec::new(), 0);
    while let Some(client) = running.join_next().await {
        let (its_latencies, its_completed) = client.context("a client broke down")??;
        latencies.extend(its_latencies);
        completed += its_completed;
    }
    Ok((latencies, completed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let latencies = (1..=200).rev().map(Duration::from_millis).collect();
        let measured = Measured::new(2.0, latencies, 250).unwrap();
        assert_eq!(measured.percentile_ms(50), 100.0);
        assert_eq!(measured.percentile_ms(99), 198.0);
        assert_eq!(measured.per_second(), 100.0);
    }

    #[test]
    fn measurement_without_a_case_is_refused() {
        assert!(Measured::new(1.0, Vec::new(), 0).is_err());
    }
}
