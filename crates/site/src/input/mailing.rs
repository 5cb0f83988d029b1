//! Requests of the sender of mail.

use legwork_mail::Kind;
use legwork_model::id::AgentId;
use legwork_model::time::Timestamp;

/// A request of the sender of mail.
#[derive(Debug)]
pub enum Mailing {
    /// The letter that is due next.
    Next,
    /// The letter was sent, or can never be delivered.
    Told(Notice),
    /// The mail server refused it: no letter to this agent before this moment.
    PutOff { agent: AgentId, until: Timestamp },
    /// The mail address of an agent.
    Address { agent: AgentId },
    /// The agent with an address.
    Whose { address: String },
}

/// What an agent is notified of with one letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub agent: AgentId,
    pub about: Vec<(legwork_mail::Subject, Kind)>,
}
