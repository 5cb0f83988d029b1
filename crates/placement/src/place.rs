//! Evaluates an assignment to the server that controls a node.
//!
//! Invariant: an assignment depends only on the history. The home of a performer is looked up once,
//! when the step ends, and recorded: a person who moves changes the future, not the past.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::id::{DomainId, InstanceId, NodeId, ServerId};
use legwork_model::schema::{Control, Schema};

use crate::history::{Known, Last};

/// The part of the topology that determines a place.
pub trait Map {
    fn domain_named(&self, name: &str) -> Option<DomainId>;
    fn domain_of(&self, server: ServerId) -> Option<DomainId>;
    /// The server of a domain that controls this instance there.
    fn server_in(&self, domain: DomainId, instance: InstanceId) -> Option<ServerId>;
}

/// The server that controls a node. `None` if what it depends on is not known (yet).
///
/// A domain without a server leaves a step where the instance was started: a step is never stuck
/// because of its place.
pub fn place(
    schema: &Schema,
    known: &impl Known,
    map: &impl Map,
    node: NodeId,
) -> Option<ServerId> {
    let last = |of: NodeId| known.last(of);
    let domain = match &*schema.node(node).control {
        Control::Start => return Some(known.start()),
        Control::Domain(name) => map.domain_named(name),
        Control::Server { of, exceptions } => {
            let Last { server, .. } = last(*of)?;
            match except(map, map.domain_of(server), exceptions) {
                Some(domain) => Some(domain),
                None => return Some(server),
            }
        }
        Control::ActorsDomain { of, exceptions } => {
            let Last { server, home, .. } = last(*of)?;
            let home = home.or_else(|| map.domain_of(server));
            except(map, home, exceptions).or(home)
        }
    };
    let server = domain.and_then(|domain| map.server_in(domain, known.instance()));
    Some(server.unwrap_or_else(|| known.start()))
}

/// The domain that replaces another one, if any.
fn except(
    map: &impl Map,
    domain: Option<DomainId>,
    exceptions: &BTreeMap<Arc<str>, Arc<str>>,
) -> Option<DomainId> {
    let domain = domain?;
    let from = |name: &Arc<str>| map.domain_named(name) == Some(domain);
    let (_, to) = exceptions.iter().find(|(name, _)| from(name))?;
    map.domain_named(to)
}
