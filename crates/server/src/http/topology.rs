//! Operations on the topology.
//!
//! Invariant: what is shown of an epoch follows from its text.

use std::sync::Arc;

use hyper::StatusCode;
use legwork_api::cluster::{DryRun, TopologyAnswer};
use legwork_api::topology::{Domain, LinkCost, ServerAddress, Topology};
use legwork_model::event;
use legwork_model::id::DomainId;
use legwork_placement::Topology as Placed;
use legwork_site::{Answer, PublishTopology, Request};

use super::cluster;
use super::definitions::versions;
use super::exchange::Exchange;
use super::gather::pages;
use super::reply::{Refused, Reply, Result, strange};
use crate::convert;

pub(super) async fn publish(x: Exchange<'_>) -> Result {
    let method = match x.query.text("method") {
        None => None,
        Some("since") => Some(event::Method::Since),
        Some("except") => Some(event::Method::Except),
        Some(_) => {
            let detail = "`method` is `since` or `except`";
            return Err(Refused::bad_request("bad_parameter", detail));
        }
    };
    let dry_run = x.query.parsed("dry_run")?.unwrap_or(false);
    let names = x.query.text("without").unwrap_or_default().split(',');
    let without = names.filter(|name| !name.is_empty()).map(Arc::from).collect();
    let source = x.source()?;
    let asked = PublishTopology { source, method, dry_run, without };
    let answer = x.ask(Request::PublishTopology(asked)).await?;
    if let Answer::Published { version, unchanged, warnings } = answer {
        let warnings = convert::findings(&warnings);
        return Reply::json(&TopologyAnswer { version, unchanged, warnings, ..Default::default() });
    }
    if let Answer::Reconfiguration(now) = answer {
        let version = now.epoch;
        let change = cluster::told(&x, *now).under_way.map(Box::new);
        let answer = TopologyAnswer { version, change, ..Default::default() };
        return Reply::json_with(StatusCode::ACCEPTED, &answer);
    }
    let Answer::DryRun(own) = answer else { return strange() };
    let own = cluster::dry_run(&x, *own).await?;
    if x.query.parsed("here")?.unwrap_or(false) {
        return Reply::json(&own);
    }
    let (parts, unreachable) = pages(&x, own).await;
    let together = cluster::together(parts.into_iter().map(|(_, part)| part));
    let version = x.app.links.as_ref().map_or(0, |links| links.topology().epoch);
    let dry_run = Some(Box::new(DryRun { unreachable, ..together }));
    Reply::json(&TopologyAnswer { version, dry_run, ..Default::default() })
}

pub(super) async fn show(x: Exchange<'_>) -> Result {
    let epoch = x.query.parsed("epoch")?;
    let answer = x.ask(Request::Topology { epoch }).await?;
    if let Answer::Topology { topology, source, here } = answer {
        let here = here.and_then(|here| topology.server(here));
        let server = here.map(|server| server.name.clone());
        return Reply::json(&Topology { server, ..shown(&topology, source) });
    }
    let Answer::TopologyText { epoch, source } = answer else { return strange() };
    // Nothing is kept of an epoch of the past but its text.
    let read = move || (Placed::parse(&source).0.unwrap_or_default(), source);
    let read = tokio::task::spawn_blocking(read).await;
    let (topology, source) = read.map_err(|error| Refused::fault(&error))?;
    Reply::json(&shown(&Placed { epoch, ..topology }, source))
}

pub(super) async fn epochs(x: Exchange<'_>) -> Result {
    let after = x.query.parsed("cursor")?.unwrap_or(0);
    versions(&x, Request::TopologyVersions { after, limit: x.query.limit()? }).await
}

fn shown(topology: &Placed, source: Arc<str>) -> Topology {
    let registrar = topology.registrar().and_then(|id| topology.server(id));
    let name = |id: &DomainId| topology.domain(*id).map(|domain| domain.name.clone());
    let links = topology
        .costs
        .iter()
        .filter_map(|((a, b), cost)| Some(LinkCost { between: [name(a)?, name(b)?], cost: *cost }));
    let domains = (0..=u16::MAX).map(DomainId).zip(&topology.domains);
    let domains = domains.map(|(id, domain)| {
        let servers = topology.servers_of(id).map(|(_, server)| ServerAddress {
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
