//! Why a task was assigned where it was, in words and figures.

use std::fmt;

use legwork_model::time::Timestamp;

use crate::{Book, Candidate, Policy, Task};

/// What was known of an executor when it was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// The policy that chose, by name.
    pub policy: Box<str>,
    /// The number of candidates.
    pub candidates: usize,
    pub why: Why,
    /// The known backlog, in milliseconds.
    pub backlog_ms: f64,
    /// The transfer time of the inputs.
    pub cost_ms: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// The expected work is known.
    Expected { work_ms: f64 },
    /// Nothing is known of its pace at the type.
    Unknown,
    /// Its circuit was open: the task is a probe.
    Probed,
}

impl Reason {
    /// Called before the assignment is recorded in the book.
    pub fn of(
        book: &Book,
        (name, policy): (&str, &dyn Policy),
        (task, to): (&Task, Candidate),
        candidates: usize,
        now: Timestamp,
    ) -> Self {
        let chosen = to.executor;
        let one = book.executor(chosen);
        let work_ms = one.and_then(|one| one.pace(task.kind)).map(|pace| pace * task.size);
        let why = match work_ms {
            _ if policy.is_circuit_open(book, chosen, task.kind, now) => Why::Probed,
            Some(work_ms) => Why::Expected { work_ms },
            None => Why::Unknown,
        };
        let backlog_ms = book.backlog_ms(chosen, now);
        Self { policy: name.into(), candidates, why, backlog_ms, cost_ms: to.cost_ms }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.policy)?;
        match self.why {
            Why::Expected { work_ms } => write!(f, "takes {work_ms:.1} ms")?,
            Why::Unknown => f.write_str("not known yet")?,
            Why::Probed => f.write_str("tried whether it is back")?,
        }
        if self.cost_ms > 0.0 {
            write!(f, " and {:.1} ms to get there", self.cost_ms)?;
        }
        write!(f, ", has {:.1} ms to do, one of {}", self.backlog_ms, self.candidates)
    }
}
