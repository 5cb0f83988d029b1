//! What happens to the executors while they work: one is killed and comes back, one is stopped for a while,
//! one cannot do one type.
//!
//! Invariant: when it is over, all run again: a result that counted is confirmed by nobody but its
//! executor.

use std::time::Duration;

use anyhow::Result;
use legwork_testbed::Service;

/// One of the two fastest.
const KILLED: usize = 0;
/// One of the two of medium speed.
const STOPPED: usize = 1;
/// The other one of the fastest, and what it fails at.
pub(super) const FAILING: usize = 3;
pub(super) const FAILING_AT: &str = "three";

/// When things happen, in parts of the least time that all work takes.
const KILL_AT: f64 = 0.25;
const STOP_AT: f64 = 0.3;
const BACK_AT: f64 = 0.5;
const GO_ON_AT: f64 = 0.8;

pub(super) async fn make(services: &mut [Service], least: Duration) -> Result<()> {
    let begun = tokio::time::Instant::now();
    let at = |part: f64| tokio::time::sleep_until(begun + least.mul_f64(part));
    at(KILL_AT).await;
    services[KILLED].kill()?;
    at(STOP_AT).await;
    services[STOPPED].signal("STOP")?;
    at(BACK_AT).await;
    services[KILLED].run()?;
    at(GO_ON_AT).await;
    services[STOPPED].signal("CONT")
}
