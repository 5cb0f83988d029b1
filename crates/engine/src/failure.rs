//! Failed attempts, as they are shown with an incident.
//!
//! Invariant: the history has all of them; the latest since the last incident are kept here, cut
//! short, so that an incident shows its cause at once.

use legwork_model::event::Performer;
use legwork_model::time::Timestamp;
use minicbor::{Decode, Encode};

/// The most failures that are kept.
const FAILURES_MAX: usize = 10;
const ERROR_BYTES_MAX: usize = 500;

/// A failed attempt at a job.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Failure {
    #[n(0)]
    pub at: Timestamp,
    /// The performer.
    #[n(1)]
    pub by: Performer,
    #[n(2)]
    pub error: String,
}

/// Adds a failure.
pub(crate) fn add(failures: &mut Vec<Failure>, at: Timestamp, by: &Performer, error: &str) {
    if failures.len() >= FAILURES_MAX {
        failures.remove(0);
    }
    let error = error[..error.floor_char_boundary(ERROR_BYTES_MAX)].to_owned();
    failures.push(Failure { at, by: by.clone(), error });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_and_cut_short() {
        let (mut failures, by) = (Vec::new(), Performer::Worker("crm".into()));
        for at in 0..25 {
            add(&mut failures, Timestamp(at), &by, &"ü".repeat(400));
        }
        assert_eq!(failures.len(), FAILURES_MAX);
        assert_eq!((failures[0].at, failures[9].at), (Timestamp(15), Timestamp(24)));
        assert_eq!(failures[9].error, "ü".repeat(250));
    }
}
