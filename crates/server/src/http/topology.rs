//! Operations on the topology.
//!
//! Invariant: what is shown of an epoch follows from its text.

use std::sync::Arc;

use legwork_api::definitions::{Published, Source, VersionList};
use legwork_api::topology::{Domain, LinkCost, ServerAddress, Topology};
use legwork_model::id::DomainId;
use legwork_placement::Topology as Placed;
use legwork_site::{Answer, PublishTopology, Request};

use super::definitions::versions;
use super::exchange::Exchange;
use super::reply::{Refused, Reply, Result};
use crate::convert;

/// Puts a topology in force at all servers: the next epoch.
#[utoipa::path(
    put, path = "/v1/topology", tag = "cluster", operation_id = "publish_topology",
    request_body(content(
        (String = "text/yaml", example = "topology: group\ndomains: …"),
        (Source = "application/json"),
    )),
    responses((status = 200, body = Published)),
)]
pub(super) async fn publish(x: Exchange<'_>) -> Result {
    x.query(&[])?;
    let asked = PublishTopology { source: x.source()?, ..PublishTopology::default() };
    let answer = x.ask(Request::PublishTopology(asked)).await?;
    if let Answer::Reconfiguration(status) = &answer {
        // It is under way, or has come to its end already.
        let (version, warnings) = (status.epoch, Vec::new());
        return Reply::json(&Published { version, unchanged: false, warnings });
    }
    let Answer::Published { version, unchanged, warnings } = answer else {
        return Err(Refused::strange_answer());
    };
    Reply::json(&Published { version, unchanged, warnings: convert::findings(&warnings) })
}

/// The topology in force, or another epoch of it.
#[utoipa::path(
    get, path = "/v1/topology", tag = "cluster", operation_id = "topology",
    params(("epoch" = Option<u32>, Query, description = "Without one, the one in force")),
    responses((status = 200, body = Topology)),
)]
pub(super) async fn show(x: Exchange<'_>) -> Result {
    let epoch = x.query(&["epoch"])?.parsed("epoch")?;
    let answer = x.ask(Request::Topology { epoch }).await?;
    if let Answer::Topology { topology, source, here } = answer {
        let here = here.and_then(|here| topology.server(here));
        let server = here.map(|server| server.name.clone());
        return Reply::json(&Topology { server, ..shown(&topology, source) });
    }
    let Answer::TopologyText { epoch, source } = answer else {
        return Err(Refused::strange_answer());
    };
    // Nothing is kept of an epoch of the past but its text.
    let read = move || (Placed::parse(&source).0.unwrap_or_default(), source);
    let read = tokio::task::spawn_blocking(read).await;
    let (topology, source) = read.map_err(|error| Refused::fault(&error))?;
    Reply::json(&shown(&Placed { epoch, ..topology }, source))
}

/// All epochs of the topology, oldest first.
#[utoipa::path(
    get, path = "/v1/topology/versions", tag = "cluster", operation_id = "topology_versions",
    params(
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<u32>, Query, description = "`next` of the page before"),
    ),
    responses((status = 200, body = VersionList)),
)]
pub(super) async fn epochs(x: Exchange<'_>) -> Result {
    let query = x.query(&["limit", "cursor"])?;
    let after = query.parsed("cursor")?.unwrap_or(0);
    versions(&x, Request::TopologyVersions { after, limit: query.limit()? }).await
}

fn shown(topology: &Placed, source: Arc<str>) -> Topology {
    let registrar = topology.registrar().and_then(|id| topology.server(id));
    let name = |id: &DomainId| topology.domain(*id).map(|domain| domain.name.clone());
    let links = topology
        .costs
        .iter()
        .filter_map(|((a, b), cost)| Some(LinkCost { between: [name(a)?, name(b)?], cost: *cost }));
    let domains = (0..=u16::MAX).map(DomainId).zip(&topology.domains);
    let domains = domains.filter(|(_, domain)| !domain.is_gone).map(|(id, domain)| {
        let servers = topology.in_use().filter(|(_, server)| server.domain == id);
        let servers = servers.map(|(_, server)| ServerAddress {
            server: server.name.clone(),
            address: server.address.clone(),
            api: server.api.clone(),
        });
        Domain {
            domain: domain.name.clone(),
            servers: servers.collect(),
            transfer: domain.transfer.word().to_owned(),
            people: topology.homes.values().filter(|home| **home == id).count(),
            executors: topology.executors.values().filter(|home| **home == id).count(),
        }
    });
    Topology {
        epoch: topology.epoch,
        name: topology.name.clone(),
        source,
        server: None,
        registrar: registrar.map(|server| server.name.clone()),
        domains: domains.collect(),
        links: links.collect(),
    }
}
