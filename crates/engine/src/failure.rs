//! Attempts that went wrong, as they are told with an incident.
//!
//! Invariant: the history has them all; of those since the last incident the latest are kept here, cut
//! short, so that whoever looks at an incident sees its story at once.

use legwork_model::event::Performer;
use legwork_model::time::Timestamp;
use minicbor::{Decode, Encode};

/// So many are kept.
const FAILURES_MAX: usize = 10;
const ERROR_BYTES_MAX: usize = 500;

/// An attempt at a job that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Failure {
    #[n(0)]
    pub at: Timestamp,
    /// Who made it.
    #[n(1)]
    pub by: Performer,
    #[n(2)]
    pub error: String,
}

/// One more went wrong.
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
