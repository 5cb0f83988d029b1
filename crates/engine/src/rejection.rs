//! Why a command was refused, and what to do instead.
//!
//! A refused command changed nothing. `code` is part of the public contract: callers branch on it.

use legwork_model::id::{AgentId, Iteration};
use legwork_model::value::{Mismatch, ValueType};

use crate::state::{Lifecycle, NodeState};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("there is no such activity; list the open ones and pick one of them")]
    NoSuchActivity,
    #[error("`{step}` {}", not_open(*.state))]
    NotOpen { step: String, state: NodeState },
    #[error(
        "this iteration of `{step}` is over, its loop has gone on to {current}; \
         act on `{step}:{current}`"
    )]
    IterationOver { step: String, current: Iteration },
    /// The same request was carried out before: the caller gives the same answer as then.
    #[error("this request was carried out before; nothing is left to do")]
    AlreadyDone,
    #[error("this idempotency key was used for another request; use a fresh one")]
    KeyReused,
    #[error("held by {holder}; ask them to release or delegate it")]
    HeldBy { holder: AgentId },
    #[error("nobody holds `{step}`; there is nothing to release")]
    NotHeld { step: String },
    #[error("`{step}` is a job for a worker, not a work item; activate it by its job type")]
    NotAWorkItem { step: String },
    #[error("`{step}` is for a person, not for a worker; release it, or raise it with its owner")]
    NotAJob { step: String },
    #[error("the result of `{step}` was taken already; it waits for its executor to confirm it")]
    Answered { step: String },
    #[error("no result of `{step}` waits to be confirmed; report one first")]
    NotAnswered { step: String },
    #[error("`{step}` is for a person; say which agent did it")]
    AgentMissing { step: String },

    #[error("there is no data element `{element}`; `{step}` writes {}", list(.writes))]
    UnknownElement { element: String, step: String, writes: Vec<String> },
    #[error("`{step}` does not write `{element}`; it writes {}", list(.writes))]
    NotWritten { element: String, step: String, writes: Vec<String> },
    #[error("`{element}` is given twice; give it once")]
    GivenTwice { element: String },
    #[error("`{element}` must be of type {kind}: {mismatch}{}", mended(.mismatch))]
    WrongType { element: String, kind: ValueType, mismatch: Mismatch },
    #[error("`{step}` must write `{element}`; give its value")]
    MissingOutput { element: String, step: String },
    #[error("starting needs `{element}`; give its value")]
    MissingInput { element: String },

    #[error("`{step}` is a decision; answer with one of {}", list(.answers))]
    AnswerMissing { step: String, answers: Vec<String> },
    #[error("that is no answer to `{step}`; answer with one of {}", list(.answers))]
    AnswerUnknown { step: String, answers: Vec<String> },
    #[error("`{step}` is not a decision; leave the answer out")]
    AnswerUnexpected { step: String },

    #[error("`{step}` has no incident; there is nothing to resolve")]
    NoIncident { step: String },
    #[error("the incident of `{step}` cannot be resolved that way; {fits}")]
    ResolutionUnfit { step: String, fits: &'static str },

    #[error("the instance is suspended; resume it first")]
    Suspended,
    #[error("the instance is not suspended; it goes on by itself, nothing is left to do")]
    NotSuspended,
    #[error("the instance was {}; start another one if more is to be done", ended(*.lifecycle))]
    Ended { lifecycle: Lifecycle },
    #[error("`{step}` is controlled by another server; ask there")]
    Elsewhere { step: String },
    #[error("the instance was started at another server, which gives it its orders; ask there")]
    StartedElsewhere,
    #[error("a part of the history is missing: number {expected} has to come first; send it again")]
    OutOfOrder { expected: u32 },
    #[error("the history does not begin with the start of the instance; send it from there on")]
    NoBeginning,
    #[error(
        "version {version} of `{process}` is another definition than the one given; \
         give the one that the instance was started with"
    )]
    WrongDefinition { process: String, version: u32 },
}

impl Rejection {
    /// The stable name of the reason, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSuchActivity => "no_such_activity",
            Self::NotOpen { .. } => "not_open",
            Self::IterationOver { .. } => "iteration_over",
            Self::AlreadyDone => "already_done",
            Self::KeyReused => "idempotency_key_reused",
            Self::HeldBy { .. } => "held_by",
            Self::NotHeld { .. } => "not_held",
            Self::NotAWorkItem { .. } => "not_a_work_item",
            Self::NotAJob { .. } => "not_a_job",
            Self::Answered { .. } => "answered_already",
            Self::NotAnswered { .. } => "not_answered",
            Self::AgentMissing { .. } => "agent_missing",
            Self::UnknownElement { .. } => "unknown_element",
            Self::NotWritten { .. } => "not_written",
            Self::GivenTwice { .. } => "given_twice",
            Self::WrongType { mismatch: Mismatch::Type { .. }, .. } => "wrong_type",
            Self::WrongType { mismatch: Mismatch::TooLarge { .. }, .. } => "value_too_large",
            Self::WrongType { mismatch: Mismatch::TooDeep, .. } => "value_too_deep",
            Self::MissingOutput { .. } => "missing_output",
            Self::MissingInput { .. } => "missing_input",
            Self::AnswerMissing { .. } => "answer_missing",
            Self::AnswerUnknown { .. } => "answer_unknown",
            Self::AnswerUnexpected { .. } => "answer_unexpected",
            Self::NoIncident { .. } => "no_incident",
            Self::ResolutionUnfit { .. } => "resolution_unfit",
            Self::Suspended => "instance_suspended",
            Self::NotSuspended => "not_suspended",
            Self::Ended { .. } => "instance_ended",
            Self::Elsewhere { .. } => "elsewhere",
            Self::StartedElsewhere => "started_elsewhere",
            Self::OutOfOrder { .. } => "out_of_order",
            Self::NoBeginning => "no_beginning",
            Self::WrongDefinition { .. } => "wrong_definition",
        }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "nothing".to_owned();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The hint about a value, if its mismatch does not give one.
