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
    /// The very same request was carried out before: the caller answers as it did then.
    #[error("this request was carried out before; nothing is left to do")]
    AlreadyDone,
    #[error("this idempotency key was used for another request; use a fresh one")]
    KeyReused,
    #[error("held by {holder}; ask them to release or delegate it")]
    HeldBy { holder: AgentId },
    #[error("nobody holds `{step}`; claim it first")]
    NotHeld { step: String },
    #[error("`{step}` is a job for a worker, not a work item; activate it by its job type")]
    NotAWorkItem { step: String },
    #[error("`{step}` is for a person, not for a worker; release it, or raise it with its owner")]
    NotAJob { step: String },
    #[error("`{step}` is for a person; say which agent did it")]
    AgentMissing { step: String },

    #[error("there is no data element `{element}`; `{step}` writes {}", list(.writes))]
    UnknownElement { element: String, step: String, writes: Vec<String> },
    #[error("`{step}` does not write `{element}`; it writes {}", list(.writes))]
    NotWritten { element: String, step: String, writes: Vec<String> },
    #[error("`{element}` is given twice; give it once")]
    GivenTwice { element: String },
    #[error("`{element}` must be of type {kind}: {mismatch}")]
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
    #[error("the instance is not suspended")]
    NotSuspended,
    #[error("the instance has ended: it was {}", ended(*.lifecycle))]
    Ended { lifecycle: Lifecycle },
    #[error("version {version} of `{process}` is another definition than the one given")]
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

fn not_open(state: NodeState) -> &'static str {
    match state {
        NodeState::NotActivated => "is not due yet; wait for the steps before it",
        NodeState::Activated | NodeState::Selected => "is open, but not for this",
        NodeState::Completed => "is done already; nothing is left to do",
        NodeState::Skipped => "was skipped: the case took another way",
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
