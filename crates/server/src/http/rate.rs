//! How often one caller may ask.
//!
//! Invariant: a caller is a token that exists, or else an address: a made-up token gives nobody a
//! new allowance. The table of callers is bounded; who has used up something of an allowance stays
//! in it, and those who find no place share one.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use hyper::StatusCode;
use legwork_model::time::Timestamp;
use rustc_hash::FxHashMap;

use super::reply::{Refused, Result};

/// Addresses in the table; the tokens that exist have a limit of their own.
const CALLERS_MAX: usize = 100_000;
/// Looking for those who can be forgotten takes a while: not at every request.
const SWEEP_EVERY_MILLIS: u64 = 1_000;

#[derive(Debug)]
pub(crate) struct Rates {
    /// Requests a second; 0 does not limit.
    per_s: u32,
    burst: u32,
    callers: Mutex<Callers>,
}

#[derive(Debug, Default)]
struct Callers {
    buckets: FxHashMap<Caller, Bucket>,
    swept_at_millis: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Caller {
    Token([u8; 32]),
    Address(IpAddr),
    /// All those for whom there was no place.
    Crowd,
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

    /// `token` is the hash of a token that exists.
    pub(crate) fn check(
        &self,
        token: Option<[u8; 32]>,
        peer: IpAddr,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<()> {
        if self.per_s == 0 {
            return Ok(());
        }
        let millis = now().0.unsigned_abs();
        let caller = token.map_or_else(|| Caller::Address(network(peer)), Caller::Token);
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
        let is_idle = |bucket: &Bucket| bucket.filled(full, per_milli, millis).level == full;
        let caller = callers.place(caller, millis, is_idle);
        let new = Bucket { level: full, at_millis: millis };
        let bucket = callers.buckets.entry(caller).or_insert(new);
        *bucket = bucket.filled(full, per_milli, millis);
        if bucket.level < 1_000 {
            return Some((1_000 - bucket.level).div_ceil(per_milli));
        }
        bucket.level -= 1_000;
        None
    }
}

impl Callers {
    /// Under which name to count the caller. Nobody has to make place who is not idle.
    fn place(&mut self, caller: Caller, millis: u64, is_idle: impl Fn(&Bucket) -> bool) -> Caller {
        if self.buckets.len() < CALLERS_MAX || self.buckets.contains_key(&caller) {
            return caller;
        }
        if self.swept_at_millis.is_none_or(|swept| millis >= swept + SWEEP_EVERY_MILLIS) {
            self.swept_at_millis = Some(millis);
            self.buckets.retain(|_, bucket| !is_idle(bucket));
        }
        match caller {
            Caller::Address(_) if self.buckets.len() >= CALLERS_MAX => Caller::Crowd,
            Caller::Address(_) | Caller::Token(_) | Caller::Crowd => caller,
        }
    }
}

impl Bucket {
    fn filled(self, full: u64, per_milli: u64, millis: u64) -> Self {
        let elapsed = millis.saturating_sub(self.at_millis);
        let level = self.level.saturating_add(elapsed.saturating_mul(per_milli)).min(full);
        Self { level, at_millis: millis }
    }
}

/// One machine has as many IPv6 addresses as it likes, but usually one network.
fn network(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => IpAddr::V4(address),
            None => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(rates: &Rates, peer: &str, millis: i64) -> bool {
        rates.check(None, peer.parse().unwrap(), || Timestamp(millis)).is_ok()
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
        let refused = rates.check(None, peer, || Timestamp(1)).unwrap_err();
        assert_eq!(refused.code(), "rate_limited");
        assert!(format!("{refused:?}").contains("retry-after"), "{refused:?}");
    }

    #[test]
    fn all_addresses_of_one_network_are_one_caller() {
        let rates = Rates::new(1, 1);
        assert!(pass(&rates, "2001:db8:1:1::1", 0));
        assert!(!pass(&rates, "2001:db8:1:1::2", 0));
        assert!(pass(&rates, "2001:db8:1:2::1", 0));
        assert!(pass(&rates, "10.0.0.1", 0));
        assert!(!pass(&rates, "::ffff:10.0.0.1", 0));
    }

    #[test]
    fn the_table_of_callers_is_bounded_and_keeps_those_who_are_busy() {
        let rates = Rates::new(1, 1);
        let token = Caller::Token([1; 32]);
        assert_eq!(rates.take(token, 0), None);
        let address = |n: u32| Caller::Address(IpAddr::V4(n.into()));
        for n in 0..CALLERS_MAX as u32 - 1 {
            assert_eq!(rates.take(address(n), 0), None);
        }
        assert_eq!(rates.take(Caller::Address([11, 0, 0, 1].into()), 0), None);
        assert!(rates.take(Caller::Address([11, 0, 0, 2].into()), 0).is_some(), "they share one");
        for caller in [token, address(0), address(CALLERS_MAX as u32 - 2)] {
            assert!(rates.take(caller, 0).is_some(), "{caller:?} is forgotten");
        }
        assert_eq!(rates.take(Caller::Token([2; 32]), 0), None, "a token has its own");
        assert!(rates.callers.lock().unwrap().buckets.len() <= CALLERS_MAX + 2);
        assert_eq!(rates.take(Caller::Address([11, 0, 0, 2].into()), 1_000), None);
        assert!(rates.callers.lock().unwrap().buckets.len() <= 2, "the idle make place");
    }
}
