//! The load: clients in a closed loop, each with one case under way.
//!
//! Invariant: every loop ends by time and by count, and one failed case fails the measurement.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dbos::{DBOS, WorkflowRef};
use tokio::task::JoinSet;

pub(crate) const STEPS_PER_CASE: usize = 10;
const CASES_PER_CLIENT_MAX: usize = 2_000_000;

/// Ten steps that do nothing, one after the other, each made durable before the next.
pub(crate) type Sequence = WorkflowRef<(), ()>;

/// Latencies of the cases that ended within the measured time, shortest first.
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    latencies: Vec<Duration>,
}

pub(crate) fn register(dbos: &DBOS) -> Result<Sequence> {
    let sequence = dbos.register_workflow("sequence", |()| async {
        for _ in 0..STEPS_PER_CASE {
            dbos::step("step", || async { dbos::Result::Ok(()) }).await?;
        }
        dbos::Result::Ok(())
    })?;
    Ok(sequence)
}

/// Each client runs the next case as soon as the last one has ended.
pub(crate) async fn closed_loop(
    sequence: &Sequence,
    clients: usize,
    warm_up: Duration,
    window: Duration,
) -> Result<Measured> {
    let begin = Instant::now() + warm_up;
    let end = begin + window;
    let mut running = JoinSet::new();
    for _ in 0..clients {
        let sequence = sequence.clone();
        running.spawn(async move {
            let mut latencies = Vec::new();
            for _ in 0..CASES_PER_CLIENT_MAX {
                let called = Instant::now();
                if called >= end {
                    break;
                }
                sequence.run(()).await?;
                let answered = Instant::now();
                if answered >= begin && answered < end {
                    latencies.push(answered - called);
                }
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(client) = running.join_next().await {
        latencies.extend(client.context("a client broke down")??);
    }
    ensure!(!latencies.is_empty(), "no case ended within {window:?}; measure longer");
    latencies.sort_unstable();
    Ok(Measured { seconds: window.as_secs_f64(), latencies })
}

impl Measured {
    pub(crate) fn cases(&self) -> usize {
        self.latencies.len()
    }

    pub(crate) fn steps_per_s(&self) -> f64 {
        (self.cases() * STEPS_PER_CASE) as f64 / self.seconds
    }

    /// Nearest rank: the smallest latency that at least `percent` of the cases do not exceed.
    pub(crate) fn percentile_ms(&self, percent: usize) -> f64 {
        let rank = (self.cases() * percent).div_ceil(100).max(1);
        self.latencies.get(rank - 1).map_or(0.0, |latency| latency.as_secs_f64() * 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let latencies = (1..=200).map(Duration::from_millis).collect();
        let measured = Measured { seconds: 2.0, latencies };
        assert_eq!(measured.percentile_ms(50), 100.0);
        assert_eq!(measured.percentile_ms(99), 198.0);
        assert_eq!(measured.steps_per_s(), 1_000.0);
    }
}
