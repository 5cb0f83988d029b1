//! WHERE an instance is controlled and how it migrates: topology, places, transferred data.
//!
//! Invariant: pure, and no message is ever needed. Every question is answered from the schema, the
//! topology and the known history; servers with the same knowledge come to the same answer.
//!
//! The algorithms are those of Bauer, Reichert, Dadam: "Effiziente Übertragung von
//! Prozessinstanzdaten in verteilten Workflow-Management-Systemen", and named as in the paper.

mod address;
mod chain;
mod change;
mod check;
mod edit;
mod exceptions;
mod history;
mod layout;
mod number;
mod place;
mod proof;
mod read;
mod read_servers;
mod schema;
mod sequence;
mod sources;
mod topology;
mod watchdog;
mod write;

pub use chain::{Chain, Rule, Version};
pub use change::Change;
pub use check::{Domains, is_placed, unknown_domain};
pub use edit::{Edit, EditError};
pub use exceptions::{EXCEPTIONS_MAX, Exceptions, PORTION_MAX};
pub use history::{
    Known, Last, is_known_up_to, is_missing, knows, last_activities, last_activities_of,
};
pub use layout::{Layout, SPREADS, Weighted};
pub use place::{Map, place};
pub use proof::{Move, is_proven};
pub use read::{AT_HOME_MAX, COST_MAX, DOMAINS_MAX, LINKS_MAX, SERVER_NAME_LEN_MAX, SERVERS_MAX};
pub use read_servers::WEIGHT_MAX;
pub use schema::json_schema;
pub use sequence::Sequence;
pub use sources::{Reader, cheapest_first, sources};
pub use topology::{Domain, Server, SmallValues, Store, Topology, Transfer};
pub use watchdog::{Mode, Policy, Proposal, Proposed, Watch, Watched};
