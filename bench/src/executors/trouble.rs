//! Faults of executors: one is killed and restarted, one is paused, one fails at one type.
//!
//! Invariant: in the end all run again: an accepted result is acknowledged only by its executor.

use std::time::Duration;

use anyhow::Result;
use legwork_testbed::Service;

/// One of the two fastest.
const KILLED: usize = 0;
/// One of the two of medium speed.
const STOPPED: usize = 1;
/// The other of the fastest, and the type it fails at.
pub(super) const FAILING: usize = 3;
pub(super) const FAILING_AT: &str = "three";

/// The moments of the faults, as parts of the bound.
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
