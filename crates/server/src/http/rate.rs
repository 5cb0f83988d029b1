//! How often one caller may ask.
//!
//! Invariant: a caller is a token, or without one an address. The table of callers is bounded;
//! those who have been quiet for long enough are forgotten first.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use hyper::StatusCode;
use legwork_model::time::Timestamp;
use legwork_site::Credential;
use rustc_hash::FxHashMap;

use super::reply::{Refused, Result};

const CALLERS_MAX: usize = 100_000;

#[derive(Debug)]
pub(crate) struct Rates {
    /// Requests a second; 0 does not limit.
    per_s: u32,
    burst: u32,
    callers: Mutex<FxHashMap<Caller, Bucket>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Caller {
    Token([u8; 32]),
    Address(IpAddr),
}

/// Fills at the given rate up to the burst; each request takes one. In thousandths.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    level: u64,
    at_millis: u64,
}

impl Rates {
    pub(crate) fn new(per_s: u32, burst: u32) -> Self {
        let burst = if burst == 0 { per_s.saturating_mul(2) } else { burst };
        Self { per_s, burst: burst.max(1), callers: Mutex::default() }
    }

    pub(crate) fn check(
        &self,
        credential: &Credential,
        peer: IpAddr,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<()> {
        if self.per_s == 0 {
            return Ok(());
        }
        let millis = now().0.unsigned_abs();
        let caller = match credential {
            Credential::Token(hash) => Caller::Token(*hash),
            Credential::None => Caller::Address(peer),
        };
        match self.take(caller, millis) {
            None => Ok(()),
            Some(wait_millis) => {
                let seconds = u32::try_from(wait_millis.div_ceil(1_000)).unwrap_or(u32::MAX);
                let detail = format!(
                    "more than {} requests a second; wait {seconds} s and ask less often, \
                     or more at once",
                    self.per_s
                );
                Err(Refused::later(StatusCode::TOO_MANY_REQUESTS, "rate_limited", seconds, detail))
            }
        }
    }

    /// `None` if the request may pass, else how long to wait.
    fn take(&self, caller: Caller, millis: u64) -> Option<u64> {
        let full = u64::from(self.burst) * 1_000;
        let per_milli = u64::from(self.per_s);
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= CALLERS_MAX && !callers.contains_key(&caller) {
            callers.retain(|_, bucket| bucket.filled(full, per_milli, millis).level < full);
            if callers.len() >= CALLERS_MAX {
                callers.clear();
            }
        }
        let bucket = callers.entry(caller).or_insert(Bucket { level: full, at_millis: millis });
        *bucket = bucket.filled(full, per_milli, millis);
        if bucket.level < 1_000 {
            return Some((1_000 - bucket.level).div_ceil(per_milli));
        }
        bucket.level -= 1_000;
        None
    }
}

impl Bucket {
    fn filled(self, full: u64, per_milli: u64, millis: u64) -> Self {
        let elapsed = millis.saturating_sub(self.at_millis);
        let level = self.level.saturating_add(elapsed.saturating_mul(per_milli)).min(full);
        Self { level, at_millis: millis }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(rates: &Rates, peer: &str, millis: i64) -> bool {
        rates.check(&Credential::None, peer.parse().unwrap(), || Timestamp(millis)).is_ok()
    }

    #[test]
    fn a_caller_may_burst_and_then_keeps_to_the_rate() {
        let rates = Rates::new(10, 3);
        let passed: Vec<bool> =
            [0, 0, 0, 0, 50, 100, 100, 200].map(|millis| pass(&rates, "10.0.0.1", millis)).into();
        assert_eq!(passed, [true, true, true, false, false, true, false, true]);
        assert!(pass(&rates, "10.0.0.2", 0), "others are not held back");
    }

    #[test]
    fn the_refusal_says_when_to_come_back() {
        let rates = Rates::new(1, 1);
        assert!(pass(&rates, "10.0.0.1", 0));
        let peer = "10.0.0.1".parse().unwrap();
        let refused = rates.check(&Credential::None, peer, || Timestamp(1)).unwrap_err();
        assert_eq!(refused.code(), "rate_limited");
        assert!(format!("{refused:?}").contains("retry-after"), "{refused:?}");
    }

    #[test]
    fn the_table_of_callers_is_bounded() {
        let rates = Rates::new(1, 1);
        for n in 0..CALLERS_MAX as u32 + 10 {
            rates.take(Caller::Address(IpAddr::V4(n.into())), 0);
        }
        assert!(rates.callers.lock().unwrap().len() <= CALLERS_MAX);
    }
}
