//! Predictable failures of a change, reported before anything is changed, in the terms of the command.
//!
//! Invariant: only earlier, never stricter: everything refused here is refused by the servers as well.

use anyhow::{Context as _, Result, bail, ensure};
use legwork_model::id::ServerId;
use legwork_placement::{Server, Topology};

/// Whether these servers can have no weight.
pub(super) fn drained(topology: &Topology, weights: &[(String, u32)]) -> Result<()> {
    let weight = |server: &Server| {
        let given = weights.iter().rev().find(|(name, _)| **name == *server.name);
        given.map_or(server.weight, |(_, weight)| *weight)
    };
    for (name, _) in weights.iter().filter(|(_, weight)| *weight == 0) {
        let (_, server) = named(topology, name)?;
        let of_domain = || topology.servers_of(server.domain).map(|(_, other)| other);
        if of_domain().any(|other| weight(other) > 0) {
            continue;
        }
        let domain = domain_of(topology, server);
        let weighed: Vec<&Server> = of_domain().filter(|other| other.weight > 0).collect();
        let [only] = weighed[..] else {
            bail!("no server of {domain} would have a weight; leave one of them its own");
        };
        bail!(
            "{} is the only server of {domain} that has a weight; add another one first, or \
             give a weight to one that is there",
            only.name
        );
    }
    Ok(())
}

/// Whether a server can become a guest of another.
pub(super) fn hosted(topology: &Topology, name: &str, host: &str) -> Result<()> {
    let (guest, server) = named(topology, name)?;
    let domain = domain_of(topology, server);
    let others = topology.servers_of(server.domain);
    // A guest has no process of its own.
    let others = others.filter(|(id, other)| *id != guest && other.host.is_none());
    let others: Vec<&str> = others.map(|(_, other)| &*other.name).collect();
    ensure!(
        !others.is_empty(),
        "{domain} has no other server that {name} could go to; add one first"
    );
    let guests = topology.servers_of(server.domain).filter(|(_, one)| one.host == Some(guest));
    let guests: Vec<&str> = guests.map(|(_, one)| &*one.name).collect();
    ensure!(
        guests.is_empty(),
        "the process of {name} runs {} as well; move that elsewhere first",
        guests.join(", ")
    );
    let choose = format!("choose a server of {domain}: {}", others.join(", "));
    let Ok((into, host)) = named(topology, host) else {
        bail!("there is no server `{host}`; {choose}");
    };
    ensure!(into != guest, "{name} cannot go on in its own process; {choose}");
    ensure!(
        host.domain == server.domain,
        "`{}` is in domain {}, and {name} in {domain}; {choose}",
        host.name,
        domain_of(topology, host)
    );
    ensure!(host.host.is_none(), "`{}` has no process of its own; {choose}", host.name);
    Ok(())
}

fn named<'t>(topology: &'t Topology, name: &str) -> Result<(ServerId, &'t Server)> {
    let id = topology.server_named(name);
    let found = id.and_then(|id| Some((id, topology.server(id)?)));
    found.with_context(|| format!("there is no server `{name}`; see `legwork cluster show`"))
}

fn domain_of<'t>(topology: &'t Topology, server: &Server) -> &'t str {
    topology.domain(server.domain).map_or("its domain", |domain| &domain.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "
topology: group
domains:
  north:
    servers:
      north-1: { address: \"10.0.0.1:7710\", api: \"http://10.0.0.1:7700\" }
      north-2: { address: \"10.0.0.2:7710\", api: \"http://10.0.0.2:7700\" }
      north-3: { host: north-1, weight: 0 }
  lab: { servers: { lab-1: { address: \"10.0.1.1:7710\", api: \"http://10.0.1.1:7700\" } } }
";

    fn group() -> Topology {
        Topology::parse(GROUP).0.unwrap()
    }

    #[test]
    fn a_host_that_cannot_be_one_is_refused_before_anything_is_changed() {
        let refused = |name, host| hosted(&group(), name, host).unwrap_err().to_string();
        for (name, host, said) in [
            (
                "north-2",
                "lab-1",
                "`lab-1` is in domain lab, and north-2 in north; choose a server of north: north-1",
            ),
            ("north-2", "nrth-1", "there is no server `nrth-1`; choose a server of north: north-1"),
            ("north-2", "north-2", "its own process; choose a server of north: north-1"),
            ("north-2", "north-3", "`north-3` has no process of its own"),
            ("north-9", "north-1", "there is no server `north-9`; see `legwork cluster show`"),
            ("lab-1", "north-1", "lab has no other server"),
            ("north-1", "north-2", "the process of north-1 runs north-3 as well"),
        ] {
            assert!(refused(name, host).contains(said), "{}", refused(name, host));
        }
        hosted(&group(), "north-2", "north-1").unwrap();
        hosted(&group(), "north-3", "north-2").unwrap();
    }

    #[test]
    fn one_server_of_each_domain_keeps_a_weight() {
        let weights = |text: &str| -> Vec<(String, u32)> {
            text.split(' ').map(|one| super::super::weighed(one).unwrap()).collect()
        };
        let refused_of = |group: &str, text: &str| {
            let group = Topology::parse(group).0.unwrap();
            drained(&group, &weights(text)).err().map(|error| error.to_string())
        };
        let refused = |text: &str| refused_of(GROUP, text);
        let said = refused("lab-1=0").unwrap();
        assert!(said.starts_with("lab-1 is the only server of lab that has a weight"), "{said}");
        let said = refused("north-1=0 north-2=0").unwrap();
        assert!(said.starts_with("no server of north would have a weight"), "{said}");
        // The server with the only weight is named, not the first in the file.
        let idle = GROUP.replace("http://10.0.0.2:7700\"", "http://10.0.0.2:7700\", weight: 0");
        let said = refused_of(&idle, "north-2=0 north-1=0").unwrap();
        assert!(said.starts_with("north-1 is the only server of north that has"), "{said}");
        for fine in ["north-1=0", "north-1=0 north-2=0 north-3=4", "lab-1=7", "north-3=0"] {
            assert_eq!(refused(fine), None, "{fine}");
        }
    }
}
