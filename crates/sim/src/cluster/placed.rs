//! Invariants at any time while weights and hosts change.
//!
//! Invariant checked: an instance is open at one server of a domain at most, over all its servers,
//! whatever each of them has received; servers with the same catalog compute the same places.

use std::collections::BTreeMap;

use legwork_model::id::{DomainId, InstanceId, ServerId, StreamKind};
use legwork_placement::{Map, Rule};
use legwork_site::Seat;

use super::{Cluster, story};
use crate::world::World;

/// Every instance has one server in a domain.
pub(crate) fn one_server_each(cluster: &Cluster) -> Result<(), String> {
    one_server(cluster, "is open", World::open_instances)
}

/// No instance was ever at two servers of a domain, also those that are over.
pub(crate) fn one_server_ever(cluster: &Cluster) -> Result<(), String> {
    one_server(cluster, "was", |world| {
        let kinds = world.streams()?.into_keys().map(|stream| stream.kind());
        Ok(kinds
            .filter_map(|kind| if let StreamKind::Instance(id) = kind { Some(id) } else { None })
            .collect())
    })
}

/// No two servers of a domain have the same one of these instances.
fn one_server(
    cluster: &Cluster,
    what: &str,
    instances: impl Fn(&World) -> Result<Vec<InstanceId>, String>,
) -> Result<(), String> {
    let mut found: BTreeMap<(DomainId, InstanceId), usize> = BTreeMap::new();
    let Some(topology) = cluster.worlds[0].topology() else { return Ok(()) };
    for (place, world) in cluster.worlds.iter().enumerate() {
        // A server that has joined and is not in the catalog yet has nothing.
        let Some(domain) = topology.domain_of(ServerId(place as u16)) else { continue };
        for id in instances(world)? {
            if let Some(other) = found.insert((domain, id), place) {
                return Err(format!(
                    "{id} {what} at {other} and at {place}, both in domain {}: {:?} says {:?}\n{}",
                    domain.0,
                    topology.epoch,
                    topology.server_in(domain, id),
                    story::of(cluster, id)
                ));
            }
        }
    }
    Ok(())
}

/// Servers with the same catalog compute the same places, for all instances.
pub(crate) fn all_agree(cluster: &Cluster) -> Result<(), String> {
    let mut by_len = BTreeMap::new();
    for (place, world) in cluster.worlds.iter().enumerate() {
        let Some(Seat { here, topology }) = world.site().joined() else { continue };
        if usize::from(here.0) != place {
            return Err(format!("{place} takes itself for {here:?}"));
        }
        let (other, first) =
            by_len.entry(world.site().catalog_len()).or_insert((place, topology.clone()));
        if first.domains != topology.domains {
            return Err(format!("{place} and {other} have the same catalog and other places"));
        }
    }
    Ok(())
}

/// Whether no exception is left anywhere: all instances have ended.
pub(crate) fn has_no_exceptions(cluster: &Cluster) -> bool {
    let chains = cluster.worlds.iter().filter_map(|world| world.topology());
    let mut chains =
        chains.flat_map(|topology| topology.domains.iter().map(|domain| &domain.chain));
    chains.all(|chain| {
        !chain.versions().any(|version| match &version.rule {
            Rule::Except(ids) => !ids.is_empty(),
            Rule::Always | Rule::Since(_) => false,
        })
    })
}