fn mended(mismatch: &Mismatch) -> &'static str {
    match mismatch {
        Mismatch::Type { .. } => "; give such a value",
        Mismatch::TooDeep => "; flatten it, or upload it as a file",
        Mismatch::TooLarge { .. } => "",
    }
}

fn not_open(state: NodeState) -> &'static str {
    match state {
        NodeState::NotActivated => "is not due yet; wait for the steps before it",
        NodeState::Activated | NodeState::Selected => {
            "is open, but not for this; look at its state and do what it waits for"
        }
        NodeState::Completed => "is done already; nothing is left to do",
        NodeState::Skipped => "was skipped, as the case took another way; work on what is open",
        NodeState::Failed => "has an incident; resolve it first",
    }
}

fn ended(lifecycle: Lifecycle) -> &'static str {
    match lifecycle {
        Lifecycle::Completed => "completed",
        Lifecycle::Aborted => "aborted",
        Lifecycle::Running | Lifecycle::Suspended => "left",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each; a new kind of rejection does not compile until it is listed.
    fn all() -> Vec<Rejection> {
        let step = || "pay".to_owned();
        let element = || "sum".to_owned();
        let names = || vec!["a".to_owned(), "b".to_owned()];
        let wrong =
            |mismatch| Rejection::WrongType { element: element(), kind: ValueType::Bool, mismatch };
        let mut all = vec![
            Rejection::NoSuchActivity,
            Rejection::IterationOver { step: step(), current: Iteration::default() },
            Rejection::AlreadyDone,
            Rejection::KeyReused,
            Rejection::HeldBy { holder: "ann".into() },
            Rejection::NotHeld { step: step() },
            Rejection::NotAWorkItem { step: step() },
            Rejection::NotAJob { step: step() },
            Rejection::Answered { step: step() },
            Rejection::NotAnswered { step: step() },
            Rejection::AgentMissing { step: step() },
            Rejection::UnknownElement { element: element(), step: step(), writes: names() },
            Rejection::NotWritten { element: element(), step: step(), writes: Vec::new() },
            Rejection::GivenTwice { element: element() },
            wrong(Mismatch::Type { expected: "true or false", found: "1".to_owned() }),
            wrong(Mismatch::TooLarge { bytes: 9 }),
            wrong(Mismatch::TooDeep),
            Rejection::MissingOutput { element: element(), step: step() },
            Rejection::MissingInput { element: element() },
            Rejection::AnswerMissing { step: step(), answers: names() },
            Rejection::AnswerUnknown { step: step(), answers: names() },
            Rejection::AnswerUnexpected { step: step() },
            Rejection::NoIncident { step: step() },
            Rejection::ResolutionUnfit { step: step(), fits: "retry it" },
            Rejection::Suspended,
            Rejection::NotSuspended,
            Rejection::Ended { lifecycle: Lifecycle::Completed },
            Rejection::Ended { lifecycle: Lifecycle::Aborted },
            Rejection::Elsewhere { step: step() },
            Rejection::StartedElsewhere,
            Rejection::OutOfOrder { expected: 2 },
            Rejection::NoBeginning,
            Rejection::WrongDefinition { process: "p".to_owned(), version: 1 },
        ];
        let states = [
            NodeState::NotActivated,
            NodeState::Activated,
            NodeState::Selected,
            NodeState::Completed,
            NodeState::Skipped,
            NodeState::Failed,
        ];
        all.extend(states.map(|state| Rejection::NotOpen { step: step(), state }));
        all
    }

    /// Makes the compiler check that `all` is complete.
    fn is_listed(rejection: &Rejection) {
        match rejection {
            Rejection::NoSuchActivity
            | Rejection::NotOpen { .. }
            | Rejection::IterationOver { .. }
            | Rejection::AlreadyDone
            | Rejection::KeyReused
            | Rejection::HeldBy { .. }
            | Rejection::NotHeld { .. }
            | Rejection::NotAWorkItem { .. }
            | Rejection::NotAJob { .. }
            | Rejection::Answered { .. }
            | Rejection::NotAnswered { .. }
            | Rejection::AgentMissing { .. }
            | Rejection::UnknownElement { .. }
            | Rejection::NotWritten { .. }
            | Rejection::GivenTwice { .. }
            | Rejection::WrongType { .. }
            | Rejection::MissingOutput { .. }
            | Rejection::MissingInput { .. }
            | Rejection::AnswerMissing { .. }
            | Rejection::AnswerUnknown { .. }
            | Rejection::AnswerUnexpected { .. }
            | Rejection::NoIncident { .. }
            | Rejection::ResolutionUnfit { .. }
            | Rejection::Suspended
            | Rejection::NotSuspended
            | Rejection::Ended { .. }
            | Rejection::Elsewhere { .. }
            | Rejection::StartedElsewhere
            | Rejection::OutOfOrder { .. }
            | Rejection::NoBeginning
            | Rejection::WrongDefinition { .. } => {}
        }
    }

    #[test]
    fn every_rejection_says_what_to_do_next() {
        for rejection in all() {
            is_listed(&rejection);
            let text = rejection.to_string();
            let next = text.split_once("; ").map(|(_, next)| next);
            assert!(next.is_some_and(|next| next.contains(' ')), "{text}");
        }
    }
}
