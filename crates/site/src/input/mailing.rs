//! What is said to a site by whoever sends letters.

use legwork_mail::Kind;
use legwork_model::id::AgentId;
use legwork_model::time::Timestamp;

/// What whoever sends letters wants.
#[derive(Debug)]
pub enum Mailing {
    /// The letter that is due next.
    Next,
    /// It has left, or nobody will ever take it.
    Told(Notice),
    /// It was not taken: nothing to this agent before this moment.
    PutOff { agent: AgentId, until: Timestamp },
    /// Where somebody can be written to.
    Address { agent: AgentId },
    /// Who has an address.
    Whose { address: String },
}

/// What somebody is told with one letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub agent: AgentId,
    pub about: Vec<(legwork_mail::Subject, Kind)>,
}
