//! Edits of a topology by command instead of by file: servers added, moved, given other weights.
//!
//! Invariant: an edited topology is written as a file and checked like every file. Here only names
//! are looked up; the reader of the file checks the rest.

use std::sync::Arc;

use legwork_model::id::ServerId;

use crate::place::Map;
use crate::topology::{Server, Topology};

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// A further server of a domain, after the existing ones.
    Add { server: Arc<str>, domain: Arc<str>, address: Arc<str>, api: Arc<str> },
    /// A server moves to another process: its own, at this address.
    Move { server: Arc<str>, address: Arc<str>, api: Option<Arc<str>> },
    /// A server becomes a guest in the process of another server.
    Host { server: Arc<str>, host: Arc<str> },
    /// Servers get other shares of the new instances of their domain.
    Weigh { weights: Vec<(Arc<str>, u32)> },
    /// Like `Weigh`, but to bring loads to their intended values, which stay as they were.
    Adjust { weights: Vec<(Arc<str>, u32)> },
}

/// Why an edit is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("there is no domain `{0}`; see `legwork cluster show`")]
    NoDomain(Arc<str>),
    #[error("there is no server `{0}`; see `legwork cluster show`")]
    NoServer(Arc<str>),
    #[error("there is a server `{0}` already; choose another name")]
    Taken(Arc<str>),
}

impl Topology {
    /// The file of the edited topology.
    pub fn edited(&self, edit: &Edit) -> Result<String, EditError> {
        let mut next = self.clone();
        match edit {
            Edit::Add { server, domain, address, api } => {
                if self.server_named(server).is_some() {
                    return Err(EditError::Taken(server.clone()));
                }
                let domain =
                    self.domain_named(domain).ok_or_else(|| EditError::NoDomain(domain.clone()))?;
                let new = Server::new(server.clone(), domain, address.clone(), api.clone());
                // It gets a weight once it runs.
                next.servers.push(Server { weight: 0, ..new });
            }
            Edit::Move { server, address, api } => {
                let one = next.named_mut(server)?;
                (one.host, one.address) = (None, address.clone());
                if let Some(api) = api {
                    one.api = api.clone();
                }
            }
            Edit::Host { server, host } => {
                let host = self.known(host)?;
                next.named_mut(server)?.host = Some(host);
            }
            Edit::Weigh { weights } => {
                for (server, weight) in weights {
                    let one = next.named_mut(server)?;
                    (one.weight, one.intended) = (*weight, None);
                }
            }
            Edit::Adjust { weights } => {
                for (server, weight) in weights {
                    let one = next.named_mut(server)?;
                    (one.weight, one.intended) = (*weight, Some(one.meant()));
                }
            }
        }
        Ok(next.to_yaml())
    }

    fn known(&self, name: &Arc<str>) -> Result<ServerId, EditError> {
        self.server_named(name).ok_or_else(|| EditError::NoServer(name.clone()))
    }

    fn named_mut(&mut self, name: &Arc<str>) -> Result<&mut Server, EditError> {
        let missing = || EditError::NoServer(name.clone());
        self.servers.iter_mut().find(|server| server.name == *name).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const BEFORE: &str = "
topology: group
domains:
  north:
    servers:
      north-1: { address: \"10.0.0.1:7710\", api: \"http://10.0.0.1:7700\" }
      north-2: { address: \"10.0.0.2:7710\", api: \"http://10.0.0.2:7700\", weight: 3 }
    people: [ann]
  lab: { servers: { lab-1: { address: \"10.0.1.1:7710\", api: \"http://10.0.1.1:7700\" } } }
";

    fn before() -> Topology {
        Topology::parse(BEFORE).0.unwrap()
    }

    /// The topology after an edit.
    fn after(edit: &Edit) -> Topology {
        let (before, text) = (before(), before().edited(edit).unwrap());
        let (next, findings) = Topology::succeed(&text, Some(&before), &BTreeMap::new());
        next.unwrap_or_else(|| panic!("{findings:?} in {text}"))
    }

    #[test]
    fn a_server_is_added_after_the_others_without_a_weight() {
        let (server, domain) = ("north-3".into(), "north".into());
        let (address, api) = ("10.0.0.3:7710".into(), "http://10.0.0.3:7700".into());
        let next = after(&Edit::Add { server, domain, address, api });
        let added = next.server_named("north-3").unwrap();
        assert_eq!(added, ServerId(3), "numbers are for ever");
        assert_eq!(next.server(added).unwrap().weight, 0);
        assert!(before().change_to(&next).is_empty(), "nothing is there yet that could move");
    }

    #[test]
    fn weights_address_and_host_change_what_they_say_and_nothing_else() {
        let next = after(&Edit::Weigh { weights: vec![("north-1".into(), 2)] });
        let change = before().change_to(&next);
        assert_eq!((change.domains.len(), change.servers.len()), (1, 0));
        let address: Arc<str> = "10.0.0.9:7710".into();
        let next = after(&Edit::Move { server: "north-2".into(), address, api: None });
        let change = before().change_to(&next);
        assert_eq!((change.domains.len(), change.servers.len()), (0, 1));
        let next = after(&Edit::Host { server: "north-2".into(), host: "north-1".into() });
        assert_eq!(next.servers[1].host, Some(ServerId(0)));
        assert_eq!(next.homes, before().homes);
    }

    #[test]
    fn what_is_meant_outlasts_an_adjustment_and_not_a_new_ratio() {
        let adjusted = after(&Edit::Adjust { weights: vec![("north-2".into(), 2)] });
        assert_eq!((adjusted.servers[1].weight, adjusted.servers[1].meant()), (2, 3));
        let again = Edit::Adjust { weights: vec![("north-2".into(), 1)] };
        let (again, _) = Topology::parse(&adjusted.edited(&again).unwrap());
        assert_eq!(again.unwrap().servers[1].meant(), 3);
        let anew = Edit::Weigh { weights: vec![("north-2".into(), 5)] };
        let (anew, _) = Topology::parse(&adjusted.edited(&anew).unwrap());
        assert_eq!(anew.unwrap().servers[1].meant(), 5);
    }

    #[test]
    fn names_that_mean_nothing_are_refused() {
        let nobody: Arc<str> = "nobody".into();
        let weigh = Edit::Weigh { weights: vec![(nobody.clone(), 1)] };
        assert_eq!(before().edited(&weigh), Err(EditError::NoServer(nobody.clone())));
        let host = Edit::Host { server: "lab-1".into(), host: nobody.clone() };
        assert_eq!(before().edited(&host), Err(EditError::NoServer(nobody)));
        let (domain, address, api) = ("north".into(), "a:1".into(), "http://a".into());
        let twice = Edit::Add { server: "lab-1".into(), domain, address, api };
        assert_eq!(before().edited(&twice), Err(EditError::Taken("lab-1".into())));
    }
}
