//! When to probe an executor whose circuit is open.
//!
//! Invariant: there is always a next probe, and the interval between probes is bounded by `CAP` times
//! the shortest interval.

use legwork_model::time::Timestamp;

/// The longest probe interval as a multiple of the shortest.
const CAP: f64 = 64.0;

/// Since when the circuit is open, and when the executor was probed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenCircuit {
    pub(crate) since: Timestamp,
    pub(crate) probed_at: Timestamp,
}

impl OpenCircuit {
    /// Whether a probe is due. Intervals double, so each probe is twice as far from the opening as the
    /// probe before.
    pub(crate) fn is_due(self, least_ms: f64, now: Timestamp) -> bool {
        let apart = |from: Timestamp, to: Timestamp| to.0.saturating_sub(from.0) as f64;
        let least_ms = least_ms.max(1.0);
        let interval = apart(self.since, self.probed_at).clamp(least_ms, CAP * least_ms);
        apart(self.probed_at, now) >= interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_double_up_to_a_limit() {
        let mut open_circuit = OpenCircuit { since: Timestamp(0), probed_at: Timestamp(0) };
        let mut times = Vec::new();
        for now in 0..2_000 {
            if open_circuit.is_due(10.0, Timestamp(now)) {
                times.push(now);
                open_circuit.probed_at = Timestamp(now);
            }
        }
        assert_eq!(times, [10, 20, 40, 80, 160, 320, 640, 1_280, 1_920]);
    }
}
