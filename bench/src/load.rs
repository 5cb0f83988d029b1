//! The load generator: clients in a closed loop, each with one connection and one call in flight.
//!
//! Invariant: every loop ends by time and by count, and one failed call fails the measurement.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use legwork_api::Client;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

const CALLS_PER_CLIENT_MAX: usize = 2_000_000;

/// The number of clients, and the durations.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub clients: usize,
    pub warm_up: Duration,
    pub window: Duration,
}

/// Latencies of the calls that ended within the measured time.
#[derive(Debug)]
pub struct Measured {
    pub seconds: f64,
    latencies: Vec<Duration>,
    /// Calls completed in total, including the warm-up.
    pub completed: usize,
}

impl Measured {
    pub(crate) fn new(
        seconds: f64,
        mut latencies: Vec<Duration>,
        completed: usize,
    ) -> Result<Self> {
        ensure!(!latencies.is_empty(), "no call ended within {seconds:.1} s; measure longer");
        latencies.sort_unstable();
        Ok(Self { seconds, latencies, completed })
    }

    pub fn calls(&self) -> usize {
        self.latencies.len()
    }

    pub fn per_second(&self) -> f64 {
        self.calls() as f64 / self.seconds
    }

    /// Nearest rank: the smallest latency that at least `percent` of the calls do not exceed.
    pub fn percentile_ms(&self, percent: usize) -> f64 {
        let rank = (self.calls() * percent).div_ceil(100).max(1);
        self.latencies.get(rank - 1).map_or(0.0, |latency| latency.as_secs_f64() * 1000.0)
    }
}

/// One call, made repeatedly.
#[derive(Clone)]
pub struct Call {
    pub path: &'static str,
    pub body: Bytes,
    /// How long the server may delay the answer.
    pub wait: Duration,
    /// Checks the answer.
    pub check: fn(&[u8]) -> Result<()>,
}

/// Each client makes the call again as soon as it is answered.
pub async fn closed_loop(url: &str, call: Call, scale: Scale) -> Result<Measured> {
    let clients = connected(url, scale.clients).await?;
    let begin = Instant::now() + scale.warm_up;
    let end = begin + scale.window;
    let mut running = JoinSet::new();
    for client in clients {
        let call = call.clone();
        running.spawn(async move {
            let (mut latencies, mut completed) = (Vec::new(), 0);
            while Instant::now() < end && completed < CALLS_PER_CLIENT_MAX {
                let called = Instant::now();
                let answer = client.post_raw(call.path, call.body.clone(), call.wait).await?;
                let answered = Instant::now();
                (call.check)(&answer)?;
                completed += 1;
                if answered >= begin && answered < end {
                    latencies.push(answered - called);
                }
            }
            anyhow::Ok((latencies, completed))
        });
    }
    let (mut latencies, mut completed) = (Vec::new(), 0);
    while let Some(client) = running.join_next().await {
        let (its_latencies, its_completed) = client.context("a client broke down")??;
        latencies.extend(its_latencies);
        completed += its_completed;
    }
    Measured::new(scale.window.as_secs_f64(), latencies, completed)
}

/// Calls to make once each.
pub struct Calls<T> {
    pub count: usize,
    /// Path and body, by the number of the call and of the client that makes it.
    pub request: Box<dyn Fn(usize, usize) -> (String, Bytes) + Send + Sync>,
    /// How long the server may delay an answer.
    pub wait: Duration,
    /// Extracts the result of an answer.
    pub accept: fn(&[u8]) -> Result<T>,
}

/// Makes every call once, by any free client. Results are unordered.
pub async fn drain<T: Send + 'static>(
    url: &str,
    clients: usize,
    calls: Calls<T>,
) -> Result<(Measured, Vec<T>)> {
    let clients = connected(url, clients).await?;
    let (next, calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(calls));
    let begin = Instant::now();
    let mut running = JoinSet::new();
    for (number, client) in clients.into_iter().enumerate() {
        let (next, calls) = (next.clone(), calls.clone());
        running.spawn(async move {
            let mut done = Vec::new();
            loop {
                let call = next.fetch_add(1, Ordering::Relaxed);
                if call >= calls.count {
                    return anyhow::Ok(done);
                }
                let (path, body) = (calls.request)(call, number);
                let called = Instant::now();
                let answer = client.post_raw(&path, body, calls.wait).await?;
                done.push((called.elapsed(), (calls.accept)(&answer)?));
            }
        });
    }
    let mut done = Vec::with_capacity(calls.count);
    while let Some(client) = running.join_next().await {
        done.extend(client.context("a client broke down")??);
    }
    let seconds = begin.elapsed().as_secs_f64();
    let (latencies, kept): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    let completed = latencies.len();
    Ok((Measured::new(seconds, latencies, completed)?, kept))
}

/// Runs a future on its own thread and runtime, so that the load and the worker share only the
/// machine.
pub fn apart<T, F>(
    name: &'static str,
    make: impl FnOnce() -> F + Send + 'static,
) -> Result<Apart<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>>,
{
    let (done, result) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        // There is no receiver if the benchmark is being stopped.
        let _ = done.send(runtime.block_on(make()));
    })?;
    Ok(Apart { name, result })
}

/// A result from another thread.
pub struct Apart<T> {
    name: &'static str,
    result: oneshot::Receiver<Result<T>>,
}

impl<T> Apart<T> {
    pub async fn result(self) -> Result<T> {
        self.result.await.with_context(|| format!("the thread of the {} died", self.name))?
    }
}

/// One connection each; all are open before the first call, so that none is part of a latency.
async fn connected(url: &str, clients: usize) -> Result<Vec<Client>> {
    let mut connected = Vec::with_capacity(clients);
    for _ in 0..clients {
        let client = Client::new(url, None)?;
        client.health().await?;
        connected.push(client);
    }
    Ok(connected)
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
    fn measurement_without_a_call_is_refused() {
        assert!(Measured::new(1.0, Vec::new(), 0).is_err());
    }
}
